"""Bodies of a gigabyte against a real controller: refused early, and not kept."""

import re
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from controller_harness import DEADLINE_S, Controller, free_port

Start = Callable[..., Controller]

GIGABYTE = 10**9
BLOCK_BYTES = 65536
BLOCK = b"[" * BLOCK_BYTES
MIB = 1024 * 1024

CLASS = "/v1/switches/s1/classes/video"
STATE = "/v1/state"


def memory_bytes(controller: Controller) -> int:
    """Return the most memory that the process ever had."""
    status = Path(f"/proc/{controller.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def pour(controller: Controller, path: str, *, chunked: bool) -> tuple[bytes, int]:
    """Send a body until there is an answer; return the answer's status line and bytes sent."""
    parts = urlsplit(controller.url)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {GIGABYTE}"
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    block = b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK
    sent = 0
    with socket.create_connection((parts.hostname, parts.port), DEADLINE_S) as connection:
        # Or this end's buffer would grow as large as the other's.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BLOCK_BYTES)
        connection.sendall(head.encode())
        connection.setblocking(False)
        left = b""
        end = time.monotonic() + DEADLINE_S
        while sent < GIGABYTE and time.monotonic() < end:
            readable, writable, _ = select.select([connection], [connection], [], 1.0)
            if readable:
                break
            if writable:
                left = left or block
                taken = connection.send(left)
                left = left[taken:]
                sent += taken
        connection.setblocking(True)
        connection.settimeout(DEADLINE_S)
        return connection.recv(4096).partition(b"\r\n")[0], sent


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("path", "most"), [(CLASS, MIB), (STATE, 32 * MIB)])
def test_a_gigabyte_is_refused_long_before_it_is_there(
    start_controller: Start, path: str, most: int, chunked: bool
) -> None:
    controller = start_controller("--switch", f"s1=127.0.0.1:{free_port()}")
    controller.get("/v1/switches")
    before = memory_bytes(controller)
    for _ in range(3):
        answer, sent = pour(controller, path, chunked=chunked)
        assert answer.startswith(b"HTTP/1.1 413 ")
        # The bytes beyond the limit are in the sockets' buffers.
        assert sent <= most + 16 * MIB
    assert memory_bytes(controller) - before < 3 * most + 16 * MIB
    assert controller.get("/healthz")["status"] == "ok"

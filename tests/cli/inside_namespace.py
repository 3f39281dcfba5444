"""A switch with real interfaces, in a network namespace of its own; not a test itself.

Prints one JSON object: how it took bad programs while it forwarded, and how signals ended it.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ptf"))

from p4runtime_client import Client, P4RuntimeError, Program
from programs import bad_programs
from virtual_switch import COMPILED, binary

TIMEOUT_S = 20.0
FRAME_BYTES = 200
ETHER_TYPE = 0x88B5
_READY = "gRPC at "


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def make_wires() -> None:
    """Two wires, a0-a1 and b0-b1; the switch gets a1 and b1."""
    _ip("link", "set", "lo", "up")
    # The kernel's own IPv6 packets would be counted, too.
    knob = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    if knob.exists():
        knob.write_text("1\n")
    for near, far in (("a0", "a1"), ("b0", "b1")):
        _ip("link", "add", near, "type", "veth", "peer", "name", far)
        _ip("link", "set", near, "up")
        _ip("link", "set", far, "up")


class Wires:
    """The far ends of the switch's interfaces."""

    def __init__(self) -> None:
        self.sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sender.bind(("a0", 0))
        self.receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.receiver.bind(("b0", ETHER_TYPE))
        self.receiver.settimeout(TIMEOUT_S)
        self.sent = 0

    def forwarded(self, frames: int) -> int:
        """Send frames into port 1; return how many came out of port 2 unchanged, in order."""
        arrived = 0
        for _ in range(frames):
            self.sent += 1
            head = b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01" + ETHER_TYPE.to_bytes(2, "big")
            frame = head + self.sent.to_bytes(4, "big")
            frame += bytes(FRAME_BYTES - len(frame))
            self.sender.send(frame)
            arrived += self.receiver.recv(2048) == frame
        return arrived


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A switch that floods between its ports; gives the process and its gRPC address."""
    replicas = [{"egress_port": port, "instance": port} for port in (1, 2)]
    groups = [{"multicast_group_id": group, "replicas": replicas} for group in (1, 2)]
    runtime = folder / "runtime.json"
    runtime.write_text(json.dumps({"multicast_group_entries": groups}))
    process = subprocess.Popen(
        [
            *(str(binary()), "-i", "1@a1", "-i", "2@b1,rate=1gbit", "--cpu-port", "510"),
            *("--grpc-server-addr", "127.0.0.1:0", "--runtime-json", str(runtime)),
            *("--stats-file", str(folder / "stats.json"), str(COMPILED / "pacer.json")),
        ],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if _READY in line:
                yield process, line.partition(_READY)[2].strip()
                return
        raise RuntimeError(f"the switch ended with status {process.wait()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def push_bad_programs(address: str, wires: Wires) -> list[dict[str, Any]]:
    """Push every bad program; after each, send a frame through."""
    program = Program(COMPILED / "pacer.p4info.txtpb", COMPILED / "pacer.json")
    client = Client(address, 0, program)
    pushed = []
    try:
        if client.become_primary() != 0:
            raise RuntimeError("refused as primary")
        for bad in bad_programs():
            code, text = "OK", ""
            try:
                client.push(bad.text.encode())
            except P4RuntimeError as error:
                code, text = error.code.name, error.text
            pushed.append(
                {"name": bad.name, "code": code, "text": text, "forwarded": wires.forwarded(1)}
            )
    finally:
        client.close()
    return pushed


def main() -> None:
    """Live through all of it and tell."""
    folder = Path(sys.argv[1])
    make_wires()
    told: dict[str, Any] = {"ends": {}}
    for number in (signal.SIGTERM, signal.SIGINT):
        wires = Wires()
        with running(folder) as (process, address):
            wires.forwarded(100)
            if number is signal.SIGTERM:
                told["pushed"] = push_bad_programs(address, wires)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=TIMEOUT_S)
        statistics = folder / "stats.json"
        told["ends"][number.name] = {
            "status": process.returncode,
            "stderr": stderr,
            "statistics": json.loads(statistics.read_text()),
            "sent": wires.sent,
            "sent_bytes": wires.sent * FRAME_BYTES,
        }
        statistics.unlink()
    print(json.dumps(told))


if __name__ == "__main__":
    main()

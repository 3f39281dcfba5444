"""Two hosts with a VXLAN tunnel through the switch, in their own namespaces; not a test itself.

The first argument is a folder, the second a port driver. Prints one JSON object: what came through
the tunnel unchanged, and the switch's statistics. The hosts' interfaces are as the kernel makes
them, with offloads.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from inside_namespace import TIMEOUT_S, ended, running

CLONE_NEWNET = 0x4000_0000
UDP_SEGMENT = 103
SEGMENT_BYTES = 1_000
DATAGRAMS = 21
STREAM_BYTES = 4_000_000

Given = ParamSpec("Given")
Result = TypeVar("Result")


class NoTunnelError(Exception):
    """The kernel has no VXLAN."""


def ip(words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)


class Host:
    """A network namespace with an interface on the switch, and a tunnel to the other host."""

    def __init__(self, number: int, device: str) -> None:
        self.address = f"10.1.0.{number}"
        self._inside = ThreadPoolExecutor(1)
        ip(f"link add {device} type veth peer name eth0 netns {self.run(_new_namespace)}")
        ip(f"link set {device} up")
        own, other = f"10.0.0.{number}", f"10.0.0.{3 - number}"
        self.run(ip, "link set eth0 up")
        self.run(ip, f"address add {own}/24 dev eth0")
        try:
            ends = f"local {own} remote {other} dstport 4789 dev eth0"
            self.run(ip, f"link add tunnel type vxlan id 42 {ends}")
        except subprocess.CalledProcessError as error:
            raise NoTunnelError(error.stderr.strip()) from None
        self.run(ip, "link set tunnel up")
        self.run(ip, f"address add {self.address}/24 dev tunnel")

    def run(self, call: Callable[Given, Result], *args: Given.args, **kw: Given.kwargs) -> Result:
        """Call a function inside; its sockets stay there."""
        return self._inside.submit(call, *args, **kw).result()


def _new_namespace() -> int:
    """Give the calling thread a network namespace of its own; return its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return threading.get_native_id()


def stream_arrives(sender: Host, receiver: Host) -> bool:
    """Whether a TCP stream comes unchanged."""
    data = os.urandom(STREAM_BYTES)
    with receiver.run(socket.create_server, (receiver.address, 0)) as server:
        server.settimeout(TIMEOUT_S)
        target = server.getsockname()
        with sender.run(socket.create_connection, target, TIMEOUT_S) as sending:
            receiving, _ = server.accept()

            def send() -> None:
                sending.sendall(data)
                sending.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=send)
            thread.start()
            with receiving, receiving.makefile("rb") as file:
                came = file.read()
            thread.join()
    return came == data


def datagrams_arrive(sender: Host, receiver: Host) -> bool:
    """Whether datagrams that are handed over at once come one by one, unchanged."""
    sent = [os.urandom(SEGMENT_BYTES) for _ in range(DATAGRAMS)]
    with (
        receiver.run(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as receiving,
        sender.run(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sending,
    ):
        receiving.bind((receiver.address, 0))
        receiving.settimeout(TIMEOUT_S)
        sending.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT_BYTES)
        sending.sendto(b"".join(sent), receiving.getsockname())
        return [receiving.recv(2048) for _ in sent] == sent


def main() -> None:
    """Both ways."""
    folder, driver = Path(sys.argv[1]), sys.argv[2]
    ip("link set lo up")
    try:
        one, other = Host(1, "a1"), Host(2, "b1")
    except NoTunnelError as error:
        print(json.dumps({"not_run": str(error)}))
        return
    with running(folder, "--port-driver", driver) as switch:
        told = {
            "streams": [stream_arrives(one, other), stream_arrives(other, one)],
            "datagrams": [datagrams_arrive(one, other), datagrams_arrive(other, one)],
        } | ended(switch)
    print(json.dumps(told))


if __name__ == "__main__":
    main()

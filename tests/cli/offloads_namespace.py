"""TCP between two hosts with their offloads on, through pacer.p4; not a test itself.

    offloads_namespace.py FOLDER THREADS    prints one JSON object: a transfer without a class and
                                            one with a class, with their ends
    offloads_namespace.py host NUMBER       a host, which a line of its input tells what to do

The hosts are network namespaces. Their interfaces are as the kernel makes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from inside_namespace import ended, running
from pacing_switch.wires import await_carrier

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))

from pacer_entries import flow_by_dscp, paced_class, station

BYTES = 4_000_000
CLASS, RATE_BPS = 1, 200_000_000
TCP_PORT = 5001
TIMEOUT_S = 60.0


def address(number: int) -> str:
    """The IP address of a host."""
    return f"10.0.0.{number}"


def mac(number: int) -> str:
    """The MAC address of a host."""
    return f"02:00:00:00:00:0{number}"


def run(*command: str) -> None:
    """Run a command, which has to succeed."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Host:
    """A host behind a port of the switch: a process in a network namespace of its own."""

    def __init__(self, number: int, device: str) -> None:
        """Make it, and its wire to `device`."""
        self._process = subprocess.Popen(
            ["unshare", "--net", sys.executable, __file__, "host", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # From now on the namespace is there.
        self.answer()
        peer = ["peer", "name", "eth0", "netns", str(self._process.pid)]
        run("ip", "link", "add", device, "type", "veth", *peer)
        run("ip", "link", "set", device, "up")
        self.ask("up")
        self.answer()
        await_carrier(device)

    def ask(self, line: str) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Its answer, when it has come."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


def be_host(number: int) -> None:
    """Do what the input says, and print an answer for each line."""
    other = 3 - number
    tell("here")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "up":
            run("ip", "link", "set", "eth0", "address", mac(number), "up")
            run("ip", "address", "add", f"{address(number)}/24", "dev", "eth0")
            neighbour = [address(other), "lladdr", mac(other), "dev", "eth0"]
            run("ip", "neighbour", "replace", *neighbour)
            await_carrier("eth0")
            tell("up")
        elif words[0] == "receive":
            receive(address(number))
        else:
            send(address(other), dscp=int(words[1]))


def tell(what: object) -> None:
    """Answer."""
    print(json.dumps(what), flush=True)


def receive(own: str) -> None:
    """Take one connection and tell what came."""
    with socket.create_server((own, TCP_PORT)) as server:
        server.settimeout(TIMEOUT_S)
        tell("listening")
        connection, _ = server.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            digest, received = hashlib.sha256(), 0
            while part := connection.recv(1 << 20):
                digest.update(part)
                received += len(part)
    tell({"bytes": received, "digest": digest.hexdigest()})


def send(to: str, dscp: int) -> None:
    """Send all bytes over one connection; tell how long it took until the other end had them."""
    data = random.Random(1).randbytes(BYTES)
    with socket.socket() as connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        connection.connect((to, TCP_PORT))
        began_s = time.monotonic()
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        # The other end closes its connection when it has all.
        connection.recv(1)
        seconds = time.monotonic() - began_s
    tell({"bytes": BYTES, "digest": hashlib.sha256(data).hexdigest(), "seconds": seconds})


def transfer(folder: Path, hosts: list[Host], threads: str, dscp: int) -> dict[str, Any]:
    """Send bytes of a DSCP from the first host to the second."""
    stations = [entry for number in (1, 2) for entry in station(mac(number), number)]
    entries = [*stations, paced_class(CLASS, RATE_BPS), flow_by_dscp(CLASS)]
    sender, receiver = hosts
    with running(folder, "--threads", threads, entries=entries) as switch:
        receiver.ask("receive")
        receiver.answer()
        sender.ask(f"send {dscp}")
        told = {"sent": sender.answer(), "received": receiver.answer()}
        return told | ended(switch)


def main() -> None:
    """Run both transfers and print the result."""
    folder, threads = Path(sys.argv[1]), sys.argv[2]
    called = folder / "ethtool-was-called"
    tools = folder / "tools"
    tools.mkdir()
    (tools / "ethtool").write_text(f"#!/bin/sh\ntouch {called}\n")
    (tools / "ethtool").chmod(0o755)
    os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
    run("ip", "link", "set", "lo", "up")
    hosts = [Host(1, "a1"), Host(2, "b1")]
    told: dict[str, Any] = {
        "unpaced": transfer(folder, hosts, threads, dscp=0),
        "paced": transfer(folder, hosts, threads, dscp=CLASS),
    }
    for host in hosts:
        host.end()
    print(json.dumps(told | {"ethtool": called.exists()}))


if __name__ == "__main__":
    if sys.argv[1] == "host":
        be_host(int(sys.argv[2]))
    else:
        main()

"""A switch under a flood of clients without rights, in a network namespace of its own; not a test.

Prints one JSON object: the frames through the switch, the requests of its controller, the switch's
refusals, and the figures of its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from pacing_switch.wires import make_wires

HERE = Path(__file__).resolve()
for folder in ("virtual", "ptf"):
    sys.path.insert(0, str(HERE.parents[1] / folder))

from inside_namespace import Wires, ended, running  # noqa: E402
from p4runtime_client import Client, Program  # noqa: E402
from pacer_controller.switch_services import ServiceUnavailableError  # noqa: E402
from pacer_controller.traffic_manager import Primary, TrafficManager  # noqa: E402
from virtual_switch import COMPILED  # noqa: E402

NOBODY = 65534
SWITCH, ELSEWHERE = "10.99.0.1", "10.99.0.2"
THRIFT_PORT, NOTIFICATIONS_PORT = 9090, 9091
FRAMES = 300
CHANGES = 30


@contextmanager
def elsewhere() -> Iterator[list[str]]:
    """Give the words that run a command in another namespace, from which the switch is reached."""
    other = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        words = ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{other.pid}/ns/net") == own:
            pass
        for command in (
            ["ip", "link", "add", "m0", "type", "veth", "peer", "name", "m1"],
            ["ip", "link", "set", "m1", "netns", str(other.pid)],
            ["ip", "address", "add", f"{SWITCH}/24", "dev", "m0"],
            ["ip", "link", "set", "m0", "up"],
            [*words, "ip", "address", "add", f"{ELSEWHERE}/24", "dev", "m1"],
            [*words, "ip", "link", "set", "m1", "up"],
        ):
            subprocess.run(command, check=True)
        yield words
    finally:
        other.kill()
        other.wait()


@contextmanager
def flood(*command: str, user: int | None = None) -> Iterator[None]:
    """Run a client without rights until the end of the block, once it is at it."""
    # Not by Popen's `user`: the fork that it needs can crash the child, because gRPC has threads.
    become = ["setpriv", f"--reuid={user}"] if user is not None else []
    process = subprocess.Popen(
        [*become, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        if "at it" not in process.stdout.readline():
            raise RuntimeError(f"the client ended with status {process.wait()}")
        yield
    finally:
        process.kill()
        process.wait()


async def changes(address: str, primary: Primary) -> dict[str, Any]:
    """Change a port again and again as the primary; then ask for the switch's statistics."""
    refused = []
    async with grpc.aio.insecure_channel(address) as channel:
        service = TrafficManager(channel)
        for number in range(CHANGES):
            try:
                await service.set_port(1, {"fifo_bytes": 100_000 + number}, primary)
            except ServiceUnavailableError as error:
                refused.append(str(error))
        statistics = await service.statistics([])
    return {"refused": refused, "refusals": statistics["switch"]["refusals"]}


def privileges(process: int) -> dict[str, str]:
    """Return a process's users and capabilities, from the kernel."""
    status = Path(f"/proc/{process}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {name: fields[name].strip() for name in ("Uid", "CapEff", "CapPrm", "NoNewPrivs")}


def main() -> None:
    """Run all of it and print the result."""
    folder = Path(sys.argv[1])
    make_wires([("a0", "a1"), ("b0", "b1")])
    wires = Wires()
    told: dict[str, Any] = {}
    state = folder / "state"
    options = ["--state-dir", str(state), "--thrift-port", str(THRIFT_PORT)]
    options += ["--notifications-addr", f"tcp://127.0.0.1:{NOTIFICATIONS_PORT}"]
    attack = [sys.executable, str(HERE.with_name("flood_client.py"))]
    with (
        elsewhere() as there,
        running(folder, *options, listen="0.0.0.0:0") as switch,
    ):
        port = switch.grpc_address.rpartition(":")[2]
        near = f"127.0.0.1:{port}"
        program = Program(COMPILED / "pacer.p4info.txtpb", COMPILED / "pacer.json")
        # The controller reaches the switch by another address of this machine.
        client = Client(f"{SWITCH}:{port}", 0, program)
        told["primary"] = client.become_primary()
        election_id = (client.election_id.high << 64) + client.election_id.low
        primary = Primary(0, election_id)
        told["before"] = wires.forwarded(FRAMES)
        with flood(*there, *attack, f"{SWITCH}:{port}"):
            told["elsewhere"] = asyncio.run(changes(near, primary))
            told["meanwhile"] = wires.forwarded(FRAMES)
        if os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split()[2] != "1":
            with flood(*attack, near, user=NOBODY):
                told["stranger"] = asyncio.run(changes(near, primary))
                told["beside_stranger"] = wires.forwarded(FRAMES)
            with flood(*attack, f"127.0.0.1:{THRIFT_PORT}", "thrift", user=NOBODY):
                told["thrift_stranger"] = asyncio.run(changes(near, primary))
                told["beside_thrift_stranger"] = wires.forwarded(FRAMES)
            with flood(*attack, f"127.0.0.1:{NOTIFICATIONS_PORT}", "notifications", user=NOBODY):
                told["notifications_stranger"] = asyncio.run(changes(near, primary))
                told["beside_notifications_stranger"] = wires.forwarded(FRAMES)
        told["files"] = {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()}
        told["privileges"] = privileges(switch.pid)
        client.close()
        told |= ended(switch)
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""A switch with real interfaces, in a network namespace of its own; not a test itself.

Prints one JSON object: how it took bad programs while it forwarded, and how signals ended it.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pacing_switch import Switch
from pacing_switch.wires import make_wires

for folder in ("virtual", "ptf"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from p4runtime_client import Client, P4RuntimeError, Program  # noqa: E402
from programs import bad_programs  # noqa: E402
from virtual_switch import COMPILED, binary  # noqa: E402

TIMEOUT_S = 60.0
LOG = "switch.log"
FRAME_BYTES = 200
ETHER_TYPE = 0x88B5


def frame_of(number: int, ether_type: int = ETHER_TYPE) -> bytes:
    """A frame that carries a number."""
    head = b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01" + ether_type.to_bytes(2, "big")
    return (head + number.to_bytes(4, "big")).ljust(FRAME_BYTES, b"\0")


def listener(interface: str, ether_type: int = ETHER_TYPE) -> socket.socket:
    """Receives the frames of one Ethernet type that come to an interface."""
    receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    receiver.bind((interface, ether_type))
    receiver.settimeout(TIMEOUT_S)
    return receiver


class Wires:
    """The far ends of the switch's interfaces."""

    def __init__(self, receiving: str = "b0") -> None:
        self.sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sender.bind(("a0", 0))
        self.receiver = listener(receiving)
        self.sent = 0

    def forwarded(self, frames: int) -> int:
        """Send frames into port 1; return how many came out unchanged, in order."""
        arrived = 0
        for _ in range(frames):
            self.sent += 1
            frame = frame_of(self.sent)
            self.sender.send(frame)
            arrived += self.receiver.recv(2048) == frame
        return arrived


@contextmanager
def running(
    folder: Path,
    *more: str,
    ports: tuple[int, ...] = (1, 2),
    entries: Sequence[Mapping[str, object]] = (),
    listen: str = "127.0.0.1:0",
) -> Iterator[Switch]:
    """A switch that floods between `ports`, with statistics and log in `folder`.

    `more` are options besides, for instance further ports; `entries` are table entries; `listen` is
    where it serves gRPC.
    """
    replicas = [{"egress_port": port, "instance": port} for port in ports]
    groups = [{"multicast_group_id": group, "replicas": replicas} for group in (1, 2)]
    runtime = folder / "runtime.json"
    runtime.write_text(
        json.dumps({"multicast_group_entries": groups, "table_entries": list(entries)})
    )
    options = ["--cpu-port", "510", "--runtime-json", str(runtime)]
    options += ["--stats-file", str(folder / "stats.json"), *more]
    with Switch(
        COMPILED / "pacer.json",
        ports={1: "a1", 2: "b1,rate=1gbit"},
        options=options,
        grpc_address=listen,
        log=folder / LOG,
        binary=binary(),
    ) as switch:
        yield switch


def ended(switch: Switch, signal_number: int = signal.SIGTERM) -> dict[str, Any]:
    """End the switch by a signal; return its status, its output and its statistics."""
    folder = switch.log.parent
    switch.process.send_signal(signal_number)
    switch.process.wait(TIMEOUT_S)
    status = switch.stop()
    statistics = json.loads((folder / "stats.json").read_text())
    return {"status": status, "stderr": switch.log.read_text(), "statistics": statistics}


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
    """Run all of it and print the result."""
    folder = Path(sys.argv[1])
    # The switch gets a1 and b1.
    make_wires([("a0", "a1"), ("b0", "b1")])
    told: dict[str, Any] = {"ends": {}}
    for number in (signal.SIGTERM, signal.SIGINT):
        wires = Wires()
        with running(folder) as switch:
            wires.forwarded(100)
            if number is signal.SIGTERM:
                told["pushed"] = push_bad_programs(switch.grpc_address, wires)
            told["ends"][number.name] = ended(switch, number) | {
                "sent": wires.sent,
                "sent_bytes": wires.sent * FRAME_BYTES,
            }
        (folder / "stats.json").unlink()
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""Priority queues in real time, set over Thrift, in a network namespace of its own; not a test.

Prints one JSON object: the priorities of the frames in the order in which they left, and the
packets that each queue dropped.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacing_switch import Switch
from pacing_switch.wires import make_wires
from stubs import connected, generate
from virtual_switch import binary

PROGRAM = Path(__file__).resolve().parents[1] / "conformance" / "compiled" / "priorities.json"
ALL_PROTOCOLS = 3
ETHER_TYPE = 0x88B5
TIMEOUT_S = 60.0
LOW, HIGH, FULL = 0, 7, 3


def frame(priority: int) -> bytes:
    """The program reads the priority in the first byte."""
    return bytes([priority]) + bytes(11) + ETHER_TYPE.to_bytes(2, "big") + bytes(46)


def end_of_wire(interface: str, protocol: int) -> socket.socket:
    """Return a socket that sends frames, or receives those of the protocol."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.bind((interface, protocol))
    end.settimeout(TIMEOUT_S)
    return end


@contextlib.contextmanager
def running_switch(
    stats: Path, *further: str
) -> Iterator[tuple[int, socket.socket, socket.socket]]:
    """Run a switch with eight queues; return its Thrift port, a sender and the receiver.

    The stubs are beside the file of statistics, which has them when the switch has ended.
    """
    generate(stats.parent)
    make_wires([("t1", "s1"), ("t2", "s2")])
    near, far = end_of_wire("t2", ETHER_TYPE), end_of_wire("t1", ALL_PROTOCOLS)
    options = ["--priority-queues", "8", "--thrift-port", "0", "--stats-file", str(stats), *further]
    with Switch(PROGRAM, {1: "s1", 2: "s2"}, options=options, binary=binary()) as switch:
        line = switch.wait_for_line(": Thrift at ")
        yield int(line.rpartition(":")[2]), near, far


def drops_of(stats: Path) -> dict[int, Any]:
    """Return the drops of each queue of port 1 that has some."""
    ports = json.loads(stats.read_text())["ports"]
    return {queue["queue"]: queue["drops"] for queue in ports[0]["queues"] if queue["drops"]}


def main() -> None:
    """Send frames of several priorities through a port whose lowest queue is slow."""
    stats = Path(sys.argv[1]) / "stats.json"
    with running_switch(stats) as (port, near, far):
        with connected(port) as clients:
            # A packet of the lowest queue a second, and no packet of another one.
            clients.simple_switch.set_egress_priority_queue_rate(1, LOW, 1)
            clients.simple_switch.set_egress_priority_queue_depth(1, FULL, 0)
        for priority in (LOW, LOW, FULL, HIGH):
            near.send(frame(priority))
        received = [far.recv(2048)[0] for _ in range(3)]
    print(json.dumps({"received": received, "drops": drops_of(stats)}))


if __name__ == "__main__":
    main()

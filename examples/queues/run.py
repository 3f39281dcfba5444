"""Flows through marker.p4 in virtual time, on a port with 16 queues; see README.md here.

build/venv/bin/python examples/queues/run.py
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from pacing_switch import TimedFrame, VirtualSwitch

HERE = Path(__file__).resolve().parent
RELEASE = HERE.parents[1] / "switch" / "target" / "release" / "pacing_switch"

QUEUES = 16
BYTES = 1_514  # without FCS, as captures have it
BACK_TO_BACK_NS = (BYTES + 24) * 8  # on a line of 1 Gbit/s
ECT_0, CE = 2, 3

# UDP port, packets, time between them: one flow as fast as its line, and two slow ones.
FLOWS = ((5001, 60, BACK_TO_BACK_NS), (5002, 6, 1_000_000), (5003, 6, 1_000_000))

_IPV4 = struct.Struct(">BBHHHBBHII")
_PORTS = struct.Struct(">HH")
_AT = 14


def frame(port: int) -> bytes:
    """Return an ECN-capable UDP packet from 10.0.0.1 to a port of 10.0.0.2."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    fields = [0x45, ECT_0, BYTES - _AT, 0, 0, 64, 17, 0, 0x0A000001, 0x0A000002]
    total = sum(word for (word,) in struct.iter_unpack(">H", _IPV4.pack(*fields)))
    fields[7] = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return (ethernet + _IPV4.pack(*fields) + _PORTS.pack(4000, port)).ljust(BYTES, b"\0")


def flow_of(packet: bytes) -> int:
    """Return the UDP port that a packet goes to."""
    return int(_PORTS.unpack_from(packet, _AT + _IPV4.size)[1])


def main() -> None:
    arrivals = [
        TimedFrame(number * gap_ns, frame(port))
        for port, packets, gap_ns in FLOWS
        for number in range(packets)
    ]
    arrivals.sort(key=lambda timed: timed.at_ns)
    weights = ":".join(["1"] * QUEUES)
    with VirtualSwitch(
        HERE / "compiled" / "pacing_switch" / "marker.json",
        ports={1: "", 2: f"rate=100mbit,queues={QUEUES},scheduler=drr:{weights}"},
        runtime=json.loads((HERE / "entries.json").read_text()),
        binary=os.environ.get("PACING_SWITCH", RELEASE),
    ) as switch:
        left = switch.run({1: arrivals})[2]
        queues = switch.statistics()["ports"][1]["queues"]
    print("flow   packets   marked   longest wait (ns)")
    for port, _, _ in FLOWS:
        # A flow is in one queue, so its packets keep their order.
        came = [timed.at_ns for timed in arrivals if flow_of(timed.frame) == port]
        went = [timed for timed in left if flow_of(timed.frame) == port]
        marked = sum(timed.frame[_AT + 1] & CE == CE for timed in went)
        longest_ns = max(end.at_ns - start for start, end in zip(came, went, strict=True))
        print(f"{port:4}{len(went):10}{marked:9}{longest_ns:20}")
    used = [number for number, queue in enumerate(queues) if queue["tx_packets"]]
    print("queues that sent:", *used)


if __name__ == "__main__":
    main()

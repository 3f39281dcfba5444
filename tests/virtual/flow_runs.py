"""Classes whose TCP flows are followed: the switch's departures, and those of the model."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from heapq import merge
from itertools import accumulate
from pathlib import Path

from flow_model import Address, FlowClass, FlowPacer, Segment
from pacer_entries import class_entry, flow, station
from pacing_switch import TimedFrame
from sharing_model import SharedClass, SharedPacer
from tcp_traffic import STATIONS, Sender, frame_of
from virtual_switch import Port, VirtualRun, run

CLASS = 5
V4: tuple[Address, Address] = (("10.0.0.1", 40_000), ("10.0.0.2", 5001))
V6: tuple[Address, Address] = (("2001:db8::1", 40_000), ("2001:db8::2", 5001))
OF_THE_SAME_CELL: dict[str, tuple[Address, Address]] = {
    # The polynomial of the CRC-16 added to the ports, whose remainder is 0.
    "ports": ((V4[0][0], V4[0][1] ^ 0x0340), (V4[1][0], V4[1][1] ^ 0x0100)),
    # The same ports, and addresses whose CRC-32 is that of the other two.
    "addresses": (("10.0.0.4", V4[0][1]), ("25.179.47.31", V4[1][1])),
}
"""Ends of other flows that would have the cell of V4's."""

GROWTH = [(10, -1), (20, -1), (40, -1), (80, -1), (80, -1), (80, -1)]
"""Round trips of a sender whose window grows."""

Traffic = list[tuple[int, Segment]]
"""Ports and segments."""


def entry_of(config: FlowClass | SharedClass, limit_bytes: int = 1 << 30) -> dict[str, object]:
    """The class in the program's table."""
    params = {"limit_bytes": limit_bytes, "allowance_ns": 1_000_000, "ecn_threshold_bytes": 0}
    if isinstance(config, SharedClass):
        return class_entry(CLASS, "paced_shared", params | asdict(config))
    if config.clustered:
        params["release_below_ns"] = config.release_below_ns
        return class_entry(CLASS, "paced_clustered", params)
    if config.pspd:
        return class_entry(CLASS, "paced_pspd", params)
    params |= {
        "inverse_headroom_q16": config.inverse_headroom_q16,
        "time_per_byte_q24": config.fastest_time_per_byte_q24,
        "bytes_per_ns_q24": 0,
        "window_margin_bytes": 0,
    }
    if not config.release_below_ns:
        return class_entry(CLASS, "paced_dynamic", params)
    params["release_below_ns"] = config.release_below_ns
    return class_entry(CLASS, "paced_slow_start", params)


def left_by_port(
    config: FlowClass | SharedClass,
    arrivals: dict[int, list[TimedFrame]],
    folder: Path,
    later: tuple[int, FlowClass] | None = None,
    line: str = "",
) -> list[TimedFrame]:
    """The frames that left by port 2. Those from port 1 are of the class; others pass unchanged.

    ``later``: when the class changes, and to what. ``line``: more settings of port 2.
    """
    stations = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries = [*stations, entry_of(config), flow({"ingress_port": [1, 0x1FF]}, CLASS)]
    if later is not None:
        entries.append(entry_of(later[1]) | {"operation": "modify", "at_ns": later[0]})
    sent = run(
        VirtualRun(
            ports=[Port(1), Port(2, f"fifo=1gb{line}")],
            arrivals=arrivals,
            runtime={"table_entries": entries},
        ),
        folder,
    )
    assert [timed.frame for timed in sent[1]] == [timed.frame for timed in arrivals[2]]
    return sent[2]


def departures(
    config: FlowClass | SharedClass,
    traffic: Iterable[tuple[int, Segment]],
    folder: Path,
    make: Callable[[Segment, int], bytes] = frame_of,
    later: tuple[int, FlowClass] | None = None,
) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """The frames that left by port 2, and the model's; `make` makes the frames.

    Neither has the segments that the model drops.
    """
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    pacer = SharedPacer(config) if isinstance(config, SharedClass) else FlowPacer(config)
    expected = []
    for port, segment in traffic:
        if later is not None and segment.at_ns >= later[0]:
            assert isinstance(pacer, FlowPacer)
            pacer.config = later[1]
        frame = make(segment, port)
        arrivals[port].append(TimedFrame(segment.at_ns, frame))
        if port == 1:
            departure_ns = pacer.send(replace(segment, length_bytes=len(frame)))
            if departure_ns is not None:
                expected.append((departure_ns, frame))
        else:
            pacer.acknowledge(segment)
    left = left_by_port(config, arrivals, folder, later)
    return [(timed.at_ns, timed.frame) for timed in left], expected


def interleaved(*senders: Sender) -> Traffic:
    """Several flows at once, by time."""
    return list(merge(*(s.segments() for s in senders), key=lambda pair: pair[1].at_ns))


def steady(
    sizes_bytes: Sequence[int],
    rtt_ns: int,
    ends: tuple[Address, Address] = V4,
    round_trips: int = 3,
    *,
    lost: bool = False,
) -> Traffic:
    """Round trips of segments of these sizes, sent at once and acknowledged one by one.

    ``lost``: the first segment is sent twice.
    """
    client, server = ends
    at_ns = 1
    traffic: Traffic = [
        (1, Segment(at_ns, client, server, 0, 0, None, "S")),
        (2, Segment(at_ns + rtt_ns, server, client, 0, 0, 1, "S")),
    ]
    at_ns += rtt_ns
    numbers = list(accumulate(list(sizes_bytes) * round_trips, initial=1))
    for n in range(round_trips):
        at_ns += 1
        for k, size_bytes in enumerate(sizes_bytes):
            first, end = numbers[n * len(sizes_bytes) + k :][:2]
            traffic.append((1, Segment(at_ns + k, client, server, first, size_bytes, 1)))
            traffic.append((2, Segment(at_ns + k + rtt_ns, server, client, 1, 0, end)))
        at_ns += len(sizes_bytes) + rtt_ns
    if lost:
        traffic.append((1, replace(traffic[2][1], at_ns=traffic[2][1].at_ns + rtt_ns // 2)))
    return sorted(traffic, key=lambda pair: pair[1].at_ns)


def _crc16_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0xA001 if byte & 1 else 0)
    return byte


_CRC16 = [_crc16_of_byte(byte) for byte in range(256)]


def cell_of(sender: Address, receiver: Address) -> int:
    """The flow's cell: CRC-16 (ARC) of ports and the CRC-32 of no VLAN and the addresses."""
    addresses = [ipaddress.ip_address(f"::ffff:{host}").packed for host, _ in (sender, receiver)]
    ports = [port.to_bytes(2, "big") for _, port in (sender, receiver)]
    identity = b"".join(ports) + zlib.crc32(b"\0\0" + b"".join(addresses)).to_bytes(4, "big")
    remainder = 0
    for byte in identity:
        remainder = remainder >> 8 ^ _CRC16[(remainder ^ byte) & 0xFF]
    return remainder

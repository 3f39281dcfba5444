"""Modes dynamic and slow-start: what leaves when, to the nanosecond, against the model."""

from __future__ import annotations

import ipaddress
import zlib
from heapq import merge
from pathlib import Path

import pytest
from flow_model import FlowClass, FlowPacer, Segment
from pacer_entries import class_entry, flow, station
from pacing_model import time_per_byte_q24
from tcp_traffic import STATIONS, Sender, frame_of
from virtual_switch import Port, TimedFrame, VirtualRun, run

CLASS = 5
SLOW_START = FlowClass(release_below_ns=1_000_000)
GROWTH = [(10, -1), (20, -1), (40, -1), (80, -1), (80, -1), (80, -1)]


def entry_of(config: FlowClass, limit_bytes: int = 1 << 30) -> dict[str, object]:
    """The class in the program's table."""
    params = {
        "inverse_headroom_q16": config.inverse_headroom_q16,
        "time_per_byte_q24": config.fastest_time_per_byte_q24,
        "limit_bytes": limit_bytes,
        "allowance_ns": 1_000_000,
        "ecn_threshold_bytes": 0,
        "bytes_per_ns_q24": 0,
        "window_margin_bytes": 0,
    }
    if not config.release_below_ns:
        return class_entry(CLASS, "paced_dynamic", params)
    params["release_below_ns"] = config.release_below_ns
    return class_entry(CLASS, "paced_slow_start", params)


def departures(
    config: FlowClass, traffic: list[tuple[int, Segment]], folder: Path
) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """What left by port 2, and what the model says should have."""
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    pacer = FlowPacer(config)
    expected = []
    for port, segment in traffic:
        frame = frame_of(segment, port)
        arrivals[port].append(TimedFrame(segment.at_ns, frame))
        if port == 1:
            expected.append((pacer.send(segment), frame))
        else:
            pacer.acknowledge(segment)
    stations = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries = [*stations, entry_of(config), flow({"ingress_port": [1, 0x1FF]}, CLASS)]
    sent = run(
        VirtualRun(
            ports=[Port(1), Port(2, "fifo=1gb")],
            arrivals=arrivals,
            runtime={"table_entries": entries},
        ),
        folder,
    )
    assert [timed.frame for timed in sent[1]] == [timed.frame for timed in arrivals[2]]
    return [(timed.at_ns, timed.frame) for timed in sent[2]], expected


def interleaved(*senders: Sender) -> list[tuple[int, Segment]]:
    """Several flows at once, by time."""
    return list(merge(*(s.segments() for s in senders), key=lambda pair: pair[1].at_ns))


V4 = (("10.0.0.1", 40_000), ("10.0.0.2", 5001))
V6 = (("2001:db8::1", 40_000), ("2001:db8::2", 5001))
WRAP = (1 << 32) - 50_000

CASES = {
    "growth": interleaved(Sender(*V4, GROWTH)),
    "ipv6": interleaved(Sender(*V6, GROWTH)),
    "sequence-wrap": interleaved(Sender(*V4, GROWTH, first=WRAP)),
    "no-handshake": interleaved(Sender(*V4, GROWTH, first=77, handshake=False)),
    "losses": interleaved(Sender(*V4, [(20, -1), (40, 7), (20, -1), (30, 0), (30, 29), (40, -1)])),
    "long-path": interleaved(Sender(*V4, GROWTH, rtt_ns=200_000_000)),
    "two-flows": interleaved(
        Sender(*V4, GROWTH),
        Sender(("10.0.0.1", 40_001), V4[1], GROWTH, rtt_ns=30_000_000, begin_ns=5_000_007),
    ),
    "two-vlans": interleaved(
        Sender(("10.0.0.1%6", 40_000), ("10.0.0.2%6", 5001), GROWTH),
        Sender(("10.0.0.1%7", 40_000), ("10.0.0.2%7", 5001), GROWTH, begin_ns=5_000_007),
    ),
    "unanswered": interleaved(
        Sender(*V4, [], rtt_ns=11_000_000_000),
        Sender(*V4, GROWTH[:2], begin_ns=30_000_000_000),
    ),
    "ports-again": interleaved(
        Sender(*V4, GROWTH[:3]),
        Sender(*V4, GROWTH[:3], rtt_ns=3_000_000, begin_ns=500_000_000, first=1 << 31),
    ),
    "aged": interleaved(
        Sender(*V4, GROWTH[:3]),
        Sender(*V4, GROWTH[:3], begin_ns=90_000_000_000, first=9, handshake=False),
    ),
}
CONFIGS = {
    "dynamic": FlowClass(),
    "headroom-120": FlowClass(inverse_headroom_q16=65_536 * 100 // 120),
    "at-most-50-mbit": FlowClass(fastest_time_per_byte_q24=time_per_byte_q24(50_000_000)),
    "slow-start": SLOW_START,
}


def cell_of(sender: tuple[str, int], receiver: tuple[str, int]) -> int:
    """The flow's cell: CRC-16 (ARC) of ports and the CRC-32 of no VLAN and the addresses."""
    addresses = [ipaddress.ip_address(f"::ffff:{host}").packed for host, _ in (sender, receiver)]
    ports = [port.to_bytes(2, "big") for _, port in (sender, receiver)]
    identity = b"".join(ports) + zlib.crc32(b"\0\0" + b"".join(addresses)).to_bytes(4, "big")
    remainder = 0
    for byte in identity:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xA001 if remainder & 1 else 0)
    return remainder


def test_a_flow_whose_cell_is_taken_is_not_paced(tmp_path: Path) -> None:
    """The first one is, undisturbed; and once it has ended, the other one is followed."""
    client, server = V4
    # The polynomial added to the ports, whose remainder is 0.
    other, there = (client[0], client[1] ^ 0x0340), (server[0], server[1] ^ 0x0100)
    assert cell_of(other, there) == cell_of(client, server)
    first = Sender(client, server, GROWTH[:4])
    blocked = Sender(other, there, GROWTH[:2], begin_ns=10_000_000)
    later = Sender(other, there, GROWTH[:4], begin_ns=9_000_000_000, first=5)
    left, expected = departures(FlowClass(), interleaved(first, later), tmp_path)
    assert sorted(left) == sorted(expected)
    left, _ = departures(FlowClass(), interleaved(first, blocked, later), tmp_path)
    unpaced = [(one.at_ns, frame_of(one, 1)) for one in blocked.sent]
    assert sorted(left) == sorted(expected + unpaced)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("case", CASES)
def test_departures(case: str, config: str, tmp_path: Path) -> None:
    left, expected = departures(CONFIGS[config], CASES[case], tmp_path)
    assert [at_ns for at_ns, _ in left] == sorted(at_ns for at_ns, _ in expected)
    assert sorted(left) == sorted(expected)

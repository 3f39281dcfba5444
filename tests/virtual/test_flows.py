"""Modes that follow flows: departures to the nanosecond, against the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flow_model import FlowClass, FlowPacer
from flow_runs import (
    GROWTH,
    OF_THE_SAME_CELL,
    V4,
    V6,
    Traffic,
    cell_of,
    departures,
    interleaved,
)
from pacing_model import time_per_byte_q24
from sharing_cases import shared_class
from sharing_model import SharedClass
from tcp_traffic import Sender, frame_of

SLOW_START = FlowClass(release_below_ns=1_000_000)
WRAP = (1 << 32) - 50_000


def echoed(sender: Sender, from_ns: int) -> Traffic:
    """The receiver echoes congestion marks (ECE, RFC 3168) from then on."""
    return [
        (port, replace(segment, flags="E") if port == 2 and segment.at_ns > from_ns else segment)
        for port, segment in interleaved(sender)
    ]


CASES = {
    "growth": interleaved(Sender(*V4, GROWTH)),
    "ipv6": interleaved(Sender(*V6, GROWTH)),
    "sequence-wrap": interleaved(Sender(*V4, GROWTH, first=WRAP)),
    "no-handshake": interleaved(Sender(*V4, GROWTH, first=77, handshake=False)),
    "losses": interleaved(Sender(*V4, [(20, -1), (40, 7), (20, -1), (30, 0), (30, 29), (40, -1)])),
    "long-path": interleaved(Sender(*V4, GROWTH, rtt_ns=200_000_000)),
    # The flow is held to the path's rate for longer than the slow growth lasts.
    "narrow-path": interleaved(
        Sender(*V4, [(10, -1), *[(30, -1)] * 36], rtt_ns=5_000_000, path_ns=242_880)
    ),
    # One acknowledgement for all of the first flight, then one for three segments (as if another
    # one had been lost than those that were sent).
    "together": interleaved(Sender(*V4, [(10, 10), (3, 3), *GROWTH[1:4]], path_ns=24_288)),
    "congestion-echoed": echoed(Sender(*V4, GROWTH[:5], path_ns=24_288), 25_000_000),
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
CONFIGS: dict[str, FlowClass | SharedClass] = {
    "dynamic": FlowClass(),
    "headroom-120": FlowClass(inverse_headroom_q16=65_536 * 100 // 120),
    "at-most-50-mbit": FlowClass(fastest_time_per_byte_q24=time_per_byte_q24(50_000_000)),
    "slow-start": SLOW_START,
    "pspd": FlowClass(pspd=True),
    "clustered": FlowClass(release_below_ns=100_000, pspd=True),
    "shared": shared_class(20_000_000),
}


@pytest.mark.parametrize(
    ("reroute_after", "grown_q16"),
    [
        # In 45 round trips by a third; then the path becomes longer, a queue for 32 of them.
        (45, 20_976),
        # In 54 to the sixteenth of a byte's time: from then on there is no limit.
        (None, 57_840),
    ],
)
def test_a_path_s_rate_grows_finds_a_longer_path_and_ends(
    reroute_after: int | None, grown_q16: int, tmp_path: Path
) -> None:
    config = FlowClass(inverse_headroom_q16=1 << 14)
    sender = Sender(
        *(*V4, [(10, -1)] * 90),
        rtt_ns=100_000,
        path_ns=500_000,
        reroute=None if reroute_after is None else (reroute_after, 6_000_000),
    )
    traffic = interleaved(sender)
    pacer = FlowPacer(config)
    gains_q16, bases_ns = [], []
    for port, segment in traffic:
        if port == 1:
            pacer.send(segment)
        else:
            pacer.acknowledge(segment)
            path = pacer.flows[V4].path
            if path is not None:
                gains_q16.append(path.gain_q16)
                bases_ns.append(path.base_ns)
    assert max(gains_q16) == grown_q16
    if reroute_after is None:
        assert pacer.flows[V4].path is None
    else:
        assert (gains_q16[-1] > 0, 0 in gains_q16) == (True, True)
        assert {100_000, 7_000_000} < set(bases_ns)
    left, expected = departures(config, traffic, tmp_path)
    assert sorted(left) == sorted(expected)


@pytest.mark.parametrize("differ_in", OF_THE_SAME_CELL)
def test_a_flow_whose_cell_is_taken_is_not_paced(differ_in: str, tmp_path: Path) -> None:
    """The first one is, undisturbed; and once it has ended, the other one is followed."""
    client, server = V4
    other, there = OF_THE_SAME_CELL[differ_in]
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

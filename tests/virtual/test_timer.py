"""Mode timer in virtual time: every departure at a tick, and the rate exact over many of them."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from pacer_entries import all_to, flow_by_ether_type, frame, time_per_byte_q24, timer_class
from pacing_switch import TimedFrame
from virtual_switch import Port, VirtualRun, run

CLASS = 5
LENGTH_BYTES = 1514
FRAME_BYTES = LENGTH_BYTES + 4
NS_PER_S = 1_000_000_000


def released(rate_bps: int, hz: int, packets: int, folder: Path, port: str = "") -> list[int]:
    """The departures of a burst's packets, in ns."""
    tick_ns = (NS_PER_S + hz // 2) // hz
    entries = [timer_class(CLASS, rate_bps, tick_ns), flow_by_ether_type(CLASS)]
    arrivals = [TimedFrame(1, frame(n, CLASS, LENGTH_BYTES)) for n in range(packets)]
    what = VirtualRun(
        ports=[Port(1), Port(2, port)],
        arrivals={1: arrivals},
        runtime={"table_entries": entries, "multicast_group_entries": all_to(2)},
    )
    return [timed.at_ns for timed in run(what, folder)[2]]


@pytest.mark.parametrize("hz", [1, 3, 7, 100, 250, 1_000, 1_024, 9_999, 10_000])
@pytest.mark.parametrize("rate_bps", [8_000, 10_000_000, 333_333_333, 500_000_000, 930_000_000])
def test_departures_are_multiples_of_the_tick(rate_bps: int, hz: int, tmp_path: Path) -> None:
    left_ns = released(rate_bps, hz, 500, tmp_path)
    tick_ns = (NS_PER_S + hz // 2) // hz
    assert all(at_ns % tick_ns == 0 for at_ns in left_ns)
    # Tokens are positive before each packet and exact: k packets cost less than the ticks up to
    # there gave, and k + 1 packets would not leave at an earlier one.
    packet_q24 = FRAME_BYTES * time_per_byte_q24(rate_bps)
    ticks = [k * packet_q24 // (tick_ns << 24) + 1 for k in range(500)]
    assert left_ns == [tick * tick_ns for tick in ticks]
    burst_bytes = rate_bps / 8 * tick_ns / NS_PER_S
    assert (max(Counter(left_ns).values()) - 1) * FRAME_BYTES < burst_bytes * (1 + 1e-5)


def test_a_tick_s_packets_follow_each_other_on_the_line(tmp_path: Path) -> None:
    """42 packets at 1 Gbit/s, as in Fig. 1(b): no allowance is needed for them."""
    left_ns = released(500_000_000, 1_000, 100, tmp_path, "rate=1gbit,counts=wire")
    line_ns = 8 * (LENGTH_BYTES + 24)
    starts = [1_000_000 + k * line_ns for k in range(42)]
    starts += [2_000_000 + k * line_ns for k in range(41)]
    starts += [3_000_000 + k * line_ns for k in range(17)]
    assert left_ns == starts


def longest_queue_bytes(left_ns: list[int], rate_bps: int) -> float:
    """The longest queue that these packets make at a bottleneck, with the one that arrives."""
    queue_bytes = longest_bytes = 0.0
    for before_ns, at_ns in itertools.pairwise([0, *left_ns]):
        drained_bytes = (at_ns - before_ns) * rate_bps / (8 * NS_PER_S)
        queue_bytes = max(0.0, queue_bytes - drained_bytes) + FRAME_BYTES
        longest_bytes = max(longest_bytes, queue_bytes)
    return longest_bytes


def test_ticks_at_the_rate_of_the_bottleneck_fit_a_fifo_of_33_kb(tmp_path: Path) -> None:
    """TBF at the line's rate loses nothing at 64 KB. Where it counts no FCS, the queue grows."""
    bottleneck_bps = 500_000_000

    def queue_bytes(rate_bps: int) -> float:
        left_ns = released(rate_bps, 1_000, 10_000, tmp_path, "rate=1gbit,counts=wire")
        return longest_queue_bytes(left_ns, bottleneck_bps)

    assert 32_000 < queue_bytes(bottleneck_bps) <= 33 << 10
    assert queue_bytes(bottleneck_bps * FRAME_BYTES // LENGTH_BYTES) > 64 << 10

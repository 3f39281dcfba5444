"""PAUSE frames in the gaps beside accounted ones, through the whole switch, in virtual time.

The frames are real: they are on the wire of one switch, and the next one's port consumes them.
They may change the packets' times, by less than the shortest frame takes.
"""

from __future__ import annotations

import itertools
import statistics as stats
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pacer_entries import all_to, flow_by_ether_type, frame, paced_class, packet_id
from pacing_switch import TimedFrame
from virtual_switch import Port, VirtualRun, gap_frames_of, run, statistics

LINE_RATE_BPS = 1_000_000_000
NS_PER_BYTE = 8
WIRE_OVERHEAD_BYTES = 24
SHORTEST_NS = (60 + WIRE_OVERHEAD_BYTES) * NS_PER_BYTE
FIRST_PORT, SECOND_PORT = 1, 2
CLASS = 5
FRAME_BYTES = 1514
PACKETS = 2_000


def _paced(
    folder: Path, gaps: str, rates_bps: list[int], packets: int = PACKETS
) -> list[TimedFrame]:
    """The departures of a burst in each of some classes on a gigabit port with such gaps."""
    folder.mkdir()
    arrivals = [
        TimedFrame(1_000, frame(class_at * packets + number, CLASS + class_at, FRAME_BYTES))
        for number in range(packets)
        for class_at in range(len(rates_bps))
    ]
    entries = [paced_class(CLASS + at, rate_bps) for at, rate_bps in enumerate(rates_bps)]
    entries += [flow_by_ether_type(CLASS + at) for at in range(len(rates_bps))]
    what = VirtualRun(
        ports=[Port(FIRST_PORT), Port(SECOND_PORT, f"rate={LINE_RATE_BPS},gaps={gaps}")],
        arrivals={FIRST_PORT: arrivals},
        runtime={"table_entries": entries, "multicast_group_entries": all_to(SECOND_PORT)},
    )
    return run(what, folder)[SECOND_PORT]


def _port(folder: Path, number: int) -> dict[str, Any]:
    ports: Any = statistics(folder)["ports"]
    found: dict[str, Any] = next(port for port in ports if port["port"] == number)
    return found


@dataclass(frozen=True)
class Spacing:
    """The spacing of one class's packets."""

    rate_error_ppm: float
    gap_error_max_ns: int

    @classmethod
    def of(cls, packets: list[TimedFrame], rate_bps: int) -> Spacing:
        """Against a packet of a length in bytes, FCS included, at the class's rate."""
        ideal_ns = Fraction((FRAME_BYTES + 4) * 8 * 1_000_000_000, rate_bps)
        times_ns = [timed.at_ns for timed in packets]
        mean_ns = Fraction(times_ns[-1] - times_ns[0], len(times_ns) - 1)
        steps_ns = [after - before for before, after in itertools.pairwise(times_ns)]
        return cls(
            float((ideal_ns / mean_ns - 1) * 1_000_000),
            max(abs(round(step_ns - ideal_ns)) for step_ns in steps_ns),
        )


@pytest.mark.parametrize("gaps", ["pause-frames", "pause-frames:60"])
@pytest.mark.parametrize(
    "rate_bps", [10_000_000, 123_456_789, 500_000_000, 930_000_000, 960_000_000]
)
def test_gap_frames_space_as_accounted_gaps_do(rate_bps: int, gaps: str, tmp_path: Path) -> None:
    packets = 50 if rate_bps < 100_000_000 else PACKETS
    gap_frames, accounted = gap_frames_of(_paced(tmp_path / "a", "accounted", [rate_bps], packets))
    assert not gap_frames
    gap_frames, filled = gap_frames_of(_paced(tmp_path / "p", gaps, [rate_bps], packets))

    later_ns = [
        with_frames.at_ns - without.at_ns
        for with_frames, without in zip(filled, accounted, strict=True)
    ]
    assert [timed.frame for timed in filled] == [timed.frame for timed in accounted]
    assert min(later_ns) >= 0
    assert max(later_ns) <= SHORTEST_NS

    # The rate does not drift: a gap frame's excess length comes off the next one.
    span_ns = accounted[-1].at_ns - accounted[0].at_ns
    drift_ppm = SHORTEST_NS / span_ns * 1_000_000
    before, after = Spacing.of(accounted, rate_bps), Spacing.of(filled, rate_bps)
    assert abs(before.rate_error_ppm) < 1
    assert abs(after.rate_error_ppm) < 1 + drift_ppm
    assert before.gap_error_max_ns <= 1
    assert after.gap_error_max_ns <= 1 + SHORTEST_NS
    print(
        f"{rate_bps} bit/s, {gaps}: {len(gap_frames)} frames; rate error "
        f"{before.rate_error_ppm:+.3f} and {after.rate_error_ppm:+.3f} ppm, gap error at most "
        f"{before.gap_error_max_ns} and {after.gap_error_max_ns} ns, packets later by "
        f"{stats.mean(later_ns):.1f} ns in the mean, {max(later_ns)} ns at most"
    )


@pytest.mark.parametrize("gaps", ["pause-frames", "pause-frames:60", "pause-frames:300"])
def test_the_wire_is_never_idle_while_a_paced_packet_waits(gaps: str, tmp_path: Path) -> None:
    rates_bps = [20_000_000, 50_000_000, 100_000_000, 300_000_000]  # of Table 4
    sent = _paced(tmp_path / "p", gaps, rates_bps, packets=100)
    gap_frames, packets = gap_frames_of(sent)
    assert len(packets) == 100 * len(rates_bps)
    assert len(gap_frames) > 100
    # A byte takes 8 ns on this wire, so every frame begins at the nanosecond at which the one
    # before it ends: the byte clock of the wire is the pacer's clock.
    end_ns = sent[0].at_ns
    for timed in sent:
        assert timed.at_ns == end_ns
        end_ns += (len(timed.frame) + WIRE_OVERHEAD_BYTES) * NS_PER_BYTE
    # After the last packet nothing waits, and nothing fills the wire.
    assert sent[-1] is packets[-1]
    longest_bytes = int(gaps.partition(":")[2] or 1514)
    assert all(60 <= len(timed.frame) <= longest_bytes for timed in gap_frames)
    assert {timed.frame[6:12] for timed in gap_frames} == {b"\x02\x00\x00\x00\x00\x02"}


def test_the_next_switch_consumes_them(tmp_path: Path) -> None:
    rate_bps = 500_000_000
    sent = _paced(tmp_path / "edge", "pause-frames", [rate_bps], packets=300)
    gap_frames, packets = gap_frames_of(sent)
    edge = _port(tmp_path / "edge", SECOND_PORT)
    assert edge["gap_frames"] == len(gap_frames) == 299
    assert edge["tx_packets"] == len(packets) == 300
    # The same length each: half the line's time is gaps.
    assert {len(timed.frame) for timed in gap_frames} == {1474}

    folder = tmp_path / "next"
    folder.mkdir()
    what = VirtualRun(
        ports=[Port(FIRST_PORT), Port(SECOND_PORT, f"rate={LINE_RATE_BPS}")],
        arrivals={FIRST_PORT: sent},
        runtime={"multicast_group_entries": all_to(SECOND_PORT)},
    )
    came = run(what, folder)[SECOND_PORT]
    assert came == packets  # at their times, since nothing queued behind a PAUSE frame
    arrived = _port(folder, FIRST_PORT)
    assert arrived["drops"] == {"pause-frame": len(gap_frames)}
    assert arrived["rx_packets"] == len(sent)


def test_any_pause_frame_is_consumed_and_nothing_else_is(tmp_path: Path) -> None:
    """With any pause time, which no port obeys; not other MAC control frames."""

    def control(fields: str, to: str = "0180c2000001") -> bytes:
        return bytes.fromhex(to + "020000000099" + fields).ljust(60, b"\0")

    arrivals = [
        TimedFrame(1_000, control("88080001ffff")),
        TimedFrame(2_000, control("880800010000")),
        TimedFrame(3_000, control("880801010000")),
        TimedFrame(4_000, control("880800010000", to="0180c200000e")),
        TimedFrame(5_000, frame(7, CLASS, 60)),
    ]
    what = VirtualRun(
        ports=[Port(FIRST_PORT), Port(SECOND_PORT)],
        arrivals={FIRST_PORT: arrivals},
        runtime={"multicast_group_entries": all_to(SECOND_PORT)},
    )
    came = run(what, tmp_path)[SECOND_PORT]
    assert came == arrivals[2:]
    assert packet_id(came[-1].frame) == 7
    assert _port(tmp_path, FIRST_PORT)["drops"] == {"pause-frame": 2}

"""Window / round-trip time exactly: the spaces that flows of known windows leave the switch with.

The model says the same to the nanosecond; here its formula stands for itself. A reciprocal is at
most 0.024 % too small (time_per_byte.p4), and departures are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from flow_model import INITIAL_WINDOW_BYTES, FlowClass, Segment
from flow_runs import V4, V6, Traffic, departures, steady
from tcp_traffic import frame_of

PSPD = FlowClass(pspd=True)
DYNAMIC = FlowClass()
DYNAMIC_120 = FlowClass(inverse_headroom_q16=65_536 * 100 // 120)
MS = 1_000_000
RECIPROCAL = 250e-6


def last_round_ns(
    config: FlowClass,
    sizes_bytes: Sequence[int],
    rtt_ns: int,
    folder: Path,
    ends: tuple[tuple[str, int], tuple[str, int]] = V4,
) -> list[int]:
    """The departures of the last round trip: the program's times, which are the model's.

    A window below the initial one is known only after a loss.
    """
    few = sum(sizes_bytes) < INITIAL_WINDOW_BYTES
    traffic = steady(sizes_bytes, rtt_ns, ends, lost=few)
    left, expected = departures(config, traffic, folder)
    assert sorted(left) == sorted(expected)
    sent = [segment for port, segment in traffic if port == 1][-len(sizes_bytes) :]
    at_ns = {frame: when_ns for when_ns, frame in left}
    return [at_ns[frame_of(segment, 1)] for segment in sent]


@pytest.mark.parametrize("ends", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("rtt_ns", [1 * MS, 50 * MS, 200 * MS])
@pytest.mark.parametrize(
    ("config", "window", "segment_bytes"),
    [
        (PSPD, 2, 1_448),
        (PSPD, 7, 536),
        (PSPD, 20, 1_448),
        (PSPD, 333, 1_448),
        (DYNAMIC, 20, 1_448),
        (DYNAMIC, 333, 536),
    ],
)
def test_spaces_are_the_round_trip_time_by_the_window_in_packets(
    config: FlowClass,
    window: int,
    segment_bytes: int,
    rtt_ns: int,
    ends: tuple[tuple[str, int], tuple[str, int]],
    tmp_path: Path,
) -> None:
    left_ns = last_round_ns(config, [segment_bytes] * window, rtt_ns, tmp_path, ends)
    exact_ns = rtt_ns / window
    for before_ns, after_ns in pairwise(left_ns):
        assert exact_ns * (1 - RECIPROCAL) - 1 <= after_ns - before_ns <= exact_ns + 1
    mean_ns = (left_ns[-1] - left_ns[0]) / (window - 1)
    assert abs(mean_ns / exact_ns - 1) < 0.001


def test_a_flow_that_was_spaced_from_the_first_segment_on_has_no_path_rate(tmp_path: Path) -> None:
    """Its first flight says how the switch spaced it, and nothing of the path."""
    rtt_ns, window = 50 * MS, 10
    traffic = steady([1_448] * window, rtt_ns, round_trips=6)
    changes_ns = 1 + 4 * rtt_ns
    left, expected = departures(PSPD, traffic, tmp_path, later=(changes_ns, DYNAMIC))
    assert sorted(left) == sorted(expected)
    sent = [segment for port, segment in traffic if port == 1][-window:]
    at_ns = {frame: when_ns for when_ns, frame in left}
    left_ns = [at_ns[frame_of(segment, 1)] for segment in sent]
    exact_ns = rtt_ns * 1_448 / INITIAL_WINDOW_BYTES
    for before_ns, after_ns in pairwise(left_ns):
        assert exact_ns * (1 - RECIPROCAL) - 1 <= after_ns - before_ns <= exact_ns + 1


def test_headroom_divides_the_spaces(tmp_path: Path) -> None:
    left_ns = last_round_ns(DYNAMIC_120, [1_448] * 20, 50 * MS, tmp_path)
    exact_ns = 50 * MS / 20 / 1.2
    for before_ns, after_ns in pairwise(left_ns):
        assert abs((after_ns - before_ns) / exact_ns - 1) < 0.001


@pytest.mark.parametrize("config", [PSPD, DYNAMIC], ids=["pspd", "dynamic"])
def test_a_window_takes_a_round_trip_whatever_the_sizes(config: FlowClass, tmp_path: Path) -> None:
    """A segment takes the part of the round-trip time that its payload is of the window."""
    sizes_bytes = [1_448, 100, 1_448, 1_000, 8] * 8
    left_ns = last_round_ns(config, sizes_bytes, 50 * MS, tmp_path)
    for size_bytes, (before_ns, after_ns) in zip(sizes_bytes, pairwise(left_ns), strict=False):
        exact_ns = 50 * MS * size_bytes / sum(sizes_bytes)
        assert exact_ns * (1 - RECIPROCAL) - 1 <= after_ns - before_ns <= exact_ns + 1


@pytest.mark.parametrize("config", [PSPD, DYNAMIC], ids=["pspd", "dynamic"])
def test_acknowledgements_alone_are_not_spaced(config: FlowClass, tmp_path: Path) -> None:
    """They are no part of a window: the sender on the other side would get them at its expense."""
    client, server = V4
    traffic: Traffic = [
        (1, Segment(1, client, server, 0, 0, None, "S")),
        (2, Segment(50 * MS, server, client, 0, 0, 1, "S")),
        *((1, Segment(60 * MS + 1_000 * k, client, server, 1, 0, 1_000 * k)) for k in range(500)),
    ]
    left, expected = departures(config, traffic, tmp_path)
    assert left == expected
    assert [at_ns for at_ns, _ in left[1:]] == [60 * MS + 1_000 * k for k in range(500)]

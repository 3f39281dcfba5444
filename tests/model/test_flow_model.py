"""The reference of flows against numbers worked out by hand, its reciprocal against division."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow_model import (
    INITIAL_WINDOW_BYTES,
    FlowClass,
    FlowPacer,
    Path,
    Segment,
    reciprocal_q59,
    time_per_byte_q24,
)

CLIENT = ("10.0.0.1", 1)
SERVER = ("10.0.0.2", 2)
MS = 1_000_000


def data(at_ns: int, sequence: int, payload_bytes: int = 1000, flags: str = "") -> Segment:
    """A segment of the client's."""
    return Segment(at_ns, CLIENT, SERVER, sequence % (1 << 32), payload_bytes, 1, flags)


def answer(at_ns: int, acknowledgement: int) -> Segment:
    """A segment of the server's."""
    return Segment(at_ns, SERVER, CLIENT, 0, 0, acknowledgement % (1 << 32))


@settings(derandomize=True, database=None, deadline=None, max_examples=500)
@given(st.integers(1 << 31, (1 << 32) - 1))
def test_reciprocal_is_within_a_65th_squared(mantissa: int) -> None:
    exact = (1 << 59) / mantissa
    assert exact * (1 - 1 / 65**2) - 2 <= reciprocal_q59(mantissa) <= exact


@settings(derandomize=True, database=None, deadline=None, max_examples=500)
@given(
    st.integers(10_000, (1 << 34) - 1),
    st.integers(INITIAL_WINDOW_BYTES, (1 << 32) - 1),
    st.sampled_from([1 << 14, 54_613, 1 << 16, 1 << 17]),
)
def test_pace_is_within_300_ppm(rtt_ns: int, window_bytes: int, inverse_headroom_q16: int) -> None:
    """And a unit of time, and a nanosecond of the round trip."""
    exact = rtt_ns * inverse_headroom_q16 * (1 << 8) / window_bytes
    units = 1 + (1 << 24) / window_bytes
    found = time_per_byte_q24(rtt_ns, window_bytes, inverse_headroom_q16)
    assert exact * (1 - 300e-6) - units <= found <= exact


def test_syn_is_timed_and_then_one_segment_a_round_trip() -> None:
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 99, 0, "S"))
    flow = pacer.flows[CLIENT, SERVER]
    assert (flow.in_flight_bytes, flow.rtt_ns) == (1, 0)
    pacer.acknowledge(answer(10 * MS + 1, 100))
    assert (flow.in_flight_bytes, flow.rtt_ns) == (0, 10 * MS)
    pacer.send(data(11 * MS, 100))
    pacer.send(data(12 * MS, 1100))
    assert flow.in_flight_bytes == 2000
    pacer.acknowledge(answer(31 * MS, 1100))
    assert (flow.in_flight_bytes, flow.rtt_ns, flow.base_rtt_ns) == (1000, 15 * MS, 10 * MS)
    # The second was not timed: the first was under way.
    pacer.acknowledge(answer(40 * MS, 2100))
    assert (flow.in_flight_bytes, flow.rtt_ns) == (0, 15 * MS)


def test_what_was_sent_again_is_not_a_sample() -> None:
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 0))
    pacer.send(data(50 * MS, 0))
    pacer.acknowledge(answer(51 * MS, 1000))
    flow = pacer.flows[CLIENT, SERVER]
    assert (flow.losses, flow.rtt_ns, flow.in_flight_bytes) == (1, 0, 0)


def test_wrong_acknowledgements_say_nothing() -> None:
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, -500))
    flow = pacer.flows[CLIENT, SERVER]
    for number in (-501, -500, 501, 1 << 31):
        pacer.acknowledge(answer(2, number))
        assert (flow.in_flight_bytes, flow.rtt_ns) == (1000, 0)
    pacer.acknowledge(answer(3, 500))
    assert (flow.in_flight_bytes, flow.rtt_ns) == (0, 2)


def test_after_the_first_flight_segments_are_spaced_by_window_and_round_trip() -> None:
    """1000 payload bytes on 1054 of the frame with FCS; fourteen of them are the first flight."""
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    segments = [
        Segment(200 * MS, CLIENT, SERVER, 1 + 1000 * k, 1000, 1, "", 1460 - 4) for k in range(17)
    ]
    left = [pacer.send(segment) for segment in segments]
    assert left[:15] == [200 * MS] * 15
    # 1460 bytes of a window of 15,000, then of 16,000, in 100 ms.
    due_ns = [200 * MS + 1460 * 100 * MS / 15_000]
    due_ns.append(due_ns[0] + 1460 * 100 * MS / 16_000)
    for at_ns, due in zip(left[15:], due_ns, strict=True):
        assert due - 20 * MS * 300e-6 <= at_ns <= due + 1


def first_flight(
    acknowledged: list[int], *, sent_gap_ns: int = 0, path_ns: int = 24_288
) -> Path | None:
    """What is known of a path that takes a segment of 1518 bytes every `path_ns`, after that."""
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(50 * MS + 1, 1))
    for k in range(10):
        at_ns = 50 * MS + 2 + k * sent_gap_ns
        pacer.send(Segment(at_ns, CLIENT, SERVER, 1 + 1448 * k, 1448, 1, "", 1514))
    for count in acknowledged:
        at_ns = 100 * MS + count * path_ns
        pacer.acknowledge(answer(at_ns, 1 + 1448 * count))
    return pacer.flows[CLIENT, SERVER].path


@pytest.mark.parametrize(
    "acknowledged", [list(range(1, 11)), [2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 10], [3, 8]]
)
def test_acknowledgements_of_the_first_flight_say_what_the_path_takes(
    acknowledged: list[int],
) -> None:
    path = first_flight(acknowledged)
    assert path is not None
    # 500 Mbit/s are 16 ns for a byte; 1/256 slower, and rounding.
    assert abs(path.fastest_q24 / (16 << 24) - 257 / 256) < 400e-6


def test_a_first_flight_that_says_nothing_is_not_believed() -> None:
    assert first_flight([10]) is None, "one acknowledgement"
    assert first_flight([2, 3]) is None, "not three quarters"
    assert first_flight(list(range(1, 11)), sent_gap_ns=24_288) is None, "as fast as it was sent"


def test_the_rate_grows_slowly_then_fast_and_goes_back_where_packets_wait() -> None:
    path = Path(16 << 24)
    for _ in range(32):
        path.round_trip(8 * 1518 * 15, held_to_it=True)
    assert path.gain_q16 == 32 * 16
    for _ in range(20):
        path.round_trip(0, held_to_it=True)
    assert path.gain_q16 > 20_000
    before = path.gain_q16
    path.round_trip(0, held_to_it=False)
    assert path.gain_q16 == before, "nobody asked for more"
    path.round_trip(8 * 1518 * 17, held_to_it=False)
    assert path.gain_q16 == before // 2
    for _ in range(16):
        path.round_trip(1 << 30, held_to_it=True)
    assert path.fastest_q24 == path.slowest_q24

"""The reference of flows against numbers worked out by hand, its reciprocal against division."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flow_model import (
    INITIAL_WINDOW_BYTES,
    FlowClass,
    FlowPacer,
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


def test_ten_segments_of_a_round_trip_are_a_tenth_apart() -> None:
    """1000 payload bytes on 1054 of the frame with FCS; the window is the initial one."""
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    segments = [
        Segment(200 * MS, CLIENT, SERVER, 1 + 1000 * k, 1000, 1, "", 1460 - 4) for k in range(10)
    ]
    left = [pacer.send(segment) for segment in segments]
    for k, at_ns in enumerate(left):
        assert abs(at_ns - (200 + 10 * k) * MS) < 10 * k * MS * 300e-6 + 1

"""The reference of flows against numbers worked out by hand, its reciprocal against division."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow_model import (
    INITIAL_WINDOW_BYTES,
    Flow,
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
    return Segment(
        *(at_ns, CLIENT, SERVER, sequence % (1 << 32), payload_bytes, 1, flags), 66 + payload_bytes
    )


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
    """1000 payload bytes of a frame of 1460; fourteen of them are the first flight."""
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    segments = [
        Segment(200 * MS, CLIENT, SERVER, 1 + 1000 * k, 1000, 1, "", 1460 - 4) for k in range(17)
    ]
    left = [pacer.send(segment) for segment in segments]
    assert left[:15] == [200 * MS] * 15
    # 1000 bytes of a window of 15,000, then of 16,000, in 100 ms.
    due_ns = [200 * MS + 1000 * 100 * MS / 15_000]
    due_ns.append(due_ns[0] + 1000 * 100 * MS / 16_000)
    for at_ns, due in zip(left[15:], due_ns, strict=True):
        assert due - 20 * MS * 300e-6 <= at_ns <= due + 1


PSPD = FlowClass(pspd=True)


def test_pspd_is_window_by_round_trip_time_from_the_first_segment_on() -> None:
    """Segments of 1460 bytes: ten of them are the initial window."""
    pacer = FlowPacer(PSPD)
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    left = [pacer.send(data(200 * MS + k, 1 + 1460 * k, 1460)) for k in range(12)]
    # The window is not known yet; beyond the initial window, the bytes in flight count as it.
    gaps_ns = [after - before for before, after in pairwise(left)]
    for gap_ns, window in zip(gaps_ns, [*[10] * 10, 11], strict=True):
        assert 100 * MS / window * (1 - 300e-6) - 1 <= gap_ns <= 100 * MS / window + 1


def test_pspd_after_a_small_exchange_has_the_initial_window() -> None:
    pacer = FlowPacer(PSPD)
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    pacer.send(data(200 * MS, 1, 100))
    pacer.acknowledge(answer(300 * MS, 101))
    left = [pacer.send(data(400 * MS + k, 101 + 1460 * k, 1460)) for k in range(10)]
    for before, after in pairwise(left):
        assert 10 * MS * (1 - 300e-6) - 1 <= after - before <= 10 * MS + 1


def test_pspd_has_windows_below_the_initial_one_after_a_loss() -> None:
    pacer = FlowPacer(PSPD)
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(100 * MS + 1, 1))
    pacer.send(data(200 * MS, 1, 1460))
    pacer.send(data(200 * MS, 1461, 1460))
    pacer.send(data(200 * MS, 1, 1460))
    pacer.acknowledge(answer(300 * MS, 2921))
    left = [pacer.send(data(400 * MS, 2921 + 1460 * k, 1460)) for k in range(2)]
    assert 50 * MS * (1 - 300e-6) <= left[1] - left[0] <= 50 * MS + 1
    # A window is never less than a packet: one that is sent again after its acknowledgement.
    pacer.acknowledge(answer(500 * MS, 5841))
    pacer.flows[CLIENT, SERVER].last_peak_bytes = 2
    pacer.flows[CLIENT, SERVER].peak_bytes = 0
    last = [pacer.send(data(900 * MS, 1, 1460)) for _ in range(2)]
    assert 100 * MS * (1 - 300e-6) <= last[1] - last[0] <= 100 * MS + 1


def test_pspd_does_not_space_without_a_round_trip_time() -> None:
    pacer = FlowPacer(PSPD)
    assert [pacer.send(data(5, 1000 * k)) for k in range(3)] == [5, 5, 5]


CLASS_OF_10_MBIT = FlowClass(fastest_time_per_byte_q24=800 << 24)
CLASS_OF_700_MBIT = FlowClass(fastest_time_per_byte_q24=(80 << 24) // 7)
CLASS_OF_600_MBIT = FlowClass(fastest_time_per_byte_q24=(80 << 24) // 6)


def first_flight(
    acknowledged: list[int],
    *,
    sent_at_ns: Callable[[int], int] = lambda _: 0,
    path_ns: int = 24_288,
    config: FlowClass | None = None,
) -> Path | None:
    """The state of a path that takes a segment of 1518 bytes every `path_ns`, after that."""
    pacer = FlowPacer(config or FlowClass())
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(50 * MS + 1, 1))
    for k in range(10):
        at_ns = 50 * MS + 2 + sent_at_ns(k)
        pacer.send(Segment(at_ns, CLIENT, SERVER, 1 + 1448 * k, 1448, 1, "", 1514))
    for count in acknowledged:
        at_ns = 100 * MS + sent_at_ns(count - 1) + count * path_ns
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
    everyone = list(range(1, 11))
    assert first_flight([10]) is None, "one acknowledgement"
    assert first_flight([2, 3]) is None, "not three quarters"
    assert first_flight([8, 9, 10]) is None, "three quarters at once"
    assert first_flight(everyone, sent_at_ns=lambda k: 24_288 * k) is None, "as fast as it was sent"
    pause = first_flight(everyone, sent_at_ns=lambda k: 40_000 if k > 4 else 0)
    assert pause is None, "the sender paused"


def test_a_first_flight_that_the_switch_spaced_is_not_believed() -> None:
    """The class's rate has to be clearly above the measured rate."""
    everyone = list(range(1, 11))
    assert first_flight(everyone, config=CLASS_OF_700_MBIT) is not None
    assert first_flight(everyone, config=CLASS_OF_600_MBIT) is None
    assert first_flight(everyone, config=CLASS_OF_10_MBIT) is None


Writes = list[tuple[int, int]]
"""The times of the application's writes, and their bytes."""


@pytest.mark.parametrize("rtt_ns", [5 * MS, 50 * MS, 200 * MS])
@pytest.mark.parametrize(
    ("writes", "acknowledged"),
    [
        # Ten segments, acknowledged as one, and then three.
        ([(0, 14_480), (210 * MS, 4_344)], [14_480, 18_824]),
        # And the next ones acknowledged one by one.
        ([(0, 14_480), (210 * MS, 14_480)], [14_480, *range(15_928, 28_960, 1_448)]),
        # Most of it, and then more than it.
        ([(0, 14_480), (210 * MS, 7_240)], [10_136, 18_824]),
        # A TLS hello is answered; then there is much to send.
        ([(0, 517), (210 * MS, 14_480)], [517, *range(1_965, 14_997, 1_448)]),
        ([(0, 517), (210 * MS, 14_480), (420 * MS, 4_344)], [517, 14_997, 19_341]),
        # A header of more than a segment, then the rest: at once behind its acknowledgement,
        # and a second later.
        ([(0, 1_800), (210 * MS, 14_480)], [1_800, 6_144, 16_280]),
        ([(0, 1_800), (1_210 * MS, 14_480)], [1_800, 6_144, 16_280]),
        # The same before it is acknowledged: the pause is the application's.
        ([(0, 1_800), (4 * MS, 12_800)], [1_800, *range(3_248, 14_600, 1_448), 14_600]),
        # Four segments.
        ([(0, 5_792)], [1_448, 2_896, 5_792]),
        # A jumbo frame, acknowledged in parts.
        ([(0, 8_948)], [3_000, 6_000, 8_948]),
    ],
)
def test_what_was_not_sent_at_once_is_no_measure_of_the_path(
    writes: Writes, acknowledged: list[int], rtt_ns: int
) -> None:
    """No estimate: on this path of 500 Mbit/s it could only be far too low."""
    segment_bytes = 8_948 if writes == [(0, 8_948)] else 1_448
    pacer = FlowPacer(FlowClass())
    pacer.send(data(1, -1, 0, "S"))
    begin_ns = rtt_ns + 1
    pacer.acknowledge(answer(begin_ns, 0))
    sent: list[tuple[int, Segment]] = []
    number = through_ns = 0
    arrived: dict[int, int] = {}
    for at_ns, size_bytes in writes:
        for k, first in enumerate(range(0, size_bytes, segment_bytes)):
            payload_bytes = min(segment_bytes, size_bytes - first)
            sent_ns = begin_ns + at_ns + 1 + 1_000 * k
            segment = data(sent_ns, number, payload_bytes)
            sent.append((sent_ns, segment))
            number += payload_bytes
            through_ns = max(through_ns, sent_ns) + 16 * (segment.length_bytes + 4)
            arrived[number] = through_ns + rtt_ns
    events = sent + [
        # An acknowledgement in the middle of a segment comes with the segment.
        (min(at_ns for end, at_ns in arrived.items() if end >= one), answer(0, one))
        for one in acknowledged
    ]
    for at_ns, segment in sorted(events, key=lambda event: event[0]):
        if segment.sender == CLIENT:
            pacer.send(segment)
        else:
            pacer.acknowledge(replace(segment, at_ns=at_ns))
    flow = pacer.flows[CLIENT, SERVER]
    assert flow.acknowledged == acknowledged[-1]
    assert flow.path is None
    assert flow.first_flight is None


def test_the_rate_grows_slowly_then_fast_and_goes_back_where_packets_wait() -> None:
    # 10 Mbit/s: eight packets take 9.7 ms.
    path = Path(800 << 24)
    for _ in range(32):
        path.round_trip(59 * MS, 50 * MS, held_to_it=True)
    assert path.gain_q16 == 32 * 16
    for _ in range(20):
        path.round_trip(50 * MS, 50 * MS, held_to_it=True)
    assert path.gain_q16 > 20_000
    before = path.gain_q16
    path.round_trip(50 * MS, 50 * MS, held_to_it=False)
    assert path.gain_q16 == before, "nobody asked for more"
    path.round_trip(60 * MS, 50 * MS, held_to_it=False)
    assert path.gain_q16 == before // 2
    for _ in range(16):
        path.round_trip(90 * MS, 50 * MS, held_to_it=True)
    assert path.fastest_q24 == path.slowest_q24


def test_a_rate_that_was_far_too_low_is_no_limit_in_the_end() -> None:
    path = Path(800 << 24)
    fastest_q24 = path.fastest_q24
    for _ in range(53):
        assert path.round_trip(50 * MS, 50 * MS, held_to_it=True)
        assert 50 << 24 <= path.fastest_q24 < fastest_q24
        fastest_q24 = path.fastest_q24
    assert not path.round_trip(50 * MS, 50 * MS, held_to_it=True)


def test_what_hosts_add_to_a_round_trip_does_not_keep_a_fast_path_s_rate_down() -> None:
    """10 Gbit/s: eight packets take 10 us; interrupts and the like may cost a millisecond."""
    path = Path((8 << 24) // 10)
    for _ in range(32):
        path.round_trip(51 * MS, 50 * MS, held_to_it=True)
    assert path.gain_q16 == 32 * 16
    path.round_trip(51 * MS + 1, 50 * MS, held_to_it=True)
    assert path.gain_q16 == 16 * 16


def test_a_path_that_became_longer_is_known_after_32_round_trips() -> None:
    path = Path(800 << 24)
    path.round_trip(50 * MS, 50 * MS, held_to_it=True)
    for k in range(31):
        path.round_trip((71 + k % 5) * MS, 50 * MS, held_to_it=True)
    assert (path.base_ns, path.gain_q16) == (50 * MS, 0)
    path.round_trip(70 * MS, 50 * MS, held_to_it=True)
    assert path.base_ns == 70 * MS
    path.round_trip(70 * MS, 50 * MS, held_to_it=True)
    assert path.gain_q16 == 16, "the rate grows again"
    path.round_trip(60 * MS, 50 * MS, held_to_it=True)
    assert path.base_ns == 60 * MS, "a shorter one counts at once"


def test_a_queue_that_empties_now_and_then_is_not_taken_for_the_path() -> None:
    path = Path(800 << 24)
    for k in range(200):
        path.round_trip((50 if k % 32 == 0 else 80) * MS, 50 * MS, held_to_it=True)
    assert path.base_ns == 50 * MS


def grown(
    pacer: FlowPacer, windows: list[int], flags: str = "", *, two_segments_ns: int = 48_576
) -> Flow:
    """A flow whose round trips have these numbers of segments, after a first flight of ten."""
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(50 * MS + 1, 1))
    number, at_ns = 1, 50 * MS + 2
    for window in [10, *windows]:
        first = number
        for _ in range(window):
            pacer.send(data(at_ns, number, 1448))
            number += 1448
        at_ns += 50 * MS
        for acknowledged in range(first + 2896, number + 1, 2896):
            at_ns += two_segments_ns
            last = acknowledged > number - 2896
            pacer.acknowledge(replace(answer(at_ns, acknowledged), flags=flags if last else ""))
    return pacer.flows[CLIENT, SERVER]


@pytest.mark.parametrize(
    ("windows", "flags", "below"),
    [
        ([20, 40, 80], "", True),
        # The bytes in flight of a round count when the next round is over.
        ([20, 40, 40, 40], "", False),
        ([20, 40, 80, 88, 96], "", False),
        ([20, 40, 80], "E", False),
    ],
)
def test_twice_the_headroom_is_for_a_window_that_grows(
    windows: list[int], flags: str, below: bool
) -> None:
    flow = grown(FlowPacer(FlowClass()), windows, flags)
    assert flow.path is not None
    assert flow.path.below == below


def test_a_flow_held_to_its_class_s_rate_is_not_held_to_its_path_s() -> None:
    """The class's rate was made lower: that the path takes that says nothing of more."""
    pacer = FlowPacer(FlowClass())
    # 20 Mbit/s, and a window of twice the bandwidth-delay product of 50 ms.
    flow = grown(pacer, [20, 40, 80, 160], two_segments_ns=1_214_400)
    assert flow.path is not None
    assert flow.timed_at_path_rate
    gain_q16 = flow.path.gain_q16
    assert gain_q16 > 0
    pacer.config = CLASS_OF_10_MBIT
    for k in range(1, 4):
        flow.timed = None
        flow.peak_bytes = 160 * 1448
        pacer.send(data(k * 1_000 * MS, flow.next, 1448))
        pacer.acknowledge(answer(k * 1_000 * MS + 50 * MS, flow.next))
        assert not flow.timed_at_path_rate
    assert flow.path.gain_q16 <= gain_q16


def test_a_segment_longer_than_its_frame_says_nothing() -> None:
    """A false length in the IP header: it has the class's rate, and no flow knows of it."""
    pacer = FlowPacer(CLASS_OF_10_MBIT)
    pacer.send(data(1, 0, 0, "S"))
    pacer.acknowledge(answer(50 * MS + 1, 1))
    flow = replace(pacer.flows[CLIENT, SERVER])
    false = Segment(51 * MS, CLIENT, SERVER, 1, 61, 1, "", 60)
    assert [pacer.send(false), pacer.send(false)] == [51 * MS, 51 * MS + 64 * 800]
    assert pacer.flows[CLIENT, SERVER] == flow

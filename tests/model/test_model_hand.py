"""The reference scheduler against numbers worked out by hand from the contract."""

from __future__ import annotations

from collections import Counter

import pytest

from pacing_model import (
    Arrive,
    ClassConfig,
    Event,
    Packet,
    PortConfig,
    Scheduler,
    SetClass,
    Stall,
    ceil_ns,
    run,
    time_per_byte_q24,
)

GIGABIT_WIRE = PortConfig(1_000_000_000, "wire", 65_536)
NO_LINE = PortConfig(None, "wire", 65_536)
UNPACED = ClassConfig(0, "unpaced")


def burst(class_id: int, ids: range, at_ns: int = 0, length_bytes: int = 1514) -> list[Event]:
    """Packets that arrive together."""
    return [Arrive(at_ns, Packet(k, class_id, length_bytes)) for k in ids]


def starts(result: Scheduler) -> list[tuple[int, int]]:
    """(id, start) in order of transmission."""
    return [(d.packet.id, d.start_ns) for d in result.departures]


def drops(result: Scheduler) -> list[tuple[int, str]]:
    """(id, cause) in order of arrival."""
    return [(d.packet.id, d.cause) for d in result.drops]


def test_time_per_byte() -> None:
    assert time_per_byte_q24(500_000_000) == 16 << 24
    assert time_per_byte_q24(8_000) == 1_000_000 << 24
    assert time_per_byte_q24(100_000_000_000) == 1_342_177  # 0.08 * 2**24 = 1342177.28
    assert time_per_byte_q24(930_000_000) == 144_320_138  # 2**27 / 0.93 = 144320137.63
    assert time_per_byte_q24(333_333_333) == 24 << 24  # 24 ns and 0.40 units more


@pytest.mark.parametrize("rate_bps", [-1, 0, 7_999, 100_000_000_001])
def test_time_per_byte_refuses(rate_bps: int) -> None:
    with pytest.raises(ValueError, match=str(rate_bps)):
        time_per_byte_q24(rate_bps)


def test_rate_error_is_below_10_ppm() -> None:
    exact_times_rate = 8_000_000_000 << 24
    for exponent in range(7):
        for rate_bps in (8_000 * 10**exponent, 12_345 * 10**exponent, 100_000_000_000):
            error = abs(time_per_byte_q24(rate_bps) * rate_bps - exact_times_rate)
            assert error * 100_000 < exact_times_rate


def test_ceil() -> None:
    assert [ceil_ns(t) for t in (0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1)] == [
        0,
        1,
        1,
        1,
        2,
    ]


def test_8_kbit_means_one_frame_every_1518_ms() -> None:
    result = run(GIGABIT_WIRE, [ClassConfig(1, "static", 8_000, 1 << 20)], burst(1, range(4)))
    assert starts(result) == [(k, 1_518_000_000 * k) for k in range(4)]


def test_500_mbit_means_one_frame_every_24288_ns() -> None:
    config = ClassConfig(1, "static", 500_000_000, 1 << 20, 24_288)
    result = run(GIGABIT_WIRE, [config], burst(1, range(100), at_ns=77))
    assert starts(result) == [(k, 77 + 24_288 * k) for k in range(100)]


def test_fractions_are_kept_not_rounded() -> None:
    # 980 Mbit/s: 2**27 / 0.98 = 136956865.3; 64 bytes take 8765239360 units = 522.449 ns.
    assert time_per_byte_q24(980_000_000) == 136_956_865
    config = ClassConfig(1, "static", 980_000_000, 1 << 20, 1_000)
    result = run(NO_LINE, [config], burst(1, range(6), length_bytes=60))
    # 0, 522.449, 1044.898, 1567.347, 2089.796, 2612.245, each rounded up
    assert starts(result) == [
        (0, 0),
        (1, 523),
        (2, 1045),
        (3, 1568),
        (4, 2090),
        (5, 2613),
    ]


def test_fig_3() -> None:
    """500 and 250 Mbit/s on 1 Gbit/s (IPSJ paper, Fig. 3), 1514-byte packets.

    P1 costs 1518 * 16 = 24,288 ns, P2 1518 * 32 = 48,576 ns; a frame takes the line for
    1538 * 8 = 12,304 ns. All arrive at 0, P1's six first.
    """
    classes = [
        ClassConfig(1, "static", 500_000_000, 1 << 20, 24_288),
        ClassConfig(2, "static", 250_000_000, 1 << 20, 48_576),
    ]
    result = run(GIGABIT_WIRE, classes, burst(1, range(6)) + burst(2, range(10, 13)))
    assert starts(result) == [
        (0, 0),  # P1, D = 0
        (10, 12_304),  # P2, D = 0: when the line is free
        (1, 24_608),  # P1, D = 24,288: the line is free 320 ns later
        (2, 48_576),  # P1, D = 48,576: lost 320 ns, within the allowance: on time again
        (11, 60_880),  # P2, D = 48,576 too, arrived later
        (3, 73_184),  # P1, D = 72,864
        (4, 97_152),  # P1, D = 97,152
        (12, 109_456),  # P2, D = 97,152
        (5, 121_760),  # P1, D = 121,440
    ]
    assert [d.departure_ns for d in result.departures] == [
        *(0, 0, 24_288, 48_576, 48_576, 72_864, 97_152, 97_152, 121_440)
    ]


def test_fig_3_without_allowance() -> None:
    """Allowance 0: R = start + cost, so a late start makes every later one as late."""
    classes = [
        ClassConfig(1, "static", 500_000_000, 1 << 20, 0),
        ClassConfig(2, "static", 250_000_000, 1 << 20, 0),
    ]
    result = run(GIGABIT_WIRE, classes, burst(1, range(4)) + burst(2, range(10, 12)))
    assert starts(result) == [
        (0, 0),
        (10, 12_304),  # R2 = 60,880
        (1, 24_608),  # R1 = 48,896
        (2, 48_896),  # R1 = 73,184; line free at 61,200
        (11, 61_200),  # line free at 73,504
        (3, 73_504),
    ]


def test_unpaced_fills_gaps_and_gives_way() -> None:
    # A frame of 1514 takes 12,304 ns; a class of 500 Mbit/s wants one every 24,288 ns.
    classes = [UNPACED, ClassConfig(1, "static", 500_000_000, 1 << 20, 24_288)]
    result = run(GIGABIT_WIRE, classes, burst(1, range(3)) + burst(0, range(10, 13)))
    assert starts(result) == [
        (0, 0),
        (10, 12_304),  # fills the gap; the line is free at 24,608
        (1, 24_608),  # D = 24,288: behind the frame on the wire
        (11, 36_912),  # free at 49,216
        (2, 49_216),  # D = 48,576
        (12, 61_520),
    ]


def test_strict_priority_at_the_same_instant() -> None:
    # The line is free at 12,304; class 1 is due then, and goes before an unpaced packet that
    # has waited longer.
    classes = [UNPACED, ClassConfig(1, "static", 500_000_000, 1 << 20, 0)]
    events = [
        *burst(0, range(2)),
        *burst(1, range(10, 11), at_ns=12_303),
    ]
    assert starts(run(GIGABIT_WIRE, classes, events)) == [
        (0, 0),
        (10, 12_304),
        (1, 24_608),
    ]


def test_starts_come_before_arrivals_at_the_same_instant() -> None:
    # At 12,304 the line is free: the unpaced packet starts, then the paced one arrives.
    classes = [UNPACED, ClassConfig(1, "static", 500_000_000, 1 << 20, 0)]
    events = [*burst(0, range(2)), *burst(1, range(10, 11), at_ns=12_304)]
    assert starts(run(GIGABIT_WIRE, classes, events)) == [
        (0, 0),
        (1, 12_304),
        (10, 24_608),
    ]


def test_class_limit() -> None:
    # Limit 3 frames. The first starts at once; three wait; the fifth does not fit.
    config = ClassConfig(1, "static", 500_000_000, 3 * 1518, 24_288)
    events = burst(1, range(5)) + burst(1, range(5, 7), at_ns=24_288)
    result = run(GIGABIT_WIRE, [config], events)
    # At 24,288 one has started: one more fits. A drop takes no time from the class.
    assert drops(result) == [(4, "class-limit"), (6, "class-limit")]
    assert starts(result) == [
        (0, 0),
        (1, 24_288),
        (2, 48_576),
        (3, 72_864),
        (5, 97_152),
    ]


def test_fifo_limit_and_layer_2_counting() -> None:
    # 500 Mbit/s by layer 2: 1518 * 16 = 24,288 ns. FIFO of two frames, without the one on
    # the line.
    port = PortConfig(500_000_000, "layer2", 2 * 1518)
    events = burst(0, range(4)) + burst(0, range(4, 6), at_ns=24_288)
    result = run(port, [UNPACED], events)
    assert drops(result) == [(3, "fifo-full"), (5, "fifo-full")]
    assert starts(result) == [(0, 0), (1, 24_288), (2, 48_576), (4, 72_864)]


def test_a_frame_larger_than_the_fifo_never_passes() -> None:
    result = run(PortConfig(None, "wire", 1517), [UNPACED], burst(0, range(1)))
    assert drops(result) == [(0, "fifo-full")]


def test_rate_change_applies_to_the_next_packet() -> None:
    slow = ClassConfig(1, "static", 100_000_000, 1 << 20, 24_288)  # 121,440 ns per frame
    fast = ClassConfig(1, "static", 500_000_000, 1 << 20, 24_288)
    events = [
        *burst(1, range(3)),
        SetClass(1_000, slow),
        *burst(1, range(3, 5), at_ns=1_000),
    ]
    assert starts(run(GIGABIT_WIRE, [fast], events)) == [
        *((0, 0), (1, 24_288), (2, 48_576)),
        (3, 72_864),  # after a frame at the old rate
        (4, 194_304),  # after one at the new
    ]


def test_an_idle_class_keeps_no_credit() -> None:
    config = ClassConfig(1, "static", 500_000_000, 1 << 20, 24_288)
    events = burst(1, range(2)) + burst(1, range(2, 4), at_ns=10**9)
    assert starts(run(GIGABIT_WIRE, [config], events)) == [
        *((0, 0), (1, 24_288), (2, 10**9), (3, 10**9 + 24_288))
    ]


@pytest.mark.parametrize(
    ("allowance_ns", "expected"),
    [
        # Released at 100,000 instead of 24,288; R = 100,000 - allowance + 24,288.
        (0, [0, 100_000, 124_288, 148_576, 172_864, 197_152]),
        # 1 frame: R = 100,000, so two back to back (12,304 apart), then R = 124,288 ...
        (24_288, [0, 100_000, 112_304, 124_608, 148_576, 172_864]),
        # Ample: everything late leaves at line rate; the last one (D = 121,440) is caught up.
        (10**6, [0, 100_000, 112_304, 124_608, 136_912, 149_216]),
    ],
)
def test_stall(allowance_ns: int, expected: list[int]) -> None:
    config = ClassConfig(1, "static", 500_000_000, 1 << 20, allowance_ns)
    events = [*burst(1, range(6)), Stall(1, 100_000)]
    result = run(GIGABIT_WIRE, [config], events)
    assert [start for _, start in starts(result)] == expected
    assert [d.departure_ns for d in result.departures] == [24_288 * k for k in range(6)]


def test_a_stall_does_not_move_the_fifo() -> None:
    port = PortConfig(500_000_000, "layer2", 1518)
    events = [
        *burst(0, range(2)),
        Stall(1, 10**6),
        *burst(0, range(2, 4), at_ns=24_288),
    ]
    result = run(port, [UNPACED], events)
    assert starts(result) == [(0, 0), (1, 24_288), (2, 48_576)]
    assert drops(result) == [(3, "fifo-full")]


def test_a_stall_lets_no_unpaced_packet_overtake() -> None:
    # The paced packet is due at 24,288, in the stall. The unpaced packet of 30,000 waits for it.
    classes = [UNPACED, ClassConfig(1, "static", 500_000_000, 1 << 20, 0)]
    events = [
        *burst(1, range(2)),
        Stall(1, 100_000),
        *burst(0, range(10, 11), at_ns=15_000, length_bytes=60),
        *burst(0, range(11, 12), at_ns=30_000),
    ]
    assert starts(run(GIGABIT_WIRE, classes, events)) == [
        *((0, 0), (10, 15_000), (1, 100_000), (11, 112_304))
    ]


@pytest.mark.parametrize("begin_ns", [0, 1 << 55])
def test_fractions_a_year_later_and_the_stall_rule(begin_ns: int) -> None:
    """700 Mbit/s, 64 bytes with FCS: 731.43 ns.

    D is 0, 731.43, 1462.86. The second packet starts at D rounded up, 732. With allowance 0,
    R = 732 + 731.43 = 1463.43 then binds; with 1 ns, R = 1462.43 does not.
    """
    for allowance_ns, third_ns in ((0, 1_464), (1, 1_463)):
        config = ClassConfig(1, "static", 700_000_000, 1 << 20, allowance_ns)
        result = run(NO_LINE, [config], burst(1, range(3), begin_ns, length_bytes=60))
        assert [d.departure_ns - begin_ns for d in result.departures] == [0, 732, 1_463]
        assert [d.start_ns - begin_ns for d in result.departures] == [0, 732, third_ns]


def gap_frames(result: Scheduler) -> list[tuple[int, int]]:
    """(start, length) of gap frames in order of transmission."""
    return [(frame.start_ns, frame.length_bytes) for frame in result.gap_frames]


def filled(longest_bytes: int) -> PortConfig:
    """A gigabit port with PAUSE frames in its gaps: a byte takes 8 ns."""
    return PortConfig(1_000_000_000, "wire", 65_536, longest_bytes)


def test_a_gap_is_one_frame() -> None:
    # 24,288 ns from start to start, 12,304 ns of them the packet: 1,498 bytes are left.
    classes = [ClassConfig(1, "static", 500_000_000, 1 << 20)]
    result = run(filled(1514), classes, burst(1, range(3), at_ns=100))
    assert starts(result) == [(0, 100), (1, 24_388), (2, 48_676)]
    assert gap_frames(result) == [(12_404, 1_474), (36_692, 1_474)]


def test_a_gap_is_several_frames_of_equal_size() -> None:
    # 1,498 bytes in frames of at most 500 + 24: 500, then 499 and 499.
    classes = [ClassConfig(1, "static", 500_000_000, 1 << 20)]
    result = run(filled(500), classes, burst(1, range(2)))
    assert starts(result) == [(0, 0), (1, 24_288)]
    assert gap_frames(result) == [(12_304, 476), (16_304, 475), (20_296, 475)]


def test_what_a_frame_is_too_long_comes_off_the_next_gap() -> None:
    # 960 Mbit/s: 12,650 ns, so a gap of 346 ns, where the shortest frame takes 672: 326 late. The
    # next gap is 20 ns, and a frame makes the third packet 652 late; the fourth can leave at once.
    classes = [ClassConfig(1, "static", 960_000_000, 1 << 20)]
    result = run(filled(1514), classes, burst(1, range(4)))
    assert starts(result) == [(0, 0), (1, 12_976), (2, 25_952), (3, 38_256)]
    assert gap_frames(result) == [(12_304, 60), (25_280, 60)]


def test_a_packet_that_comes_during_a_gap_frame_waits_for_its_end() -> None:
    # Class 2 has no allowance, and its second packet leaves as if its first had not waited.
    classes = [
        ClassConfig(1, "static", 500_000_000, 1 << 20),
        ClassConfig(2, "static", 100_000_000, 1 << 20),
    ]
    events = [*burst(1, range(2)), *burst(2, range(2, 4), at_ns=13_000, length_bytes=60)]
    result = run(filled(1514), classes, events)
    # The second of class 2 is due at 13,000 + 5,120 ns, during the same gap frame, too.
    assert starts(result) == [(0, 0), (2, 24_288), (3, 24_960), (1, 25_632)]
    assert gap_frames(result) == [(12_304, 1_474)]


def test_unpaced_packets_take_the_place_of_gap_frames() -> None:
    classes = [UNPACED, ClassConfig(1, "static", 500_000_000, 1 << 20)]
    events = [*burst(1, range(2)), *burst(0, range(2, 3), length_bytes=676)]
    result = run(filled(1514), classes, events)
    assert starts(result) == [(0, 0), (2, 12_304), (1, 24_288)]
    assert gap_frames(result) == [(17_904, 774)]


def test_nothing_is_sent_while_nothing_waits() -> None:
    classes = [ClassConfig(1, "static", 500_000_000, 1 << 20)]
    events = [*burst(1, range(1)), *burst(1, range(1, 2), at_ns=20_000)]
    result = run(filled(1514), classes, events)
    # From the arrival of the packet that waits to its departure: 536 bytes.
    assert starts(result) == [(0, 0), (1, 24_288)]
    assert gap_frames(result) == [(20_000, 512)]


def test_a_timer_of_hz_1000_lets_42_packets_go_at_once() -> None:
    """Fig. 1(b) of the IPSJ paper: 500 Mbit/s, a tick's tokens are 62,500 bytes."""
    config = ClassConfig(1, "timer", 500_000_000, 1 << 30, 0, tick_ns=1_000_000)
    result = run(NO_LINE, [config], burst(1, range(42 + 6 * 41 + 1), at_ns=5))
    at_ms = Counter(departure.start_ns / 1_000_000 for departure in result.departures)
    # 41.17 packets of 1518 bytes a tick: after five ticks the rest is another packet.
    assert at_ms == {1: 42, 2: 41, 3: 41, 4: 41, 5: 41, 6: 42, 7: 41}


def test_a_timer_releases_at_ticks_only_and_keeps_one_tick_s_tokens() -> None:
    """1,000 bytes are a tick's tokens, and so is a packet."""
    config = ClassConfig(1, "timer", 8_000_000, 1 << 30, 0, tick_ns=1_000_000)
    result = run(
        NO_LINE,
        [config],
        [
            *burst(1, range(3), at_ns=1_000_000, length_bytes=996),
            *burst(1, range(3, 6), at_ns=50_000_001, length_bytes=996),
            # One byte is left of the tokens when the first has gone; the second overdraws them.
            *burst(1, range(6, 9), at_ns=90_000_000, length_bytes=995),
        ],
    )
    assert [departure.start_ns // 1_000_000 for departure in result.departures] == [
        *(1, 2, 3),
        *(51, 52, 53),
        *(90, 90, 91),
    ]

"""The handling of flows with unusual segments, and of too many flows.

The departures are compared with the model, to the nanosecond. Beyond the model: the packets of one
flow never change the pacing of another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from flow_model import FlowClass, Segment
from flow_runs import GROWTH, V4, Traffic, cell_of, departures, interleaved, left_by_port
from pacing_model import FCS_BYTES, ceil_ns, time_per_byte_q24
from pacing_switch import TimedFrame
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether
from sharing_cases import shared_class
from sharing_model import SharedClass
from tcp_traffic import ACK, SEGMENT_BYTES, SYN, Sender, frame_of, raw_frame

CLIENT, SERVER = V4
MS = 1_000_000
RATE_Q24 = time_per_byte_q24(50_000_000)
ROUNDS = [(10, -1), (20, -1), (40, -1), (40, -1), (40, -1)]
MIDDLE_NS = 45 * MS
"""After the third round trip."""


def base() -> Traffic:
    """A flow with a round-trip time of 10 ms and nothing wrong."""
    return interleaved(Sender(CLIENT, SERVER, ROUNDS))


def by_time(traffic: Traffic) -> Traffic:
    return sorted(traffic, key=lambda pair: pair[1].at_ns)


def data_of(traffic: Traffic) -> list[int]:
    """The positions of the segments with data."""
    return [at for at, (_, segment) in enumerate(traffic) if segment.payload_bytes]


def out_of_order() -> Traffic:
    """Every seventh segment comes after the one that follows it."""
    traffic = base()
    data = data_of(traffic)
    for first, second in list(pairwise(data))[::7]:
        (port, one), (_, other) = traffic[first], traffic[second]
        traffic[first] = (port, replace(one, at_ns=other.at_ns))
        traffic[second] = (port, replace(other, at_ns=one.at_ns))
    return by_time(traffic)


def repeated() -> Traffic:
    """Every fifth segment twice, and each acknowledgement four times."""
    traffic = base()
    again = [
        (1, replace(traffic[at][1], at_ns=traffic[at][1].at_ns + 200)) for at in data_of(traffic)
    ]
    answers = [segment for port, segment in traffic if port == 2]
    copies = [(2, replace(one, at_ns=one.at_ns + k)) for one in answers for k in (1, 2, 3)]
    return by_time([*traffic, *again[::5], *copies])


def keep_alive() -> Traffic:
    """In the pauses: the byte before the acknowledged number, with and without a payload byte."""
    traffic = base()
    probes = []
    for before, after in pairwise(traffic):
        last, pause_ns = before[1], after[1].at_ns - before[1].at_ns
        if before[0] == 2 and last.acknowledgement is not None and pause_ns > 1_000:
            number = (last.acknowledgement - 1) % (1 << 32)
            for k in (0, 1):
                at_ns = last.at_ns + 100 * (1 + k)
                probes.append((1, Segment(at_ns, CLIENT, SERVER, number, k, 1)))
    assert len(probes) > 8
    return by_time([*traffic, *probes])


def reset() -> Traffic:
    """The connection is reset amidst, and there is another one at once."""
    before = [pair for pair in base() if pair[1].at_ns < MIDDLE_NS]
    ends = Segment(MIDDLE_NS, CLIENT, SERVER, 5, 0, None, "R")
    answered = Segment(MIDDLE_NS + 1, SERVER, CLIENT, 0, 0, 5, "R")
    next_one = Sender(CLIENT, SERVER, ROUNDS, begin_ns=MIDDLE_NS + 2 * MS, first=1 << 30)
    return by_time([*before, (1, ends), (2, answered), *next_one.segments()])


def again_and_sooner() -> Traffic:
    """A connection of long round trips, then a short one between its ports: its clock is ahead."""
    slow = Sender(CLIENT, SERVER, ROUNDS[:2], rtt_ns=2_000 * MS)
    # The last segment leaves at 7.416 s, and the next could at 7.521.
    soon = Sender(CLIENT, SERVER, ROUNDS, rtt_ns=MS, begin_ns=7_450 * MS, first=1 << 30)
    before = [pair for pair in slow.segments() if pair[1].at_ns < 5_000 * MS]
    return by_time([*before, *soon.segments()])


def wrong_acknowledgements() -> Traffic:
    """Acknowledgements of bytes never sent, and of bytes acknowledged long ago."""
    traffic = base()
    wrong = [
        (2, replace(segment, at_ns=segment.at_ns + 1 + k, acknowledgement=number % (1 << 32)))
        for port, segment in traffic
        if port == 2 and segment.acknowledgement
        for k, number in enumerate(
            (segment.acknowledgement + 1_000_000, segment.acknowledgement - 3_000, 1 << 31)
        )
    ]
    return by_time([*traffic, *wrong])


def one_way() -> Traffic:
    """The acknowledgements take another path."""
    return [pair for pair in base() if pair[0] == 1]


def other_way() -> Traffic:
    """Acknowledgements alone."""
    return [pair for pair in base() if pair[0] == 2]


def goes_another_way() -> Traffic:
    """From the middle on."""
    return [pair for pair in base() if pair[0] == 1 or pair[1].at_ns < MIDDLE_NS]


def strays() -> Traffic:
    """In the pauses: segments a GiB ahead, and one and a half GiB behind."""
    traffic = base()
    number = max(segment.end for port, segment in traffic if port == 1)
    stray = [
        (1, Segment(MIDDLE_NS + k * MS, CLIENT, SERVER, (number + far) % (1 << 32), 100, 1))
        for k, far in enumerate((1 << 30, -(3 << 29), (1 << 30) + 5, (1 << 30) + 105 + 1))
    ]
    return by_time([*traffic, *stray])


def went_unseen() -> Traffic:
    """From the middle on, sequence numbers are 50 MB further: that much took another path."""
    return [
        (port, segment)
        if segment.at_ns < MIDDLE_NS
        else (port, moved(segment, 50_000_000 if port == 1 else 0, 50_000_000 if port == 2 else 0))
        for port, segment in base()
    ]


def moved(segment: Segment, sent: int, acknowledged: int) -> Segment:
    """The segment with other numbers."""
    number = segment.acknowledgement
    return replace(
        segment,
        sequence=(segment.sequence + sent) % (1 << 32),
        acknowledgement=None if number is None else (number + acknowledged) % (1 << 32),
    )


def comes_back() -> Traffic:
    """The acknowledgements of three seconds are not seen; then they are again."""
    later = Sender(CLIENT, SERVER, ROUNDS, begin_ns=3_000 * MS, handshake=False)
    before = [pair for pair in base() if pair[1].at_ns < MIDDLE_NS]
    number = max(segment.end for port, segment in before if port == 1)
    unseen = [
        (1, Segment((100 + 10 * k) * MS, CLIENT, SERVER, number + 1_000 * k, 1_000, 1))
        for k in range(290)
    ]
    end = number + 290_000
    after = [
        (port, moved(segment, end if port == 1 else 0, end if port == 2 else 0))
        for port, segment in later.segments()
    ]
    return by_time([*before, *unseen, *after])


def pauses() -> Traffic:
    """A window of 200, then five round trips of one small segment each, then 200 again."""
    rounds = [(10, -1), (20, -1), (50, -1), (100, -1), (200, -1), *[(1, -1)] * 5, (200, -1)]
    return interleaved(Sender(CLIENT, SERVER, rounds))


def closes() -> Traffic:
    """FIN, FIN, the last acknowledgement; three seconds later another connection."""
    first = [pair for pair in base() if "F" not in pair[1].flags]
    end = max(segment.end for port, segment in first if port == 1)
    at_ns = max(segment.at_ns for _, segment in first) + MS
    last = [
        (1, Segment(at_ns, CLIENT, SERVER, end, 0, 1, "F")),
        (2, Segment(at_ns + MS, SERVER, CLIENT, 1, 0, end + 1, "F")),
        (1, Segment(at_ns + 2 * MS, CLIENT, SERVER, end + 1, 0, 2)),
    ]
    # No handshake is seen: if the first one lived on, this would be a stray of it.
    again = Sender(
        *(CLIENT, SERVER, ROUNDS),
        begin_ns=at_ns + 3_000 * MS,
        first=end + 10_000_000,
        handshake=False,
    )
    return by_time([*first, *last, *again.segments()])


def anything() -> Traffic:
    """Three flows' segments at random: flags, numbers near and far, acknowledgements."""
    dice = random.Random(11)
    ends = [(CLIENT, SERVER), (("10.0.0.1", 40_001), SERVER), (("10.0.0.3", 40_000), SERVER)]
    assert len({cell_of(*pair) for pair in ends}) == len(ends)
    numbers = [dice.randrange(1 << 32) for _ in ends]
    traffic: Traffic = []
    at_ns = 1
    for _ in range(1_500):
        at_ns += dice.choice(
            [1, 1_000, 50_000, MS, 20 * MS, 1 if dice.random() < 0.99 else 3_000 * MS]
        )
        which = dice.randrange(len(ends))
        near = (numbers[which] + dice.choice([0, 0, 0, 1, -1, 5_000, -5_000])) % (1 << 32)
        number = near if dice.random() < 0.97 else dice.randrange(1 << 32)
        acknowledges = number if dice.random() < 0.9 else None
        flags = "".join(flag for flag in "SFR" if dice.random() < 0.02)
        client, server = ends[which]
        if dice.random() < 0.5:
            payload_bytes = dice.choice([0, 1, 100, SEGMENT_BYTES])
            segment = Segment(at_ns, client, server, number, payload_bytes, acknowledges, flags)
            traffic.append((1, segment))
            if number == near:
                numbers[which] = segment.end
        else:
            traffic.append((2, Segment(at_ns, server, client, 7, 0, acknowledges, flags)))
    return traffic


def without_options(segment: Segment, from_port: int) -> bytes:
    """No TCP timestamps."""
    return with_options(segment, from_port, [])


def false_lengths() -> Traffic:
    """Beside every fourth segment with data one whose IP header says that it has 14,500 bytes."""
    traffic = base()
    false = [
        (1, replace(traffic[at][1], at_ns=traffic[at][1].at_ns + 300, payload_bytes=14_500))
        for at in data_of(traffic)[::4]
    ]
    return by_time([*traffic, *false])


def with_false_length(segment: Segment, from_port: int) -> bytes:
    """The frame; of 14,500 bytes 100 are there."""
    if segment.payload_bytes < 14_500:
        return frame_of(segment, from_port)
    frame = Ether(frame_of(replace(segment, payload_bytes=100), from_port))
    frame["IP"].len += 14_400
    frame["IP"].chksum = None
    return bytes(frame)


def with_options(segment: Segment, from_port: int, options: list[tuple[str, object]]) -> bytes:
    """The frame with other TCP options, but for SYNs."""
    frame = Ether(frame_of(segment, from_port))
    if "S" not in segment.flags:
        frame[TCP].options = options
        frame[TCP].dataofs = frame["IP"].len = frame["IP"].chksum = frame[TCP].chksum = None
    return bytes(frame)


def with_blocks(segment: Segment, from_port: int) -> bytes:
    """Acknowledgements that tell of blocks received (SACK, RFC 2018)."""
    if from_port == 1 or segment.acknowledgement is None:
        return frame_of(segment, from_port)
    begin = (segment.acknowledgement + SEGMENT_BYTES) % (1 << 32)
    end = (begin + 3 * SEGMENT_BYTES) % (1 << 32)
    return with_options(segment, from_port, [("NOP", None), ("NOP", None), ("SAck", (begin, end))])


CONFIGS: dict[str, FlowClass | SharedClass] = {
    "at-most-50-mbit": FlowClass(fastest_time_per_byte_q24=RATE_Q24),
    "slow-start": FlowClass(release_below_ns=MS),
    "no-rate": FlowClass(),
    "pspd": FlowClass(pspd=True),
    "clustered": FlowClass(release_below_ns=MS, pspd=True),
    "shared": shared_class(20_000_000),
}
CASES: dict[str, tuple[Callable[[], Traffic], Callable[[Segment, int], bytes]]] = {
    "out-of-order": (out_of_order, frame_of),
    "repeated": (repeated, frame_of),
    "keep-alive": (keep_alive, frame_of),
    "reset": (reset, frame_of),
    "again-and-sooner": (again_and_sooner, frame_of),
    "zero-window": (keep_alive, partial(frame_of, window=0)),
    "wrong-acknowledgements": (wrong_acknowledgements, frame_of),
    "selective-acknowledgements": (repeated, with_blocks),
    "no-timestamps": (base, without_options),
    "false-lengths": (false_lengths, with_false_length),
    "one-way": (one_way, frame_of),
    "other-way": (other_way, frame_of),
    "goes-another-way": (goes_another_way, frame_of),
    "comes-back": (comes_back, frame_of),
    "strays": (strays, frame_of),
    "went-unseen": (went_unseen, frame_of),
    "pauses": (pauses, frame_of),
    "closes": (closes, frame_of),
    "anything": (anything, frame_of),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("case", CASES)
def test_departures(case: str, config: str, tmp_path: Path) -> None:
    traffic, make = CASES[case]
    left, expected = departures(CONFIGS[config], traffic(), tmp_path, make)
    assert sorted(left) == sorted(expected)


def test_a_flow_without_an_estimate_has_its_class_s_rate(tmp_path: Path) -> None:
    left, _ = departures(CONFIGS["at-most-50-mbit"], one_way(), tmp_path)
    clock_q24 = 0
    for (_, segment), (at_ns, frame) in zip(one_way(), left, strict=True):
        clock_q24 = max(clock_q24, segment.at_ns << 24)
        assert at_ns == ceil_ns(clock_q24)
        clock_q24 += (len(frame) + FCS_BYTES) * RATE_Q24


def test_strays_change_nothing_of_the_flow(tmp_path: Path) -> None:
    """But that each takes its own time of the flow's clock: of some 40 segments' 10 ms 29 us."""
    left, _ = departures(FlowClass(), strays(), tmp_path)
    alone, _ = departures(FlowClass(), base(), tmp_path)
    frames = {frame for _, frame in alone}
    later_ns = [
        at_ns - alone_ns
        for (at_ns, _), (alone_ns, _) in zip(
            [pair for pair in left if pair[1] in frames], alone, strict=True
        )
    ]
    assert min(later_ns) >= 0
    assert max(later_ns) < 5 * 29_000


def test_a_sender_that_pauses_has_its_window_when_it_goes_on(tmp_path: Path) -> None:
    """Not: a window of ten again, so that its packets take round-trip times times log(window)."""
    traffic = [segment for port, segment in pauses() if port == 1 and segment.payload_bytes]
    left, _ = departures(FlowClass(), pauses(), tmp_path)
    sent_ns = traffic[-200].at_ns
    # Of 200 segments 103 are left, (7/8)^5: RTT * (1 + ln(200 / 103)) are 16.6 ms.
    assert left[-2][0] - sent_ns < 20 * MS


def test_acknowledgements_that_were_not_seen_do_not_stop_a_flow(tmp_path: Path) -> None:
    """A sample of three seconds, where the round-trip time is 10 ms, is not believed at once."""
    left, _ = departures(FlowClass(), comes_back(), tmp_path)
    last_ns = max(segment.at_ns for port, segment in comes_back() if port == 1)
    assert left[-1][0] - last_ns < 100 * MS


def test_a_flood_of_new_flows_changes_no_other(tmp_path: Path) -> None:
    """100,000 SYNs from anywhere, more than there are cells, while one flow grows."""
    dice = random.Random(3)
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    for port, segment in interleaved(Sender(CLIENT, SERVER, GROWTH)):
        arrivals[port].append(TimedFrame(segment.at_ns, frame_of(segment, port)))
    alone = left_by_port(FlowClass(), arrivals, tmp_path)
    flood = [
        TimedFrame(
            MS + k * 1_001,
            raw_frame(
                1, 0x0B000000 + dice.randrange(1 << 24), dice.randrange(1, 1 << 16), SYN, k, 0
            ),
        )
        for k in range(100_000)
    ]
    arrivals[1] = sorted(arrivals[1] + flood, key=lambda timed: timed.at_ns)
    left = left_by_port(FlowClass(), arrivals, tmp_path)
    of_flood = {timed.frame for timed in flood}
    assert [timed for timed in left if timed.frame not in of_flood] == alone
    assert len(left) == len(alone) + len(flood)


def many_flows(count: int) -> Iterator[tuple[int, int]]:
    """Addresses and ports of clients, all different."""
    dice = random.Random(17)
    for number in range(count):
        yield 0x0A010000 + number, dice.randrange(1024, 1 << 16)


def test_no_two_of_65_536_flows_share_a_cell_unnoticed(tmp_path: Path) -> None:
    """The first flow of each cell is paced by its own round-trip time, and no other one."""
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    cells: dict[int, int] = {}
    rtt_ns = 200 * MS
    for number, (host, port) in enumerate(many_flows(65_536)):
        at_ns = 1 + number * 2_000
        address = ".".join(str(byte) for byte in host.to_bytes(4, "big"))
        cells.setdefault(cell_of((address, port), SERVER), host)
        arrivals[1].append(TimedFrame(at_ns, raw_frame(1, host, port, SYN, 0, 0)))
        answer = raw_frame(2, host, port, SYN | ACK, 0, 1)
        arrivals[2].append(TimedFrame(at_ns + rtt_ns, answer))
        for k in (0, 1):
            # Beyond the first flight, which is not spaced.
            data = raw_frame(1, host, port, ACK, 14_502 + 100 * k, 1, payload_bytes=100)
            arrivals[1].append(TimedFrame(at_ns + rtt_ns + 1_000 + k, data))
    arrivals[1].sort(key=lambda timed: timed.at_ns)
    came = {timed.frame: timed.at_ns for timed in arrivals[1]}
    waited = {}
    for timed in left_by_port(FlowClass(), arrivals, tmp_path):
        if timed.at_ns != came[timed.frame]:
            host = int.from_bytes(timed.frame[26:30], "big")
            waited[host] = timed.at_ns - came[timed.frame]
    assert set(waited) == set(cells.values())
    # The second packet leaves when the first one's time is over: its 100 bytes of a window of ten
    # segments and a byte in a round trip.
    own_ns = 100 * rtt_ns / 14_601
    assert all(own_ns * (1 - 300e-6) - 2 <= one <= own_ns for one in waited.values())

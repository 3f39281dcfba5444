"""The vectors of the modes that pace TCP flows, and of the window clamp.

A client sends to a server through the switch, with as many segments in a round trip as a case
says; no TCP of anybody's. All that the client sends is of the class; the answers pass at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flow_model import FlowClass, FlowPacer, Segment, clamped, window_limit_bytes
from pacing_model import time_per_byte_q24
from vector_text import lines

CLIENT = ("10.0.0.1", 40_000)
SERVER = ("10.0.0.2", 5001)
PAYLOAD_BYTES = 1_448
SYN_BYTES, HEADERS_BYTES = 74, 66
"""Frames of a SYN with its options, and of a segment with a time stamp and no payload."""
SCALE = 7
MS = 1_000_000

Json = dict[str, object]


@dataclass(frozen=True)
class Round:
    """A round trip: how many segments are sent, and which of them is sent again (-1: none).

    ``together``: how many are acknowledged at once.
    """

    segments: int
    again: int = -1
    together: int = 2


@dataclass(frozen=True)
class FlowCase:
    """A flow and its class.

    ``path_ns``: the path takes a segment each, and earlier arrivals wait. ``begin_sequence``: of
    the SYN. ``bytes_per_ns_q24`` and ``margin_bytes``: of the window clamp; 0: there is none.
    """

    name: str
    description: str
    config: FlowClass
    rounds: list[Round]
    rtt_ns: int = 50 * MS
    path_ns: int = 0
    begin_sequence: int = 0
    bytes_per_ns_q24: int = 0
    margin_bytes: int = 0
    windows: list[int] = field(default_factory=lambda: [5_000])

    def segments(self) -> list[tuple[Segment, int]]:
        """The segments of both ends, in order of time, with their windows."""
        return sorted(self._sent(), key=lambda pair: pair[0].at_ns)

    def _sent(self) -> Iterator[tuple[Segment, int]]:
        number = self.begin_sequence
        at_ns = 1_000
        yield self._data(at_ns, number, 0, "S"), 65_535
        number = (number + 1) % (1 << 32)
        at_ns += self.rtt_ns
        yield self._answer(at_ns, number, "S"), 65_535
        answers = 0
        for one in self.rounds:
            at_ns += 1_000
            through_ns = at_ns
            for k in range(one.segments):
                sent_ns = at_ns + 1_000 * k
                yield self._data(sent_ns, number, PAYLOAD_BYTES), 500
                if k == one.again:
                    yield self._data(sent_ns + self.rtt_ns // 2, number, PAYLOAD_BYTES), 500
                number = (number + PAYLOAD_BYTES) % (1 << 32)
                through_ns = max(through_ns, sent_ns) + self.path_ns
                if (k + 1) % one.together == 0 or k + 1 == one.segments:
                    window = self.windows[answers % len(self.windows)]
                    answers += 1
                    yield self._answer(through_ns + self.rtt_ns, number), window
            at_ns = through_ns + self.rtt_ns

    def _data(self, at_ns: int, number: int, payload_bytes: int, flags: str = "") -> Segment:
        length_bytes = SYN_BYTES if flags else HEADERS_BYTES + payload_bytes
        acknowledgement = None if flags else 1
        return Segment(
            *(at_ns, CLIENT, SERVER, number, payload_bytes, acknowledgement, flags, length_bytes)
        )

    def _answer(self, at_ns: int, number: int, flags: str = "") -> Segment:
        length_bytes = SYN_BYTES if flags else HEADERS_BYTES
        return Segment(*(at_ns, SERVER, CLIENT, 0 if flags else 1, 0, number, flags, length_bytes))


GROWTH = [Round(10), Round(20), Round(40), Round(80)]
HEADROOM_120 = 65_536 * 100 // 120


def flow_cases() -> list[FlowCase]:
    """Every committed case."""
    dynamic = FlowClass(inverse_headroom_q16=HEADROOM_120)
    slow_start = FlowClass(inverse_headroom_q16=HEADROOM_120, release_below_ns=MS)
    pspd = FlowClass(pspd=True)
    steady = [Round(12, together=6)] * 2
    return [
        FlowCase(
            "pspd",
            "A window that doubles: the first flight as of an initial window, then window / RTT.",
            *(pspd, [Round(6), Round(12)]),
        ),
        FlowCase(
            "pspd-known-window",
            "A window of 12 segments and 50 ms: a segment every 4.167 ms.",
            *(pspd, steady),
        ),
        FlowCase(
            "pspd-slots",
            "A window of 12 segments and 50 ms, in the first of 8 slots of 121,440 ns: a cycle is "
            "971,520 ns, and a segment leaves in every fourth or fifth.",
            *(FlowClass(pspd=True, slots=8, slot_ns=121_440), steady),
        ),
        FlowCase(
            "pspd-slots-dense",
            "Slots of 5 ms, and a window that grows to 40 segments: up to 8 leave in a slot.",
            *(FlowClass(pspd=True, slots=2, slot_ns=5 * MS), [Round(10), Round(20), Round(40, 9)]),
        ),
        FlowCase(
            "dynamic-slots",
            "As dynamic, in the first of 64 slots of 24,288 ns.",
            *(replace(dynamic, slots=64, slot_ns=24_288), GROWTH[:3]),
        ),
        FlowCase(
            "pspd-small-windows",
            "Windows of one to four segments: ten until one is sent again, then what they are.",
            *(pspd, [Round(1), Round(4), Round(4, 1), Round(1), Round(2), Round(4)]),
        ),
        FlowCase(
            "dynamic-known-window",
            "As pspd-known-window, in mode dynamic at a headroom of 100 %.",
            *(FlowClass(), steady),
        ),
        FlowCase(
            "dynamic",
            "Headroom 120 %, a window that doubles: first flight at once, then window / RTT.",
            *(dynamic, GROWTH),
        ),
        FlowCase(
            "dynamic-path",
            "The path takes a segment in 121,440 ns (100 Mbit/s), which the first flight shows.",
            *(dynamic, [*GROWTH, Round(80), Round(80)]),
            rtt_ns=5 * MS,
            path_ns=121_440,
        ),
        FlowCase(
            "dynamic-together",
            "A path of 500 Mbit/s; ten segments are acknowledged as one, and three that come "
            "later: that says nothing of it.",
            *(dynamic, [Round(10, together=10), Round(3, together=3), *GROWTH[1:3]]),
            path_ns=24_288,
        ),
        FlowCase(
            "dynamic-at-most",
            "As dynamic-path, and no flow may have more than 50 Mbit/s.",
            FlowClass(HEADROOM_120, time_per_byte_q24(50_000_000)),
            GROWTH,
            rtt_ns=5 * MS,
            path_ns=121_440,
        ),
        FlowCase(
            "dynamic-wrap",
            "Sequence numbers that wrap, and segments that are sent again.",
            *(dynamic, [Round(10), Round(20, 3), Round(20), Round(30, 29), Round(30)]),
            begin_sequence=(1 << 32) - 40_000,
        ),
        FlowCase(
            "slow-start-loss",
            "Spaced until a segment is sent again, left alone from then on.",
            *(slow_start, [Round(10), Round(20), Round(30, 7), Round(30)]),
        ),
        FlowCase(
            "slow-start-dense",
            "Spaced until RTT / window is a millisecond: 50 segments in 50 ms.",
            *(slow_start, GROWTH),
        ),
        FlowCase(
            "clustered",
            "20 ms: clusters of a millisecond, until RTT / window is 1.2 ms.",
            FlowClass(release_below_ns=1_200_000, pspd=True),
            [Round(6), Round(13), Round(18)],
            rtt_ns=20 * MS,
        ),
        FlowCase(
            "window-clamp",
            "Windows lowered to 100 Mbit/s times RTT and 10,000 bytes, and never raised.",
            *(dynamic, GROWTH[:3]),
            bytes_per_ns_q24=(1 << 24) * 100_000_000 // 8_000_000_000,
            margin_bytes=10_000,
            windows=[65_535, 4_962, 4_961, 100, 0],
        ),
    ]


COLUMNS = (
    *("at_ns", "from", "syn", "sequence", "acknowledgement", "payload_bytes", "length_bytes"),
    *("window", "leaves_ns", "leaves_window"),
)
"""The names of a segment's numbers."""


def flow_vector_text(case: FlowCase) -> str:
    """The whole file: one line per segment, with its departure and its window."""
    config = case.config
    modes = [["dynamic", "slow-start"], ["pspd", "clustered"]]
    settings: Json = {
        "mode": modes[config.pspd][config.release_below_ns != 0],
        "inverse_headroom_q16": config.inverse_headroom_q16,
        "time_per_byte_q24": config.fastest_time_per_byte_q24,
        "release_below_ns": config.release_below_ns,
        **({"slots": config.slots, "slot_ns": config.slot_ns} if config.slots else {}),
        "bytes_per_ns_q24": case.bytes_per_ns_q24,
        "window_margin_bytes": case.margin_bytes,
    }
    pacer = FlowPacer(config)
    rows: list[list[object]] = []
    limit_bytes = 0
    for segment, window in case.segments():
        from_client = segment.sender == CLIENT
        leaves_ns, leaves_window = segment.at_ns, window
        if from_client:
            leaves_ns = pacer.send(segment)
            base_rtt_ns = pacer.flows[CLIENT, SERVER].base_rtt_ns
            if case.bytes_per_ns_q24 and base_rtt_ns:
                limit_bytes = window_limit_bytes(
                    base_rtt_ns, case.bytes_per_ns_q24, case.margin_bytes
                )
        else:
            pacer.acknowledge(segment)
            # RFC 7323: the window of a SYN is not scaled, and it is none that is lowered.
            if limit_bytes and "S" not in segment.flags:
                leaves_window = clamped(window, SCALE, limit_bytes)
        rows.append(
            [
                *(segment.at_ns, "client" if from_client else "server", int("S" in segment.flags)),
                *(segment.sequence, segment.acknowledgement or 0, segment.payload_bytes),
                *(segment.length_bytes, window, leaves_ns, leaves_window),
            ]
        )
    return (
        "{\n"
        f'"name": {json.dumps(case.name)},\n'
        f'"description": {json.dumps(case.description)},\n'
        f'"class": {json.dumps(settings)},\n'
        f'"columns": {json.dumps(COLUMNS)},\n'
        f'"segments": {lines(rows)}\n'
        "}\n"
    )

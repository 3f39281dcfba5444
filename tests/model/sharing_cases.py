"""The vectors of mode ``shared``: several senders, each with a window, in a closed loop.

A sender has a number of segments in flight. A segment is acknowledged a round trip after it leaves
the switch. All that the clients send is of the class; the answers pass at once.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from flow_cases import SCALE
from flow_model import Address, Segment, clamped
from pacing_model import time_per_byte_q24
from sharing_model import SharedClass, SharedPacer
from vector_text import lines

SERVER: Address = ("10.0.0.2", 5001)
PAYLOAD_BYTES = 1_448
FRAME_BYTES = 1_518
SYN_BYTES, HEADERS_BYTES = 74, 66
MS = 1_000_000
TURN_NS = 1_000
"""From an acknowledgement to the segment that it lets go."""
PAUSE_NS = 3_000_000_000


def client(number: int) -> Address:
    """The sending end of a stream."""
    return ("10.0.0.1", 40_000 + number)


@dataclass(frozen=True)
class Stream:
    """A transfer: how many segments, how many of them in flight, and when it begins.

    ``pauses_at``: before this segment the sender is silent for some seconds (-1: never).
    """

    segments: int
    window: int = 8
    begin_ns: int = 1_000
    rtt_ns: int = 20 * MS
    pauses_at: int = -1


@dataclass
class Passed:
    """A segment that came to the switch, and its departure."""

    stream: int
    segment: Segment
    leaves_ns: int
    window: int = 500
    leaves_window: int = 500


@dataclass
class Loop:
    """Runs streams through a pacer."""

    pacer: SharedPacer
    streams: list[Stream]
    window: int = 500
    passed: list[Passed] = field(default_factory=list)
    _due: list[tuple[int, int, Callable[[int], None]]] = field(default_factory=list)

    def run(self) -> list[Passed]:
        """Everything that came, in order of time."""
        for number, stream in enumerate(self.streams):
            self.later(stream.begin_ns + number, _Sender(self, number, stream).open)
        while self._due:
            at_ns, _, act = heapq.heappop(self._due)
            act(at_ns)
        return self.passed

    def later(self, at_ns: int, act: Callable[[int], None]) -> None:
        """Calls `act` at a time; calls of one time keep the order of their requests."""
        self._asked += 1
        heapq.heappush(self._due, (at_ns, self._asked, act))

    _asked: int = 0

    def data(self, number: int, at_ns: int, seq: int, payload_bytes: int, flags: str = "") -> int:
        """A client's segment; when it leaves the switch."""
        opens = flags == "S"
        length_bytes = SYN_BYTES if opens else HEADERS_BYTES + payload_bytes
        acknowledgement = None if opens else 1
        ends = (client(number), SERVER)
        segment = Segment(at_ns, *ends, seq, payload_bytes, acknowledgement, flags, length_bytes)
        leaves_ns = self.pacer.send(segment)
        if leaves_ns is None:
            raise ValueError(f"stream {number} has too large a window")
        self.passed.append(Passed(number, segment, leaves_ns))
        return leaves_ns

    def answer(self, number: int, at_ns: int, acknowledged: int, flags: str = "") -> None:
        """The server's answer."""
        ends = (SERVER, client(number))
        opens = "S" in flags
        length_bytes = SYN_BYTES if opens else HEADERS_BYTES
        seq = 0 if opens else 1
        segment = Segment(at_ns, *ends, seq, 0, acknowledged, flags, length_bytes)
        self.pacer.acknowledge(segment)
        window = 65_535 if opens else self.window
        limit_bytes = self.pacer.window_limits.get((client(number), SERVER), 0)
        leaves_window = window
        if limit_bytes and not opens:
            leaves_window = clamped(window, SCALE, limit_bytes)
        self.passed.append(Passed(number, segment, at_ns, window, leaves_window))


@dataclass
class _Sender:
    loop: Loop
    number: int
    stream: Stream
    sent: int = 0
    acknowledged: int = 0
    silent_until_ns: int = 0

    def open(self, at_ns: int) -> None:
        leaves_ns = self.loop.data(self.number, at_ns, 0, 0, "S")
        self.loop.later(leaves_ns + self.stream.rtt_ns, self._opened)

    def _opened(self, at_ns: int) -> None:
        self.loop.answer(self.number, at_ns, 1, "S")
        self.loop.later(at_ns + TURN_NS, self._send)

    def _send(self, at_ns: int) -> None:
        stream = self.stream
        while self.sent < stream.segments and self.sent - self.acknowledged < stream.window:
            if self.sent == stream.pauses_at and not self.silent_until_ns:
                self.silent_until_ns = at_ns + PAUSE_NS
                self.loop.later(self.silent_until_ns, self._send)
            if at_ns < self.silent_until_ns:
                return
            leaves_ns = self.loop.data(self.number, at_ns, self._seq(self.sent), PAYLOAD_BYTES)
            self.sent += 1
            self.loop.later(leaves_ns + stream.rtt_ns, self._answered)

    def _answered(self, at_ns: int) -> None:
        self.acknowledged += 1
        self.loop.answer(self.number, at_ns, self._seq(self.acknowledged))
        if self.acknowledged == self.stream.segments:
            self.loop.later(at_ns + TURN_NS, self._close)
        else:
            self.loop.later(at_ns + TURN_NS, self._send)

    def _close(self, at_ns: int) -> None:
        leaves_ns = self.loop.data(self.number, at_ns, self._seq(self.sent), 0, "F")
        self.loop.later(leaves_ns + self.stream.rtt_ns, self._closed)

    def _closed(self, at_ns: int) -> None:
        end = self._seq(self.sent) + 1
        self.loop.answer(self.number, at_ns, end, "F")
        self.loop.data(self.number, at_ns + TURN_NS, end, 0)

    def _seq(self, segments: int) -> int:
        return 1 + segments * PAYLOAD_BYTES


@dataclass(frozen=True)
class SharingCase:
    """Streams of one class."""

    name: str
    description: str
    config: SharedClass
    streams: list[Stream]


def shared_class(rate_bps: int, margin_bytes: int | None = None) -> SharedClass:
    """A class of this rate; its payload is that of full segments with time stamps."""
    bytes_per_ns_q24 = (rate_bps << 24) * PAYLOAD_BYTES // (FRAME_BYTES * 8_000_000_000)
    clamps = int(margin_bytes is not None)
    return SharedClass(time_per_byte_q24(rate_bps), bytes_per_ns_q24, clamps, margin_bytes or 0)


def sharing_cases() -> list[SharingCase]:
    """Every committed case."""
    return [
        SharingCase(
            "late-stream",
            "Three streams at 10 Mbit/s; the third one begins later, catches up, and goes on.",
            shared_class(10_000_000),
            [Stream(70, 12), Stream(70, 12), Stream(55, 12, begin_ns=90 * MS)],
        ),
        SharingCase(
            "window-clamp",
            "Two streams at 10 Mbit/s, then a third: windows of a part of the rate and 3 KB.",
            shared_class(10_000_000, 3_000),
            [Stream(20, 6), Stream(20, 6), Stream(12, 6, begin_ns=60 * MS)],
        ),
    ]


COLUMNS = (
    *("at_ns", "stream", "from", "flags", "sequence", "acknowledgement", "payload_bytes"),
    *("window", "leaves_ns", "leaves_window"),
)
"""The names of a segment's values."""


def sharing_vector_text(case: SharingCase) -> str:
    """The whole file: one line per segment."""
    config = case.config
    rows: list[list[object]] = [
        [
            *(one.segment.at_ns, one.stream),
            "client" if one.segment.receiver == SERVER else "server",
            *(one.segment.flags, one.segment.sequence, one.segment.acknowledgement or 0),
            *(one.segment.payload_bytes, one.window, one.leaves_ns, one.leaves_window),
        ]
        for one in Loop(SharedPacer(config), case.streams).run()
    ]
    return (
        "{\n"
        f'"name": {json.dumps(case.name)},\n'
        f'"description": {json.dumps(case.description)},\n'
        f'"class": {json.dumps(asdict(config))},\n'
        f'"columns": {json.dumps(COLUMNS)},\n'
        f'"segments": {lines(rows)}\n'
        "}\n"
    )

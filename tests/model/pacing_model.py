"""The reference scheduler, which every data plane of this project must match to the nanosecond.

One port, paced classes and unpaced traffic, as the pacing contract defines them (design
document, section 3; after PSPacer, Takano et al.). Written to be read and to be obviously
right: exact integers, lists that are searched from end to end, one decision at a time. It is
the source of the files in ``tests/vectors`` and neighbour to nothing: the P4 program, the
traffic manager in Rust and the Open vSwitch pacer in C are compared with it, none shares code
with it.

Units: ``_ns`` are whole nanoseconds, ``_q24`` are units of 2**-24 ns. Lengths are layer-2 bytes
without FCS, as a packet arrives; limits, backlogs and rates count ``length + 4`` (with FCS).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

FRACTION_BITS = 24
FCS_BYTES = 4
PREAMBLE_BYTES = 8
WIRE_OVERHEAD_BYTES = PREAMBLE_BYTES + FCS_BYTES + 12
"""Preamble and start-of-frame delimiter, FCS, inter-frame gap (IEEE 802.3)."""

MIN_GAP_FRAME_BYTES = 60
"""Shortest frame of Ethernet, without FCS (IEEE 802.3)."""

MIN_RATE_BPS = 8_000
MAX_RATE_BPS = 100_000_000_000

ECN_NOT_ECT = 0
ECN_CE = 3

DropCause = Literal["class-limit", "fifo-full"]


def time_per_byte_q24(rate_bps: int) -> int:
    """Time of one byte at ``rate_bps``, rounded to nearest (half up), in 2**-24 ns.

    Raises ``ValueError`` outside 8 kbit/s to 100 Gbit/s.
    """
    if not MIN_RATE_BPS <= rate_bps <= MAX_RATE_BPS:
        raise ValueError(f"rate {rate_bps} bit/s is not between 8 kbit/s and 100 Gbit/s")
    return ((8_000_000_000 << FRACTION_BITS) + rate_bps // 2) // rate_bps


def q24(ns: int) -> int:
    """Whole nanoseconds as fixed point."""
    return ns << FRACTION_BITS


def ceil_ns(instant_q24: int) -> int:
    """The first whole nanosecond that is not before the instant."""
    return -(-instant_q24 >> FRACTION_BITS)


def departure_at_tick_q24(
    now_ns: int, clock_q24: int, tick_ns: int, offset_ns: int = 0
) -> tuple[int, int]:
    """D of a packet that comes now and leaves at a tick, and the clock that its cost is added to.

    A class has tokens for a tick's time at each tick, and never more. A packet leaves at the first
    tick at which there are any. Ticks are ``offset_ns`` behind the multiples of ``tick_ns``.
    """
    tick_q24, offset_q24 = q24(tick_ns), q24(offset_ns)
    next_tick_q24 = -(-(q24(now_ns) - offset_q24) // tick_q24) * tick_q24 + offset_q24
    spent_until_q24 = max(clock_q24, next_tick_q24 - tick_q24)
    ticks = (spent_until_q24 - offset_q24) // tick_q24
    return (ticks + 1) * tick_q24 + offset_q24, spent_until_q24


@dataclass(frozen=True)
class PortConfig:
    """A port. ``line_rate_bps`` None: frames take no time on the line.

    ``gap_frame_max_bytes`` None: gaps are accounted for, and empty. Else PAUSE frames of up to so
    many bytes fill them (at least ``MIN_GAP_FRAME_BYTES``; only with a line rate).
    """

    line_rate_bps: int | None
    counts: Literal["layer2", "wire"]
    fifo_bytes: int
    gap_frame_max_bytes: int | None = None

    @property
    def line_time_per_byte_q24(self) -> int:
        """Time of one byte on the line; 0 without a line rate."""
        return 0 if self.line_rate_bps is None else time_per_byte_q24(self.line_rate_bps)

    @property
    def overhead_bytes(self) -> int:
        """The bytes of the line that a frame takes beside its length."""
        return FCS_BYTES if self.counts == "layer2" else WIRE_OVERHEAD_BYTES

    def line_time_q24(self, length_bytes: int) -> int:
        """The time that a frame takes on the line."""
        return (length_bytes + self.overhead_bytes) * self.line_time_per_byte_q24

    def gap_frame_bytes(self, gap_q24: int, longest_bytes: int) -> int:
        """The length of the next PAUSE frame in a gap of that time.

        The whole gap if one frame can be it, else one of the fewest frames of equal size; never
        shorter than a frame can be.
        """
        gap_bytes = -(-gap_q24 // self.line_time_per_byte_q24)
        frames = -(-gap_bytes // (longest_bytes + self.overhead_bytes))
        share_bytes = -(-gap_bytes // frames) - self.overhead_bytes
        return max(share_bytes, MIN_GAP_FRAME_BYTES)


@dataclass(frozen=True)
class ClassConfig:
    """A class. For mode ``unpaced`` the other fields mean nothing.

    In mode ``ipg``, ``rate_bps`` is the line rate at which the gap's bytes count, and
    ``gap_bytes`` the gap from the end of a packet's FCS to the preamble of the next.
    ``ecn_threshold_bytes`` 0: nothing is marked. In mode ``timer`` packets leave at multiples of
    ``tick_ns``. With ``tick_ns`` in mode ``static`` the class has a slot: ``tick_ns`` is the cycle,
    and packets leave ``offset_ns`` behind its multiples.
    """

    class_id: int
    mode: Literal["static", "ipg", "timer", "unpaced"]
    rate_bps: int = MIN_RATE_BPS
    limit_bytes: int = 0
    allowance_ns: int = 0
    gap_bytes: int = 0
    ecn_threshold_bytes: int = 0
    tick_ns: int = 0
    offset_ns: int = 0

    @property
    def time_per_byte_q24(self) -> int:
        """Time of one byte at the class's rate."""
        return time_per_byte_q24(self.rate_bps)

    def cost_q24(self, length_bytes: int) -> int:
        """The time from a packet's start to the next one's of its class."""
        taken_bytes = length_bytes + FCS_BYTES
        if self.mode == "ipg":
            taken_bytes += PREAMBLE_BYTES + self.gap_bytes
        return taken_bytes * self.time_per_byte_q24

    def departure_q24(self, now_ns: int, clock_q24: int) -> tuple[int, int]:
        """D of a packet that comes now, and the clock that its cost is added to for the next C."""
        if not self.tick_ns:
            departure_q24 = max(q24(now_ns), clock_q24)
            return departure_q24, departure_q24
        return departure_at_tick_q24(now_ns, clock_q24, self.tick_ns, self.offset_ns)


@dataclass(frozen=True)
class Packet:
    """A packet on arrival; ``ecn`` is its codepoint (RFC 3168; 0: not ECN-capable)."""

    id: int
    class_id: int
    length_bytes: int
    ecn: int = ECN_NOT_ECT


@dataclass(frozen=True)
class Departure:
    """A packet that left, with the instants that explain why then.

    ``departure_ns`` is D rounded up (the arrival, for an unpaced packet); ``eligible_q24`` is
    the instant from which the class let it go; ``start_q24`` the start of transmission; ``ecn``
    the codepoint that it leaves with.
    """

    packet: Packet
    paced: bool
    arrival_ns: int
    departure_ns: int
    eligible_q24: int
    start_q24: int
    cost_q24: int
    allowance_ns: int
    ecn: int

    @property
    def start_ns(self) -> int:
        """Start of transmission, rounded up."""
        return ceil_ns(self.start_q24)


@dataclass(frozen=True)
class GapFrame:
    """A PAUSE frame that filled a gap, or a part of one; ``length_bytes`` without FCS."""

    start_q24: int
    length_bytes: int

    @property
    def start_ns(self) -> int:
        """Start of transmission, rounded up."""
        return ceil_ns(self.start_q24)


@dataclass(frozen=True)
class Drop:
    """A packet that was dropped on arrival."""

    packet: Packet
    cause: DropCause


@dataclass(frozen=True)
class Arrive:
    """Event: a packet arrives."""

    at_ns: int
    packet: Packet


@dataclass(frozen=True)
class SetClass:
    """Event: a class gets a new configuration.

    It applies to packets that arrive afterwards; the class clock, and packets that wait, stay
    as they are.
    """

    at_ns: int
    config: ClassConfig


@dataclass(frozen=True)
class Stall:
    """Event: the machine stalls; no paced packet is released before ``until_ns``."""

    at_ns: int
    until_ns: int


Event = Arrive | SetClass | Stall


@dataclass
class _Waiting:
    """A packet that waits."""

    packet: Packet
    arrival_ns: int
    departure_ns: int
    sequence: int
    ecn: int
    cost_q24: int = 0
    allowance_ns: int = 0


@dataclass
class _Class:
    """A class's state: C, R, its queue. One port, so one R per class."""

    config: ClassConfig
    clock_q24: int = 0
    release_q24: int = 0
    queue: list[_Waiting] = field(default_factory=list)

    def backlog_bytes(self) -> int:
        return sum(waiting.packet.length_bytes + FCS_BYTES for waiting in self.queue)

    def eligible_q24(self) -> int:
        """E of the head: max(departure, R)."""
        return max(q24(self.queue[0].departure_ns), self.release_q24)


class Scheduler:
    """One port.

    Feed events in order of time, then :meth:`finish`; read :attr:`departures` and :attr:`drops`.
    """

    def __init__(self, port: PortConfig, classes: Iterable[ClassConfig]) -> None:
        self.port = port
        self.classes = {config.class_id: _Class(config) for config in classes}
        self.fifo: list[_Waiting] = []
        self.free_q24 = 0
        self.gap_wait_q24 = 0
        self.stalled_until_ns = 0
        self.sequence = 0
        self.departures: list[Departure] = []
        self.drops: list[Drop] = []
        self.gap_frames: list[GapFrame] = []

    # ----- events -----

    def handle(self, event: Event) -> None:
        """Processes one event, after the starts at the same instant."""
        self._start_all_until(event.at_ns)
        match event:
            case Arrive(at_ns, packet):
                self._arrive(at_ns, packet)
            case SetClass(_, config):
                self.classes.setdefault(config.class_id, _Class(config)).config = config
            case Stall(_, until_ns):
                self.stalled_until_ns = max(self.stalled_until_ns, until_ns)

    def finish(self) -> None:
        """Lets everything leave that waits."""
        self._start_all_until(None)

    # ----- arrival -----

    def _arrive(self, now_ns: int, packet: Packet) -> None:
        frame_bytes = packet.length_bytes + FCS_BYTES
        state = self.classes[packet.class_id]
        config = state.config
        self.sequence += 1
        if config.mode == "unpaced":
            backlog = sum(waiting.packet.length_bytes + FCS_BYTES for waiting in self.fifo)
            if backlog + frame_bytes > self.port.fifo_bytes:
                self.drops.append(Drop(packet, "fifo-full"))
            else:
                self.fifo.append(_Waiting(packet, now_ns, now_ns, self.sequence, packet.ecn))
            return
        waiting_bytes = state.backlog_bytes() + frame_bytes
        if waiting_bytes > config.limit_bytes:
            self.drops.append(Drop(packet, "class-limit"))
            return
        departure_q24, from_q24 = config.departure_q24(now_ns, state.clock_q24)
        cost_q24 = config.cost_q24(packet.length_bytes)
        ecn = packet.ecn
        if 0 < config.ecn_threshold_bytes < waiting_bytes and ecn != ECN_NOT_ECT:
            ecn = ECN_CE
        state.clock_q24 = from_q24 + cost_q24
        if self.port.gap_frame_max_bytes is not None and not any(
            other.queue for other in self.classes.values()
        ):
            # Gap frames flow while a paced packet waits: from here on, not from before.
            self.free_q24 = max(self.free_q24, q24(now_ns))
        state.queue.append(
            _Waiting(
                packet,
                now_ns,
                ceil_ns(departure_q24),
                self.sequence,
                ecn,
                cost_q24,
                config.allowance_ns + config.tick_ns,
            )
        )

    # ----- departure -----

    def _start_all_until(self, limit_ns: int | None) -> None:
        """Everything that starts up to and including ``limit_ns``."""
        while self._start_one(limit_ns):
            pass

    def _start_one(self, limit_ns: int | None) -> bool:
        """The port's next decision, if it falls within the limit."""
        heads = [state for state in self.classes.values() if state.queue]
        paced_q24 = max(min(s.eligible_q24() for s in heads), self.free_q24) if heads else None
        unpaced_q24 = max(q24(self.fifo[0].arrival_ns), self.free_q24) if self.fifo else None

        longest_bytes = self.port.gap_frame_max_bytes
        if (
            longest_bytes is not None
            and paced_q24 is not None
            and unpaced_q24 is None
            and self.free_q24 < paced_q24
        ):
            gap_start_q24 = self.free_q24
            if ceil_ns(gap_start_q24) < self.stalled_until_ns:
                gap_start_q24 = q24(self.stalled_until_ns)
            if limit_ns is not None and ceil_ns(gap_start_q24) > limit_ns:
                return False
            if gap_start_q24 < paced_q24:
                self._fill_gap(gap_start_q24, paced_q24, longest_bytes)
                return True

        # Strict priority: where both could start at the same instant, the paced one does.
        if paced_q24 is not None and (unpaced_q24 is None or paced_q24 <= unpaced_q24):
            start_q24 = paced_q24
            if ceil_ns(start_q24) < self.stalled_until_ns:
                start_q24 = q24(self.stalled_until_ns)
            if limit_ns is not None and ceil_ns(start_q24) > limit_ns:
                return False
            self._start_paced(start_q24, heads)
            return True
        if unpaced_q24 is not None:
            if limit_ns is not None and ceil_ns(unpaced_q24) > limit_ns:
                return False
            self._start_unpaced(unpaced_q24)
            return True
        return False

    def _start_paced(self, start_q24: int, heads: list[_Class]) -> None:
        state = min(
            (s for s in heads if s.eligible_q24() <= start_q24),
            key=lambda s: (s.queue[0].departure_ns, s.queue[0].sequence),
        )
        eligible_q24 = state.eligible_q24()
        waiting = state.queue.pop(0)
        # Stall rule. A time before 0 counts as 0; as R >= 0, max() sees to that.
        # Waiting for a gap frame is no stall.
        waited_for_gap_q24 = self._waited_for_gap(start_q24, eligible_q24)
        punctual_q24 = start_q24 - waited_for_gap_q24 - q24(waiting.allowance_ns)
        state.release_q24 = max(state.release_q24, punctual_q24) + waiting.cost_q24
        self._leave(waiting, True, eligible_q24, start_q24)

    def _start_unpaced(self, start_q24: int) -> None:
        waiting = self.fifo.pop(0)
        self._waited_for_gap(start_q24, q24(waiting.arrival_ns))
        self._leave(waiting, False, q24(waiting.arrival_ns), start_q24)

    def _fill_gap(self, start_q24: int, until_q24: int, longest_bytes: int) -> None:
        length_bytes = self.port.gap_frame_bytes(until_q24 - start_q24, longest_bytes)
        self.gap_wait_q24 = self.port.line_time_q24(length_bytes)
        self.free_q24 = start_q24 + self.gap_wait_q24
        self.gap_frames.append(GapFrame(start_q24, length_bytes))

    def _waited_for_gap(self, start_q24: int, eligible_q24: int) -> int:
        """The delay of the packet by the last gap frame.

        It is at most the frame's time, and at most the wait of this packet and of each packet
        between the frame and it.
        """
        waited_q24 = start_q24 - eligible_q24 if start_q24 == self.free_q24 else 0
        self.gap_wait_q24 = min(self.gap_wait_q24, waited_q24)
        return self.gap_wait_q24

    def _leave(self, waiting: _Waiting, paced: bool, eligible_q24: int, start_q24: int) -> None:
        self.free_q24 = start_q24 + self.port.line_time_q24(waiting.packet.length_bytes)
        self.departures.append(
            Departure(
                packet=waiting.packet,
                paced=paced,
                arrival_ns=waiting.arrival_ns,
                departure_ns=waiting.departure_ns,
                eligible_q24=eligible_q24,
                start_q24=start_q24,
                cost_q24=waiting.cost_q24,
                allowance_ns=waiting.allowance_ns,
                ecn=waiting.ecn,
            )
        )


def run(port: PortConfig, classes: Iterable[ClassConfig], events: Iterable[Event]) -> Scheduler:
    """A whole case: all events, then everything that waits."""
    scheduler = Scheduler(port, classes)
    for event in events:
        scheduler.handle(event)
    scheduler.finish()
    return scheduler

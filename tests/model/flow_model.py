"""The reference of modes ``pspd``, ``dynamic`` and the like: TCP flows and their pace.

As with :mod:`pacing_model`, written to be obviously right: a dictionary of flows, one segment at
a time. A flow is one direction of a connection. Sequence arithmetic is modulo 2**32 (RFC 9293
section 3.4); times are nanoseconds, ``_q24`` are units of 2**-24 ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from pacing_model import FCS_BYTES, FRACTION_BITS, ceil_ns, departure_at_tick_q24, q24

INITIAL_WINDOW_BYTES = 14_600
SEGMENT_BYTES = 1_460
RTT_NS_MAX = (1 << 34) - 1
RTT_GROWTH = 4
WINDOW_BYTES_MAX = (1 << 30) - 1
STRAY_AHEAD_BYTES = 65_536
STRAY_BEHIND_BYTES = 1 << 30
FLOW_LIFE_NS = 60_000_000_000
FLOW_OPENING_NS = 10_000_000_000
FLOW_CLOSED_NS = 2_000_000_000

CLUSTER_TICK_NS = 1_000_000
CLUSTER_PACKETS = 80

TRAIN_LENGTH_MIN = 5_840
TRAIN_BYTES_MIN = 2_920
TRAIN_NS_MAX = (1 << 31) - 1
PATH_QUEUE_BYTES = 12_144
PATH_QUEUE_NS_MIN = 1_000_000
PATH_LATE_ROUNDS = 32
PATH_STEP_Q16 = 16
PATH_ROUNDS_BY_STEP = 32
PATH_ROUNDS_MAX = 40
PATH_GAIN_Q16_MAX = 61_440

Address = tuple[str, int]
"""Host and port of one end; a host may be of a VLAN: "10.0.0.1%7"."""

Direction = tuple[Address, Address]
"""Sender and receiver."""


def reciprocal_q59(mantissa: int) -> int:
    """2**59 / mantissa for 2**31 <= mantissa < 2**32, as the program comes by it.

    A first value from a table of 32, and a step of Newton's method: at most 0.024 % too small.
    """
    middle = (2 * (mantissa >> 26) + 1) << 25
    first = ((1 << 60) + middle) // (2 * middle)
    rest = (1 << 60) - mantissa * first
    return (first * (rest >> 27)) >> 32


def divided_q24(span_ns: int, size_bytes: int) -> int:
    """The time of a byte, where 1 to 2**32 - 1 bytes take so long."""
    shift = 32 - size_bytes.bit_length()
    return (span_ns * reciprocal_q59(size_bytes << shift)) >> (35 - shift)


def time_per_byte_q24(rtt_ns: int, window_bytes: int, inverse_headroom_q16: int) -> int:
    """RTT / (window * headroom), for a window of 1 to 2**32 - 1 bytes."""
    return divided_q24((rtt_ns * inverse_headroom_q16) >> 16, window_bytes)


def window_limit_bytes(base_rtt_ns: int, bytes_per_ns_q24: int, margin_bytes: int) -> int:
    """Most that a receiver's window may be: rate * RTT and a margin, two segments at least."""
    return max(2 * SEGMENT_BYTES, (base_rtt_ns * bytes_per_ns_q24 >> FRACTION_BITS) + margin_bytes)


def clamped(window: int, scale: int, limit_bytes: int) -> int:
    """The window field of an acknowledgement: lowered, never raised, rounded up."""
    return min(window, -(-limit_bytes >> scale))


def passed(sequence: int, mark: int) -> bool:
    """Whether a sequence number is at a mark or after it."""
    return (sequence - mark) % (1 << 32) < 1 << 31


@dataclass(frozen=True)
class Segment:
    """A TCP segment that comes by. ``length_bytes``: of its frame, layer 2 without FCS."""

    at_ns: int
    sender: Address
    receiver: Address
    sequence: int
    payload_bytes: int = 0
    acknowledgement: int | None = None
    flags: str = ""
    length_bytes: int = 60

    @property
    def end(self) -> int:
        """One past the last sequence number that it takes."""
        taken = self.payload_bytes + ("S" in self.flags) + ("F" in self.flags)
        return (self.sequence + taken) % (1 << 32)


@dataclass
class Path:
    """The measured rate of a flow's path, and its growth since then."""

    slowest_q24: int
    gain_q16: int = 0
    rounds: int = 0
    below: bool = True
    """Whether the window has grown as in slow start until now."""
    base_ns: int = 0
    """The path's round-trip time; 0: not known yet."""
    late_ns: list[int] = field(default_factory=list)
    """The last round trips, where something waited in each."""

    @property
    def fastest_q24(self) -> int:
        """The least time of a byte."""
        return self.slowest_q24 * (65_536 - self.gain_q16) >> 16

    def round_trip(self, path_ns: int, base_rtt_ns: int, *, held_to_it: bool) -> bool:
        """Take note of a round trip, without the time in the switch, and the flow's shortest.

        ``held_to_it``: whether the packet that it was taken from was sent at the path's rate.
        Returns whether the rate may still be the path's: at most sixteen times the measured one.
        """
        self.base_ns = min(self.base_ns or base_rtt_ns, path_ns)
        waited_ns = path_ns - self.base_ns
        eight_packets = waited_ns << FRACTION_BITS > self.fastest_q24 * PATH_QUEUE_BYTES
        if eight_packets and waited_ns > PATH_QUEUE_NS_MIN:
            self.late_ns.append(path_ns)
            if len(self.late_ns) == PATH_LATE_ROUNDS:
                self.base_ns = min(self.late_ns)
                self.late_ns.clear()
            self.gain_q16 //= 2
            self.rounds = 0
            return True
        self.late_ns.clear()
        if held_to_it:
            step_q16 = PATH_STEP_Q16 << max(0, self.rounds - PATH_ROUNDS_BY_STEP)
            self.gain_q16 += step_q16
            self.rounds = min(self.rounds + 1, PATH_ROUNDS_MAX)
        return self.gain_q16 <= PATH_GAIN_Q16_MAX


@dataclass
class FirstFlight:
    """The segments that a flow begins with, and their acknowledgements."""

    first: int
    until: int
    sent_ns: list[int] = field(default_factory=list)
    largest: tuple[int, int] = (0, 0)
    """Payload and frame of the largest segment."""
    class_q24: int = 0
    """The class's time of a byte."""
    answered: bool = False
    begun: tuple[int, int] | None = None
    """First acknowledgement of more than a segment, and its time."""

    def takes(self, segment: Segment, class_q24: int) -> bool:
        """Whether a segment belongs to it; it does no more once some of it is acknowledged."""
        length_bytes = (segment.end - self.first) % (1 << 32)
        if self.answered or length_bytes > INITIAL_WINDOW_BYTES:
            return False
        self.until = segment.end
        self.sent_ns.append(segment.at_ns)
        self.class_q24 = class_q24
        if segment.payload_bytes > self.largest[0]:
            self.largest = (segment.payload_bytes, segment.length_bytes + FCS_BYTES)
        return True

    def answer(self, number: int, at_ns: int) -> tuple[bool, Path | None]:
        """Takes a new acknowledgement; returns whether it is the last one needed, and the path."""
        if number == self.first or not passed(number, self.first):
            return False, None
        length_bytes = (self.until - self.first) % (1 << 32)
        acknowledged_bytes = (number - self.first) % (1 << 32)
        of_most = acknowledged_bytes >= length_bytes - (length_bytes >> 2)
        if self.begun is None:
            self.answered = True
            if acknowledged_bytes > SEGMENT_BYTES:
                self.begun = (number, at_ns)
            return of_most or length_bytes < TRAIN_LENGTH_MIN, None
        if not of_most:
            return False, None
        if acknowledged_bytes > length_bytes:
            return True, None
        return True, self._measured((number - self.begun[0]) % (1 << 32), at_ns - self.begun[1])

    def _measured(self, size_bytes: int, span_ns: int) -> Path | None:
        """The path's time per byte, from bytes and the time that they took, if that counts."""
        pause_ns = max((b - a for a, b in pairwise(self.sent_ns)), default=0)
        if (
            size_bytes < TRAIN_BYTES_MIN
            or span_ns > TRAIN_NS_MAX
            or span_ns * 3 <= (self.sent_ns[-1] - self.sent_ns[0]) * 4
            or span_ns <= pause_ns * 8
        ):
            return None
        payload_bytes, frame_bytes = self.largest
        found_q24 = divided_q24(span_ns * payload_bytes >> 10, size_bytes * frame_bytes >> 10)
        if found_q24 * 3 <= self.class_q24 * 4:
            return None
        return Path(found_q24 + (found_q24 >> 8))


@dataclass
class Flow:
    """The state of a flow, and its clock."""

    next: int
    acknowledged: int
    expires_ns: int = 0
    timed: tuple[int, int] | None = None
    timed_wait_ns: int = 0
    timed_at_path_rate: bool = False
    first_flight: FirstFlight | None = None
    path: Path | None = None
    rtt_ns: int = 0
    base_rtt_ns: int = 0
    peak_bytes: int = 0
    last_peak_bytes: int = 0
    stray_end: int = 0
    losses: int = 0
    released: bool = False
    slot: int = 0
    """Its slot in the cycle, 1 up; 0: it has sent no data yet."""

    @property
    def in_flight_bytes(self) -> int:
        """Highest sequence number sent less highest acknowledged."""
        return (self.next - self.acknowledged) % (1 << 32)

    @property
    def window_bytes(self) -> int:
        """Most in flight in this round trip, or before and an eighth less for each since."""
        return max(self.peak_bytes, self.last_peak_bytes)

    def strays(self, sequence: int) -> bool:
        """Whether a segment that begins so is far from all that was sent before."""
        ahead_bytes = (sequence - self.next) % (1 << 32)
        if ahead_bytes >= (1 << 32) - STRAY_BEHIND_BYTES:
            return False
        return ahead_bytes - STRAY_AHEAD_BYTES > 2 * self.window_bytes + 1


@dataclass(frozen=True)
class FlowClass:
    """A class of mode ``dynamic``, or with ``release_below_ns`` of mode ``slow-start``.

    With ``pspd`` of mode ``pspd``, or with ``release_below_ns`` of mode ``clustered``; then the
    first two fields stay at their defaults. With ``slots`` each flow has one of so many slots of
    ``slot_ns``, in turn.
    """

    inverse_headroom_q16: int = 1 << 16
    fastest_time_per_byte_q24: int = 0
    release_below_ns: int = 0
    pspd: bool = False
    slots: int = 0
    slot_ns: int = 0

    @property
    def clustered(self) -> bool:
        """Whether it is of mode ``clustered``."""
        return self.pspd and self.release_below_ns != 0

    @property
    def cycle_ns(self) -> int:
        """The time after which the slots come again."""
        return self.slots * self.slot_ns


@dataclass
class FlowPacer:
    """The flows of one class, which space their senders' segments."""

    config: FlowClass
    flows: dict[Direction, Flow] = field(default_factory=dict)
    clocks_q24: dict[Direction | None, int] = field(default_factory=dict)
    given_slots: int = 0

    def acknowledge(self, segment: Segment) -> None:
        """Takes the acknowledgement of a segment of the other direction."""
        flow = self.flows.get((segment.receiver, segment.sender))
        number = segment.acknowledgement
        if flow is None or number is None or flow.expires_ns <= segment.at_ns:
            return
        if number == flow.acknowledged or not passed(number, flow.acknowledged):
            return
        if not passed(flow.next, number):
            return
        flow.acknowledged = number
        if flow.first_flight is not None:
            over, path = flow.first_flight.answer(number, segment.at_ns)
            flow.path = path or flow.path
            if over:
                flow.first_flight = None
        if flow.path is not None and "E" in segment.flags:
            flow.path.below = False
        if flow.timed is not None and passed(number, flow.timed[0]):
            self._round_trip(flow, segment.at_ns - flow.timed[1])
            flow.timed = None

    def _round_trip(self, flow: Flow, sample_ns: int) -> None:
        """A round trip is over, and took so long."""
        if sample_ns <= RTT_NS_MAX:
            counted_ns = min(sample_ns, RTT_GROWTH * flow.rtt_ns or sample_ns)
            flow.rtt_ns = (flow.rtt_ns + counted_ns) // 2 if flow.rtt_ns else sample_ns
            path_ns = max(0, sample_ns - flow.timed_wait_ns)
            flow.base_rtt_ns = min(flow.base_rtt_ns or path_ns, path_ns)
            if flow.path is not None and not flow.path.round_trip(
                path_ns, flow.base_rtt_ns, held_to_it=flow.timed_at_path_rate
            ):
                flow.path = None
        last_bytes = flow.last_peak_bytes
        if flow.path is not None and max(0, flow.peak_bytes - last_bytes) < last_bytes >> 2:
            flow.path.below = False
        flow.last_peak_bytes = max(flow.peak_bytes, last_bytes - (last_bytes >> 3))
        flow.peak_bytes = flow.in_flight_bytes

    def send(self, segment: Segment) -> int:
        """A segment of the class: its departure, in ns.

        One of more payload than its frame has bytes is followed by none, and has the class's rate.
        """
        if segment.payload_bytes > segment.length_bytes:
            return self._departure_ns(None, segment.at_ns, self._at_most_q24(segment))
        key = (segment.sender, segment.receiver)
        flow, in_first_flight = self.follow(key, segment)
        if segment.payload_bytes and self.config.slots and not flow.slot:
            flow.slot = self.given_slots % self.config.slots + 1
            self.given_slots += 1
        cost_q24, at_path_rate = self._cost_q24(flow, segment, in_first_flight=in_first_flight)
        departure_ns = self._departure_ns(key, segment.at_ns, cost_q24)
        if flow.timed == (segment.end, segment.at_ns):
            flow.timed_wait_ns = departure_ns - segment.at_ns
            flow.timed_at_path_rate = at_path_rate
        return departure_ns

    def _departure_ns(self, key: Direction | None, at_ns: int, cost_q24: int | None) -> int:
        """None: it is not spaced, and waits only where one before it does."""
        if cost_q24 is None and self._last_ns.get(key, 0) <= at_ns:
            return at_ns
        clock_q24 = self.clocks_q24.get(key, 0)
        tick_ns = CLUSTER_TICK_NS if self.config.clustered else self.config.cycle_ns
        if tick_ns and key is not None:
            # A packet that takes no time leaves at the tick of the packet before it.
            from_ns = at_ns if cost_q24 else 0
            offset_ns = self.flows[key].slot * self.config.slot_ns
            departure_q24, from_q24 = departure_at_tick_q24(from_ns, clock_q24, tick_ns, offset_ns)
            departure_q24 = max(departure_q24, q24(at_ns))
        else:
            departure_q24 = from_q24 = max(q24(at_ns), clock_q24)
        self.clocks_q24[key] = from_q24 + (cost_q24 or 0)
        self._last_ns[key] = ceil_ns(departure_q24)
        return self._last_ns[key]

    _last_ns: dict[Direction | None, int] = field(default_factory=dict)
    """Departure of the last packet."""

    def follow(self, key: Direction, segment: Segment) -> tuple[Flow, bool]:
        """The flow, and whether the segment belongs to its first flight."""
        in_first_flight = False
        flow = self.flows.get(key)
        taken = (segment.end - segment.sequence) % (1 << 32)
        begins = flow is None or flow.expires_ns <= segment.at_ns
        strays = False
        if flow is not None and not begins:
            if "S" in segment.flags and segment.end != flow.next:
                begins = True
            elif taken and flow.strays(segment.sequence):
                strays, begins = True, segment.sequence == flow.stray_end
                flow.stray_end = segment.end
        if flow is None or begins:
            flow = self.flows[key] = Flow(segment.end, segment.sequence, peak_bytes=taken)
            flow.stray_end = segment.end
            flow.timed = (segment.end, segment.at_ns) if taken else None
            if "S" in segment.flags and not self.config.pspd:
                flow.first_flight = FirstFlight(segment.end, segment.end)
        elif taken and not strays:
            in_first_flight = self._advance(flow, segment)
        flow.peak_bytes = max(flow.peak_bytes, flow.in_flight_bytes)
        if set("FR") & set(segment.flags):
            flow.expires_ns = segment.at_ns + FLOW_CLOSED_NS
        elif "S" in segment.flags:
            flow.expires_ns = segment.at_ns + FLOW_OPENING_NS
        elif begins or taken or flow.expires_ns - segment.at_ns > FLOW_CLOSED_NS:
            flow.expires_ns = segment.at_ns + FLOW_LIFE_NS
        return flow, in_first_flight

    def _advance(self, flow: Flow, segment: Segment) -> bool:
        """Takes a known flow's next data; whether the segment belongs to its first flight."""
        if not passed(segment.sequence, flow.next):
            flow.losses += 1
            flow.timed = None
            if flow.path is not None:
                flow.path.below = False
            if segment.payload_bytes:
                flow.first_flight = None
        elif flow.timed is None:
            flow.timed = (segment.end, segment.at_ns)
        in_first_flight = False
        if flow.first_flight is not None and segment.payload_bytes:
            takes = flow.first_flight.takes(segment, self.config.fastest_time_per_byte_q24)
            in_first_flight = takes and flow.rtt_ns != 0
        if passed(segment.end, flow.next):
            flow.next = segment.end
        return in_first_flight

    def _at_most_q24(self, segment: Segment) -> int | None:
        """The time of a frame at the class's rate, if it has one."""
        time_q24 = self.config.fastest_time_per_byte_q24
        return time_q24 * (segment.length_bytes + FCS_BYTES) if time_q24 else None

    def _cost_q24(
        self, flow: Flow, segment: Segment, *, in_first_flight: bool
    ) -> tuple[int | None, bool]:
        """The time that this segment takes, and whether it takes that time on the path, too."""
        config = self.config
        at_most_q24 = self._at_most_q24(segment)
        # With this much in flight, the acknowledgements pass elsewhere.
        rtt_ns = 0 if flow.in_flight_bytes > WINDOW_BYTES_MAX else flow.rtt_ns
        window_min_bytes = INITIAL_WINDOW_BYTES
        if config.pspd and flow.losses:
            window_min_bytes = segment.payload_bytes
        window_bytes = max(flow.window_bytes, window_min_bytes)
        dense = rtt_ns * SEGMENT_BYTES <= config.release_below_ns * window_bytes
        if config.release_below_ns and (flow.losses or (rtt_ns and dense)):
            flow.released = True
        if flow.released:
            return None, False
        if config.pspd:
            return self._cost_of_window_q24(segment, rtt_ns, window_bytes), False
        if rtt_ns == 0 or in_first_flight:
            return at_most_q24, False
        if flow.path is not None and flow.path.below and window_bytes < 1 << 31:
            window_bytes *= 2
        own_q24 = time_per_byte_q24(rtt_ns, window_bytes, config.inverse_headroom_q16)
        most_q24 = max(segment.payload_bytes * own_q24, at_most_q24 or 0)
        path_q24 = 0
        if flow.path is not None:
            path_q24 = (segment.length_bytes + FCS_BYTES) * flow.path.fastest_q24
        return max(most_q24, path_q24), path_q24 > most_q24

    def _cost_of_window_q24(self, segment: Segment, rtt_ns: int, window_bytes: int) -> int | None:
        """Modes ``pspd`` and ``clustered``: its payload's share of the window, times the RTT."""
        if rtt_ns == 0 or (self.config.clustered and segment.payload_bytes == 0):
            return None
        cost_q24 = segment.payload_bytes * divided_q24(rtt_ns, window_bytes)
        least_q24 = q24(CLUSTER_TICK_NS) // CLUSTER_PACKETS if self.config.clustered else 0
        return max(cost_q24, least_q24)

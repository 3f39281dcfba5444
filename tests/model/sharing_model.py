"""The reference of mode ``shared``: one rate, divided among the TCP flows that are active.

As with :mod:`flow_model`, written to be obviously right: for each packet all flows of the class are
looked at and counted anew. The program keeps counts instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flow_model import (
    FLOW_CLOSED_NS,
    WINDOW_BYTES_MAX,
    Direction,
    Flow,
    FlowClass,
    FlowPacer,
    Segment,
    divided_q24,
    window_limit_bytes,
)
from pacing_model import FCS_BYTES, FRACTION_BITS, ceil_ns, q24

EPOCH_NS = 1 << 30
WAIT_NS_MAX = EPOCH_NS
SLACK = 256
SLACK_BYTES = 5_840
STEP_BYTES_MAX = 1 << 30
TIME_PER_BYTE_Q24_MAX = 1 << 48
NEVER = -2
"""An epoch that is not followed by one of time 0 or more."""


@dataclass(frozen=True)
class SharedClass:
    """A class of mode ``shared``: the time of a byte at its rate, and its window clamp."""

    time_per_byte_q24: int
    bytes_per_ns_q24: int
    """Payload."""
    clamps_windows: int = 0
    window_margin_bytes: int = 0


@dataclass
class Part:
    """A flow's part of the class."""

    clock_q24: int = 0
    active_in: int = NEVER
    progress_bytes: int = 0
    acknowledged: int = 0
    """The number that progress is counted up to."""
    extra_ns: int | None = None
    """While it counts as one that catches up: from when on it has twice the rate, or has had it."""
    caught_up: bool = False
    """It still counts as one, but has no more than the others from then on."""

    def active(self, epoch: int) -> bool:
        """Whether it was active in this epoch or the last one."""
        return self.active_in >= epoch - 1


@dataclass
class SharedPacer:
    """The packets of one class."""

    config: SharedClass
    follower: FlowPacer = field(default_factory=lambda: FlowPacer(FlowClass()))
    parts: dict[Direction, Part] = field(default_factory=dict)
    others: Part = field(default_factory=Part)
    scheduled_ns: int = 0
    """The end of all departures so far."""
    window_limits: dict[Direction, int] = field(default_factory=dict)
    """The largest receive window of each flow; 0: any."""

    def acknowledge(self, segment: Segment) -> None:
        """A segment of the other direction."""
        self.follower.acknowledge(segment)

    def send(self, segment: Segment) -> int | None:
        """A segment of the class: its departure in ns, or None if it is dropped.

        One of more payload than its frame has bytes is followed by none.
        """
        now_ns, key = segment.at_ns, (segment.sender, segment.receiver)
        if segment.payload_bytes > segment.length_bytes:
            return self.send_other(now_ns, segment.length_bytes)
        before = self.follower.flows.get(key)
        flow, _ = self.follower.follow(key, segment)
        begins = flow is not before
        part = self.parts.setdefault(key, Part())
        epoch = now_ns // EPOCH_NS
        opens = "S" in segment.flags
        if not (part.active(epoch) or opens or segment.payload_bytes):
            self._limit_window(key, self._window_part_q24(epoch), catches_up=False)
            return self._depart(self.others, now_ns, segment.length_bytes, 0)

        joins = not part.active(epoch)
        waits = part.clock_q24 > q24(now_ns)
        from_ns = self.scheduled_ns
        if joins and not opens:
            part.clock_q24 = max(part.clock_q24, q24(from_ns))
        due_ns = max(now_ns, ceil_ns(part.clock_q24))
        if begins:
            part.progress_bytes, part.acknowledged = 0, flow.acknowledged
        step_bytes = (flow.acknowledged - part.acknowledged) % (1 << 32)
        part.progress_bytes += step_bytes if step_bytes < STEP_BYTES_MAX else 0
        part.acknowledged = flow.acknowledged
        if joins:
            part.extra_ns = None
        part.active_in = epoch
        catches_up = False
        window_part_q24 = self._window_part_q24(epoch)
        behind = not joins and waits and self._behind(part, flow, epoch, due_ns - now_ns)
        if part.extra_ns is not None:
            part.caught_up = part.caught_up or not behind
        elif behind:
            part.extra_ns, part.caught_up = max(self.scheduled_ns, due_ns), False
        if part.extra_ns is not None and not part.caught_up:
            catches_up = due_ns >= part.extra_ns
        elif part.extra_ns is not None and not now_ns < part.extra_ns <= due_ns:
            part.extra_ns = None
        parts = self._parts(epoch)
        self._limit_window(key, window_part_q24, catches_up=catches_up)
        departure_ns = self._depart(part, now_ns, segment.length_bytes, parts << 1 - catches_up)
        if departure_ns is None:
            return None
        if joins and ceil_ns(part.clock_q24) < from_ns:
            part.clock_q24 = q24(from_ns)
        if catches_up:
            part.extra_ns = ceil_ns(part.clock_q24)
        if flow.timed == (segment.end, now_ns):
            flow.timed_wait_ns = departure_ns - now_ns
        closed = flow.expires_ns - now_ns <= FLOW_CLOSED_NS
        if closed and segment.payload_bytes == 0 and not waits:
            part.active_in = NEVER
        return departure_ns

    def send_other(self, now_ns: int, length_bytes: int) -> int | None:
        """A packet of no flow that is followed."""
        epoch = now_ns // EPOCH_NS
        if not self.others.active(epoch):
            self.others.clock_q24 = max(self.others.clock_q24, q24(self.scheduled_ns))
        self.others.active_in = epoch
        return self._depart(self.others, now_ns, length_bytes, self._parts(epoch) << 1)

    def _active(self, epoch: int) -> list[Part]:
        return [part for part in self.parts.values() if part.active(epoch)]

    def _behind(self, part: Part, flow: Flow, epoch: int, waits_ns: int) -> bool:
        """Whether it will be behind the mean, by more than the slack, once its packet has arrived.

        One that catches up already is behind until it reaches the mean.
        """
        if flow.in_flight_bytes > WINDOW_BYTES_MAX:
            return False
        active = self._active(epoch)
        slack_bytes = part.progress_bytes // SLACK + SLACK_BYTES if part.extra_ns is None else 0
        until_ns = min(waits_ns, WAIT_NS_MAX) + flow.base_rtt_ns
        others_bytes = until_ns * self._part_q24(epoch) >> FRACTION_BITS
        ahead_bytes = max(0, flow.in_flight_bytes - others_bytes)
        all_bytes = sum(one.progress_bytes for one in active)
        return (part.progress_bytes + ahead_bytes + slack_bytes) * len(active) < all_bytes

    def _parts(self, epoch: int) -> int:
        """Into how many parts the rate is divided."""
        active = self._active(epoch)
        extras = sum(one.extra_ns is not None for one in active)
        return len(active) + extras + self.others.active(epoch)

    def _part_q24(self, epoch: int) -> int:
        """One part of the rate, in bytes of payload a ns."""
        parts = max(1, self._parts(epoch))
        part_q24 = divided_q24(self.config.bytes_per_ns_q24, parts) >> FRACTION_BITS
        return max(1, part_q24)

    def _window_part_q24(self, epoch: int) -> int:
        """The same for a window: flows that catch up count once, as the others do."""
        parts = max(1, len(self._active(epoch)) + self.others.active(epoch))
        return max(1, divided_q24(self.config.bytes_per_ns_q24, parts) >> FRACTION_BITS)

    def _depart(self, part: Part, now_ns: int, length_bytes: int, half_parts: int) -> int | None:
        """The departure of a packet that takes a number of halves of its time at the whole rate."""
        start_q24 = max(q24(now_ns), part.clock_q24)
        if ceil_ns(start_q24) - now_ns > WAIT_NS_MAX:
            return None
        time_q24 = min(self.config.time_per_byte_q24 * half_parts >> 1, TIME_PER_BYTE_Q24_MAX)
        part.clock_q24 = start_q24 + time_q24 * (length_bytes + FCS_BYTES)
        self.scheduled_ns = max(self.scheduled_ns, ceil_ns(part.clock_q24))
        return ceil_ns(start_q24)

    def _limit_window(self, key: Direction, part_q24: int, *, catches_up: bool) -> None:
        base_rtt_ns = self.follower.flows[key].base_rtt_ns
        limit_bytes = 0
        if self.config.clamps_windows and base_rtt_ns:
            limit_bytes = window_limit_bytes(
                base_rtt_ns, part_q24 << catches_up, self.config.window_margin_bytes
            )
        self.window_limits[key] = limit_bytes

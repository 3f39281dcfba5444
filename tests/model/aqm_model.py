"""Reference models of active queue management, each after the pseudo-code of its paper or RFC.

A model is asked for each packet that has room in its queue, and takes the packet that leaves out of
the queue. Units are those of ``pacing_model``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isqrt
from typing import Literal, Protocol

from make_vectors import Random

Verdict = Literal["keep", "mark", "drop"]
LARGEST_BYTES = 1518


@dataclass
class Item:
    """A packet as a queue sees it."""

    number: int
    at_ns: int
    frame_bytes: int
    ecn: int = 0
    """Its ECN field: 1 ECT(1), 2 ECT(0), 3 CE."""
    colour: int = 0
    """0 green, 1 yellow, 2 red."""
    flow: int = 0
    """A hash of its flow."""
    marked: bool = False

    @property
    def ecn_capable(self) -> bool:
        """Whether it can be marked."""
        return self.ecn != 0


class Aqm(Protocol):
    """An algorithm with its state."""

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """A packet arrives that has room in the queue."""

    def put(self, item: Item, queue: list[Item], drop: Callable[[Item], None]) -> None:
        """Puts a packet that is kept into the queue; others may be dropped for it."""

    def first(self, queue: list[Item]) -> Item:
        """The packet by which a scheduler judges the queue."""

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """Takes out the packet that leaves; those before it are dropped."""


def size(queue: list[Item]) -> int:
    """Bytes of a queue."""
    return sum(item.frame_bytes for item in queue)


class Fifo:
    """A queue in order of arrival."""

    def put(self, item: Item, queue: list[Item], drop: Callable[[Item], None]) -> None:
        """At the end."""
        queue.append(item)

    def first(self, queue: list[Item]) -> Item:
        """The head."""
        return queue[0]


class DropTail(Fifo):
    """No active queue management."""

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """There is room."""
        return "keep"

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """The head."""
        return queue.pop(0)


@dataclass(frozen=True)
class CodelConfig:
    """TARGET and INTERVAL; ``ecn``: packets that can be marked are."""

    target_ns: int
    interval_ns: int
    ecn: bool


@dataclass
class Codel(Fifo):
    """RFC 8289, section 5, with marks as in Linux's ``codel_impl.h``: no RFC has them."""

    config: CodelConfig
    first_above_time: int = 0
    drop_next: int = 0
    count: int = 0
    lastcount: int = 0
    dropping: bool = False
    other_bytes: int = 0
    """What waits in other queues of the link: section 4.4."""

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """CoDel decides at the head."""
        return "keep"

    def control_law(self, t: int) -> int:
        """T + INTERVAL / sqrt(count)."""
        return t + isqrt(self.config.interval_ns * self.config.interval_ns // self.count)

    def dodequeue(self, queue: list[Item], now: int) -> tuple[Item | None, bool]:
        """The head, and whether it may be dropped."""
        if not queue:
            self.first_above_time = 0
            return None, False
        item = queue.pop(0)
        ok_to_drop = False
        waiting_bytes = size(queue) + self.other_bytes
        if now - item.at_ns < self.config.target_ns or waiting_bytes <= LARGEST_BYTES:
            self.first_above_time = 0
        elif self.first_above_time == 0:
            self.first_above_time = now + self.config.interval_ns
        elif now >= self.first_above_time:
            ok_to_drop = True
        return item, ok_to_drop

    def mark(self, item: Item | None) -> bool:
        """Marks a packet, if that is possible."""
        if item is None or not self.config.ecn or not item.ecn_capable:
            return False
        item.marked = True
        return True

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """As the RFC does."""
        now = now_ns
        item, ok_to_drop = self.dodequeue(queue, now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                self.count += 1
                if self.mark(item):
                    self.drop_next = self.control_law(self.drop_next)
                    return item
                assert item is not None
                drop(item)
                item, ok_to_drop = self.dodequeue(queue, now)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next)
        elif ok_to_drop:
            if not self.mark(item):
                assert item is not None
                drop(item)
                item, _ = self.dodequeue(queue, now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.config.interval_ns:
                self.count = delta
            self.drop_next = self.control_law(now)
            self.lastcount = self.count
        return item


@dataclass(frozen=True)
class FqCodelConfig:
    """CoDel of each flow, the number of flows' queues, the quantum and the limit of all."""

    codel: CodelConfig
    flows: int
    quantum_bytes: int
    limit_packets: int


@dataclass
class FqCodel:
    """RFC 8290, section 4: queues by hash, in lists of new and old ones, with CoDel in each.

    The depths are those of the egress queue, beside the limit of the RFC. None: no limit.
    """

    config: FqCodelConfig
    depth_bytes: int
    depth_packets: int | None
    queues: dict[int, list[Item]] = field(default_factory=dict)
    codels: dict[int, Codel] = field(default_factory=dict)
    credits: dict[int, int] = field(default_factory=dict)
    new: list[int] = field(default_factory=list)
    old: list[int] = field(default_factory=list)

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """CoDel decides at the head."""
        return "keep"

    def put(self, item: Item, queue: list[Item], drop: Callable[[Item], None]) -> None:
        """Section 4.1: at the end of the flow's queue, which may become a new one."""
        queue.append(item)
        number = item.flow % self.config.flows
        self.queues.setdefault(number, []).append(item)
        self.codels.setdefault(number, Codel(self.config.codel))
        if number not in self.new and number not in self.old:
            self.new.append(number)
            self.credits[number] = self.config.quantum_bytes
        while self.is_full(queue):
            longest = max(sorted(self.queues), key=lambda other: size(self.queues[other]))
            half = (len(self.queues[longest]) + 1) // 2
            for _ in range(min(half, 64)):
                dropped = self.queues[longest].pop(0)
                queue.remove(dropped)
                drop(dropped)

    def is_full(self, queue: list[Item]) -> bool:
        """Too much waits in all flows together. One packet always has room."""
        limits = (self.config.limit_packets, self.depth_packets)
        most = min(limit for limit in limits if limit is not None)
        return len(queue) > 1 and (len(queue) > most or size(queue) > self.depth_bytes)

    def first(self, queue: list[Item]) -> Item:
        """The head of the first queue in the lists that has one."""
        return next(self.queues[number][0] for number in self.new + self.old if self.queues[number])

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """Section 4.2."""

        def gone(item: Item) -> None:
            queue.remove(item)
            drop(item)

        while self.new or self.old:
            is_new = bool(self.new)
            number = self.new[0] if is_new else self.old[0]
            if self.credits[number] <= 0:
                self.credits[number] += self.config.quantum_bytes
                (self.new if is_new else self.old).pop(0)
                self.old.append(number)
                continue
            flow, codel = self.queues[number], self.codels[number]
            codel.other_bytes = size(queue) - size(flow)
            item = codel.deque(flow, now_ns, gone)
            if item is None:
                (self.new if is_new else self.old).pop(0)
                if is_new:
                    self.old.append(number)
                continue
            self.credits[number] -= item.frame_bytes
            queue.remove(item)
            return item
        return None


FRACTION = 1 << 32
"""Averages and probabilities are counted in 2**-32. Divisions round down."""


@dataclass(frozen=True)
class RedConfig:
    """A profile by colour: ``minth`` and ``maxth`` in bytes, ``maxp`` in millionths.

    ``w_q`` is 2**-weight_shift, and a packet's typical time on the line ``packet_ns``.
    """

    profiles: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]
    weight_shift: int
    packet_ns: int
    ecn: bool


@dataclass
class Red(Fifo):
    """Floyd and Jacobson, 1993; with a profile for each colour, WRED."""

    config: RedConfig
    random: Random
    avg: int = 0
    q_time: int = 0
    count: list[int] = field(default_factory=lambda: [-1, -1, -1])

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """Calculates the average, and drops or marks by it."""
        if queue:
            w_q = self.config.weight_shift
            self.avg = self.avg - (self.avg >> w_q) + (size(queue) * FRACTION >> w_q)
        else:
            self.decay((now_ns - self.q_time) // self.config.packet_ns)
        minth, maxth, maxp_ppm = self.config.profiles[item.colour]
        if self.avg < minth * FRACTION:
            self.count[item.colour] = -1
            return "keep"
        if self.avg >= maxth * FRACTION:
            self.count[item.colour] = 0
            return "drop"
        self.count[item.colour] += 1
        maxp = maxp_ppm * FRACTION // 1_000_000
        p_b = maxp * (self.avg - minth * FRACTION) // ((maxth - minth) * FRACTION)
        # p_a = p_b / (1 - count * p_b), and a packet is dropped if a random number is below.
        rest = max(0, FRACTION - self.count[item.colour] * p_b)
        if self.random.below(FRACTION) * rest < p_b * FRACTION:
            self.count[item.colour] = 0
            return "mark" if self.config.ecn and item.ecn_capable else "drop"
        return "keep"

    def decay(self, m: int) -> None:
        """Avg = (1 - w_q)^m * avg, by squaring."""
        factor = FRACTION - (FRACTION >> self.config.weight_shift)
        while m > 0 and self.avg > 0:
            if m % 2 == 1:
                self.avg = self.avg * factor // FRACTION
            factor = factor * factor // FRACTION
            m //= 2

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """The head; when the queue gets empty, q_time = time."""
        item = queue.pop(0)
        if not queue:
            self.q_time = now_ns
        return item


UPDATE_NS = 15_000_000
BURST_NS = 150_000_000


@dataclass(frozen=True)
class PieConfig:
    """QDELAY_REF; ``ecn``: packets that can be marked are, while the probability is below 0.1."""

    target_ns: int
    ecn: bool


@dataclass
class Pie(Fifo):
    """RFC 8033, appendix A, with ECN, the cap of a step up, and the latency by time stamps."""

    config: PieConfig
    random: Random
    drop_prob: float = 0.0
    qdelay: int = 0
    qdelay_old: int = 0
    burst_allowance: int = BURST_NS
    update_at: int | None = None

    def calculate_drop_prob(self) -> None:
        """Every T_UPDATE."""
        qdelay, old, ref = self.qdelay / 1e9, self.qdelay_old / 1e9, self.config.target_ns / 1e9
        p = 0.125 * (qdelay - ref) + 1.25 * (qdelay - old)
        scales = [(1e-6, 2048), (1e-5, 512), (1e-4, 128), (1e-3, 32), (1e-2, 8), (1e-1, 2)]
        for bound, scale in scales:
            if self.drop_prob < bound:
                p /= scale
                break
        if self.drop_prob >= 0.1 and p > 0.02:
            p = 0.02
        self.drop_prob += p
        if self.qdelay == 0 and self.qdelay_old == 0:
            self.drop_prob *= 0.98
        self.drop_prob = min(1.0, max(0.0, self.drop_prob))
        self.burst_allowance = max(0, self.burst_allowance - UPDATE_NS)
        self.qdelay_old = self.qdelay

    def update_until(self, now_ns: int) -> None:
        """The updates that are due; the first is T_UPDATE after the first packet."""
        if self.update_at is None:
            self.update_at = now_ns + UPDATE_NS
        while self.update_at <= now_ns:
            self.calculate_drop_prob()
            self.update_at += UPDATE_NS

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """Drops or marks with the probability."""
        self.update_until(now_ns)
        half = self.config.target_ns // 2
        if self.drop_prob == 0 and self.qdelay < half and self.qdelay_old < half:
            self.burst_allowance = BURST_NS
        if self.burst_allowance > 0:
            return "keep"
        calm = self.qdelay_old < half and self.drop_prob < 0.2
        if calm or size(queue) <= 2 * 1024:
            return "keep"
        if self.random.below(1 << 53) / (1 << 53) >= self.drop_prob:
            return "keep"
        return "mark" if self.config.ecn and item.ecn_capable and self.drop_prob < 0.1 else "drop"

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """The head, whose latency is the queue's."""
        self.update_until(now_ns)
        item = queue.pop(0)
        self.qdelay = now_ns - item.at_ns if queue else 0
        return item


MIN_TH_NS = 800_000
MAX_TH_NS = 1_200_000


@dataclass(frozen=True)
class DualPi2Config:
    """Target of the classic queue."""

    target_ns: int


@dataclass
class DualPi2:
    """RFC 9332, appendix A, with the overload code.

    The scheduler: weighted round robin, 9 to 1, the low-latency queue first.
    """

    config: DualPi2Config
    lq: list[Item] = field(default_factory=list)
    cq: list[Item] = field(default_factory=list)
    count: dict[str, float] = field(default_factory=lambda: {"lq": 0.0, "cq": 0.0})
    p: float = 0.0
    """p'."""
    prevq: int = 0
    update_at: int | None = None
    owed: int = 0
    """What the classic queue is owed."""

    def arrive(self, item: Item, queue: list[Item], now_ns: int) -> Verdict:
        """DualPI2 decides at the heads."""
        return "keep"

    def tupdate(self) -> int:
        """Min(target, RTT_max / 3)."""
        return min(self.config.target_ns, 33_333_333)

    def time(self, queue: list[Item], now: int) -> int:
        """The queueing time of the head."""
        return max(0, now - queue[0].at_ns) if queue else 0

    def update(self, now: int) -> None:
        """``dualpi2_update``, with the greater queueing time."""
        tupdate, target = self.tupdate() / 1e9, self.config.target_ns / 1e9
        alpha, beta = 0.1 * tupdate / (0.1 * 0.1), 0.3 / 0.1
        curq = max(self.time(self.lq, now), self.time(self.cq, now))
        change = alpha * (curq / 1e9 - target) + beta * (curq / 1e9 - self.prevq / 1e9)
        self.p = min(1.0, max(0.0, self.p + change))
        self.prevq = curq

    def update_until(self, now: int) -> None:
        """The updates that are due; the first is Tupdate after the first packet."""
        if self.update_at is None:
            self.update_at = now + self.tupdate()
        while self.update_at <= now:
            self.update(self.update_at)
            self.update_at += self.tupdate()

    def put(self, item: Item, queue: list[Item], drop: Callable[[Item], None]) -> None:
        """``dualpi2_enqueue``: the classifier."""
        self.update_until(item.at_ns)
        if not self.lq and not self.cq:
            self.owed = 0
        queue.append(item)
        (self.lq if item.ecn % 2 == 1 else self.cq).append(item)

    def scheduler(self) -> str:
        """The queue that is next."""
        return "lq" if self.lq and (not self.cq or self.owed <= 0) else "cq"

    def charge(self, name: str, item: Item) -> None:
        """A packet is sent from a queue. Shares count while both have packets."""
        if name == "lq" and self.cq:
            self.owed += item.frame_bytes
        elif name == "cq" and self.lq:
            self.owed -= 9 * item.frame_bytes

    def first(self, queue: list[Item]) -> Item:
        """The head of that queue."""
        return self.lq[0] if self.scheduler() == "lq" else self.cq[0]

    def recur(self, name: str, likelihood: float) -> bool:
        """True with a certain likelihood."""
        self.count[name] += likelihood
        if self.count[name] > 1:
            self.count[name] -= 1
            return True
        return False

    def laqm(self, qdelay: int) -> float:
        """The native probability of the low-latency queue: a ramp from minTh to maxTh."""
        if qdelay >= MAX_TH_NS:
            return 1.0
        if qdelay > MIN_TH_NS:
            return (qdelay - MIN_TH_NS) / (MAX_TH_NS - MIN_TH_NS)
        return 0.0

    def deque(self, queue: list[Item], now_ns: int, drop: Callable[[Item], None]) -> Item | None:
        """``dualpi2_dequeue``."""
        self.update_until(now_ns)
        p_cl, p_c = min(1.0, 2 * self.p), self.p * self.p
        while self.lq or self.cq:
            name = self.scheduler()
            item = (self.lq if name == "lq" else self.cq).pop(0)
            queue.remove(item)
            if name == "lq":
                if p_cl < 1:
                    # Figure 7, lines 5a to 5d: a queue of one packet is not marked for its time.
                    native = self.laqm(max(0, now_ns - item.at_ns)) if self.lq else 0.0
                    item.marked = self.recur("lq", max(native, p_cl))
                elif self.recur("lq", p_c):
                    drop(item)
                    continue
                else:
                    item.marked = self.recur("lq", p_cl)
            elif self.recur("cq", p_c):
                if item.ecn == 0 or p_c >= 0.25:
                    drop(item)
                    continue
                item.marked = True
            self.charge(name, item)
            return item
        return None

"""The reference model of a port with egress queues: every packet's start, or why it was dropped.

Held packets of classes go before all queues, or have a place in the scheduler's tree.

Written to be read and to be obviously right: exact integers, lists that are searched from end to
end, one decision at a time. The traffic manager in Rust is compared with it and shares no code with
it. Units and rounding are those of ``pacing_model``.

The port decides at instants: whenever its line is free and a queue may send. At one instant,
packets start before others arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from aqm_model import (
    Aqm,
    Codel,
    CodelConfig,
    DropTail,
    DualPi2,
    DualPi2Config,
    FqCodel,
    FqCodelConfig,
    Item,
    Pie,
    PieConfig,
    Red,
    RedConfig,
    size,
)
from make_vectors import Random
from pacing_model import FCS_BYTES, WIRE_OVERHEAD_BYTES, ceil_ns, q24, time_per_byte_q24

FRAME_BYTES = 1518
"""Ethernet's longest frame, layer 2 with FCS: the default burst of a rate."""

DropCause = Literal["queue-full", "no-such-queue", "buffer-share", "switch-buffer", "aqm"]


AqmConfig = CodelConfig | RedConfig | PieConfig | FqCodelConfig | DualPi2Config


@dataclass(frozen=True)
class QueueConfig:
    """One queue. A rate is in bit/s, with a burst in bytes, or in packets per second.

    None: no limit of this kind.
    """

    depth_bytes: int
    depth_packets: int | None = None
    rate_bps: int | None = None
    burst_bytes: int = FRAME_BYTES
    rate_pps: int | None = None
    min_rate_bps: int | None = None
    buffer_share_ppm: int | None = None
    """Alpha of the common buffer, in millionths. None: 1."""
    aqm: AqmConfig | None = None

    def cost_q24(self, frame_bytes: int) -> int:
        """The time that a packet takes from the queue's rate."""
        if self.rate_bps is not None:
            return frame_bytes * time_per_byte_q24(self.rate_bps)
        if self.rate_pps is not None:
            return q24(1_000_000_000 // self.rate_pps)
        return 0

    def burst_q24(self) -> int | None:
        """The time that a queue may make up after a wait. None: all of it."""
        if self.rate_bps is None:
            return None
        return self.burst_bytes * time_per_byte_q24(self.rate_bps)


@dataclass(frozen=True)
class Hold:
    """What the program asks for a held packet: its departure, and its class's pace."""

    class_id: int
    departure_ns: int
    cost_q24: int
    """Time that the packet takes from its class."""
    allowance_ns: int


@dataclass(frozen=True)
class Packet:
    """A packet that arrives. ``length_bytes``: layer 2 without FCS."""

    number: int
    at_ns: int
    queue: int
    length_bytes: int
    ecn: int = 0
    """Its ECN field: 1 ECT(1), 2 ECT(0), 3 CE."""
    colour: int = 0
    """0 green, 1 yellow, 2 red."""
    flow: int = 0
    """A hash of its flow."""
    hold: Hold | None = None
    """None: it goes to its egress queue."""

    @property
    def frame_bytes(self) -> int:
        """Bytes that count against depths and rates."""
        return self.length_bytes + FCS_BYTES


@dataclass(frozen=True)
class Start:
    """A packet that left: when, how many waited in its queue when it came and when it left.

    ``marked``: with the mark of congestion.
    """

    number: int
    start_ns: int
    enqueued_behind: int
    left_behind: int
    marked: bool


@dataclass(frozen=True)
class Drop:
    """A packet that did not."""

    number: int
    cause: DropCause


def aqm_of(queue: QueueConfig, seed: int) -> Aqm:
    """A new state of the algorithm. The random numbers of queue k are those of seed k + 1."""
    match config := queue.aqm:
        case None:
            return DropTail()
        case CodelConfig():
            return Codel(config)
        case RedConfig():
            return Red(config, Random(seed))
        case PieConfig():
            return Pie(config, Random(seed))
        case FqCodelConfig():
            return FqCodel(config, queue.depth_bytes, queue.depth_packets)
        case DualPi2Config():
            return DualPi2(config)


HeadBytes = Callable[[int], int]
"""The frame bytes of the packet that a child would send."""


class Scheduler(Protocol):
    """The order in which the children of a node send."""

    def arrive(self, child: int, frame_bytes: int, now_q24: int) -> None:
        """A packet has been put into a queue of the child."""

    def enter(self, child: int) -> None:
        """A child may send from now on."""

    def leave(self, child: int) -> None:
        """A child may not go on: it is empty, or waits for its rate."""

    def dropped(self, child: int, frame_bytes: int) -> None:
        """A child has dropped a packet."""

    def choose(self, head_bytes: HeadBytes, now_q24: int) -> int:
        """The child that sends next."""

    def sent(self, child: int, frame_bytes: int, start_q24: int) -> None:
        """A packet of the child is on the line from ``start_q24`` on."""

    def on_line(self, end_q24: int) -> None:
        """It leaves the line at ``end_q24``."""

    def sent_by_minimum(self, child: int, frame_bytes: int) -> None:
        """A packet of the child starts by the child's minimum rate."""


@dataclass
class Strict:
    """The first child goes first."""

    able: set[int] = field(default_factory=set)

    def arrive(self, child: int, frame_bytes: int, now_q24: int) -> None:
        """Nothing to note."""

    def enter(self, child: int) -> None:
        """The child may send."""
        self.able.add(child)

    def leave(self, child: int) -> None:
        """The child may not send."""
        self.able.remove(child)

    def dropped(self, child: int, frame_bytes: int) -> None:
        """Nothing to note."""

    def choose(self, head_bytes: HeadBytes, now_q24: int) -> int:
        """The first."""
        return min(self.able)

    def sent(self, child: int, frame_bytes: int, start_q24: int) -> None:
        """Nothing to note."""

    def on_line(self, end_q24: int) -> None:
        """Nothing to note."""

    def sent_by_minimum(self, child: int, frame_bytes: int) -> None:
        """Nothing to note."""


@dataclass
class DeficitRoundRobin:
    """Shreedhar and Varghese, SIGCOMM 1995: the pseudo-code's ActiveList, quanta and deficits."""

    weights: Sequence[int]
    active: list[int] = field(default_factory=list)
    deficit: dict[int, int] = field(default_factory=dict)
    visited: bool = False
    """The first of the list has got its quantum in this round."""

    def arrive(self, child: int, frame_bytes: int, now_q24: int) -> None:
        """Nothing to note."""

    def enter(self, child: int) -> None:
        """InsertActiveList(child), DC = 0."""
        self.active.append(child)
        self.deficit[child] = 0

    def leave(self, child: int) -> None:
        """The child leaves the list; DC = 0."""
        if self.active[0] == child:
            self.visited = False
        self.active.remove(child)

    def dropped(self, child: int, frame_bytes: int) -> None:
        """Nothing to note."""

    def choose(self, head_bytes: HeadBytes, now_q24: int) -> int:
        """While the head of the list may not send: to the end of the list."""
        while True:
            first = self.active[0]
            if not self.visited:
                self.deficit[first] += self.weights[first] * FRAME_BYTES
                self.visited = True
            if head_bytes(first) <= self.deficit[first]:
                return first
            self.active.append(self.active.pop(0))
            self.visited = False

    def sent(self, child: int, frame_bytes: int, start_q24: int) -> None:
        """DC = DC - PacketSize."""
        self.deficit[child] -= frame_bytes

    def on_line(self, end_q24: int) -> None:
        """Nothing to note."""

    def sent_by_minimum(self, child: int, frame_bytes: int) -> None:
        """Nothing to note."""


WORK_BITS = 40
"""Work is counted in 2**-40 bytes, virtual time in as many bytes over weight.

Divisions round down.
"""


@dataclass
class WeightedFair:
    """WF2Q (Bennett and Zhang, INFOCOM 1996), beside a fluid server that does the same work.

    A packet that leaves takes the tags of the child's first bytes, whichever they were on arrival.
    """

    weights: Sequence[int]
    virtual: int = 0
    """V."""
    done: int = 0
    """Work of the fluid server."""
    started_bytes: int = 0
    line: tuple[int, int, int] = (0, 0, 0)
    """The last frame: bytes, start, end."""
    finish: list[int] = field(default_factory=list)
    """F of the last packet of each child."""
    tags: list[list[tuple[int, int]]] = field(default_factory=list)
    """S and F of the bytes that wait."""
    able: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.finish = [0 for _ in self.weights]
        self.tags = [[] for _ in self.weights]

    def cost(self, child: int, frame_bytes: int) -> int:
        """Bytes over weight."""
        return frame_bytes * ((1 << WORK_BITS) // self.weights[child])

    def work_until(self, now_q24: int) -> None:
        """The fluid server does what the line has done by now."""
        size, start, end = self.line
        work = self.started_bytes << WORK_BITS
        if start < end and now_q24 < end:
            work -= ((end - max(now_q24, start)) * size << WORK_BITS) // (end - start)
        left = max(0, work - self.done)
        self.done = max(self.done, work)
        while left > 0:
            busy = [child for child, finish in enumerate(self.finish) if finish > self.virtual]
            if not busy:
                return
            share = sum(self.weights[child] for child in busy)
            until_next = (min(self.finish[child] for child in busy) - self.virtual) * share
            if left < until_next:
                self.virtual += left // share
                return
            self.virtual += until_next // share
            left -= until_next

    def arrive(self, child: int, frame_bytes: int, now_q24: int) -> None:
        """S = max(F, V), F = S + bytes / weight."""
        self.work_until(now_q24)
        start = max(self.finish[child], self.virtual)
        self.finish[child] = start + self.cost(child, frame_bytes)
        self.tags[child].append((start, self.finish[child]))

    def enter(self, child: int) -> None:
        """The child may send."""
        self.able.add(child)

    def leave(self, child: int) -> None:
        """The child may not send."""
        self.able.remove(child)

    def consume(self, child: int, frame_bytes: int) -> None:
        """The tags of the first bytes go."""
        cost = self.cost(child, frame_bytes)
        while cost > 0:
            start, finish = self.tags[child].pop(0)
            if finish - start > cost:
                self.tags[child].insert(0, (start + cost, finish))
            cost -= min(cost, finish - start)

    def dropped(self, child: int, frame_bytes: int) -> None:
        """What the fluid server has served of it stays served."""
        self.consume(child, frame_bytes)

    def choose(self, head_bytes: HeadBytes, now_q24: int) -> int:
        """Of the heads that have started in the fluid server, the first that ends there."""
        self.work_until(now_q24)
        starts = {child: self.tags[child][0][0] for child in self.able}
        self.virtual = max(self.virtual, min(starts.values()))
        ends = (
            (start + self.cost(child, head_bytes(child)), child)
            for child, start in sorted(starts.items())
            if start <= self.virtual
        )
        return min(ends)[1]

    def sent(self, child: int, frame_bytes: int, start_q24: int) -> None:
        """Its tags go with it."""
        self.consume(child, frame_bytes)
        self.started_bytes += frame_bytes
        self.line = (frame_bytes, start_q24, start_q24)

    def on_line(self, end_q24: int) -> None:
        """The end is known."""
        self.line = (self.line[0], self.line[1], end_q24)

    def sent_by_minimum(self, child: int, frame_bytes: int) -> None:
        """No work of the fluid server: the tags of the child's last bytes go."""
        cost = self.cost(child, frame_bytes)
        while cost > 0:
            start, finish = self.tags[child].pop()
            self.finish[child] = max(start, finish - cost)
            if finish - start > cost:
                self.tags[child].append((start, finish - cost))
            cost -= min(cost, finish - start)


Discipline = Literal["strict", "drr", "wfq"]


PACED = -1
"""The leaf of the held packets, among the numbers of queues."""


@dataclass(frozen=True)
class NodeConfig:
    """A node of the scheduler: the order of its children, by weight, and its highest rate."""

    discipline: Discipline
    children: Sequence[tuple[int, int | NodeConfig]]
    """Weight, and the number of a queue, `PACED`, or a node."""
    rate_bps: int | None = None
    burst_bytes: int = FRAME_BYTES
    min_rate_bps: int | None = None
    """None: the sum of its children's."""

    def scheduler(self) -> Scheduler:
        """A new scheduler of the discipline."""
        weights = [weight for weight, _ in self.children]
        match self.discipline:
            case "strict":
                return Strict()
            case "drr":
                return DeficitRoundRobin(weights)
            case "wfq":
                return WeightedFair(weights)


def flat(discipline: Discipline, queues: int, weights: Sequence[int]) -> NodeConfig:
    """All queues below the root; of strict priority, the one with the highest number first."""
    if discipline == "strict":
        return NodeConfig(discipline, [(1, queue) for queue in reversed(range(queues))])
    return NodeConfig(discipline, list(zip(weights, range(queues), strict=True)))


CREDIT_BYTES = 65536
"""What a minimum rate may make up after a wait."""


def min_rate_bps(child: int | NodeConfig, queues: Sequence[QueueConfig]) -> int:
    """The minimum rate of a child, or 0."""
    if child == PACED:
        return 0
    if isinstance(child, int):
        return queues[child].min_rate_bps or 0
    of_children = sum(min_rate_bps(below, queues) for _, below in child.children)
    return of_children if child.min_rate_bps is None else child.min_rate_bps


class Node:
    """A node with its state."""

    def __init__(
        self,
        config: NodeConfig,
        queues: Sequence[QueueConfig],
        above: tuple[Node, int] | None = None,
    ) -> None:
        self.config = config
        self.above = above
        """The node above, and this one's place there."""
        self.scheduler = config.scheduler()
        self.entered: set[int] = set()
        """Children that the scheduler knows may send."""
        self.since_q24 = 0
        """From then on there have been such children."""
        self.clock_q24 = 0
        """C."""
        rates_bps = [min_rate_bps(below, queues) for _, below in config.children]
        self.minimum_byte_q24 = [time_per_byte_q24(rate) if rate else None for rate in rates_bps]
        """The time of a byte at the minimum rate of each child. None: it has no minimum."""
        self.minimum_clock_q24 = [0 for _ in rates_bps]
        """G of each child."""
        self.by_minimum = False
        """The child that sends next does so by its minimum rate."""
        self.children = [
            Node(below, queues, (self, place)) if isinstance(below, NodeConfig) else below
            for place, (_, below) in enumerate(config.children)
        ]

    def places(self) -> Iterator[tuple[int, tuple[Node, int]]]:
        """The places of the queues below."""
        for place, child in enumerate(self.children):
            if isinstance(child, Node):
                yield from child.places()
            else:
                yield child, (self, place)


@dataclass
class SwitchBuffer:
    """A buffer that the queues of several ports share."""

    size_bytes: int
    ports: list[Port] = field(default_factory=list)


@dataclass
class Port:
    """A port. ``line_rate_bps`` None: frames take no time."""

    queues: Sequence[QueueConfig]
    tree: NodeConfig
    line_rate_bps: int | None
    line_overhead_bytes: int = WIRE_OVERHEAD_BYTES
    buffer_bytes: int | None = None
    """What the queues have in common."""
    switch_buffer: SwitchBuffer | None = None
    """What they have in common with those of other ports."""
    free_q24: int = 0
    last_start_q24: int = 0
    waiting: list[list[Item]] = field(default_factory=list)
    aqms: list[Aqm] = field(default_factory=list)
    enqueued_behind: dict[int, int] = field(default_factory=dict)
    clock_q24: list[int] = field(default_factory=list)
    """C of each queue."""
    held: dict[int, list[Packet]] = field(default_factory=dict)
    """The packets that wait, by class."""
    release_q24: dict[int, int] = field(default_factory=dict)
    """R, by class."""
    noticed: set[int] = field(default_factory=set)
    """Classes whose first packet has arrived at the leaf `PACED`."""
    offered: list[tuple[int, int, int | Node]] = field(default_factory=list)
    """E, order and child, of the children that have packets and that no scheduler knows of yet."""
    offers: int = 0
    starts: list[Start] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = [[] for _ in self.queues]
        self.aqms = [aqm_of(config, number) for number, config in enumerate(self.queues, 1)]
        self.clock_q24 = [0 for _ in self.queues]
        self.root = Node(self.tree, self.queues)
        self.places = dict(self.root.places())
        if self.switch_buffer is not None:
            self.switch_buffer.ports.append(self)

    def above(self, child: int | Node) -> tuple[Node, int] | None:
        """The node above a child, and the child's place there."""
        return child.above if isinstance(child, Node) else self.places[child]

    def way_up(self, queue: int) -> Iterator[tuple[Node, int]]:
        """The nodes above a queue, from the lowest to the root."""
        above: tuple[Node, int] | None = self.places[queue]
        while above is not None:
            yield above
            above = above[0].above

    def eligible_q24(self, child: int | Node) -> int:
        """E of a child that has packets."""
        if isinstance(child, Node):
            return max(child.since_q24, child.clock_q24)
        if child == PACED:
            return min(map(self.head_eligible_q24, self.classes()))
        return max(q24(self.waiting[child][0].at_ns), self.clock_q24[child])

    def offer(self, child: int | Node) -> None:
        """A child that its node's scheduler does not know of has packets."""
        self.offers += 1
        self.offered.append((self.eligible_q24(child), self.offers, child))

    def classes(self) -> list[int]:
        """The classes with packets."""
        return sorted(number for number, packets in self.held.items() if packets)

    def head_eligible_q24(self, class_id: int) -> int:
        """E of the first packet of a class."""
        packet = self.held[class_id][0]
        assert packet.hold is not None
        departure_ns = max(packet.hold.departure_ns, packet.at_ns)
        return max(q24(departure_ns), self.release_q24.get(class_id, 0))

    def enter_until(self, now_q24: int) -> None:
        """Tells the schedulers of the children that may start by ``now_q24``, in order of E."""
        while True:
            due = [offer for offer in self.offered if offer[0] <= now_q24]
            first = min(due, key=lambda offer: offer[:2], default=None)
            paced = self.next_to_notice(now_q24)
            if paced is not None and (first is None or paced[0] < first[0]):
                self.notice(*paced)
            elif first is not None:
                self.offered.remove(first)
                self.enter(first[2], first[0])
            else:
                return

    def next_to_notice(self, now_q24: int) -> tuple[int, int] | None:
        """E and class of the next held packet that arrives at its leaf by ``now_q24``."""
        if PACED not in self.places:
            return None
        heads = [(self.head_eligible_q24(one), one) for one in self.classes()]
        due = [head for head in heads if head[0] <= now_q24 and head[1] not in self.noticed]
        return min(due, default=None)

    def notice(self, eligible_q24: int, class_id: int) -> None:
        """The first packet of a class arrives at the leaf.

        Not before the packet ahead of it has started, which is the last one that has.
        """
        self.noticed.add(class_id)
        arrival_q24 = max(eligible_q24, self.last_start_q24)
        for node, place in self.way_up(PACED):
            frame_bytes = self.held[class_id][0].frame_bytes
            node.scheduler.arrive(place, frame_bytes, arrival_q24)
        node, place = self.places[PACED]
        if place not in node.entered:
            self.enter(PACED, eligible_q24)

    def enter(self, child: int | Node, eligible_q24: int) -> None:
        """Tells the scheduler above a child that it may start."""
        above = self.above(child)
        assert above is not None
        node, place = above
        was_idle = not node.entered
        node.since_q24 = eligible_q24 if was_idle else min(node.since_q24, eligible_q24)
        node.entered.add(place)
        node.scheduler.enter(place)
        node.minimum_clock_q24[place] = max(node.minimum_clock_q24[place], eligible_q24)
        if was_idle and node.above is not None:
            self.offer(node)

    def next_q24(self) -> int | None:
        """The next instant at which a packet starts, if none comes before."""

        def next_of(child: int | Node) -> int | None:
            if child == PACED:
                return self.eligible_q24(child) if self.classes() else None
            if not isinstance(child, Node):
                return self.eligible_q24(child) if self.waiting[child] else None
            below = [at for at in map(next_of, child.children) if at is not None]
            return max(min(below), child.clock_q24) if below else None

        first = next_of(self.root)
        if self.goes_first(None):
            paced_q24 = self.eligible_q24(PACED)
            first = paced_q24 if first is None else min(first, paced_q24)
        return None if first is None else max(first, self.free_q24)

    def goes_first(self, now_q24: int | None) -> bool:
        """Whether a held packet is before all queues at ``now_q24``, or will be (None)."""
        if PACED in self.places or not self.classes():
            return False
        return now_q24 is None or self.eligible_q24(PACED) <= now_q24

    def front(self, node: Node, now_q24: int) -> int:
        """The queue that a node would serve."""

        def queue_of(place: int) -> int:
            child = node.children[place]
            return self.front(child, now_q24) if isinstance(child, Node) else child

        def head_bytes(place: int) -> int:
            queue = queue_of(place)
            if queue == PACED:
                return self.first_held(now_q24)[1].frame_bytes
            return self.aqms[queue].first(self.waiting[queue]).frame_bytes

        due = [
            (clock_q24, place)
            for place, clock_q24 in enumerate(node.minimum_clock_q24)
            if place in node.entered
            and node.minimum_byte_q24[place] is not None
            and clock_q24 <= now_q24
        ]
        node.by_minimum = bool(due)
        if due:
            return queue_of(min(due)[1])
        return queue_of(node.scheduler.choose(head_bytes, now_q24))

    def start_one(self, now_q24: int) -> None:
        """A packet starts now."""
        if self.goes_first(now_q24):
            self.start_held(now_q24)
            return
        self.enter_until(now_q24)
        queue = self.front(self.root, now_q24)
        if queue == PACED:
            frame_bytes = self.start_held(now_q24)
            more = any(self.head_eligible_q24(one) <= now_q24 for one in self.classes())
            self.charge(PACED, frame_bytes, now_q24, more)
            return

        def drop(item: Item) -> None:
            self.drops.append(Drop(item.number, "aqm"))
            for node, place in self.way_up(queue):
                node.scheduler.dropped(place, item.frame_bytes)

        head = self.aqms[queue].deque(self.waiting[queue], ceil_ns(now_q24), drop)
        if head is not None:
            self.start(queue, head, now_q24)
            return
        for node, place in self.way_up(queue):
            node.entered.remove(place)
            node.scheduler.leave(place)
            if node.entered:
                break

    def first_held(self, now_q24: int) -> tuple[int, Packet]:
        """The class and the held packet that go first: by departure, then by arrival."""
        heads = [
            (one, self.held[one][0])
            for one in self.classes()
            if self.head_eligible_q24(one) <= now_q24
        ]

        def order(head: tuple[int, Packet]) -> tuple[int, int]:
            packet = head[1]
            assert packet.hold is not None
            return max(packet.hold.departure_ns, packet.at_ns), packet.number

        return min(heads, key=order)

    def start_held(self, now_q24: int) -> int:
        """The first held packet starts; returns its bytes."""
        class_id, packet = self.first_held(now_q24)
        assert packet.hold is not None
        del self.held[class_id][0]
        self.noticed.discard(class_id)
        release_q24 = self.release_q24.get(class_id, 0)
        stalled_q24 = max(0, now_q24 - q24(packet.hold.allowance_ns))
        self.release_q24[class_id] = max(release_q24, stalled_q24) + packet.hold.cost_q24
        self.leave(packet.number, packet.frame_bytes, now_q24, self.packets(), marked=False)
        return packet.frame_bytes

    def packets(self) -> int:
        """All that wait."""
        return sum(map(len, self.waiting)) + sum(map(len, self.held.values()))

    def leave(
        self, number: int, frame_bytes: int, now_q24: int, left_behind: int, marked: bool
    ) -> None:
        """A packet takes the line."""
        self.free_q24 = self.last_start_q24 = now_q24
        if self.line_rate_bps is not None:
            line_bytes = frame_bytes - FCS_BYTES + self.line_overhead_bytes
            self.free_q24 += line_bytes * time_per_byte_q24(self.line_rate_bps)
        behind = self.enqueued_behind[number]
        self.starts.append(Start(number, ceil_ns(now_q24), behind, left_behind, marked))

    def start(self, queue: int, head: Item, now_q24: int) -> None:
        """A packet that has been taken out of its queue starts."""
        config = self.queues[queue]
        since_q24 = max(q24(head.at_ns), self.clock_q24[queue])
        burst_q24 = config.burst_q24()
        if burst_q24 is not None:
            since_q24 = max(since_q24, now_q24 - burst_q24)
        if config.rate_bps is not None or config.rate_pps is not None:
            self.clock_q24[queue] = since_q24 + config.cost_q24(head.frame_bytes)
        left_behind = len(self.waiting[queue])
        self.leave(head.number, head.frame_bytes, now_q24, left_behind, head.marked)
        self.charge(queue, head.frame_bytes, now_q24, bool(left_behind))

    def charge(self, leaf: int, frame_bytes: int, now_q24: int, has_packets: bool) -> None:
        """Tells the nodes above a leaf of a packet that starts. ``has_packets``: it has more."""
        child: int | Node = leaf
        for node, place in self.way_up(leaf):
            if node.by_minimum:
                byte_q24 = node.minimum_byte_q24[place]
                assert byte_q24 is not None
                since_q24 = max(node.minimum_clock_q24[place], now_q24 - CREDIT_BYTES * byte_q24)
                node.minimum_clock_q24[place] = since_q24 + frame_bytes * byte_q24
                node.scheduler.sent_by_minimum(place, frame_bytes)
            else:
                node.scheduler.sent(place, frame_bytes, now_q24)
                node.scheduler.on_line(self.free_q24)
            if not has_packets or self.eligible_q24(child) > now_q24:
                node.entered.remove(place)
                node.scheduler.leave(place)
                if has_packets:
                    self.offer(child)
            if node.config.rate_bps is not None:
                byte_q24 = time_per_byte_q24(node.config.rate_bps)
                since_q24 = max(
                    self.eligible_q24(node), now_q24 - node.config.burst_bytes * byte_q24
                )
                node.clock_q24 = since_q24 + frame_bytes * byte_q24
            child, has_packets = node, bool(node.entered)

    def no_share(self, queue: QueueConfig, held: int, frame_bytes: int) -> DropCause | None:
        """The cause of a drop if a queue with ``held`` bytes may not hold a frame more.

        Choudhury and Hahne, 1998: the threshold is alpha times what is free.
        """
        cause: DropCause
        if self.switch_buffer is not None:
            cause, buffer_bytes, ports = (
                "switch-buffer",
                self.switch_buffer.size_bytes,
                self.switch_buffer.ports,
            )
        elif self.buffer_bytes is not None:
            cause, buffer_bytes, ports = "buffer-share", self.buffer_bytes, [self]
        else:
            return None
        free = buffer_bytes - sum(size(packets) for port in ports for packets in port.waiting)
        alpha_ppm = 1_000_000 if queue.buffer_share_ppm is None else queue.buffer_share_ppm
        if frame_bytes > free or (held + frame_bytes) * 1_000_000 > alpha_ppm * free:
            return cause
        return None

    def arrive(self, packet: Packet) -> None:
        """A packet comes."""
        if packet.hold is not None:
            self.enqueued_behind[packet.number] = self.packets()
            self.held.setdefault(packet.hold.class_id, []).append(packet)
            return
        if packet.queue >= len(self.queues):
            self.drops.append(Drop(packet.number, "no-such-queue"))
            return
        config, packets = self.queues[packet.queue], self.waiting[packet.queue]
        aqm = self.aqms[packet.queue]
        too_many = config.depth_packets is not None and len(packets) >= config.depth_packets
        is_full = too_many or size(packets) + packet.frame_bytes > config.depth_bytes
        # FQ-CoDel drops others for it: RFC 8290, section 5.2.3.
        if is_full and not isinstance(aqm, FqCodel):
            self.drops.append(Drop(packet.number, "queue-full"))
            return
        cause = self.no_share(config, size(packets), packet.frame_bytes)
        if cause is not None:
            self.drops.append(Drop(packet.number, cause))
            return
        item = Item(
            packet.number,
            packet.at_ns,
            packet.frame_bytes,
            packet.ecn,
            packet.colour,
            packet.flow,
        )
        verdict = aqm.arrive(item, packets, packet.at_ns)
        if verdict == "drop":
            self.drops.append(Drop(packet.number, "aqm"))
            return
        item.marked = verdict == "mark"
        self.enter_until(q24(packet.at_ns))
        self.enqueued_behind[packet.number] = len(packets)
        was_empty = not packets
        for_it: list[Item] = []
        aqm.put(item, packets, for_it.append)
        for node, place in self.way_up(packet.queue):
            node.scheduler.arrive(place, packet.frame_bytes, q24(packet.at_ns))
        for dropped in for_it:
            self.drops.append(Drop(dropped.number, "aqm"))
            for node, place in self.way_up(packet.queue):
                node.scheduler.dropped(place, dropped.frame_bytes)
        if was_empty:
            self.offer(packet.queue)
            self.enter_until(q24(packet.at_ns))

    def run(self, packets: Iterable[Packet]) -> None:
        """Takes the packets, in order of their arrival, and sends all that it can."""
        run_together([self], [packets])

    def start_until(self, at_ns: int | None) -> None:
        """Sends all that it can by ``at_ns``. None: until nothing waits."""
        while (now_q24 := self.next_q24()) is not None:
            if at_ns is not None and ceil_ns(now_q24) > at_ns:
                return
            self.start_one(now_q24)


def run_together(ports: Sequence[Port], packets: Sequence[Iterable[Packet]]) -> None:
    """Takes the packets of each port; of those of one instant, those of the first port first."""
    arrivals = [(packet, at) for at, of_port in enumerate(packets) for packet in of_port]
    # The sort is stable, so the packets of a port keep their order.
    for packet, at in sorted(arrivals, key=lambda arrival: (arrival[0].at_ns, arrival[1])):
        for port in ports:
            port.start_until(packet.at_ns)
        ports[at].arrive(packet)
    for port in ports:
        port.start_until(None)

"""Writes the files in ``tests/vectors/queues``: a port with egress queues, and what the model does.

Those in ``tests/vectors/switch-buffer`` have several ports, whose queues share a buffer.

    python3 make_queue_vectors.py [--out DIR]
    python3 make_queue_vectors.py --random COUNT --packets N --seed N --out DIR

The second form writes COUNT random cases of N packets. The same call writes the same bytes
everywhere. The format is described in ``tests/vectors/README.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from aqm_model import CodelConfig, DualPi2Config, FqCodelConfig, PieConfig, RedConfig
from make_vectors import VECTORS_DIR, Random
from pacing_model import FCS_BYTES, WIRE_OVERHEAD_BYTES, ceil_ns, q24, time_per_byte_q24
from queueing_model import (
    PACED,
    AqmConfig,
    Discipline,
    Hold,
    NodeConfig,
    Packet,
    Port,
    QueueConfig,
    SwitchBuffer,
    flat,
    run_together,
)
from vector_text import lines

QUEUES_DIR = VECTORS_DIR / "queues"
SWITCH_BUFFER_DIR = VECTORS_DIR / "switch-buffer"
DISCIPLINES: tuple[Discipline, ...] = ("strict", "drr", "wfq")
AQMS = ("codel", "red", "pie", "fqcodel", "dualpi2")
KINDS = (*DISCIPLINES, "tree", "paced", *AQMS, "mixed")
"""A random case is of a scheduler, of held packets, of active queue management, or of all."""
SEEDS = (
    ("codel", 7, 150),
    ("red", 37, 150),
    ("fqcodel", 37, 150),
    ("fqcodel", 689, 150),
    ("pie", 28, 350),
    ("dualpi2", 66, 250),
    ("paced", 5, 60),
    ("paced", 16, 60),
    ("paced", 19, 60),
    ("paced", 50, 60),
    ("mixed", 1, 150),
    ("mixed", 2, 150),
)
"""Seeds and packets of further committed cases.

Those with active queue management drop and mark. Those with held packets have them below `wfq`,
below `drr`, before the tree, and below `strict` within it.

`make queue-model` makes more.
"""
GIGABIT = 1_000_000_000
RATES_BPS = {"pie": [1_000_000, 3_000_000], "dualpi2": [1_000_000, 3_000_000, 10_000_000]}
"""They move their probabilities every 15 ms, so they need time.

At 10 Mbit/s, several packets of low latency are on the ramp.
"""
LENGTHS_BYTES = (60, 60, 500, 1_000, 1_514, 1_514, 9_000)


@dataclass(frozen=True)
class QueueCase:
    """One file, before the expected results are computed."""

    name: str
    line_rate_bps: int | None
    counts: Literal["layer2", "wire"]
    discipline: Discipline | Literal["tree"]
    weights: Sequence[int]
    """Of queues below the root; empty for strict priority and for a tree."""
    queues: Sequence[QueueConfig]
    packets: Sequence[Packet]
    tree: NodeConfig | None = None
    buffer_bytes: int | None = None

    def run(self) -> Port:
        """The port after all packets."""
        port = self.port()
        port.run(self.packets)
        return port

    def port(self, switch_buffer: SwitchBuffer | None = None) -> Port:
        """The port before all packets."""
        overhead = FCS_BYTES if self.counts == "layer2" else WIRE_OVERHEAD_BYTES
        if self.discipline == "tree":
            assert self.tree is not None
            tree = self.tree
        else:
            tree = flat(self.discipline, len(self.queues), self.weights)
        return Port(
            self.queues, tree, self.line_rate_bps, overhead, self.buffer_bytes, switch_buffer
        )


@dataclass(frozen=True)
class SwitchCase:
    """One file with several ports that share a buffer, before the expected results are computed."""

    name: str
    switch_buffer_bytes: int
    ports: Sequence[QueueCase]


def switch_vector_text(case: SwitchCase) -> str:
    """The file's content."""
    buffer = SwitchBuffer(case.switch_buffer_bytes)
    ports = [port.port(buffer) for port in case.ports]
    run_together(ports, [port.packets for port in case.ports])
    texts = (port_text(of, port) for of, port in zip(case.ports, ports, strict=True))
    return (
        f'{{\n"switch_buffer_bytes": {case.switch_buffer_bytes},\n"ports": [\n'
        + ",\n".join(texts)
        + "\n]\n}\n"
    )


def queue_vector_text(case: QueueCase) -> str:
    """The file's content."""
    return port_text(case, case.run()) + "\n"


def port_text(case: QueueCase, port: Port) -> str:
    """A port's settings and packets, and what it has done."""
    head: dict[str, object] = {
        "name": case.name,
        "line_rate_bps": case.line_rate_bps or 0,
        "counts": case.counts,
        "scheduler": case.discipline,
        "weights": list(case.weights),
        "buffer_bytes": case.buffer_bytes,
    }
    if port.switch_buffer is not None:
        head["switch_buffer"] = True
    if case.tree is not None:
        head["tree"] = node_fields(case.tree)
    parts = [json.dumps(head)[1:-1].replace(', "', ',\n"')]
    parts.append('"queues": ' + lines(queue_fields(queue) for queue in case.queues))
    packets = (
        [
            packet.at_ns,
            packet.queue,
            packet.length_bytes,
            packet.ecn,
            packet.colour,
            packet.flow,
        ]
        for packet in case.packets
    )
    parts.append('"packets": ' + lines(packets))
    holds = [
        [packet.number, *astuple(packet.hold)] for packet in case.packets if packet.hold is not None
    ]
    if holds:
        parts.append('"holds": ' + lines(holds))
    parts.append('"starts": ' + lines(astuple(start) for start in port.starts))
    parts.append('"drops": ' + lines([drop.number, drop.cause] for drop in port.drops))
    return "{\n" + ",\n".join(parts) + "\n}"


def queue_fields(queue: QueueConfig) -> dict[str, object]:
    """A queue's settings; of its algorithm also the name."""
    fields: dict[str, object] = asdict(queue)
    if queue.aqm is not None:
        name = type(queue.aqm).__name__.removesuffix("Config").lower()
        fields["aqm"] = {name: asdict(queue.aqm)}
    return fields


def node_fields(node: NodeConfig) -> dict[str, object]:
    """A node's settings; a child is its weight, and the number of a queue, "paced" or a node."""

    def child_fields(below: int | NodeConfig) -> object:
        if isinstance(below, NodeConfig):
            return node_fields(below)
        return "paced" if below == PACED else below

    children = [[weight, child_fields(below)] for weight, below in node.children]
    return {**asdict(node), "children": children}


def random_case(name: str, kind: str, seed: int, packets: int) -> QueueCase:
    """A case of one of the kinds."""
    if kind in AQMS:
        return random_aqm_case(name, kind, seed, packets)
    if kind == "tree":
        return random_tree_case(name, seed, packets)
    if kind == "paced":
        return random_paced_case(name, seed, packets)
    if kind == "mixed":
        return random_mixed_case(name, seed, packets)
    flat_kind = next(discipline for discipline in DISCIPLINES if discipline == kind)
    return random_queue_case(name, flat_kind, seed, packets)


def random_tree_case(name: str, seed: int, packets: int) -> QueueCase:
    """A tree of all disciplines over some queues, of which some have CoDel."""
    random = Random(seed)
    case = random_queue_case(name, "strict", seed, packets)
    rate_bps = case.line_rate_bps or GIGABIT
    places = list(range(len(case.queues)))
    for at in reversed(range(len(places))):
        other = random.below(at + 1)
        places[at], places[other] = places[other], places[at]
    tree = random_node(random, places, rate_bps, iter(range(63)))
    with_minima = random.below(2) == 1
    minima_bps = [
        random.choice([None, rate_bps // 2 // len(places)]) if with_minima else None for _ in places
    ]
    queues = [
        replace(queue, min_rate_bps=min_bps, rate_bps=None, rate_pps=None) if min_bps else queue
        for queue, min_bps in zip(case.queues, minima_bps, strict=True)
    ]
    queues = [
        replace(queue, aqm=random_aqm(random, random.choice(["codel", "fqcodel"])))
        if random.below(6) == 0
        else queue
        for queue in queues
    ]
    flows = [replace(packet, flow=random.below(8)) for packet in case.packets]
    buffer_bytes = random.choice([None, 20_000, 100_000])
    if buffer_bytes is not None:
        shares = [random.choice([None, 125_000, 2_000_000]) for _ in places]
        queues = [
            replace(queue, buffer_share_ppm=share)
            for queue, share in zip(queues, shares, strict=True)
        ]
    return replace(
        case,
        discipline="tree",
        tree=tree,
        queues=queues,
        packets=flows,
        buffer_bytes=buffer_bytes,
    )


def random_paced_case(name: str, seed: int, packets: int) -> QueueCase:
    """A tree with held packets in it, or, in a quarter of the cases, before it."""
    random = Random(seed)
    case = random_tree_case(name, random.below(1 << 32), packets)
    assert case.tree is not None
    tree = case.tree if random.below(4) == 0 else with_paced(random, case.tree)
    rate_bps = case.line_rate_bps or GIGABIT
    rates_bps = [max(8_000, rate_bps // random.choice([2, 3, 7, 40])) for _ in range(4)]
    allowance_ns = random.choice([0, 24_288, 1_000_000])
    clocks_q24 = [0 for _ in rates_bps]
    arrivals: list[Packet] = []
    for packet in case.packets:
        if random.below(2) == 0:
            arrivals.append(packet)
            continue
        one = random.below(len(rates_bps))
        # Now and then a class waits, as one of a long cycle.
        ahead_ns = random.choice([0] * 20 + [200_000])
        start_q24 = max(q24(packet.at_ns + ahead_ns), clocks_q24[one])
        cost_q24 = packet.frame_bytes * time_per_byte_q24(rates_bps[one])
        clocks_q24[one] = start_q24 + cost_q24
        hold = Hold(one, ceil_ns(start_q24), cost_q24, allowance_ns)
        arrivals.append(replace(packet, hold=hold))
    return replace(case, tree=tree, packets=arrivals)


def random_mixed_case(name: str, seed: int, packets: int) -> QueueCase:
    """A tree with held packets, any algorithm beside queues' rates, and nodes' minimum rates."""
    random = Random(seed)
    case = random_paced_case(name, random.below(1 << 32), packets)
    assert case.tree is not None
    rate_bps = case.line_rate_bps or GIGABIT
    queues = []
    for queue in case.queues:
        least_bps = random.choice([None, rate_bps // 8 // len(case.queues)])
        most_bps = random.choice([None, rate_bps // 4])
        aqm = random_aqm(random, random.choice(AQMS)) if random.below(2) == 0 else queue.aqm
        queues.append(
            replace(queue, aqm=aqm, min_rate_bps=least_bps, rate_bps=most_bps, rate_pps=None)
        )
    tree, _ = with_min_rates(random, case.tree, queues, rate_bps // 1_024)
    arrivals = [
        replace(packet, ecn=random.below(4), colour=random.below(3)) for packet in case.packets
    ]
    return replace(case, tree=tree, queues=queues, packets=arrivals)


def with_min_rates(
    random: Random, node: NodeConfig, queues: Sequence[QueueConfig], more_bps: int
) -> tuple[NodeConfig, int]:
    """The tree with a minimum rate above that of its children in some nodes, and the root's."""
    children: list[tuple[int, int | NodeConfig]] = []
    least_bps = 0
    for weight, below in node.children:
        of_child_bps = 0
        if isinstance(below, NodeConfig):
            below, of_child_bps = with_min_rates(random, below, queues, more_bps)
        elif below != PACED:
            of_child_bps = queues[below].min_rate_bps or 0
        children.append((weight, below))
        least_bps += of_child_bps
    if random.below(3) > 0:
        return replace(node, children=children), least_bps
    least_bps += more_bps
    return replace(node, children=children, min_rate_bps=least_bps), least_bps


def with_paced(random: Random, tree: NodeConfig) -> NodeConfig:
    """The tree with the held packets in one of its nodes."""
    children = list(tree.children)
    nodes = [at for at, (_, below) in enumerate(children) if isinstance(below, NodeConfig)]
    if nodes and random.below(2) == 0:
        at = random.choice(nodes)
        weight, below = children[at]
        assert isinstance(below, NodeConfig)
        children[at] = (weight, with_paced(random, below))
    else:
        weight = random.choice([1, 2, 8])
        children.insert(random.below(len(children) + 1), (weight, PACED))
    return replace(tree, children=children)


def random_node(
    random: Random, queues: list[int], rate_bps: int, nodes: Iterator[int], depth: int = 1
) -> NodeConfig:
    """A node over some queues; a third of the nodes have a rate. ``nodes``: as many more."""
    children: list[tuple[int, int | NodeConfig]] = []
    left = list(queues)
    while left:
        taken = left[: 1 + random.below(min(len(left), 5))]
        left = left[len(taken) :]
        weight = random.choice([1, 1, 2, 3, 8, 50])
        is_node = depth < 4 and (len(taken) > 1 or random.below(4) == 0)
        if is_node and next(nodes, None) is not None:
            children.append((weight, random_node(random, taken, rate_bps, nodes, depth + 1)))
        else:
            children.extend((weight, queue) for queue in taken)
    discipline = random.choice(DISCIPLINES)
    if random.below(3) > 0:
        return NodeConfig(discipline, children)
    burst_bytes = random.choice([0, 1_518, 20_000])
    return NodeConfig(discipline, children, rate_bps // 2, burst_bytes)


def random_aqm_case(name: str, kind: str, seed: int, packets: int) -> QueueCase:
    """Some queues with the algorithm; the load swings around that of the line."""
    random = Random(seed)
    rate_bps = random.choice(RATES_BPS.get(kind, [10_000_000, 100_000_000, GIGABIT]))
    count = random.choice([1, 1, 2, 3])
    # FQ-CoDel drops at its depth, too.
    depths_bytes = [20_000, 60_000, 1 << 30] if kind == "fqcodel" else [60_000, 1 << 30]
    depth_bytes = random.choice(depths_bytes)
    queues = [QueueConfig(depth_bytes, aqm=random_aqm(random, kind)) for _ in range(count)]
    arrivals: list[Packet] = []
    at_ns, load = 1_000, 1
    while len(arrivals) < packets:
        if random.below(100) == 0:
            load = random.choice([1, 4, 5, 6, 8])
            at_ns += random.choice([0, 0, 20_000_000, 400_000_000])
        length_bytes = random.choice(LENGTHS_BYTES[:-1])
        # DualPI2 needs ECT(0) and ECT(1).
        ecn, colour = random.below(4 if kind == "dualpi2" else 2), random.below(3)
        queue, flow = random.below(count), random.choice([random.below(3), random.below(1 << 32)])
        arrivals.append(Packet(len(arrivals), at_ns, queue, length_bytes, ecn, colour, flow))
        # A load of 4 is the line's.
        line_ns = (length_bytes + 24) * 8 * 1_000_000_000 // rate_bps
        at_ns += random.below(2 * line_ns * 4 // load)
    discipline = random.choice(DISCIPLINES)
    weights = [] if discipline == "strict" else [random.choice([1, 2, 5]) for _ in queues]
    return QueueCase(name, rate_bps, "wire", discipline, weights, queues, arrivals)


def random_aqm(random: Random, kind: str) -> AqmConfig:
    """Settings that have effects within some hundred packets, too."""
    ecn = random.below(2) == 1
    if kind == "codel":
        target_ns = random.choice([50_000, 500_000, 5_000_000])
        interval_ns = random.choice([1, 10, 100]) * 1_000_000
        # A target above the interval is refused.
        return CodelConfig(target_ns, max(interval_ns, target_ns), ecn)
    if kind == "fqcodel":
        codel = CodelConfig(
            random.choice([50_000, 500_000]), random.choice([1, 10]) * 1_000_000, ecn
        )
        flows, quantum_bytes = random.choice([1, 4, 1_024]), random.choice([300, 1_514])
        return FqCodelConfig(codel, flows, quantum_bytes, random.choice([20, 10_240]))
    if kind == "pie":
        return PieConfig(random.choice([1_000_000, 15_000_000]), ecn)
    if kind == "dualpi2":
        target_ns = random.choice([1_000_000, 15_000_000, 100_000_000])
        return DualPi2Config(target_ns)
    least, maxp = random.choice([3_000, 15_000]), random.choice([10_000, 100_000, 1_000_000])
    profiles = (
        (least, 3 * least, maxp),
        (least // 2, 2 * least, maxp),
        (least // 3, least, maxp),
    )
    packet_ns = random.choice([1_000, 12_304])
    return RedConfig(profiles, random.choice([2, 5, 9]), packet_ns, ecn)


def random_queue_case(name: str, discipline: Discipline, seed: int, packets: int) -> QueueCase:
    """Bursts for a few queues, at a load from idle to overload."""
    random = Random(seed)
    rate_bps = random.choice([GIGABIT, GIGABIT, 100_000_000, 7_300_000_000, None])
    count = random.choice([1, 2, 3, 4, 8, 64])
    weights = [random.choice([1, 1, 2, 3, 8, 50]) for _ in range(count)]
    queues = [random_queue(random, rate_bps or GIGABIT) for _ in range(count)]
    pause_ns = random.choice([500, 4_000, 12_000, 40_000]) * GIGABIT // (rate_bps or GIGABIT)
    arrivals: list[Packet] = []
    at_ns = 1_000
    while len(arrivals) < packets:
        burst, queue = random.choice([1, 1, 2, 12]), random.below(count)
        if random.below(200) == 0:
            queue = count
        for _ in range(min(burst, packets - len(arrivals))):
            length_bytes = random.choice(LENGTHS_BYTES)
            arrivals.append(Packet(len(arrivals), at_ns, queue, length_bytes))
            at_ns += random.choice([0, 0, 700])
        at_ns += random.below(2 * burst * pause_ns)
    counts: Literal["layer2", "wire"] = random.choice(["layer2", "wire"])
    with_weights = [] if discipline == "strict" else weights
    return QueueCase(name, rate_bps, counts, discipline, with_weights, queues, arrivals)


def random_switch_case(name: str, seed: int, packets: int) -> SwitchCase:
    """A few ports with any scheduler; their queues share a buffer that overflows."""
    random = Random(seed)
    ports: list[QueueCase] = []
    count = 2 + random.below(3)
    for at in range(count):
        kind = random.choice([*DISCIPLINES, "tree"])
        case = random_case(f"{name}-{at}", kind, random.below(1 << 32), packets // count)
        queues = [
            replace(queue, buffer_share_ppm=random.choice([None, None, 125_000, 2_000_000]))
            for queue in case.queues
        ]
        ports.append(replace(case, queues=queues, buffer_bytes=None))
    return SwitchCase(name, random.choice([20_000, 60_000, 100_000]), ports)


def random_queue(random: Random, rate_bps: int) -> QueueConfig:
    """Depths that overflow now and then; a third of the queues have a rate."""
    depth_bytes = random.choice([10_000, 60_000, 1_518_000])
    depth_packets = random.choice([None, None, 5, 30])
    kind = random.below(6)
    if kind == 0:
        rate_pps = random.choice([1_000, 33_333, 1_000_000_000])
        return QueueConfig(depth_bytes, depth_packets, rate_pps=rate_pps)
    if kind == 1:
        burst_bytes = random.choice([0, 1_518, 20_000])
        return QueueConfig(depth_bytes, depth_packets, rate_bps // 7, burst_bytes)
    return QueueConfig(depth_bytes, depth_packets)


def queue_cases() -> Iterator[QueueCase]:
    """The committed cases."""
    for kind in (*DISCIPLINES, "tree"):
        for seed in (1, 2):
            yield random_case(f"{kind}-{seed}", kind, seed, 60)
    for kind, seed, packets in SEEDS:
        yield random_case(f"{kind}-{seed}", kind, seed, packets)


def random_texts(seeds: Iterable[int], packets: int) -> Iterator[tuple[str, str]]:
    """Names and contents of a random case of each kind for each seed."""
    for seed in seeds:
        for kind in KINDS:
            case = random_case(f"{kind}-{seed}", kind, seed, packets)
            yield case.name, queue_vector_text(case)
        shared = random_switch_case(f"shared-{seed}", seed, packets)
        yield shared.name, switch_vector_text(shared)


def switch_cases() -> Iterator[SwitchCase]:
    """The committed cases of ports that share a buffer."""
    for seed in (1, 2):
        yield random_switch_case(f"shared-{seed}", seed, 120)


def write(folder: Path, texts: Iterator[tuple[str, str]]) -> None:
    """Writes files with these names and contents in place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    written = 0
    for name, text in texts:
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        written += 1
    print(f"{written} files in {folder}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write the vectors of egress queues.")
    parser.add_argument("--out", type=Path, default=QUEUES_DIR, help="directory to write to")
    parser.add_argument("--random", type=int, metavar="COUNT", help="only COUNT random cases")
    parser.add_argument("--packets", type=int, default=1_000, help="of a random case")
    parser.add_argument("--seed", type=int, default=1_000, help="of the first random case")
    args = parser.parse_args()
    if args.random is None:
        write(args.out, ((case.name, queue_vector_text(case)) for case in queue_cases()))
        shared = ((case.name, switch_vector_text(case)) for case in switch_cases())
        write(args.out.parent / SWITCH_BUFFER_DIR.name, shared)
        return
    if args.out.resolve() == QUEUES_DIR:
        parser.error("--random needs an --out of its own")
    write(args.out, random_texts(range(args.seed, args.seed + args.random), args.packets))


if __name__ == "__main__":
    main()

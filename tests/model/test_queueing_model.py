"""The model of egress queues against what its papers promise, and against hand-computed cases."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal

import pytest

from make_queue_vectors import (
    QUEUES_DIR,
    SWITCH_BUFFER_DIR,
    QueueCase,
    SwitchCase,
    queue_cases,
    queue_vector_text,
    random_queue_case,
    switch_cases,
    switch_vector_text,
)
from make_vectors import Random
from pacing_model import ceil_ns, q24, time_per_byte_q24
from queueing_model import (
    FRAME_BYTES,
    PACED,
    Hold,
    NodeConfig,
    Packet,
    Port,
    QueueConfig,
    SwitchBuffer,
    flat,
    run_together,
)

DEEP = QueueConfig(1 << 40)
GIGABIT = 1_000_000_000
CASES = list(queue_cases())
SWITCH_CASES = list(switch_cases())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_file_is_fresh(case: QueueCase) -> None:
    committed = (QUEUES_DIR / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == queue_vector_text(case), "run tests/model/make_queue_vectors.py"


@pytest.mark.parametrize("case", SWITCH_CASES, ids=[case.name for case in SWITCH_CASES])
def test_file_of_several_ports_is_fresh(case: SwitchCase) -> None:
    committed = (SWITCH_BUFFER_DIR / f"{case.name}.json").read_text(encoding="utf-8")
    assert committed == switch_vector_text(case), "run tests/model/make_queue_vectors.py"
    assert '"switch-buffer"]' in committed


def test_no_other_files() -> None:
    assert {path.stem for path in QUEUES_DIR.glob("*.json")} == {case.name for case in CASES}
    shared = {path.stem for path in SWITCH_BUFFER_DIR.glob("*.json")}
    assert shared == {case.name for case in SWITCH_CASES}


def test_ports_share_a_buffer_by_hand() -> None:
    """Of 60 frames: the first queue holds half, the one of another port half of the rest.

    Each line starts one frame at once and one at 12,304 ns. Then 17 frames are free, and the second
    queue takes two more.
    """
    buffer = SwitchBuffer(60 * 1_518)
    ports = [Port([DEEP], flat("strict", 1, []), GIGABIT, switch_buffer=buffer) for _ in range(2)]
    burst = [Packet(number, 0, 0, 1_514) for number in range(40)]
    again = [Packet(number, 13_000, 0, 1_514) for number in range(40, 45)]
    run_together(ports, [burst, [*burst, *again]])
    assert [len(port.starts) for port in ports] == [31, 18]
    assert {drop.cause for port in ports for drop in port.drops} == {"switch-buffer"}


def test_strict_by_hand() -> None:
    """A frame of 1514 bytes takes 12,304 ns. The last packet comes too late to be the second."""
    port = Port([DEEP, DEEP], flat("strict", 2, []), GIGABIT)
    port.run(
        Packet(number, at_ns, queue, 1_514)
        for number, (at_ns, queue) in enumerate([(0, 0), (0, 0), (0, 1), (12_305, 1)])
    )
    starts = [(start.number, start.start_ns) for start in port.starts]
    assert starts == [(0, 0), (2, 12_304), (3, 24_608), (1, 36_912)]


def test_drr_by_hand() -> None:
    """Weights 4 and 2: after the first frame two of queue 1, then four of queue 0, and so on."""
    port = Port([DEEP, DEEP], flat("drr", 2, [4, 2]), GIGABIT)
    port.run(Packet(number, 0, number % 2, 1_514) for number in range(16))
    order = "".join(str(start.number % 2) for start in port.starts)
    assert order == "0" + "11" + "0000" + "11" + "000" + "1111"


def test_wfq_by_hand() -> None:
    """Weights 4 and 2: interleaved."""
    port = Port([DEEP, DEEP], flat("wfq", 2, [4, 2]), GIGABIT)
    port.run(Packet(number, 0, number % 2, 1_514) for number in range(16))
    order = "".join(str(start.number % 2) for start in port.starts)
    assert order == "010010010010" + "1111"


def test_strict_is_never_inverted() -> None:
    """No packet starts while one of a higher queue waits, which could."""
    for seed in range(20):
        case = random_queue_case("strict", "strict", seed, 300)
        case = replace(case, queues=[DEEP for _ in case.queues])
        starts = case.run().starts
        order = {start.number: place for place, start in enumerate(starts)}
        for start in starts:
            packet = case.packets[start.number]
            higher = (other for other in case.packets if other.queue > packet.queue)
            assert not any(
                other.at_ns < start.start_ns and order.get(other.number, -1) > order[packet.number]
                for other in higher
            )


HELD_IN_TREE = [
    (NodeConfig("strict", [(1, 1), (1, PACED), (1, 0)]), [0, 3, 4, 2, 1]),
    (NodeConfig("strict", [(1, 1), (1, 0)]), [0, 2, 3, 4, 1]),
    (NodeConfig("strict", [(1, 1), (1, 0), (1, PACED)]), [0, 3, 4, 1, 2]),
]


@pytest.mark.parametrize(("tree", "order"), HELD_IN_TREE, ids=["between", "default", "last"])
def test_held_packets_go_where_they_are_placed(tree: NodeConfig, order: list[int]) -> None:
    """Packet 2 is due while packet 0 is on the line; 3 and 4 are of the higher queue."""
    hold = Hold(class_id=0, departure_ns=100, cost_q24=0, allowance_ns=0)
    packets = [
        Packet(0, 0, 0, 1_514),
        Packet(1, 0, 0, 1_514),
        Packet(2, 0, 0, 1_514, hold=hold),
        Packet(3, 0, 1, 1_514),
        Packet(4, 0, 1, 1_514),
    ]
    port = Port([DEEP, DEEP], tree, GIGABIT)
    port.run(packets)
    assert [start.number for start in port.starts] == order
    assert [start.start_ns for start in port.starts] == [place * 12_304 for place in range(5)]


@pytest.mark.parametrize("discipline", ["drr", "wfq"])
def test_held_packets_have_their_share(discipline: Literal["drr", "wfq"]) -> None:
    """A class of the line's rate has the share of its place, one of a tenth of it its rate."""
    byte_q24 = time_per_byte_q24(GIGABIT)
    tree = NodeConfig(discipline, [(3, PACED), (1, 0)])
    for slower, share in [(1, Fraction(3, 4)), (10, Fraction(1, 10))]:
        cost_q24 = 1_538 * byte_q24 * slower
        packets = [Packet(number, 0, 0, 1_514) for number in range(400)]
        for number in range(400, 800):
            departure_ns = ceil_ns((number - 400) * cost_q24)
            hold = Hold(0, departure_ns, cost_q24, 1_000_000_000)
            packets.append(Packet(number, 0, 0, 1_514, hold=hold))
        port = Port([DEEP], tree, GIGABIT)
        port.run(packets)
        held = sum(start.number >= 400 for start in port.starts[:200])
        assert abs(Fraction(held, 200) - share) <= Fraction(3, 200)


class FluidServer:
    """GPS (Parekh and Gallager, 1993) in exact fractions: bytes served of each queue over time."""

    def __init__(self, weights: list[int], byte_q24: int) -> None:
        self.weights, self.byte_q24 = weights, byte_q24
        self.now = Fraction(0)
        self.backlog = [Fraction(0) for _ in weights]
        self.served = [Fraction(0) for _ in weights]

    def run_until(self, at_q24: int) -> None:
        """Serves all queues that have bytes, by weight."""
        until = Fraction(at_q24)
        while self.now < until:
            busy = [queue for queue, left in enumerate(self.backlog) if left > 0]
            if not busy:
                self.now = until
                return
            share = sum(self.weights[queue] for queue in busy)
            bytes_each = min(self.backlog[queue] / self.weights[queue] for queue in busy)
            time = min(bytes_each * share * self.byte_q24, until - self.now)
            for queue in busy:
                served = time / self.byte_q24 * self.weights[queue] / share
                self.served[queue] += served
                self.backlog[queue] -= served
            self.now += time


def furthest_from_fluid(tree: NodeConfig, weights: list[int], seed: int) -> Fraction:
    """The most bytes that a queue is ahead of its fluid share, or behind, at the end of a frame."""
    random = Random(seed)
    packets: list[Packet] = []
    at_ns = 0
    while len(packets) < 150:
        queue, burst = random.below(len(weights)), random.choice([1, 1, 2, 8])
        for _ in range(burst):
            length_bytes = random.choice([60, 500, 1_514])
            packets.append(Packet(len(packets), at_ns, queue, length_bytes))
        at_ns += random.below(burst * random.choice([4_000, 12_000, 20_000]))
    # The line counts as depths do, so that bytes are bytes.
    port = Port([DEEP for _ in weights], tree, GIGABIT, line_overhead_bytes=4)
    port.run(packets)
    byte_q24 = time_per_byte_q24(GIGABIT)
    fluid, sent = FluidServer(weights, byte_q24), [0 for _ in weights]
    arrivals = list(packets)
    furthest = Fraction(0)
    for start in port.starts:
        packet = packets[start.number]
        # A frame of whole bytes at 1 Gbit/s takes whole nanoseconds.
        end_q24 = q24(start.start_ns) + packet.frame_bytes * byte_q24
        while arrivals and q24(arrivals[0].at_ns) <= end_q24:
            arrival = arrivals.pop(0)
            fluid.run_until(q24(arrival.at_ns))
            fluid.backlog[arrival.queue] += arrival.frame_bytes
        fluid.run_until(end_q24)
        sent[packet.queue] += packet.frame_bytes
        distances = (abs(fluid.served[queue] - sent[queue]) for queue in range(len(weights)))
        furthest = max(furthest, *distances)
    return furthest


WEIGHTS = [[1, 1], [8, 1, 1, 2], [4, 2, 1], [1, 50], [3, 1, 1, 1, 1, 1, 1, 7]]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_wfq_is_within_one_frame_of_the_fluid_share(weights: list[int]) -> None:
    for seed in range(1, 16):
        furthest = furthest_from_fluid(flat("wfq", len(weights), weights), weights, seed)
        assert furthest <= FRAME_BYTES, seed


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_drr_is_within_its_round_of_the_fluid_share(weights: list[int]) -> None:
    """DRR serves a queue's quantum at once, so it is further off: by a round at most."""
    for seed in range(1, 16):
        furthest = furthest_from_fluid(flat("drr", len(weights), weights), weights, seed)
        assert furthest <= (sum(weights) + 1) * FRAME_BYTES, seed

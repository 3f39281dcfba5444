"""The queue of many paced flows in front of one bottleneck, on pacing_switch in virtual time.

N flows of equal rate share a bottleneck of rate R, so each has R/N. They differ in how their
packets lie to each other:

- in phase: each flow has a line of its own, and all begin at once;
- in phase, one line: the same through one port of 1 Gbit/s, which sends one packet at a time;
- random phase: lines of their own; each begins at a random time within its spacing;
- begun a slot apart: lines of their own; flow k of N begins k/N of its spacing later;
- one line as fast: one port, whose line is as fast as the bottleneck, sends the classes' packets;
- slots at the edge: lines of their own, begun as in random phase; the class of flow k has
  slot k of a cycle of N;
- one class: all flows are one class of rate R, on a port of 1 Gbit/s.

Two switches in a row: pacer.p4 spaces the packets, and what it sends is the input of gtrcnet.p4,
whose port is the bottleneck. The queue is that of a virtual bottleneck, exact: it counts the
packet that arrives and the one on the line. The FIFO is what the bottleneck's own port held at
most: it counts packets that wait.

    aggregation.py FILE.json
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))

from pacer_entries import (
    EXPERIMENTAL_ETHER_TYPE,
    MTU_FRAME_BYTES,
    class_in_slot,
    flow_by_ether_type,
    paced_class,
    station,
)
from pacing_switch import TimedFrame
from virtual_switch import Port, VirtualRun, run, statistics

NS_PER_S = 1_000_000_000
FCS_BYTES = 4
RATE_BPS = 500_000_000
FLOWS = (2, 4, 8, 16, 32, 64)
PACKETS = 20
"""Packets of each flow. Its phase is constant, so more packets show the same."""
SEEDS = tuple(range(1, 21))
BEGIN_NS = 1_000
BOTTLENECK_PORT = 100
SLOT_NS = MTU_FRAME_BYTES * 8 * NS_PER_S // RATE_BPS
"""A packet's time at the bottleneck, which is whole nanoseconds."""


@dataclass(frozen=True)
class Arrangement:
    """How N flows come to the bottleneck.

    Attributes:
        title: for people.
        begin_ns: the arrival of each flow's packets at the edge, by number of flows and seed.
        line: setting of each port of the edge.
        own_lines: whether each flow has a port of its own.
        one_class: whether all flows are one class.
        in_slots: whether each class has a slot of the edge's cycle.
        seeds: the seeds of its runs.
        bound: packets in the queue at most, by number of flows; None: nothing below N is sure.

    """

    title: str
    begin_ns: Callable[[int, int], list[int]]
    line: str
    own_lines: bool
    one_class: bool = False
    in_slots: bool = False
    seeds: Sequence[int] = (1,)
    bound: Callable[[int], Fraction] = Fraction


def spacing_ns(flows: int) -> Fraction:
    """Return the time from a packet of a flow to its next one."""
    return Fraction(MTU_FRAME_BYTES * 8 * NS_PER_S * flows, RATE_BPS)


def _together(flows: int, _seed: int) -> list[int]:
    return [BEGIN_NS] * flows


def _random(flows: int, seed: int) -> list[int]:
    drawn = random.Random(1_000 * flows + seed)
    return [BEGIN_NS + drawn.randrange(int(spacing_ns(flows))) for _ in range(flows)]


def _slots(flows: int, _seed: int) -> list[int]:
    return [BEGIN_NS + int(spacing_ns(flows) * number / flows) for number in range(flows)]


def _through_one_line(flows: int) -> Fraction:
    """Return the bound for packets that come back to back at 1 Gbit/s, 20 bytes apart."""
    drained = Fraction((MTU_FRAME_BYTES + 20) * RATE_BPS, MTU_FRAME_BYTES * NS_PER_S)
    return 1 + (flows - 1) * (1 - drained)


def _one(_flows: int) -> Fraction:
    return Fraction(1)


GIGABIT = "rate=1gbit,counts=wire,fifo=64MB"
AS_FAST = f"rate={RATE_BPS},counts=layer2,fifo=64MB"

ARRANGEMENTS = (
    Arrangement("in phase", _together, GIGABIT, own_lines=True),
    Arrangement(
        *("in phase, one line", _together, GIGABIT), own_lines=False, bound=_through_one_line
    ),
    Arrangement("random phase", _random, GIGABIT, own_lines=True, seeds=SEEDS),
    Arrangement("begun a slot apart", _slots, GIGABIT, own_lines=True, bound=_one),
    Arrangement("one line as fast", _together, AS_FAST, own_lines=False, bound=_one),
    Arrangement(
        *("slots at the edge", _random, GIGABIT),
        own_lines=True,
        in_slots=True,
        seeds=SEEDS,
        bound=_one,
    ),
    Arrangement("one class", _together, GIGABIT, own_lines=False, one_class=True, bound=_one),
)


def _sender(flow: int) -> str:
    return f"02:00:00:00:01:{flow:02x}"


def _receiver(flow: int) -> str:
    return f"02:00:00:00:02:{flow:02x}"


def _frame(flow: int, class_id: int) -> bytes:
    addresses = (_receiver(flow) + _sender(flow)).replace(":", "")
    header = bytes.fromhex(addresses) + (EXPERIMENTAL_ETHER_TYPE + class_id).to_bytes(2, "big")
    return header.ljust(MTU_FRAME_BYTES - FCS_BYTES, b"\0")


def from_edge(arrangement: Arrangement, flows: int, seed: int) -> dict[int, list[TimedFrame]]:
    """Return the frames that each port of the edge sends; its first port has number 1."""
    begin_ns = arrangement.begin_ns(flows, seed)
    classes = [1 if arrangement.one_class else number + 1 for number in range(flows)]
    first_out = flows + 1
    lines = flows if arrangement.own_lines else 1
    outs = [first_out + number % lines for number in range(flows)]
    rate_bps = RATE_BPS if arrangement.one_class else RATE_BPS // flows
    entries: list[dict[str, object]] = []
    for class_id in sorted(set(classes)):
        paced = paced_class(class_id, rate_bps)
        if arrangement.in_slots:
            paced = class_in_slot(class_id, rate_bps, SLOT_NS * flows, SLOT_NS * class_id)
        entries += [paced, flow_by_ether_type(class_id)]
    for number, out in enumerate(outs):
        entries += station(_sender(number), number + 1) + station(_receiver(number), out)
    arrivals = {
        number + 1: [TimedFrame(at_ns, _frame(number, class_id))] * PACKETS
        for number, (at_ns, class_id) in enumerate(zip(begin_ns, classes, strict=True))
    }
    ports = [Port(number) for number in arrivals]
    ports += [Port(out, arrangement.line) for out in sorted(set(outs))]
    with tempfile.TemporaryDirectory() as scratch:
        sent = run(
            VirtualRun(ports=ports, arrivals=arrivals, runtime={"table_entries": entries}),
            Path(scratch),
        )
    return {number: sent[out] for number, out in enumerate(sorted(set(outs)), start=1)}


def fifo_max_bytes(arrivals: dict[int, list[TimedFrame]]) -> int:
    """Return the most bytes that waited at the bottleneck, which loses none."""
    entries = [
        {
            "table": "GtrcnetIngress.wire",
            "match": {"ingress_port": number},
            "action_name": "GtrcnetIngress.send_to",
            "action_params": {"port": BOTTLENECK_PORT},
        }
        for number in arrivals
    ]
    bottleneck = Port(BOTTLENECK_PORT, f"rate={RATE_BPS},counts=layer2,fifo=64MB")
    with tempfile.TemporaryDirectory() as scratch:
        sent = run(
            VirtualRun(
                ports=[*map(Port, arrivals), bottleneck],
                arrivals=arrivals,
                runtime={"table_entries": entries},
                program="gtrcnet",
            ),
            Path(scratch),
        )
        counted: dict[str, list[dict[str, int]]] = statistics(Path(scratch))  # type: ignore[assignment]
    if len(sent[BOTTLENECK_PORT]) != sum(map(len, arrivals.values())):
        raise SystemExit("the bottleneck lost packets")
    found = (port for port in counted["ports"] if port["port"] == BOTTLENECK_PORT)
    return next(found)["fifo_backlog_max_bytes"]


def queue_max(arrivals: dict[int, list[TimedFrame]]) -> Fraction:
    """Return the longest queue in front of a virtual bottleneck of rate R, in packets."""
    times = sorted(timed.at_ns for port in arrivals.values() for timed in port)
    queue = highest = Fraction(0)
    last = times[0]
    for at in times:
        drained = Fraction((at - last) * RATE_BPS, 8 * NS_PER_S)
        queue = max(Fraction(0), queue - drained) + MTU_FRAME_BYTES
        highest = max(highest, queue)
        last = at
    return highest / MTU_FRAME_BYTES


def measure() -> list[dict[str, object]]:
    """Return a row for each arrangement and number of flows."""
    rows: list[dict[str, object]] = []
    for arrangement in ARRANGEMENTS:
        for flows in FLOWS:
            sent = [from_edge(arrangement, flows, seed) for seed in arrangement.seeds]
            sent.sort(key=queue_max)
            queues = list(map(queue_max, sent))
            rows.append(
                {
                    "arrangement": arrangement.title,
                    "flows": flows,
                    "queue_max_packets": float(queues[-1]),
                    "queue_median_packets": float(queues[len(queues) // 2]),
                    "bound_packets": float(arrangement.bound(flows)),
                    "fifo_max_bytes": fifo_max_bytes(sent[-1]),
                }
            )
    return rows


def main(arguments: Sequence[str]) -> int:
    """Write all rows to the file of the arguments; return the exit status."""
    if len(arguments) != 1:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(
        json.dumps({"seeds": len(SEEDS), "rows": measure()}, indent=2) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

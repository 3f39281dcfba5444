"""Flows that meet at a bottleneck: the phases of their packets, and their common losses."""

import dataclasses

from pacer_mininet.experiments.experiment import (
    CHANCE_SEEDS,
    SAME_SEEDS,
    Cell,
    Experiment,
    many_flows,
)
from pacer_mininet.experiments.scenario import (
    DYNAMIC,
    FQ,
    PACED,
    PSPD,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
)
from pacer_mininet.published import KIB
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES

FLOWS = (2, 4, 8, 16, 32, 64)
RATE_BPS = 100_000_000
RTT_MS = 100
FIFO_BYTES = 32 * KIB
PATH_BYTES = RATE_BPS * RTT_MS // 8_000
SMALLEST_BUFFER_BYTES = 128 * KIB
MOST_WITH_SEEDS = 8
"""With more flows, one seed has losses enough."""

ONE_CLASS = dataclasses.replace(PACED, name="one class", together=True)
"""All flows behind the edge, at the bottleneck's rate."""

SLOT_NS = MTU_FRAME_BYTES * 8 * 1_000_000_000 // RATE_BPS
"""A full frame's time at the bottleneck, which is whole nanoseconds."""


def _in_slots(shaper: Shaper, flows: int) -> Shaper:
    """Return the shaper with all flows in one class, each in one of as many slots as flows."""
    slots = (("slots", flows), ("slot_ns", SLOT_NS))
    return dataclasses.replace(
        shaper,
        name=f"{shaper.name}, in slots",
        settings=(*shaper.settings, *slots),
        together=True,
    )


def _flows(shaper: Shaper, flows: int, *, spread: bool = False) -> tuple[Flow, ...]:
    """Return flows of one shaper; with `spread`, begun a part of a round trip apart."""
    share = 1 if shaper.together else flows
    made = (
        dataclasses.replace(one, shaper=shaper.at(1, share)) for one in many_flows(shaper, flows)
    )
    return tuple(
        dataclasses.replace(one, start_ms=RTT_MS * number // flows if spread else 0)
        for number, one in enumerate(made)
    )


def synchronised() -> Experiment:
    """Return the experiment on synchronised losses: 2 to 64 flows before a small FIFO."""
    cells = []
    for flows in FLOWS:
        columns = {
            "unpaced": _flows(UNPACED, flows),
            "PSPD": _flows(PSPD, flows),
            "dynamic": _flows(DYNAMIC, flows),
            "PSPD, in slots": _flows(_in_slots(PSPD, flows), flows),
            "dynamic, in slots": _flows(_in_slots(DYNAMIC, flows), flows),
            "PSPD, begun apart": _flows(PSPD, flows, spread=True),
            "fq": _flows(FQ, flows),
            "one class": _flows(ONE_CLASS, flows),
        }
        for column, made in columns.items():
            scenario = Scenario(
                made,
                seconds=12,
                rate_bps=RATE_BPS,
                rtt_ns=RTT_MS * MS,
                fifo_bytes=FIFO_BYTES,
                # All windows together can fill the path twice.
                socket_buffer_bytes=max(2 * PATH_BYTES // flows, SMALLEST_BUFFER_BYTES),
            )
            seeds = CHANCE_SEEDS if flows <= MOST_WITH_SEEDS else SAME_SEEDS
            cells.append(Cell(f"{flows} flows", column, scenario, seeds=seeds))
    return Experiment(
        name="synchronised",
        title="Synchronised loss: 2 to 64 flows, 100 Mbit/s, 100 ms, FIFO 32 KB",
        metrics=("together", "together_most", "losses", "lost", "edge_lost", "steady", "jain"),
        cells=tuple(cells),
        plots=("together",),
        differs=(
            "A flow that resends within one round-trip time of its last loss is in the same loss. "
            "Samples are 100 ms apart, one round-trip time.",
            "In slots, the edge spreads the phases: all flows are in one class, each in its own "
            "slot. A slot is the time of a full frame at the bottleneck. A flow's "
            "packets leave once in a cycle, as many as its pace allows.",
            "One class spaces every packet of all flows; with it the queue is at the edge.",
            "Flows that begin a part of a round trip apart show what phases alone do.",
        ),
    )


def aggregation() -> Experiment:
    """N paced flows in phase, in random phase and interleaved."""
    return Experiment(
        name="aggregation",
        title="Longest queue of N paced flows, 500 Mbit/s in all, in packets",
        metrics=(),
        virtual=True,
        plots=("aggregation",),
        differs=(
            "In phase and in random phase each flow has a line of its own, as hosts that pace "
            "themselves. On one line as fast as the bottleneck, a port of the edge sends the "
            "packets of classes in phase one at a time. "
            "One class spaces the packets of all flows, in the order in which they come.",
            "Flows begun a slot apart need hosts that know of each other. In slots at the edge, "
            "flows begin at the times of those in random phase, and each has a class of its own, "
            "with a slot.",
        ),
    )

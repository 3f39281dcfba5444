"""Cooperative parallel streams: flows of one transfer that share a rate and end together."""

import dataclasses

from pacer_mininet.experiments.experiment import CHANCE_SEEDS, Cell, Experiment
from pacer_mininet.experiments.scenario import (
    FQ,
    ONE_CLASS,
    PACED,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
)
from pacer_mininet.experiments.tokyo import BWC_BPS, BWC_BUFFER_BYTES, BWC_NODES, NODES_RTT_MS
from pacer_mininet.published import KIB
from pacer_mininet.traffic import MS

SECONDS = 90
"""Longer than any transfer takes."""

BWC_BYTES = 10_000_000
NODES = 16
NODE_STREAMS = 4
NODE_BYTES = 8_000_000

MARGIN_BYTES = 30_000
"""Twenty segments of a flow wait at the edge."""

SHARED = Shaper("shared", "class", (("mode", "shared"),), together=True)
SHARED_WINDOWS = dataclasses.replace(
    SHARED,
    name="shared, windows",
    settings=(*SHARED.settings, ("window_margin_bytes", MARGIN_BYTES)),
)


def _cells(row: str, nodes: int, streams: int, scenario: Scenario) -> tuple[Cell, ...]:
    """Return the cells of equal transfers, `streams` from each node."""
    (model,) = scenario.flows
    each = [shaper.at(1, nodes * streams) for shaper in (PACED, FQ)]
    cells = []
    for shaper in (UNPACED, *each, ONE_CLASS, SHARED, SHARED_WINDOWS):
        flows = tuple(
            # A flow for each stream, so that each is measured.
            dataclasses.replace(model, shaper=shaper, sender=number)
            for number in range(1, nodes + 1)
            for _ in range(streams)
        )
        run = dataclasses.replace(scenario, flows=flows)
        cells.append(Cell(row, shaper.name, run, seeds=CHANCE_SEEDS))
    return tuple(cells)


def cooperative() -> Experiment:
    """Equal transfers over 24 x 2 and 16 x 4 streams, each by itself and sharing a rate."""
    bwc = Scenario(
        (Flow(congestion_control="reno", payload_bytes=BWC_BYTES),),
        seconds=SECONDS,
        rate_bps=BWC_BPS,
        fifo_bytes=256 * KIB,
        socket_buffer_bytes=BWC_BUFFER_BYTES,
    )
    nearest_ms = min(NODES_RTT_MS)
    rtts_ms = NODES_RTT_MS * (NODES // len(NODES_RTT_MS))
    far = Scenario(
        (Flow(payload_bytes=NODE_BYTES),),
        seconds=SECONDS,
        rtt_ns=nearest_ms * MS,
        extra_rtt_ns=tuple((rtt_ms - nearest_ms) * MS for rtt_ms in rtts_ms),
        fifo_bytes=256 * KIB,
        socket_buffer_bytes=BWC_BUFFER_BYTES,
    )
    return Experiment(
        name="cooperative",
        title="Cooperative parallel streams: equal transfers that share a rate",
        metrics=("lost", "edge_lost", "done", "completion", "apart", "jain_done"),
        cells=(
            *_cells("24 nodes x 2 streams of 10 MB", BWC_NODES, 2, bwc),
            *_cells("16 nodes x 4 streams of 8 MB", NODES, NODE_STREAMS, far),
        ),
        plots=("flows",),
        differs=(
            "Data Reservoir's hosts coordinated their streams; here the edge does, in mode "
            "`shared`. The paths are those of `bwc2002`, and of `parallel` with all 16 nodes.",
        ),
    )

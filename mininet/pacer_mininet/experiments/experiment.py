"""Defines an experiment: runs, their places in a table, and the published figures beside them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pacer_mininet.experiments.scenario import UNPACED, Flow, Scenario, Shaper
from pacer_mininet.traffic import MTU_FRAME_BYTES

SECONDS, LONG_SECONDS, FAR_SECONDS = 16, 24, 12
"""Lengths of runs. They have room for slow start (two seconds where packets are paced) and a steady
state."""

QUICK_SECONDS = 3
QUICK_CELLS = 3
QUICK_FLOWS = 8
QUICK_FIFO_FRAMES = 12
"""The minimum: fq sends the first ten packets of a flow at once."""

CHANCE_SEEDS = (1, 2, 3)
"""Seeds of runs whose outcome depends on the lost packet."""

WIRE_SEEDS = tuple(range(1, 10))
"""Seeds of runs in which one packet lost on the wire decides how a flow continues."""

SAME_SEEDS = (1,)
"""The seed of runs without chance, in which every seed gives the same."""


@dataclass(frozen=True)
class Cell:
    """A cell of an experiment's table, and the runs whose median it shows.

    Attributes:
        row: title of the row.
        column: title of the column.
        scenario: the run, with seed 1.
        published: the published figures by metric, in the metric's unit.
        doubts: by metric, why a published figure is doubtful, in a word or two.
        seeds: the seeds of its runs; empty: as many as the spread of its runs requires.
        extra: whether it is only for orientation; then `seeds` is one seed, unless given.

    """

    row: str
    column: str
    scenario: Scenario
    published: Mapping[str, float] = field(default_factory=dict)
    extra: bool = False
    doubts: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    def runs(self) -> list[Scenario]:
        """Return the runs, one for each seed; only the first measures bandwidth in 500 us."""
        flows = self.scenario.flows
        # With several flows of unbounded windows, chance decides which flow loses a packet.
        unbounded = any(flow.shaper.kind == UNPACED.kind or flow.shaper.follows for flow in flows)
        several = len(flows) > 1 or flows[0].streams > 1
        chance = self.scenario.loss_ppm > 0 or (unbounded and several)
        seeds = self.seeds or SAME_SEEDS
        if chance and not self.extra and not self.seeds:
            seeds = WIRE_SEEDS if self.scenario.loss_ppm and unbounded else CHANCE_SEEDS
        bins = self.scenario.bins
        return [
            dataclasses.replace(self.scenario, seed=seed, bins=bins and seed == seeds[0])
            for seed in seeds
        ]


@dataclass(frozen=True)
class Experiment:
    """A published table or figure, or one without a published counterpart.

    Attributes:
        name: `make experiment-NAME`.
        title: for people.
        metrics: the figures in its table, keys of metrics.METRICS.
        cells: its runs.
        reproduces: the published tables and figures beside it, as named in catalogue.PUBLISHED;
            empty: without a published counterpart.
        source: the publication of these.
        plots: the plots to draw, as keys of plots.
        conditions: the published ones, keys of conditions.CONDITIONS.
        differs: sentences on how the published runs differed.
        virtual: whether it is one of the switch alone (see `virtual`), without cells.
        quick: whether its runs are scaled down.

    """

    name: str
    title: str
    metrics: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    reproduces: tuple[str, ...] = ()
    source: str = ""
    plots: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    virtual: bool = False
    quick: bool = False

    def name_of(self, cell: Cell, run: Scenario) -> str:
        """Return the name of a cell's run."""
        return f"{self.name} {cell.row}, {cell.column} #{run.seed}"

    def scaled_down(self) -> "Experiment":
        """Return a version that takes seconds: a fifth of the rates, half the RTT, fewer runs.

        It has at most three cells, of the first row, with one seed each: the first one, which the
        others are compared with, and classes before senders' own shapers. An experiment of the
        switch alone takes seconds at its full size, so it has this size.
        """
        if self.virtual:
            return self
        row = self.cells[:1] and [cell for cell in self.cells if cell.row == self.cells[0].row]
        others = sorted(row[1:], key=lambda cell: not any(map(_paced_at_edge, cell.scenario.flows)))
        kept = [*row[:1], *others][:QUICK_CELLS]
        cells = tuple(
            # Scaled-down figures do not compare with published ones.
            Cell(f"{cell.row}, scaled down", cell.column, _smaller(cell.scenario), extra=True)
            for cell in kept
        )
        # The sentences are about the full size.
        return dataclasses.replace(
            self, title=f"{self.title} (scaled down)", cells=cells, differs=(), quick=True
        )


def _paced_at_edge(flow: Flow) -> bool:
    return flow.shaper.kind not in (UNPACED.kind, "fq", "tbf")


def _on_path(shaper: Shaper, line_bps: int, held: Fraction) -> Shaper:
    """Return a shaper for a path that holds a fraction, `held`, of the original one.

    The controller refuses rates above the line's, so the class's own rate is at most that.
    """
    settings = dict(shaper.settings)
    if settings.get("rate") is not None:
        settings["rate"] = min(settings["rate"], line_bps)
    if "ecn_threshold_bytes" in settings:
        settings["ecn_threshold_bytes"] = int(settings["ecn_threshold_bytes"] * held)
    if "slot_ns" in settings:
        # A slot is a frame's time at the bottleneck. The RTT is halved, so `held` is half of the
        # rate's fraction.
        settings["slot_ns"] = int(settings["slot_ns"] / (2 * held))
    return dataclasses.replace(shaper, settings=tuple(settings.items()))


def _of_kept(shaper: Shaper, flows: int, kept: int) -> Shaper:
    """Return a shaper whose flows also get the shares of those that are removed."""
    if shaper.together:
        return shaper
    return shaper.at(shaper.share[0] * flows, shaper.share[1] * kept)


def _smaller(scenario: Scenario) -> Scenario:
    kept = scenario.flows[:QUICK_FLOWS]
    rate_bps = min(scenario.rate_bps // 5, 100_000_000)
    edge_rate_bps = min(scenario.edge_rate_bps // 5, 2 * rate_bps)
    held = Fraction(rate_bps, 2 * scenario.rate_bps)
    flows = tuple(
        dataclasses.replace(
            flow,
            shaper=_of_kept(
                _on_path(flow.shaper, edge_rate_bps, held), len(scenario.flows), len(kept)
            ),
            udp_bps=flow.udp_bps // 5,
            burst_frames=-(-flow.burst_frames // 10),
            payload_bytes=flow.payload_bytes // 10,
            start_ms=flow.start_ms // 5,
        )
        for flow in kept
    )
    senders = max(flow.sender for flow in flows)
    return dataclasses.replace(
        scenario,
        flows=flows,
        seconds=min(QUICK_SECONDS, scenario.seconds),
        rate_bps=rate_bps,
        vb_rate_bps=scenario.vb_rate_bps // 5,
        rate_steps=(),
        edge_rate_bps=edge_rate_bps,
        rtt_ns=scenario.rtt_ns // 2,
        extra_rtt_ns=tuple(ns // 2 for ns in scenario.extra_rtt_ns[:senders]),
        fifo_bytes=max(QUICK_FIFO_FRAMES * MTU_FRAME_BYTES, scenario.fifo_bytes // 10),
        socket_buffer_bytes=max(1_250_000, scenario.socket_buffer_bytes // 10),
    )


def one_flow(shaper: Shaper, congestion_control: str = "bic") -> tuple[Flow, ...]:
    """Return one TCP connection between two hosts."""
    return (Flow(shaper=shaper, congestion_control=congestion_control),)


def beside(
    row: str,
    shapers: Sequence[Shaper],
    flows_of: Callable[[Shaper], tuple[Flow, ...]],
    published: Mapping[str, Mapping[str, float]] | None = None,
    *,
    extra: bool = False,
    **path: Any,
) -> tuple[Cell, ...]:
    """Return a row of cells, one for each shaper, all over the same path.

    Args:
        row: title of the row.
        shapers: one for each column; their names are the titles.
        flows_of: returns the flows that a shaper spaces.
        published: published figures by the shaper's name.
        extra: see Cell.
        path: all other arguments of a Scenario.

    """
    known = published or {}
    return tuple(
        Cell(
            row, shaper.name, Scenario(flows_of(shaper), **path), known.get(shaper.name, {}), extra
        )
        for shaper in shapers
    )


def many_flows(
    shaper: Shaper, senders: int, *, streams: int = 1, congestion_control: str = "bic"
) -> tuple[Flow, ...]:
    """Return a flow from each of `senders` hosts to one receiver, with equal shares."""
    return tuple(
        Flow(
            shaper=shaper.at(1, senders),
            sender=number,
            congestion_control=congestion_control,
            streams=streams,
        )
        for number in range(1, senders + 1)
    )


def row_titles(cells: Sequence[Cell]) -> list[str]:
    """Return the titles of the rows, in order."""
    return list(dict.fromkeys(cell.row for cell in cells))


def column_titles(cells: Sequence[Cell]) -> list[str]:
    """Return the titles of the columns, in order."""
    return list(dict.fromkeys(cell.column for cell in cells))

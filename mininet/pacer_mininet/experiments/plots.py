"""Draws an experiment's plots: PNGs on a light ground, with equal bytes for equal data.

The plot of bandwidth follows Fig. 2.1 and 2.2 of PSPacer's home page. It has one panel for each
run: bandwidth at the entrance of the bottleneck in 500 us bins (red; of several bins, the highest),
its average over a longer time (blue), the bottleneck's rate, and marks where the bottleneck lost
packets. The files contain no date and no program version.
"""

import functools
import io
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, StrMethodFormatter

from pacer_mininet.experiments.experiment import (
    Cell,
    Experiment,
    column_titles,
    row_titles,
)
from pacer_mininet.experiments.findings import COMPARED_GAP
from pacer_mininet.experiments.metrics import medians_at_shared_seeds
from pacer_mininet.experiments.samples import SAMPLE_NS
from pacer_mininet.traffic import NS_PER_S, WINDOW_NS, ideal_goodput_bps, regroup

DPI = 160
PANELS = 4
COLOURS = (
    *("#dd5a62", "#1b3a8c", "#3b8f5a", "#c98a1b"),
    *("#7a4ea3", "#4d4d4d", "#0f9aa8", "#9ab82e"),
)
LINES = ("-", "--", ":", "-.")
SLOW_START_S = 5
FLOWS_DRAWN = 4
FLOW_STEP_NS, STACK_OVER_NS = 500_000_000, 400_000_000
LINE_NS = 200_000_000
BEFORE_LOSS_MS, AFTER_LOSS_MS = 1000, 4000
BARS = 1600
BAR_POINTS = 0.6
BAR_COLOUR, LINE_COLOUR = COLOURS[:2]
BOTTLENECK_COLOUR = "#2b2b2b"
DROP_COLOUR = "#111111"
QUEUE_COLOUR = "#9fb4d8"

STYLE: Any = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
}

Runs = Sequence[tuple[Cell, dict[str, Any]]]
"""Cells that have results, each with its first seed's."""


def draw(experiment: Experiment, runs: Runs) -> list[tuple[str, bytes]]:
    """Return the plots of an experiment as (title, PNG); none without results."""
    if not runs:
        return []
    made = []
    with mpl.rc_context(STYLE):
        for name in experiment.plots:
            if name in _PLOTS:
                title, make = _PLOTS[name]
                made.append((title, _png(make(runs))))
    return made


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def _figure(height: float) -> Figure:
    return Figure(figsize=(8.4, height), layout="constrained")


def _of_first_row(runs: Runs) -> Runs:
    """Return the runs of the first row; more do not fit in a plot of single runs."""
    return [(cell, result) for cell, result in runs if cell.row == runs[0][0].row]


def _bandwidth(
    runs: Runs, line_ns: int = LINE_NS, seconds: int = 0, *, queues: bool = False
) -> Figure:
    """Draw a panel of bandwidth for each run, for its first `seconds` or all of it.

    With `queues`, a panel of the queue in front of the bottleneck stands below each.
    """
    shown = _of_first_row(runs)[:PANELS]
    heights = (1.6, 0.75) if queues else (2.1,)
    figure = _figure(0.8 + sum(heights) * len(shown))
    panels = figure.subplots(
        len(heights) * len(shown), 1, sharex=True, squeeze=False, height_ratios=heights * len(shown)
    )[:, 0]
    for axes, (cell, result) in zip(panels[:: len(heights)], shown, strict=True):
        _bandwidth_panel(axes, cell, result, line_ns)
        axes.set_ylim(0, max(_top_mbps(cell, result) for cell, result in shown))
    if queues:
        top_bytes = max(max(result["series"]["window_vb_max_bytes"]) for _, result in shown)
        for axes, (cell, result) in zip(panels[1::2], shown, strict=True):
            _queue_panel(axes, cell, result, top_bytes)
    panels[-1].set_xlim(0, seconds or shown[0][0].scenario.seconds)
    panels[-1].set_xlabel("time (s)")
    drawn = [panel.get_legend_handles_labels() for panel in panels[: len(heights)]]
    handles = [handle for found, _ in drawn for handle in found]
    labels = [label for _, found in drawn for label in found]
    columns = 3 if queues else 4
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=9)
    legend.get_lines()[0].set_linewidth(4)
    return figure


def _top_mbps(cell: Cell, result: dict[str, Any]) -> float:
    """Return the top of the axis: the sender's line or the highest bin, with room for marks."""
    series = result["series"]
    highest_bps = max(series["bin_bytes"], default=0) * 8 * NS_PER_S / series["bin_ns"]
    return float(max(highest_bps, cell.scenario.edge_rate_bps) / 1e6 * 1.08)


def _bandwidth_panel(axes: Axes, cell: Cell, result: dict[str, Any], line_ns: int) -> None:
    scenario, series = cell.scenario, result["series"]
    bin_ns, bins = series["bin_ns"], series["bin_bytes"]
    scale = 8 * NS_PER_S / bin_ns / 1e6
    # Bars are narrower than a pixel. The highest of those that share one is drawn.
    per_bar = max(1, len(bins) // BARS)
    bar_s = per_bar * bin_ns / NS_PER_S
    highest = [max(bins[at : at + per_bar]) * scale for at in range(0, len(bins), per_bar)]
    bars = [
        (((number + 0.5) * bar_s, 0.0), ((number + 0.5) * bar_s, top))
        for number, top in enumerate(highest)
        if top
    ]
    label = f"{bin_ns // 1000} us average"
    if per_bar > 1:
        label += f" (highest in {per_bar * bin_ns / 1e6:g} ms)"
    axes.add_collection(
        LineCollection(bars, colors=BAR_COLOUR, linewidths=BAR_POINTS, label=label, zorder=2)
    )
    size = line_ns // bin_ns
    averages = [total * scale / size for total in regroup(bins, size)]
    middles = [(number + 0.5) * line_ns / NS_PER_S for number in range(len(averages))]
    axes.plot(middles, averages, color="white", linewidth=3.2, zorder=3)
    label = f"{line_ns // 1_000_000} ms average"
    axes.plot(middles, averages, color=LINE_COLOUR, linewidth=1.6, label=label, zorder=4)
    axes.axhline(
        scenario.rate_bps / 1e6,
        color=BOTTLENECK_COLOUR,
        linewidth=0.9,
        linestyle=(0, (5, 3)),
        label="bottleneck",
        zorder=5,
    )
    _mark_losses(axes, cell, result)
    axes.set_ylabel("Mbit/s")
    if scenario.edge_rate_bps == 10**9:
        axes.yaxis.set_major_locator(MultipleLocator(250))
    axes.set_title(
        f"{cell.column}: {result['goodput_bps'] / 1e6:.1f} Mbit/s over the whole run, "
        f"{result['bottleneck_drops']:,} lost",
        loc="left",
    )


def _mark_losses(axes: Axes, cell: Cell, result: dict[str, Any]) -> None:
    """Mark the half seconds in which the bottleneck lost packets."""
    drops = result["series"]["bottleneck_drops"]
    steps = zip(drops["at_ms"], drops["packets"], [0, *drops["packets"]], strict=False)
    losses = [
        at_ms / 1e3
        for at_ms, packets, before in steps
        if packets > before and at_ms <= cell.scenario.seconds * 1000
    ]
    axes.plot(
        losses,
        [0.96] * len(losses),
        transform=axes.get_xaxis_transform(),
        linestyle="none",
        marker="v",
        markersize=5,
        color=DROP_COLOUR,
        label="packets lost",
        zorder=6,
    )


def _queue_panel(axes: Axes, cell: Cell, result: dict[str, Any], top_bytes: int) -> None:
    """Draw the largest queue in each 100 ms that an unbounded FIFO at the bottleneck would hold."""
    queues = [count / 1024 for count in result["series"]["window_vb_max_bytes"]]
    times = [(number + 0.5) * WINDOW_NS / NS_PER_S for number in range(len(queues))]
    label = "queue that the bursts need (largest in 100 ms)"
    axes.bar(times, queues, width=WINDOW_NS / NS_PER_S, color=QUEUE_COLOUR, label=label)
    axes.axhline(
        cell.scenario.fifo_bytes / 1024,
        color=BOTTLENECK_COLOUR,
        linewidth=0.9,
        linestyle=(0, (1, 2)),
        label="FIFO of the bottleneck",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(1, top_bytes / 1024 * 2)
    axes.set_ylabel("queue (KB)")


def _sender_line(
    axes: Axes, cell: Cell, result: dict[str, Any], column: str, color: str, scale: float = 1
) -> None:
    """Draw a value of the first sender over time."""
    sender = result["series"]["sender"]
    axes.plot(
        [at_ms / 1e3 for at_ms in sender["at_ms"]],
        [value / scale for value in sender[column]],
        color=color,
        linewidth=1.4,
        label=cell.column,
    )


def _of_sender(column: str, label: str, scale: float) -> Callable[[Runs], Figure]:
    def make(runs: Runs) -> Figure:
        figure = _figure(2.8)
        axes = figure.subplots()
        for number, (cell, result) in enumerate(_of_first_row(runs)[: len(COLOURS)]):
            _sender_line(axes, cell, result, column, COLOURS[number], scale)
        axes.set_xlabel("time (s)")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        # Outside of the axes, where it hides no line.
        figure.legend(loc="outside upper center", ncols=4, fontsize=9)
        return figure

    return make


def _windows(runs: Runs) -> Figure:
    """Draw the first seed's window with four spacings, a panel for each row that is no extra."""
    shown = [one for one in runs if one[0].column in ("unpaced", "PSPD", "dynamic", COMPARED_GAP)]
    shown = [(cell, result) for cell, result in shown if not cell.extra] or list(runs)
    rows = row_titles([cell for cell, _ in shown])
    figure = _figure(1.0 + 1.7 * len(rows))
    panels = figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        of_row = [(cell, result) for cell, result in shown if cell.row == row]
        for (cell, result), color in zip(of_row, COLOURS, strict=False):
            _sender_line(axes, cell, result, "cwnd_packets", color)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("packets")
        axes.set_title(row, loc="left")
    panels[-1].set_xlabel("time (s)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _by_row(runs: Runs, *, beside_published: bool) -> Figure:
    """Draw the median goodput of each row: a line for each column.

    With the published figures the axis begins at 0; without them it is logarithmic.
    """
    cells = [cell for cell, _ in runs]
    rows = row_titles(cells)
    # Rows behind the last one that is not extra are of other kinds: no line leads there.
    end = max((rows.index(cell.row) for cell in cells if not cell.extra), default=len(rows))
    figure = _figure(3.6 if beside_published else 3.8)
    axes = figure.subplots()
    for column, color in zip(column_titles(cells), COLOURS, strict=False):
        points = [
            (rows.index(cell.row), result["goodput_median_bps"] / 1e6, cell)
            for cell, result in runs
            if cell.column == column
        ]
        joined = [(x, y) for x, y, _ in points if x <= end]
        apart = [(x, y) for x, y, _ in points if x > end]
        axes.plot(*_axes_of(joined), marker="o", label=column, color=color)
        axes.plot(*_axes_of(apart), "o", color=color)
        if beside_published:
            paper = [(x, cell.published["goodput"]) for x, _, cell in points if cell.published]
            axes.plot(*_axes_of(paper), "x--", linewidth=0.8, color=color)
    axes.set_xticks(range(len(rows)), rows, rotation=20 if len(rows) > 6 else 0)
    if beside_published:
        axes.set_ylabel("goodput (Mbit/s); x: published")
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
        axes.set_ylabel("goodput, median (Mbit/s)")
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _axes_of(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _flows(runs: Runs) -> Figure:
    shown = _of_first_row(runs)
    figure = _figure(0.6 + 1.7 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    busy_until_s = 0.0
    for axes, (cell, result) in zip(panels, shown, strict=True):
        for number, counts in enumerate(result["series"]["flows"][:FLOWS_DRAWN]):
            times, rates = _rates_mbps(counts, cell.scenario.seconds, FLOW_STEP_NS, FLOW_STEP_NS)
            busy = (time for time, rate in zip(times, rates, strict=True) if rate > 0)
            busy_until_s = max(busy_until_s, *busy, 0.0)
            # Line styles differ, so that equal flows are visible on top of each other.
            axes.plot(
                *(times, rates, LINES[number % len(LINES)]),
                color=COLOURS[number],
                linewidth=1.3,
                label=f"{number + 1}",
            )
        axes.set_title(f"{cell.row}, {cell.column}", loc="left")
        axes.set_ylabel("Mbit/s")
    # All panels share the axis. An earlier limit would be that of the panels drawn until then.
    panels[-1].set_ylim(bottom=0)
    # Transfers end long before the run does.
    panels[-1].set_xlim(0, busy_until_s + 2 * FLOW_STEP_NS / NS_PER_S)
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    titles = [f"flow {label}" for label in labels]
    figure.legend(handles, titles, loc="outside upper center", ncols=len(titles), fontsize=9)
    return figure


def _first_flow(runs: Runs) -> Figure:
    """Draw the first flow's rate over time, a panel for each row and a line for each column."""
    rows = row_titles([cell for cell, _ in runs])
    figure = _figure(0.8 + 2.2 * len(rows))
    panels = figure.subplots(len(rows), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        here = [(cell, result) for cell, result in runs if cell.row == row]
        for number, (cell, result) in enumerate(here):
            counts = result["series"]["flows"][0]
            line = _rates_mbps(counts, cell.scenario.seconds, FLOW_STEP_NS, FLOW_STEP_NS)
            color = COLOURS[number % len(COLOURS)]
            axes.plot(*line, color=color, linewidth=1.3, label=cell.column)
        axes.set_title(row, loc="left")
        axes.set_ylabel("Mbit/s")
    panels[-1].set_ylim(bottom=0)
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _together(runs: Runs) -> Figure:
    """Draw which part of the flows lose together over their number, a line for each column."""
    figure = _figure(3.2)
    axes = figure.subplots()
    columns = column_titles([cell for cell, _ in runs])
    for number, column in enumerate(columns):
        here = [
            (len(cell.scenario.flows), result["losing_together"]["mean_percent"] or 0.0)
            for cell, result in runs
            if cell.column == column
        ]
        color = COLOURS[number % len(COLOURS)]
        axes.plot(*_axes_of(here), "o-", markersize=9 - number, color=color, label=column)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("flows")
    axes.set_ylabel("% of the flows, first seed (0: no loss)")
    figure.legend(loc="outside upper center", ncols=5, fontsize=8)
    return figure


def _sojourns(runs: Runs) -> Figure:
    """Draw how long packets wait in the queue under test, a panel for each row."""
    rows = row_titles([cell for cell, _ in runs])
    counts = [sum(cell.row == row for cell, _ in runs) for row in rows]
    figure = _figure(0.7 * len(rows) + 0.2 * len(runs) + 0.6)
    ratios = {"height_ratios": counts}
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False, gridspec_kw=ratios)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        here = [(cell, result["queueing"]) for cell, result in runs if cell.row == row]
        for key, mark, label in (("wait_median_us", "o", "median"), ("wait_p99_us", "|", "p99")):
            found = [(found[key], place) for place, (_, found) in enumerate(here)]
            known = [(us / 1e3, float(place)) for us, place in found if us is not None]
            color = COLOURS[0] if mark == "o" else COLOURS[1]
            axes.plot(*_axes_of(known), mark, color=color, markersize=7, label=label)
        axes.set_yticks(range(len(here)), [cell.column for cell, _ in here])
        axes.set_ylim(len(here) - 0.5, -0.5)
        axes.set_title(row, loc="left")
    panels[-1].set_xlim(left=0)
    panels[-1].set_xlabel("sojourn in the 2nd half (ms)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8)
    return figure


def _rates_mbps(
    counts: Sequence[int], seconds: int, over_ns: int, every_ns: int
) -> tuple[list[float], list[float]]:
    """Return the rates over `over_ns` (Mbit/s) and the middles of that time (s), from a series.

    The series' steps after the run's last second are incomplete.
    """
    over, every = over_ns // SAMPLE_NS, every_ns // SAMPLE_NS
    known = counts[: seconds * NS_PER_S // SAMPLE_NS + 1]
    starts = range(0, len(known) - over, every)
    rates = [(known[at + over] - known[at]) * 8 * NS_PER_S / over_ns / 1e6 for at in starts]
    return [(at + over / 2) * SAMPLE_NS / NS_PER_S for at in starts], rates


def _senders(runs: Runs) -> Figure:
    """Draw the rate of each sender, stacked: a column for each row of the table."""
    rows = row_titles([cell for cell, _ in runs])
    columns = column_titles([cell for cell, _ in runs])
    figure = _figure(0.9 + 1.5 * len(columns))
    panels = figure.subplots(len(columns), len(rows), squeeze=False, sharex="col", sharey=True)
    for cell, result in runs:
        axes = panels[columns.index(cell.column), rows.index(cell.row)]
        _senders_panel(axes, cell, result)
    for axes, row in zip(panels[0], rows, strict=True):
        axes.set_title(f"{row}\n", loc="center", fontsize=11)
    for axes in panels[-1]:
        axes.set_xlabel("time (s)")
    for axes, column in zip(panels[:, 0], columns, strict=True):
        axes.set_ylabel(f"{column}\n", fontweight="bold")
    figure.supylabel("goodput (Mbit/s), a colour for each sender", fontsize=9.5)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _senders_panel(axes: Axes, cell: Cell, result: dict[str, Any]) -> None:
    scenario, flows = cell.scenario, result["series"]["flows"]
    stacked = [_rates_mbps(counts, scenario.seconds, STACK_OVER_NS, SAMPLE_NS) for counts in flows]
    palette = mpl.colormaps["viridis"]
    colours = [palette((number + 0.5) / len(flows)) for number in range(len(flows))]
    rates = [of_flow for _, of_flow in stacked]
    axes.stackplot(stacked[0][0], rates, colors=colours, linewidth=0.2, edgecolor="white")
    most_mbps = ideal_goodput_bps(scenario.rate_bps) / 1e6
    label = "what the bottleneck can carry"
    style: Any = {"color": BOTTLENECK_COLOUR, "linewidth": 0.9, "linestyle": (0, (5, 3))}
    axes.axhline(most_mbps, label=label, **style)
    _mark_losses(axes, cell, result)
    axes.set_xlim(0, scenario.seconds)
    axes.set_ylim(0, 1.15 * most_mbps)
    axes.set_title(_of_senders(cell, result), loc="left", fontsize=9.5, fontweight="normal")


def _of_senders(cell: Cell, result: dict[str, Any]) -> str:
    """Return a few words on the joint result of senders."""
    lost = result["bottleneck_drops"]
    said = f"{lost:,} packets lost" if lost else "nothing lost"
    if not cell.scenario.flows[0].payload_bytes:
        return f"{result['goodput_bps'] / 1e6:.1f} Mbit/s, {said}"
    times = [flow["completion_ms"] for flow in result["flows"]]
    done = [time_ms for time_ms in times if time_ms is not None]
    return f"{len(done)} of {len(times)} done, {said}"


def _gap_of(cell: Cell) -> int | None:
    """Return a cell's fixed gap in bytes; None where its packets have none."""
    gap_bytes = dict(cell.scenario.flows[0].shaper.settings).get("gap_bytes")
    return None if gap_bytes is None else int(gap_bytes)


def _by_gap(runs: Runs, key: str, scale: float, label: str) -> Figure:
    """Draw a figure of each run over the fixed gaps, a panel for each row.

    A run without a fixed gap is a horizontal line. `key` has the figures of all seeds. Rows with a
    single gap have no panel, if there are others.
    """
    gaps_of = Counter(cell.row for cell, _ in runs if _gap_of(cell) is not None)
    titles = row_titles([cell for cell, _ in runs])
    rows = [row for row in titles if gaps_of[row] > 1] or titles
    figure = _figure(1.0 + 2.1 * -(-len(rows) // 3))
    panels = figure.subplots(-(-len(rows) // 3), min(3, len(rows)), squeeze=False, sharex=True)
    for axes, row in zip(panels.flat, rows, strict=False):
        of_row = [(cell, result) for cell, result in runs if cell.row == row]
        medians = medians_at_shared_seeds(
            [dict(zip(result["seeds"], result[key], strict=True)) for _, result in of_row]
        )
        here = [
            (_gap_of(cell), cell, value / scale)
            for (cell, _), value in zip(of_row, medians, strict=True)
        ]
        gaps = [(gap, value) for gap, _, value in here if gap is not None]
        axes.plot(*_axes_of(gaps), "o-", markersize=3, color=COLOURS[5], label="fixed gap")
        others = [(cell.column, value) for gap, cell, value in here if gap is None]
        for (column, value), color in zip(others, COLOURS, strict=False):
            axes.axhline(value, color=color, linewidth=1.4, label=column)
        if gaps:
            axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_title(row, loc="left")
    for axes in panels[-1]:
        axes.set_xlabel("gap (bytes)")
    for axes in panels[:, 0]:
        axes.set_ylabel(label)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _spread_by_gap(runs: Runs) -> Figure:
    """Draw the largest, the mean and the smallest goodput of all seeds over the fixed gaps."""
    figure = _figure(3.2)
    axes = figure.subplots()
    gaps = [(gap, result) for cell, result in runs if (gap := _gap_of(cell)) is not None]
    goodputs = [result["goodputs_bps"] for _, result in gaps]
    lines = {
        "maximum": [max(values) for values in goodputs],
        "average": [statistics.fmean(values) for values in goodputs],
        "minimum": [min(values) for values in goodputs],
    }
    for (label, values), color in zip(lines.items(), COLOURS, strict=False):
        shown = [value / 1e6 for value in values]
        axes.plot([gap for gap, _ in gaps], shown, "o-", color=color, label=label)
    axes.set_xlabel("gap (bytes)")
    axes.set_ylabel("goodput (Mbit/s)")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _after_loss(runs: Runs) -> Figure:
    """Draw each run's congestion window around its first loss at the bottleneck."""
    shown = [(c, r) for c, r in _of_first_row(runs) if _first_loss_ms(c, r) is not None]
    figure = _figure(2.8)
    axes = figure.subplots()
    for (cell, result), color in zip(shown, COLOURS, strict=False):
        lost_ms = _first_loss_ms(cell, result) or 0
        sender = result["series"]["sender"]
        near = [
            ((at_ms - lost_ms) / 1e3, float(cwnd))
            for at_ms, cwnd in zip(sender["at_ms"], sender["cwnd_packets"], strict=True)
            if -BEFORE_LOSS_MS <= at_ms - lost_ms <= AFTER_LOSS_MS
        ]
        label = f"{cell.column} (lost at {lost_ms / 1e3:.1f} s)"
        axes.plot(*_axes_of(near), ".-", linewidth=1.2, markersize=4, color=color, label=label)
    axes.axvline(0, color=DROP_COLOUR, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set_xlabel("time since the loss was counted (s)")
    axes.set_ylabel("packets")
    axes.set_ylim(bottom=0)
    if shown:
        figure.legend(loc="outside upper center", ncols=3, fontsize=9)
    else:
        axes.set_title("no packet was lost", loc="left")
    return figure


def _first_loss_ms(cell: Cell, result: dict[str, Any]) -> int | None:
    """Return when the bottleneck was first seen to have lost packets; None if it lost none."""
    drops = result["series"]["bottleneck_drops"]
    for at_ms, packets in zip(drops["at_ms"], drops["packets"], strict=True):
        if packets and at_ms <= cell.scenario.seconds * 1000:
            return int(at_ms)
    return None


_PLOTS: dict[str, tuple[str, Callable[[Runs], Figure]]] = {
    "bandwidth": ("Bandwidth at the entrance of the bottleneck", _bandwidth),
    "bandwidth-queue": (
        "Bandwidth at the entrance of the bottleneck, and the queue that the bursts need",
        functools.partial(_bandwidth, queues=True),
    ),
    # As in the talk.
    "bandwidth-100ms": (
        "Bandwidth at the entrance of the bottleneck",
        functools.partial(_bandwidth, line_ns=WINDOW_NS),
    ),
    "slow-start": (
        f"The first {SLOW_START_S} s at the bottleneck's entrance",
        functools.partial(_bandwidth, seconds=SLOW_START_S),
    ),
    "window": ("Congestion window every 100 ms", _of_sender("cwnd_packets", "packets", 1)),
    "after-loss": ("Congestion window around the first loss", _after_loss),
    "rtt": ("RTT every 100 ms", _of_sender("rtt_us", "ms", 1000)),
    "comparison": (
        "Goodput, measured and published",
        functools.partial(_by_row, beside_published=True),
    ),
    "sweep": ("Goodput by delay", functools.partial(_by_row, beside_published=False)),
    "gaps-goodput": (
        "Goodput by gap, median of the seeds that all have",
        functools.partial(_by_gap, key="goodputs_bps", scale=1e6, label="Mbit/s"),
    ),
    "gaps-deviation": (
        "Deviation / mean of 100 ms windows over the whole run, by gap, median of the same seeds",
        functools.partial(_by_gap, key="deviations", scale=1, label="deviation / mean"),
    ),
    "windows": (
        "Congestion window every 100 ms, first seed: the wire loses the same packets",
        _windows,
    ),
    "gaps-spread": ("Goodput by gap: all seeds", _spread_by_gap),
    "flows": ("Goodput of the first flows", _flows),
    "first-flow": ("Goodput of the first flow", _first_flow),
    "together": ("Flows that lose within one RTT of a loss", _together),
    "sojourns": ("How long packets wait in the queue", _sojourns),
    "senders": ("Goodput of senders that share the bottleneck", _senders),
}


def draw_virtual(experiment: Experiment, found: dict[str, Any] | None) -> list[tuple[str, bytes]]:
    """Return the plot of an experiment of the switch alone; none where nothing is drawn."""
    if found is None:
        return []
    title, make = _VIRTUAL_PLOTS[experiment.plots[0]]
    return [(title, make(found))]


def _draw_clocks(clocks: dict[str, Any]) -> bytes:
    """Draw Fig. 3: each packet's start and the classes' clocks, from `accuracy.py --clocks`."""
    with mpl.rc_context(STYLE):
        figure = _figure(3.0)
        axes = figure.subplots()
        for number, one in enumerate(clocks["classes"]):
            label = f"P{number + 1}: {one['rate_bps'] // 10**6} Mbit/s"
            times = [at_ns / 1e3 for at_ns in one["departures_ns"]]
            axes.step(
                times,
                [at_ns / 1e3 for at_ns in one["clock_ns"]],
                where="post",
                color=COLOURS[number],
                label=f"class clock of {label}, computed",
            )
            axes.plot(times, times, "o", markersize=4, color=COLOURS[number])
        end = max(one["departures_ns"][-1] for one in clocks["classes"]) / 1e3
        axes.plot([0, end], [0, end], color=COLOURS[5], linewidth=0.8, label="global clock")
        axes.set_xlabel("time on the line (us); dots: packets leave")
        axes.set_ylabel("clock (us)")
        axes.legend(loc="upper left", fontsize=8)
        return _png(figure)


def _draw_ticks(found: dict[str, Any]) -> bytes:
    """Draw Fig. 1: bytes sent over time, from `accuracy.py --ticks`."""
    with mpl.rc_context(STYLE):
        figure = _figure(3.0)
        axes = figure.subplots()
        for one, color in zip(found["kinds"], COLOURS[1::-1], strict=False):
            times = [at_ns / 1e6 for at_ns in one["departures_ns"]]
            sent = [(n + 1) * found["frame_bytes"] / 1024 for n in range(len(times))]
            axes.step(times, sent, where="post", color=color, linewidth=1.3, label=one["kind"])
        axes.xaxis.set_major_locator(MultipleLocator(found["tick_ns"] / 1e6))
        axes.grid(visible=True, axis="x", linewidth=0.4)
        axes.set_xlabel("time (ms); lines: ticks")
        axes.set_ylabel("sent (KB)")
        axes.legend(loc="upper left", fontsize=8)
        return _png(figure)


def _draw_targets(found: dict[str, Any]) -> bytes:
    """Draw the talk's sweep: measured against target rate, from `accuracy.py --sweep`."""
    rows = found["rows"]
    with mpl.rc_context(STYLE):
        figure = _figure(3.6)
        axes = figure.subplots()
        targets, means = ([row[name] / 1e6 for row in rows] for name in ("target_bps", "mean_bps"))
        axes.plot(targets, targets, color=COLOURS[5], linewidth=0.8, label="target")
        axes.plot(targets, means, "o", markersize=4, color=COLOURS[1], label="measured, mean")
        for mark, name in (("_", "min_bps"), ("|", "max_bps")):
            extremes = [row[name] / 1e6 for row in rows]
            label = f"{name[:3]} of one packet"
            axes.plot(targets, extremes, mark, color=COLOURS[0], markersize=9, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("target rate (Mbit/s)")
        axes.set_ylabel("measured rate (Mbit/s)")
        axes.legend(loc="upper left", fontsize=8)
        return _png(figure)


def _draw_aggregation(found: dict[str, Any]) -> bytes:
    """Draw the longest queue over the number of flows, from `aggregation.py`."""
    rows = found["rows"]
    with mpl.rc_context(STYLE):
        figure = _figure(3.6)
        axes = figure.subplots()
        titles = list(dict.fromkeys(row["arrangement"] for row in rows))
        for number, title in enumerate(titles):
            here = [row for row in rows if row["arrangement"] == title]
            flows, queues = ([row[name] for row in here] for name in ("flows", "queue_max_packets"))
            # Several lines lie upon each other: smaller markers lie above larger ones.
            size = 9 - number
            color = COLOURS[number % len(COLOURS)]
            axes.plot(flows, queues, "o-", markersize=size, color=color, label=title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlabel("flows")
        axes.set_ylabel("longest queue (packets)")
        axes.legend(loc="upper left", fontsize=8)
        return _png(figure)


_VIRTUAL_PLOTS = {
    "clocks": ("Clocks", _draw_clocks),
    "ticks": ("Bytes sent, ideal and timer-driven", _draw_ticks),
    "targets": ("Measured against target rate", _draw_targets),
    "aggregation": ("Longest queue of N paced flows", _draw_aggregation),
}


def save(pictures: Sequence[tuple[str, bytes]], directory: Path, name: str) -> None:
    """Write an experiment's plots beside its JSON."""
    for number, (_, content) in enumerate(pictures, start=1):
        (directory / f"{name}-{number}.png").write_bytes(content)


def saved(experiment: Experiment, directory: Path) -> list[tuple[str, bytes]]:
    """Return an experiment's plots as `save` wrote them: title and PNG of each."""
    known = _VIRTUAL_PLOTS if experiment.virtual else _PLOTS
    titles = [known[name][0] for name in experiment.plots if name in known]
    files = [directory / f"{experiment.name}-{n}.png" for n in range(1, len(titles) + 1)]
    pairs = zip(titles, files, strict=True)
    return [(title, file.read_bytes()) for title, file in pairs if file.exists()]

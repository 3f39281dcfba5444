"""What is drawn of an experiment. Each plot is a PNG on a light ground, the same for equal data."""

import functools
import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pacer_mininet import plot
from pacer_mininet.experiments.experiment import (
    Cell,
    Experiment,
    column_titles,
    row_titles,
)
from pacer_mininet.traffic import WINDOW_NS

DPI = 110
PANELS = 4
COLOURS = ("#dd5a62", "#1b3a8c", "#3b8f5a", "#c98a1b", "#7a4ea3", "#4d4d4d", "#0f9aa8")
LINES = ("-", "--", ":", "-.")
SLOW_START_S = 5

Runs = Sequence[tuple[Cell, dict[str, Any]]]
"""Cells that have results, each with that of its first seed."""


def draw(experiment: Experiment, runs: Runs) -> list[tuple[str, bytes]]:
    """Return the plots of an experiment as (what it shows, PNG); none without results."""
    if not runs:
        return []
    made = []
    with mpl.rc_context(plot.STYLE):
        for name in experiment.plots:
            if name in _PLOTS:
                title, make = _PLOTS[name]
                figure = make(runs)
                if figure is not None:
                    made.append((title, _png(figure)))
    return made


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def _figure(height: float) -> Figure:
    return Figure(figsize=(8.4, height), layout="constrained")


def _result_for_demo(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    """Return a run in the form that the demo's picture takes."""
    scenario = cell.scenario
    run = {
        "name": f"{cell.row}, {cell.column}",
        "seconds": scenario.seconds,
        "rate_bps": scenario.rate_bps,
        "edge_rate_bps": scenario.edge_rate_bps,
        "goodput_bps": result["goodput_bps"],
        "bottleneck_drops": result["bottleneck_drops"],
    }
    return {"run": run, "series": result["series"]}


def _of_first_row(runs: Runs) -> Runs:
    """Return what a plot of single runs has room for: further rows have the same columns."""
    return [(cell, result) for cell, result in runs if cell.row == runs[0][0].row]


def _bandwidth(runs: Runs, line_ns: int = plot.LINE_NS) -> Figure:
    shown = _of_first_row(runs)[:PANELS]
    return plot.figure_of([_result_for_demo(cell, result) for cell, result in shown], line_ns)


def _slow_start(runs: Runs) -> Figure:
    cut = []
    for cell, result in _of_first_row(runs)[:PANELS]:
        shown = _result_for_demo(cell, result)
        bins = SLOW_START_S * 10**9 // result["series"]["bin_ns"]
        series = {**shown["series"], "bin_bytes": shown["series"]["bin_bytes"][:bins]}
        cut.append({"run": {**shown["run"], "seconds": SLOW_START_S}, "series": series})
    return plot.figure_of(cut)


def _of_sender(column: str, label: str, scale: float) -> Callable[[Runs], Figure]:
    def make(runs: Runs) -> Figure:
        figure = _figure(2.8)
        axes = figure.subplots()
        for number, (cell, result) in enumerate(_of_first_row(runs)[: len(COLOURS)]):
            sender = result["series"]["sender"]
            axes.plot(
                [at_ms / 1e3 for at_ms in sender["at_ms"]],
                [value / scale for value in sender[column]],
                color=COLOURS[number],
                linewidth=1.4,
                label=cell.column,
            )
        axes.set_xlabel("time (s)")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        # Beside the lines, which may be anywhere.
        figure.legend(loc="outside upper center", ncols=4, fontsize=9)
        return figure

    return make


def _line(
    axes: Axes,
    points: Sequence[tuple[int, float, Cell]],
    rows: Sequence[str],
    cells: Sequence[Cell],
    *,
    label: str,
    color: str,
) -> None:
    """Draw a column's points, joined up to the last row that does not only stand by.

    Rows behind it are of other kinds: a line to them would tell of something between.
    """
    end = max((rows.index(cell.row) for cell in cells if not cell.extra), default=len(rows))
    joined = [(x, y) for x, y, _ in points if x <= end]
    apart = [(x, y) for x, y, _ in points if x > end]
    axes.plot([x for x, _ in joined], [y for _, y in joined], marker="o", label=label, color=color)
    axes.plot([x for x, _ in apart], [y for _, y in apart], "o", color=color)


def _comparison(runs: Runs) -> Figure | None:
    cells = [cell for cell, _ in runs]
    rows, columns = row_titles(cells), column_titles(cells)
    figure = _figure(3.6)
    axes = figure.subplots()
    for number, column in enumerate(columns[: len(COLOURS)]):
        inside = [(rows.index(cell.row), r, cell) for cell, r in runs if cell.column == column]
        colour = COLOURS[number]
        points = [(x, r["goodput_median_bps"] / 1e6, cell) for x, r, cell in inside]
        _line(axes, points, rows, cells, label=column, color=colour)
        paper = [(x, cell.published["goodput"]) for x, _, cell in inside if cell.published]
        axes.plot([x for x, _ in paper], [y for _, y in paper], "x--", linewidth=0.8, color=colour)
    axes.set_xticks(range(len(rows)), rows, rotation=20 if len(rows) > 6 else 0)
    axes.set_ylabel("goodput (Mbit/s); x: published")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _sweep(runs: Runs) -> Figure:
    cells = [cell for cell, _ in runs]
    rows = row_titles(cells)
    figure = _figure(3.8)
    axes = figure.subplots()
    for number, column in enumerate(column_titles(cells)[: len(COLOURS)]):
        points = [
            (rows.index(cell.row), result["goodput_median_bps"] / 1e6, cell)
            for cell, result in runs
            if cell.column == column
        ]
        _line(axes, points, rows, cells, label=column, color=COLOURS[number])
    axes.set_xticks(range(len(rows)), rows)
    axes.set_yscale("log")
    axes.set_ylabel("goodput, median (Mbit/s)")
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _flows(runs: Runs) -> Figure:
    shown = _of_first_row(runs)[:PANELS]
    figure = _figure(0.6 + 1.7 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (cell, result) in zip(panels, shown, strict=True):
        for number, counts in enumerate(result["series"]["flows"]):
            # What comes after the run's seconds is only the beginning of a step.
            steps = itertools.pairwise(counts[: 2 * cell.scenario.seconds + 1])
            rates = [(b - a) * 8 / 0.5 / 1e6 for a, b in steps]
            times = [(n + 0.5) * 0.5 for n in range(len(rates))]
            # Flows that get the same lie on each other: both are to be seen.
            axes.plot(
                *(times, rates, LINES[number % len(LINES)]),
                color=COLOURS[number],
                linewidth=1.3,
                label=f"{number + 1}",
            )
        axes.set_title(f"{cell.row}, {cell.column}", loc="left")
        axes.set_ylabel("Mbit/s")
    # All panels share the axis: a limit set earlier would be that of the panels drawn by then.
    panels[-1].set_ylim(bottom=0)
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    titles = [f"flow {label}" for label in labels]
    figure.legend(handles, titles, loc="outside upper center", ncols=len(titles), fontsize=9)
    return figure


_PLOTS: dict[str, tuple[str, Callable[[Runs], Figure | None]]] = {
    "bandwidth": ("Bandwidth at the entrance of the bottleneck", _bandwidth),
    # As the talk has it.
    "bandwidth-100ms": (
        "Bandwidth at the entrance of the bottleneck",
        functools.partial(_bandwidth, line_ns=WINDOW_NS),
    ),
    "slow-start": (f"The first {SLOW_START_S} s at the bottleneck's entrance", _slow_start),
    "window": ("Congestion window every 100 ms", _of_sender("cwnd_packets", "packets", 1)),
    "rtt": ("RTT every 100 ms", _of_sender("rtt_us", "ms", 1000)),
    "comparison": ("Goodput, measured and published", _comparison),
    "sweep": ("Goodput by delay", _sweep),
    "flows": ("Goodput of the first flows", _flows),
}


def draw_clocks(clocks: dict[str, Any]) -> bytes:
    """Return Fig. 3: start of each packet and the classes' clocks, from `accuracy.py --clocks`."""
    with mpl.rc_context(plot.STYLE):
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


def save(pictures: Sequence[tuple[str, bytes]], directory: Path, name: str) -> None:
    """Write the plots beside an experiment's JSON."""
    for number, (_, content) in enumerate(pictures, start=1):
        (directory / f"{name}-{number}.png").write_bytes(content)

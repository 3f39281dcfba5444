#!/usr/bin/env python3
"""Plots what a packet costs against classes, table entries and frame size, and prints tables.

    engine_plot.py FIGURES.json OUT.svg

FIGURES.json is what `cargo bench -p switch --bench engine -- FIGURES.json` writes: a list of
objects with `group`, `series`, `x` (classes, entries, bytes, ports) and `ns`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panel:
    """The curves of a group: `value` of its figures, in units of `scale`, against x."""

    group: str
    title: str
    label: str
    logarithmic: bool = True
    value: str = "ns"
    scale: float = 1_000
    unit: str = "us"


PANELS = (
    Panel("classes", "Classes (pacer.p4)", "classes, each with a flow and a rate"),
    Panel("entries", "Table look-up, by match kind", "entries"),
    Panel("changes", "Entry deleted and inserted", "entries"),
    Panel("bytes", "Frame size (pacer.p4)", "bytes", logarithmic=False),
)


def curves(
    figures: list[dict[str, object]], value: str = "ns", scale: float = 1_000
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Points by group and series, in order of x; `ns` becomes microseconds."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for figure in figures:
        x, y = float(str(figure["x"])), float(str(figure[value]))
        found[str(figure["group"])][str(figure["series"])].append((x, y / scale))
    return {
        group: {name: sorted(points) for name, points in series.items()}
        for group, series in found.items()
    }


def plot(figures: list[dict[str, object]], out: Path, shown: Sequence[Panel] = PANELS) -> None:
    """Draws four panels."""
    # The same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "pacer", "font.size": 9}):
        figure = Figure(figsize=(9, 6.4), layout="constrained")
        panels = figure.subplots(2, 2)
        for axes, panel in zip(panels.flat, shown, strict=True):
            series = curves(figures, panel.value, panel.scale).get(panel.group, {})
            for name, points in series.items():
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
            if panel.logarithmic:
                axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.label)
            axes.set_ylabel(panel.unit)
            axes.grid(alpha=0.3)
            if len(series) > 1:
                axes.legend(fontsize=8)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})


def tables(figures: list[dict[str, object]]) -> str:
    """A table per group in Markdown: a row per series, a column per x; nanoseconds."""
    lines: list[str] = []
    for group, series in curves(figures).items():
        places = sorted({x for points in series.values() for x, _ in points})
        lines += [f"| {group} |" + "".join(f" {x:,.0f} |" for x in places)]
        lines += ["|---" * (len(places) + 1) + "|"]
        for name, points in series.items():
            us = dict(points)
            cells = (f" {us[x] * 1000:,.0f} |" if x in us else " |" for x in places)
            lines += [f"| {name} |" + "".join(cells)]
        lines += [""]
    return "\n".join(lines)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    figures = json.loads(Path(sys.argv[1]).read_text())
    plot(figures, Path(sys.argv[2]))
    print(tables(figures))


if __name__ == "__main__":
    main()

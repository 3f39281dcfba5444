#!/usr/bin/env python3
"""Plots time and memory of the traffic manager against queues and classes, and prints tables.

    scale_plot.py FIGURES.json OUT.svg

FIGURES.json is what `cargo bench -p traffic-manager --bench scale -- FIGURES.json` writes: a list
of objects with `group`, `series`, `x` (queues of each port, classes), `ns` and `bytes`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine_plot import Panel, curves, plot

QUEUES = "egress queues of each of 64 ports"
CLASSES = "classes, with a packet each that waits"

PANELS = (
    Panel("queues", "A packet, 128 waiting at each port", QUEUES, scale=1, unit="ns"),
    Panel("queues", "Memory", QUEUES, value="bytes", scale=1 << 20, unit="MB"),
    Panel("classes", "A packet, held for its departure", CLASSES, scale=1, unit="ns"),
    Panel("classes", "Memory", CLASSES, value="bytes", scale=1 << 20, unit="MB"),
)


def table(figures: list[dict[str, object]], panel: Panel) -> str:
    """A table in Markdown: a row per series, a column per x."""
    series = curves(figures, panel.value, panel.scale).get(panel.group, {})
    places = sorted({x for points in series.values() for x, _ in points})
    lines = [f"| {panel.group}, {panel.unit} |" + "".join(f" {x:,.0f} |" for x in places)]
    lines += ["|---" * (len(places) + 1) + "|"]
    for name, points in series.items():
        of = dict(points)
        cells = (f" {of[x]:,.0f} |" if x in of else " |" for x in places)
        lines += [f"| {name} |" + "".join(cells)]
    return "\n".join(lines) + "\n"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    figures = json.loads(Path(sys.argv[1]).read_text())
    plot(figures, Path(sys.argv[2]), PANELS)
    print("\n".join(table(figures, panel) for panel in PANELS))


if __name__ == "__main__":
    main()

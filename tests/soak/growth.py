"""Growth over a run: compares the second quarter of its samples with the last one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

MIB = 1 << 20


@dataclass(frozen=True)
class Growth:
    """A figure's median in the second and in the last quarter.

    Attributes:
        name: the name of the figure.
        before: in the second quarter; the first one is left out, because caches fill in it.
        after: in the last quarter.
        most: the largest multiple of `before` that it may be; None: it is only shown.
        margin: the amount by which it may exceed that, in the figure's unit.

    """

    name: str
    before: float
    after: float
    most: float | None
    margin: float

    @property
    def ratio(self) -> float:
        """The ratio of the later value to the earlier one."""
        return self.after / self.before if self.before else 1.0

    @property
    def fails(self) -> bool:
        """Whether it has grown by more than it may."""
        return self.most is not None and self.after > self.before * self.most + self.margin

    def row(self) -> dict[str, Any]:
        """Return it for a document."""
        return {"name": self.name, "before": self.before, "after": self.after, "most": self.most}


FIGURES = (
    # Name, place in a sample, most times, margin.
    ("switch: memory", ("switch", "memory_bytes"), 1.02, MIB / 2),
    ("switch: descriptors", ("switch", "descriptors"), 1.0, 0.0),
    ("switch: threads", ("switch", "threads"), 1.0, 0.0),
    ("controller: memory", ("controller", "memory_bytes"), 1.02, 2 * MIB),
    ("controller: descriptors", ("controller", "descriptors"), 1.0, 2.0),
    ("controller: threads", ("controller", "threads"), 1.0, 1.0),
    ("switch of restarted controllers: memory", ("s3", "memory_bytes"), 1.02, MIB / 2),
    ("switch of restarted controllers: descriptors", ("s3", "descriptors"), 1.0, 1.0),
    ("switch of restarted controllers: threads", ("s3", "threads"), 1.0, 0.0),
    ("state on disk", ("state_bytes",), 1.1, MIB),
    # Times depend on other work of the machine, too. So medians may grow by half, and the slowest
    # percent is only shown.
    ("rate change: median, ms", ("rate_ms", "median"), 1.5, 2.0),
    ("rate change: p99, ms", ("rate_ms", "p99"), None, 0.0),
    ("change: median, ms", ("change_ms", "median"), 1.5, 2.0),
    ("change: p99, ms", ("change_ms", "p99"), None, 0.0),
    ("packet: median, ms", ("packet_ms", "median"), 1.5, 0.5),
    ("packet: p99, ms", ("packet_ms", "p99"), None, 0.0),
    ("restart of a killed switch, s", ("restart_s", "switch killed"), 1.5, 2.0),
    ("restart of an ended switch, s", ("restart_s", "switch ended"), 1.5, 2.0),
    ("restart of a killed controller, s", ("restart_s", "controller killed"), 1.5, 2.0),
    ("restart of an ended controller, s", ("restart_s", "controller ended"), 1.5, 2.0),
)


def series(samples: Sequence[dict[str, Any]], place: Sequence[str]) -> list[tuple[float, float]]:
    """Return a figure over time, without the samples that lack it."""
    found = []
    for sample in samples:
        value: Any = sample
        for word in place:
            value = value.get(word) if value else None
        if value is not None:
            found.append((sample["at_s"], float(value)))
    return found


def growths(samples: Sequence[dict[str, Any]]) -> list[Growth]:
    """Return every figure of a run of at least four samples that both quarters have."""
    quarter = len(samples) // 4
    if quarter == 0:
        raise ValueError(f"{len(samples)} samples are too few to compare quarters")
    found = []
    for name, place, most, margin in FIGURES:
        before, after = (
            [value for _, value in series(part, place)]
            for part in (samples[quarter : 2 * quarter], samples[-quarter:])
        )
        if before and after:
            medians = statistics.median(before), statistics.median(after)
            found.append(Growth(name, *medians, most, margin))
    return found


PANELS = (
    ("Memory, MiB", ("memory_bytes",), MIB),
    ("File descriptors", ("descriptors",), 1),
)

TIMES = (
    ("rate_ms", "Time that a rate change takes, ms"),
    ("packet_ms", "Packet through the switch, ms"),
)


def write_plot(document: dict[str, Any], out: Path) -> None:
    """Draw memory, descriptors, and the times of rate changes and packets, over the hours."""
    samples = document["samples"]
    with mpl.rc_context({"svg.hashsalt": "pacer", "font.size": 9}):
        figure = Figure(figsize=(9, 6), layout="constrained")
        panels = figure.subplots(2, 2)
        for axes, (title, place, unit) in zip(panels[0], PANELS, strict=True):
            for process in ("switch", "controller"):
                points = series(samples, (process, *place))
                axes.plot(
                    [x / 3600 for x, _ in points], [y / unit for _, y in points], label=process
                )
            axes.set_title(title)
            axes.set_ylim(bottom=0)
            axes.legend()
        for axes, (name, title) in zip(panels[1], TIMES, strict=True):
            for share in ("median", "p99"):
                points = series(samples, (name, share))
                axes.plot([x / 3600 for x, _ in points], [y for _, y in points], label=share)
            axes.set_title(title)
            axes.set_yscale("log")
            axes.legend()
        for axes in panels.flat:
            axes.set_xlabel("hours")
            axes.grid(alpha=0.3)
        figure.savefig(out, metadata={"Date": None})

"""The picture that everyone knows from PSPacer's home page, Fig. 2.1 and 2.2.

Per run one panel: bandwidth at the entrance of the bottleneck in 500 us bins (red), at 200 ms
resolution (blue), the bottleneck's rate, and marks where the bottleneck lost packets.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from pacer_mininet.table import TITLES, mbps
from pacer_mininet.traffic import NS_PER_S, regroup

LINE_NS = 200_000_000
BARS = 1600
BAR_POINTS = 0.6
BAR_COLOUR = "#dd5a62"
LINE_COLOUR = "#1b3a8c"
BOTTLENECK_COLOUR = "#2b2b2b"
DROP_COLOUR = "#111111"
DPI = 200

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


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Write the picture of all runs, one panel each, as a PNG file.

    The file holds no date and no name of a program's version, so that equal runs give equal files.
    """
    with mpl.rc_context(STYLE):
        figure_of(results).savefig(path, dpi=DPI, metadata={"Software": None})


def figure_of(results: list[dict[str, Any]], line_ns: int = LINE_NS) -> Figure:
    """Return the picture of runs, one panel each; the line is at a resolution of `line_ns`."""
    figure = Figure(figsize=(8.4, 0.8 + 2.1 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, result in zip(panels, results, strict=True):
        _panel(axes, result["run"], result["series"], line_ns)
    top = max(_top_mbps(result) for result in results)
    panels[0].set_ylim(0, top)
    panels[-1].set_xlim(0, results[0]["run"]["seconds"])
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9)
    for line, label in zip(legend.get_lines(), legend.get_texts(), strict=False):
        if label.get_text() == labels[0]:
            line.set_linewidth(4)
    return figure


def _top_mbps(result: dict[str, Any]) -> float:
    """Return the top of the axis: the sender's line, or what was seen, with room for marks."""
    series = result["series"]
    highest_bps = max(series["bin_bytes"], default=0) * 8 * NS_PER_S / series["bin_ns"]
    return float(max(highest_bps, result["run"]["edge_rate_bps"]) / 1e6 * 1.08)


def _panel(axes: Axes, run: dict[str, Any], series: dict[str, Any], line_ns: int) -> None:
    bin_ns, bins = series["bin_ns"], series["bin_bytes"]
    scale = 8 * NS_PER_S / bin_ns / 1e6
    # Bars are narrower than a pixel: of those that share one, the highest is what shows.
    per_bar = max(1, len(bins) // BARS)
    bar_s = per_bar * bin_ns / NS_PER_S
    highest = [max(bins[at : at + per_bar]) * scale for at in range(0, len(bins), per_bar)]
    bars = [
        (((number + 0.5) * bar_s, 0.0), ((number + 0.5) * bar_s, top))
        for number, top in enumerate(highest)
        if top
    ]
    axes.add_collection(
        LineCollection(
            bars, colors=BAR_COLOUR, linewidths=BAR_POINTS, label="500 µs average", zorder=2
        )
    )
    size = line_ns // bin_ns
    averages = [total * scale / size for total in regroup(bins, size)]
    middles = [(number + 0.5) * line_ns / NS_PER_S for number in range(len(averages))]
    axes.plot(middles, averages, color="white", linewidth=3.2, zorder=3)
    label = f"{line_ns // 1_000_000} ms average"
    axes.plot(middles, averages, color=LINE_COLOUR, linewidth=1.6, label=label, zorder=4)
    axes.axhline(
        run["rate_bps"] / 1e6,
        color=BOTTLENECK_COLOUR,
        linewidth=0.9,
        linestyle=(0, (5, 3)),
        label="bottleneck",
        zorder=5,
    )
    drops = series["bottleneck_drops"]
    steps = zip(drops["at_ms"], drops["packets"], [0, *drops["packets"]], strict=False)
    losses = [
        at_ms / 1e3
        for at_ms, packets, before in steps
        if packets > before and at_ms <= run["seconds"] * 1000
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
    axes.set_ylabel("Mbit/s")
    if run["edge_rate_bps"] == 10**9:
        axes.yaxis.set_major_locator(MultipleLocator(250))
    axes.set_title(
        f"{TITLES.get(run['name'], run['name'])}: {mbps(run['goodput_bps'])} Mbit/s "
        f"over the whole run, {run['bottleneck_drops']:,} lost",
        loc="left",
    )

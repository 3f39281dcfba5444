"""The limits of stock BMv2 as the edge of a long fat network, compared with pacing_switch.

    edges.py [--out FILE.json] [--plot FILE.svg] [--seconds S] [--rates 1mbit,...] [--edges A,...]

At each rate, one TCP connection crosses the demo's path, scaled to that rate: sender's line and TCP
window shrink as the bottleneck's rate does, and the RTT stays 200 ms. The edge paces it at that
rate. Each full frame is seen with the kernel's time stamp where it enters the edge and where it
enters the bottleneck. So every packet that the edge holds or loses counts, whatever the switch
itself reports. In real time, in network namespaces of its own. Needs root, and simple_switch_grpc
for the edge `bmv2`.

The table goes beside FILE.json, as Markdown. Absolute figures belong to the machine and to what
else it is doing; compare the two edges of one run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import measures
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pacer_mininet import paths
from pacer_mininet.command import FAILURES, prepare_namespace
from pacer_mininet.experiments.demo_runs import BMV2_FIFO_BYTES, scaled_down
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.network import WIRE_IN, network_of
from pacer_mininet.experiments.runner import ScenarioRun
from pacer_mininet.experiments.scenario import BMV2_PACED, PACED, Scenario
from pacer_mininet.experiments.shaping import port_of
from pacer_mininet.runs import RunError, isolated, need_root
from pacer_mininet.traffic import MTU_FRAME_BYTES, NS_PER_S, ideal_goodput_bps, percentile
from pacer_mininet.units import format_rate, parse_rate
from tables import markdown

EDGES = {"pacing_switch": PACED, "bmv2": BMV2_PACED}
RATES = "1mbit,2mbit,5mbit,10mbit,20mbit,50mbit,100mbit"
SECONDS = 10
HOST_PORT = 1
"""The edge's port to the sender."""

HELD_MAX = 48
"""HELD_PACKETS_MAX of p4src/include/hold_by_recirculation.p4."""

TIMEOUT_S = 300

Row = dict[str, Any]
Times = Mapping[bytes, int]
"""The time when each full frame was seen, in ns, by its identity."""


def full_frames(capture: socket.socket) -> dict[bytes, int]:
    """Return the arrival of each full frame of the connection; a resent frame is another one."""
    port = port_of(0).to_bytes(2, "big")
    found: dict[bytes, int] = {}
    for at_ns, frame in measures.stamped(capture):
        # TCP over IPv4 to the receiver's port; IPv4's identification and the sequence number.
        if len(frame) == MTU_FRAME_BYTES - 4 and frame[23] == 6 and frame[36:38] == port:
            found[frame[18:20] + frame[38:42]] = at_ns
    return found


def most_held(entered: Times, left: Times) -> int:
    """The largest number of packets between the two places at a time; lost ones do not count."""
    steps = [(at_ns, -1) for at_ns in left.values()]
    steps += [(entered[key], 1) for key in left if key in entered]
    # At equal times, a packet that leaves comes first.
    return max(itertools.accumulate(step for _, step in sorted(steps)), default=0)


def lost_between(entered: Times, left: Times) -> int:
    """Return the number of lost packets among those that entered before the last one that left."""
    last_ns = max((entered[key] for key in left if key in entered), default=0)
    return sum(at_ns < last_ns for key, at_ns in entered.items() if key not in left)


def gap_errors_ns(entered: Times, left: Times, gap_ns: int, from_ns: int) -> list[int]:
    """Return the absolute error of each gap between packets that had to wait.

    A packet that comes after the one before it has left does not wait, and its gap is TCP's.
    """
    order = sorted((at_ns, key) for key, at_ns in left.items() if at_ns >= from_ns)
    return [
        abs(at_ns - before_ns - gap_ns)
        for (before_ns, _), (at_ns, key) in itertools.pairwise(order)
        if entered.get(key, at_ns) <= before_ns
    ]


def measured(edge: str, rate_bps: int, seconds: int) -> Row:
    """Make one run, in this namespace."""
    flows = one_flow(EDGES[edge], "cubic")
    scenario = scaled_down(
        Scenario(flows, seconds=seconds, rate_bps=rate_bps, fifo_bytes=BMV2_FIFO_BYTES)
    )
    with network_of(scenario) as net:
        run = ScenarioRun(edge, scenario, net, lambda _event: None)
        at_edge = measures.capture(f"edge1-eth{HOST_PORT}")
        at_wan = measures.capture(f"wan-eth{WIRE_IN}")
        result = run.execute()
        entered, left = full_frames(at_edge), full_frames(at_wan)
    gap_ns = MTU_FRAME_BYTES * 8 * NS_PER_S // rate_bps
    last_ns = max(left.values(), default=0)
    errors = gap_errors_ns(entered, left, gap_ns, last_ns - seconds * NS_PER_S // 2)
    steady_bps = result["flows"][0]["goodput_second_half_bps"]
    return {
        "edge": edge,
        "rate_bps": rate_bps,
        "goodput_bps": result["goodput_bps"],
        "goodput_second_half_bps": steady_bps,
        "of_ideal": steady_bps / ideal_goodput_bps(rate_bps),
        "held_max": most_held(entered, left),
        "packets": len(entered),
        "edge_lost": lost_between(entered, left),
        "edge_counted": result["edge_drops"],
        "bottleneck_lost": result["bottleneck_drops"],
        "gap_us": gap_ns / 1000,
        "gaps": len(errors),
        "gap_error_p50_us": percentile(errors, 50) / 1000,
        "gap_error_p99_us": percentile(errors, 99) / 1000,
    }


def made(edge: str, rate_bps: int, seconds: int) -> Row:
    """Make one run in namespaces of its own; RunError if it fails."""
    words = [str(Path(__file__).resolve()), "--inside", edge, str(rate_bps), str(seconds)]
    ended = subprocess.run(
        isolated([sys.executable, *words]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).strip()
        raise RunError(f"{edge} at {format_rate(rate_bps)} failed: {said}")
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def plot(rows: list[Row], out: Path) -> None:
    """Draw goodput, held packets, lost packets and gap errors against the rate."""
    # The same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "pacer", "font.size": 9}):
        figure = Figure(figsize=(9, 6.4), layout="constrained")
        for number in range(4):
            figure.add_subplot(2, 2, number + 1)
        goodput, held, lost, errors = figure.axes
        for number, edge in enumerate(EDGES):
            own = [row for row in rows if row["edge"] == edge]
            for panel, name, scale in (
                (goodput, "of_ideal", 100),
                (held, "held_max", 1),
                (lost, "edge_lost", 1),
            ):
                points = [(row["rate_bps"] / 1e6, scale * row[name]) for row in own]
                _curve(panel, points, f"C{number}", edge)
            for share, style in (("p50", "-"), ("p99", "--")):
                points = [
                    (row["rate_bps"] / 1e6, 100 * row[f"gap_error_{share}_us"] / row["gap_us"])
                    for row in own
                    if row["gaps"]
                ]
                _curve(errors, points, f"C{number}", f"{edge}, {share}", style)
        held.axhline(HELD_MAX, color="0.5", linewidth=0.8, linestyle=":", label="BMv2's limit")
        _label(goodput, "Goodput, 2nd half", "% of what fits")
        _label(held, "Held at a time, at most", "packets")
        _label(lost, "Lost in the edge", "packets")
        _label(errors, "Gap error of packets that waited", "% of the gap")
        goodput.set_ylim(bottom=0)
        held.set_yscale("log")
        lost.set_ylim(bottom=0)
        errors.set_yscale("log")
        # Room for the legend below the curves.
        errors.set_ylim(bottom=0.02)
        errors.legend(fontsize=8, loc="lower right", ncols=2)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})


def _curve(
    panel: Axes, points: list[tuple[float, float]], colour: str, label: str, style: str = "-"
) -> None:
    if points:
        x, y = zip(*points, strict=True)
        panel.plot(x, y, style, color=colour, marker="o", markersize=3, label=label)


def _label(panel: Axes, title: str, unit: str) -> None:
    panel.set_xscale("log")
    panel.set_title(title)
    panel.set_xlabel("rate, Mbit/s")
    panel.set_ylabel(unit)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def _inside(edge: str, rate_bps: str, seconds: str) -> int:
    try:
        prepare_namespace()
        print(json.dumps(measured(edge, int(rate_bps), int(seconds))))
    except FAILURES as error:
        print(error)
        return 1
    return 0


def main() -> int:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--inside"]:
        return _inside(*sys.argv[2:5])
    parser = argparse.ArgumentParser(prog="edges.py", description="Edge switches, rate by rate")
    parser.add_argument("--out", type=Path, default=paths.REPO / "results" / "edges.json")
    parser.add_argument("--plot", type=Path, help="an SVG to draw")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="length of each run")
    parser.add_argument("--rates", default=RATES, help=f"by comma (default: {RATES})")
    parser.add_argument("--edges", default=",".join(EDGES), help="by comma (default: all)")
    options = parser.parse_args()
    edges = options.edges.split(",")
    if unknown := [edge for edge in edges if edge not in EDGES]:
        raise SystemExit(f"--edges: no {', '.join(unknown)}; there are {', '.join(EDGES)}")
    try:
        need_root()
        if "bmv2" in edges:
            paths.need_bmv2()
        rows = []
        loads = os.getloadavg()
        # The two edges take turns, so that other load meets each alike.
        for rate in options.rates.split(","):
            for edge in edges:
                rows.append(made(edge, parse_rate(rate), options.seconds))
                print(f"{edge} at {rate}: {rows[-1]['of_ideal']:.0%} of what fits", flush=True)
    except (paths.MissingError, RunError, ValueError) as error:
        raise SystemExit(f"edges: {error}") from None
    load = f"Load of the machine's {os.cpu_count()} cores: {loads[0]:.1f} before"
    text = f"{load}, {os.getloadavg()[0]:.1f} after.\n\n{markdown('edges', rows)}"
    print(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    options.out.with_suffix(".md").write_text(text)
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The demo's command: three runs, one table, one picture, one report. See `../demo.py`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pacer_mininet import paths, plot, report
from pacer_mininet.experiment import RUN_NAMES, settings_from
from pacer_mininet.progress import ProgressDisplay
from pacer_mininet.runs import (
    LabUnavailableError,
    Plan,
    RunError,
    check_lab,
    make_runs,
    need_root,
)
from pacer_mininet.table import COLUMNS, heading, notes, plain, row

RESULTS = paths.REPO / "results" / "demo"
TABLE_WIDTH = 150
"""Narrower terminals get the table turned on its side."""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    environment = os.environ
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--fifo", default=environment.get("FIFO") or "64KB")
    parser.add_argument("--cc", default="bic")
    parser.add_argument("--seconds", default=environment.get("SECONDS") or "20")
    parser.add_argument("--rate", default=environment.get("RATE") or "500mbit")
    parser.add_argument("--rtt", default=environment.get("RTT") or "200ms")
    parser.add_argument(
        "--realtime",
        action="store_true",
        default=environment.get("REALTIME", "0") not in ("", "0"),
        help="on this machine's kernel instead of in the lab",
    )
    parser.add_argument("--runs", default=",".join(RUN_NAMES), help="which, by comma")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    """Return the plan of the options; ValueError naming the one at fault."""
    names = tuple(options.runs.split(","))
    for name in names:
        settings_from(
            name,
            seconds=options.seconds,
            rate=options.rate,
            rtt=options.rtt,
            fifo=options.fifo,
            congestion_control=options.cc,
        )
    return Plan(names, options.seconds, options.rate, options.rtt, options.fifo, options.cc)


def summary(results: dict[str, dict[str, Any]]) -> str:
    """Return summary.json: only what the runs gave, so that equal runs give equal files."""
    runs = [result["run"] for result in results.values()]
    return json.dumps({"runs": runs}, indent=2) + "\n"


def show_table(runs: list[dict[str, Any]]) -> None:
    """Print the table as wide as the terminal allows."""
    console = Console()
    if console.width < TABLE_WIDTH:
        print(plain(runs))
    else:
        shown = Table(*COLUMNS)
        for column in shown.columns[1:]:
            column.justify = "right"
        for run in runs:
            shown.add_row(*row(run))
        console.print(shown)
    for note in notes(runs):
        console.print(note, highlight=False, soft_wrap=console.width >= TABLE_WIDTH)


def write_results(results: dict[str, dict[str, Any]], directory: Path) -> None:
    """Write everything below `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(summary(results))
    series = {name: result["series"] for name, result in results.items()}
    (directory / "series.json").write_text(json.dumps(series) + "\n")
    # What the machine took is apart from what was measured: it is never the same twice.
    wall = {name: round(result["wall_s"], 1) for name, result in results.items()}
    (directory / "timing.json").write_text(json.dumps({"wall_s": wall}, indent=2) + "\n")
    ordered = list(results.values())
    plot.draw(ordered, directory / "bandwidth.png")
    report.write(ordered, directory / "bandwidth.png", directory / "report.html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the demo; return the exit status."""
    options = _options(arguments)
    try:
        plan = _plan(options)
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        realtime = options.realtime
        if not realtime:
            try:
                check_lab()
            except LabUnavailableError as error:
                print(f"demo: no virtual-time lab here: {error}", file=sys.stderr)
                print("demo: measuring on this machine's kernel, in real time", file=sys.stderr)
                realtime = True
        if realtime:
            need_root()
        began = time.monotonic()
        clock = "s" if realtime else "virtual s"
        with ProgressDisplay(plan.names, int(plan.seconds), clock) as display:
            results = make_runs(plan, realtime=realtime, listener=display)
    except (ValueError, RunError, paths.MissingError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; the runs have been ended", file=sys.stderr)
        return 130
    write_results(results, options.results)
    runs = [result["run"] for result in results.values()]
    print(f"\n{heading(runs)}\n")
    show_table(runs)
    print(f"\n{time.monotonic() - began:.0f} s; results in {options.results}:")
    print("  summary.json  bandwidth.png  report.html")
    return 0

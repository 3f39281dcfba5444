"""The demo's command: three runs, one table, one picture, one report. See `../demo.py`."""

import argparse
import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pacer_mininet import congestion, paths, plot, report
from pacer_mininet.experiment import ALL_RUN_NAMES, RUN_NAMES, settings_from
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


class BusyError(RuntimeError):
    """The results cannot be written, by us or now; the text says why."""


FAILURES = (
    ValueError,
    RunError,
    BusyError,
    congestion.CongestionControlError,
    paths.MissingError,
)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    environment = os.environ
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--fifo", default=environment.get("FIFO") or "64KB")
    parser.add_argument(
        "--cc",
        default=congestion.UNCHOSEN,
        help="congestion control (default bic; where a machine's kernel has none, cubic)",
    )
    parser.add_argument("--seconds", default=environment.get("SECONDS") or "20")
    parser.add_argument("--rate", default=environment.get("RATE") or "500mbit")
    parser.add_argument("--rtt", default=environment.get("RTT") or "200ms")
    parser.add_argument(
        "--realtime",
        action="store_true",
        default=environment.get("REALTIME", "0") not in ("", "0"),
        help="on this machine's kernel instead of in the lab",
    )
    parser.add_argument(
        "--edge",
        choices=("pacing_switch", "ovs"),
        default=environment.get("EDGE") or "pacing_switch",
        help="ovs: two more runs, with Open vSwitch as the edge switch (needs `make ovs`)",
    )
    parser.add_argument("--runs", help="which, by comma")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    """Return the plan of the options; ValueError naming the one at fault."""
    default = ALL_RUN_NAMES if options.edge == "ovs" else RUN_NAMES
    names = tuple(options.runs.split(",")) if options.runs else default
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


@contextlib.contextmanager
def results_directory(directory: Path) -> Iterator[None]:
    """Make the directory of the results, and have it to ourselves while the block runs.

    Raises:
        BusyError: another demo has it, or it cannot be written.

    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Never removed: a demo that comes next may hold it open already.
        lock = (directory / ".lock").open("a")
    except OSError as error:
        raise BusyError(f"cannot write to {directory}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another demo is running and will write to {directory}: wait until it is done, "
                "or run this one from another checkout"
            ) from None
        yield


def check_congestion_control(plan: Plan, *, realtime: bool) -> None:
    """Make sure, before anything is built, that the runs' kernel has what was chosen.

    Raises:
        CongestionControlError: it has not; the text says what it has.

    """
    if realtime:
        available = congestion.of_this_kernel(plan.congestion_control)
    else:
        available = congestion.of_the_lab()
    congestion.choose(plan.congestion_control, available, lab=not realtime)


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
    """Write everything below `directory`, which exists."""
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
        check_congestion_control(plan, realtime=realtime)
        began = time.monotonic()
        clock = "s" if realtime else "virtual s"
        with results_directory(options.results):
            with ProgressDisplay(plan.names, int(plan.seconds), clock) as display:
                results = make_runs(plan, realtime=realtime, listener=display)
            write_results(results, options.results)
    except FAILURES as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; the runs have been ended", file=sys.stderr)
        return 130
    runs = [result["run"] for result in results.values()]
    print(f"\n{heading(runs)}\n")
    show_table(runs)
    print(f"\n{time.monotonic() - began:.0f} s; results in {options.results}:")
    print("  summary.json  bandwidth.png  report.html")
    return 0

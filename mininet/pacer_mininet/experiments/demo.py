"""The demo's command: options, tables, pictures, a report. See `../../demo.py`.

`demo_runs` has the runs.
"""

import argparse
import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pacer_mininet import congestion, paths
from pacer_mininet.experiments import jobs, page, plots, program, tables, versions
from pacer_mininet.experiments.demo_runs import (
    BMV2_FIFO_BYTES,
    BMV2_RATE_BPS,
    EDGE_RUNS,
    FIFO_BYTES,
    SECONDS,
    SHARED,
    SHARED_FIFO_BYTES,
    SINGLE_RUNS,
    TEN_SECONDS,
    TWO_SECONDS,
    experiments_of,
    for_kernel,
)
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.progress import RunsDisplay
from pacer_mininet.experiments.results import results_directory, write_json
from pacer_mininet.experiments.store import FOLDER, Store
from pacer_mininet.published import RATE_BPS as PAPERS_RATE_BPS
from pacer_mininet.runs import LabUnavailableError, check_lab, need_root
from pacer_mininet.units import format_rate, format_size

RESULTS = paths.REPO / "results" / "demo"

PICTURES = {"shared": "senders.png", "single": "bandwidth.png"}


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line; their defaults come from the environment."""
    environment = os.environ
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    fifo = (
        f"default: {format_size(FIFO_BYTES)}, for several senders {format_size(SHARED_FIFO_BYTES)}"
    )
    parser.add_argument("--fifo", default=environment.get("FIFO") or None, help=fifo)
    parser.add_argument(
        "--cc",
        default=congestion.UNCHOSEN,
        help="congestion control (default: bic; cubic where this machine's kernel lacks bic)",
    )
    seconds = (
        f"of each run; default: {SECONDS}, for two senders {TWO_SECONDS}, for ten {TEN_SECONDS}"
    )
    parser.add_argument("--seconds", default=environment.get("SECONDS") or None, help=seconds)
    parser.add_argument("--rate", default=environment.get("RATE"))
    parser.add_argument("--rtt", default=environment.get("RTT") or "200ms")
    program.add_flag(parser, "realtime", "on this machine's kernel instead of in the lab")
    parser.add_argument(
        "--edge",
        choices=tuple(EDGE_RUNS),
        default=environment.get("EDGE") or "pacing_switch",
        help="ovs: two more runs, with Open vSwitch as the edge switch (needs `make ovs`); bmv2: "
        "one more run, with stock BMv2 (needs simple_switch_grpc), in real time on a slower path",
    )
    some = f"some of {', '.join((*SHARED, *SINGLE_RUNS))}, separated by commas"
    parser.add_argument("--runs", help=some)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    on_bmv2 = options.edge == "bmv2"
    if on_bmv2 and not options.fifo:
        options.fifo = format_size(BMV2_FIFO_BYTES)
    options.rate = options.rate or format_rate(BMV2_RATE_BPS if on_bmv2 else PAPERS_RATE_BPS)
    # The lab's clock stands still while programs compute, and BMv2 computes all the time: it
    # recirculates the packets that it holds.
    options.realtime = options.realtime or on_bmv2
    return options


def _named(experiment: Experiment, job: jobs.Job) -> str:
    """Return the name of a run in the progress: what spaces the packets, of how many senders."""
    scenario = job.scenario
    several = f"{len(scenario.flows)} senders, " if experiment.name == "shared" else ""
    return f"{several}{scenario.flows[0].shaper.name}"


def make(experiments: Sequence[Experiment], results: Path, *, realtime: bool) -> dict[str, str]:
    """Make all runs, print the tables, write all files; return why runs failed, by name."""
    # A demo makes its runs anew each time.
    shutil.rmtree(results / FOLDER, ignore_errors=True)
    store = Store(results / FOLDER, versions.of_this_checkout(realtime=realtime))
    to_make = [
        dataclasses.replace(job, name=_named(experiment, job))
        for experiment in experiments
        for job in jobs.jobs_of([experiment])
    ]
    groups = jobs.by_network(to_make)
    # The groups that carry the most come first, so that none is left alone at the end.
    groups.sort(key=lambda group: -sum(job.processor_s for job in group))
    with RunsDisplay(to_make, "s" if realtime else "virtual s") as display:
        failed = jobs.make(groups, store, display, realtime=realtime)
    found = [tables.collect(experiment, store) for experiment in experiments]
    write_json(results / "summary.json", {one["name"]: one for one in found})
    drawn = {one.name: plots.draw(one, tables.results_of(one, store)) for one in experiments}
    for name, pictures in drawn.items():
        for _, content in pictures:
            (results / PICTURES[name]).write_bytes(content)
    page.write(found, drawn, results / "report.html", title=experiments[0].title)
    for one in found:
        print(f"\n{one['title']}\n\n{tables.plain(one)}")
    return failed


def _command(options: argparse.Namespace) -> int:
    experiments_of(options)
    program.need_parts()
    if options.edge == "bmv2":
        paths.need_bmv2()
    if not options.realtime:
        try:
            check_lab()
        except LabUnavailableError as error:
            print(f"demo: no virtual-time lab here: {error}", file=sys.stderr)
            print("demo: measuring on this machine's kernel, in real time", file=sys.stderr)
            options.realtime = True
    realtime = options.realtime
    if realtime:
        need_root()
    experiments = [
        for_kernel(experiment, options.cc, realtime=realtime)
        for experiment in experiments_of(options)
    ]
    began = time.monotonic()
    with results_directory(options.results):
        failed = make(experiments, options.results, realtime=realtime)
    program.report_failed("demo", failed)
    print(f"\n{time.monotonic() - began:.0f} s; results in {options.results}:")
    pictures = [PICTURES[experiment.name] for experiment in experiments]
    print("  " + "  ".join(["summary.json", *pictures, "report.html"]))
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the demo; return the exit status."""
    options = options_of(arguments)
    command = functools.partial(_command, options)
    return program.run("demo", command, "the runs have been ended")

"""The demo's command: tables, pictures, a report. See `../../demo.py`.

`demo_options` has its options, `demo_runs` the runs.
"""

import argparse
import dataclasses
import functools
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pacer_mininet import paths
from pacer_mininet.experiments import jobs, page, plots, program, tables, versions
from pacer_mininet.experiments.demo_options import options_of
from pacer_mininet.experiments.demo_runs import experiments_of, for_kernel
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.progress import RunsDisplay
from pacer_mininet.experiments.results import results_directory, write_json
from pacer_mininet.experiments.store import FOLDER, Store
from pacer_mininet.runs import LabUnavailableError, check_lab, need_root

PICTURES = {"shared": "senders.png", "single": "bandwidth.png"}


def _named(experiment: Experiment, job: jobs.Job) -> str:
    """Return the name of a run in the progress: the number of senders, and the shaper."""
    scenario = job.scenario
    several = f"{len(scenario.flows)} senders, " if experiment.name == "shared" else ""
    return f"{several}{scenario.flows[0].shaper.name}"


def make(experiments: Sequence[Experiment], results: Path, *, realtime: bool) -> dict[str, str]:
    """Make all runs, print the tables, write all files; return why runs failed, by name."""
    # A demo makes its runs again each time.
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

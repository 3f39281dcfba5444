"""The experiments' command. See `../../experiments.py`."""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pacer_mininet import paths
from pacer_mininet.experiments import (
    again,
    catalogue,
    claims,
    flags,
    jobs,
    papers,
    program,
    provenance,
    tables,
    versions,
    workflow,
)
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.plan import Plan, runs_of
from pacer_mininet.experiments.results import read_object, results_directory, write_json
from pacer_mininet.experiments.store import FOLDER, Store
from pacer_mininet.runs import check_lab, need_root

RESULTS = paths.REPO / "results"


def _count(text: str) -> int:
    """Return a number of runs at once; argparse's error for one below 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--list", action="store_true", help="list names, and exit")
    flags.add_flag(parser, "quick", "scaled down, few runs")
    flags.add_flag(parser, "realtime", "on this machine's kernel instead of in the lab")
    flags.add_flag(parser, "again", "make all runs a second time and compare to the byte")
    parser.add_argument(
        "--cores", type=_count, help="runs at once (default: as many as processors)"
    )
    parser.add_argument(
        "--profile",
        type=Path,
        help="a profile of Snakemake, for runs on a cluster (such as mininet/workflow/slurm)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="directory (default: results; for scaled-down runs results/quick)",
    )
    options = parser.parse_args(arguments)
    if options.results is None:
        options.results = RESULTS / "quick" if options.quick else RESULTS
    return options


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def show_list(experiments: Sequence[Experiment]) -> None:
    """Print the experiments, their numbers of runs, and the figures that they reproduce."""
    width = max(len(one.name) for one in experiments)
    lines = []
    for one in experiments:
        count = sum(len(cell.runs()) for cell in one.cells)
        runs = "switch alone" if one.virtual else f"{count:4} runs   "
        of = ", ".join(one.reproduces) or "no published counterpart"
        lines.append(f"{one.name:{width}} {runs}  {of}: {one.title}")
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python must not fail on it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass(frozen=True)
class Settings:
    """The common settings of one command's passes.

    Attributes:
        experiments: the requested experiments.
        known: all experiments, by name.
        made_of: digests of the programs that make runs.
        realtime: whether runs are made on this machine's kernel.
        quick: whether runs are scaled down.
        snakemake: the options for the place of runs, and their number at the same time.
        where: the same in words.
        lock: the lock of the results.

    """

    experiments: list[Experiment]
    known: dict[str, Experiment]
    made_of: dict[str, str]
    realtime: bool
    quick: bool
    snakemake: list[str]
    where: str
    lock: IO[str]


def with_others_made(settings: Settings, results: Store, below: Path) -> list[Experiment]:
    """Return the experiments and those with results of earlier passes, in the catalogue's order.

    So the report keeps the others when one is made alone.
    """
    asked = {one.name for one in settings.experiments}

    def made(one: Experiment) -> bool:
        # Runs of the switch alone are not stored.
        if one.virtual:
            return (below / f"{one.name}.json").exists()
        cells = sum(any(map(results.has, cell.runs())) for cell in one.cells)
        # Runs that it shares with another experiment are no table of its own.
        return 2 * cells > len(one.cells)

    return [one for name, one in settings.known.items() if name in asked or made(one)]


def plan_of(settings: Settings, directory: Path) -> Plan:
    """Return the plan of a pass, whose tables and runs are in `directory`.

    Of an experiment that was not asked for, only the runs that have been made are in it.
    """
    results = Store(directory / FOLDER, settings.made_of)
    others = with_others_made(settings, results, directory)
    runs, experiments = runs_of(others, results)
    asked = {key for one in settings.experiments for key in experiments[one.name]}
    said = [read_object(directory / file) for file in (provenance.FILE, again.FILE)]
    plan = Plan(
        directory=directory,
        made_of=settings.made_of,
        tables_made_of=versions.of_tables(settings.made_of),
        report_made_of=json.dumps(said),
        realtime=settings.realtime,
        quick=settings.quick,
        runs=runs,
        experiments=experiments,
    )
    return plan.without(key for key in plan.missing() if key not in asked)


@dataclass(frozen=True)
class Pass:
    """One pass over experiments: its tables, its results, and its failures, by name."""

    collected: list[dict[str, Any]]
    results: Store
    failed: dict[str, str]


def make_pass(settings: Settings, results: Path) -> Pass:
    """Make all runs without a result below `results`, and write tables and report there."""
    plan = plan_of(settings, (results / "experiments").absolute())
    wanted = sum(len(cell.runs()) for one in settings.experiments for cell in one.cells)
    print(
        f"{_counted(len(settings.experiments), 'experiment')}, {_counted(wanted, 'run')}; "
        f"{len(plan.missing())} to be made {settings.where}",
        flush=True,
    )
    failed = workflow.make(plan, settings.snakemake, settings.lock)
    tables_made = (read_object(plan.table(one.name)) for one in settings.experiments)
    return Pass([one for one in tables_made if one is not None], plan.store, failed)


def show(collected: dict[str, Any]) -> None:
    """Print an experiment's table, sentences and claims."""
    print(f"\n{collected['name']}: {collected['title']}\n\n{tables.plain(collected)}\n")
    for text in collected["sentences"]:
        print(f"  {text}")
    for one in collected["claims"]:
        print(f"  {claims.sentence(one)}")


def _where(options: argparse.Namespace) -> tuple[list[str], str]:
    """Return Snakemake's options on where runs are made and how many at once, and in words."""
    if options.realtime:
        if options.profile or options.cores:
            raise ValueError("in real time, one run at a time has this machine alone")
        return ["--cores", "1"], "one after the other"
    if options.profile:
        return ["--profile", str(options.profile.absolute())], f"by {options.profile}"
    cores = options.cores or jobs.at_once(realtime=False)
    return ["--cores", str(cores)], f"on {_counted(cores, 'processor')} in the lab"


def _command(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    known = catalogue.all_experiments(quick=options.quick)
    experiments = catalogue.chosen(options.names, known)
    if options.list:
        show_list(experiments)
        return 0
    program.need_parts()
    results = options.results
    snakemake, where = _where(options)
    if options.realtime:
        need_root()
        known = catalogue.of_kernel(quick=options.quick, realtime=True)
        experiments = [known[one.name] for one in experiments]
    elif any(one.cells for one in experiments):
        check_lab()
    made_of = versions.of_this_checkout(realtime=options.realtime)
    began = time.monotonic()
    with results_directory(results) as lock:
        settings = Settings(
            *(experiments, known, made_of, options.realtime, options.quick),
            *(snakemake, where, lock),
        )
        below = results / "experiments"
        write_json(below / provenance.FILE, provenance.of_this_checkout(made_of, arguments))
        first = make_pass(settings, results)
        for found in first.collected:
            show(found)
        comparison = None
        if options.again:
            second = make_pass(settings, results / "again")
            first.failed.update(second.failed)
            comparison = again.compare(
                experiments, (first.collected, first.results), (second.collected, second.results)
            )
            write_json(below / again.FILE, comparison)
            # Writes the report again, with the comparison.
            workflow.make(plan_of(settings, below.absolute()), snakemake, lock)
    tables_made = _counted(len(first.collected), "table")
    print(f"\n{tables_made}: sha256 {again.digest_of(first.collected)}")
    if comparison is not None:
        print(again.sentence(comparison))
    print(f"{(time.monotonic() - began) / 60:.1f} min; {results / 'report.html'}")
    program.report_failed("experiments", first.failed)
    # In real time, the machine's stalls may break a claim.
    made = [] if options.realtime else first.collected
    broken = [text for one in made for text in claims.broken(one["claims"])]
    for text in broken:
        print(f"experiments: a claim does not hold: {text}", file=sys.stderr)
    stale = papers.stale(made)
    for text in stale:
        print(f"experiments: a figure is stale: {text}", file=sys.stderr)
    differ = comparison is not None and not again.equal(comparison)
    return 1 if first.failed or differ or broken or stale else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make experiments; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    command = functools.partial(_command, options_of(given), given)
    return program.run("experiments", command, "finished runs are kept")

"""The experiments' command. See `../../experiments.py`."""

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacer_mininet import congestion, paths
from pacer_mininet.experiments import (
    again,
    catalogue,
    claims,
    estimate,
    page,
    plots,
    program,
    provenance,
    schedule,
    tables,
    versions,
    virtual,
)
from pacer_mininet.experiments.cache import Cache
from pacer_mininet.experiments.costs import Costs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.results import read_object, results_directory, write_json
from pacer_mininet.runs import check_lab, need_root

RESULTS = paths.REPO / "results"


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--list", action="store_true", help="list names and costs, and exit")
    program.add_flag(parser, "quick", "scaled down, few runs")
    program.add_flag(parser, "realtime", "on this machine's kernel instead of in the lab")
    program.add_flag(parser, "again", "make all runs a second time and compare to the byte")
    parser.add_argument(
        "--results",
        type=Path,
        help="directory (default: results; for scaled-down runs results/quick)",
    )
    options = parser.parse_args(arguments)
    if options.results is None:
        options.results = RESULTS / "quick" if options.quick else RESULTS
    return options


def for_this_kernel(experiment: Experiment) -> Experiment:
    """Return an experiment with another congestion control if this machine's kernel lacks BIC."""
    if congestion.PREFERRED in congestion.of_this_kernel(congestion.PREFERRED):
        return experiment
    return catalogue.with_control_for_bic(experiment, congestion.FALLBACK)


def show_plan(
    experiments: Sequence[Experiment], jobs: Sequence[schedule.Job], *, realtime: bool
) -> None:
    """Print how many runs are to be made and about how long they take."""
    wanted = sum(len(cell.runs()) for one in experiments for cell in one.cells)
    processors = schedule.at_once(realtime=realtime)
    if realtime:
        took_s = sum(estimate.realtime_s(job.scenario) for job in jobs)
        where = "one after the other"
    else:
        took_s = estimate.whole_s([job.cost_s for job in jobs], processors)
        where = f"on {processors} processors in the lab"
    took = "less than a minute" if took_s < 60 else f"about {took_s / 60:.0f} min"
    print(
        f"{_counted(len(experiments), 'experiment')}, {_counted(wanted, 'run')}; {len(jobs)} to be "
        f"made: {took} {where}",
        flush=True,
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def show_list(experiments: Sequence[Experiment]) -> None:
    """Print the experiments, what they cost and what they reproduce."""
    for one in experiments:
        cost_s = sum(estimate.run_s(run) for cell in one.cells for run in cell.runs())
        count = sum(len(cell.runs()) for cell in one.cells)
        of = ", ".join(one.reproduces) or "no published counterpart"
        print(f"{one.name:12} {count:3} runs {cost_s / 60:5.1f} min  {of}: {one.title}")


def with_others_made(
    experiments: Sequence[Experiment], cache: Cache, below: Path, *, realtime: bool
) -> list[Experiment]:
    """Return experiments and those with results of earlier passes, in the catalogue's order.

    So the report keeps the others when one is made alone.
    """
    asked = {one.name: one for one in experiments}
    quick = any(one.quick for one in experiments)
    known = {
        name: for_this_kernel(one) if realtime else one
        for name, one in catalogue.all_experiments(quick=quick).items()
    }
    return [
        one
        for name, one in {**known, **asked}.items()
        if name in asked
        # Runs that it shares with another experiment are no table of its own.
        or (one.cells and 2 * len(tables.results_of(one, cache)) > len(one.cells))
        # Runs of the switch alone take seconds, and are not in the cache.
        or (one.virtual and (below / f"{name}.json").exists())
    ]


def report_on(
    experiments: Sequence[Experiment],
    cache: Cache,
    directory: Path,
    *,
    realtime: bool = False,
) -> list[dict[str, Any]]:
    """Write each experiment's JSON and plots, and the report of all; return their tables.

    The report also has the tables of earlier passes.
    """
    below = directory / "experiments"
    below.mkdir(parents=True, exist_ok=True)
    collected: list[dict[str, Any]] = []
    pictures: dict[str, list[page.Picture]] = {}
    for one in with_others_made(experiments, cache, below, realtime=realtime):
        if one.virtual:
            try:
                found, to_draw = virtual.collect(one)
            except virtual.VirtualError:
                if one in experiments:
                    raise
                # It is from an earlier pass: the report is written without it.
                continue
            drawn = plots.draw_virtual(one, to_draw)
        else:
            found = tables.collect(one, cache)
            drawn = plots.draw(one, tables.results_of(one, cache))
        collected.append(found)
        pictures[one.name] = drawn
        write_json(below / f"{one.name}.json", found)
        plots.save(drawn, below, one.name)
    names = {one.name for one in experiments}
    asked = [found for found in collected if found["name"] in names]
    made_by = (
        f"{provenance.sentence(read_object(below / provenance.FILE))} "
        f"{again.sentences_on(collected, read_object(below / again.FILE))}"
    )
    page.write(collected, pictures, directory / "report.html", made_by=made_by)
    return asked


@dataclass(frozen=True)
class Pass:
    """One pass over experiments: its tables, its results, failed runs, and its cost in words."""

    collected: list[dict[str, Any]]
    cache: Cache
    failed: dict[str, str]
    took: str


def make_pass(
    experiments: Sequence[Experiment], made_of: dict[str, str], results: Path, *, realtime: bool
) -> Pass:
    """Make all runs without a result below `results`, and write tables and report there."""
    directory = results / "experiments"
    cache = Cache(directory / "runs", made_of)
    costs = Costs(directory)
    jobs = schedule.jobs_of(experiments, cache)
    show_plan(experiments, jobs, realtime=realtime)
    failed = program.make_runs(jobs, cache, costs, realtime=realtime)
    collected = report_on(experiments, cache, results, realtime=realtime)
    wanted = (run for one in experiments for cell in one.cells for run in cell.runs())
    return Pass(collected, cache, failed, costs.summary(map(cache.key, wanted)))


def show(collected: dict[str, Any]) -> None:
    """Print an experiment's table, sentences and claims."""
    print(f"\n{collected['name']}: {collected['title']}\n\n{tables.plain(collected)}\n")
    for text in collected["sentences"]:
        print(f"  {text}")
    for one in collected["claims"]:
        print(f"  {claims.sentence(one)}")


def _command(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    experiments = catalogue.chosen(options.names, quick=options.quick)
    if options.list:
        show_list(experiments)
        return 0
    program.need_parts()
    realtime, results = options.realtime, options.results
    if realtime:
        need_root()
        experiments = [for_this_kernel(one) for one in experiments]
    elif any(one.cells for one in experiments):
        check_lab()
    made_of = versions.of_this_checkout(realtime=realtime)
    began = time.monotonic()
    with results_directory(results):
        below = results / "experiments"
        write_json(below / provenance.FILE, provenance.of_this_checkout(made_of, arguments))
        first = make_pass(experiments, made_of, results, realtime=realtime)
        for found in first.collected:
            show(found)
        comparison = None
        if options.again:
            second = make_pass(experiments, made_of, results / "again", realtime=realtime)
            first.failed.update(second.failed)
            comparison = again.compare(
                experiments, (first.collected, first.cache), (second.collected, second.cache)
            )
            write_json(below / again.FILE, comparison)
            # Writes the report again, with the comparison.
            report_on(experiments, first.cache, results, realtime=realtime)
    print(f"\n{first.took}")
    tables_made = _counted(len(first.collected), "table")
    print(f"{tables_made}: sha256 {again.digest_of(first.collected)}")
    if comparison is not None:
        print(again.sentence(comparison))
    print(f"{(time.monotonic() - began) / 60:.1f} min; {results / 'report.html'}")
    program.report_failed("experiments", first.failed)
    # In real time, the machine's stalls may break a claim.
    made = [] if realtime else first.collected
    broken = [text for one in made for text in claims.broken(one["claims"])]
    for text in broken:
        print(f"experiments: a claim does not hold: {text}", file=sys.stderr)
    differ = comparison is not None and not again.equal(comparison)
    return 1 if first.failed or differ or broken else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make experiments; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    command = functools.partial(_command, options_of(given), given)
    return program.run("experiments", command, "finished runs are kept")

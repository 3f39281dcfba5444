"""The experiments' command. See `../../experiments.py`."""

import argparse
import os
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
    metrics,
    page,
    plots,
    provenance,
    schedule,
    tables,
    virtual,
)
from pacer_mininet.experiments import cache as caching
from pacer_mininet.experiments.costs import Costs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.kernel import kernel_name
from pacer_mininet.experiments.progress import RunsDisplay
from pacer_mininet.experiments.results import BusyError, results_directory
from pacer_mininet.runs import LabUnavailableError, RunError, check_lab, need_root

RESULTS = paths.REPO / "results"

FAILURES = (
    ValueError,
    RunError,
    BusyError,
    LabUnavailableError,
    virtual.VirtualError,
    congestion.CongestionControlError,
    paths.MissingError,
)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    def chosen(name: str) -> bool:
        return os.environ.get(name, "0") not in ("", "0")

    parser = argparse.ArgumentParser(prog="experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--list", action="store_true", help="list them and their cost, and end")
    parser.add_argument(
        "--quick", action="store_true", default=chosen("QUICK"), help="scaled down, few runs"
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        default=chosen("REALTIME"),
        help="on this machine's kernel instead of in the lab",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        default=chosen("AGAIN"),
        help="then make all of it a second time, and compare the two to the byte",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="directory (default: results, of scaled-down ones results/quick)",
    )
    options = parser.parse_args(arguments)
    if options.results is None:
        options.results = RESULTS / "quick" if options.quick else RESULTS
    return options


def for_this_kernel(experiment: Experiment) -> Experiment:
    """Return an experiment with what this machine's kernel has in place of BIC, if it has none."""
    if congestion.PREFERRED in congestion.of_this_kernel(congestion.PREFERRED):
        return experiment
    return catalogue.with_control_for_bic(experiment, congestion.FALLBACK)


def show_plan(
    experiments: Sequence[Experiment], jobs: Sequence[schedule.Job], *, realtime: bool
) -> None:
    """Say what there is to do and about how long it takes."""
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
    """Print the experiments with what they reproduce and cost."""
    for one in experiments:
        cost_s = sum(estimate.run_s(run) for cell in one.cells for run in cell.runs())
        count = sum(len(cell.runs()) for cell in one.cells)
        of = ", ".join(one.reproduces) or "past the papers"
        print(f"{one.name:12} {count:3} runs {cost_s / 60:5.1f} min  {of}: {one.title}")


def with_others_made(
    experiments: Sequence[Experiment], cache: caching.Cache, below: Path, *, realtime: bool
) -> list[Experiment]:
    """Return experiments with those that have results of earlier passes, in the catalogue's order.

    So that one made alone does not take the others out of the report.
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
        or tables.results_of(one, cache)
        # The switch alone takes seconds: nothing of it is kept.
        or (one.virtual and (below / f"{name}.json").exists())
    ]


def report_on(
    experiments: Sequence[Experiment],
    cache: caching.Cache,
    directory: Path,
    *,
    realtime: bool = False,
) -> list[dict[str, Any]]:
    """Write each experiment's JSON and plots, and the report of all; return their tables.

    The report has the tables of earlier passes, too.
    """
    below = directory / "experiments"
    below.mkdir(parents=True, exist_ok=True)
    collected: list[dict[str, Any]] = []
    pictures: dict[str, list[page.Picture]] = {}
    for one in with_others_made(experiments, cache, below, realtime=realtime):
        if one.virtual:
            try:
                found, clocks = virtual.collect(one)
            except virtual.VirtualError:
                if one in experiments:
                    raise
                # Nobody asked for it: no reason to have no report of the rest.
                continue
            drawn = [("Clocks", plots.draw_clocks(clocks))] if clocks is not None else []
        else:
            found = tables.collect(one, cache)
            drawn = plots.draw(one, tables.results_of(one, cache))
        collected.append(found)
        pictures[one.name] = drawn
        (below / f"{one.name}.json").write_text(tables.to_json(found))
        plots.save(drawn, below, one.name)
    names = {one.name for one in experiments}
    asked = [found for found in collected if found["name"] in names]
    made_by = f"{provenance.told(provenance.read(below))} {again.told_of(collected, below)}"
    page.write(collected, pictures, directory / "report.html", made_by=made_by)
    return asked


@dataclass(frozen=True)
class Pass:
    """One pass over experiments: its tables, its results, what failed, what it took in words."""

    collected: list[dict[str, Any]]
    cache: caching.Cache
    failed: dict[str, str]
    took: str


def make_pass(
    experiments: Sequence[Experiment], versions: dict[str, str], results: Path, *, realtime: bool
) -> Pass:
    """Make all runs that have no result below `results` yet, and write everything there."""
    directory = results / "experiments"
    cache = caching.Cache(directory / "runs", versions)
    costs = Costs(directory)
    jobs = schedule.jobs_of(experiments, cache)
    show_plan(experiments, jobs, realtime=realtime)
    clock = "s" if realtime else "virtual s"
    with RunsDisplay(jobs, clock, schedule.at_once(realtime=realtime)) as display:
        failed = schedule.make(jobs, cache, costs, realtime=realtime, listener=display)
    collected = report_on(experiments, cache, results, realtime=realtime)
    wanted = (run for one in experiments for cell in one.cells for run in cell.runs())
    return Pass(collected, cache, failed, costs.summary(map(cache.key, wanted)))


def show(collected: dict[str, Any]) -> None:
    """Print an experiment's table, the published figures beside."""
    print(f"\n{collected['name']}: {collected['title']}")
    for row in collected["rows"]:
        if row["skipped"] is not None:
            text = row["skipped"]
        else:
            text = "; ".join(
                f"{metrics.METRICS[name].title} {metrics.shown(name, value)}"
                + (f" [{row['published'][name]:g}]" if name in row["published"] else "")
                for name, value in row["values"].items()
            )
        print(f"  {row['row']}, {row['column']}: {text}")
    for values in collected.get("virtual", ()):
        published = values.get("published", {})
        print(
            "  "
            + "; ".join(
                f"{name} {page.text_of(value)}"
                + (f" [{page.text_of(published[name])}]" if name in published else "")
                for name, value in values.items()
                if name != "published"
            )
        )
    for text in collected["sentences"]:
        print(f"  {text}")
    for one in collected["claims"]:
        print(f"  {claims.told(one)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make experiments; return the exit status."""
    options = _options(arguments)
    try:
        experiments = catalogue.chosen(options.names, quick=options.quick)
        if options.list:
            show_list(experiments)
            return 0
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        if options.realtime:
            need_root()
            experiments = [for_this_kernel(one) for one in experiments]
        elif any(one.cells for one in experiments):
            check_lab()
        versions = caching.versions(kernel_name(realtime=options.realtime))
        began = time.monotonic()
        with results_directory(options.results):
            words = sys.argv[1:] if arguments is None else arguments
            made_of = provenance.of_this_checkout(versions, words)
            provenance.write(made_of, options.results / "experiments")
            first = make_pass(experiments, versions, options.results, realtime=options.realtime)
            for found in first.collected:
                show(found)
            comparison = None
            if options.again:
                directory = options.results / "again"
                second = make_pass(experiments, versions, directory, realtime=options.realtime)
                first.failed.update(second.failed)
                comparison = again.compare(
                    experiments, (first.collected, first.cache), (second.collected, second.cache)
                )
                again.write(comparison, options.results / "experiments")
                # So that the report has it.
                report_on(experiments, first.cache, options.results, realtime=options.realtime)
    except FAILURES as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("experiments: interrupted; what is done is kept", file=sys.stderr)
        return 130
    print(f"\n{first.took}")
    tables_made = _counted(len(first.collected), "table")
    print(f"{tables_made}: sha256 {again.digest_of(first.collected)}")
    if comparison is not None:
        print(again.told(comparison))
    print(f"{(time.monotonic() - began) / 60:.1f} min; {options.results / 'report.html'}")
    for name, why in first.failed.items():
        print(f"experiments: failed: {name}: {why}", file=sys.stderr)
    # In real time the machine has its part in it.
    made = [] if options.realtime else first.collected
    broken = [text for one in made for text in claims.broken(one["claims"])]
    for text in broken:
        print(f"experiments: a claim does not hold: {text}", file=sys.stderr)
    differ = comparison is not None and not again.equal(comparison)
    return 1 if first.failed or differ or broken else 0

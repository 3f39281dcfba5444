"""Decides which runs of experiments to make, and makes them.

In the lab they run side by side, in real time one after the other. Each result is stored at once,
so an interrupted pass continues where it was. Equal runs of several experiments are made once.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pacer_mininet import paths, runs
from pacer_mininet.experiments import estimate
from pacer_mininet.experiments.cache import Cache
from pacer_mininet.experiments.costs import Costs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.shaping import missing_of

SCRIPT = paths.MININET_DIR / "experiments.py"
MEMORY = "4G"
PATIENCE = 20
"""A run that takes this many times its estimate is stuck."""

MIN_TIMEOUT_S = 3600

Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """A run to make, named after the first cell that needs it."""

    name: str
    scenario: Scenario

    @property
    def cost_s(self) -> float:
        """An estimate of how long it takes in the lab."""
        return estimate.run_s(self.scenario)


def jobs_of(experiments: Iterable[Experiment], cache: Cache) -> list[Job]:
    """Return the runs that can be made and have no result yet, the longest first."""
    found: dict[Scenario, Job] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            if missing_of(cell.scenario) is not None:
                continue
            for scenario in cell.runs():
                if scenario not in found and cache.load(scenario) is None:
                    name = f"{experiment.name} {cell.row}, {cell.column} #{scenario.seed}"
                    found[scenario] = Job(name, scenario)
    return sorted(found.values(), key=lambda job: -job.cost_s)


def command_of(job: Job, *, realtime: bool) -> list[str]:
    """Return the command that makes a run."""
    words = [sys.executable, str(SCRIPT), "--inside", job.name, job.scenario.to_json()]
    if realtime:
        return runs.isolated([*words, "--end-with-stdin"])
    timeout_s = max(MIN_TIMEOUT_S, round(PATIENCE * job.cost_s))
    options = ("--seed", str(job.scenario.seed), "--memory", MEMORY, "--timeout", str(timeout_s))
    return runs.in_lab_command(words, *options)


def at_once(*, realtime: bool) -> int:
    """Return how many runs are made side by side: one in real time, to have the machine alone."""
    return 1 if realtime else max(1, len(os.sched_getaffinity(0)))


def make(
    jobs: list[Job], cache: Cache, costs: Costs, *, realtime: bool, listener: Listener
) -> dict[str, str]:
    """Make all runs and note their costs; return the reasons of those that failed, by name.

    The others are made all the same.
    """
    by_name = {job.name: job for job in jobs}
    commands = [(job.name, command_of(job, realtime=realtime)) for job in jobs]
    failed: dict[str, str] = {}
    with contextlib.closing(
        runs.side_by_side(commands, at_once(realtime=realtime), listener)
    ) as ending:
        for ended in ending:
            job = by_name[ended.name]
            try:
                result = ended.wait()
            except runs.RunError as error:
                failed[ended.name] = str(error)
                listener({"event": "failed", "run": ended.name, "message": str(error)})
                continue
            cache.save(job.scenario, {**result["run"], "series": result["series"]})
            took = {"wall_s": ended.wall_s, "cpu_s": ended.cpu_s}
            costs.note(cache.key(job.scenario), job.name, estimated_s=job.cost_s, **took)
            said = _in_short(result["run"])
            listener({"event": "done", "run": ended.name, "result": said, **took})
    return failed


def _in_short(run: dict[str, Any]) -> str:
    if "skipped" in run:
        return f"not offered: {run['skipped']}"
    return f"{run['goodput_bps'] / 1e6:.1f} Mbit/s, {run['bottleneck_drops']:,} packets lost"

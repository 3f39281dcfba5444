"""A run as a job: its name, its command, its result.

The demo makes its few runs with `make`. Snakemake makes those of the experiments, each in a process
of its own, which calls `make` for a single run (`steps`).
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet import paths, runs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.shaping import missing_of
from pacer_mininet.experiments.store import Store

SCRIPT = paths.MININET_DIR / "experiments.py"
MEMORY = "4G"
TIMEOUT_S = 7200
"""A run that takes longer is stuck; the longest takes minutes."""

NETWORK_S, HOST_S, PASSING_S = 3.5, 0.2, 0.1
"""Processor time of a run without packets: its network, each host, each second that passes."""

GIGABIT_S = 2.7
"""Processor time of 10^9 bits through the bottleneck."""

WIRE_LOSS_SHARE = 0.2
"""At most what a connection gets of the bottleneck where the wire loses packets at random."""

Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """A run to make, named after the first cell that needs it."""

    name: str
    scenario: Scenario

    @property
    def processor_s(self) -> float:
        """About how much processor time the run takes in the lab, in s: rather too much.

        The bottleneck is taken to be busy where no packet is lost on the wire. The figures are
        measured (tests/lfn/test_experiments.py).
        """
        scenario = self.scenario
        carried = scenario.rate_bps * scenario.seconds
        if all(flow.udp_bps for flow in scenario.flows):
            carried = min(carried, scenario.seconds * sum(f.udp_bps for f in scenario.flows))
        elif all(flow.payload_bytes for flow in scenario.flows):
            carried = min(carried, 8 * sum(flow.payload_bytes for flow in scenario.flows))
        elif scenario.loss_ppm:
            carried = round(carried * WIRE_LOSS_SHARE)
        hosts = scenario.senders + scenario.receivers
        network_s = NETWORK_S + HOST_S * hosts + PASSING_S * scenario.seconds
        return network_s + GIGABIT_S * carried / 1e9


def jobs_of(experiments: Iterable[Experiment]) -> list[Job]:
    """Return the runs that can be made, each once, the longest first."""
    found: dict[Scenario, Job] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            if missing_of(cell.scenario) is not None:
                continue
            for scenario in cell.runs():
                name = f"{experiment.name} {cell.row}, {cell.column} #{scenario.seed}"
                found.setdefault(scenario, Job(name, scenario))
    return sorted(found.values(), key=lambda job: -job.processor_s)


def command_of(job: Job, *, realtime: bool) -> list[str]:
    """Return the command that makes a run."""
    words = [sys.executable, str(SCRIPT), "--inside", job.name, job.scenario.to_json()]
    if realtime:
        return runs.isolated([*words, "--end-with-stdin"])
    options = ("--seed", job.scenario.seed, "--memory", MEMORY, "--timeout", TIMEOUT_S)
    return runs.in_lab_command(words, *map(str, options))


def at_once(*, realtime: bool) -> int:
    """Return how many runs are made side by side: one in real time, to have the machine alone."""
    return 1 if realtime else max(1, len(os.sched_getaffinity(0)))


def make(
    jobs: Sequence[Job], store: Store, listener: Listener, *, realtime: bool
) -> dict[str, str]:
    """Make runs and store their results; return the reasons of those that failed, by name.

    The others are made all the same.
    """
    by_name = {job.name: job for job in jobs}
    commands = [(job.name, command_of(job, realtime=realtime)) for job in jobs]
    failed: dict[str, str] = {}
    with contextlib.closing(
        runs.side_by_side(commands, at_once(realtime=realtime), listener)
    ) as ending:
        for ended in ending:
            try:
                result = ended.wait()
            except runs.RunError as error:
                failed[ended.name] = str(error)
                listener({"event": "failed", "run": ended.name, "message": str(error)})
                continue
            store.save(by_name[ended.name].scenario, {**result["run"], "series": result["series"]})
            said = in_short(result["run"])
            took = {"wall_s": ended.wall_s, "cpu_s": ended.cpu_s}
            listener({"event": "done", "run": ended.name, "result": said, **took})
    return failed


def in_short(run: dict[str, Any]) -> str:
    """Return a run's result in a few words."""
    if "skipped" in run:
        return f"not offered: {run['skipped']}"
    return f"{run['goodput_bps'] / 1e6:.1f} Mbit/s, {run['bottleneck_drops']:,} packets lost"

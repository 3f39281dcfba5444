"""A run as a job: its name, its command, its result.

The demo makes its few runs with `make`, those of one network in one process. Snakemake makes those
of the experiments in steps (`steps`), each a process of its own, which calls `make` for a group of
runs that share a network.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet import paths, runs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.network import network_key
from pacer_mininet.experiments.scenario import LAB_SEED, Scenario
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
"""Largest share of the bottleneck that a connection gets where the wire loses packets at random."""

Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """A run to make, named after the first cell that needs it."""

    name: str
    scenario: Scenario

    @property
    def network_s(self) -> float:
        """About how much of `processor_s` is the start of the network."""
        return NETWORK_S + HOST_S * (self.scenario.senders + self.scenario.receivers)

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
        return self.network_s + PASSING_S * scenario.seconds + GIGABIT_S * carried / 1e9


def jobs_of(experiments: Iterable[Experiment]) -> list[Job]:
    """Return the runs that can be made, each once, the longest first."""
    found: dict[Scenario, Job] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            if missing_of(cell.scenario) is not None:
                continue
            for scenario in cell.runs():
                found.setdefault(scenario, Job(experiment.name_of(cell, scenario), scenario))
    return sorted(found.values(), key=lambda job: -job.processor_s)


def by_network(jobs: Iterable[Job]) -> list[list[Job]]:
    """Return the runs in groups that share a network, which costs more than a short run."""
    groups: dict[Scenario, list[Job]] = {}
    for job in jobs:
        groups.setdefault(network_key(job.scenario), []).append(job)
    return list(groups.values())


def command_of(*jobs: Job, realtime: bool) -> list[str]:
    """Return the command that makes a run, or several on one network."""
    named = [word for job in jobs for word in (job.name, job.scenario.to_json())]
    words = [sys.executable, str(SCRIPT), "--inside"]
    if realtime:
        return runs.isolated([*words, "--end-with-stdin", *named])
    options = ("--seed", LAB_SEED, "--memory", MEMORY, "--timeout", TIMEOUT_S)
    return runs.in_lab_command([*words, *named], *map(str, options))


def at_once(*, realtime: bool) -> int:
    """Return how many runs are made side by side: one in real time, to have the machine alone."""
    return 1 if realtime else max(1, len(os.sched_getaffinity(0)))


def make(
    groups: Sequence[Sequence[Job]], store: Store, listener: Listener, *, realtime: bool
) -> dict[str, str]:
    """Make runs and store their results; return the reasons of those that failed, by name.

    Args:
        groups: the runs; those of a group share a network (`by_network`). A run that fails ends its
            group. The other groups are made all the same.
        store: the store of the results.
        listener: gets the runs' events, and `done` or `failed` at the end of each.
        realtime: on this machine's kernel and not in the lab.

    """
    by_name = {job.name: job for group in groups for job in group}
    commands = [
        ([job.name for job in group], command_of(*group, realtime=realtime)) for group in groups
    ]

    def heard(event: dict[str, Any]) -> None:
        if event["event"] != "result":
            listener(event)
            return
        name, result = event["run"], event["result"]
        store.save(by_name[name].scenario, result)
        took_s = event["wall_s"]
        listener({"event": "done", "run": name, "result": in_short(result), "wall_s": took_s})

    failed: dict[str, str] = {}
    with contextlib.closing(
        runs.side_by_side(commands, at_once(realtime=realtime), heard)
    ) as ending:
        for ended in ending:
            try:
                ended.wait()
            except runs.RunError as error:
                for name in ended.names:
                    if name not in ended.results:
                        failed[name] = str(error)
                        listener({"event": "failed", "run": name, "message": str(error)})
    return failed


def in_short(run: dict[str, Any]) -> str:
    """Return a run's result in a few words."""
    if "skipped" in run:
        return f"not offered: {run['skipped']}"
    return f"{run['goodput_bps'] / 1e6:.1f} Mbit/s, {run['bottleneck_drops']:,} packets lost"

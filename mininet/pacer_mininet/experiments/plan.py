"""The plan of a pass over experiments: Snakemake's targets, and the inputs of its steps."""

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacer_mininet.experiments import jobs, store
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.network import network_key
from pacer_mininet.experiments.results import read_object, write_json

FILE = "plan.json"

FAILED = "failed: "
"""Before the reason in the log of a run that failed. Snakemake's plugin reads it."""

GROUP_S = 90
"""Largest processor time of runs that are made on one network, by the estimate, in s: as much is
lost at most when a pass is interrupted, or its end waits for one group."""


@dataclass(frozen=True)
class Plan:
    """Runs and experiments to make in a directory.

    Attributes:
        directory: the directory of the experiments' JSON files; the report is above it.
        made_of: digests of the programs that make runs (see `versions`).
        tables_made_of: a digest of all that tables depend on apart from the runs.
        report_made_of: the content of the report besides tables and plots.
        realtime: whether runs are made on this machine's kernel instead of in the lab.
        quick: whether they are scaled down.
        runs: name, scenario, network and priority of each run, by its key in the store. The
            network is a digest, equal for runs that may share one; the priority is the estimate of
            the processor time in s.
        experiments: the keys of the runs of each experiment, by its name.

    """

    directory: Path
    made_of: dict[str, str]
    tables_made_of: str
    report_made_of: str
    realtime: bool
    quick: bool
    runs: dict[str, dict[str, Any]]
    experiments: dict[str, list[str]]

    @property
    def file(self) -> Path:
        """The path of the plan."""
        return self.directory / FILE

    @property
    def store(self) -> store.Store:
        """The results of the runs."""
        return store.Store(self.directory / store.FOLDER, self.made_of)

    def result(self, key: str) -> Path:
        """Return the file of a run's result."""
        return self.directory / store.FOLDER / f"{key}.json"

    def table(self, name: str) -> Path:
        """Return the file of an experiment's table."""
        return self.directory / f"{name}.json"

    @property
    def report(self) -> Path:
        """The file of the report."""
        return self.directory.parent / "report.html"

    def log(self, made: str) -> Path:
        """Return the file with the messages of a step: of a run's key or an experiment's name."""
        return self.directory / "logs" / f"{made}.log"

    def missing(self) -> list[str]:
        """Return the keys of the runs that have no result."""
        return [key for key in self.runs if not self.result(key).exists()]

    def groups(self) -> dict[str, list[str]]:
        """Return the keys of the runs to make in groups, by the first: each on one network."""
        groups: dict[str, list[str]] = {}
        filling: dict[str, tuple[str, int]] = {}
        for key in self.missing():
            run = self.runs[key]
            first, full_s = filling.get(run["network"], (key, GROUP_S))
            if full_s + run["priority"] > GROUP_S:
                first, full_s = key, 0
            groups.setdefault(first, []).append(key)
            filling[run["network"]] = first, full_s + run["priority"]
        return groups

    def without(self, keys: Iterable[str]) -> "Plan":
        """Return the plan without some runs: the experiments' tables are made without them."""
        left_out = set(keys)
        return dataclasses.replace(
            self,
            runs={key: run for key, run in self.runs.items() if key not in left_out},
            experiments={
                name: [key for key in of if key not in left_out]
                for name, of in self.experiments.items()
            },
        )

    def write(self) -> None:
        """Write it for Snakemake and the steps."""
        groups = {
            first: {"keys": keys, "priority": sum(self.runs[key]["priority"] for key in keys)}
            for first, keys in self.groups().items()
        }
        plain = {**dataclasses.asdict(self), "directory": str(self.directory), "groups": groups}
        starting = {"python": sys.executable, "script": str(jobs.SCRIPT), "plan": str(self.file)}
        write_json(self.file, {**starting, **plain})

    @classmethod
    def read(cls, file: Path) -> "Plan":
        """Return the plan in a file; ValueError if there is none."""
        found = read_object(file)
        if found is None:
            raise ValueError(f"{file}: no plan of experiments")
        values = {one.name: found[one.name] for one in dataclasses.fields(cls)}
        return cls(**{**values, "directory": Path(values["directory"])})


def runs_of(
    experiments: Iterable[Experiment], results: store.Store
) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Return the `runs` and `experiments` of a plan that makes all runs of these experiments."""
    made = list(experiments)
    found = {
        results.key(job.scenario): {
            "name": job.name,
            "scenario": job.scenario.to_json(),
            "network": results.key(network_key(job.scenario)),
            "priority": round(job.processor_s),
        }
        for job in jobs.jobs_of(made)
    }
    keys = {
        one.name: [results.key(run) for cell in one.cells for run in cell.runs()] for one in made
    }
    return found, {name: [key for key in of if key in found] for name, of in keys.items()}

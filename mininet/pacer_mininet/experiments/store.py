"""Keeps the result of each run, under a digest of everything that the result depends on.

That is the scenario, and what `versions` names: the kernel, the switch, the compiled P4 programs,
the controller, the Python packages, the modules of this package that make a run, and Open vSwitch
or BMv2 where the run uses it. So Snakemake, which makes the files that are missing, repeats no run
after a change of a table or a plot. After a change of the switch it repeats all of them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pacer_mininet.experiments.results import read_object, write_whole
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.versions import BMV2, OPENVSWITCH

FOLDER = "runs"


class Store:
    """Results of runs in a directory, one file each."""

    def __init__(self, directory: Path, versions: dict[str, str]) -> None:
        """Open a directory, which is made with the first result; `versions`: of the programs."""
        self._directory = directory
        self._versions = versions

    def key(self, scenario: Scenario) -> str:
        """Return the name under which a run's result is kept."""
        used = {OPENVSWITCH: scenario.has_ovs_edge, BMV2: scenario.has_bmv2_edge}
        unused = {name for name, is_used in used.items() if not is_used}
        versions = {name: of for name, of in self._versions.items() if name not in unused}
        text = f"{json.dumps(versions, sort_keys=True)}\n{scenario.to_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def has(self, scenario: Scenario) -> bool:
        """Return whether the run has been made."""
        return self._file(scenario).exists()

    def load(self, scenario: Scenario) -> dict[str, Any] | None:
        """Return a run's result; None if the run has not been made."""
        return read_object(self._file(scenario))

    def content(self, scenario: Scenario) -> bytes:
        """Return a run's result as stored, empty if the run has not been made.

        Equal results are equal to the byte.
        """
        try:
            return self._file(scenario).read_bytes()
        except OSError:
            return b""

    def save(self, scenario: Scenario, result: dict[str, Any]) -> None:
        """Keep a run's result."""
        write_whole(self._file(scenario), json.dumps(result, separators=(",", ":")))

    def _file(self, scenario: Scenario) -> Path:
        return self._directory / f"{self.key(scenario)}.json"

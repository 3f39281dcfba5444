"""Keeps the result of each run, under a digest of everything that the result depends on.

That is the scenario, the clock (lab or real time), the kernel, and the programs: the switch, the
compiled P4 programs, the controller, and the modules of this package that make a run. A change of
a table or a plot repeats no run; a change of the switch repeats all.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pacer_mininet import paths
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.sources import closure

_MAKES_RUNS = "pacer_mininet.experiments.inside"
"""The module that makes a run."""


def digest_of(files: list[Path]) -> str:
    """Return one digest of files, by their names and contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.name} {content}\n".encode())
    return digest.hexdigest()


def versions(kernel: str) -> dict[str, str]:
    """Return the digests of the programs that runs are made with; `kernel` names the kernel."""
    controller = paths.REPO / "controller" / "src" / "pacer_controller"
    return {
        "switch": digest_of([paths.SWITCH_BINARY]),
        "programs": digest_of(list((paths.COMPILED / "pacing_switch").glob("*.json"))),
        "controller": digest_of(list(controller.rglob("*.py"))),
        "runs": digest_of(closure(_MAKES_RUNS, paths.MININET_DIR)),
        "kernel": kernel,
    }


class Cache:
    """Results of runs in a directory, a file each.

    Args:
        directory: where; made when the first result comes.
        programs: `versions()`.

    """

    def __init__(self, directory: Path, programs: dict[str, str]) -> None:
        self._directory = directory
        self._programs = json.dumps(programs, sort_keys=True)

    def key(self, scenario: Scenario) -> str:
        """Return the name under which a run's result is kept."""
        text = f"{self._programs}\n{scenario.to_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def load(self, scenario: Scenario) -> dict[str, Any] | None:
        """Return a run's result, None if it has not been made."""
        try:
            found = json.loads(self.content(scenario))
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def content(self, scenario: Scenario) -> bytes:
        """Return a run's result as it is kept, empty if it has not been made.

        Equal results are equal to the byte.
        """
        try:
            return self._file(scenario).read_bytes()
        except OSError:
            return b""

    def save(self, scenario: Scenario, result: dict[str, Any]) -> None:
        """Keep a run's result; a file is there as a whole or not at all."""
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._file(scenario)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(result, separators=(",", ":")))
        partial.replace(file)

    def _file(self, scenario: Scenario) -> Path:
        return self._directory / f"{self.key(scenario)}.json"

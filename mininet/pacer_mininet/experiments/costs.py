"""What runs cost on this machine: `timing.json`, apart from results, since it always differs.

It has the real time, the processor time and the estimate of each run.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pacer_mininet.experiments.results import read_object, write_json

FILE = "timing.json"


class Costs:
    """The costs of runs, kept in a directory."""

    def __init__(self, directory: Path) -> None:
        """Load the costs of earlier passes; a file that cannot be read counts as none."""
        self._file = directory / FILE
        self._known: dict[str, dict[str, Any]] = read_object(self._file) or {}

    def note(self, key: str, name: str, *, wall_s: float, cpu_s: float, estimated_s: float) -> None:
        """Keep what a run cost; `key` is the name of its result."""
        self._known[key] = {
            "run": name,
            "wall_s": round(wall_s, 1),
            "cpu_s": round(cpu_s, 1),
            "estimated_s": round(estimated_s, 1),
        }
        write_json(self._file, self._known)

    def summary(self, keys: Iterable[str]) -> str:
        """Return one line on what the runs with these keys cost, as far as known."""
        wanted = set(keys)
        found = [self._known[key] for key in wanted if key in self._known]
        cpu_s, estimated_s = (sum(one[name] for one in found) for name in ("cpu_s", "estimated_s"))
        return (
            f"{len(found)} of {len(wanted)} runs took {cpu_s / 60:.1f} min of processor time "
            f"(estimated: {estimated_s / 60:.1f} min)"
        )

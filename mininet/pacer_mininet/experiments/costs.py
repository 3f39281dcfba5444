"""What runs took of this machine: apart from what they gave, since it is never the same twice.

`timing.json` beside the tables: by run, real time, processor time, and what was estimated. It
outlives an interruption, as the results do.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILE = "timing.json"


class Costs:
    """The costs of runs, kept in a directory."""

    def __init__(self, directory: Path) -> None:
        """Load what is known of earlier passes; a file that cannot be read counts as none."""
        self._file = directory / FILE
        self._known: dict[str, dict[str, Any]] = {}
        try:
            found = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return
        if isinstance(found, dict):
            self._known = found

    def note(self, key: str, name: str, *, wall_s: float, cpu_s: float, estimated_s: float) -> None:
        """Keep what a run took; `key` is the name of its result."""
        self._known[key] = {
            "run": name,
            "wall_s": round(wall_s, 1),
            "cpu_s": round(cpu_s, 1),
            "estimated_s": round(estimated_s, 1),
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(self._known, indent=1) + "\n")
        partial.replace(self._file)

    def summary(self, keys: Iterable[str]) -> str:
        """Return one line on what the runs of these names took, as far as it is known."""
        wanted = set(keys)
        found = [self._known[key] for key in wanted if key in self._known]
        cpu_s, estimated_s = (sum(one[name] for one in found) for name in ("cpu_s", "estimated_s"))
        return (
            f"{len(found)} of {len(wanted)} runs took {cpu_s / 60:.1f} min of processor time "
            f"(estimated: {estimated_s / 60:.1f} min)"
        )

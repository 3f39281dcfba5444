"""What results were made of, to make them again: `provenance.json` beside the tables."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pacer_mininet import paths

FILE = "provenance.json"
GIT_TIMEOUT_S = 30


def of_this_checkout(versions: Mapping[str, str], arguments: Sequence[str]) -> dict[str, Any]:
    """Return revision, whether files differ from it, command line and digests of the programs.

    Args:
        versions: digests of all that makes runs (`cache.versions`).
        arguments: the experiments' command line.

    Returns:
        `revision` and `changed` are None outside of a git checkout.

    """
    revision = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "revision": revision,
        "changed": None if revision is None or changes is None else bool(changes),
        "command": ["mininet/experiments.py", *arguments],
        "made_of": dict(versions),
    }


def write(provenance: Mapping[str, Any], directory: Path) -> None:
    """Write it beside the tables."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE).write_text(json.dumps(provenance, indent=1) + "\n")


def read(directory: Path) -> dict[str, Any] | None:
    """Return what was written there; None if nothing was, or it cannot be read."""
    try:
        found = json.loads((directory / FILE).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def told(provenance: Mapping[str, Any] | None) -> str:
    """Return it in a few words; empty if there is nothing to say."""
    if provenance is None or provenance.get("revision") is None:
        return ""
    changed = ", with changes" if provenance.get("changed") else ""
    command = " ".join(provenance["command"])
    return f"Made by `{command}` of revision {provenance['revision']}{changed}."


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(paths.REPO), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

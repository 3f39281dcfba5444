"""The revision, command line and programs that made the results, for `provenance.json`."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from pacer_mininet import paths

FILE = "provenance.json"
GIT_TIMEOUT_S = 30


def of_this_checkout(versions: Mapping[str, str], arguments: Sequence[str]) -> dict[str, Any]:
    """Return revision, whether files differ from it, command line and digests of the programs.

    Args:
        versions: digests of everything that makes runs (see `versions`).
        arguments: the arguments of the experiments' command line.

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


def sentence(provenance: Mapping[str, Any] | None) -> str:
    """Return it as a sentence; empty without a revision."""
    if provenance is None or provenance.get("revision") is None:
        return ""
    changed = ", with changes" if provenance.get("changed") else ""
    command = " ".join(provenance["command"])
    return f"Made by `{command}` at revision {provenance['revision']}{changed}."


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

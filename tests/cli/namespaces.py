"""Runs a script of this folder in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 600


def enter() -> list[str]:
    """The words before a command that give it a network namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--"]


def skip_without_interfaces() -> None:
    """Skip the test where namespaces are not allowed."""
    probe = subprocess.run([*enter(), "ip", "link", "add", "type", "veth"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: switch with interfaces: {probe.stderr.decode().strip()}")


def told_inside(
    script: Path, folder: Path, *arguments: str, own_mounts: bool = False
) -> dict[str, Any]:
    """Run the script, which gets a folder to write to; return the JSON object that it prints.

    `arguments` follow the folder. `own_mounts`: nobody else sees what the script mounts.

    Skips the test where namespaces are not allowed.
    """
    skip_without_interfaces()
    mounts = ["unshare", "--mount", "--"] if own_mounts else []
    ended = subprocess.run(
        [*enter(), *mounts, sys.executable, str(script), str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told

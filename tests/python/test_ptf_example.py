"""The command of docs/ptf.md passes, and fails if the switch does another thing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from virtual_switch import REPOSITORY, binary

EXAMPLE = REPOSITORY / "examples" / "ptf"
PAGE = (REPOSITORY / "docs" / "ptf.md").read_text()
TIMEOUT_S = 120


def run(example: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the documented command in a namespace of its own, with logs in a folder."""
    found = re.search(r"run\.py (tests/bench/\S+)", PAGE)
    assert found is not None
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    enter = ["unshare", *user, "--net"]
    probe = subprocess.run([*enter, "ip", "link", "add", "type", "veth"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: switch with interfaces: {probe.stderr.decode().strip()}")
    return subprocess.run(
        [*enter, sys.executable, str(example / "run.py"), str(REPOSITORY / found[1])],
        cwd=folder,
        env={**os.environ, "PACING_SWITCH": str(binary())},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_the_documented_run_passes(tmp_path: Path) -> None:
    ended = run(EXAMPLE, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Ran 1 test" in ended.stdout + ended.stderr


def test_a_wrong_next_hop_fails_it(tmp_path: Path) -> None:
    example = tmp_path / "ptf"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("__pycache__"))
    entries = json.loads((example / "entries.json").read_text())
    entries["table_entries"][0]["action_params"]["dst_mac"] = "02:00:00:00:00:03"
    (example / "entries.json").write_text(json.dumps(entries))
    ended = run(example, tmp_path)
    assert ended.returncode == 1
    assert "FAILED" in ended.stdout + ended.stderr

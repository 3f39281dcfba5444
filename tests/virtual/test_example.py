"""examples/virtual: the documented command prints the documented output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from virtual_switch import REPOSITORY, binary

EXAMPLE = REPOSITORY / "examples" / "virtual"


def test_documented_command() -> None:
    """The first command of the README, from the top of the repository, and its output."""
    text = (EXAMPLE / "README.md").read_text()
    command = re.search(r"^    (examples/virtual/run.*)$", text, re.MULTILINE)
    output = re.search(r"^```\n(packet .*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert command is not None
    assert output is not None
    ended = subprocess.run(
        shlex.split(command[1]),
        cwd=REPOSITORY,
        env=os.environ | {"PACING_SWITCH": str(binary())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == output[1].splitlines()


def test_documented_formula() -> None:
    """The shell's arithmetic of the README gives the number in the entries."""
    text = (EXAMPLE / "README.md").read_text()
    line = re.search(r"^    (rate=\d+; echo .*?) +# (\d+)$", text, re.MULTILINE)
    assert line is not None
    told = subprocess.run(["bash", "-c", line[1]], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == line[2]
    entries = Path(EXAMPLE / "entries.json").read_text()
    assert f'"time_per_byte_q24": {line[2]}' in entries

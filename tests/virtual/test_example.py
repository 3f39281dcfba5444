"""The examples in virtual time: the documented commands print the documented output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from virtual_switch import REPOSITORY, binary

EXAMPLES = REPOSITORY / "examples"
EXAMPLE = EXAMPLES / "virtual"


@pytest.mark.parametrize("example", ["virtual", "queues"])
def test_documented_command(example: str) -> None:
    """The first command of the README, from the top of the repository, and its output."""
    text = (EXAMPLES / example / "README.md").read_text()
    command = re.search(r"^    (\S.*)$", text, re.MULTILINE)
    output = re.search(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert command is not None
    assert output is not None
    words = shlex.split(command[1])
    if words[0] == "build/venv/bin/python":
        words[0] = sys.executable
    ended = subprocess.run(
        words,
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

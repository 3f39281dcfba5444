"""The messages of `make` on its targets and on a lab that cannot be built; nothing is built."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_mininet.paths import REPO

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="not run: make is not installed")


def make(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run make in a folder."""
    assert MAKE is not None
    command = [MAKE, "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_help_tells_targets_and_settings() -> None:
    said = make(REPO, "help").stdout
    for target in ("demo", "test", "switch", "lab", "ptf", "accuracy", "bench", "clean"):
        assert re.search(rf"^make {target}  +\S", said, re.MULTILINE), target
    for setting in ("TARGET", "REALTIME", "FIFO", "CC", "SECONDS", "RATE", "RTT"):
        assert f"{setting}=" in said


@pytest.mark.parametrize(
    ("setting", "built"), [("REALTIME=0", True), ("REALTIME=1", False), ("EDGE=bmv2", False)]
)
def test_the_demo_builds_the_kernel_only_for_runs_in_the_lab(setting: str, *, built: bool) -> None:
    said = make(REPO, "--dry-run", "demo", setting).stdout
    assert "tests/accuracy/accuracy.py" in said
    assert ("lab/build" in said) == built


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("RATE=5xx", "demo: '5xx' is not a rate; write it like 500mbit"),
        ("RATE=2gbit", "demo: rate 2gbit is above the sender's 1gbit"),
        ("SECONDS=a", "demo: seconds 'a' is not a whole number"),
        ("FIFO=much", "demo: 'much' is not a size; write it like 64KB"),
        ("EDGE=foo", "invalid choice: 'foo'"),
    ],
)
def test_a_wrong_setting_of_the_demo_is_refused_first(setting: str, said: str) -> None:
    first, *_ = make(REPO, "--dry-run", "demo", setting).stdout.partition("tools/bootstrap")
    assert "demo_options" in first
    made = make(REPO, "demo-settings", setting)
    assert made.returncode != 0
    assert said in made.stderr


def test_right_settings_of_the_demo_need_nothing_installed() -> None:
    """Without site packages, so without Mininet."""
    words = ("--rate", "100mbit", "--fifo", "64KB", "--seconds", "3", "--edge", "bmv2")
    command = [sys.executable, "-S", "-m", "pacer_mininet.experiments.demo_options", *words]
    checked = subprocess.run(command, cwd=REPO / "mininet", capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert make(REPO, "demo-settings", "FIFO=").returncode == 0


@pytest.mark.parametrize(
    ("available", "build", "said"),
    [
        ("exit 0", "exit 1", "its kernel could not be built; see build/lab/build.log"),
        ("echo no ptrace; exit 1", "exit 0", "NO VIRTUAL-TIME LAB: no ptrace"),
        ("exit 0", "exit 0", ""),
    ],
)
def test_a_lab_that_is_not_there_is_said_loudly_and_the_rest_goes_on(
    tmp_path: Path, available: str, build: str, said: str
) -> None:
    shutil.copy(REPO / "Makefile", tmp_path)
    (tmp_path / "switch").mkdir()
    for name, text in (("lab/available", available), ("lab/build", build), ("tools/bootstrap", "")):
        script = tmp_path / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    made = make(tmp_path, "lab")
    assert made.returncode == 0, made.stderr
    assert said in made.stdout
    assert ("***" in made.stdout) == bool(said)

"""Departures by the kernel give the same results as departures by the switch.

Skipped with a message where there is no lab.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet.runs import in_lab_command

INSIDE = Path(__file__).with_name("departures_inside.py")
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def runs(lab: None) -> dict[str, dict[str, Any]]:
    """Make the runs with both senders side by side; return the results by sender."""
    started = {
        sends: subprocess.Popen(
            in_lab_command([sys.executable, str(INSIDE), sends]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for sends in ("switch", "kernel")
    }
    try:
        said = {sends: run.communicate(timeout=TIMEOUT_S)[0] for sends, run in started.items()}
    finally:
        for run in started.values():
            run.kill()
            run.wait()
    assert [run.returncode for run in started.values()] == [0, 0]
    return {sends: json.loads(text.splitlines()[-1]) for sends, text in said.items()}


@pytest.mark.parametrize("shaper", ["unpaced", "paced"])
def test_every_time_and_count_is_the_same(runs: dict[str, dict[str, Any]], shaper: str) -> None:
    assert runs["kernel"][shaper]["result"] == runs["switch"][shaper]["result"]


def test_the_kernel_sends_where_it_is_to_and_nowhere_else(
    runs: dict[str, dict[str, Any]],
) -> None:
    for shaper in ("unpaced", "paced"):
        assert runs["switch"][shaper]["put_off"] == [0]
        # Some ten thousand frames a second wait for their time.
        assert runs["kernel"][shaper]["put_off"][0] > 1000


def test_the_runs_are_what_they_are_meant_to_be(runs: dict[str, dict[str, Any]]) -> None:
    unpaced, paced = (runs["kernel"][shaper]["result"] for shaper in ("unpaced", "paced"))
    assert unpaced["bottleneck_drops"] > 0
    assert paced["bottleneck_drops"] == 0
    assert set(paced["lateness_max_ns"].values()) == {0}

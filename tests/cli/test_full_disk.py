"""Packet traces of a running switch on a disk that is full: packets pass, and no trace is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from namespaces import told_inside

INSIDE = Path(__file__).with_name("full_disk_namespace.py")
LOST = "packet traces are lost until there is room for them: cannot write "
WRITTEN_AGAIN = "packet traces are written again to "


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the switches in namespaces of their own; return their ends."""
    return told_inside(INSIDE, tmp_path_factory.mktemp("full"), own_mounts=True)


@pytest.mark.parametrize("disk", ["again", "never"])
def test_a_switch_forwards_and_says_once_that_the_disk_is_full(
    lived: dict[str, Any], disk: str
) -> None:
    run = lived[disk]
    assert run["status"] == 0
    assert run["forwarded"] == run["sent"]
    assert run["stderr"].count(LOST) == 1
    assert "traces.json: No space left on device" in run["stderr"]


def test_traces_that_wait_are_written_when_there_is_room(lived: dict[str, Any]) -> None:
    run = lived["again"]
    assert run["stderr"].count(WRITTEN_AGAIN) == 1
    assert run["statistics"]["trace_drops"] == {}
    traces = [json.loads(line) for line in run["traces"].splitlines()]
    numbers = [trace["input"].get("packet_id", 0) for trace in traces]
    assert numbers == list(range(run["sent"]))


def test_traces_without_room_at_the_end_are_counted(lived: dict[str, Any]) -> None:
    run = lived["never"]
    assert WRITTEN_AGAIN not in run["stderr"]
    whole = [json.loads(line) for line in run["traces"].splitlines()]
    lost = run["sent"] - len(whole)
    assert lost > 0
    assert run["statistics"]["trace_drops"] == {"trace-not-written": lost}
    assert f"packet traces, drops: trace-not-written {lost}" in run["stderr"]

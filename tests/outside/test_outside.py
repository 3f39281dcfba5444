"""The checker of histories, and some seconds of faults from outside; `make faults` is longer."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from writers import Span, wrong

HERE = Path(__file__).resolve().parent
CHECK_S = 120
FAULTS_S = 600

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="not run: no Go (golang-go)")


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the checker."""
    built = tmp_path_factory.mktemp("checker") / "checker"
    words = ["go", "build", "-o", str(built), "."]
    subprocess.run(words, cwd=HERE / "checker", check=True, timeout=CHECK_S)
    return built


def call(kind: str, value: str | None, at: tuple[int, int], outcome: str = "done") -> Any:
    called_ns, ended_ns = at
    times = {"called_ns": called_ns, "ended_ns": ended_ns}
    return {"client": 1, "key": "a", "kind": kind, "value": value, "outcome": outcome, **times}


WRITTEN = call("write", "1", (0, 10))
LOST = call("write", "2", (20, 30), "unknown")


@needs_go
@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ([WRITTEN, call("read", "1", (12, 13))], 0),
        # An acknowledged write is gone.
        ([WRITTEN, call("read", None, (12, 13))], 1),
        # It may be seen while it is under way, and not after it was not.
        ([WRITTEN, call("read", None, (5, 6)), call("read", "1", (7, 8))], 0),
        ([WRITTEN, call("read", "1", (5, 6)), call("read", None, (7, 8))], 1),
        # A request without an answer may take effect later, or never.
        ([WRITTEN, LOST, call("read", "1", (40, 41)), call("read", "2", (42, 43))], 0),
        ([WRITTEN, LOST, call("read", "2", (40, 41)), call("read", "1", (42, 43))], 1),
        ([WRITTEN, call("delete", None, (20, 30)), call("read", None, (40, 41))], 0),
        ([WRITTEN, call("delete", None, (20, 30)), call("read", "1", (40, 41))], 1),
        ([call("guess", "1", (0, 1))], 2),
    ],
)
def test_histories(checker: Path, tmp_path: Path, calls: list[Any], status: int) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(one) + "\n" for one in calls))
    words = [str(checker), str(history), str(tmp_path / "failed.html")]
    assert subprocess.run(words, capture_output=True, timeout=CHECK_S).returncode == status


A, B = "10.9.0.21", "10.9.0.22"


def spans(*found: tuple[int, str], life: int = 1, role: str = "") -> list[Span]:
    return [Span(life, number, role, *one) for number, one in enumerate(found)]


@pytest.mark.parametrize(
    ("seen", "texts"),
    [
        (spans((5, A), (6, B), (7, A)), []),
        # A controller keeps its number when the switch restarts.
        (spans((5, A)) + spans((5, A), (6, B), life=2), []),
        (spans((5, A), (5, B), (5, A)), [f"{A} and {B} wrote as 5", f"{B} and {A} wrote as 5"]),
        (spans((5, A), (6, B), (5, A)), [f"{A} wrote with election id 5 after {B} with 6"]),
        (
            spans((6, B)) + spans((5, A), life=2),
            [f"{A} wrote with election id 5 after {B} with 6"],
        ),
        (spans((5, A), (6, B), (7, A))[::2], ["spans 1 to 1 were not seen"]),
        # Roles have primaries of their own.
        (spans((6, A)) + spans((5, B), life=2, role="stats"), []),
    ],
)
def test_two_writers_at_a_time_are_found(seen: list[Span], texts: list[str]) -> None:
    assert wrong(seen) == texts


@needs_go
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: network namespaces need root")
@pytest.mark.skipif(shutil.which("etcd") is None, reason="not run: no etcd (etcd-server)")
def test_some_seconds_of_faults(tmp_path: Path) -> None:
    out = tmp_path / "results"
    words = [sys.executable, str(HERE / "run.py"), "--minutes", "0.3", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=FAULTS_S)
    summary = json.loads((out / "summary.json").read_text())
    # `make faults` measures the time, since a busy machine is slower.
    assert summary["linearizable"], done.stdout
    assert summary["wrong"] == [], done.stdout
    assert summary["unread"] == [], done.stdout
    assert summary["wrong_writers"] == [], done.stdout
    assert all(summary["spans"].values()), done.stdout
    assert summary["acknowledged"] > 0

"""The PTF tests as pytest cases: one run of `tests/ptf/run`, one case per PTF test.

TARGET names the target (default `pacing_switch`), as for `tests/ptf/run`.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TARGET = os.environ.get("TARGET") or "pacing_switch"
EXIT_NOT_RUN = 77
# Not exported by Python's socket module.
AF_XDP = 44
RUN_SECONDS = 1800


def is_test(definition: ast.ClassDef) -> bool:
    """Whether PTF would run the class by default: has a `runTest`, is not `_nonstandard`."""
    methods = {node.name for node in definition.body if isinstance(node, ast.FunctionDef)}
    names = {
        target.id
        for node in definition.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return "runTest" in methods and "_nonstandard" not in names


def ptf_tests() -> list[str]:
    """Names of the tests, without importing them: they import only under PTF."""
    return [
        f"{path.stem}.{node.name}"
        for path in sorted((HERE / "cases").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and is_test(node)
    ]


class Run:
    """The files that `tests/ptf/run` left behind."""

    def __init__(self, logs: Path, *words: str) -> None:
        """Runs the tests that the words name (without any: all), with the options among them."""
        command = [sys.executable, str(HERE / "runner.py"), "--logs", str(logs), *words]
        finished = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS
        )
        self.status = finished.returncode
        self.output = finished.stdout.decode(errors="replace")
        results = logs / "results.json"
        listed = json.loads(results.read_text()) if results.exists() else []
        self.outcomes = {result["test"]: (result["outcome"], result["text"]) for result in listed}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run for all cases of this file."""
    return Run(tmp_path_factory.mktemp("ptf"), TARGET)


@pytest.mark.parametrize("name", ptf_tests())
def test_ptf(run: Run, name: str) -> None:
    """The PTF test of this name passed."""
    if run.status == EXIT_NOT_RUN:
        pytest.skip(f"{TARGET}: {run.output.splitlines()[0]}")
    outcome, text = run.outcomes.get(name, ("no outcome", run.output))
    if outcome == "not run":
        pytest.skip(text)
    assert outcome == "passed", text


def test_switch_lived_and_ended_well(run: Run) -> None:
    """The switch came up, outlived all tests and ended on SIGTERM as it should."""
    if run.status == EXIT_NOT_RUN:
        pytest.skip(f"{TARGET}: {run.output.splitlines()[0]}")
    # Status 1 with every test passed: it is the switch that failed.
    failed = [name for name, (outcome, _) in run.outcomes.items() if outcome in ("failed", "error")]
    assert run.status == 0 or failed, run.output


@pytest.mark.skipif(TARGET != "pacing_switch", reason=f"{TARGET} has no AF_XDP ports")
def test_af_xdp_ports(tmp_path: Path) -> None:
    """Frames cross AF_XDP ports as they do AF_PACKET ports, and paced ones on time."""
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW).close()
    except OSError as error:
        pytest.skip(f"no AF_XDP sockets here: {error}")
    run = Run(tmp_path, "--port-driver", "af_xdp", TARGET, "forwarding", "pacing")
    assert run.outcomes, run.output
    assert run.status == 0, run.output

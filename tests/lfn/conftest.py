"""Makes the package of `mininet/` importable, and lists the tests that were not run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mininet"))

from pacer_mininet import paths
from pacer_mininet.runs import LabUnavailableError, check_lab


@pytest.fixture(scope="module")
def lab() -> None:
    """Skip with a message if the lab cannot run or the parts are not built."""
    try:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        paths.need_programs("iperf", "mnexec", "ethtool", "ping", "tc")
        check_lab()
    except (LabUnavailableError, paths.MissingError) as error:
        pytest.skip(f"not run: long fat network in the lab: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were not run, and why, at the end of the output."""
    reasons = set()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: not run"):
            reasons.add(report.longrepr[2].removeprefix("Skipped: "))
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)

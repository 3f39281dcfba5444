"""The virtual-time runner beside the tests' own modules; reports tests that were not run."""

import sys
from pathlib import Path

import pytest
from pacing_switch import write_capture

TESTS = Path(__file__).resolve().parents[1]
for folder in ("virtual", "common"):
    sys.path.insert(0, str(TESTS / folder))


@pytest.fixture(autouse=True)
def empty_input(tmp_path: Path) -> None:
    """A capture without packets, `p_in.pcap`, for runs in which it is not about packets."""
    write_capture(tmp_path / "p_in.pcap", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were not run, and why, at the end of the output."""
    reasons = set()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: not run"):
            reasons.add(report.longrepr[2].removeprefix("Skipped: "))
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)

"""The other folders' helpers; reports tests that were not run."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
for folder in ("virtual", "common", "ptf", "cli"):
    sys.path.insert(0, str(TESTS / folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were not run, and why, at the end of the output."""
    reasons = set()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: not run"):
            reasons.add(report.longrepr[2].removeprefix("Skipped: "))
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)

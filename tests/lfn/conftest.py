"""Makes the package of `mininet/` importable, and says loudly what was not run."""

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "mininet"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was not run, and why, where nobody overlooks it."""
    reasons = set()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: not run"):
            reasons.add(report.longrepr[2].removeprefix("Skipped: "))
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)

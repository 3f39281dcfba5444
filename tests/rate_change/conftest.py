"""Says loudly what was not run."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was not run, and why, where nobody overlooks it."""
    reasons = set()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith("Skipped: not run"):
            reasons.add(report.longrepr[2].removeprefix("Skipped: "))
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)

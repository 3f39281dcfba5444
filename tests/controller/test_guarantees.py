"""docs/guarantees.md: every test that it names exists, and each of its rows names one."""

import re
from pathlib import Path

import pytest
from named_tests import REPO, problem

PAGE = REPO / "docs" / "guarantees.md"
NAMED = re.compile(r"`([^`]+)`")
HEADER = "| what "


def _rows() -> list[tuple[str, str]]:
    """Return the first two cells of each row: what holds, and what shows it."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    rows = [line for line in lines if not line.startswith((HEADER, "|---"))]
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    assert all(len(row) == 3 for row in cells)
    return [(row[0], row[1]) for row in cells]


@pytest.mark.parametrize(("what", "shown_by"), _rows(), ids=[what[:40] for what, _ in _rows()])
def test_what_a_row_names_exists(what: str, shown_by: str) -> None:
    names = NAMED.findall(shown_by)
    assert names, f"no test of: {what}"
    assert all("::" in name for name in names)
    assert [text for name in names if (text := problem(name))] == []


def test_names_of_nothing_are_found() -> None:
    here = Path(__file__).relative_to(REPO)
    rust = "switch/crates/bell/tests/orders.rs"
    for name in (f"{here}::test_names_of_nothing_are_found", f"{rust}::two_wakers_are_both_heard"):
        assert problem(name) is None
    # The second is a function, but no test.
    for name in ("a.py::b", f"{rust}::sleep_until_rung", f"{here}::test_nothing", "README.md"):
        assert problem(name) is not None

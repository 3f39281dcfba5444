"""Tests that documents name: FILE, or FILE::TEST, from the top of the repository."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def problem(name: str) -> str | None:
    """Return why a name is not that of a test, or None.

    A whole FILE must be in a folder of tests.
    """
    path, _, test = name.partition("::")
    file = REPO / path
    if not file.exists():
        return f"{name}: no such file"
    if not test:
        return None if "tests" in Path(path).parts else f"{name}: not a file of the tests"
    defined = rf"^(?:def|class) {re.escape(test)}\b"
    if file.suffix == ".rs":
        attributes = r"#\[(?:tokio::)?test(?:\([^)]*\))?\](?:\s*#\[[^\]]*\])*"
        defined = rf"{attributes}\s*(?:async )?fn {re.escape(test)}\("
    if not re.search(defined, file.read_text(), re.MULTILINE):
        return f"{name}: {path} has no such test"
    return None

"""The format of the files in ``tests/vectors``."""

from __future__ import annotations

import json
from collections.abc import Iterable


def lines(items: Iterable[object]) -> str:
    """A JSON array, one item a line."""
    return "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"

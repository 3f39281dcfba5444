"""Values that packets and entries share, so that entries are hit."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

_SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)


def _constants(node: Any) -> set[int]:
    """Every hexadecimal literal of a compiled program."""
    found: set[int] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            value = part.get("value")
            if part.get("type") == "hexstr" and isinstance(value, str):
                found.add(int(value, 16))
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
    return found


class Values:
    """A few values per width."""

    def __init__(self, compiled: Path, draw: random.Random) -> None:
        self._draw = draw
        self._constants = sorted(n for n in _constants(json.loads(compiled.read_text())) if n > 0)
        self._by_width: dict[int, list[int]] = {}

    def known(self, bits: int) -> int:
        """One of the few values of this width."""
        if bits == 0:
            return 0
        pool = self._by_width.get(bits)
        if pool is None:
            top = (1 << bits) - 1
            fitting = [n for n in self._constants if n <= top]
            pool = [0, 1 & top, top, top >> 1, 1 << bits - 1]
            pool += [self._draw.getrandbits(bits) for _ in range(6)]
            pool += self._draw.sample(fitting, min(8, len(fitting)))
            self._by_width[bits] = pool
        return self._draw.choice(pool)

    def any(self, bits: int) -> int:
        """A value of this width: often a known one or a small one."""
        kind = self._draw.random()
        if kind < 0.5:
            return self.known(bits)
        if kind < 0.75:
            return self._draw.choice(_SMALL) & ((1 << bits) - 1)
        return self._draw.getrandbits(bits)

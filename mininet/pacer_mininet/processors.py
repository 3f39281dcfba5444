"""Which processor does what, on the host's kernel.

A switch that paces watches the clock all the time. Whatever else the scheduler puts on its
processor gets slices of milliseconds, which is a hundred packets at 500 Mbit/s; so in an experiment
the pacing switch has the last processor to itself, and everything else shares the others. In the
lab there is one processor, and nothing is ever late.
"""

from __future__ import annotations

import os

_reserved: int | None = None


def reserve_one() -> None:
    """Keep this process, and what it starts, off the last of several processors."""
    global _reserved
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) > 1:
        _reserved = usable[-1]
        os.sched_setaffinity(0, usable[:-1])


def for_pacing() -> list[str]:
    """Prefix for the command of a switch that paces: the reserved processor, if one is."""
    return [] if _reserved is None else ["taskset", "--cpu-list", str(_reserved)]

"""Decides which processor and priority the switches get on the host's kernel.

A switch that paces polls the clock. Any other process on its processor delays it by milliseconds,
which is a hundred packets at 500 Mbit/s. So in an experiment the pacing switch has the last
processor to itself, and everything else shares the others. The lab has one processor, and nothing
is ever late there.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pacer_mininet.lab import in_lab

NICENESS = -15

_reserved: int | None = None


def reserve_one() -> None:
    """Keep this process and its children off the last of several processors."""
    global _reserved
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) > 1:
        _reserved = usable[-1]
        os.sched_setaffinity(0, usable[:-1])


def for_switch(command: list[str], *, paces: bool) -> list[str]:
    """Return a switch's command with priority over hosts and the rest of the machine.

    A switch that paces also gets the reserved processor, if there is one.
    """
    if in_lab():
        return command
    pinned = ["taskset", "--cpu-list", str(_reserved)] if paces and _reserved is not None else []
    return [*pinned, "nice", "-n", str(NICENESS), *command]


def prefer(pid: int) -> None:
    """Give a process's session the priority of NICENESS over other sessions.

    Where the kernel groups processes by session (autogroup, sched(7)), `nice` counts within the
    session only, and each switch has one of its own.
    """
    if not in_lab():
        with contextlib.suppress(OSError):  # no autogroups, or not root
            Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS), encoding="ascii")

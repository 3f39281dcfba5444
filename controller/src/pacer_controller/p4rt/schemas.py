"""The P4 programs as finsy knows them, read once for all switches and attempts to connect."""

import copy
import functools
from pathlib import Path

import finsy as fy

PROGRAMS = 16
"""Most programs that are kept."""


@functools.lru_cache(maxsize=PROGRAMS)
def _read(p4info: Path, program: Path, _changed: tuple[int, int]) -> fy.P4Schema:
    return fy.P4Schema(p4info, program)


def schema(p4info: Path, program: Path) -> fy.P4Schema:
    """Return the schema of a program.

    Reading one takes 15 ms, and its tables take more memory than the rest of a switch. So schemas
    of the same files share all but the version of P4Runtime, which each connection sets.

    Args:
        p4info: the path of the P4Info, text.
        program: the path of the compiled program. It is read when a switch needs it.

    Raises:
        OSError: a file cannot be read.

    """
    changed = (p4info.stat().st_mtime_ns, program.stat().st_mtime_ns)
    return copy.copy(_read(p4info, program, changed))

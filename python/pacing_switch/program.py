"""Finds the program `pacing_switch`."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

NAME = "pacing_switch"
OVERRIDE = "PACING_SWITCH"
"""Environment variable with the path of a program to use instead."""


class NoSwitchError(RuntimeError):
    """The program `pacing_switch` is not installed; the text says how to get it."""


def program_path() -> Path:
    """Return the path of the program.

    It is the one that PACING_SWITCH names, or the one that the wheel brought, or the first one on
    PATH.

    Raises:
        NoSwitchError: there is none, or PACING_SWITCH names a file that does not exist.

    """
    named = os.environ.get(OVERRIDE)
    if named:
        if not Path(named).is_file():
            raise NoSwitchError(f"${OVERRIDE} is {named}, which is not a file")
        return Path(named)
    for folder in _folders():
        if (folder / NAME).is_file():
            return folder / NAME
    found = shutil.which(NAME)
    if found is None:
        raise NoSwitchError(
            f"{NAME} is not installed: `pip install pacing-switch`, or set ${OVERRIDE} to its path"
        )
    return Path(found)


def _folders() -> list[Path]:
    """Return the folders where pip puts programs: its environment's, the user's, a --target's."""
    user = sysconfig.get_preferred_scheme("user")
    return [
        Path(sysconfig.get_path("scripts")),
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts", scheme=user)),
        Path(__file__).resolve().parents[1] / "bin",
    ]

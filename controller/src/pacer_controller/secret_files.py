"""The rule for files that hold secrets: who may read and change them."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


def flaw(
    path: Path, found: os.stat_result, *, group_may_read: bool = True, any_owner: bool = False
) -> str | None:
    """Return the reason why a file is unfit for a secret, with the remedy; None: it is fit.

    Args:
        path: the file, for the remedy.
        found: its status.
        group_may_read: whether its group may read it.
        any_owner: whether it may belong to a user other than root and the process's own.

    """
    if not stat.S_ISREG(found.st_mode):
        # A pipe, as a shell's <(command) makes one.
        return None
    if found.st_mode & (_OTHERS if group_may_read else _OTHERS | stat.S_IRGRP):
        return f"others may read or change it: chmod 600 {path}"
    if not any_owner and found.st_uid not in (0, os.geteuid()):
        return "it belongs to another user: chown it"
    return None

"""The rule for files that hold secrets: who may read and change them."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


def flaw(
    path: Path, found: os.stat_result, *, group_may_read: bool = True, in_own_folder: bool = False
) -> str | None:
    """Return the reason why a file is unfit for a secret, with the remedy; None: it is fit.

    It must belong to root or to the process's user.

    Args:
        path: the file, for the remedy.
        found: its status.
        group_may_read: whether its group may read it.
        in_own_folder: whether a process of root also takes a file of the user whose folder it is
            in. Services with a user of their own keep their files so.

    Raises:
        OSError: the folder cannot be read.

    """
    if not stat.S_ISREG(found.st_mode):
        # A pipe, as a shell's <(command) makes one.
        return None
    if found.st_mode & (_OTHERS if group_may_read else _OTHERS | stat.S_IRGRP):
        return f"others may read or change it: chmod 600 {path}"
    owners = {0, os.geteuid()}
    if in_own_folder and os.geteuid() == 0:
        owners.add(path.resolve().parent.stat().st_uid)
    if found.st_uid not in owners:
        return "it belongs to another user: chown it"
    return None

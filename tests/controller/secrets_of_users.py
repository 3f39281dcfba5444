"""Files of other users, for tests that run as root or not."""

import os
from pathlib import Path

import pytest

OTHER = 65_534


def as_root_beside_a_folder_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make the folder one of a user who is not root, and this process one of root, as it seems.

    Returns the user's number.
    """
    if os.geteuid() == 0:
        os.chown(folder, OTHER, OTHER)
        return OTHER
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder.stat().st_uid

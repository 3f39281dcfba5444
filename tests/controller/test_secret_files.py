"""The rule for files that hold secrets."""

import os
import stat
from pathlib import Path

import pytest

from pacer_controller.secret_files import flaw


@pytest.mark.parametrize(
    ("mode", "is_fit", "is_fit_without_group"),
    [
        (0o600, True, True),
        (0o400, True, True),
        (0o640, True, False),
        (0o620, False, False),
        (0o604, False, False),
        (0o602, False, False),
    ],
)
def test_others_neither_read_nor_change_a_secret(
    tmp_path: Path, mode: int, is_fit: bool, is_fit_without_group: bool
) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    assert (flaw(path, path.stat()) is None) is is_fit
    alone = flaw(path, path.stat(), group_may_read=False)
    assert (alone is None) is is_fit_without_group
    assert is_fit_without_group or f"chmod 600 {path}" in str(alone)


def test_a_secret_belongs_to_root_or_its_user() -> None:
    path = Path("secret")
    for owner, is_fit in ((0, True), (os.geteuid(), True), (os.geteuid() + 1, False)):
        found = os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, owner, 0, 0, 0, 0, 0))
        reason = flaw(path, found)
        assert (reason is None) is is_fit
        assert is_fit or "belongs to another user" in str(reason)
        assert flaw(path, found, any_owner=True) is None


def test_a_pipe_is_fit(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o666)
    path.chmod(0o666)
    assert flaw(path, path.stat()) is None

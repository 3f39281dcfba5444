"""The rule for files that hold secrets."""

import os
import stat
from pathlib import Path

import pytest
from secrets_of_users import as_root_beside_a_folder_of

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


def test_root_takes_a_secret_of_the_user_whose_folder_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = as_root_beside_a_folder_of(tmp_path, monkeypatch)
    path = tmp_path / "secret"
    for owner, is_fit in ((user, True), (user + 1, False)):
        found = os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, owner, 0, 0, 0, 0, 0))
        assert (flaw(path, found, in_own_folder=True) is None) is is_fit
        assert flaw(path, found) is not None
    # Nobody else does.
    monkeypatch.setattr(os, "geteuid", lambda: user + 2)
    found = os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, user, 0, 0, 0, 0, 0))
    assert flaw(path, found, in_own_folder=True) is not None


def test_a_pipe_is_fit(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o666)
    path.chmod(0o666)
    assert flaw(path, path.stat()) is None

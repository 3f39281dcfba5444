"""The credentials that a controller uses for a switch: found, given, or none."""

import os
from pathlib import Path

import pytest
from certificates import make_certificate
from secrets_of_users import as_root_beside_a_folder_of

from pacer_controller import switch_tls
from pacer_controller.switch_tls import SwitchTls, endpoint

ELSEWHERE = "192.0.2.1:9559"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state folder as a switch makes it, where this user's is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(switch_tls, "_ROOTS_FOLDER", tmp_path / "roots")
    folder = tmp_path / switch_tls.SWITCH_NAME
    folder.mkdir()
    key, certificate = make_certificate(folder / "client")
    key.rename(folder / "client-key.pem").chmod(0o600)
    certificate.rename(folder / "client.pem")
    (folder / "authority.pem").write_bytes((folder / "client.pem").read_bytes())
    return folder


def test_a_switch_on_this_machine_is_reached_without_tls(folder: Path) -> None:
    for address in ("127.0.0.1:9559", "127.8.0.1:1", "localhost:9559", "[::1]:9559"):
        assert endpoint(address, SwitchTls()) == (address, None)
    assert folder.exists()


def test_a_switch_elsewhere_is_reached_with_what_is_found(folder: Path) -> None:
    for address in (ELSEWHERE, f"tls:{ELSEWHERE}"):
        reached, tls = endpoint(address, SwitchTls())
        assert reached == ELSEWHERE
        assert tls is not None
        assert tls.cert == (folder / "client.pem").read_bytes()
        assert tls.target_name_override == switch_tls.SWITCH_NAME
    assert endpoint(f"plain:{ELSEWHERE}", SwitchTls()) == (ELSEWHERE, None)


def test_what_is_given_goes_before_what_is_found(folder: Path) -> None:
    authority = folder / "authority.pem"
    _, tls = endpoint(f"tls:{ELSEWHERE}", SwitchTls(authority))
    assert tls is not None
    assert tls.cert is None
    assert tls.target_name_override == ""


def test_without_credentials_a_plain_address_stays_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(switch_tls, "_ROOTS_FOLDER", tmp_path)
    assert endpoint(ELSEWHERE, SwitchTls()) == (ELSEWHERE, None)


def test_a_key_of_another_user_is_refused_but_not_by_root_in_that_users_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A switch with a user of its own keeps its files so.
    user = as_root_beside_a_folder_of(folder, monkeypatch)
    key = folder / "client-key.pem"
    if key.stat().st_uid != user:
        os.chown(key, user, user)
    assert endpoint(ELSEWHERE, SwitchTls())[1] is not None
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(OSError, match="belongs to another user"):
        endpoint(ELSEWHERE, SwitchTls())


def test_a_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "client-key.pem").chmod(0o644)
    with pytest.raises(OSError, match="chmod 600"):
        endpoint(ELSEWHERE, SwitchTls())

"""Where the package finds the program, and what it says when there is none."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from pacing_switch import NoSwitchError, program, program_path


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without the program; its folder of programs."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.delenv("PACING_SWITCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(bin_folder / "python3"))
    monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(tmp_path / "scripts"))
    monkeypatch.setattr(program, "__file__", str(tmp_path / "lib" / "pacing_switch" / "program.py"))
    return bin_folder


def executable(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_variable_names_another_program(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(empty / "pacing_switch")
    own = executable(tmp_path / "own")
    monkeypatch.setenv("PACING_SWITCH", str(own))
    assert program_path() == own
    monkeypatch.setenv("PACING_SWITCH", str(tmp_path / "none"))
    with pytest.raises(NoSwitchError, match=r"\$PACING_SWITCH is .*/none, which is not a file"):
        program_path()


@pytest.mark.parametrize("folder", ["bin", "scripts", "lib/bin"])
def test_the_wheels_program_comes_before_the_one_on_path(
    empty: Path, tmp_path: Path, folder: str
) -> None:
    on_path = executable(tmp_path / "path" / "pacing_switch")
    assert program_path() == on_path
    (tmp_path / "lib").mkdir()
    brought = executable(tmp_path / folder / "pacing_switch")
    assert program_path() == brought


@pytest.mark.usefixtures("empty")
def test_without_a_program_the_error_says_how_to_get_one() -> None:
    with pytest.raises(NoSwitchError, match="pip install pacing-switch"):
        program_path()

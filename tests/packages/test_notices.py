"""The notices of the crates in pacing_switch, which come with its packages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

from notices import NoticeError, Package, crates, notices  # noqa: E402 (needs the path above)

MIT = "Permission is hereby granted, free of charge, to any\nperson obtaining a copy of it."


def crate(folder: Path, name: str, licence: str, **files: str) -> Package:
    """Make a crate's archive with these files; return its metadata."""
    place = folder / name
    place.mkdir()
    for file, text in files.items():
        (place / file).write_text(text)
    return {
        "name": name,
        "version": "1.0.0",
        "license": licence,
        "authors": ["A. Author"],
        "manifest_path": str(place / "Cargo.toml"),
    }


def test_each_text_stands_once_below_its_crates(tmp_path: Path) -> None:
    packages = [
        crate(tmp_path, "one", "MIT", LICENSE=MIT, NOTICE="of one"),
        crate(tmp_path, "other", "MIT", LICENCE=f"{MIT}\n", README="nothing"),
    ]
    text = notices(packages)
    assert text.count(MIT) == 1
    assert "one 1.0.0 (MIT)\nother 1.0.0 (MIT)\n" in text
    assert "of one" in text
    assert "nothing" not in text


def test_a_crate_without_a_file_has_the_text_of_its_licence(tmp_path: Path) -> None:
    packages = [
        crate(tmp_path, "bare", "Apache-2.0 OR MIT"),
        crate(tmp_path, "one", "MIT", LICENSE=MIT),
    ]
    text = notices(packages)
    assert "bare 1.0.0 (Apache-2.0 OR MIT), by A. Author; no licence file of its own" in text
    with pytest.raises(NoticeError, match=r"the crate bare 1\.0\.0 has no licence file"):
        notices(packages[:1])


def test_every_crate_of_the_program_is_named() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("not run: no cargo")
    packages = crates()
    names = {package["name"] for package in packages}
    assert {"tokio", "tonic", "thrift"} <= names
    # Tests need it, and the program does not.
    assert "proptest" not in names
    text = notices(packages)
    for package in packages:
        assert f"\n{package['name']} {package['version']} (" in text

"""The links of the pages that the Debian packages bring lead to files that the packages have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("docs", "packaging"):
    sys.path.insert(0, str(ROOT / folder))

from installed_docs import places  # noqa: E402 (needs the path above)

from build import LINK, anchors, outside_code  # noqa: E402 (needs the path above)

FOLDERS = ("controller", "docs", "lab", "mininet", "packaging", "switch/proto", "switch/thrift")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a tree as packaging/deb has it."""
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


def test_links_lead_to_files_of_the_packages(tree: Path) -> None:
    before = (tree / "docs" / "install.md").read_text()
    subprocess.run([sys.executable, ROOT / "packaging" / "installed_docs.py", tree], check=True)
    installed = places(tree)
    files = {place: file for file, place in installed.items()}
    pages = {place: file.read_text() for place, file in files.items() if file.suffix == ".md"}
    links = 0
    for place, text in pages.items():
        for _, _, target in LINK.findall(outside_code(text)):
            name, _, anchor = target.partition("#")
            if not name or re.match("[a-z]+:", target):
                continue
            there = Path(os.path.normpath(place.parent / name))
            assert there in files, f"{place}: {target}"
            assert not anchor or anchor in anchors(pages[there]), f"{place}: {target}"
            links += 1
    assert links > 50
    after = pages[Path("/usr/share/doc/p4-pspacer/install.md")]
    assert "](../pacing-switch/bmv2.md#" in after
    assert "](../../pacing-switch/proto/" in pages[Path("/usr/share/doc/pacing-switch/switch.md")]
    # A page that no package has is named without a link.
    assert "the [experiments](experiments.md)" in before
    assert "the experiments nor" in after


def test_a_page_has_one_place(tree: Path) -> None:
    lists = tree / "packaging" / "debian"
    with (lists / "p4-pspacer.docs").open("a") as opened:
        opened.write("docs/switch.md\n")
    with pytest.raises(ValueError, match=r"docs/switch\.md is in /usr/share/doc/p4-pspacer, too"):
        places(tree)

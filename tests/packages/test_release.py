"""A release has the source of the lab's kernel, and a bill of materials that names it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = "p4-pspacer-lab"
CONTROL = f"""Package: {LAB}
Version: 1.0
Architecture: amd64
Maintainer: P4 PSPacer developers <p4-pspacer@p4-pspacer.invalid>
Built-Using: linux (= 6.1.1-1)
Description: a test
"""
PATCHES = sorted(path.name for path in (ROOT / "lab" / "patches").iterdir())

Release = Callable[[], subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout in which all packages are built."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("not run: no dpkg-deb")
    checkout = tmp_path / "checkout"
    for folder in ("lab", "packaging"):
        shutil.copytree(ROOT / folder, checkout / folder)
    build = checkout / "build"
    for name in ("wheel/a.whl", "image/a.oci.tar", "image/image.cdx.json"):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text(name)
    sboms = build / "package" / "wheel" / "unpacked" / "a.dist-info" / "sboms"
    sboms.mkdir(parents=True)
    (sboms / "pacing_switch.cyclonedx.json").touch()
    (tmp_path / "deb" / "DEBIAN").mkdir(parents=True)
    (tmp_path / "deb" / "DEBIAN" / "control").write_text(CONTROL)
    (build / "deb").mkdir()
    deb = build / "deb" / f"{LAB}_1.0_amd64.deb"
    command = ["dpkg-deb", "--build", str(tmp_path / "deb"), str(deb)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "linux.tar.xz").write_text("source")
    return checkout


@pytest.fixture
def release(checkout: Path, tmp_path: Path) -> Release:
    """Return a function that collects the packages of the checkout."""
    tools = tmp_path / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").symlink_to(sys.executable)
    (tools / "git").write_text("#!/bin/sh\necho 1000000000\n")
    (tools / "cyclonedx-py").write_text("#!/bin/sh\n")
    for program in ("git", "cyclonedx-py"):
        (tools / program).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "LAB_LINUX_SOURCE": str(tmp_path / "linux.tar.xz"),
    }

    def run() -> subprocess.CompletedProcess[str]:
        command = [checkout / "packaging" / "release", tools.parent]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


def test_a_release_has_the_kernels_source(checkout: Path, release: Release, tmp_path: Path) -> None:
    first, second = release(), release()
    assert first.returncode == 0, first.stderr
    assert second.stdout == first.stdout
    out = checkout / "build" / "release"
    assert {line.split()[1] for line in first.stdout.splitlines()} == {
        path.name for path in out.iterdir()
    } - {"SHA256SUMS"}
    source = tmp_path / "source"
    source.mkdir()
    subprocess.run(["tar", "-xf", out / f"{LAB}_1.0_source.tar", "-C", source], check=True)
    assert (source / "linux.tar.xz").read_text() == "source"
    for name in ("build", "kernel.config", *(f"patches/{name}" for name in PATCHES)):
        assert (source / "lab" / name).read_bytes() == (ROOT / "lab" / name).read_bytes(), name
    bill = json.loads((out / f"{LAB}.cdx.json").read_text())
    (kernel,) = bill["components"]
    assert (kernel["name"], kernel["version"]) == ("linux", "6.1.1-1")
    urls = [patch["diff"]["url"] for patch in kernel["pedigree"]["patches"]]
    assert urls == [f"lab/patches/{name}" for name in PATCHES]


def test_no_release_without_the_kernels_source(release: Release, tmp_path: Path) -> None:
    (tmp_path / "linux.tar.xz").unlink()
    refused = release()
    assert refused.returncode == 1
    assert "the source of the lab's kernel is not installed" in refused.stderr

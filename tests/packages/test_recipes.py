"""Recipes, versions and documentation of the packages agree; nothing is built."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL = (ROOT / "docs" / "install.md").read_text()
SCAPY = "python3-scapy"
WHEEL: dict[str, Any] = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())


def version(*options: str) -> str:
    command = [str(ROOT / "packaging" / "version"), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def pins(name: str) -> dict[str, str]:
    """Return the versions that a requirements file sets."""
    found = re.findall(r"^([a-z0-9-]+)==([^ \\\n]+)", (ROOT / name).read_text(), re.MULTILINE)
    return dict(found)


def test_there_is_one_version() -> None:
    cargo = tomllib.loads((ROOT / "switch" / "Cargo.toml").read_text())
    of_all = cargo["workspace"]["package"]["version"]
    assert version("--plain") == of_all
    assert version().startswith(of_all)
    for part in ("pacer-controller", "pacer-mininet"):
        assert importlib.metadata.version(part) == of_all, part
    for folder in ("python", "controller", "mininet"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert project["dynamic"] == ["version"], folder
        assert "version" not in project, folder
    for crate in (ROOT / "switch" / "crates").glob("*/Cargo.toml"):
        assert "version.workspace = true" in crate.read_text(), crate


def test_the_tools_of_a_release_are_pinned() -> None:
    wanted, locked = pins("requirements-release.in"), pins("requirements-release.lock")
    assert wanted.items() <= locked.items()
    assert WHEEL["build-system"]["requires"] == [f"maturin=={wanted['maturin']}"]


def test_the_wheels_tag_is_the_documented_glibc() -> None:
    glibc = {"manylinux2014": "2.17", "manylinux_2_28": "2.28"}
    assert f"glibc {glibc[WHEEL['tool']['maturin']['compatibility']]} or later" in INSTALL
    python = WHEEL["project"]["requires-python"].removeprefix(">=")
    assert f"Python {python} or later" in INSTALL


def test_the_image_has_what_the_page_says() -> None:
    folder = ROOT / "packaging" / "image"
    # The base comes from Debian's packages, not from an image registry.
    assert re.findall("^FROM .*", (folder / "Containerfile").read_text(), re.MULTILINE) == [
        "FROM scratch"
    ]
    build = (folder / "build").read_text()
    assert '--tag "p4-pspacer:$tag"' in build
    assert "p4-pspacer:VERSION" in INSTALL
    installed = re.search(r"^packages=\((.*)\)$", (folder / "install").read_text(), re.MULTILINE)
    assert installed is not None
    assert {"iperf", "iperf3", SCAPY} <= set(installed[1].split())


def test_packages_name_scapy_for_dry_runs() -> None:
    """What they recommend, apt installs, with what Scapy recommends: a C++ compiler among it."""
    control = (ROOT / "packaging" / "debian" / "control").read_text()
    suggested = re.findall("^Suggests: (.*)$", control, re.MULTILINE)
    assert any(SCAPY in names.split(", ") for names in suggested)
    for page in ("pacer.md", "packet-trace.md"):
        assert f"`{SCAPY}`" in (ROOT / "docs" / page).read_text(), page


def test_the_names_of_bmv2_are_in_one_folder() -> None:
    """It is on PATH in the image, and not in the package."""
    packaging = ROOT / "packaging"
    links = [
        line.split()
        for line in (packaging / "debian" / "pacing-switch.links").read_text().splitlines()
    ]
    assert {target for target, _ in links} == {"usr/bin/pacing_switch"}
    names = {f"/{link}".rpartition("/")[::2] for _, link in links}
    folder = "/usr/lib/pacing-switch/as-bmv2"
    assert names == {(folder, "simple_switch"), (folder, "simple_switch_grpc")}
    assert f" PATH={folder}:" in (packaging / "image" / "Containerfile").read_text()
    assert f"PATH={folder}:$PATH" in INSTALL


def test_packages_of_other_sources_are_noticed(tmp_path: Path) -> None:
    """A changed, new or removed file, or a commit, makes packages stale; a test does not."""
    checkout, built = tmp_path / "checkout", tmp_path / "built"
    for folder in (checkout / "packaging", checkout / "switch", checkout / "tests", built):
        folder.mkdir(parents=True)
    sources = shutil.copy(ROOT / "packaging" / "sources", checkout / "packaging")
    file = checkout / "switch" / "a.rs"
    file.write_text("1")

    def git(*words: str) -> None:
        settings = [
            "user.name=test",
            "user.email=test@p4-pspacer.invalid",
            "core.hooksPath=/dev/null",
        ]
        given = [word for setting in settings for word in ("-c", setting)]
        subprocess.run(["git", "-C", str(checkout), *given, *words], check=True)

    def build() -> None:
        digest = subprocess.run([sources], check=True, capture_output=True, text=True).stdout
        (built / "SOURCES").write_text(digest)

    def is_fresh() -> bool:
        return subprocess.run([sources, "--check", str(built)]).returncode == 0

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    assert not is_fresh()
    build()
    assert is_fresh()
    changes: list[Callable[[], object]] = [
        lambda: file.write_text("2"),
        lambda: (checkout / "switch" / "b.rs").write_text(""),
        file.unlink,
        lambda: git("commit", "--quiet", "--allow-empty", "--message", "two"),
    ]
    for change in changes:
        change()
        assert not is_fresh()
        build()
        assert is_fresh()
    (checkout / "tests" / "test_a.py").write_text("")
    assert is_fresh()


def within_limit(settings: str, work: str) -> subprocess.CompletedProcess[str]:
    """Run the check of the trials on some work."""
    script = f". {ROOT}/tests/packages/limits.sh; {settings}; begin; {work}; within_limit work"
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("settings", "work", "refused"),
    [
        ("limit_s=60", "sleep 0.1", ""),
        # Of processor time, whatever else runs.
        (
            "limit_s=0.1 others_share=-1",
            "awk 'BEGIN { while (i++ < 30000000); }'",
            "processor time, more",
        ),
        # On the clock, while the machine does nothing else.
        ("limit_s=0.1 others_share=2", "sleep 0.2", "more than 0.1 s"),
        ("limit_s=0.1 others_share=-1", "sleep 0.2", ""),
    ],
)
def test_a_trial_that_takes_too_long_fails(settings: str, work: str, refused: str) -> None:
    result = within_limit(settings, work)
    assert result.returncode == bool(refused), result
    assert refused in result.stdout


def test_the_limit_is_the_documented_one() -> None:
    limit = re.search(
        r"^limit_s=(\d+)$", (ROOT / "tests/packages/limits.sh").read_text(), re.MULTILINE
    )
    assert limit is not None
    assert f"at most {limit[1]} s on an idle machine" in INSTALL
    for trial in ("deb-trial", "wheel-trial", "image-trial"):
        assert "\nwithin_limit " in (ROOT / "tests" / "packages" / trial).read_text(), trial


@pytest.mark.parametrize("name", ["run.py", "tests/router.py"])
def test_the_page_on_ptf_shows_the_examples_own_lines(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ptf.md").read_text(), re.DOTALL)
    text = (ROOT / "examples" / "ptf" / name).read_text()
    assert sum(block in text for block in blocks) == 1


def test_every_documented_target_collects_into_the_release() -> None:
    release = (ROOT / "packaging" / "release").read_text()
    for name in ("pacing_switch", "p4-pspacer", "p4-pspacer-lab", "image"):
        assert f"{name}.cdx.json" in release
        assert f"`{name}.cdx.json`" in INSTALL


def test_the_examples_entries_fit_its_program() -> None:
    entries = json.loads((ROOT / "examples" / "ptf" / "entries.json").read_text())
    compiled = ROOT / "tests" / "bench" / "programs" / "compiled" / "v1model" / "router.json"
    program = json.loads(compiled.read_text())
    tables = {table["name"] for pipeline in program["pipelines"] for table in pipeline["tables"]}
    assert {entry["table"] for entry in entries["table_entries"]} <= tables

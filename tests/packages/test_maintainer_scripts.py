"""The scripts that dpkg runs tell systemd how a change of the packages affects the services.

debhelper makes the scripts as it does for the packages. They run here with programs that only note
their calls, and with other paths.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """p4-pspacer (1) unstable; urgency=medium

  * A test.

 -- P4 PSPacer developers <p4-pspacer@p4-pspacer.invalid>  Sat, 28 Nov 2026 12:00:00 +0000
"""
NOTED = ("systemctl", "deb-systemd-invoke", "deb-systemd-helper", "adduser", "getent")
RELOAD = "systemctl --system daemon-reload"
TRY_RESTART = "deb-systemd-invoke try-restart pacer-controller.service"

Dpkg = Callable[..., list[str]]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the scripts of all packages: PACKAGE/DEBIAN/NAME in the folder."""
    if shutil.which("dh_installsystemd") is None:
        pytest.skip("not run: no debhelper")
    tree = tmp_path_factory.mktemp("tree")
    debian = shutil.copytree(ROOT / "packaging" / "debian", tree / "debian")
    units = ROOT / "packaging" / "systemd"
    shutil.copy(units / "pacing-switch@.service", debian)
    controller = units / "pacer-controller.service"
    shutil.copy(controller, debian / "p4-pspacer.pacer-controller.service")
    (debian / "changelog").write_text(CHANGELOG)
    for command in (["debian/rules", "override_dh_installsystemd"], ["dh_installdeb"]):
        subprocess.run(command, cwd=tree, check=True)
    return Path(debian)


@pytest.fixture(params=[True, False], ids=["systemd", "no-systemd"])
def has_systemd(request: pytest.FixtureRequest) -> bool:
    """Whether systemd runs."""
    return bool(request.param)


@pytest.fixture
def dpkg(scripts: Path, tmp_path: Path, has_systemd: bool) -> Dpkg:
    """Return a function that runs a script of a package and returns the calls that it made."""
    log, tools = tmp_path / "log", tmp_path / "tools"
    tools.mkdir()
    for name in NOTED:
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
        (tools / name).chmod(0o755)
    (tmp_path / "etc/pacer").mkdir(parents=True)
    if has_systemd:
        (tmp_path / "run/systemd/system").mkdir(parents=True)

    def run(package: str, name: str, *arguments: str) -> list[str]:
        script = scripts / package / "DEBIAN" / name
        if not script.exists():
            return []
        text = script.read_text()
        for folder in ("/etc/", "/run/", "/var/"):
            text = text.replace(folder, f"{tmp_path}{folder}")
        log.write_text("")
        subprocess.run(
            ["sh", "-c", text, name, *arguments],
            check=True,
            env={"PATH": f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        return log.read_text().splitlines()

    return run


def test_an_upgrade_restarts_a_controller_that_runs_once(dpkg: Dpkg, has_systemd: bool) -> None:
    before = dpkg("p4-pspacer", "prerm", "upgrade", "2")
    before += dpkg("p4-pspacer", "preinst", "upgrade", "1")
    before += dpkg("p4-pspacer", "postrm", "upgrade", "2")
    # A service that is stopped is none that `try-restart` starts again.
    assert not any("systemctl" in call or "deb-systemd-invoke" in call for call in before)
    after = dpkg("p4-pspacer", "postinst", "configure", "1")
    told = [call for call in after if not call.startswith(("deb-systemd-helper", "getent"))]
    assert told == ([RELOAD, TRY_RESTART] if has_systemd else [])


def test_a_first_installation_starts_nothing(dpkg: Dpkg) -> None:
    for package in ("p4-pspacer", "pacing-switch"):
        calls = dpkg(package, "preinst", "install") + dpkg(package, "postinst", "configure", "")
        assert not any("start" in call for call in calls), package


@pytest.mark.parametrize("package", ["p4-pspacer", "pacing-switch"])
@pytest.mark.parametrize(
    "step", [("postinst", "configure", ""), ("postinst", "configure", "1"), ("postrm", "remove")]
)
def test_systemd_reads_the_units_of_each_package_once(
    dpkg: Dpkg, has_systemd: bool, package: str, step: tuple[str, ...]
) -> None:
    assert dpkg(package, *step).count(RELOAD) == has_systemd


def test_a_purge_removes_the_locks_of_the_lab(dpkg: Dpkg, tmp_path: Path) -> None:
    # The package's folder for them is a link to /run/lock.
    name = re.search(r"build/lab/(\S+\.lock)", (ROOT / "lab" / "run").read_text())
    assert name is not None
    lock = tmp_path / "run" / "lock" / name[1].replace("$n", "3")
    other = lock.with_name("another.lock")
    lock.parent.mkdir(parents=True)
    for file in (lock, other):
        file.touch()
    dpkg("p4-pspacer-lab", "postrm", "remove")
    assert lock.exists()
    dpkg("p4-pspacer-lab", "postrm", "purge")
    assert not lock.exists()
    assert other.exists()

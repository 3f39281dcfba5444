"""Digests of everything that a run's result depends on, apart from its scenario; and a table's."""

import hashlib
import json
import os
from modulefinder import ModuleFinder
from pathlib import Path

from pacer_mininet import paths
from pacer_mininet.ovs_switch import installed_ovs

_MAKES_RUNS = "pacer_mininet.experiments.inside"
"""The module that makes a run."""

OPENVSWITCH = "openvswitch"
"""Name of the digest that only runs with Open vSwitch depend on."""

BMV2 = "bmv2"
"""Name of the digest that only runs with stock BMv2 depend on."""

_MAKES_TABLES = "pacer_mininet.experiments.reporting"
"""The module that makes tables, plots and the report."""

_LISTS = "pacer_mininet.experiments.catalogue"
"""The module that lists the experiments."""


def digest_of(files: list[Path]) -> str:
    """Return one digest of files, by their names and contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.name} {content}\n".encode())
    return digest.hexdigest()


def closure(module: str, root: Path) -> list[Path]:
    """Return the files below `root` that importing `module` can execute, sorted.

    Imports inside functions count, too. Modules outside `root` (the standard library, installed
    packages) are left out.

    Raises:
        ModuleNotFoundError: `module` itself has no file below `root`.

    """
    finder = ModuleFinder(path=[str(root)])
    try:
        finder.import_hook(module)
    except ImportError:
        raise ModuleNotFoundError(f"no module {module!r} in {root}", name=module) from None
    files = (vars(one)["__file__"] for one in finder.modules.values())
    return sorted(Path(file) for file in files if file is not None)


def kernel_name(*, realtime: bool) -> str:
    """Return the identity of the kernel of the runs and of its setup."""
    if realtime:
        return os.uname().release
    lab = paths.LAB_RUN.parent
    setup = [lab / "init", lab / "run"]
    named = os.environ.get("LAB_KERNEL")
    if named:
        return f"{Path(named).name} {digest_of(setup)}"
    sources = [lab / "kernel.config", *sorted((lab / "patches").iterdir())]
    return digest_of([*sources, *setup])


def openvswitch_name() -> str:
    """Return the digest of the programs of the patched Open vSwitch; empty when it is not built."""
    try:
        programs = (installed_ovs() / "bin").iterdir()
    except paths.MissingError:
        return ""
    return digest_of(list(programs))


def bmv2_name() -> str:
    """Return the digest of BMv2 and its programs; empty when it is not on PATH."""
    try:
        switch = paths.need_bmv2()
    except paths.MissingError:
        return ""
    return digest_of([switch, *(paths.COMPILED / "bmv2").glob("*.json")])


def of_this_checkout(*, realtime: bool) -> dict[str, str]:
    """Return the digests of the programs that make runs, and the kernel's name."""
    controller = paths.REPO / "controller" / "src" / "pacer_controller"
    return {
        "switch": digest_of([paths.SWITCH_BINARY]),
        "programs": digest_of(list((paths.COMPILED / "pacing_switch").glob("*.json"))),
        "controller": digest_of(list(controller.rglob("*.py"))),
        "runs": digest_of(closure(_MAKES_RUNS, paths.MININET_DIR)),
        "kernel": kernel_name(realtime=realtime),
        "packages": digest_of([paths.REPO / "requirements.lock"]),
        OPENVSWITCH: openvswitch_name(),
        BMV2: bmv2_name(),
    }


def of_tables(made_of: dict[str, str]) -> str:
    """Return a digest of all that tables, plots and report depend on besides the runs' results.

    The departures of the switch alone depend on the programs that make runs (`made_of`), too.
    """
    modules = [closure(one, paths.MININET_DIR) for one in (_MAKES_TABLES, _LISTS)]
    accuracy = (paths.REPO / "tests" / "accuracy").glob("*.py")
    content = digest_of(list({*modules[0], *modules[1], *accuracy}))
    return hashlib.sha256(f"{content}{json.dumps(made_of)}".encode()).hexdigest()

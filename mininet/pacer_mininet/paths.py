"""The paths of this checkout's parts, and errors that name missing parts and the remedy."""

import os
import shutil
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
"""The checkout that contains this package."""

MININET_DIR = REPO / "mininet"
OVERRIDES = ("PACING_SWITCH", "PACER_CONTROLLER", "PACER_OVS")
"""Environment variables that name executables to use instead of this checkout's."""

SWITCH_BINARY = Path(
    os.environ.get("PACING_SWITCH") or REPO / "switch" / "target" / "release" / "pacing_switch"
)
CONTROLLER = Path(
    os.environ.get("PACER_CONTROLLER") or REPO / "build" / "venv" / "bin" / "pacer-controller"
)
COMPILED = REPO / "p4src" / "compiled"
SNAKEMAKE = REPO / "build" / "snakemake" / "bin" / "snakemake"
LAB_RUN = REPO / "lab" / "run"
LAB_BUILD = REPO / "lab" / "build"
LAB_AVAILABLE = REPO / "lab" / "available"


class MissingError(RuntimeError):
    """A dependency of a network is not installed or built; the text says how to get it."""


_PACKAGES = {
    "ethtool": "ethtool",
    "ip": "iproute2",
    "iperf": "iperf",
    "mnexec": "mininet",
    "ping": "iputils-ping",
    "ss": "iproute2",
    "stdbuf": "coreutils",
    "tc": "iproute2",
}
"""Debian's packages of the programs that nodes and runs start."""


def need_programs(*names: str) -> None:
    """Raise MissingError for programs that are not on PATH; it names their packages."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = sorted({_PACKAGES.get(name, name) for name in missing})
        verb = "is" if len(missing) == 1 else "are"
        raise MissingError(
            f"{', '.join(missing)} {verb} not installed: apt install {' '.join(packages)}"
        )


def need_bmv2() -> Path:
    """Return the path of BMv2's simple_switch_grpc; MissingError when it is not on PATH."""
    found = shutil.which("simple_switch_grpc")
    if found is None:
        raise MissingError(
            "simple_switch_grpc is not on PATH: install BMv2 with its P4Runtime server, as "
            "https://github.com/p4lang/behavioral-model says (targets/simple_switch_grpc)"
        )
    return Path(found)


def need_built(path: Path, what: str) -> Path:
    """Return `path`; MissingError if that part of the checkout is not built."""
    if not path.exists():
        raise MissingError(f"{what} is not built (there is no {path}): run `make switch` in {REPO}")
    return path

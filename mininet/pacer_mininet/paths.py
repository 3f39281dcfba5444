"""The paths of the project's parts, and errors that name missing parts and the remedy.

The parts are in the checkout that contains this package. Without a checkout they are where the
Debian packages have them; the experiments and the lab need a checkout.
"""

import os
import shutil
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
"""The checkout that contains this package, if one does."""

IN_CHECKOUT = (REPO / "p4src").is_dir()
"""Whether this package is part of a checkout. Otherwise it is part of the Debian package."""

_BIN = Path("/usr/bin")
MININET_DIR = REPO / "mininet"
OVERRIDES = ("PACING_SWITCH", "PACER_CONTROLLER", "PACER_OVS")
"""Environment variables that name executables to use instead of this checkout's."""


def _program(override: str, name: str, folder: Path) -> Path:
    """Return the path of a program: the environment's, the checkout's in `folder`, the system's."""
    return Path(os.environ.get(override) or (folder if IN_CHECKOUT else _BIN) / name)


SWITCH_BINARY = _program("PACING_SWITCH", "pacing_switch", REPO / "switch" / "target" / "release")
CONTROLLER = _program("PACER_CONTROLLER", "pacer-controller", REPO / "build" / "venv" / "bin")
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
    """Return `path`; MissingError if that part is not built or not installed."""
    if not path.exists():
        if not IN_CHECKOUT:
            raise MissingError(
                f"{what} is not installed (there is no {path}): install the Debian packages "
                "pacing-switch and p4-pspacer"
            )
        raise MissingError(f"{what} is not built (there is no {path}): run `make switch` in {REPO}")
    return path

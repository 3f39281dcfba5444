"""Where the parts of this checkout are, and errors that say what is missing and what to do."""

import os
import shutil
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
"""The checkout that this package lies in."""

MININET_DIR = REPO / "mininet"
OVERRIDES = ("PACING_SWITCH", "PACER_CONTROLLER", "PACER_OVS")
"""Variables of the environment that name other executables than this checkout's."""

SWITCH_BINARY = Path(
    os.environ.get("PACING_SWITCH") or REPO / "switch" / "target" / "release" / "pacing_switch"
)
CONTROLLER = Path(
    os.environ.get("PACER_CONTROLLER") or REPO / "build" / "venv" / "bin" / "pacer-controller"
)
COMPILED = REPO / "p4src" / "compiled"
LAB_RUN = REPO / "lab" / "run"
LAB_BUILD = REPO / "lab" / "build"
LAB_AVAILABLE = REPO / "lab" / "available"


class MissingError(RuntimeError):
    """Something that an experiment needs is not there; the text says what to do about it."""


_PACKAGES = {
    "ethtool": "ethtool",
    "ip": "iproute2",
    "iperf": "iperf",
    "mnexec": "mininet",
    "ping": "iputils-ping",
    "ss": "iproute2",
    "tc": "iproute2",
}
"""Debian's package of each program that is run."""


def need_programs(*names: str) -> None:
    """Raise MissingError naming programs that are not on PATH, and the packages they are in."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = sorted({_PACKAGES.get(name, name) for name in missing})
        verb = "is" if len(missing) == 1 else "are"
        raise MissingError(
            f"{', '.join(missing)} {verb} not installed: apt install {' '.join(packages)}"
        )


def need_built(path: Path, what: str) -> Path:
    """Return `path`, or raise MissingError when that part of the checkout is not built yet."""
    if not path.exists():
        raise MissingError(f"{what} is not built (there is no {path}): run `make switch` in {REPO}")
    return path

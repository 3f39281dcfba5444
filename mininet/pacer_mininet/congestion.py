"""Which congestion control a run uses: the one that was chosen, or else BIC, the papers'.

One that was chosen is used or refused; nobody gets figures of another one under its name. Only
where none was chosen may a machine's own kernel, which may come without BIC, use CUBIC instead; the
run says so. The lab's kernel has BIC.
"""

import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pacer_mininet import paths

PREFERRED = "bic"
FALLBACK = "cubic"

UNCHOSEN = "default"
"""Stands for PREFERRED where nobody has chosen."""

NAME = re.compile(r"[a-z0-9_]{1,15}", re.ASCII)

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
LAB_TIMEOUT_S = 120


class CongestionControlError(RuntimeError):
    """The kernel has no such congestion control; the text says which ones it has."""


def asked_for(choice: str) -> str:
    """Return the congestion control that is wanted: the one chosen, else BIC."""
    return PREFERRED if choice == UNCHOSEN else choice


def choose(choice: str, available: Sequence[str], *, lab: bool) -> str:
    """Return the congestion control to use on a kernel that has `available`.

    Raises:
        CongestionControlError: the one chosen is not there, or none is that may be used instead.

    """
    wanted = asked_for(choice)
    if wanted in available:
        return wanted
    if choice == UNCHOSEN and not lab and FALLBACK in available:
        return FALLBACK
    kernel = "the lab's kernel" if lab else "this machine's kernel"
    raise CongestionControlError(
        f"{kernel} has no congestion control {wanted!r}; it has {', '.join(sorted(available))}"
    )


def of_this_kernel(choice: str = UNCHOSEN) -> list[str]:
    """Return what the kernel we run on has, `choice` among it if it has that one as a module."""
    load(asked_for(choice))
    return AVAILABLE.read_text().split()


def load(name: str) -> None:
    """Let the kernel load the module of a congestion control, if it has one and we may.

    It does that when root asks for it on a socket; what it says to that is of no interest here.
    """
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            return


def of_the_lab() -> list[str]:
    """Return what the lab's kernel has; boots it, which takes about a second.

    Raises:
        CongestionControlError: the lab does not say.

    """
    asked = subprocess.run(
        [str(paths.LAB_RUN), "--timeout", str(LAB_TIMEOUT_S), "--", "cat", str(AVAILABLE)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    found = asked.stdout.split()
    if asked.returncode != 0 or not found:
        lines = asked.stderr.strip().splitlines()
        raise CongestionControlError(
            "cannot tell what congestion controls the lab's kernel has: "
            + (lines[-1] if lines else f"status {asked.returncode}")
        )
    return found

"""Decides which congestion control a run uses: the chosen one, or else BIC, the papers'.

A chosen one is used or refused, so that no figures of another one appear under its name. Without a
choice, a machine's kernel that lacks BIC uses CUBIC instead, and the results say so. The lab's
kernel has BIC.
"""

import contextlib
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pacer_mininet import paths

PREFERRED = "bic"
FALLBACK = "cubic"

UNCHOSEN = "default"
"""The choice of the default: PREFERRED, or FALLBACK where the kernel lacks it."""

AT_BOTH_ENDS = ("dctcp",)
"""Congestion controls that the receiver has to have, too. DCTCP's echoes each mark (RFC 8257)."""

NAME = re.compile(r"[a-z0-9_]{1,15}", re.ASCII)

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
LAB_TIMEOUT_S = 120


class CongestionControlError(RuntimeError):
    """The kernel lacks a congestion control; the text lists those that it has."""


def asked_for(choice: str) -> str:
    """Return the preferred congestion control for a choice: the chosen one, else BIC."""
    return PREFERRED if choice == UNCHOSEN else choice


def choose(choice: str, available: Sequence[str], *, lab: bool) -> str:
    """Return the congestion control to use on a kernel that has `available`.

    Raises:
        CongestionControlError: the kernel lacks the chosen one, or both default ones.

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
    """Return this kernel's congestion controls.

    The kernel loads a module for `choice`, if there is one, when root asks for it on a socket.
    """
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, asked_for(choice).encode())
    return AVAILABLE.read_text().split()


def of_the_lab() -> list[str]:
    """Return the congestion controls of the lab's kernel; boots it, which takes about a second.

    Raises:
        CongestionControlError: the lab fails.

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
            "cannot list the congestion controls of the lab's kernel: "
            + (lines[-1] if lines else f"status {asked.returncode}")
        )
    return found

"""The frame of a program that makes runs: its namespace, its events, its end.

It runs in the lab or as root in namespaces of its own, never on the machine's own network. It
prints one JSON object per line: `{"event": "phase" | "progress" | "result" | "error", ...}`.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pacer_mininet import congestion, paths, processors
from pacer_mininet.counters import ExperimentError
from pacer_mininet.lab import in_lab
from pacer_mininet.processes import NodeError
from pacer_mininet.rest import ControllerError

FAILURES = (
    paths.MissingError,
    congestion.CongestionControlError,
    ExperimentError,
    NodeError,
    ControllerError,
    OSError,
    ValueError,
)


def emit(event: dict[str, Any]) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def end_with_stdin() -> None:
    """Take everything down when whoever started us is gone: in a PID namespace we are its init."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def prepare_namespace() -> None:
    """Make sure that this is no machine's own network, and prepare it.

    Raises:
        ExperimentError: not root, or interfaces that are not ours.

    """
    if os.geteuid() != 0:
        raise ExperimentError("a run makes network namespaces, which needs root (or the lab)")
    if not in_lab():
        ours = os.stat("/proc/self/ns/net").st_ino
        parent = os.environ.get("PACER_PARENT_NETNS")
        if parent is None or parent == str(ours):
            raise ExperimentError(
                "a run outside the lab wants namespaces of its own: use mininet/demo.py"
            )
        processors.reserve_one()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # The kernel's own IPv6 chatter would be packets that no experiment sent.
    knob = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    if knob.exists():
        knob.write_text("1\n")

"""The frame of a program that makes runs: its namespace, its events, its end.

Such a program runs in the lab, or as root in its own namespaces, never in the machine's network. It
prints one JSON object per line: `{"event": "phase" | "progress" | "result" | "error", ...}`.
"""

import json
import os
import subprocess
import sys
import threading
from typing import Any

from pacer_mininet import congestion, paths, processors
from pacer_mininet.counters import ExperimentError
from pacer_mininet.interfaces import quiet_ipv6
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
    """End when standard input closes; all processes of a PID namespace end with its first one."""

    def watch() -> None:
        # Not by sys.stdin: a thread that holds its lock makes Python abort at exit.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def prepare_namespace() -> None:
    """Check that this is not the machine's own network, and prepare it.

    Raises:
        ExperimentError: this is not root, or not a namespace for runs.

    """
    if os.geteuid() != 0:
        raise ExperimentError("a run makes network namespaces and needs root (or the lab)")
    if not in_lab():
        ours = os.stat("/proc/self/ns/net").st_ino
        parent = os.environ.get("PACER_PARENT_NETNS")
        if parent is None or parent == str(ours):
            raise ExperimentError(
                "a run outside the lab needs its own namespaces: use mininet/demo.py"
            )
        processors.reserve_one()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    quiet_ipv6("default")

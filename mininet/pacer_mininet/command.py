"""The command that makes one run: `python3 mininet/lfn.py NAME ...`.

It runs in the lab or as root in namespaces of its own, never on the machine's own network. What
it says is one JSON object per line: `{"event": "phase" | "progress" | "result" | "error", ...}`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel

from pacer_mininet import congestion, paths, processors
from pacer_mininet.experiment import (
    ALL_RUN_NAMES,
    ExperimentError,
    run_experiment,
    settings_from,
)
from pacer_mininet.iperf import IperfError
from pacer_mininet.nodes import NodeError, in_lab
from pacer_mininet.rest import ControllerError

FAILURES = (
    paths.MissingError,
    congestion.CongestionControlError,
    ExperimentError,
    IperfError,
    NodeError,
    ControllerError,
    OSError,
    ValueError,
)


def emit(event: dict[str, Any]) -> None:
    """Say one thing."""
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(
        prog="lfn.py", description="One iperf run across the long fat network, as JSON lines."
    )
    parser.add_argument("name", choices=ALL_RUN_NAMES)
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--rate", default="500mbit", help="of the bottleneck (default 500mbit)")
    parser.add_argument("--rtt", default="200ms", help="of the empty path (default 200ms)")
    parser.add_argument("--fifo", default="64KB", help="of the bottleneck (default 64KB)")
    parser.add_argument(
        "--cc",
        default=congestion.UNCHOSEN,
        help="congestion control (default bic; where a machine's kernel has none, cubic)",
    )
    parser.add_argument("--out", type=Path, help="also write the result to this file")
    parser.add_argument(
        "--end-with-stdin",
        action="store_true",
        help="end at once, with the whole process namespace, when standard input closes",
    )
    parser.add_argument("--verbose", action="store_true", help="let Mininet tell what it does")
    return parser


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the run that the command line describes; return the exit status."""
    options = parser().parse_args(arguments)
    if options.end_with_stdin:
        end_with_stdin()
    setLogLevel("info" if options.verbose else "warning")
    try:
        settings = settings_from(
            options.name,
            seconds=options.seconds,
            rate=options.rate,
            rtt=options.rtt,
            fifo=options.fifo,
            congestion_control=options.cc,
        )
        paths.need_programs("ip")
        prepare_namespace()
        result = run_experiment(settings, emit)
    except FAILURES as error:
        emit({"event": "error", "run": options.name, "message": str(error)})
        return 1
    emit({"event": "result", **result})
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    return 0

"""Runs a benchmark in a network namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys

_INSIDE = "PACER_BENCH_INSIDE"


def run_inside() -> int | None:
    """Run this program again inside a namespace; return its exit status, or None inside.

    The namespace goes when the last process in it ends. /sys shows the interfaces of the namespace
    that it was mounted in, so it is mounted anew.
    """
    if os.geteuid() != 0:
        raise SystemExit("the benchmark makes a network namespace and pins cores: run it as root")
    if _INSIDE in os.environ:
        return None
    command = ["unshare", "--net", "--mount", "sh", "-c"]
    command += ['mount -t sysfs sysfs /sys && exec "$@"', "sh", sys.executable, *sys.argv]
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}).returncode

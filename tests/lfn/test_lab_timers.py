"""Timers of the lab: what else runs does not change when one fires."""

from __future__ import annotations

import subprocess

from pacer_mininet.runs import in_lab_command

SLEEP_NS = 10_000_000
SLACK_NS = 50_000_000

SLEEP = f"""
import time
with open("/proc/self/timerslack_ns", "w") as slack:
    slack.write("{SLACK_NS}")
began_ns = time.monotonic_ns()
time.sleep({SLEEP_NS} / 1e9)
print(time.monotonic_ns() - began_ns)
"""
"""Sleeps with a timer that may fire up to SLACK_NS later."""


def slept_ns(*, beside: str) -> int:
    """Return how long a process sleeps in the lab beside a shell command."""
    script = '( eval "$2" ) & exec python3 -c "$1"'
    done = subprocess.run(
        in_lab_command(["sh", "-c", script, "sh", SLEEP, beside]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_timer_with_a_range_fires_at_its_end_whatever_else_wakes(lab: None) -> None:
    assert slept_ns(beside=":") == SLEEP_NS + SLACK_NS
    assert slept_ns(beside="while sleep 0.0031; do :; done") == SLEEP_NS + SLACK_NS

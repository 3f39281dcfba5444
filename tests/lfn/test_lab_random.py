"""Random numbers of the lab: restarted, they depend on nothing but the seed."""

from __future__ import annotations

import subprocess
import sys

from pacer_mininet.lab import RNDRESEEDCRNG
from pacer_mininet.runs import in_lab_command

DRAW = f"""
import fcntl, os
os.urandom(BEFORE)
with open("/dev/urandom", "rb") as device:
    fcntl.ioctl(device, {RNDRESEEDCRNG})
print(os.urandom(16).hex())
"""


def after_restart(seed: int, drawn_before: int) -> str:
    """Return random numbers of a lab after a number of drawn bytes and a restart."""
    script = DRAW.replace("BEFORE", str(drawn_before))
    command = in_lab_command([sys.executable, "-c", script], "--seed", str(seed))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def test_a_restart_makes_random_numbers_independent_of_those_before(lab: None) -> None:
    drawn = after_restart(1, 10)
    assert after_restart(1, 5_000) == drawn
    assert after_restart(2, 10) != drawn

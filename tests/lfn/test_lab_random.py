"""Random numbers of the lab: restarted or rewound, they depend on nothing but the seed."""

from __future__ import annotations

import subprocess
import sys

from pacer_mininet.runs import in_lab_command

DRAW = """
import os
from pacer_mininet.lab import restart_random_numbers, rewind_random_numbers
os.urandom(BEFORE)
for _ in range(2):
    rewind_random_numbers()
    for _ in range(2):
        restart_random_numbers()
        print(os.urandom(16).hex())
"""


def drawn(seed: int, drawn_before: int) -> list[str]:
    """Return random numbers of a lab after each of two restarts, then rewound and once more."""
    script = DRAW.replace("BEFORE", str(drawn_before))
    command = in_lab_command([sys.executable, "-c", script], "--seed", str(seed))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def test_a_restart_makes_random_numbers_independent_of_those_before(lab: None) -> None:
    first, second, *again = drawn(1, 10)
    assert first != second
    assert again == [first, second]
    assert drawn(1, 5_000) == [first, second] * 2
    assert first not in drawn(2, 10)

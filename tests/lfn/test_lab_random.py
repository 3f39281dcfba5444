"""Random numbers of the lab: restarted or rewound, they depend on nothing but the seed."""

from __future__ import annotations

import subprocess
import sys

from pacer_mininet.runs import in_lab_command

DRAW = """
import os
from pacer_mininet.lab import restart_random_numbers, rewind_random_numbers
os.urandom(BEFORE)
for number in NUMBERS:
    rewind_random_numbers(number)
    for _ in range(2):
        restart_random_numbers()
        print(os.urandom(16).hex())
"""


def drawn(seed: int, drawn_before: int, *numbers: int) -> list[list[str]]:
    """Return random numbers of a lab after each of two restarts, rewound for each number."""
    script = DRAW.replace("BEFORE", str(drawn_before)).replace("NUMBERS", str(numbers))
    command = in_lab_command([sys.executable, "-c", script], "--seed", str(seed))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = done.stdout.split()
    return [found[at : at + 2] for at in range(0, len(found), 2)]


def test_a_restart_makes_random_numbers_independent_of_those_before(lab: None) -> None:
    pair, again = drawn(1, 10, 0, 0)
    assert pair[0] != pair[1]
    assert again == pair
    assert drawn(1, 5_000, 0) == [pair]
    assert not set(pair) & set(*drawn(2, 10, 0))


def test_each_number_gives_its_own_random_numbers_whatever_was_drawn_before(lab: None) -> None:
    zero, one, two = drawn(1, 10, 0, 1, 2)
    assert len({*zero, *one, *two}) == 6
    assert drawn(1, 10, 2, 1, 0) == [two, one, zero]

"""The special needs of processes in the virtual-time lab."""

import fcntl
import os

RNDCLEARPOOL = 0x5206
"""The lab's kernel restores the entropy pool of before the first RNDRESEEDCRNG, and mixes in the
argument unless it is 0."""

RNDRESEEDCRNG = 0x5207
"""random(4): the generator takes a new key from the entropy pool."""


def in_lab() -> bool:
    """Whether this is the virtual-time lab."""
    return os.environ.get("LAB") == "1"


def restart_random_numbers() -> None:
    """Make the lab's random numbers from now on independent of how many were drawn before.

    The generator gets a new key from the entropy pool. In the lab, the key depends only on the seed
    and on how many keys were taken since the pool was rewound.
    """
    with open("/dev/urandom", "rb") as device:
        fcntl.ioctl(device, RNDRESEEDCRNG)


def rewind_random_numbers(number: int = 0) -> None:
    """Have the next restarts of the lab's random numbers give the same numbers as the first ones.

    So a run gives the same result whether it is the first on its network or a later one. Another
    `number` than 0 gives other numbers, which depend on it and on the lab's seed.
    """
    with open("/dev/urandom", "rb") as device:
        fcntl.ioctl(device, RNDRESEEDCRNG)  # The first one keeps the pool.
        fcntl.ioctl(device, RNDCLEARPOOL, number)


def departures_here() -> str:
    """Return which side sends frames at their departure times by default: `switch` or `kernel`.

    In the lab, system calls of the switch are expensive and the kernel's timers are exact. Other
    kernels may lack the queueing discipline fq.
    """
    return "kernel" if in_lab() else "switch"

"""Says whether this process runs in the virtual-time lab."""

import os


def in_lab() -> bool:
    """Whether this is the virtual-time lab."""
    return os.environ.get("LAB") == "1"


def departures_here() -> str:
    """Return which side sends frames at their departure times by default: `switch` or `kernel`.

    In the lab, system calls of the switch are expensive and the kernel's timers are exact. Other
    kernels may lack the queueing discipline fq.
    """
    return "kernel" if in_lab() else "switch"

"""Names the kernel that runs are made on, so that results of another one are told apart."""

import os
from pathlib import Path

from pacer_mininet import paths
from pacer_mininet.experiments.cache import digest_of


def kernel_name(*, realtime: bool) -> str:
    """Return what tells the kernel of the runs, and how it is set up, from others."""
    if realtime:
        return os.uname().release
    lab = paths.LAB_RUN.parent
    set_up_by = [lab / "init", lab / "run"]
    named = os.environ.get("LAB_KERNEL")
    if named:
        return f"{Path(named).name} {digest_of(set_up_by)}"
    made_of = [lab / "kernel.config", *sorted((lab / "patches").iterdir())]
    return digest_of([*made_of, *set_up_by])

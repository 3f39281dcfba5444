"""Builds and starts a Mininet network of pacing switches, and takes it down."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from mininet.net import Mininet
from mininet.topo import Topo

from pacer_mininet.controller import PacerController
from pacer_mininet.interfaces import DirectIntf
from pacer_mininet.pacing_switch import PacingSwitch

OPEN_FILES = 1024


def limit_open_files() -> None:
    """Lower the number of files that a process may open to what Mininet itself sets.

    `mnexec -c` closes every descriptor up to the limit, one system call each, for every node. With
    a limit of a million that takes seconds for each node, and minutes in the lab.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft > OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))


@contextmanager
def started(topo: Topo) -> Iterator[Mininet]:
    """Build a network and start it; its processes end with the block."""
    limit_open_files()
    # Mininet's own preparation changes limits of the whole machine. Nothing here needs them.
    Mininet.inited = True
    net = Mininet(
        topo=topo,
        switch=PacingSwitch,
        controller=PacerController,
        intf=DirectIntf,
        autoSetMacs=True,
        build=False,
    )
    try:
        net.build()
        net.start()
        yield net
    finally:
        net.stop()

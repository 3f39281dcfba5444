"""Fixtures: a real switch process, a real controller process, and wires between them.

All tests run in a network namespace of their own: the main thread enters it before the first test,
so that every process, socket and thread that it makes is inside, and leaves it at the end. Where
that is refused (no root, no user namespaces), tests that need interfaces are skipped by name and
the others use the host's loopback.

`TARGET` says which switch: `pacing_switch` (default; its binary from `PACING_SWITCH` or the
cargo build) or `bmv2` (simple_switch_grpc from PATH).
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller_harness import Controller, Network, Switch
from rest_client import Client

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))

from pacing_switch.wires import make_wires

_CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="session", autouse=True)
def network() -> Iterator[Network]:
    """Enter a network namespace with three wires; leave it afterwards.

    Every test is inside. gRPC connects in threads of its own, which the first channel of the
    process starts, and which stay in the namespace of that time.
    """
    if threading.current_thread() is not threading.main_thread():
        pytest.fail("the namespace belongs to the main thread: do not run these tests in threads")
    libc = ctypes.CDLL(None, use_errno=True)
    outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            yield Network(private=False)
            return
        try:
            ports = {number: f"port{number}" for number in (1, 2, 3)}
            make_wires([(f"sw{number}", name) for number, name in ports.items()])
            yield Network(private=True, ports=ports)
        finally:
            if libc.setns(outside, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(outside)


@pytest.fixture
def wires(network: Network) -> Network:
    """Give the network to tests that need interfaces."""
    if not network.private:
        pytest.skip("not run: no permission to make a network namespace")
    return network


@pytest.fixture
def switch(network: Network) -> Iterator[Switch]:
    """Run a switch with the network's ports."""
    process = Switch(network)
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def start_controller(network: Network) -> Iterator[Callable[..., Controller]]:
    """Start controllers that end with the test."""
    started: list[Controller] = []

    def start(*options: str) -> Controller:
        started.append(Controller(*options))
        return started[-1]

    yield start
    for controller in started:
        controller.close()


@pytest.fixture
def controller(switch: Switch, start_controller: Callable[..., Controller]) -> Controller:
    """Run a controller connected to the switch, under the name s1."""
    started = start_controller("--switch", f"s1={switch.address}{switch.options}")
    started.wait_connected()
    return started


@pytest.fixture
def client() -> Iterator[Client]:
    """Make the application in this process, with switches that are away."""
    made = Client()
    yield made
    made.store.shut()

"""Fixtures: a simulated loop, a network in it, and the model of an etcd cluster."""

from collections.abc import Iterator

import pytest
import threads
from clocks import simulated
from etcd import Cluster
from loop import SimulatedLoop
from network import Network
from rpc import Core, installed


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop("test")
    with simulated(made, "test"), threads.installed():
        yield made
    made.finish()


@pytest.fixture
def network(loop: SimulatedLoop) -> Iterator[Network]:
    made = Network(loop, "test")
    with installed(Core(made)):
        yield made


@pytest.fixture
def cluster(loop: SimulatedLoop, network: Network) -> Cluster:
    return Cluster(loop, network, "test")

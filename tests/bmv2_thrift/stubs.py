"""Python's stubs of the interface files in switch/thrift, and connections by them.

The stubs have the names of BMv2's own, so that programs written for those work with them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERFACES = Path(__file__).resolve().parents[2] / "switch" / "thrift"
SERVICES = {
    "standard": ("bm_runtime.standard", "Standard"),
    "simple_pre": ("bm_runtime.simple_pre", "SimplePre"),
    "simple_pre_lag": ("bm_runtime.simple_pre_lag", "SimplePreLAG"),
    "simple_switch": ("sswitch_runtime", "SimpleSwitch"),
}


def generate(folder: Path) -> None:
    """Make the stubs in a folder and let them be imported.

    Raises:
        FileNotFoundError: there is no Thrift compiler.

    """
    for name in SERVICES:
        file = INTERFACES / f"{name}.thrift"
        subprocess.run(["thrift", "--gen", "py", "-out", str(folder), str(file)], check=True)
    sys.path.insert(0, str(folder))


def types(service: str) -> Any:
    """The types of a service."""
    return importlib.import_module(f"{SERVICES[service][0]}.ttypes")


@dataclass(frozen=True)
class Clients:
    """A client of each service, over one connection, as BMv2's command line has them."""

    standard: Any
    simple_pre: Any
    simple_pre_lag: Any
    simple_switch: Any


@contextmanager
def connected(port: int) -> Iterator[Clients]:
    """Connect to the Thrift server at a port of this machine."""
    socket = importlib.import_module("thrift.transport.TSocket")
    transports = importlib.import_module("thrift.transport.TTransport")
    binary = importlib.import_module("thrift.protocol.TBinaryProtocol")
    multiplexed = importlib.import_module("thrift.protocol.TMultiplexedProtocol")
    transport = transports.TBufferedTransport(socket.TSocket("localhost", port))
    protocol = binary.TBinaryProtocol(transport)
    clients = {}
    for name, (package, service) in SERVICES.items():
        module = importlib.import_module(f"{package}.{service}")
        clients[name] = module.Client(multiplexed.TMultiplexedProtocol(protocol, name))
    transport.open()
    try:
        yield Clients(**clients)
    finally:
        transport.close()

"""The common base of all kinds of switch: interfaces, processes and controllers."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mininet.link import Intf, TCIntf
from mininet.log import warn
from mininet.node import Controller, Switch

from pacer_mininet import paths, processors
from pacer_mininet.controller import PacerController
from pacer_mininet.interfaces import quiet_ipv6, turn_offloads_off, wait_for_carrier
from pacer_mininet.processes import STATE, NodeError, NodeProcess


class NetworkSwitch(Switch):  # type: ignore[misc] # mininet has no types
    """A switch made of user-space processes, with one port per link, in Mininet's own namespace.

    Errors: MissingError when a tool is not installed, ValueError for a parameter out of range,
    NodeError when an interface of its name exists.
    """

    live: ClassVar[list["NetworkSwitch"]] = []
    """The switches of the net that have not been stopped, started or not."""

    clean_ends: ClassVar[tuple[int, ...]] = (0,)
    """Exit statuses of its processes that need no warning."""

    takes_offloads = False
    """Whether hosts may leave their offloads on."""

    def __init__(self, name: str, log_dir: str | None = None, **params: Any) -> None:
        paths.need_programs("mnexec")
        if params.get("inNamespace"):
            raise ValueError(f"{name}: a {type(self).__name__} runs in Mininet's own namespace")
        # Not by /sys, which may show another namespace's.
        interfaces = (one for _, one in socket.if_nameindex())
        taken = sorted(one for one in interfaces if one.startswith(f"{name}-eth"))
        if taken:
            raise NodeError(
                f"{name}: another network has a switch of this name (interface {taken[0]} exists): "
                f"end that network first. `ip link del {taken[0]}` removes what a killed one left."
            )
        super().__init__(name, **params)
        self.log_dir = Path(log_dir) if log_dir else STATE.path
        self.processes: list[NodeProcess] = []
        self.services: list[PacerController] = []
        NetworkSwitch.live.append(self)

    def data_interfaces(self) -> list[Intf]:
        """Return the interfaces that are ports (all but loopback), by port number."""
        return [self.intfs[port] for port in sorted(self.intfs) if self.intfs[port].name != "lo"]

    def prepare_interfaces(self) -> list[Intf]:
        """Make the ports' interfaces carry packets as on a wire; return them when they do.

        Raises:
            ValueError: one is a TCLink's.
            InterfaceError: one refuses a setting.

        """
        interfaces = self.data_interfaces()
        for interface in interfaces:
            if isinstance(interface, TCIntf):
                raise ValueError(
                    f"{interface.name}: the switch itself sets a link's rate, queue and delay; "
                    "use Mininet's plain Link, not TCLink (with mn: no --link tc)"
                )
            ends = (interface.link.intf1, interface.link.intf2) if interface.link else (interface,)
            for end in ends:
                if not self.takes_offloads:
                    turn_offloads_off(end)
            quiet_ipv6(interface.name)
        for interface in interfaces:
            wait_for_carrier(interface)
        return interfaces

    def start_process(self, command: list[str], log: Path, ready: str, name: str = "") -> None:
        """Start one of the switch's processes and wait until it is ready; NodeError if it fails."""
        process = NodeProcess(command, log, ready, name)
        processors.prefer(process.process.pid)
        process.wait_ready()
        self.processes.append(process)

    def service_request(self) -> dict[str, Any] | None:
        """Return None: the service has the switch from its command line."""
        return None

    def register(self, controllers: Sequence[Controller]) -> None:
        """Tell the net's PacerControllers that the switch has started."""
        self.services = [one for one in controllers if isinstance(one, PacerController)]
        for service in self.services:
            service.register(self, [switch.name for switch in NetworkSwitch.live])

    def connected(self) -> bool:
        """Whether the switch runs and its controllers are connected to it (for `mn --wait`)."""
        return bool(self.processes) and all(one.is_connected(self.name) for one in self.services)

    def end(self) -> None:
        """End the processes, by their ids, the last one first."""
        for process in reversed(self.processes):
            status = process.stop()
            if status not in self.clean_ends:
                STATE.keep()
                warn(f"{self.name}: {process.log.stem} ended with status {status}\n")
        self.processes.clear()

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        """End the processes and the node."""
        if self in NetworkSwitch.live:
            NetworkSwitch.live.remove(self)
        for service in self.services:
            service.unregister(self)
        self.end()
        super().stop(deleteIntfs)

"""A Linux router as a Mininet node: forwards IP between two wires, with a queueing discipline."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mininet.link import Intf
from mininet.node import Node

from pacer_mininet.hosts import add_neighbours, write_settings
from pacer_mininet.interfaces import turn_offloads_off
from pacer_mininet.traffic import FCS_BYTES, MTU_FRAME_BYTES

BEFORE, BEHIND = 1, 2
"""Numbers of its ports: towards the senders, towards the receivers."""


class RouterError(OSError):
    """A command in the router failed; the text has both."""


@dataclass(frozen=True)
class Counted:
    """Packets that a queue has dropped, and marked CE."""

    drops: int
    marks: int

    def __sub__(self, earlier: "Counted") -> "Counted":
        return Counted(self.drops - earlier.drops, self.marks - earlier.marks)


class LinuxRouter(Node):  # type: ignore[misc] # mininet has no types
    """Linux between two wires: it forwards IP, and HTB with a discipline is its queue.

    A router needs no addresses: its neighbours are entered (`join`).
    """

    def config(self, **params: Any) -> Any:
        """Make it a router."""
        result = super().config(**params)
        write_settings(self, {"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.rp_filter": "0"})
        for interface in self.intfList():
            if interface.name != "lo":
                interface.isUp(setUp=True)
                turn_offloads_off(interface)
        return result

    def interface(self, place: int) -> Intf:
        """Return the interface towards the senders (BEFORE) or the receivers (BEHIND)."""
        return self.intfs[place]

    def join(self, senders: Sequence[Node], receivers: Sequence[Node]) -> None:
        """Route between senders and receivers, which take it for each other."""
        for place, near, far in ((BEFORE, senders, receivers), (BEHIND, receivers, senders)):
            interface = self.interface(place)
            add_neighbours(interface, {host.IP(): host.MAC() for host in near})
            for host in near:
                self.run("ip", "route", "replace", f"{host.IP()}/32", "dev", interface.name)
                entries = {other.IP(): interface.MAC() for other in far}
                add_neighbours(host.defaultIntf(), entries)

    def limit(self, rate_bps: int, discipline: str) -> None:
        """Send towards the receivers at a rate, layer 2 with FCS, from this queueing discipline.

        A burst of 1 byte makes HTB a line: it sends a packet when the one before has had its time.
        """
        device = ("dev", self.interface(BEHIND).name)
        self.run("tc", "qdisc", "add", *device, "root", "handle", "1:", "htb", "default", "1")
        one = ("tc", "class", "add", *device, "parent", "1:", "classid", "1:1", "htb")
        line = ("burst", "1b", "cburst", "1b", "overhead", str(FCS_BYTES))
        self.run(*one, "rate", f"{rate_bps}bit", *line, "quantum", str(MTU_FRAME_BYTES))
        below = ("parent", "1:1", "handle", "10:")
        self.run("tc", "qdisc", "add", *device, *below, *discipline.split())

    def counted(self) -> Counted:
        """Return what the discipline has dropped and marked."""
        shown = ("-s", "-j", "qdisc", "show", "dev", self.interface(BEHIND).name)
        found = json.loads(self.run("tc", *shown))
        one = next(one for one in found if one["handle"] == "10:")
        return Counted(one["drops"], one.get("ecn_mark", 0))

    def run(self, *command: str) -> str:
        """Run a command in the router; return its output.

        Raises:
            RouterError: it failed, as where the kernel lacks the discipline.

        """
        out, err, status = self.pexec(*command)
        if status != 0:
            raise RouterError(f"`{' '.join(command)}` failed: {(err or out).strip()}")
        return str(out)

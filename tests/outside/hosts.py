"""Hosts of the test: network namespaces on one bridge, whose packets to each other can be stopped.

All of it is inside a network namespace of its own, and ends with it.
"""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

NETWORK = "10.9.0"
"""The first three parts of all addresses. The test itself has number 1."""

BRIDGE = "br0"


class HostError(RuntimeError):
    """A command that sets up a host failed; the text says which and why."""


def run(*words: str) -> None:
    """Run a command; HostError with its output if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise HostError(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()}")


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    number: int

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return f"{NETWORK}.{self.number}"

    def inside(self, *words: str) -> list[str]:
        """Return a command that runs another one in it."""
        return ["ip", "netns", "exec", self.name, *words]


class Hosts:
    """The hosts, and which of them cannot send to which."""

    def __init__(self) -> None:
        self._silenced: set[tuple[str, str]] = set()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")

    def add(self, name: str, number: int) -> Host:
        """Make a host with the address of this number, 2 to 254."""
        if not 2 <= number <= 254:
            raise ValueError(f"host {name}: number {number} is not 2 to 254")
        host = Host(name, number)
        run("ip", "netns", "add", name)
        peer = ("peer", "name", "eth0", "netns", name)
        run("ip", "link", "add", name, "type", "veth", *peer)
        run("ip", "link", "set", name, "master", BRIDGE, "up")
        run(*host.inside("ip", "address", "add", f"{host.address}/24", "dev", "eth0"))
        run(*host.inside("ip", "link", "set", "eth0", "up"))
        run(*host.inside("ip", "link", "set", "lo", "up"))
        # Rules on the packets that come in precede that of local addresses. Without early demux,
        # they hold for packets of established connections, too.
        early = "echo 0 > /proc/sys/net/ipv4/ip_early_demux"
        run(*host.inside("sh", "-c", early))
        run(*host.inside("ip", "rule", "add", "pref", "100", "lookup", "local"))
        run(*host.inside("ip", "rule", "del", "pref", "0"))
        return host

    def silence(self, sender: Host, receiver: Host) -> None:
        """Drop the packets of one host at another one, so that the sender gets no error."""
        if (sender.name, receiver.name) in self._silenced:
            return
        run(*receiver.inside("ip", "rule", "add", *_drop(sender)))
        self._silenced.add((sender.name, receiver.name))

    def part(self, here: Iterable[Host], there: Iterable[Host]) -> None:
        """Stop packets between two groups of hosts, both ways."""
        others = list(there)
        for one in here:
            for other in others:
                self.silence(one, other)
                self.silence(other, one)

    def heal(self, hosts: Iterable[Host]) -> None:
        """Let all packets pass again."""
        by_name = {host.name: host for host in hosts}
        for sender, receiver in sorted(self._silenced):
            run(*by_name[receiver].inside("ip", "rule", "del", *_drop(by_name[sender])))
        self._silenced.clear()


def _drop(sender: Host) -> tuple[str, ...]:
    return ("pref", "10", "from", f"{sender.address}/32", "blackhole")

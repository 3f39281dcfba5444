"""Faults that are drawn from a seed, and made and undone while clients write."""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster import Cluster, Node
from hosts import Host, Hosts

LONGEST_S = 8.0
BALLAST = bytes(1 << 20)


@dataclass(frozen=True)
class Fault:
    """A fault under way."""

    name: str
    undo: Callable[[], None]


class Faults:
    """Makes faults, one at a time, so that a majority of etcd's members is left."""

    def __init__(self, cluster: Cluster, hosts: Hosts, seed: int) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._random = random.Random(seed)
        self.made: dict[str, int] = {}

    def make(self) -> Fault:
        """Make a fault."""
        chosen = self._random.choice(
            (
                self._kill,
                self._lose_power,
                self._pause,
                self._part,
                self._silence,
                self._part_etcd,
                self._fill,
            )
        )
        fault = chosen()
        kind = fault.name.partition(" ")[0]
        self.made[kind] = self.made.get(kind, 0) + 1
        return fault

    def duration_s(self) -> float:
        """Return how long a fault lasts."""
        return self._random.uniform(0.2, LONGEST_S)

    def pause_s(self) -> float:
        """Return the time between two faults."""
        return self._random.uniform(0.5, 4.0)

    def _node(self) -> Node:
        kinds = (self._cluster.etcd, self._cluster.controllers, self._cluster.switches)
        return self._random.choice(self._random.choice(kinds))

    def _kill(self) -> Fault:
        node = self._node()
        node.kill()
        return Fault(f"kill {node.name}", node.start)

    def _lose_power(self) -> Fault:
        """Let a controller's machine lose power: the other ends of its connections stay open."""
        one = self._random.choice(self._cluster.controllers)
        others = (*self._cluster.etcd, *self._cluster.switches)
        self._hosts.part([one.host], [other.host for other in others])
        one.kill()

        def restore() -> None:
            self._heal()
            one.start()

        return Fault(f"power {one.name}", restore)

    def _pause(self) -> Fault:
        node = self._node()
        node.pause()
        return Fault(f"pause {node.name}", node.resume)

    def _heal(self) -> None:
        self._hosts.heal([one.host for one in self._cluster.nodes])

    def _part(self) -> Fault:
        """Cut a controller off from some etcd members and switches."""
        one = self._random.choice(self._cluster.controllers)
        others = self._some(self._cluster.etcd) + self._some(self._cluster.switches)
        self._hosts.part([one.host], others)
        return Fault(f"part {one.name}", self._heal)

    def _silence(self) -> Fault:
        """Stop packets in one direction only."""
        one = self._random.choice(self._cluster.controllers)
        for other in self._some(self._cluster.etcd) + self._some(self._cluster.switches):
            pair = (one.host, other) if self._random.random() < 0.5 else (other, one.host)
            self._hosts.silence(*pair)
        return Fault(f"silence {one.name}", self._heal)

    def _part_etcd(self) -> Fault:
        """Cut a member of etcd off from the other members, but not from the controllers."""
        one = self._random.choice(self._cluster.etcd)
        self._hosts.part([one.host], [m.host for m in self._cluster.etcd if m is not one])
        return Fault(f"part-etcd {one.name}", self._heal)

    def _fill(self) -> Fault:
        """Fill the disk of a member of etcd, which then ends."""
        member = self._random.choice(self._cluster.etcd)
        ballast = self._cluster.disk_of(member) / "ballast"
        # Until it is full.
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(BALLAST)

        def empty() -> None:
            ballast.unlink()
            member.kill()
            member.start()

        return Fault(f"fill {member.name}", empty)

    def _some(self, nodes: list[Node]) -> list[Host]:
        count = self._random.randint(1, len(nodes))
        return [one.host for one in self._random.sample(nodes, count)]


def sleep_until(end_s: float, at_most_s: float) -> None:
    """Sleep for some time, but not past an instant of the monotonic clock."""
    time.sleep(max(0.0, min(at_most_s, end_s - time.monotonic())))

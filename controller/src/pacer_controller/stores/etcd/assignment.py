"""The assignment of switches to controllers; every controller computes the same one.

A switch stays with the controller that has its key, so that it is moved only if it must be. A free
switch goes to the controller with the fewest switches among those that it answers; of several, to
the one that ranks highest for it (rendezvous hashing). Switches move for balance only if the loads
of two controllers differ by more than a SLACK-th; then as many move as make them equal.

Controllers need no agreement. Knowledge that has not reached all of them yet can lead to different
assignments, but a switch's key in etcd has one owner.
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

SLACK = 20


@dataclass(frozen=True)
class Member:
    """A running controller.

    Attributes:
        configured: the switches of its own configuration, which others need not know.
        cannot: the switches that do not answer it.

    """

    configured: Set[str] = field(default_factory=frozenset)
    cannot: Set[str] = field(default_factory=frozenset)


@functools.lru_cache(maxsize=1 << 14)
def _rank(member: str, switch: str) -> bytes:
    return hashlib.blake2b(f"{member}/{switch}".encode(), digest_size=8).digest()


def assign(
    members: Mapping[str, Member],
    switches: Iterable[str],
    stored: Set[str],
    holders: Mapping[str, str],
    *,
    balance: bool = True,
) -> dict[str, str]:
    """Return the controller of each switch; a switch that no controller knows has none.

    Args:
        members: the running controllers, by name.
        switches: all switches.
        stored: the switches that are in the store, which every controller knows.
        holders: the controller that has the key of a switch, by switch.
        balance: whether switches may leave a controller that has more than others.

    """
    able: dict[str, list[str]] = {}
    for switch in sorted(switches, key=lambda switch: _rank("", switch)):
        knowing = [
            name
            for name, member in members.items()
            if switch in stored or switch in member.configured
        ]
        # If the switch answers no controller, any controller is better than none: the switch may
        # answer again.
        able[switch] = [name for name in knowing if switch not in members[name].cannot] or knowing
    assigned: dict[str, str] = {}
    loads = dict.fromkeys(members, 0)
    for switch, names in able.items():
        holder = holders.get(switch, "")
        if holder in names:
            assigned[switch] = holder
            loads[holder] += 1
    for switch, names in able.items():
        if switch not in assigned and names:
            chosen = max(names, key=lambda name: (-loads[name], _rank(name, switch), name))
            assigned[switch] = chosen
            loads[chosen] += 1
    if balance and loads:
        _balance(assigned, able, loads)
    return assigned


def _balance(
    assigned: dict[str, str], able: Mapping[str, list[str]], loads: dict[str, int]
) -> None:
    """Move switches from controllers with more to controllers with fewer, if they differ much."""
    slack = len(assigned) // len(loads) // SLACK
    if max(loads.values()) - min(loads.values()) <= 1 + slack:
        return
    # The switches that rank lowest at their present controller leave first.
    movable = sorted(assigned, key=lambda switch: (_rank(assigned[switch], switch), switch))
    for switch in movable:
        former = assigned[switch]
        chosen = min(able[switch], key=lambda name: (loads[name], name))
        if loads[former] > loads[chosen] + 1 and loads[former] == max(
            loads[name] for name in able[switch]
        ):
            assigned[switch] = chosen
            loads[former] -= 1
            loads[chosen] += 1

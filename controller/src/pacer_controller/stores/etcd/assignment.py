"""The assignment of switches to controllers; every controller computes the same one.

Rendezvous hashing with a bound on the load (Mirrokni et al., "Consistent Hashing with Bounded
Loads", 2018): each switch goes to the controller that ranks highest for it among those that are not
full. Controllers need no agreement, their loads differ by one switch at most, and few switches move
when a controller comes or goes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """A running controller.

    Attributes:
        configured: the switches of its own configuration, which others need not know.
        cannot: the switches that do not answer it.

    """

    configured: Set[str] = field(default_factory=frozenset)
    cannot: Set[str] = field(default_factory=frozenset)


def _rank(member: str, switch: str) -> bytes:
    return hashlib.blake2b(f"{member}/{switch}".encode(), digest_size=8).digest()


def assign(
    members: Mapping[str, Member], switches: Iterable[str], stored: Set[str]
) -> dict[str, str]:
    """Return the controller of each switch; a switch that no controller knows has none.

    Args:
        members: the running controllers, by name.
        switches: all switches.
        stored: the switches that are in the store, which every controller knows.

    """
    ordered = sorted(switches, key=lambda switch: _rank("", switch))
    # Each controller gets `share` switches; `left` of them get one more.
    share, left = divmod(len(ordered), len(members)) if members else (0, 0)
    loads = dict.fromkeys(members, 0)
    assigned: dict[str, str] = {}
    for switch in ordered:
        able = [
            name
            for name, member in members.items()
            if switch in stored or switch in member.configured
        ]
        # If the switch answers no controller, any controller is better than none: the switch may
        # answer again.
        able = [name for name in able if switch not in members[name].cannot] or able
        able = [name for name in able if loads[name] < share + (left > 0)] or able
        if able:
            chosen = max(able, key=lambda name: (_rank(name, switch), name))
            left -= loads[chosen] >= share
            loads[chosen] += 1
            assigned[switch] = chosen
    return assigned

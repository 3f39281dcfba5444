"""Limits on clients' connections, separate for users and for strangers.

A connection is a stranger's until one of its requests shows that it is a user's. A token shows it
or, if the controller has no tokens, any request that does not come from a web page of another host.
A stranger's new connection is never refused: it takes the place of the one that has waited longest.
So a client that connects and sends a request at once is served, even if many others connect and
send nothing. Strangers' connections never take the place of a user's.
"""

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from pacer_controller.refusals import Refusals

ADMIT = "pacer.admit"
"""An extension of the ASGI scope. Its member `admit` calls `Connections.admit` for the request's
connection."""

USERS_MOST = 384
"""Most connections of all users together. The switches need file descriptors, too."""

ONE_USER_MOST = 256
"""Most connections of one user."""

STRANGERS_MOST = 256
"""Most connections of strangers."""

ADDRESS_MOST = 128
"""Most connections of strangers from one IPv4 address, or one IPv6 network of 64 bits."""


class Connection(Protocol):
    """The part of a connection that the limits need."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""

    def overdue(self, now_s: float) -> str | None:
        """Return the cause for which the connection is too slow; None: it is not too slow."""

    def end(self, cause: str) -> None:
        """Close the connection; send an answer with the cause first, if possible."""


class Connections:
    """All open connections. All calls are made on the event loop.

    Args:
        refusals: the counters of closed and refused connections.

    """

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self._strangers: dict[Connection, str] = {}
        """The network of each stranger's connection."""
        self._of_network: dict[str, dict[Connection, None]] = {}
        """The same by network; of each, the connection that has waited longest is first."""
        self._users: dict[Connection, str | None] = {}
        """The user of each user's connection; the one that was answered last is at the end."""

    @property
    def strangers(self) -> int:
        """Number of strangers' connections."""
        return len(self._strangers)

    @property
    def users(self) -> int:
        """Number of users' connections."""
        return len(self._users)

    def enter(self, connection: Connection) -> None:
        """Add a new connection of a stranger; if the limit is reached, close another one."""
        network = _network(connection.address)
        same = self._of_network.get(network, {})
        if len(same) >= ADDRESS_MOST:
            self._end(next(iter(same)), "connections-of-address-full")
        elif len(self._strangers) >= STRANGERS_MOST:
            most = max(self._of_network.values(), key=len)
            self._end(next(iter(most)), "connections-of-strangers-full")
        self._strangers[connection] = network
        self._of_network.setdefault(network, {})[connection] = None

    def replace(self, old: Connection, new: Connection) -> None:
        """Give the place of a stranger's connection to another object for the same connection."""
        network = self._strangers.pop(old, None)
        if network is None:
            # The connection is closed.
            return
        self._strangers[new] = network
        same = self._of_network[network]
        del same[old]
        same[new] = None

    def admit(self, connection: Connection, user: str | None) -> str | None:
        """Make a connection a user's.

        Args:
            connection: a connection that `enter` has added.
            user: the user's name; None: users have no names.

        Returns:
            The cause of the refusal, which is counted; None: the connection is the user's.

        """
        if connection in self._users and self._users[connection] == user:
            return None
        if connection not in self._strangers and connection not in self._users:
            # The connection was closed while its request arrived.
            return None
        others = [one for one in self._users if one is not connection]
        own = [one for one in others if self._users[one] == user]
        for those, most, cause in (
            (own, ONE_USER_MOST, "connections-of-user-full"),
            (others, USERS_MOST, "connections-full"),
        ):
            if len(those) >= most:
                idle = next((one for one in those if not one.busy), None)
                if idle is None:
                    self.refusals.count(cause)
                    return cause
                self._end(idle, cause)
                break
        self._leave_strangers(connection)
        self._users[connection] = user
        return None

    def answered(self, connection: Connection) -> None:
        """Move a connection whose request was answered to the end of the order."""
        if connection in self._users:
            self._users[connection] = self._users.pop(connection)
        elif connection in self._strangers:
            same = self._of_network[self._strangers[connection]]
            same[connection] = same.pop(connection)

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._leave_strangers(connection)
        self._users.pop(connection, None)

    def _leave_strangers(self, connection: Connection) -> None:
        network = self._strangers.pop(connection, None)
        if network is not None:
            del self._of_network[network][connection]
            if not self._of_network[network]:
                del self._of_network[network]

    def sweep(self, now_s: float) -> None:
        """Close the connections that are too slow.

        Args:
            now_s: monotonic time.

        """
        for one in [*self._strangers, *self._users]:
            cause = one.overdue(now_s)
            if cause is not None:
                self._end(one, cause)

    def end_users(self, gone: Callable[[str | None], bool], cause: str) -> None:
        """Close the connections of users for whom `gone` returns True."""
        for one in [one for one, user in self._users.items() if gone(user)]:
            self._end(one, cause)

    def _end(self, connection: Connection, cause: str) -> None:
        self.leave(connection)
        self.refusals.count(cause)
        connection.end(cause)


@lru_cache(maxsize=1024)
def _network(address: str) -> str:
    """Return the IPv4 address or the IPv6 /64 network, all of which one attacker can use."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))

"""Places for clients' connections: users and strangers have their own, and each has a limit.

A connection is a stranger's until one of its requests shows that it is a user's: by a token or,
where the controller has none, by any request that is not of a web page of another host. Strangers
are never refused: a new one takes the place of the one that has waited longest. So who connects
and sends a request at once is served, however many others connect and send nothing. Strangers
never take a place of users.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from pacer_controller.refusals import Refusals

ADMIT = "pacer.admit"
"""Extension of the ASGI scope; its member `admit` is `Connections.admit` of the request's one."""

USERS_MOST = 384
"""Connections of users. Files are for the switches, too."""

ONE_USER_MOST = 256
"""Connections of one user."""

STRANGERS_MOST = 256
"""Connections of strangers."""

ADDRESS_MOST = 128
"""Connections of strangers of one address; of IPv6, of one network of 64 bits."""


class Connection(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""

    def overdue(self, now_s: float) -> str | None:
        """Return the cause why the connection is too slow; None: it is not."""

    def end(self, cause: str) -> None:
        """Close the connection, having said why if that is possible."""


class Connections:
    """The connections that there are. All calls are made on the event loop.

    Args:
        refusals: where those that are closed or refused are counted.

    """

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self._strangers: dict[Connection, str] = {}
        """Network of each, in the order in which they wait."""
        self._users: dict[Connection, str | None] = {}
        """User of each, the one that was answered last at the end."""

    @property
    def strangers(self) -> int:
        """Number of strangers' connections."""
        return len(self._strangers)

    @property
    def users(self) -> int:
        """Number of users' connections."""
        return len(self._users)

    def enter(self, connection: Connection) -> None:
        """Give a new connection a place among strangers; another loses it if all are taken."""
        network = _network(connection.address)
        same = [one for one, of in self._strangers.items() if of == network]
        if len(same) >= ADDRESS_MOST:
            self._end(same[0], "connections-of-address-full")
        elif len(self._strangers) >= STRANGERS_MOST:
            ((most, _),) = Counter(self._strangers.values()).most_common(1)
            loser = next(one for one, of in self._strangers.items() if of == most)
            self._end(loser, "connections-of-strangers-full")
        self._strangers[connection] = network

    def admit(self, connection: Connection, user: str | None) -> str | None:
        """Give a connection a place among users.

        Args:
            connection: one that has a place.
            user: the user's name; None where users have none.

        Returns:
            The cause why there is no place, which is counted; None: it has one.

        """
        if connection in self._users and self._users[connection] == user:
            return None
        if connection not in self._strangers and connection not in self._users:
            # It was closed while its request came.
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
        self._strangers.pop(connection, None)
        self._users[connection] = user
        return None

    def answered(self, connection: Connection) -> None:
        """Note that a request of a connection was answered: it goes to the end of the line."""
        if connection in self._users:
            self._users[connection] = self._users.pop(connection)
        elif connection in self._strangers:
            self._strangers[connection] = self._strangers.pop(connection)

    def leave(self, connection: Connection) -> None:
        """Free the place of a connection that is closed."""
        self._strangers.pop(connection, None)
        self._users.pop(connection, None)

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
        """Close the connections of users that are no longer such."""
        for one in [one for one, user in self._users.items() if gone(user)]:
            self._end(one, cause)

    def _end(self, connection: Connection, cause: str) -> None:
        self.leave(connection)
        self.refusals.count(cause)
        connection.end(cause)


def _network(address: str) -> str:
    """Return what counts as one address: an attacker has all of an IPv6 network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))

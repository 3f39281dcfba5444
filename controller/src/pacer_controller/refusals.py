"""Refusals of clients' connections and requests, counted by cause."""

from collections.abc import Mapping

CAUSES: Mapping[str, str] = {
    "connections-full": "all places of users are taken",
    "connections-of-user-full": "all places of one user are taken",
    "connections-of-strangers-full": "a stranger's connection had to make room for a newer one",
    "connections-of-address-full": "a stranger's connection had to make room for a newer one of "
    "the same address",
    "connection-slow": "a connection brought no complete request header in time",
    "handshake": "TLS could not be agreed on, or not in time",
    "request-slow": "a further request did not come completely in time",
    "header-too-long": "a request header was too long",
    "message-too-long": "a request body was too long",
    "bytes-full": "request bodies took all of the memory that there is for them",
    "streams-full": "all streams are taken",
    "no-token": "a request had no token, or a wrong one",
    "role": "a request that the user's role does not allow",
    "revoked": "a connection of a user whose token was revoked",
    "other-host": "a request came from a web page of another host",
}
"""Every cause with its meaning."""


class Refusals:
    """The counts since the controller started.

    Attributes:
        counts: the number of refusals by cause.

    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(CAUSES, 0)

    def count(self, cause: str) -> None:
        """Count a refusal; `cause` is one of CAUSES."""
        self.counts[cause] += 1

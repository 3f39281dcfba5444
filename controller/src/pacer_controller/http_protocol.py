"""uvicorn's protocol for HTTP/1.1, with limits on the number of connections and on their time.

uvicorn closes connections that are idle between requests. It has no time limit for the first
request, or for the header or body of a further one, and it counts connections only after the TLS
handshake. So `SecuredProtocol` begins TLS itself, after it has counted the connection.

uvicorn's protocol takes several times as long to make as a client takes to connect and to close the
connection again. A client that does nothing else would fill the kernel's queue, and others would
wait a second for their next attempt to connect. So a connection without TLS is a `SilentProtocol`
until its first bytes arrive.
"""

import asyncio
import json
import ssl
import time
from functools import lru_cache
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pacer_controller.connections import ADMIT, Connections
from pacer_controller.problems import MEDIA_TYPE, Problem
from pacer_controller.refusals import CAUSES

HEADER_S = 10.0
"""Longest time for the TLS handshake, and for the header of a request."""

BODY_S = 60.0
"""Longest time for a request's body, after its header."""

IDLE_S = 15
"""Longest time without a request after an answer. Clients close idle connections sooner."""

HEADER_MOST_BYTES = 64 * 1024

_STATUS = {"header-too-long": 431, "connection-slow": 408, "request-slow": 408}
_TITLES = {
    431: "The header of the request is too long",
    408: "The request took too long to come",
    503: "There are too many connections",
}


class SilentProtocol(asyncio.Protocol):
    """A connection that has sent nothing yet (`connections.Connection`).

    Args:
        connections: the connections of the server, with their limits.
        given: the arguments of uvicorn's protocol.

    """

    busy = False

    def __init__(self, connections: Connections, **given: Any) -> None:
        self.address = ""
        """The client's IP address."""
        self.until_s = 0.0
        """The monotonic deadline of the first request's header."""
        self.transport: asyncio.Transport
        self._connections = connections
        self._given = given
        self._opened: set[Any] = given["server_state"].connections

    def overdue(self, now_s: float) -> str | None:
        """Return the cause for which the connection is too slow; None: it is not too slow."""
        return None if now_s < self.until_s else "connection-slow"

    def end(self, cause: str) -> None:
        """Close the connection; send an answer with the cause first."""
        _refuse(self.transport, cause)

    def shutdown(self) -> None:
        """Close the connection, as uvicorn's server asks all of them when it ends."""
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add the connection to the limits."""
        self.transport = cast(asyncio.Transport, transport)
        self.address = _address(transport)
        self.until_s = time.monotonic() + HEADER_S
        self._opened.add(self)
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the limits."""
        self._opened.discard(self)
        self._connections.leave(self)

    def data_received(self, data: bytes) -> None:
        """Give the connection to uvicorn's protocol."""
        if self.transport.is_closing():
            return
        self._opened.discard(self)
        protocol = LimitedProtocol(self._connections, **self._given)
        self.transport.set_protocol(protocol)
        protocol.go_on(self)
        protocol.data_received(data)


class LimitedProtocol(HttpToolsProtocol):
    """A connection that has sent its first bytes (`connections.Connection`).

    Args:
        connections: the connections of the server, with their limits.
        given: the arguments of uvicorn's protocol.

    """

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.address = ""
        """The client's IP address."""
        self._connections = connections
        self._lost = False
        self._first = True
        self._until_s: float | None = None
        """The monotonic deadline of the handshake, header or body that is due; None: none is."""
        self._now_s = 0.0
        self._in_header = True
        self._header_bytes = 0

    def go_on(self, silent: SilentProtocol) -> None:
        """Take the place of a connection's first protocol."""
        self.address, self._until_s = silent.address, silent.until_s
        self._connections.replace(silent, self)
        super().connection_made(silent.transport)

    # ---- connections.Connection ----

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def overdue(self, now_s: float) -> str | None:
        """Return the cause for which the connection is too slow; None: it is not too slow."""
        if self._until_s is None or now_s < self._until_s:
            return None
        if self.flow is not None and self.flow.read_paused:
            # The client has sent its bytes; the application has not read them yet.
            return None
        return "connection-slow" if self._first else "request-slow"

    def end(self, cause: str) -> None:
        """Close the connection; send an answer with the cause first, unless a request is busy."""
        if self.busy:
            self.transport.abort()
        else:
            _refuse(self.transport, cause)

    # ---- asyncio.Protocol ----

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the limits."""
        self._lost = True
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        if self._lost or self.transport.is_closing():
            return
        self._now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = self._now_s + HEADER_S
        if self._in_header:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_header and self._header_bytes > HEADER_MOST_BYTES:
            self._connections.leave(self)
            self._connections.refusals.count("header-too-long")
            self.end("header-too-long")

    # ---- callbacks of httptools ----

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if self._until_s is None:
            # The first bytes of this request arrived together with the end of the previous one.
            self._until_s = self._now_s + HEADER_S
        self.scope["extensions"] = {ADMIT: {"admit": self._admit}}

    def on_headers_complete(self) -> None:
        """Process the end of a request's header."""
        self._in_header = self._first = False
        self._until_s = self._now_s + BODY_S
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Process the end of a request."""
        self._in_header, self._header_bytes = True, 0
        self._until_s = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Process the end of an answer."""
        self._connections.answered(self)
        super().on_response_complete()

    def _admit(self, user: str | None) -> str | None:
        return self._connections.admit(self, user)


class SecuredProtocol(LimitedProtocol):
    """A connection with TLS.

    Args:
        connections: the connections of the server, with their limits.
        tls: the TLS context.
        given: the arguments of uvicorn's protocol.

    """

    def __init__(self, connections: Connections, tls: ssl.SSLContext, **given: Any) -> None:
        super().__init__(connections, **given)
        self._tls = tls
        self._accepted: asyncio.Transport
        """The accepted transport, below TLS."""
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """Data that arrived between the end of the handshake and the creation of `transport`."""

    def end(self, cause: str) -> None:
        """Close the connection, without an answer before the end of the handshake."""
        if self.transport is None:
            self._accepted.abort()
        else:
            super().end(cause)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add the connection to the limits, and begin TLS."""
        self._accepted = cast(asyncio.Transport, transport)
        self.address = _address(transport)
        self._until_s = time.monotonic() + HEADER_S
        self._connections.enter(self)
        self._accepted.pause_reading()
        self._handshake = self.loop.create_task(self._secure(self._accepted))

    async def _secure(self, transport: asyncio.Transport) -> None:
        try:
            # `overdue` ends a handshake that takes too long.
            secured = await self.loop.start_tls(transport, self, self._tls, server_side=True)
        except (OSError, TimeoutError):
            self._connections.refusals.count("handshake")
            self._connections.leave(self)
            return
        if secured is None or self._lost or transport.is_closing():
            self._connections.leave(self)
            return
        super().connection_made(secured)
        self._until_s = time.monotonic() + HEADER_S
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the limits."""
        if self.transport is None:
            self._lost = True
            self._connections.leave(self)
        else:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        if self.transport is None:
            self._early.append(data)
        else:
            super().data_received(data)


def _address(transport: asyncio.BaseTransport) -> str:
    """Return the client's IP address; empty: the client has gone."""
    return str((transport.get_extra_info("peername") or ("",))[0])


def _refuse(transport: asyncio.Transport, cause: str) -> None:
    """Send an answer with the cause, and close the connection."""
    transport.write(_answer(_STATUS.get(cause, 503), cause))
    transport.abort()


@lru_cache
def _answer(status: int, cause: str) -> bytes:
    """Return a whole answer: problem details."""
    problem = Problem(status, cause, _TITLES[status], f"{CAUSES[cause]}; connect again")
    body = json.dumps(problem.as_dict("")).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} \r\nContent-Type: {MEDIA_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body

"""Access control: requests need the bearer token (RFC 6750) or, without one, a local client.

A token lets do everything; without it little may be looked at. A server that has none listens on
loopback, where the pages of any web site that somebody here looks at can send requests, too:
those are told by the names that browsers give, Host and Origin, and refused.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from pacer_controller.api.errors import respond
from pacer_controller.connections import ADMIT
from pacer_controller.problems import Problem
from pacer_controller.refusals import CAUSES
from pacer_controller.service import Service

_OPEN = ("/", "/dashboard", "/healthz", "/readyz", "/docs", "/openapi.json")
_OPEN_BELOW = ("/dashboard/", "/static-offline-docs/")


class Access:
    """ASGI middleware that asks for a token, or where none is, refuses web pages of others.

    Args:
        app: what is behind it.
        service: gets the events of denied requests.
        token: the token; None: none is asked for.
        names: of this host, beside loopback's; only looked at without a token.

    """

    def __init__(
        self, app: ASGIApp, service: Service, token: str | None, names: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._service = service
        self._token = token.encode() if token is not None else None
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401, or 403."""
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            problem = self._without_place(scope)
            if problem is None:
                await self._app(scope, receive, send)
                return
        else:
            self._report(scope, problem)
        await respond(scope.get("path", ""), problem)(scope, receive, send)

    def _without_place(self, scope: Scope) -> Problem | None:
        """Have the connection counted as a user's; return why there is no place for it."""
        if scope["type"] != "http" or (self._token is not None and _is_open(scope)):
            return None
        place = scope.get("extensions", {}).get(ADMIT)
        cause = place["admit"](None) if place is not None else None
        if cause is None:
            return None
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            cause,
            "There are too many connections",
            f"{CAUSES[cause]}, and none is idle; end some",
        )

    def _problem(self, scope: Scope) -> Problem | None:
        """Return why a request is denied."""
        if self._token is None:
            return self._foreign(scope)
        if _is_open(scope) or self._allowed(scope):
            return None
        return Problem(
            HTTPStatus.UNAUTHORIZED,
            "unauthorized",
            "The request needs the controller's token",
            "send it as Authorization: Bearer TOKEN",
        )

    def _foreign(self, scope: Scope) -> Problem | None:
        """Return what shows that a page of another host sent the request."""
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        # A name of another host that leads here: its pages would count as ours (DNS rebinding).
        for host in hosts:
            if not self._ours(host, scope):
                return _forbidden(f"Host {host[:100]!r} is no name of this host")
        for name, value in headers:
            origin = value.lower().partition("://")[2]
            if name == b"origin" and origin not in hosts:
                return _forbidden(f"it comes from a page of {value[:100]!r}")
        return None

    def _ours(self, authority: str, scope: Scope) -> bool:
        try:
            host = urlsplit(f"//{authority}").hostname or ""
        except ValueError:
            return False
        server = scope.get("server")
        if host in self._names or (server is not None and host == server[0]):
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def _allowed(self, scope: Scope) -> bool:
        given = next((v for name, v in scope["headers"] if name.lower() == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        # Constant time: how long the comparison takes must not say how much of it was right.
        right = hmac.compare_digest(token.strip(), self._token or b"")
        return right and scheme.lower() == b"bearer"

    def _report(self, scope: Scope, problem: Problem) -> None:
        client = scope["client"][0] if scope.get("client") else None
        data = {"client": client, "method": scope["method"], "path": scope["path"][:200]}
        cause, had = "other-host", "was another host's"
        if problem.status == HTTPStatus.UNAUTHORIZED:
            cause, had = "no-token", "had no token"
        self._service.count_denied(cause, f"a request of {client} {had}", data)


def _is_open(scope: Scope) -> bool:
    path = scope.get("path", "")
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def _forbidden(detail: str) -> Problem:
    return Problem(
        HTTPStatus.FORBIDDEN,
        "other-host",
        "The request is a web page's of another host",
        f"{detail}; without a token only requests to localhost are taken",
    )

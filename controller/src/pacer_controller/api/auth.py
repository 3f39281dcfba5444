"""Access control: requests need a user's bearer token (RFC 6750) or, without any, a local client.

`roles` has the rights of users. A server without tokens listens on loopback. There, pages of any
web site that is open in a local browser can send requests, too. The server recognises them by the
headers Host and Origin, and refuses them.
"""

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from pacer_controller.addresses import is_loopback
from pacer_controller.api.errors import respond
from pacer_controller.api.roles import allows, enough, is_open, needed
from pacer_controller.connections import ADMIT
from pacer_controller.problems import Problem
from pacer_controller.refusals import CAUSES
from pacer_controller.service import Service
from pacer_controller.users import User, Users


class Access:
    """ASGI middleware that requires a token or, without tokens, refuses pages of other hosts.

    The scope's `user` is the user; None: users have no tokens, or the path needs none. Its
    `stranger` says whether the request of such a path is without a token that a user has.

    Args:
        app: the application.
        service: the service, which records denied requests.
        users: the users whose tokens are accepted.
        names: the names of this host, beside loopback's; checked only without tokens.

    """

    def __init__(
        self, app: ASGIApp, service: Service, users: Users, names: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._service = service
        self._users = users
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401, 403 or 503."""
        problem = None
        if scope["type"] == "http":
            scope["user"], scope["stranger"] = None, False
            if not self._users.required:
                problem = self._foreign(scope) or _without_place(scope, None)
            elif is_open(scope["path"]):
                scope["stranger"] = self._user(scope) is None
            else:
                problem = self._denied(scope)
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await respond(scope.get("path", ""), problem)(scope, receive, send)

    def _denied(self, scope: Scope) -> Problem | None:
        """Find the user of a request; return the problem if the request is denied."""
        user = self._user(scope)
        if user is None:
            had = "no token" if _bearer(scope) is None else "a token that no user has"
            self._report(scope, "no-token", f"had {had}", None)
            return Problem(
                HTTPStatus.UNAUTHORIZED,
                "unauthorized",
                "The request needs a user's token",
                f"the request has {had}: send a user's as Authorization: Bearer TOKEN; "
                "`pacer-controller token add` makes one",
            )
        scope["user"] = user
        wanted = needed(scope["method"], scope["path"])
        if allows(user.role, wanted):
            return _without_place(scope, user.name)
        self._report(scope, "role", f"needs the role {wanted}", user.name)
        return Problem(
            HTTPStatus.FORBIDDEN,
            "role",
            "The user's role does not allow the request",
            f"user {user.name!r} has the role {user.role}; {scope['method']} of this path needs "
            f"{' or '.join(enough(wanted))}",
        )

    def _user(self, scope: Scope) -> User | None:
        """Return the user of a request's token."""
        token = _bearer(scope)
        return self._users.find(token) if token is not None else None

    def _foreign(self, scope: Scope) -> Problem | None:
        """Return the problem if a page of another host sent the request."""
        detail = self._foreign_detail(scope)
        if detail is None:
            return None
        self._report(scope, "other-host", "was another host's", None)
        return Problem(
            HTTPStatus.FORBIDDEN,
            "other-host",
            "The request is a web page's of another host",
            f"{detail}; without a token only requests to localhost are taken",
        )

    def _foreign_detail(self, scope: Scope) -> str | None:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        # If the name of another host resolves to this one (DNS rebinding), browsers treat the
        # other host's pages as pages of this server.
        for host in hosts:
            if not self._ours(host, scope):
                return f"Host {host[:100]!r} is no name of this host"
        for name, value in headers:
            origin = value.lower().partition("://")[2]
            if name == b"origin" and origin not in hosts:
                return f"it comes from a page of {value[:100]!r}"
        return None

    def _ours(self, authority: str, scope: Scope) -> bool:
        try:
            host = urlsplit(f"//{authority}").hostname or ""
        except ValueError:
            return False
        server = scope.get("server")
        is_own = host in self._names or (server is not None and host == server[0])
        return is_own or is_loopback(host)

    def _report(self, scope: Scope, cause: str, had: str, user: str | None) -> None:
        client = scope["client"][0] if scope.get("client") else None
        path = scope["path"][:200]
        data = {"user": user, "client": client, "method": scope["method"], "path": path}
        self._service.count_denied(cause, f"a request of {user or client} {had}", data)


def _bearer(scope: Scope) -> bytes | None:
    """Return the token of a request; None: there is none."""
    given = next((v for name, v in scope["headers"] if name.lower() == b"authorization"), b"")
    scheme, _, token = given.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _without_place(scope: Scope, user: str | None) -> Problem | None:
    """Count the connection as a user's; return the problem if the limit is reached."""
    place = scope.get("extensions", {}).get(ADMIT)
    cause = place["admit"](user) if place is not None else None
    if cause is None:
        return None
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        cause,
        "There are too many connections",
        f"{CAUSES[cause]}, and none is idle; end some",
    )

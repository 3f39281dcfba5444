"""The bearer token (RFC 6750): who has it may do everything, who has not may look at little."""

import hmac
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pacer_controller.problems import MEDIA_TYPE, Problem
from pacer_controller.service import Service

_OPEN = ("/", "/dashboard", "/healthz", "/readyz", "/docs", "/openapi.json")
_OPEN_BELOW = ("/dashboard/", "/static-offline-docs/")

DENIED_PAUSE_S = 1.0
"""Shortest time between two events of denied requests: guessing must not fill the disk."""


class BearerToken:
    """ASGI middleware that asks for a token.

    Args:
        app: what is behind it.
        service: told of requests that are denied.
        token: the token; None: none is asked for.

    """

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self._app = app
        self._service = service
        self._token = token.encode() if token is not None else None
        self._told_s: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        path = scope.get("path", "")
        if (
            scope["type"] != "http"
            or self._token is None
            or path in _OPEN
            or path.startswith(_OPEN_BELOW)
            or self._allowed(scope)
        ):
            await self._app(scope, receive, send)
            return
        self._tell(scope)
        problem = Problem(
            401,
            "unauthorized",
            "The request needs the controller's token",
            "send it as Authorization: Bearer TOKEN",
        )
        response = JSONResponse(
            problem.as_dict(path),
            status_code=401,
            media_type=MEDIA_TYPE,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await response(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = next((v for name, v in scope["headers"] if name.lower() == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        # Constant time: how long the comparison takes must not say how much of it was right.
        right = hmac.compare_digest(token.strip(), self._token or b"")
        return right and scheme.lower() == b"bearer"

    def _tell(self, scope: Scope) -> None:
        self._service.denied += 1
        now_s = time.monotonic()
        if self._told_s is not None and now_s - self._told_s < DENIED_PAUSE_S:
            return
        self._told_s = now_s
        client = scope["client"][0] if scope.get("client") else None
        data = {"client": client, "method": scope["method"], "path": scope["path"][:200]}
        self._service.events.record("denied", None, f"a request of {client} had no token", data)

"""Reads of desired state see every write that any controller has acknowledged before.

Memory follows the store by a watch, some milliseconds behind. So a read first asks the store for
its newest write, and waits for it; a read of one switch does not wait for writes to others. A
client that sends `Cache-Control: max-stale` (RFC 9111 section 5.2.1.2) gets this controller's state
at once, also while the store does not answer.
"""

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from pacer_controller.api.errors import respond
from pacer_controller.problems import Problem
from pacer_controller.service import Service
from pacer_controller.stores import StoreError

_SWITCHES = "/v1/switches"
_DESIRED = ("/v1/state", _SWITCHES, "/qos/", "/v1.0/conf/switches/")
"""Beginnings of the paths of desired state; the last two are Ryu's."""

_MEASURED = ("/stats", "/stats/history", "/bandwidth", "/burstiness")
"""Paths of measurements, relative to a switch's path: they do not depend on desired state."""

_MEASURED_BY_RYU = "/qos/queue/status/"


class Current:
    """ASGI middleware that brings memory up to date before a read of desired state.

    Args:
        app: the application.
        service: the service that has the desired state in memory.

    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 503 if the store does not answer."""
        if _wants_current(scope):
            try:
                await self._service.catch_up(_switch_of(scope["path"]))
            except StoreError as error:
                problem = Problem(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "not-current",
                    "The store does not answer",
                    f"{error}; send Cache-Control: max-stale to read what this controller knows",
                )
                await respond(scope["path"], problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _wants_current(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    if not path.startswith(_DESIRED) or path.endswith(_MEASURED):
        return False
    if path.startswith(_MEASURED_BY_RYU):
        return False
    directives = (v for name, v in scope["headers"] if name.lower() == b"cache-control")
    return not any(b"max-stale" in value.lower() for value in directives)


def _switch_of(path: str) -> str | None:
    """Return the name of the switch that a path is about; None: it is about all."""
    before, _, rest = path.partition(f"{_SWITCHES}/")
    return None if before else rest.partition("/")[0] or None

"""The REST interface: paths, OpenAPI, and errors as problem details.

OpenAPI is at `/openapi.json`, its page at `/docs`; the page needs no network.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline

from pacer_controller import __version__, dashboard
from pacer_controller.api.auth import Access
from pacer_controller.api.common import JsonLine
from pacer_controller.api.current import Current
from pacer_controller.api.errors import add_error_handlers
from pacer_controller.api.operations import add_operations
from pacer_controller.api.resources import add_resources
from pacer_controller.api.roles import is_open, needed
from pacer_controller.api.ryu import add_ryu
from pacer_controller.api.state import add_state
from pacer_controller.api.streams import Streams, add_streams
from pacer_controller.api.switches import add_switches
from pacer_controller.api.traces import add_traces
from pacer_controller.api.views import ProblemDetails
from pacer_controller.config import ConfigError
from pacer_controller.connections import Connections
from pacer_controller.http_limits import BodyLimits
from pacer_controller.service import Service
from pacer_controller.service.follow import Follower
from pacer_controller.service.history import History
from pacer_controller.users import Users

__all__ = ["build"]

_LOG = logging.getLogger(__name__)

USERS_S = 1.0
"""Time between two checks of the file of users."""


def build(
    service: Service,
    users: Users | None = None,
    names: Iterable[str] = (),
    *,
    history: bool = False,
    connections: Connections | None = None,
) -> FastAPI:
    """Make the application around a service; the service runs while the application does.

    Args:
        service: the service that the paths act on.
        users: the users whose tokens are accepted; None: requests need no token.
        names: the names of this host that clients may use, beside loopback's; not checked if
            requests need tokens.
        history: whether to read the switches, to keep the rates of the last minute.
        connections: the connections of clients; None: the server does not limit them.

    """
    connections = connections or Connections(service.refusals)
    users = users or Users()
    kept = History(service)
    follower = Follower(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        tasks = [asyncio.create_task(follower.run(), name="follow")]
        if users.required:
            following = _follow_users(users, service, connections)
            tasks.append(asyncio.create_task(following, name="users"))
        if history:
            tasks.append(asyncio.create_task(kept.run(), name="history"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await service.stop()

    app = FastAPIOffline(
        redoc_url=None,
        title="P4 PSPacer controller",
        version=__version__,
        description="Per-flow rates on pacing switches. Rates are written as `500Mbit`, "
        "`62.5MB/s`, `8kbit`, or an integer in bit/s. Errors are problem details (RFC 9457).",
        lifespan=lifespan,
        default_response_class=JsonLine,
        swagger_ui_parameters={"tryItOutEnabled": True},
    )
    app.add_middleware(Current, service=service)
    app.add_middleware(BodyLimits, refusals=service.refusals)
    # The last one added is the outermost: it checks a request before any part of it is read.
    app.add_middleware(Access, service=service, users=users, names=names)

    add_error_handlers(app)
    add_resources(app, service)
    add_operations(app, service, connections)
    add_switches(app, service, kept)
    add_state(app, service)
    streams = Streams(service.refusals)
    add_streams(app, service, service.events, streams)
    add_traces(app, service, streams)
    add_ryu(app, service)
    dashboard.mount(app)
    _describe_problems(app)
    _serve_document(app)
    return app


async def _follow_users(users: Users, service: Service, connections: Connections) -> None:
    """Read the file of users again when it changes, until cancelled."""
    while True:
        await asyncio.sleep(USERS_S)
        try:
            changes = await asyncio.to_thread(users.refresh)
        except ConfigError as error:
            message = f"the users stay as they were: {error}"
            _LOG.error("%s", message)
            service.events.record("controller", None, message)
            continue
        if not changes:
            continue
        gone = {*changes.revoked, *changes.changed}
        connections.end_users(gone.__contains__, "revoked")
        said = {word: names for word, names in asdict(changes).items() if names}
        listed = "; ".join(f"{word}: {', '.join(names)}" for word, names in said.items())
        service.events.record("controller", None, f"users were {listed}", said)


def _describe_roles(document: dict[str, Any]) -> None:
    """Add the required role to the description of each request."""
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["token"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "A user's token, where the controller has users.",
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if is_open(path):
                continue
            role = needed(method.upper(), path)
            operation["security"] = [{"token": []}]
            operation["x-pacer-role"] = role
            about = operation.get("description", "")
            operation["description"] = f"{about}\n\nNeeds the role `{role}`.".strip()


def _describe_problems(app: FastAPI) -> None:
    """Add parts to the OpenAPI document that no route declares: the problem schema, and roles."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "ProblemDetails" not in schemas:
            template = "#/components/schemas/{model}"
            schema = ProblemDetails.model_json_schema(ref_template=template)
            schemas.update(schema.pop("$defs", {}))
            schemas["ProblemDetails"] = schema
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            _describe_roles(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _serve_document(app: FastAPI) -> None:
    """Serve the OpenAPI document from memory.

    It needs no token, and rendering it takes milliseconds of the event loop.
    """
    path = app.openapi_url or ""
    routes = app.router.routes
    routes[:] = [one for one in routes if getattr(one, "path", None) != path]
    rendered = functools.cache(lambda: JsonLine(app.openapi()).body)

    async def document(_: Request) -> Response:
        return Response(rendered(), media_type="application/json")

    app.add_route(path, document, include_in_schema=False)

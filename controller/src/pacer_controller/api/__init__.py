"""The REST interface: paths, OpenAPI, and errors as problem details.

OpenAPI is at `/openapi.json`, its page at `/docs`; the page needs no network.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from pacer_controller import __version__, dashboard
from pacer_controller.api.auth import Access
from pacer_controller.api.common import JsonLine
from pacer_controller.api.current import Current
from pacer_controller.api.errors import add_error_handlers
from pacer_controller.api.operations import add_operations
from pacer_controller.api.resources import add_resources
from pacer_controller.api.ryu import add_ryu
from pacer_controller.api.state import add_state
from pacer_controller.api.streams import add_streams
from pacer_controller.api.switches import add_switches
from pacer_controller.api.views import ProblemDetails
from pacer_controller.connections import Connections
from pacer_controller.http_limits import BodyLimits
from pacer_controller.service import Service
from pacer_controller.service.follow import Follower
from pacer_controller.service.history import History

__all__ = ["build"]


def build(
    service: Service,
    token: str | None = None,
    names: Iterable[str] = (),
    *,
    history: bool = False,
    connections: Connections | None = None,
) -> FastAPI:
    """Make the application around a service; the service runs while the application does.

    Args:
        service: what the paths are about.
        token: bearer token that requests must have; None: none.
        names: what clients may call this host, beside loopback's names; with a token, anything.
        history: whether to keep the rates of the last minute, by reading the switches.
        connections: of clients; None: a server that does not bound them.

    """
    connections = connections or Connections(service.refusals)
    kept = History(service)
    follower = Follower(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        tasks = [asyncio.create_task(follower.run(), name="follow")]
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
    # Added last, so outermost: nothing of a request is read before it is allowed.
    app.add_middleware(Access, service=service, token=token, names=names)

    add_error_handlers(app)
    add_operations(app, service, connections)
    add_switches(app, service, kept)
    add_resources(app, service)
    add_state(app, service)
    add_streams(app, service, service.events)
    add_ryu(app, service)
    dashboard.mount(app)
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    """Put the problem schema, which no route returns by name, into the OpenAPI document."""
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
        return document

    app.openapi = openapi  # type: ignore[method-assign]

"""Whether the service runs and is ready."""

from http import HTTPStatus
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from pacer_controller import __version__
from pacer_controller.api import views
from pacer_controller.api.common import responses
from pacer_controller.connections import Connections
from pacer_controller.metrics import CONTENT_TYPE, Exporter
from pacer_controller.service import Service


def add_operations(app: FastAPI, service: Service, connections: Connections) -> None:
    """Add the paths of operation."""

    @app.get("/healthz", tags=["service"], summary="Whether the service runs")
    async def healthz() -> views.Health:
        states = list(service.states().values())
        return views.Health(
            status="ok",
            version=__version__,
            switches=len(states),
            connected=states.count("connected"),
        )

    @app.get(
        "/v1/store",
        tags=["service"],
        summary="Where the desired state is kept, and which controller drives which switch",
        responses=responses(401),
    )
    async def store() -> views.StoreView:
        return views.StoreView(**service.store.describe())

    @app.get(
        "/v1/controller",
        tags=["service"],
        summary="How this controller does: its connections, and what it refused",
        responses=responses(401),
    )
    async def controller(request: Request) -> views.ControllerView:
        user = request.scope.get("user")
        return views.ControllerView(
            version=__version__,
            user=user.name if user is not None else None,
            role=user.role if user is not None else "all",
            connections=views.ConnectionsView(
                users=connections.users, strangers=connections.strangers
            ),
            refusals=dict(service.refusals.counts),
            events_dropped=service.events.dropped,
        )

    exporter = Exporter(service, connections)

    @app.get(
        "/metrics",
        tags=["service"],
        summary="Prometheus metrics",
        response_class=Response,
        responses=responses(401)
        | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        return Response(await exporter.text(), media_type=CONTENT_TYPE)

    @app.get(
        "/readyz",
        tags=["service"],
        summary="Whether the service is ready",
        responses=responses(422) | {503: {"model": views.Readiness, "description": "It cannot."}},
    )
    async def readyz(
        request: Request,
        response: Response,
        connected: Annotated[
            bool, Query(description="Also require that every switch is connected.")
        ] = False,
    ) -> views.Readiness:
        states = dict(service.states())
        ready = await service.writable()
        # If the store is shared, the state is that at the holder of the switch's lease. A holder
        # that is a backup does not drive the switch yet.
        away = {"pending", "backup"} if service.store.shared else {"pending"}
        if connected and not away.isdisjoint(states.values()):
            ready = False
        response.status_code = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return views.Readiness(ready=ready, switches=None if request.scope["stranger"] else states)

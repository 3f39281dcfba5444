"""Switches: their addresses, states and counters."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from pacer_controller.api import views
from pacer_controller.api.common import (
    DELETE,
    READ,
    TERMS,
    WITH_ETAG,
    WRITE,
    Paged,
    SwitchName,
    Terms,
    page,
    responses,
    with_etag,
)
from pacer_controller.fields import NAME_PATTERN
from pacer_controller.problems import FieldError, invalid
from pacer_controller.service import Service, measurements
from pacer_controller.service.history import History
from pacer_controller.service.switches import delete_switch, put_switch
from pacer_controller.state_schema import SwitchSpec

_MOST_NS = 2**63 - 1
"""Largest signed integer of 64 bits: 292 years."""

FromNs = Annotated[int | None, Query(ge=0, le=_MOST_NS, description="Switch's clock, from.")]
ToNs = Annotated[int | None, Query(ge=0, le=_MOST_NS, description="Switch's clock, until.")]


def add_switches(app: FastAPI, service: Service, history: History) -> None:
    """Add the paths of switches."""
    _add_measurements(app, service, history)

    @app.get(
        "/v1/switches",
        tags=["switches"],
        summary="Switches",
        response_model=views.SwitchList,
        responses=responses(401, 422),
    )
    async def switches(request: Request, query: Paged) -> dict[str, Any]:
        items = await asyncio.gather(*map(service.switch_view, sorted(service.switches)))
        return page(request, "switches", items, query)

    @app.get(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="A switch: state, program, ports",
        response_model=views.SwitchView,
        responses=READ,
    )
    async def get_switch(switch: SwitchName) -> dict[str, Any]:
        return await service.switch_view(switch)

    @app.get(
        "/v1/switches/{switch}/stats",
        tags=["statistics"],
        summary="Counters and rates",
        response_model=views.Statistics,
        responses=READ | responses(502),
    )
    async def stats(switch: SwitchName) -> dict[str, Any]:
        return await service.statistics(switch)

    @app.put(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="Create a switch, or change where it is; its resources stay",
        response_model=views.SwitchView,
        openapi_extra=TERMS,
        responses=WRITE
        | WITH_ETAG
        | {201: {"model": views.SwitchView, "description": "The switch is new."}},
    )
    async def put_one_switch(
        switch: SwitchName, spec: SwitchSpec, asked: Terms, response: Response
    ) -> dict[str, Any]:
        view, created = await put_switch(service, switch, spec, *asked)
        response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
        return with_etag(response, view, view["revision"])

    @app.delete(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="Forget a switch and its resources; it keeps forwarding",
        status_code=204,
        openapi_extra=TERMS,
        responses=DELETE,
    )
    async def delete_one_switch(switch: SwitchName, asked: Terms) -> None:
        await delete_switch(service, switch, *asked)


def _add_measurements(app: FastAPI, service: Service, history: History) -> None:
    """Add the paths of measurements over time."""

    @app.get(
        "/v1/switches/{switch}/stats/history",
        tags=["statistics"],
        summary="Rates of the last minute; empty where the controller keeps none",
        response_model=views.History,
        responses=READ,
    )
    async def stats_history(switch: SwitchName) -> dict[str, Any]:
        return history.view(switch)

    @app.get(
        "/v1/switches/{switch}/bandwidth",
        tags=["statistics"],
        summary="Bandwidth in 500 us bins and 100 ms windows (gtrcnet)",
        response_model=views.Bandwidth,
        responses=READ | responses(502, 503),
    )
    async def bandwidth(
        switch: SwitchName,
        port: Annotated[int, Query(ge=0, le=3, description="Port the packets came in by.")],
        from_ns: FromNs = None,
        to_ns: ToNs = None,
    ) -> dict[str, Any]:
        return await measurements.bandwidth(service, switch, port, from_ns, to_ns)

    @app.get(
        "/v1/switches/{switch}/burstiness",
        tags=["statistics"],
        summary="Burstiness of a port or a measured flow, in windows of 100 ms (gtrcnet)",
        response_model=views.Burstiness,
        responses=READ | responses(502, 503),
    )
    async def burstiness(
        switch: SwitchName,
        port: Annotated[
            int | None, Query(ge=0, le=3, description="Port the packets came in by.")
        ] = None,
        flow: Annotated[
            str | None, Query(pattern=NAME_PATTERN, description="A flow of `measured`.")
        ] = None,
        from_ns: FromNs = None,
        to_ns: ToNs = None,
    ) -> dict[str, Any]:
        of = port if flow is None else flow
        if of is None or (port is not None and flow is not None):
            error = FieldError("port", "a port or a flow is needed", "one of port, flow")
            raise invalid(f"burstiness of switch {switch!r}", [error])
        return await measurements.burstiness(service, switch, of, from_ns, to_ns)

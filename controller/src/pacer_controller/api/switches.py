"""Switches: where they are and how they do; their counters."""

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request

from pacer_controller.api import views
from pacer_controller.api.common import READ, Paged, SwitchName, page, responses
from pacer_controller.fields import NAME_PATTERN
from pacer_controller.problems import FieldError, invalid
from pacer_controller.service import Service


def add_switches(app: FastAPI, service: Service) -> None:
    """Add the paths of switches."""

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
        from_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, from.")] = None,
        to_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, until.")] = None,
    ) -> dict[str, Any]:
        return await service.bandwidth(switch, port, from_ns, to_ns)

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
        from_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, from.")] = None,
        to_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, until.")] = None,
    ) -> dict[str, Any]:
        of = port if flow is None else flow
        if of is None or (port is not None and flow is not None):
            error = FieldError("port", "a port or a flow is needed", "one of port, flow")
            raise invalid(f"burstiness of switch {switch!r}", [error])
        return await service.burstiness(switch, of, from_ns, to_ns)

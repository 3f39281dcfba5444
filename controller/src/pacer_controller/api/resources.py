"""Ports, classes, meters and flows: the same four operations on each."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from pydantic import BaseModel

from pacer_controller.api import views
from pacer_controller.api.common import (
    DELETE,
    ETAG_HEADER,
    READ,
    TERMS,
    WITH_ETAG,
    WRITE,
    JsonLine,
    Paged,
    SwitchName,
    Terms,
    etag,
    page,
    read_asked,
    with_etag,
)
from pacer_controller.fields import NAME_PATTERN
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec, PortSpec
from pacer_controller.service import Service

Filters = dict[str, str | int | None]
"""Values that members of a listed resource must have; None: any."""


class _Kind(NamedTuple):
    """A kind of resource: its names and models."""

    kind: str
    plural: str
    spec: type[BaseModel]
    view: type[BaseModel]
    list_view: type[BaseModel]
    put: str
    delete: str
    filters: Callable[..., Awaitable[Filters]]


_Word = Annotated[str | None, Query(max_length=64)]


async def _no_filters() -> Filters:
    return {}


async def _class_filters(
    mode: _Word = None, port: Annotated[int | None, Query(ge=1, le=509)] = None
) -> Filters:
    return {"mode": mode, "port": port}


async def _flow_filters(
    class_name: Annotated[str | None, Query(alias="class", max_length=64)] = None,
    meter: _Word = None,
) -> Filters:
    return {"class": class_name, "meter_name": meter}


# Clients change classes far more often than anything else, and paths are tried in this order.
_KINDS = (
    _Kind(
        *("class", "classes", ClassSpec, views.ClassView, views.ClassList),
        put="Create or change a class: set a rate",
        delete="Remove a class that no flow uses",
        filters=_class_filters,
    ),
    _Kind(
        *("port", "ports", PortSpec, views.PortView, views.PortList),
        put="Set a port's line rate, FIFO, delay, counting and gap frames",
        delete="Stop managing a port; it keeps its settings",
        filters=_no_filters,
    ),
    _Kind(
        *("meter", "meters", MeterSpec, views.MeterView, views.MeterList),
        put="Create or change a meter",
        delete="Remove a meter that no flow uses",
        filters=_no_filters,
    ),
    _Kind(
        *("flow", "flows", FlowSpec, views.FlowView, views.FlowList),
        put="Create or change a flow: which packets, which class or rate",
        delete="Remove a flow",
        filters=_flow_filters,
    ),
)


def add_resources(app: FastAPI, service: Service) -> None:
    """Add the paths of all kinds."""
    for kind in _KINDS:
        _add_list(app, service, kind)
        _add_kind(app, service, kind)


def _add_list(app: FastAPI, service: Service, of: _Kind) -> None:
    kind = of.kind

    @app.get(
        f"/v1/switches/{{switch}}/{of.plural}",
        tags=[of.plural],
        summary=of.plural.title(),
        operation_id=f"get_{of.plural}",
        response_model=of.list_view,
        responses=READ,
    )
    async def get_all(
        request: Request,
        switch: SwitchName,
        query: Paged,
        filters: Annotated[Filters, Depends(of.filters)],
    ) -> dict[str, Any]:
        if kind == "port":
            await service.refresh_ports(switch)
        key = "port" if kind == "port" else "name"
        return page(request, of.plural, service.get_all(switch, kind), query, filters, key=key)


def _add_kind(app: FastAPI, service: Service, of: _Kind) -> None:
    kind, spec_type = of.kind, of.spec
    path = f"/v1/switches/{{switch}}/{of.plural}/{{{kind}}}"
    name_type: Any = Annotated[
        str, Path(alias=kind, pattern=NAME_PATTERN, description=f"Name of the {kind}.")
    ]
    if kind == "port":
        name_type = Annotated[int, Path(alias=kind, ge=1, le=509, description="Port number.")]

    description = f"The {kind} is new."
    new = {"model": of.view, "description": description, "headers": ETAG_HEADER}

    @app.get(
        path,
        tags=[of.plural],
        summary=f"A {kind}",
        operation_id=f"get_{kind}",
        response_model=of.view,
        responses=READ | WITH_ETAG,
    )
    async def get(switch: SwitchName, name: name_type, response: Response) -> dict[str, Any]:
        if kind == "port":
            await service.refresh_ports(switch)
        view = service.get(switch, kind, str(name))
        return with_etag(response, view, view["revision"])

    @app.put(
        path,
        tags=[of.plural],
        summary=of.put,
        operation_id=f"put_{kind}",
        response_model=of.view,
        openapi_extra=TERMS,
        responses=WRITE | WITH_ETAG | {201: new},
    )
    async def put(
        switch: SwitchName,
        name: name_type,
        spec: spec_type,  # type: ignore[valid-type]
        request: Request,
    ) -> JsonLine:
        # Not by `Terms`, since FastAPI would take the parameters of the dependency apart, too.
        asked = await read_asked(request)
        view, created = await service.put(switch, kind, str(name), spec, *asked)
        status = HTTPStatus.CREATED if created else HTTPStatus.OK
        # Not validated against the view's model, because clients make this call a thousand times a
        # second. The tests check that views match the document.
        return JsonLine(view, status, etag(view["revision"]))

    @app.delete(
        path,
        tags=[of.plural],
        summary=of.delete,
        operation_id=f"delete_{kind}",
        status_code=204,
        openapi_extra=TERMS,
        responses=DELETE,
    )
    async def delete(switch: SwitchName, name: name_type, asked: Terms) -> None:
        await service.delete(switch, kind, str(name), *asked)

"""The whole desired state, and switches as resources of their own."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response

from pacer_controller.api import views
from pacer_controller.api.common import (
    DELETE,
    ETAG_HEADER,
    READ,
    WRITE,
    By,
    If,
    SwitchName,
    etag,
    responses,
)
from pacer_controller.service import Service
from pacer_controller.service.bulk import (
    put_switch_state,
    put_whole_state,
    switch_state,
    whole_state,
)
from pacer_controller.service.switches import delete_switch, put_switch
from pacer_controller.state_schema import StateSpec, SwitchSpec, SwitchStateSpec

DryRun = Annotated[
    bool, Query(description="Check everything, say what would change, change nothing.")
]


def add_state(app: FastAPI, service: Service) -> None:
    """Add the paths of the whole state."""
    with_etag: dict[int | str, dict[str, Any]] = {200: {"headers": ETAG_HEADER}}

    @app.get(
        "/v1/state",
        tags=["state"],
        summary="Everything that is wanted of all switches",
        response_model=StateSpec,
        response_model_exclude_unset=True,
        responses=responses(401) | with_etag,
    )
    async def get_state(response: Response) -> dict[str, Any]:
        response.headers.update(etag(service.store.revision))
        return whole_state(service)

    @app.put(
        "/v1/state",
        tags=["state"],
        summary="Make everything that is wanted of all switches exactly this, all or nothing",
        response_model=views.StateResult,
        responses=WRITE | with_etag,
    )
    async def put_state(
        spec: StateSpec, condition: If, origin: By, response: Response, dry_run: DryRun = False
    ) -> dict[str, Any]:
        result = await put_whole_state(service, spec, condition, origin, dry_run)
        response.headers.update(etag(service.store.revision))
        return result

    @app.get(
        "/v1/switches/{switch}/state",
        tags=["state"],
        summary="Everything that is wanted of a switch",
        response_model=SwitchStateSpec,
        response_model_exclude_unset=True,
        responses=READ | with_etag,
    )
    async def get_switch_state(switch: SwitchName, response: Response) -> dict[str, Any]:
        found = service.switch(switch)
        response.headers.update(etag(found.last_change))
        return switch_state(found)

    @app.put(
        "/v1/switches/{switch}/state",
        tags=["state"],
        summary="Make everything that is wanted of a switch exactly this, all or nothing",
        response_model=views.StateResult,
        responses=WRITE | with_etag,
    )
    async def put_state_of_switch(
        switch: SwitchName,
        spec: SwitchStateSpec,
        condition: If,
        origin: By,
        response: Response,
        dry_run: DryRun = False,
    ) -> dict[str, Any]:
        result = await put_switch_state(service, switch, spec, condition, origin, dry_run)
        response.headers.update(etag(service.switch(switch).last_change))
        return result

    @app.put(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="Create a switch, or change where it is; its resources stay",
        response_model=views.SwitchView,
        responses=WRITE
        | with_etag
        | {201: {"model": views.SwitchView, "description": "The switch is new."}},
    )
    async def put_one_switch(
        switch: SwitchName, spec: SwitchSpec, condition: If, origin: By, response: Response
    ) -> dict[str, Any]:
        view, created = await put_switch(service, switch, spec, condition, origin)
        response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
        response.headers.update(etag(view["revision"]))
        return view

    @app.delete(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="Forget a switch and its resources; it keeps forwarding",
        status_code=204,
        responses=DELETE,
    )
    async def delete_one_switch(switch: SwitchName, condition: If, origin: By) -> None:
        await delete_switch(service, switch, condition, origin)

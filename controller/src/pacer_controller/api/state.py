"""The whole desired state: of all switches, or of one."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Response

from pacer_controller.api import views
from pacer_controller.api.common import (
    READ,
    TERMS,
    WITH_ETAG,
    WRITE,
    SwitchName,
    Terms,
    responses,
    with_etag,
)
from pacer_controller.service import Service
from pacer_controller.service.bulk import (
    put_switch_state,
    put_whole_state,
    switch_state,
    whole_state,
)
from pacer_controller.state_schema import StateSpec, SwitchStateSpec

DryRun = Annotated[
    bool, Query(description="Check everything and report what would change; change nothing.")
]


def add_state(app: FastAPI, service: Service) -> None:
    """Add the paths of the whole state."""

    @app.get(
        "/v1/state",
        tags=["state"],
        summary="The desired state of all switches",
        response_model=StateSpec,
        response_model_exclude_unset=True,
        responses=responses(401) | WITH_ETAG,
    )
    async def get_state(response: Response) -> dict[str, Any]:
        return with_etag(response, whole_state(service), service.revision)

    @app.put(
        "/v1/state",
        tags=["state"],
        summary="Replace the desired state of all switches, all or nothing",
        response_model=views.StateResult,
        openapi_extra=TERMS,
        responses=WRITE | WITH_ETAG,
    )
    async def put_state(
        spec: StateSpec, asked: Terms, response: Response, dry_run: DryRun = False
    ) -> dict[str, Any]:
        result = await put_whole_state(service, spec, *asked, dry_run)
        return with_etag(response, result, result["revision"])

    @app.get(
        "/v1/switches/{switch}/state",
        tags=["state"],
        summary="The desired state of a switch",
        response_model=SwitchStateSpec,
        response_model_exclude_unset=True,
        responses=READ | WITH_ETAG,
    )
    async def get_switch_state(switch: SwitchName, response: Response) -> dict[str, Any]:
        found = service.switch(switch)
        return with_etag(response, switch_state(found), found.last_change)

    @app.put(
        "/v1/switches/{switch}/state",
        tags=["state"],
        summary="Replace the desired state of a switch, all or nothing",
        response_model=views.StateResult,
        openapi_extra=TERMS,
        responses=WRITE | WITH_ETAG,
    )
    async def put_state_of_switch(
        switch: SwitchName,
        spec: SwitchStateSpec,
        asked: Terms,
        response: Response,
        dry_run: DryRun = False,
    ) -> dict[str, Any]:
        result = await put_switch_state(service, switch, lambda _: spec, *asked, dry_run)
        return with_etag(response, result, result["revision"])

"""Which of two controllers leads, and the feed that the follower reads."""

import asyncio
import json
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from pacer_controller.api import views
from pacer_controller.api.common import responses
from pacer_controller.problems import Problem
from pacer_controller.replication import Pair
from pacer_controller.service import Service

_Number = Annotated[int, Query(ge=-1, le=2**53)]


class RoleSpec(BaseModel):
    """The role a controller is to have."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["leader"] = Field(description="Lead, whatever the other controller has.")


def _pair(service: Service) -> Pair:
    if service.pair is None:
        raise Problem(
            HTTPStatus.CONFLICT,
            "no-peer",
            "This controller has no peer",
            "it was started without --peer: nobody follows it, and it follows nobody",
        )
    return service.pair


def add_replication(app: FastAPI, service: Service) -> None:
    """Add the paths of replication."""

    @app.get(
        "/v1/replication",
        tags=["replication"],
        summary="Whether this controller leads or follows another",
        response_model=views.ReplicationView,
        responses=responses(401),
    )
    async def get_replication() -> dict[str, Any]:
        return service.replication_status()

    @app.put(
        "/v1/replication",
        tags=["replication"],
        summary="Make this controller lead; what only the other has is lost",
        response_model=views.ReplicationView,
        responses=responses(400, 401, 409, 413, 415, 422),
    )
    async def put_replication(spec: RoleSpec) -> dict[str, Any]:
        await _pair(service).promote()
        return service.replication_status()

    @app.get(
        "/v1/replication/feed",
        tags=["replication"],
        summary="For a controller that follows: what comes after a write it has on disk",
        response_class=Response,
        responses=responses(401, 409, 422, 503)
        | {200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    async def feed(
        follower: Annotated[
            str, Query(pattern=r"^[0-9a-f]{16}$", description="Name of the follower.")
        ],
        epoch: Annotated[_Number, Query(description="Epoch of its state; -1: none.")],
        after: Annotated[_Number, Query(description="The newest write that it has on disk.")],
        leaving: Annotated[bool, Query(description="Only say that it stops following.")] = False,
    ) -> Response:
        said = await _pair(service).answer(follower, epoch, after, leaving=leaving)
        # Not on the way of requests: the whole state may take a while to write out.
        text = await asyncio.to_thread(json.dumps, said) if "snapshot" in said else json.dumps(said)
        return Response(text, media_type="application/json")

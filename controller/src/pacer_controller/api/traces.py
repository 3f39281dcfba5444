"""Traces of packets: dry runs as JSON, packets that come in as a stream of server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from pacer_controller.api import views
from pacer_controller.api.common import SwitchName, responses
from pacer_controller.api.streams import EVENT_STREAM, KEEP_ALIVE_S, Streams, message
from pacer_controller.packet_filter import LENGTH_MAX
from pacer_controller.problems import Problem
from pacer_controller.service import Service, tracing
from pacer_controller.southbound import FilterInstruction

_MOST_PORT = 511
_MOST_FRAME_BYTES = 9216
_DEFAULT_COUNT = 10
_MOST_COUNT = 1_000_000


class DryRun(BaseModel):
    """A frame that might come in."""

    model_config = ConfigDict(extra="forbid")

    port: Annotated[int, Field(ge=0, le=_MOST_PORT, description="Port where it would come in.")]
    frame: Annotated[
        str,
        Field(
            pattern="^([0-9a-fA-F]{2})+$",
            max_length=2 * _MOST_FRAME_BYTES,
            description="The frame without FCS, in hexadecimal digits.",
        ),
    ]


async def _traces(
    service: Service,
    switch: str,
    port: int | None,
    instructions: list[FilterInstruction],
    count: int,
) -> AsyncIterator[str]:
    yield ": \n\n"
    traces = tracing.watch(service, switch, port, instructions, count)
    coming: asyncio.Task[dict[str, Any]] | None = None
    try:
        while not service.stopping:
            if coming is None:
                coming = asyncio.ensure_future(anext(traces))
            done, _ = await asyncio.wait([coming], timeout=KEEP_ALIVE_S)
            if not done:
                yield ": keep-alive\n\n"
                continue
            taken, coming = coming, None
            yield message("trace", taken.result())
    except StopAsyncIteration:
        pass
    except Problem as problem:
        yield message("error", problem.as_dict(f"/v1/switches/{switch}/traces"))
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, Problem):
                await coming
        await traces.aclose()


def add_traces(app: FastAPI, service: Service, streams: Streams) -> None:
    """Add the paths of traces."""

    @app.post(
        "/v1/switches/{switch}/dry-run",
        tags=["traces"],
        summary="The path that a frame would take now; sends and changes nothing",
        response_model=views.TraceView,
        responses=responses(400, 401, 404, 409, 413, 415, 422, 502),
    )
    async def dry_run(switch: SwitchName, frame: DryRun) -> dict[str, Any]:
        return await tracing.dry_run(service, switch, frame.port, bytes.fromhex(frame.frame))

    @app.get(
        "/v1/switches/{switch}/traces",
        tags=["traces"],
        summary="Traces of packets as they come in",
        response_class=StreamingResponse,
        responses=responses(401, 404, 422, 501, 503) | EVENT_STREAM,
    )
    async def traces(
        request: Request,
        switch: SwitchName,
        match: Annotated[
            str | None,
            Query(
                min_length=1,
                max_length=LENGTH_MAX,
                description="Only packets of this filter in the language of tcpdump.",
            ),
        ] = None,
        port: Annotated[
            int | None, Query(ge=0, le=_MOST_PORT, description="Only packets that come in here.")
        ] = None,
        count: Annotated[
            int,
            Query(ge=1, le=_MOST_COUNT, description="Traces after which the stream ends."),
        ] = _DEFAULT_COUNT,
    ) -> StreamingResponse:
        service.switch(switch)
        instructions = await tracing.compiled(match)
        return streams.open(request, _traces(service, switch, port, instructions, count))

"""Events as a list; events and statistics as streams of server-sent events (HTML, 9.2)."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pacer_controller.api import views
from pacer_controller.api.common import MAX_PAGE, PageQuery, page, responses
from pacer_controller.events import EventLog, Kind
from pacer_controller.fields import NAME_PATTERN
from pacer_controller.problems import FieldError, Problem, invalid, not_found
from pacer_controller.refusals import Refusals
from pacer_controller.service import Service
from pacer_controller.service.managed import Samples
from pacer_controller.users import User

KEEP_ALIVE_S = 10.0
RETRY_MS = 1000

MAX_STREAMS = 128
"""Most open streams, of events, statistics and traces together."""

ONE_USER_STREAMS = 64
"""Most of these of one user, if users have names."""

_DEFAULT_EVENTS = 100

SwitchFilter = Annotated[
    list[Annotated[str, Query(pattern=NAME_PATTERN)]],
    Query(description="Only of this switch; may be repeated."),
]
KindFilter = Annotated[list[Kind], Query(description="Only of this kind; may be repeated.")]
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def message(event: str, data: Any, number: int | None = None) -> str:
    """Return one server-sent event; JSON has no line ends of its own."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n"


async def _events(
    service: Service, log: EventLog, after: int, kinds: Sequence[str], switches: Sequence[str]
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    while not service.stopping:
        last = log.last_id
        for event in log.select(after, kinds, switches):
            yield message(event["kind"], event, event["id"])
        after = max(after, last)
        if not await service.until(log.wait(after), KEEP_ALIVE_S):
            yield ": keep-alive\n\n"


async def _statistics(
    service: Service, switches: Sequence[str], interval_s: float, count: int | None
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    samples: dict[str, Samples] = {}
    sent = 0
    quiet_s = 0.0
    while not service.stopping:
        names = switches or sorted(service.switches)
        for name in names:
            try:
                said = await service.statistics(name, samples.setdefault(name, Samples()))
                yield message("stats", said)
            except Problem as problem:
                yield message("error", problem.as_dict(f"/v1/switches/{name}/stats"))
        sent += 1
        if count is not None and sent >= count:
            return
        quiet_s = 0.0 if names else quiet_s + interval_s
        if quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield ": keep-alive\n\n"
        await service.until(asyncio.sleep(interval_s), interval_s + 1)


class Streams:
    """The open streams, whose number is limited.

    Args:
        refusals: the counters of refusals.

    """

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._open: dict[_Stream, str | None] = {}
        """The open streams, with the user of each."""

    def open(self, request: Request, chunks: AsyncIterator[str]) -> StreamingResponse:
        """Return a stream of chunks; it is among the open ones until it ends.

        Raises:
            Problem: there are too many, or too many of the request's user.

        """
        found: User | None = request.scope.get("user")
        user = found.name if found is not None else None
        own = list(self._open.values()).count(user) if user is not None else 0
        if own >= ONE_USER_STREAMS:
            raise self._full(f"{ONE_USER_STREAMS} of user {user!r} are open")
        if len(self._open) >= MAX_STREAMS:
            raise self._full(f"{MAX_STREAMS} are open")
        return _Stream(chunks, self._open, user)

    def _full(self, what: str) -> Problem:
        self._refusals.count("streams-full")
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "too-many-streams",
            "There are too many streams",
            f"{what}, which is the most; end some",
        )


class _Stream(StreamingResponse):
    def __init__(
        self, chunks: AsyncIterator[str], streams: dict["_Stream", str | None], user: str | None
    ) -> None:
        # A proxy must not buffer the stream: events would reach a page late, many at once.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(chunks, media_type="text/event-stream", headers=headers)
        self._streams = streams
        streams[self] = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends, or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.pop(self, None)


def add_streams(app: FastAPI, service: Service, log: EventLog, streams: Streams) -> None:
    """Add the paths of events, which are in `log`, and of statistics as a stream."""

    @app.get(
        "/v1/events",
        tags=["events"],
        summary="Events, oldest first; the last 10,000 are kept",
        response_model=views.EventList,
        responses=responses(401, 422),
    )
    async def events(
        request: Request,
        switch: SwitchFilter = [],  # noqa: B006 (FastAPI copies it)
        kind: KindFilter = [],  # noqa: B006
        after: Annotated[
            int, Query(ge=0, le=2**53, description="Only events after this number.")
        ] = 0,
        limit: Annotated[
            int, Query(ge=1, le=MAX_PAGE, description="Largest number of events in the answer.")
        ] = (_DEFAULT_EVENTS),
        newest: Annotated[bool, Query(description="The last ones instead of the first.")] = False,
    ) -> dict[str, Any]:
        # One more than the limit says that there are further ones.
        most = limit if newest else limit + 1
        found, total = log.page(after, kind, switch, most, newest=newest)
        query = PageQuery(limit, None, None, None)
        return page(request, "events", found, query, key="id") | {"total": total}

    @app.get(
        "/v1/events/stream",
        tags=["events"],
        summary="Events as they happen",
        response_class=StreamingResponse,
        responses=responses(401, 422, 503) | EVENT_STREAM,
    )
    async def event_stream(
        request: Request,
        switch: SwitchFilter = [],  # noqa: B006
        kind: KindFilter = [],  # noqa: B006
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Begin after this one; default: now.")
        ] = None,
        last_event_id: Annotated[
            str | None, Header(description="Number of the last event seen; wins over `after`.")
        ] = None,
    ) -> StreamingResponse:
        if last_event_id is not None:
            if not (
                last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17
            ):
                raise invalid(
                    "request",
                    [FieldError("Last-Event-ID", "it is not the number of an event", "a number")],
                )
            after = int(last_event_id)
        start = log.last_id if after is None else after
        return streams.open(request, _events(service, log, start, kind, switch))

    @app.get(
        "/v1/events/{id}",
        tags=["events"],
        summary="An event",
        response_model=views.EventView,
        responses=responses(401, 404, 422),
    )
    async def event(
        number: Annotated[int, Path(alias="id", ge=1, le=2**53, description="Number.")],
    ) -> dict[str, Any]:
        found = log.get(number)
        if found is None:
            raise not_found("event", str(number), ())
        return found

    @app.get(
        "/v1/stats/stream",
        tags=["statistics"],
        summary="Counters and rates, repeatedly",
        response_class=StreamingResponse,
        responses=responses(401, 404, 422, 503) | EVENT_STREAM,
    )
    async def statistics_stream(
        request: Request,
        switch: SwitchFilter = [],  # noqa: B006
        interval_ms: Annotated[
            int, Query(ge=200, le=60_000, description="Time between two readings.")
        ] = 1000,
        count: Annotated[
            int | None,
            Query(
                ge=1,
                le=1_000_000,
                description="Number of readings after which the stream ends; default: no end.",
            ),
        ] = None,
    ) -> StreamingResponse:
        for name in switch:
            service.switch(name)
        # One reading of each, however often the request names it.
        names = list(dict.fromkeys(switch))
        readings = _statistics(service, names, interval_ms / 1000, count)
        return streams.open(request, readings)

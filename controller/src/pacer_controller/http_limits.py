"""Limits on request bodies, checked before the application sees a request.

A body is read once here, up to its limit. It must be JSON in UTF-8, not nested too deeply, and
without duplicate names in an object (RFC 8259 section 4: readers differ on those). NaN and
Infinity, which are not JSON, pass, because the check of their field refuses them and can name the
field. A body that passes goes to the application unchanged.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pacer_controller.problems import MEDIA_TYPE, Problem
from pacer_controller.refusals import Refusals

MAX_BODY_BYTES = 1024 * 1024

MAX_STATE_BYTES = 32 * 1024 * 1024
"""Longest body of a whole desired state: enough for all entries that a switch holds."""

MAX_HELD_BYTES = 128 * 1024 * 1024
"""Most bytes of all bodies together whose requests are not answered yet."""

_LONG_BYTES = 64 * 1024
"""Bodies longer than this take milliseconds to read, and are read in a thread."""

_WITH_BODY = {"PUT", "POST", "PATCH"}

_AS_RYU = ("/qos/", "/v1.0/")
"""Paths whose clients send JSON with another Content-Type or none; DELETE has a body there."""


class BodyLimits:
    """ASGI middleware that refuses bodies which are too big or not JSON.

    Args:
        app: the application.
        refusals: the counters of refused bodies.

    """

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self._app = app
        self._refusals = refusals
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the body of one request and pass it on."""
        ryu = scope["type"] == "http" and scope.get("path", "").startswith(_AS_RYU)
        has_body = scope["type"] == "http" and scope["method"] in _WITH_BODY
        if not has_body and not (ryu and scope["method"] == "DELETE"):
            await self._app(scope, receive, send)
            return
        held = _Held(self)
        try:
            await self._pass_on(scope, receive, send, held, any_type=ryu)
        finally:
            self._held_bytes -= held.size_bytes

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, held: "_Held", *, any_type: bool
    ) -> None:
        try:
            body = await _read(scope, receive, held, any_type=any_type)
            if len(body) > _LONG_BYTES:
                # Other requests are handled while a thread reads it.
                await asyncio.to_thread(check_json, body)
            elif body or not any_type:
                check_json(body)
        except Problem as problem:
            matches = [route.matches(scope)[0] for route in scope["app"].routes]
            if Match.PARTIAL in matches and Match.FULL not in matches:
                # The path does not have this method, so no body is right: the application answers.
                await self._app(scope, receive, send)
                return
            path = scope.get("path", "")
            response = JSONResponse(
                problem.as_dict(path), status_code=problem.status, media_type=MEDIA_TYPE
            )
            await response(scope, receive, send)
            return
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def hold(self, size_bytes: int) -> None:
        """Reserve memory for a part of a body.

        Raises:
            Problem: 503, no memory is left for bodies.

        """
        if self._held_bytes + size_bytes > MAX_HELD_BYTES:
            self.refuse("bytes-full")
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "bytes-full",
                "There are too many large requests",
                f"they have {MAX_HELD_BYTES} bytes together; send this one again later",
            )
        self._held_bytes += size_bytes

    def refuse(self, cause: str) -> None:
        """Count a refusal."""
        self._refusals.count(cause)


class _Held:
    """The memory that the body of one request takes.

    Args:
        limits: the limits that the memory is reserved from.

    """

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self.size_bytes = 0

    def add(self, size_bytes: int, most_bytes: int) -> None:
        """Reserve more memory.

        Raises:
            Problem: the body is too long, or no memory is left for bodies.

        """
        if self.size_bytes + size_bytes > most_bytes:
            raise self.too_big(most_bytes)
        self._limits.hold(size_bytes)
        self.size_bytes += size_bytes

    def too_big(self, most_bytes: int) -> Problem:
        """Count a refusal, and return the 413."""
        self._limits.refuse("message-too-long")
        return Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "body-too-large",
            "The body is too large",
            f"a body has at most {most_bytes} bytes here",
        )


async def _read(scope: Scope, receive: Receive, held: _Held, *, any_type: bool) -> bytes:
    headers = {name.lower(): value for name, value in scope["headers"]}
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    json_type = media_type == b"application/json" or media_type.endswith(b"+json")
    if not json_type and not any_type:
        shown = media_type.decode("latin-1")[:60] or "nothing"
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "The body must be JSON",
            f"Content-Type says {shown!r}; send application/json (curl: --json)",
        )
    most = MAX_STATE_BYTES if scope.get("path", "").endswith("/state") else MAX_BODY_BYTES
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and len(length) < 20 and int(length) > most:
        raise held.too_big(most)
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _bad("the connection was closed within the body")
        chunk = message.get("body", b"")
        held.add(len(chunk), most)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def check_json(body: bytes) -> None:
    """Refuse a body that is not JSON.

    Raises:
        Problem: 400 with the error.

    """
    try:
        text = body.decode("utf-8")
        json.loads(text, object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise _bad("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _bad(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _bad("the body is nested too deeply") from None
    except ValueError as error:
        # An integer has more digits than Python reads.
        raise _bad(str(error).partition(";")[0]) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _bad(f"the name {name[:60]!r} stands twice in one object")
            seen.add(name)
    return result


def _bad(detail: str) -> Problem:
    return Problem(
        HTTPStatus.BAD_REQUEST, "malformed-json", "The body is not well-formed JSON", detail
    )

"""Shared parts of the paths: parameters, conditions, pages and responses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from pacer_controller.fields import NAME_PATTERN
from pacer_controller.problems import MEDIA_TYPE, FieldError, invalid
from pacer_controller.service import Condition, Origin

DEFAULT_PAGE = 1000
MAX_PAGE = 10_000

_ETAGS = re.compile(r'\s*(?:W/)?"[^"]*"\s*(?:,\s*(?:W/)?"[^"]*"\s*)*')
_ACTOR = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_STRONG = re.compile(r'(?<!W/)"([0-9]{1,18})"')

SwitchName = Annotated[
    str, Path(alias="switch", pattern=NAME_PATTERN, description="Name of the switch.")
]


class JsonLine(JSONResponse):
    """JSON that ends with a newline, so that the shell's prompt after curl is on a new line."""

    def render(self, content: Any) -> bytes:
        """Return the response's body."""
        return super().render(content) + b"\n"


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problem responses of a path, for the OpenAPI document.

    A path that may answer 401 may answer 403, too.
    """
    if HTTPStatus.UNAUTHORIZED in statuses:
        statuses = (*statuses, HTTPStatus.FORBIDDEN)
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {s: {"description": HTTPStatus(s).phrase, "content": content} for s in statuses}


_ETAG_TEXT = "Number of the change that made the resource so."
ETAG_HEADER = {"ETag": {"description": _ETAG_TEXT, "schema": {"type": "string"}}}
WITH_ETAG: dict[int | str, dict[str, Any]] = {200: {"headers": ETAG_HEADER}}

READ = responses(401, 404, 409, 422)
WRITE = responses(400, 401, 404, 409, 412, 413, 415, 422, 502, 503, 507)
DELETE = responses(401, 404, 409, 412, 422, 502, 503)


def _condition(if_match: str | None, if_none_match: str | None) -> Condition:
    """Read If-Match and If-None-Match (RFC 9110 section 13.1)."""
    revisions: Sequence[int] | None = None
    if if_match is not None:
        if if_match.strip() == "*":
            revisions = ()
        else:
            if _ETAGS.fullmatch(if_match) is None:
                raise _wrong_header("If-Match", if_match, 'an ETag such as "17" in quotes, or *')
            # A weak ETag never matches, nor does one that is not a number.
            revisions = [int(number) for number in _STRONG.findall(if_match)] or (-1,)
    if if_none_match is not None and if_none_match.strip() != "*":
        raise _wrong_header("If-None-Match", if_none_match, "*")
    return Condition(revisions, must_be_new=if_none_match is not None)


def _wrong_header(name: str, value: str, expected: str) -> Exception:
    message = f"{ascii(value)[:40]} is not allowed"
    return invalid("request", [FieldError(name, message, expected)])


class Asked(NamedTuple):
    """The parts of a change request beside its body: its condition and its origin."""

    condition: Condition
    origin: Origin


def read_origin(request: Request) -> Origin:
    """Return the origin of a request."""
    actor = request.headers.get("x-pacer-actor")
    if actor is not None and _ACTOR.fullmatch(actor) is None:
        raise _wrong_header("X-Pacer-Actor", actor, "1 to 64 of A-Z a-z 0-9 . _ @ -")
    client = request.client.host if request.client is not None else None
    user = request.scope.get("user")
    name = user.name if user is not None else None
    return Origin(actor, client, request.method, request.url.path, name)


async def read_asked(request: Request) -> Asked:
    """Return the condition of a change and its origin.

    The headers are read here and described in TERMS, because FastAPI's parameters would cost as
    much as the rest of a rate change.
    """
    headers = request.headers
    condition = _condition(headers.get("if-match"), headers.get("if-none-match"))
    return Asked(condition, read_origin(request))


def _header(name: str, description: str, **schema: str) -> dict[str, Any]:
    """Describe a header for the OpenAPI document."""
    about = {"name": name, "in": "header", "required": False, "description": description}
    return {**about, "schema": {"type": "string", **schema}}


_ACTOR_HEADER = _header(
    "X-Pacer-Actor", "For whom the user asks, for audit events.", pattern=f"^{_ACTOR.pattern}$"
)
WHO: dict[str, Any] = {"parameters": [_ACTOR_HEADER]}
"""The parameters that `read_origin` reads, for the OpenAPI document (`openapi_extra`)."""

TERMS: dict[str, Any] = {
    "parameters": [
        _header("If-Match", '`"17"`: only if it is still that; `*`: if it is there.'),
        _header("If-None-Match", "`*`: only if it is not there yet."),
        _ACTOR_HEADER,
    ]
}
"""The parameters that `read_asked` reads, for the OpenAPI document (`openapi_extra`)."""


# A coroutine, because another function would be run in a thread.
Terms = Annotated[Asked, Depends(read_asked)]


@dataclass(frozen=True)
class PageQuery:
    """The part of a list to return."""

    limit: int
    after: str | None
    prefix: str | None
    state: str | None


async def read_page(
    limit: Annotated[
        int, Query(ge=1, le=MAX_PAGE, description="Largest number of events in the answer.")
    ] = DEFAULT_PAGE,
    after: Annotated[str | None, Query(max_length=64, description="Begin after this name.")] = None,
    prefix: Annotated[
        str | None, Query(max_length=64, description="Names that begin with this.")
    ] = None,
    state: Annotated[
        str | None, Query(max_length=16, description="Only those in this state.")
    ] = None,
) -> PageQuery:
    """Read the parameters of a list."""
    return PageQuery(limit, after, prefix, state)


Paged = Annotated[PageQuery, Depends(read_page)]


def page(
    request: Request,
    plural: str,
    items: Sequence[Mapping[str, Any]],
    query: PageQuery,
    filters: Mapping[str, object] | None = None,
    *,
    key: str = "name",
) -> dict[str, Any]:
    """Return a page of a list that is sorted by key, filters applied."""
    wanted = {name: value for name, value in (filters or {}).items() if value is not None}
    if query.state is not None:
        wanted["state"] = query.state
    found = [
        item
        for item in items
        if all(item.get(name) == value for name, value in wanted.items())
        and (query.prefix is None or str(item[key]).startswith(query.prefix))
    ]
    start = 0
    if query.after is not None:
        after = _order(key, query.after)
        beyond = (n for n, item in enumerate(found) if _order(key, item[key]) > after)
        start = next(beyond, len(found))
    shown = found[start : start + query.limit]
    more = start + query.limit < len(found)
    following = None
    if more:
        kept = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
        following = f"{request.url.path}?{urlencode([*kept, ('after', shown[-1][key])])}"
    return {plural: shown, "total": len(found), "next": following}


def _order(key: str, value: object) -> tuple[int, str]:
    """Return the sort key of a member: the number for ports, the name for everything else."""
    text = str(value)
    number = key == "port" and text.isascii() and text.isdigit() and len(text) < 10
    return (int(text), "") if number else (0, text)


def with_etag(response: Response, answer: dict[str, Any], revision: int | None) -> dict[str, Any]:
    """Return an answer after giving its response the ETag of the resource."""
    response.headers.update(etag(revision))
    return answer


def etag(revision: int | None) -> dict[str, str]:
    """Return the ETag header of a resource; none if it is not managed."""
    return {} if revision is None else {"ETag": f'"{revision}"'}

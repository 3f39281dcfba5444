"""All errors as problem details, with the resource, the field, and the expected value."""

import logging
import types
import typing
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from pacer_controller.api.common import JsonLine
from pacer_controller.egress_queues import QUEUES_BY_WORD, QUEUES_IN_PLACE
from pacer_controller.fields import show
from pacer_controller.problems import MEDIA_TYPE, FieldError, Problem, did_you_mean, invalid
from pacer_controller.records import SPECS
from pacer_controller.schemas import METER_BY_NAME, METER_IN_PLACE
from pacer_controller.service.checks import resource_name
from pacer_controller.service.commit import KeptError
from pacer_controller.state_schema import (
    OPENVSWITCH,
    P4RUNTIME,
    P4RuntimeSpec,
    StateSpec,
    SwitchStateSpec,
)
from pacer_controller.stores import StaleError, StoreError, UncertainError

_LOG = logging.getLogger(__name__)

_TAGS = (
    *(METER_BY_NAME, METER_IN_PLACE, QUEUES_BY_WORD, QUEUES_IN_PLACE),
    *(P4RUNTIME, OPENVSWITCH),
)
_MOST_ERRORS = 20
"""Most field errors in one answer."""


def respond(path: str, problem: Problem) -> JsonLine:
    """Return the response for a problem with a request of a path."""
    headers = None
    if problem.status == HTTPStatus.UNAUTHORIZED:
        # A client must connect again to try again; this costs the server less than an answer.
        headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
    return JsonLine(
        problem.as_dict(path),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def add_error_handlers(app: FastAPI) -> None:
    """Have every error answered as problem details."""

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> JsonLine:
        return respond(request.url.path, problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JsonLine:
        resource = _resource(request.path_params)
        return respond(request.url.path, invalid(resource, _field_errors(request, error.errors())))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JsonLine:
        phrase = HTTPStatus(error.status_code).phrase
        kind = phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}"
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail += ": there is no such path; /docs lists all paths"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # Starlette names the methods of the first route only; each method here has its own.
            headers["Allow"] = ", ".join(_methods(request)) or headers.get("Allow", "GET")
            detail += f": this path takes {headers['Allow']}"
            if request.method == "PATCH":
                detail += "; PUT replaces all settings"
        response = respond(request.url.path, Problem(error.status_code, kind, phrase, detail))
        response.headers.update(headers)
        return response

    @app.exception_handler(StoreError)
    async def on_store(request: Request, error: StoreError) -> JsonLine:
        _LOG.error("%s", error)
        title, detail = "The state could not be stored", "nothing was changed"
        kind = "not-stored"
        if isinstance(error, StaleError):
            detail = "other controllers change the same switch all the time; nothing was changed"
        elif isinstance(error, UncertainError):
            kind, title = "uncertain", "The store does not say whether the state is stored"
            detail = "the change may have been made: read the resource, or put it again"
            if isinstance(error, KeptError):
                detail = str(error)
        return respond(request.url.path, Problem(503, kind, title, detail))

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> JsonLine:
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return respond(
            request.url.path, Problem(500, "internal", "The controller has a fault", "see its log")
        )


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of a request's path."""
    return sorted(
        method
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    )


def _resource(path_params: Mapping[str, Any]) -> str:
    """Name the resource of a request for an error message."""
    switch = path_params.get("switch")
    for kind in SPECS:
        if kind in path_params:
            return resource_name(kind, path_params[kind], str(switch))
    return f"switch {switch!r}" if switch is not None else "request"


def _body_model(request: Request) -> type[BaseModel] | None:
    for kind, model in SPECS.items():
        if kind in request.path_params:
            return model
    if request.url.path.startswith("/v1/switches/") and request.url.path.count("/") == 3:
        return P4RuntimeSpec
    if request.url.path.endswith("/state"):
        return SwitchStateSpec if "switch" in request.path_params else StateSpec
    return None


def _field_errors(request: Request, errors: Sequence[Any]) -> list[FieldError]:
    """Translate pydantic's errors."""
    found = []
    for error in errors[:_MOST_ERRORS]:
        source, *location = error["loc"]
        location = [part for part in location if part not in _TAGS]
        path = ".".join(str(part) for part in location) or str(source)
        if source == "header":
            path = path.replace("_", "-")
        context = error.get("ctx", {})
        if error["type"] == "pacer_value":
            found.append(FieldError(path, context["message"], context["expected"]))
            continue
        if error["type"] == "extra_forbidden":
            known = _known_fields(_body_model(request), location[:-1])
            guess = did_you_mean(str(location[-1]), known)
            message, expected = f"unknown field{guess}", "one of " + ", ".join(known)
        elif error["type"] == "missing":
            message, expected = "is needed but not there", "a value"
        else:
            message, expected = _wrong(error)
        found.append(FieldError(path, message, expected))
    return found


def _wrong(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return the error of a value, and the expected values."""
    limits = error.get("ctx", {})
    expectations = {
        "int_type": "an integer",
        "int_parsing": "an integer",
        "bool_type": "true or false",
        "string_type": "a string",
        "dict_type": "a JSON object",
        "model_attributes_type": "a JSON object",
        "model_type": "a JSON object",
        "greater_than_equal": f"at least {limits.get('ge')}",
        "less_than_equal": f"at most {limits.get('le')}",
        "greater_than": f"more than {limits.get('gt')}",
        "less_than": f"less than {limits.get('lt')}",
        "literal_error": str(limits.get("expected")),
        "string_pattern_mismatch": "1 to 64 of A-Z a-z 0-9 . _ -, starting with a letter or digit",
    }
    expected = expectations.get(error["type"], str(error.get("msg")))
    return f"{show(error.get('input'))} is not allowed", expected


def _known_fields(model: Any, path: Sequence[Any]) -> list[str]:
    """Return the field names of the object at a path within the request's body."""
    for part in path:
        model = _inner(model, part)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [info.alias or name for name, info in model.model_fields.items()]


def _inner(annotation: Any, part: object) -> Any:
    """Return the type of a member of an object of some type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, info in annotation.model_fields.items():
            if part in (name, info.alias):
                return _object_type(info.annotation)
    if typing.get_origin(annotation) in (dict, list):
        return _object_type(typing.get_args(annotation)[-1])
    return None


def _object_type(annotation: Any) -> Any:
    """Return the type in an annotation that has members: a model, a dict or a list."""
    origin = typing.get_origin(annotation)
    if origin in (dict, list) or (
        isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ):
        return annotation
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        options = (_object_type(inner) for inner in typing.get_args(annotation))
        return next((option for option in options if option is not None), None)
    return None

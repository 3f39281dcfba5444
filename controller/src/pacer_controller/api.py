"""The REST interface: paths, OpenAPI, and errors as problem details.

OpenAPI is at `/openapi.json`, its page at `/docs`; the page needs no network.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from pacer_controller import __version__
from pacer_controller.http_limits import BodyLimits
from pacer_controller.problems import MEDIA_TYPE, FieldError, Problem, did_you_mean, invalid
from pacer_controller.schemas import NAME_PATTERN, ClassSpec, FlowSpec
from pacer_controller.service import Service
from pacer_controller.store import StoreError

_LOG = logging.getLogger(__name__)

SwitchName = Annotated[str, Path(pattern=NAME_PATTERN, description="Name of the switch.")]
ClassName = Annotated[str, Path(pattern=NAME_PATTERN, description="Name of the class.")]
FlowName = Annotated[str, Path(pattern=NAME_PATTERN, description="Name of the flow.")]


class _View(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemError(BaseModel):
    """One field at fault."""

    field: str
    message: str
    expected: str


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:pacer:problem:invalid"])
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ProblemError] = []


class ClassView(_View):
    """A class as it is."""

    name: str
    index: int = Field(description="Class number on the switch.")
    mode: str
    rate: str | None
    rate_bps: int | None
    limit_bytes: int
    allowance_ns: int | None
    port: int | None
    state: str = Field(description="`applied`, `pending` (switch away) or `failed`.")
    state_reason: str | None


class ClassList(_View):
    """All classes of a switch."""

    classes: list[ClassView]


class FlowView(_View):
    """A flow as it is."""

    name: str
    match: dict[str, str | int]
    priority: int
    class_name: str | None = Field(alias="class")
    class_index: int = Field(description="Number of its class on the switch; 0: unclassified.")
    rate: str | None
    rate_bps: int | None
    limit_bytes: int | None
    allowance_ns: int | None
    meter: dict[str, Any] | None
    state: str = Field(description="`applied`, `pending` (switch away) or `failed`.")
    state_reason: str | None


class FlowList(_View):
    """All flows of a switch."""

    flows: list[FlowView]


class SwitchView(_View):
    """A switch as it is."""

    name: str
    address: str
    device_id: int
    target: str
    program: str
    state: str = Field(description="`connected`, `pending` (away) or `backup` (not primary).")
    last_error: str | None
    ports: list[dict[str, Any]] = Field(
        description="Ports as they are now. `up`: whether the port can carry frames; null while "
        "the switch is away, or where it cannot say."
    )


class SwitchList(_View):
    """All switches."""

    switches: list[SwitchView]


class Statistics(_View):
    """Counters and rates of a switch; null where the switch cannot say."""

    switch: str
    state: str
    now_ns: int | None = Field(description="The switch's clock.")
    interval_s: float | None = Field(description="Time over which rates were taken.")
    classes: list[dict[str, Any]]
    flows: list[dict[str, Any]]
    drops: dict[str, dict[str, int]] | None = Field(description="Drops of the program by cause.")
    ports: list[dict[str, Any]]


class Bandwidth(_View):
    """What gtrcnet measured at a port."""

    switch: str
    port: int
    bottleneck_bps: int | None
    bin_ns: int
    window_ns: int
    vb_max_bytes: int
    bins: dict[str, list[int]] = Field(description="Columns `start_ns`, `bytes`.")
    windows: dict[str, list[int]] = Field(
        description="Columns `start_ns`, `bytes`, `vb_max_bytes`."
    )


class Health(BaseModel):
    """That the service runs, and how many of its switches hold the desired state."""

    status: str
    version: str
    switches: int
    connected: int


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {s: {"description": HTTPStatus(s).phrase, "content": content} for s in statuses}


_READ = _responses(404, 409, 422)
_WRITE = _responses(400, 404, 409, 413, 415, 422, 502, 507)
_DELETE = _responses(404, 409, 422, 502)


def build(service: Service) -> FastAPI:
    """Make the application around a service; the service runs while the application does."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPIOffline(
        redoc_url=None,
        title="P4 PSPacer controller",
        version=__version__,
        description="Per-flow rates on pacing switches. Rates are written as `500Mbit`, "
        "`62.5MB/s`, `8kbit`, or an integer in bit/s. Errors are problem details (RFC 9457).",
        lifespan=lifespan,
        swagger_ui_parameters={"tryItOutEnabled": True},
    )
    app.add_middleware(BodyLimits)
    _add_error_handlers(app)
    _add_switches(app, service)
    _add_classes(app, service)
    _add_flows(app, service)
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    """Put the problem schema, which no route returns by name, into the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "ProblemDetails" not in schemas:
            template = "#/components/schemas/{model}"
            schema = ProblemDetails.model_json_schema(ref_template=template)
            schemas.update(schema.pop("$defs", {}))
            schemas["ProblemDetails"] = schema
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_switches(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    @app.get("/healthz", tags=["service"], summary="Whether the service runs")
    async def healthz() -> Health:
        drivers = [switch.driver for switch in service.switches.values()]
        connected = sum(driver.state.value == "connected" for driver in drivers)
        return Health(status="ok", version=__version__, switches=len(drivers), connected=connected)

    @app.get("/v1/switches", tags=["switches"], summary="All switches", response_model=SwitchList)
    async def switches() -> dict[str, Any]:
        return {"switches": await service.switch_views()}

    @app.get(
        "/v1/switches/{switch}",
        tags=["switches"],
        summary="A switch: state, program, ports",
        response_model=SwitchView,
        responses=_READ,
    )
    async def switch_(switch: SwitchName) -> dict[str, Any]:
        return await service.switch_view(switch)

    @app.get(
        "/v1/switches/{switch}/stats",
        tags=["statistics"],
        summary="Counters and rates",
        response_model=Statistics,
        responses=_READ | _responses(502),
    )
    async def stats(switch: SwitchName) -> dict[str, Any]:
        return await service.statistics(switch)

    @app.get(
        "/v1/switches/{switch}/bandwidth",
        tags=["statistics"],
        summary="Bandwidth in 500 us bins and 100 ms windows (gtrcnet)",
        response_model=Bandwidth,
        responses=_READ | _responses(502, 503),
    )
    async def bandwidth(
        switch: SwitchName,
        port: Annotated[int, Query(ge=0, le=3, description="Port the packets came in by.")],
        from_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, from.")] = None,
        to_ns: Annotated[int | None, Query(ge=0, description="Switch's clock, until.")] = None,
    ) -> dict[str, Any]:
        return await service.bandwidth(switch, port, from_ns, to_ns)


def _resources(plural: str) -> APIRouter:
    """Make the router of a kind of resource that every switch has."""
    return APIRouter(prefix=f"/v1/switches/{{switch}}/{plural}", tags=[plural])


def _put_responses(view: type[BaseModel], noun: str) -> dict[int | str, dict[str, Any]]:
    return _WRITE | {201: {"model": view, "description": f"The {noun} is new."}}


def _answer_put(response: Response, put: tuple[dict[str, Any], bool]) -> dict[str, Any]:
    """Return the resource, with the status that says whether it is new."""
    view, created = put
    response.status_code = HTTPStatus.CREATED if created else HTTPStatus.OK
    return view


def _add_classes(app: FastAPI, service: Service) -> None:
    router = _resources("classes")

    @router.get("", summary="All classes", response_model=ClassList, responses=_READ)
    async def classes(switch: SwitchName) -> dict[str, Any]:
        return {"classes": service.class_views(switch)}

    @router.get("/{class_name}", summary="A class", response_model=ClassView, responses=_READ)
    async def get_class(switch: SwitchName, class_name: ClassName) -> dict[str, Any]:
        return service.class_view(switch, class_name)

    @router.put(
        "/{class_name}",
        summary="Create or change a class: set a rate",
        response_model=ClassView,
        responses=_put_responses(ClassView, "class"),
    )
    async def put_class(
        switch: SwitchName, class_name: ClassName, spec: ClassSpec, response: Response
    ) -> dict[str, Any]:
        return _answer_put(response, await service.put_class(switch, class_name, spec))

    @router.delete(
        "/{class_name}",
        summary="Remove a class that no flow uses",
        status_code=204,
        responses=_DELETE,
    )
    async def delete_class(switch: SwitchName, class_name: ClassName) -> None:
        await service.delete_class(switch, class_name)

    app.include_router(router)


def _add_flows(app: FastAPI, service: Service) -> None:
    router = _resources("flows")

    @router.get("", summary="All flows", response_model=FlowList, responses=_READ)
    async def flows(switch: SwitchName) -> dict[str, Any]:
        return {"flows": service.flow_views(switch)}

    @router.get("/{flow}", summary="A flow", response_model=FlowView, responses=_READ)
    async def get_flow(switch: SwitchName, flow: FlowName) -> dict[str, Any]:
        return service.flow_view(switch, flow)

    @router.put(
        "/{flow}",
        summary="Create or change a flow: which packets, which class or rate",
        response_model=FlowView,
        responses=_put_responses(FlowView, "flow"),
    )
    async def put_flow(
        switch: SwitchName, flow: FlowName, spec: FlowSpec, response: Response
    ) -> dict[str, Any]:
        return _answer_put(response, await service.put_flow(switch, flow, spec))

    @router.delete("/{flow}", summary="Remove a flow", status_code=204, responses=_DELETE)
    async def delete_flow(switch: SwitchName, flow: FlowName) -> None:
        await service.delete_flow(switch, flow)

    app.include_router(router)


def _add_error_handlers(app: FastAPI) -> None:
    def respond(request: Request, problem: Problem) -> JSONResponse:
        return JSONResponse(
            problem.as_dict(request.url.path), status_code=problem.status, media_type=MEDIA_TYPE
        )

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> JSONResponse:
        return respond(request, problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        resource = _resource(request.path_params)
        return respond(request, invalid(resource, _field_errors(request, error.errors())))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        kind = phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}"
        response = respond(request, Problem(error.status_code, kind, phrase, detail))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(StoreError)
    async def on_store(request: Request, error: StoreError) -> JSONResponse:
        _LOG.error("%s", error)
        return respond(
            request,
            Problem(503, "not-stored", "The state could not be stored", "nothing was changed"),
        )

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> JSONResponse:
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return respond(
            request,
            Problem(500, "internal", "The controller has a fault", "see its log"),
        )


def _resource(path_params: Mapping[str, Any]) -> str:
    """Name the resource of a request for an error message."""
    switch = path_params.get("switch")
    for parameter, kind in (("class_name", "class"), ("flow", "flow")):
        if parameter in path_params:
            return f"{kind} {path_params[parameter]!r} on switch {switch!r}"
    return f"switch {switch!r}" if switch is not None else "request"


def _field_errors(request: Request, errors: Sequence[Any]) -> list[FieldError]:
    """Translate pydantic's errors; at most 20, the rest would not be read."""
    found = []
    for error in errors[:20]:
        source, *location = error["loc"]
        path = ".".join(str(part) for part in location) or str(source)
        context = error.get("ctx", {})
        if error["type"] == "pacer_value":
            found.append(FieldError(path, context["message"], context["expected"]))
            continue
        if error["type"] == "extra_forbidden":
            known = _known_fields(request, location[:-1])
            guess = did_you_mean(str(location[-1]), known)
            message, expected = f"unknown field{guess}", "one of " + ", ".join(known)
        elif error["type"] == "missing":
            message, expected = "is needed but not there", "a value"
        else:
            message, expected = _wrong(error)
        found.append(FieldError(path, message, expected))
    return found


def _wrong(error: Mapping[str, Any]) -> tuple[str, str]:
    """Say what is wrong with a value, and what would be right."""
    shown = ascii(error.get("input"))
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    limits = error.get("ctx", {})
    expectations = {
        "int_type": "an integer",
        "int_parsing": "an integer",
        "bool_type": "true or false",
        "string_type": "a string",
        "model_attributes_type": "a JSON object",
        "model_type": "a JSON object",
        "greater_than_equal": f"at least {limits.get('ge')}",
        "less_than_equal": f"at most {limits.get('le')}",
        "literal_error": str(limits.get("expected")),
        "string_pattern_mismatch": "1 to 64 of A-Z a-z 0-9 . _ -, starting with a letter or digit",
    }
    expected = expectations.get(error["type"], str(error.get("msg")))
    return f"{shown} is not allowed", expected


def _known_fields(request: Request, path: Sequence[Any]) -> list[str]:
    """Return the field names of the object at a path within the request's body."""
    model: Any = FlowSpec if "flow" in request.path_params else ClassSpec
    for part in path:
        info = model.model_fields.get(part)
        options = [info.annotation, *getattr(info.annotation, "__args__", ())] if info else []
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not nested:
            return []
        model = nested[0]
    return [info.alias or name for name, info in model.model_fields.items()]

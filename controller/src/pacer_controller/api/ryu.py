"""The paths `/qos/...` and `/v1.0/conf/switches/...`, as Ryu documents them."""

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from pacer_controller.api.common import WHO, read_origin, responses
from pacer_controller.problems import Problem
from pacer_controller.ryu.switch import RyuSwitches
from pacer_controller.ryu.translate import RyuError
from pacer_controller.service import Service

_RESPONSES = responses(400, 401, 404, 409, 413, 422, 502, 503, 507)


async def _body(request: Request) -> Any:
    """Return the JSON in the body of any Content-Type: `curl -d` sends that of a form."""
    content = await request.body()
    return json.loads(content) if content else {}


def add_ryu(app: FastAPI, service: Service) -> None:
    """Add Ryu's paths."""
    ryu = RyuSwitches(service)
    calls = {
        ("GET", "/qos/queue/{switchid}"): ryu.get_queue,
        ("POST", "/qos/queue/{switchid}"): ryu.set_queue,
        ("DELETE", "/qos/queue/{switchid}"): ryu.delete_queue,
        ("GET", "/qos/queue/status/{switchid}"): ryu.get_status,
        ("GET", "/qos/rules/{switchid}"): ryu.get_rules,
        ("POST", "/qos/rules/{switchid}"): ryu.set_rule,
        ("DELETE", "/qos/rules/{switchid}"): ryu.delete_rule,
        ("GET", "/qos/rules/{switchid}/{vlanid}"): ryu.get_rules,
        ("POST", "/qos/rules/{switchid}/{vlanid}"): ryu.set_rule,
        ("DELETE", "/qos/rules/{switchid}/{vlanid}"): ryu.delete_rule,
        ("GET", "/qos/meter/{switchid}"): ryu.get_meter,
        ("POST", "/qos/meter/{switchid}"): ryu.set_meter,
        ("DELETE", "/qos/meter/{switchid}"): ryu.delete_meter,
    }

    def add(method: str, path: str, call: Any) -> None:
        has_vlan = "{vlanid}" in path

        async def of_switch(request: Request, switchid: str) -> list[dict[str, Any]]:
            return await answer(request, switchid, "0")

        async def of_vlan(request: Request, switchid: str, vlanid: str) -> list[dict[str, Any]]:
            return await answer(request, switchid, vlanid)

        async def answer(request: Request, switchid: str, vlanid: str) -> list[dict[str, Any]]:
            origin = read_origin(request)
            try:
                body = await _body(request)
                vlan = ryu.vlan(vlanid)
                found = ryu.switches(switchid)
                return [
                    {
                        "switch_id": ryu.dpid(one),
                        "command_result": await call(one, vlan, body, origin),
                    }
                    for one in found
                ]
            except ValueError as error:
                raise RyuError(str(error)) from None
            except Problem as problem:
                # Ryu answers 400 to every wrong request.
                if problem.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    raise RyuError(problem.detail) from None
                raise

        app.add_api_route(
            path,
            of_vlan if has_vlan else of_switch,
            methods=[method],
            tags=["Ryu compatibility"],
            summary=str(call.__doc__).partition("\n")[0],
            operation_id=f"ryu_{call.__name__}{'_of_vlan' if has_vlan else ''}",
            responses=_RESPONSES,
            openapi_extra=WHO if method == "GET" else WHO | _JSON_BODY,
        )

    for (method, path), call in calls.items():
        add(method, path, call)

    address = "/v1.0/conf/switches/{switchid}/ovsdb_addr"

    @app.put(
        address,
        tags=["Ryu compatibility"],
        status_code=201,
        responses=_RESPONSES,
        openapi_extra=_JSON_BODY,
    )
    async def put_address(request: Request, switchid: str) -> Response:
        """Say where the switch's database is: known already here, so only checked."""
        try:
            ryu.check_address(await _body(request))
            ryu.switches(switchid)
        except ValueError as error:
            raise RyuError(str(error)) from None
        return Response(status_code=201)

    @app.get(address, tags=["Ryu compatibility"], responses=_RESPONSES)
    async def get_address(switchid: str) -> JSONResponse:
        """Return where the switch's database is."""
        try:
            (found,) = ryu.switches(switchid)
        except ValueError as error:
            raise RyuError(str(error)) from None
        return JSONResponse(found.settings.get("ovsdb"))


_JSON_BODY = {"requestBody": {"content": {"application/json": {"schema": {}}}, "required": False}}

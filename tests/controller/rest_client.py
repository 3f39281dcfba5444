"""Calls the application in this process; its switches do not answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from controller_harness import COMPILED, free_port
from pacer_controller.api import build
from pacer_controller.config import parse_switch
from pacer_controller.service import Service
from pacer_controller.stores import SqliteStore
from pacer_controller.users import Users


class Client:
    """Calls the application in this process; its switches do not answer."""

    def __init__(self, state: str = ":memory:", users: Users | None = None) -> None:
        address = f"127.0.0.1:{free_port()}"
        other = f"127.0.0.1:{free_port()}"
        self.store = SqliteStore(state)
        self.service = Service(
            [
                parse_switch(f"s1={address}"),
                parse_switch(f"wan={other},program=gtrcnet,wire=1:2,bottleneck=500mbit"),
            ],
            COMPILED,
            self.store,
        )
        self.app = build(self.service, users)

    def call(
        self, method: str, path: str, body: Any = None, content: bytes | None = None, **headers: str
    ) -> httpx.Response:
        """Make one request."""
        if body is not None:
            content = json.dumps(body).encode()
        kind = {"content-type": "application/json"} if content is not None else {}
        given = kind | {name.replace("_", "-"): value for name, value in headers.items()}

        @asynccontextmanager
        async def client() -> AsyncIterator[httpx.AsyncClient]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                yield http

        async def run() -> httpx.Response:
            async with client() as http:
                response = await http.request(method, path, content=content, headers=given)
            await self.service.events.flush()
            return response

        return asyncio.run(run())

    def put(self, path: str, body: Any) -> httpx.Response:
        """PUT a JSON body."""
        return self.call("PUT", path, body)


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem details of a response, having checked their form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["instance"] == response.request.url.path
    assert body.keys() >= {"type", "title", "detail"}
    for error in body.get("errors", []):
        assert error.keys() == {"field", "message", "expected"}
        assert all(error.values())
    return dict(body)

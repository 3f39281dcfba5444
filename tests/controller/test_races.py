"""Requests that meet at one switch, in an order of the test's making."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from controller_harness import free_port
from pacer_controller.rows import Rows
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.southbound import Refusal, SwitchRefusedError
from rest_client import Client, problem

Call = tuple[str, str, Any]

CLASS = "/v1/switches/away/classes/video"
SWITCH = "/v1/switches/away"


def elsewhere() -> dict[str, Any]:
    return {"kind": "p4runtime", "address": f"127.0.0.1:{free_port()}"}


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(100):
        await asyncio.sleep(0)


def together(client: Client, *calls: Call, holding: ManagedSwitch | None) -> list[httpx.Response]:
    """Make requests that all wait for a switch's lock, in this order (None: for nothing)."""

    async def run() -> list[httpx.Response]:
        lock = holding.lock if holding is not None else asyncio.Lock()
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

            async def call(method: str, path: str, body: Any) -> httpx.Response:
                kind = {"content-type": "application/json"} if body is not None else {}
                content = json.dumps(body).encode() if body is not None else None
                return await http.request(method, path, content=content, headers=kind)

            async with lock:
                tasks = []
                for one in calls:
                    tasks.append(asyncio.create_task(call(*one)))
                    if holding is not None:
                        await turns()
            return list(await asyncio.gather(*tasks))

    return asyncio.run(run())


def away(client: Client) -> ManagedSwitch:
    assert client.put(SWITCH, elsewhere()).status_code == 201
    return client.service.switch("away")


def test_a_class_put_while_its_switch_moves_is_at_the_new_place(client: Client) -> None:
    old = away(client)
    moved, put = together(
        client,
        ("PUT", SWITCH, elsewhere()),
        ("PUT", CLASS, {"rate": "1Mbit"}),
        holding=old,
    )
    assert (moved.status_code, put.status_code) == (200, 201)
    new = client.service.switch("away")
    assert new is not old
    assert [row.owner for row in new.wanted.values()] == ["class 'video'"]


@pytest.mark.parametrize("path", [CLASS, f"{SWITCH}/state"])
def test_what_is_put_while_its_switch_leaves_leaves_nothing(client: Client, path: str) -> None:
    old = away(client)
    spec = {"rate": "1Mbit"}
    gone, put = together(
        client,
        ("DELETE", SWITCH, None),
        ("PUT", path, spec if path == CLASS else {"classes": {"video": spec}}),
        holding=old,
    )
    assert gone.status_code == 204
    problem(put, 404)
    client.store.reload()
    assert not list(client.store.desired("away").all())


def test_a_switch_is_deleted_once(client: Client) -> None:
    delete = ("DELETE", SWITCH, None)
    first, second = together(client, delete, delete, holding=away(client))
    assert first.status_code == 204
    problem(second, 404)


def test_two_new_switches_of_one_device(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def replicated(_: int) -> None:
        await turns()

    # As a follower does, which has a change on disk before it is made.
    monkeypatch.setattr(client.service.committer.replication, "replicated", replicated)
    client.service.switches.clear()
    device = elsewhere()
    calls = [("PUT", f"/v1/switches/{name}", device) for name in ("a", "b")]
    answers = together(client, *calls, holding=None)
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert len(client.service.switches) == 1


def test_each_put_is_answered_with_what_it_put(client: Client) -> None:
    answers = together(
        client,
        *(("PUT", CLASS, {"rate": rate}) for rate in ("1Mbit", "2Mbit", "2Mbit")),
        holding=away(client),
    )
    assert [answer.json()["rate_bps"] for answer in answers] == [10**6, 2 * 10**6, 2 * 10**6]
    assert len({answer.headers["etag"] for answer in answers}) == 2
    assert [f'"{answer.json()["revision"]}"' for answer in answers] == [
        answer.headers["etag"] for answer in answers
    ]


def test_a_put_flow_is_answered_though_its_class_goes_right_after(client: Client) -> None:
    found = away(client)
    assert client.put(CLASS, {"rate": "1Mbit"}).status_code == 201
    flow = f"{SWITCH}/flows/one"
    put, *gone = together(
        client,
        ("PUT", flow, {"match": {"protocol": "udp"}, "class": "video"}),
        ("DELETE", flow, None),
        ("DELETE", CLASS, None),
        holding=found,
    )
    assert put.status_code == 201, put.text
    assert put.json()["class_index"] == 1
    assert [answer.status_code for answer in gone] == [204, 204]


class Refusing:
    """Takes what a driver is to apply, and refuses whatever belongs to one resource."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.writes: list[list[str]] = []

    async def apply(self, _: Rows, after: Rows, **__: Any) -> bool:
        """Refuse all of it for one."""
        self.writes.append([row.owner for row in after.values()])
        wrong = [row for row in after.values() if row.owner == self.owner]
        if wrong:
            raise SwitchRefusedError([Refusal(wrong[0], "no", table_full=False)])
        return True


def test_a_refused_batch_is_made_one_by_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)
    switch = Refusing("class 'two'")
    monkeypatch.setattr(found.driver, "apply", switch.apply)
    names = ["one", "two", "three"]
    puts = [("PUT", f"{SWITCH}/classes/{name}", {"rate": "1Mbit"}) for name in names]
    answers = together(client, *puts, holding=found)
    assert [answer.status_code for answer in answers] == [201, 502, 201]
    owners = [f"class '{name}'" for name in names]
    assert switch.writes == [owners, *([owner] for owner in owners)]
    assert sorted(found.desired.classes) == ["one", "three"]
    assert sorted(row.owner for row in found.wanted.values()) == sorted([owners[0], owners[2]])
    client.store.reload()
    assert sorted(client.store.desired("away").classes) == ["one", "three"]


def test_no_plan_rests_on_what_the_switch_refuses(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)
    switch = Refusing("class 'video'")
    monkeypatch.setattr(found.driver, "apply", switch.apply)
    flow = {"match": {"protocol": "udp"}, "class": "video"}
    refused, unknown, created = together(
        client,
        ("PUT", CLASS, {"rate": "1Mbit"}),
        ("PUT", f"{SWITCH}/flows/one", flow),
        ("PUT", f"{SWITCH}/classes/other", {"rate": "1Mbit"}),
        holding=found,
    )
    problem(refused, 502)
    assert "no class 'video'" in problem(unknown, 422)["detail"]
    assert created.status_code == 201
    assert list(found.desired.classes) == ["other"]
    assert not found.desired.flows


def test_a_change_broken_off_at_the_switch_leaves_nothing_and_nobody_waiting(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)

    async def run() -> list[Any]:
        at_switch = asyncio.Event()

        async def apply(*_: Any, fresh: Any) -> bool:
            at_switch.set()
            await asyncio.Event().wait()
            raise AssertionError(fresh)

        def put(name: str) -> Any:
            spec = ClassSpec(rate=10**6)
            return asyncio.create_task(client.service.put("away", "class", name, spec))

        with monkeypatch.context() as patched:
            patched.setattr(found.driver, "apply", apply)
            async with found.lock:
                tasks = [put("first"), put("second")]
                await turns()
            await at_switch.wait()
            assert len(found.wanted) == 2
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert second[0]["name"] == "second"
    assert [row.owner for row in found.wanted.values()] == ["class 'second'"]
    assert list(found.desired.classes) == ["second"]
    client.store.reload()
    assert list(client.store.desired("away").classes) == ["second"]

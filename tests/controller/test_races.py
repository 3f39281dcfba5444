"""Requests that meet at one switch, in an order of the test's making."""

import asyncio
import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from pacer_controller.records import PLURALS, index_of
from pacer_controller.rows import Rows
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.change import Change
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.southbound import Refusal, SwitchRefusedError
from pacer_controller.stores import SqliteStore, StaleError, StoreError
from rest_client import Client, problem

Call = tuple[str, str, Any]

CLASS = "/v1/switches/away/classes/video"
SWITCH = "/v1/switches/away"


# Privileged ports, since a free one could be that of a switch of the test that does not listen yet.
_PORTS = itertools.count(1)


def elsewhere() -> dict[str, Any]:
    return {"kind": "p4runtime", "address": f"127.0.0.1:{next(_PORTS)}"}


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
    asyncio.run(client.store.load())
    assert not list(client.store.desired("away").all())


def test_a_switch_is_deleted_once(client: Client) -> None:
    delete = ("DELETE", SWITCH, None)
    first, second = together(client, delete, delete, holding=away(client))
    assert first.status_code == 204
    problem(second, 404)


def test_two_new_switches_of_one_device(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    write = client.store.write

    async def slow(*given: Any, **options: Any) -> Any:
        await turns()
        return await write(*given, **options)

    monkeypatch.setattr(client.store, "write", slow)
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


def test_rules_of_ryu_added_at_the_same_time_are_all_there(client: Client) -> None:
    found = away(client)
    queue = {"actions": {"queue": "1"}}
    rules = [{"match": {"ip_dscp": dscp}, **queue} for dscp in ("26", "34")]
    posts = [("POST", "/qos/rules/away", rule) for rule in rules]
    answers = together(client, *posts, holding=found)
    said = [answer.json()[0]["command_result"][0]["details"] for answer in answers]
    assert said == [f"QoS added. : qos_id={number}" for number in (1, 2)]
    assert sorted(found.desired.flows) == ["qos-0-1", "qos-0-2"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/qos/queue/away", {"queues": [{"max_rate": "500000"}]}),
        ("DELETE", "/qos/queue/away", None),
        ("POST", "/qos/rules/away", {"match": {"ip_dscp": "26"}, "actions": {"queue": "1"}}),
        ("DELETE", "/qos/rules/away", {"qos_id": "all"}),
    ],
)
def test_ryu_keeps_what_others_change_meanwhile(
    client: Client, method: str, path: str, body: Any
) -> None:
    found = away(client)
    rule = {"match": {"ip_dscp": "34"}, "actions": {"queue": "0"}}
    assert client.call("POST", "/qos/rules/away", rule).status_code == 200
    # Each event loop needs a lock of its own.
    found.lock = asyncio.Lock()
    put, of_ryu = together(
        client, ("PUT", CLASS, {"rate": "1Mbit"}), (method, path, body), holding=found
    )
    assert (put.status_code, of_ryu.status_code) == (201, 200)
    assert "video" in found.desired.classes


def test_the_etag_of_the_state_is_not_newer_than_its_content(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)
    write = client.store.write

    async def run() -> httpx.Response:
        stored, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*given: Any, **options: Any) -> Any:
            written = await write(*given, **options)
            stored.set()
            await go_on.wait()
            return written

        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            with monkeypatch.context() as patched:
                patched.setattr(client.store, "write", slow)
                put = asyncio.create_task(http.put(CLASS, json={"rate": "1Mbit"}))
                await stored.wait()
                seen = await http.get("/v1/state")
                go_on.set()
                assert (await put).status_code == 201
            tag = {"if-match": seen.headers["etag"]}
            return await http.put("/v1/state", json=seen.json(), headers=tag)

    problem(asyncio.run(run()), 412)
    assert "video" in found.desired.classes


def test_no_answer_has_a_revision_that_memory_has_not(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of etcd's keys may already have later writes of other controllers."""
    away(client)
    monkeypatch.setattr(SqliteStore, "revision", property(lambda _: 1000))
    path = f"{SWITCH}/state"
    put = client.put(path, {"classes": {"video": {"rate": "1Mbit"}}})
    whole = client.call("GET", "/v1/state")
    again = client.call("PUT", "/v1/state", whole.json(), if_match=whole.headers["etag"])
    of_switch = client.put(path, {"classes": {"video": {"rate": "2Mbit"}}})
    for answer in (put, again, of_switch):
        assert answer.headers["etag"] == f'"{answer.json()["revision"]}"'
    tags = [int(one.headers["etag"].strip('"')) for one in (put, whole, again, of_switch)]
    assert tags == [tags[0]] * 3 + [tags[0] + 1]
    assert tags[-1] < 1000


class Refusing:
    """A driver that applies changes, and refuses all entries of one resource."""

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
    asyncio.run(client.store.load())
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


@pytest.mark.parametrize("kind", ["class", "flow"])
def test_an_index_that_a_refused_delete_keeps_is_nobody_elses(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found = away(client)

    def put(name: str, port: int) -> Call:
        spec: dict[str, Any] = {"rate": "1Mbit"}
        if kind == "flow":
            spec["match"] = {"protocol": "udp", "dst_port": 1000 + port}
        return "PUT", f"{SWITCH}/{PLURALS[kind]}/{name}", spec

    def indices() -> dict[str, int | None]:
        return {name: index_of(one) for name, one in found.desired.resources[kind].items()}

    limits = replace(found.driver.capabilities, classes=3)
    monkeypatch.setattr(found.driver, "capabilities", limits)
    for port, name in enumerate("abc"):
        assert client.put(*put(name, port)[1:]).status_code == 201

    async def apply(before: Rows, after: Rows, **_: Any) -> bool:
        gone = [row for key, row in before.items() if key not in after]
        if gone:
            raise SwitchRefusedError([Refusal(gone[0], "no", table_full=False)])
        return True

    delete = ("DELETE", put("b", 1)[1], None)
    with monkeypatch.context() as patched:
        patched.setattr(found.driver, "apply", apply)
        refused, full = together(client, delete, put("d", 3), holding=found)
    problem(refused, 502)
    assert "all are in use" in problem(full, 409)["detail"]
    assert indices() == {"a": 1, "b": 2, "c": 3}
    assert found.desired.used == {1, 2, 3}

    # Each event loop needs a lock of its own.
    found.lock = asyncio.Lock()
    deleted, created = together(client, delete, put("d", 3), holding=found)
    assert (deleted.status_code, created.status_code) == (204, 201)
    assert indices() == {"a": 1, "c": 3, "d": 2}


def test_an_index_rests_for_the_batch_that_frees_it(client: Client) -> None:
    found = away(client)
    for name in "ab":
        assert client.put(f"{SWITCH}/classes/{name}", {"rate": "1Mbit"}).status_code == 201
    # As if a whole round had been taken: the index that is freed would be the next.
    found.desired.indices._next = 2
    deleted, created = together(
        client,
        ("DELETE", f"{SWITCH}/classes/b", None),
        ("PUT", f"{SWITCH}/classes/c", {"rate": "1Mbit"}),
        holding=found,
    )
    assert (deleted.status_code, created.status_code) == (204, 201)
    assert found.desired.used == {1, 3}


def test_an_error_of_the_controller_concerns_one_request_only(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)
    touches = Change.touches

    def fails(change: Change) -> set[tuple[str, str]]:
        if ("class", "wrong") in touches(change):
            raise RuntimeError("wrong")
        return touches(change)

    async def run() -> list[Any]:
        async with found.lock:
            put = partial(client.service.put, "away", "class", spec=ClassSpec(rate=10**6))
            tasks = [asyncio.create_task(put(name=name)) for name in ("one", "wrong", "two")]
            await turns()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    with monkeypatch.context() as patched:
        patched.setattr(Change, "touches", fails)
        results = [type(result) for result in asyncio.run(run())]
    assert results == [tuple, RuntimeError, tuple]
    assert sorted(found.desired.classes) == ["one", "two"]
    # Each event loop needs a lock of its own.
    found.lock = asyncio.Lock()
    assert client.put(CLASS, {"rate": "1Mbit"}).status_code == 201


@pytest.mark.parametrize("names", [["first"], ["first", "second"]])
def test_a_cancelled_request_takes_back_its_own_change_only(
    client: Client, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    found = away(client)

    async def run() -> list[Any]:
        at_switch, go_on = asyncio.Event(), asyncio.Event()

        async def apply(*_: Any, **__: Any) -> bool:
            at_switch.set()
            await go_on.wait()
            return True

        put = partial(client.service.put, "away", "class", spec=ClassSpec(rate=10**6))
        with monkeypatch.context() as patched:
            patched.setattr(found.driver, "apply", apply)
            async with found.lock:
                tasks = [asyncio.create_task(put(name=name)) for name in names]
                await turns()
            await at_switch.wait()
            tasks[0].cancel()
            await turns()
            go_on.set()
            await asyncio.wait(tasks)
            async with found.lock:
                return list(await asyncio.gather(*tasks, return_exceptions=True))

    first, *others = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert [view["name"] for view, _ in others] == names[1:]
    # With others in the batch it is made all the same.
    made = names if others else []
    assert list(found.desired.classes) == made
    assert [row.owner for row in found.wanted.values()] == [f"class '{name}'" for name in made]
    asyncio.run(client.store.load())
    assert list(client.store.desired("away").classes) == made


def test_a_cancel_does_not_interrupt_the_roll_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = away(client)
    take_back = client.store.take_back
    steps: list[str] = []

    async def run() -> bool:
        taking_back, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*given: Any, **options: Any) -> Any:
            steps.append("begun")
            taking_back.set()
            await go_on.wait()
            back = await take_back(*given, **options)
            steps.append("done")
            return back

        monkeypatch.setattr(client.store, "take_back", slow)
        monkeypatch.setattr(found.driver, "apply", Refusing("class 'video'").apply)
        put = asyncio.create_task(
            client.service.put("away", "class", "video", ClassSpec(rate=10**6))
        )
        await taking_back.wait()
        put.cancel()
        await turns()
        assert found.lock.locked()
        go_on.set()
        await asyncio.wait([put])
        async with found.lock:
            return put.cancelled()

    assert asyncio.run(run())
    assert steps == ["begun", "done"]
    assert not found.desired.classes
    assert not found.desired.used


@pytest.mark.parametrize("shared", [False, True])
def test_a_refused_change_that_stays_in_the_store_is_not_said_to_be_undone(
    client: Client, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    found = away(client)
    monkeypatch.setattr(found.driver, "apply", Refusing("class 'two'").apply)
    monkeypatch.setattr(SqliteStore, "shared", shared)
    write = client.store._write

    def fails(*given: Any) -> Any:
        taken_back = len(given) > 4
        if taken_back:
            raise StaleError("stale") if shared else StoreError("fails")
        return write(*given)

    monkeypatch.setattr(client.store, "_write", fails)
    puts = [("PUT", f"{SWITCH}/classes/{name}", {"rate": "1Mbit"}) for name in ("one", "two")]
    for answer in together(client, *puts, holding=found):
        said = problem(answer, 503)
        assert said["type"] == "urn:pacer:problem:uncertain"
        assert "switch 'away'" in said["detail"]
        assert "nothing was changed" not in said["detail"]
    # Memory no longer has what the file has: the file is read again at the next start.
    assert client.store.broken == ("stale" if shared else "fails")

"""Users of the REST interface: tokens, roles, and the authors of changes."""

import contextlib
import json
import threading
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from secrets_of_users import as_root_beside_a_folder_of
from test_operations import CLASS, TOKEN, messages, nobody, private

from controller_harness import DEADLINE_S, ROOT, Controller, eventually
from pacer_controller import server, users
from pacer_controller.api.roles import RULES, allows, enough, needed
from pacer_controller.api.streams import ONE_USER_STREAMS
from pacer_controller.cli import render
from pacer_controller.cli.main import main
from pacer_controller.config import ConfigError
from pacer_controller.service.core import DENIED_BURST
from pacer_controller.users import ROLES, Role, Users
from rest_client import Client, problem

Start = Callable[..., Controller]

TODAY = date(2026, 1, 31)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def command(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    status = server.main(["token", *given])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_tokens_are_added_listed_and_revoked(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = ("--tokens", str(path))
    status, token, _ = command(capsys, "add", "alice", "--role", "rates", *of)
    assert status == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert token.strip() not in path.read_text()
    found = Users(path=path).find(token.strip().encode())
    assert found == users.User("alice", "rates")
    assert command(capsys, "add", "bob", "--role", "read", *of)[0] == 0
    listed = command(capsys, "list", *of)[1].splitlines()
    assert [line.split()[:2] for line in listed] == [["alice", "rates"], ["bob", "read"]]
    assert "revoke it first" in command(capsys, "add", "alice", "--role", "all", *of)[2]
    assert command(capsys, "revoke", "alice", *of)[0] == 0
    assert Users(path=path).find(token.strip().encode()) is None
    status, _, said = command(capsys, "revoke", "alice", *of)
    assert (status, "there are: bob" in said) == (2, True)


@pytest.mark.parametrize("name", ["", "a b", "token", "a/b", "x" * 65, "alice\n"])
def test_names_that_are_none(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="user"):
        users.add(path, name, "read", TODAY)
    assert not path.exists()


def test_root_gives_tokens_to_the_users_of_a_controller_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    owner = as_root_beside_a_folder_of(folder, monkeypatch)
    given = ["--tokens", str(folder / "tokens.json")]
    for name in ("alice", "bob"):
        status, _, told = command(capsys, "add", name, "--role", "read", *given)
        assert status == 0, told
    assert (folder / "tokens.json").stat().st_uid == owner
    status, listed, told = command(capsys, "list", *given)
    assert status == 0, told
    assert "alice" in listed
    assert command(capsys, "revoke", "alice", *given)[0] == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    users.add(path, "alice", "read", TODAY)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        Users(path=path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"users": {"alice": {"role": "root", "token_sha256": "' + "0" * 64 + '", "added": ""}}}',
        '{"users": {"alice": {"role": "read", "token_sha256": "secret", "added": ""}}}',
        '{"users": {"token": {"role": "read", "token_sha256": "' + "0" * 64 + '", "added": ""}}}',
    ],
)
def test_a_file_of_something_else_is_refused(path: Path, content: str) -> None:
    private(path, content)
    with pytest.raises(ConfigError, match="--tokens"):
        Users(path=path)


def test_a_path_that_cannot_be_read_is_an_error_and_not_no_users(path: Path) -> None:
    users.add(path, "alice", "read", TODAY)
    with pytest.raises(ConfigError, match="--tokens"):
        users.read(path / "below")
    # As a folder that the controller may not look into, but also for root.
    with pytest.raises(ConfigError, match="--tokens"):
        users.read(path.with_name("x" * 300))


def test_a_changed_file_is_read_again(path: Path) -> None:
    known = Users(path=path)
    assert known.required
    assert known.refresh() is None
    first = users.add(path, "alice", "read", TODAY)
    changes = known.refresh()
    assert changes is not None
    assert changes.added == ["alice"]
    assert known.refresh() is None
    users.revoke(path, "alice")
    users.add(path, "alice", "read", TODAY)
    changes = known.refresh()
    assert changes is not None
    assert changes.changed == ["alice"]
    assert known.find(first.encode()) is None
    path.chmod(0o644)
    with pytest.raises(ConfigError):
        known.refresh()
    path.unlink()
    changes = known.refresh()
    assert changes is not None
    assert changes.revoked == ["alice"]


# ---- roles ----


@pytest.fixture
def tokens(path: Path) -> dict[str, str]:
    return {role: users.add(path, f"{role}er", role, TODAY) for role in ROLES}


@pytest.fixture
def guarded(path: Path, tokens: dict[str, str]) -> Any:
    assert tokens
    made = Client(users=Users(TOKEN, path))
    yield made
    made.store.shut()


def asked(client: Client, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
    return client.call(method, path, body, authorization=f"Bearer {token}")


def test_what_each_role_may(guarded: Client, tokens: dict[str, str]) -> None:
    rate, port, away = {"rate": "1Mbit"}, {"delay_ns": 0}, "/v1/switches/s9"
    address = {"kind": "p4runtime", "address": "127.0.0.1:1"}
    allowed: dict[tuple[str, str], Any] = {
        ("GET", "/v1/state"): (None, ROLES),
        ("GET", "/metrics"): (None, ROLES),
        ("PUT", CLASS): (rate, ("rates", "all")),
        ("PUT", "/v1/switches/s1/meters/gold"): ({"cir": "1Mbit"}, ("rates", "all")),
        ("PUT", "/v1/switches/s1/flows/web"): (rate | {"match": {"dscp": 1}}, ("rates", "all")),
        ("POST", "/qos/rules/all"): ({}, ("rates", "all")),
        ("DELETE", CLASS): (None, ("rates", "all")),
        ("PUT", "/v1/switches/s1/ports/1"): (port, ("all",)),
        ("PUT", "/v1/switches/s1/state"): ({"classes": {}}, ("all",)),
        ("PUT", "/v1/state"): ({"switches": {}}, ("all",)),
        ("POST", "/qos/queue/all"): ({}, ("all",)),
        ("PUT", away): (address, ("all",)),
        ("DELETE", away): (None, ("all",)),
        # Unknown requests are not allowed either.
        ("PATCH", CLASS): ({}, ("all",)),
    }
    for (method, place), (body, roles) in allowed.items():
        for role, token in tokens.items():
            answer = asked(guarded, token, method, place, body)
            assert (answer.status_code != 403) == (role in roles), (role, method, place)
            assert answer.status_code != 401
        assert asked(guarded, TOKEN, method, place, body).status_code not in (401, 403)


def test_requests_that_change_something_or_trace_need_more_than_read(client: Client) -> None:
    for place, methods in client.app.openapi()["paths"].items():
        for method, operation in methods.items():
            role = needed(method.upper(), place)
            reads = method == "get" and not place.endswith("/traces")
            reads = reads or place.endswith("/dry-run")
            assert (role == "read") == reads, (method, place)
            assert operation.get("x-pacer-role", "read") == role
            if "security" in operation:
                assert operation["responses"].keys() >= {"401", "403"}, (method, place)


def test_the_document_shows_the_table() -> None:
    shown = (ROOT / "docs" / "security.md").read_text()
    for rule in RULES:
        assert f"| `{rule.role}` | {rule.text} |" in shown
    assert [enough(role) for role in ROLES] == [ROLES, ("rates", "all"), ("all",)]
    assert not allows("rates", "all")


def test_the_answer_says_what_would_be_right(guarded: Client, tokens: dict[str, str]) -> None:
    said = problem(guarded.put(CLASS, {"rate": "1Mbit"}), 401)
    assert "pacer-controller token add" in said["detail"]
    assert "the request has no token" in said["detail"]
    said = problem(asked(guarded, "guess", "PUT", CLASS, {"rate": "1Mbit"}), 401)
    assert "has a token that no user has" in said["detail"]
    said = problem(asked(guarded, tokens["read"], "PUT", CLASS, {"rate": "1Mbit"}), 403)
    assert said["type"] == "urn:pacer:problem:role"
    assert "'reader' has the role read" in said["detail"]
    assert said["detail"].endswith("needs rates or all")
    counts = asked(guarded, tokens["read"], "GET", "/v1/controller").json()["refusals"]
    assert (counts["no-token"], counts["role"]) == (2, 1)


def test_the_command_names_the_variable_of_the_token(
    start_controller: Start,
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = start_controller(*nobody(), "--tokens", str(path)).url
    monkeypatch.delenv("PACER_TOKEN", raising=False)
    assert main(["--url", url, "show"]) == 1
    assert "wants a token: set PACER_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("PACER_TOKEN", "guess")
    assert main(["--url", url, "show"]) == 1
    assert "knows no user with the token in PACER_TOKEN" in capsys.readouterr().err


def test_the_body_of_a_request_that_is_not_allowed_is_not_read(
    guarded: Client, tokens: dict[str, str]
) -> None:
    refused = guarded.call(
        "PUT", CLASS, content=b"{" * 2_000_000, authorization=f"Bearer {tokens['read']}"
    )
    problem(refused, 403)


def test_events_say_who_did_it(guarded: Client, tokens: dict[str, str]) -> None:
    asked(guarded, tokens["rates"], "PUT", CLASS, {"rate": "1Mbit"})
    guarded.call(
        "PUT", CLASS, {"rate": "2Mbit"}, authorization=f"Bearer {TOKEN}", x_pacer_actor="cron"
    )
    asked(guarded, tokens["read"], "DELETE", CLASS)
    events = asked(guarded, tokens["read"], "GET", "/v1/events").json()["events"]
    who = [(one["kind"], one["data"]["user"], one["data"].get("actor")) for one in events]
    assert who == [
        ("change", "rateser", None),
        ("change", "token", "cron"),
        ("denied", "reader", None),
    ]


def test_guessing_displaces_no_events_of_changes(guarded: Client, tokens: dict[str, str]) -> None:
    asked(guarded, tokens["rates"], "PUT", CLASS, {"rate": "1Mbit"})
    guesses = 5 * DENIED_BURST
    for _ in range(guesses):
        problem(asked(guarded, "guess", "GET", "/v1/state"), 401)
    counts = asked(guarded, tokens["read"], "GET", "/v1/controller").json()["refusals"]
    assert counts["no-token"] == guesses
    listed = asked(guarded, tokens["read"], "GET", "/v1/events?limit=1000").json()["events"]
    kinds = [one["kind"] for one in listed]
    assert kinds[0] == "change"
    # One more for each minute that the guesses take.
    assert 0 < kinds.count("denied") < 2 * DENIED_BURST


@pytest.mark.parametrize(
    ("data", "end"),
    [
        ({"user": "alice", "actor": "cron"}, "made  by alice for cron"),
        ({"user": "alice", "actor": None}, "made  by alice"),
        ({"user": None, "actor": "cron"}, "made  by cron"),
        ({}, "made"),
    ],
)
def test_the_command_shows_who_did_it(data: dict[str, Any], end: str) -> None:
    event = {"time": "2026-01-31T12:00:00Z", "kind": "change", "message": "made", "data": data}
    assert render.event(event).plain.endswith(f"  {end}")


def test_without_users_nobody_is_named(client: Client) -> None:
    client.put(CLASS, {"rate": "1Mbit"})
    (event,) = client.call("GET", "/v1/events").json()["events"]
    assert event["data"]["user"] is None
    said = client.call("GET", "/v1/controller").json()
    assert (said["user"], said["role"]) == (None, "all")


def test_one_user_does_not_take_all_streams(
    start_controller: Start, path: Path, tokens: dict[str, str]
) -> None:
    controller = start_controller(*nobody(), "--tokens", str(path))
    limits = httpx.Limits(max_connections=None)
    stream = partial(httpx.Client.stream, method="GET", url="/v1/events/stream")
    with (
        httpx.Client(base_url=controller.url, limits=limits, trust_env=False) as http,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(ONE_USER_STREAMS):
            opened = stack.enter_context(stream(http, headers=bearer(tokens["read"])))
            assert opened.status_code == 200
        with stream(http, headers=bearer(tokens["read"])) as refused:
            refused.read()
            assert "of user 'reader' are open" in problem(refused, 503)["detail"]
        with stream(http, headers=bearer(tokens["all"])) as other:
            assert other.status_code == 200


def test_users_come_and_go_while_the_controller_runs(start_controller: Start, path: Path) -> None:
    controller = start_controller(*nobody(), "--tokens", str(path))
    assert controller.http.get("/v1/state").status_code == 401
    tokens: dict[Role, str] = {
        "read": users.add(path, "watcher", "read", TODAY),
        "rates": users.add(path, "alice", "rates", TODAY),
    }

    def answer(role: Role) -> int:
        return controller.http.get("/v1/state", headers=bearer(tokens[role])).status_code

    eventually(lambda: answer("rates") == 200, "alice is known")
    ended = threading.Event()
    said: list[dict[str, Any]] = []

    def watch() -> None:
        stream = httpx.stream(
            "GET",
            f"{controller.url}/v1/events/stream?after=0&kind=change",
            headers=bearer(tokens["read"]),
            timeout=DEADLINE_S,
            trust_env=False,
        )
        try:
            with stream as answered:
                said.extend(json.loads(one["data"]) for one in messages(answered.iter_lines()))
        except httpx.TransportError:
            pass
        finally:
            ended.set()

    watching = threading.Thread(target=watch)
    watching.start()
    put = controller.http.put(CLASS, json={"rate": "1Mbit"}, headers=bearer(tokens["rates"]))
    assert put.status_code == 201
    eventually(lambda: said, "the stream has the change")
    assert said[0]["data"]["user"] == "alice"
    users.revoke(path, "watcher")
    assert ended.wait(DEADLINE_S), "the stream of a revoked user ends"
    watching.join()
    assert answer("read") == 401
    assert answer("rates") == 200

    def last_event() -> Any:
        path = "/v1/events?kind=controller"
        answered = controller.http.get(path, headers=bearer(tokens["rates"]))
        return answered.json()["events"][-1]["data"]

    # It is on disk after the tokens have changed.
    eventually(lambda: last_event() == {"revoked": ["watcher"]}, "the event of the revocation")
    counts = controller.http.get("/v1/controller", headers=bearer(tokens["rates"])).json()
    assert counts["refusals"]["revoked"] >= 1


def test_an_empty_file_lets_in_nobody(start_controller: Start, path: Path) -> None:
    controller = start_controller(*nobody(), "--tokens", str(path))
    controller.process.wait_for_line("has no users: `pacer-controller token add`")
    assert controller.http.get("/v1/state").status_code == 401
    assert controller.http.get("/healthz").status_code == 200

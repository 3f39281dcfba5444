"""Running the thing: events, streams, metrics, the token, TLS."""

import asyncio
import contextlib
import json
import logging
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import make_certificate
from prometheus_client.parser import text_string_to_metric_families

from controller_harness import (
    COMPILED,
    DEADLINE_S,
    Controller,
    Process,
    Switch,
    eventually,
    free_port,
)
from pacer_controller import metrics, server
from pacer_controller.api.streams import MAX_STREAMS
from pacer_controller.cli.main import main
from pacer_controller.p4rt import P4Switch
from pacer_controller.service import core, history
from pacer_controller.service.managed import ManagedSwitch, Samples
from pacer_controller.southbound import State
from pacer_controller.stores import SqliteStore, Status
from rest_client import Client, problem

CLASS = "/v1/switches/s1/classes/video"
Start = Callable[..., Controller]

TOKEN = "correct-horse-battery-staple"  # noqa: S105


def private(path: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    path.touch(0o600)
    path.write_text(text)
    return path


def nobody() -> tuple[str, str]:
    return "--switch", f"s1=127.0.0.1:{free_port()}"


def messages(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield server-sent events as their fields."""
    fields: dict[str, str] = {}
    for line in lines:
        if line == "":
            if "data" in fields:
                yield fields
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_every_change_is_audited(client: Client) -> None:
    client.call("PUT", CLASS, {"rate": "500Mbit"}, x_pacer_actor="alice@noc")
    client.put(CLASS, {"rate": "500Mbit"})
    client.put(CLASS, {"rate": "300Mbit"})
    problem(client.put(CLASS, {"rate": "fast"}), 422)
    client.call("DELETE", CLASS)
    said = client.call("GET", "/v1/events?kind=change&switch=s1").json()
    assert said["total"] == 3
    made, changed, gone = said["events"]
    assert made["data"]["actor"] == "alice@noc"
    assert made["data"]["method"] == "PUT"
    assert made["data"]["path"] == CLASS
    assert made["data"]["changes"][0]["op"] == "create"
    assert changed["message"] == "class 'video' on switch 's1': rate 500Mbit -> 300Mbit"
    assert changed["data"]["changes"][0]["before"]["rate"] == "500Mbit"
    assert gone["data"]["changes"][0]["after"] is None
    assert client.call("GET", f"/v1/events/{made['id']}").json() == made
    problem(client.call("GET", "/v1/events/999999"), 404)
    problem(client.call("GET", "/v1/events?kind=nothing"), 422)
    problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, x_pacer_actor="a b"), 422)


def test_pages_of_events(client: Client) -> None:
    for number in range(5):
        client.put(CLASS, {"rate": 8000 + number})
    first = client.call("GET", "/v1/events?limit=2&kind=change").json()
    assert [first["total"], len(first["events"])] == [5, 2]
    second = client.call("GET", first["next"]).json()
    assert second["events"][0]["id"] == first["events"][1]["id"] + 1
    newest = client.call("GET", "/v1/events?limit=1&newest=true").json()["events"]
    assert "8.003kbit -> 8.004kbit" in newest[0]["message"]


def test_events_stream_and_go_on_where_they_ended(start_controller: Start) -> None:
    controller = start_controller(*nobody())
    with controller.http.stream("GET", "/v1/events/stream?kind=change") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        controller.put(CLASS, {"rate": "1Mbit"})
        first = next(messages(lines))
    assert first["event"] == "change"
    assert json.loads(first["data"])["id"] == int(first["id"])
    controller.put(CLASS, {"rate": "2Mbit"})
    controller.put(CLASS, {"rate": "3Mbit"})
    headers = {"Last-Event-ID": first["id"]}
    with controller.http.stream("GET", "/v1/events/stream?kind=change", headers=headers) as stream:
        seen = messages(stream.iter_lines())
        said = [json.loads(next(seen)["data"])["message"] for _ in range(2)]
    assert [text.partition("rate ")[2] for text in said] == ["1Mbit -> 2Mbit", "2Mbit -> 3Mbit"]
    wrong = controller.http.get("/v1/events/stream", headers={"Last-Event-ID": "x"})
    assert wrong.status_code == 422


def test_an_open_stream_does_not_hold_up_the_end(start_controller: Start) -> None:
    controller = start_controller(*nobody())
    with controller.http.stream("GET", "/v1/events/stream") as stream:
        lines = stream.iter_lines()
        next(lines)
        assert controller.process.stop() == 0
        assert all(not line.startswith("data") for line in lines)


def test_statistics_stream(controller: Controller) -> None:
    controller.put(CLASS, {"rate": "500Mbit"})
    path = "/v1/stats/stream?switch=s1&interval_ms=200&count=3"
    with controller.http.stream("GET", path) as stream:
        seen = list(messages(stream.iter_lines()))
    assert [one["event"] for one in seen] == ["stats"] * 3
    first, *later = [json.loads(one["data"]) for one in seen]
    assert [one["name"] for one in first["classes"]] == [None, "video"]
    assert first["interval_s"] is None
    assert all(one["interval_s"] >= 0.15 for one in later)
    assert later[0]["classes"][1]["achieved_bps"] == 0
    assert later[0]["classes"][1]["below_rate"]["reason"] == "no-demand"
    assert later[0]["classes"][1]["below_rate"]["short_percent"] == 100
    assert first["classes"][1]["below_rate"] is None
    assert controller.http.get("/v1/stats/stream?switch=s9").status_code == 404
    assert controller.http.get("/v1/stats/stream?interval_ms=1").status_code == 422


def samples_of(text: str) -> dict[str, dict[frozenset[str], float]]:
    """Return the samples' values by name and set of the labels' values."""
    found: dict[str, dict[frozenset[str], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.values())] = sample.value
    return found


def labels(*values: str) -> frozenset[str]:
    return frozenset(values)


def test_metrics(controller: Controller) -> None:
    controller.put(CLASS, {"rate": "500Mbit"})
    controller.put("/v1/switches/s1/flows/own", {"match": {"dscp": 1}, "rate": "1Mbit"})
    answer = controller.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples_of(answer.text)
    assert found["pacer_switch_state"][labels("s1", "connected")] == 1
    assert found["pacer_class_target_bits_per_second"][labels("s1", "video")] == 500_000_000
    assert found["pacer_class_target_bits_per_second"][labels("s1", "flow:own")] == 1_000_000
    assert found["pacer_class_accepted_packets_total"][labels("s1", "video")] == 0
    assert found["pacer_flow_matched_bytes_total"][labels("s1", "own")] == 0
    assert found["pacer_switch_drift_entries_total"][labels("s1")] == 0
    assert found["pacer_switch_resources"][labels("s1", "class")] == 1
    assert found["pacer_events_total"][labels("change")] == 2


def test_metrics_of_a_switch_that_is_away(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    found = samples_of(client.call("GET", "/metrics").text)
    assert found["pacer_switch_state"][labels("s1", "pending")] == 1
    assert found["pacer_class_target_bits_per_second"][labels("s1", "video")] == 500_000_000
    assert "pacer_class_accepted_packets_total" not in found


def egress_queue(number: int) -> dict[str, Any]:
    """Return statistics of a queue that has sent one packet at once and one after 5 ms."""
    return {
        "queue": number,
        "backlog_packets": 2,
        "backlog_bytes": 3036,
        "tx_packets": 2,
        "tx_bytes": 1582,
        "marked_packets": 1,
        "drops": {"aqm": 3, "queue-full": 4},
        "sojourn": {"buckets": [1] + [0] * 22 + [1] + [0] * 41, "max_ns": 5_000_000},
    }


def with_queues(queues: int) -> dict[str, Any]:
    """Return statistics of a switch whose port 2 has egress queues, and port 1 none."""
    port = {"line_rate_bps": None, "up": True}
    counts = dict.fromkeys(("rx_packets", "rx_bytes", "tx_packets", "tx_bytes"), 0)
    measured = {**counts, "queues": [egress_queue(number) for number in range(queues)]}
    ports = [{"port": 1, **port, "statistics": None}, {"port": 2, **port, "statistics": measured}]
    return {"classes": [], "flows": [], "ports": ports}


def metrics_of(client: Client, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the metrics while each switch has these statistics."""

    async def statistics(_name: str, _samples: Samples) -> dict[str, Any]:
        return said

    monkeypatch.setattr(client.service, "statistics", statistics)
    return client.call("GET", "/metrics").text


def test_metrics_of_egress_queues(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = samples_of(metrics_of(client, with_queues(2), monkeypatch))
    for queue in ("0", "1"):
        at = labels("s1", "2", queue)
        assert found["pacer_queue_backlog_packets"][at] == 2
        assert found["pacer_queue_backlog_bytes"][at] == 3036
        assert found["pacer_queue_tx_packets_total"][at] == 2
        assert found["pacer_queue_tx_bytes_total"][at] == 1582
        assert found["pacer_queue_marked_packets_total"][at] == 1
        assert found["pacer_queue_dropped_packets_total"][at | {"aqm"}] == 3
        assert found["pacer_queue_dropped_packets_total"][at | {"queue-full"}] == 4
        assert found["pacer_queue_sojourn_seconds_count"][at] == 2
        below = found["pacer_queue_sojourn_seconds_bucket"]
        assert below[at | {"0.0"}] == 1
        assert below[at | {"0.004194304"}] == 1, "less than 4.2 ms"
        assert below[at | {"0.008388608"}] == 2, "less than 8.4 ms"
    assert found["pacer_switch_queues_left_out"][labels("s1")] == 0


def test_a_switch_has_metrics_of_a_limited_number_of_queues(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUEUES_MOST", 8)
    said = metrics_of(client, with_queues(14), monkeypatch)
    found = samples_of(said)
    # The client has two such switches.
    assert len(found["pacer_queue_backlog_bytes"]) == 2 * 8
    assert found["pacer_switch_queues_left_out"][labels("s1")] == 6
    of_one = [line for line in said.splitlines() if 'queue="7"' in line and 'switch="s1"' in line]
    assert len(of_one) <= 40


def test_a_switch_that_a_request_names_twice_is_read_once(client: Client) -> None:
    said = client.call("GET", "/v1/stats/stream?switch=s1&switch=wan&switch=s1&count=1").text
    assert said.count("event: stats") == 2


def test_streams_are_limited(start_controller: Start) -> None:
    controller = start_controller(*nobody())
    path = "/v1/events/stream"
    limits = httpx.Limits(max_connections=None)
    with (
        httpx.Client(base_url=controller.url, limits=limits, trust_env=False) as http,
        contextlib.ExitStack() as stack,
    ):
        opened = [stack.enter_context(http.stream("GET", path)) for _ in range(MAX_STREAMS)]
        assert {stream.status_code for stream in opened} == {200}
        said = problem(controller.http.get("/v1/stats/stream?switch=s1"), 503)
        assert said["type"] == "urn:pacer:problem:too-many-streams"
        assert controller.http.get("/healthz").status_code == 200
        opened[0].close()

        def again() -> bool:
            with controller.http.stream("GET", path) as stream:
                return bool(stream.status_code == 200)

        eventually(again, "there is room again")


def test_readiness_writes_at_most_once_a_second(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PROBE_S", 3600.0)
    probes: list[None] = []

    async def probe() -> None:
        probes.append(None)

    monkeypatch.setattr(client.store, "probe", probe)
    assert {client.call("GET", "/readyz").status_code for _ in range(5)} == {200}
    assert len(probes) == 1


def test_readiness_waits_for_a_probe_that_another_client_has_begun(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PROBE_MOST_S", DEADLINE_S)

    async def run() -> list[int]:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def probe() -> None:
            begun.set()
            await goes_on.wait()

        monkeypatch.setattr(client.store, "probe", probe)
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            first = asyncio.create_task(http.get("/readyz"))
            await begun.wait()
            second = asyncio.create_task(http.get("/readyz"))
            for _ in range(1000):
                await asyncio.sleep(0)
            goes_on.set()
            return [(await one).status_code for one in (first, second)]

    assert asyncio.run(run()) == [200, 200]


def test_readiness(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "PROBE_S", 0.0)
    said = client.call("GET", "/readyz")
    assert said.json() == {"ready": True, "switches": {"s1": "pending", "wan": "pending"}}
    assert client.call("GET", "/readyz?connected=true").status_code == 503
    client.store.shut()
    assert client.call("GET", "/readyz").status_code == 503
    assert client.call("GET", "/healthz").status_code == 200


@pytest.mark.parametrize(
    ("state", "status"), [("connected", 200), ("backup", 503), ("pending", 503)]
)
def test_a_switch_whose_controller_is_a_backup_is_not_connected(
    client: Client, monkeypatch: pytest.MonkeyPatch, state: str, status: int
) -> None:
    """With a shared store, the holder of the lease is to be the switch's primary."""
    monkeypatch.setattr(SqliteStore, "shared", True)
    monkeypatch.setattr(client.store, "status", lambda _: Status("other", state))
    assert client.call("GET", "/readyz?connected=true").status_code == status


def test_a_state_file_that_fails_changes_nothing(client: Client) -> None:
    client.store.shut()
    said = problem(client.put(CLASS, {"rate": "1Mbit"}), 503)
    assert said["type"] == "urn:pacer:problem:not-stored"
    problem(client.call("GET", CLASS), 404)


def test_token(start_controller: Start, tmp_path: Path) -> None:
    path = private(tmp_path / "token", TOKEN + "\n")
    controller = start_controller(*nobody(), "--token-file", str(path))
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": TOKEN},
    ):
        for method, place in (("PUT", CLASS), ("GET", "/metrics"), ("GET", "/v1/state")):
            said = controller.http.request(method, place, headers=headers, json={"rate": "1Mbit"})
            assert said.status_code == 401
            assert said.headers["www-authenticate"] == "Bearer"
            assert problem(said, 401)["type"] == "urn:pacer:problem:unauthorized"
    for place in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert controller.http.get(place).status_code == 200
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    assert controller.http.get("/readyz").json() == {"ready": True, "switches": None}
    assert controller.http.get("/readyz", headers=allowed).json()["switches"] == {"s1": "pending"}
    put = controller.http.put(CLASS, json={"rate": "1Mbit"}, headers=allowed)
    assert put.status_code == 201
    denied = controller.http.get("/v1/events?kind=denied", headers=allowed).json()["events"]
    assert denied[0]["data"]["path"] == CLASS


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Undo a controller's changes of this process's logging."""
    root, httpx_log = logging.getLogger(), logging.getLogger("httpx")
    handlers, levels = list(root.handlers), (root.level, httpx_log.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    httpx_log.setLevel(levels[1])


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "0.0.0.0:0"], "not loopback, and there is no token"),
        (["--listen", "0.0.0.0:0", "--token-file", "LONG"], "would send the token in clear"),
        (["--token-file", "OPEN"], "others may read or change it"),
        (["--store", "sqlite:a", "--state", "b"], "there can be one store"),
        (["--store", "postgres://x"], "want sqlite:PATH or etcd://"),
        (["--store", "etcd://127.0.0.1:1", "--store-ca", "SHORT"], "--store-ca"),
        (["--store", "etcd://127.0.0.1:1", "--lease", "1"], "want 2 to 60"),
        (["--token-file", "/nonexistent"], "No such file"),
        (["--token-file", "SHORT"], "at least 16"),
        (["--tls-cert", "SHORT"], "must be given together"),
        (["--tls-cert", "SHORT", "--tls-key", "SHORT"], "want a certificate and its key"),
        (["--tls-cert", "/nonexistent", "--tls-key", "LONG"], "/nonexistent: No such file"),
        (["--switch-ca", "SHORT"], "want certificates in PEM"),
        (["--store-ca", "/nonexistent"], "/nonexistent: No such file"),
    ],
)
def test_will_not_start_unsafe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    (tmp_path / "OPEN").write_text(TOKEN)
    (tmp_path / "OPEN").chmod(0o644)
    private(tmp_path / "SHORT", "secret")
    private(tmp_path / "LONG", TOKEN)
    files = ("OPEN", "SHORT", "LONG")
    given = [str(tmp_path / option) if option in files else option for option in options]
    assert server.main(given) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("logging_as_before")
def test_a_key_that_does_not_fit_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, certificate = make_certificate(tmp_path / "one")
    other, _ = make_certificate(tmp_path / "other")
    encrypted = private(tmp_path / "encrypted", "")
    encrypt = ["openssl", "ec", "-in", str(key), "-out", str(encrypted)]
    subprocess.run([*encrypt, "-aes256", "-passout", "pass:secret"], check=True)
    options = ["--tls-cert", str(certificate), "--tls-key"]
    assert server.main([*options, str(other)]) == 2
    assert f"{other}: it is not the key of {certificate}" in capsys.readouterr().err
    assert server.main([*options, str(encrypted)]) == 2
    assert "want a certificate and its key, unencrypted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["migrat", "a", "b"], "no command 'migrat'; did you mean 'migrate'?"),
        (["s1=127.0.0.1:9559"], "there are: migrate, token"),
    ],
)
def test_a_command_that_is_none_is_told(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        server.main(given)
    assert said in capsys.readouterr().err


def test_tls(network: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, certificate = make_certificate(tmp_path)
    token = private(tmp_path / "token", TOKEN)
    options = ["--tls-cert", str(certificate), "--tls-key", str(key), "--token-file", str(token)]
    command = [sys.executable, "-m", "pacer_controller", "--listen", "127.0.0.1:0"]
    process = Process([*command, "--compiled-dir", str(COMPILED), *nobody(), *options])
    try:
        url = process.wait_for_line("pacer-controller: ready").rpartition(" ")[2]
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=url, verify=trusted, timeout=DEADLINE_S, trust_env=False) as web:
            assert web.get("/v1/switches").status_code == 401
            allowed = {"Authorization": f"Bearer {TOKEN}"}
            assert web.get("/v1/switches", headers=allowed).status_code == 200
        assert main(["--url", url.replace("https:", "http:"), "show"]) == 3
        assert "if it speaks TLS, use https://" in capsys.readouterr().err
    finally:
        assert process.stop() == 0


def test_what_happens_to_a_switch_is_told(controller: Controller, switch: Switch) -> None:
    with controller.http.stream("GET", "/v1/events/stream?kind=switch-state") as stream:
        lines = stream.iter_lines()
        next(lines)
        switch.kill()
        said = json.loads(next(messages(lines))["data"])
    assert said["switch"] == "s1"
    assert (said["data"]["from"], said["data"]["to"]) == ("connected", "pending")


def test_the_history_outlives_an_error_and_is_of_one_device(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(P4Switch, "state", State.CONNECTED)
    monkeypatch.setattr(history, "INTERVAL_S", 0.001)
    client.service.switches.clear()
    for name in ("broken", "good"):
        device = {"kind": "p4runtime", "address": f"127.0.0.1:{free_port()}"}
        assert client.put(f"/v1/switches/{name}", device).status_code == 201
    switches = client.service.switches
    kept = history.History(client.service)

    async def run() -> None:
        readings: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        # None is read without the other.
        together = asyncio.Barrier(len(switches))

        async def statistics(found: ManagedSwitch, samples: Samples, _: float) -> dict[str, Any]:
            readings.put_nowait((found.name, id(samples)))
            await together.wait()
            if found.name == "broken":
                raise RuntimeError
            row = {"flow": None, "name": "video", "achieved_bps": 1, "rate_bps": 2}
            return {"classes": [row]}

        monkeypatch.setattr(history, "statistics", statistics)
        reading = asyncio.create_task(kept.run())
        first, second = [{await readings.get(), await readings.get()} for _ in range(2)]
        assert first == second
        assert [one["name"] for one in kept.view("good")["classes"]] == ["video"]
        reading.cancel()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "the rates of switch broken could not be read" in caplog.text
    switches["good"] = switches["broken"]
    assert not kept.view("good")["classes"]


def test_a_switch_that_does_not_answer_holds_up_no_other_history(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(P4Switch, "state", State.CONNECTED)
    monkeypatch.setattr(history, "INTERVAL_S", 0.001)
    monkeypatch.setattr(history, "READ_MOST_S", 0.01)
    kept = history.History(client.service)

    async def run() -> None:
        readings: asyncio.Queue[None] = asyncio.Queue()

        async def statistics(found: ManagedSwitch, *_: object) -> dict[str, Any]:
            if found.name == "wan":
                await asyncio.Event().wait()
            readings.put_nowait(None)
            return {"classes": []}

        monkeypatch.setattr(history, "statistics", statistics)
        reading = asyncio.create_task(kept.run())
        for _ in range(2):
            await readings.get()
        reading.cancel()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert kept.view("wan")["overdue"] >= 1
    assert kept.view("s1")["overdue"] == 0
    assert "reading switch wan took longer than 0.01 s" in caplog.text

"""The REST interface with switches that are away: everything is checked, kept, and pending."""

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pacer_controller.southbound import PortInfo, State, SwitchUnreadableError
from pacer_controller.switch_services import ServiceUnavailableError
from rest_client import Client, problem

CLASS = "/v1/switches/s1/classes/video"
FLOW = "/v1/switches/s1/flows/web"


def test_answers_end_with_a_newline(client: Client) -> None:
    """Behind curl, a shell's prompt begins a line."""
    answers = [client.put(CLASS, {"rate": "500Mbit"}), client.call("GET", CLASS)]
    answers += [client.put(CLASS, {"rate": "5"}), client.call("GET", "/v1/switches")]
    for answer in answers:
        assert answer.content.endswith(b"}\n"), answer.content


def test_put_is_idempotent_and_pending(client: Client) -> None:
    first = client.put(CLASS, {"rate": "500Mbit"})
    assert first.status_code == 201
    assert first.json() == {
        "name": "video",
        "index": 1,
        "mode": "static",
        "rate": "500Mbit",
        "rate_bps": 500_000_000,
        "limit_bytes": 33_554_432,
        "allowance": "auto",
        "allowance_ns": 262_144,
        "gap_bytes": None,
        "tick_hz": None,
        "headroom_percent": None,
        "threshold_ns": None,
        "quantum_bytes": None,
        "slots": None,
        "slot_ns": None,
        "slot": None,
        "window_margin_bytes": None,
        "ecn_threshold_bytes": None,
        "port": None,
        "follow": None,
        "state": "pending",
        "state_reason": "switch is pending",
        "revision": 2,
    }
    again = client.put(CLASS, {"rate": 500_000_000, "mode": "static"})
    assert again.status_code == 200
    assert again.json() == first.json()
    assert client.call("GET", CLASS).json() == first.json()
    assert client.call("GET", "/v1/switches/s1/classes").json() == {
        "classes": [first.json()],
        "total": 1,
        "next": None,
    }
    assert client.call("DELETE", CLASS).status_code == 204
    problem(client.call("GET", CLASS), 404)
    problem(client.call("DELETE", CLASS), 404)


def test_an_allowance_follows_the_rate_unless_it_is_a_time(client: Client) -> None:
    for pace, allowance, allowance_ns in (
        ({}, "auto", 16384 * 80),
        ({"allowance_ns": "auto"}, "auto", 16384 * 80),
        ({"allowance_ns": "exact"}, "exact", 1518 * 80),
        ({"allowance_ns": 5}, "fixed", 5),
    ):
        made = client.put(CLASS, {"rate": "100Mbit", **pace}).json()
        assert (made["allowance"], made["allowance_ns"]) == (allowance, allowance_ns), pace
    for wrong in ("exakt", "5", 1.5, True, -1, 3_600_000_000_001):
        answer = client.put(CLASS, {"rate": "1Mbit", "allowance_ns": wrong})
        assert '"auto", "exact", or 0 to' in problem(answer, 422)["errors"][0]["expected"]


def test_put_replaces_the_whole_class(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit", "limit_bytes": 100_000, "allowance_ns": 0})
    changed = client.put(CLASS, {"mode": "unpaced"}).json()
    assert changed["rate"] is None
    assert changed["limit_bytes"] == 33_554_432
    assert changed["allowance_ns"] is None
    assert changed["index"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": -1}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"rate": 5e8}, "rate"),
        ({"rate": True}, "rate"),
        ({"rate": [1]}, "rate"),
        ({"rate": "\u0665\u0660\u0660Mbit"}, "rate"),
        ({"rate": "101Gbit"}, "rate"),
        ({}, "rate"),
        ({"mode": "static"}, "rate"),
        ({"mode": "unpaced", "rate": "1Mbit"}, "rate"),
        ({"mode": "turbo", "rate": "1Mbit"}, "mode"),
        ({"rate": "1Mbit", "limit_bytes": 0}, "limit_bytes"),
        ({"rate": "1Mbit", "limit_bytes": 2**32}, "limit_bytes"),
        ({"rate": "1Mbit", "limit_bytes": "1MB"}, "limit_bytes"),
        ({"rate": "1Mbit", "allowance_ns": -1}, "allowance_ns"),
        ({"rate": "1Mbit", "allowance_ns": 1.5}, "allowance_ns"),
        ({"rate": "1Mbit", "port": 0}, "port"),
        ({"mode": "ipg", "gap_bytes": 100}, "rate"),
        ({"mode": "ipg", "rate": "1Gbit"}, "gap_bytes"),
        ({"mode": "ipg", "rate": "1Gbit", "gap_bytes": 7}, "gap_bytes"),
        ({"mode": "ipg", "rate": "1Gbit", "gap_bytes": 65_536}, "gap_bytes"),
        ({"rate": "1Mbit", "gap_bytes": 100}, "gap_bytes"),
        ({"mode": "unpaced", "gap_bytes": 100}, "gap_bytes"),
        ({"mode": "unpaced", "ecn_threshold_bytes": 9_000}, "ecn_threshold_bytes"),
        ({"mode": "unpaced", "allowance_ns": 1_000}, "allowance_ns"),
        ({"mode": "unpaced", "window_margin_bytes": 100_000}, "window_margin_bytes"),
        (
            {"rate": "1Mbit", "limit_bytes": 9_000, "ecn_threshold_bytes": 9_001},
            "ecn_threshold_bytes",
        ),
        ({"rate": "1Mbit", "ecn_threshold_bytes": 0}, "ecn_threshold_bytes"),
        ({"rate": "1Mbit", "headroom_percent": 120}, "headroom_percent"),
        ({"rate": "1Mbit", "threshold_ns": 1}, "threshold_ns"),
        ({"rate": "1Mbit", "window_margin_bytes": 0}, "window_margin_bytes"),
        ({"mode": "timer"}, "rate"),
        ({"mode": "timer", "rate": "1Mbit", "tick_hz": 0}, "tick_hz"),
        ({"mode": "timer", "rate": "1Mbit", "tick_hz": 10_001}, "tick_hz"),
        ({"mode": "timer", "rate": "1Mbit", "gap_bytes": 12}, "gap_bytes"),
        ({"rate": "1Mbit", "tick_hz": 100}, "tick_hz"),
        ({"mode": "pspd", "tick_hz": 100}, "tick_hz"),
        ({"mode": "pspd", "rate": "1Mbit"}, "rate"),
        ({"mode": "pspd", "headroom_percent": 100}, "headroom_percent"),
        ({"mode": "pspd", "window_margin_bytes": 1}, "window_margin_bytes"),
        ({"mode": "clustered", "rate": "1Mbit"}, "rate"),
        ({"mode": "shared"}, "rate"),
        ({"mode": "shared", "rate": "1Mbit", "headroom_percent": 100}, "headroom_percent"),
        ({"mode": "clustered", "headroom_percent": 100}, "headroom_percent"),
        ({"mode": "clustered", "threshold_ns": 0}, "threshold_ns"),
        ({"mode": "dynamic", "headroom_percent": 49}, "headroom_percent"),
        ({"mode": "dynamic", "headroom_percent": 1001}, "headroom_percent"),
        ({"mode": "dynamic", "threshold_ns": 1_000_000}, "threshold_ns"),
        ({"mode": "dynamic", "window_margin_bytes": 1}, "window_margin_bytes"),
        ({"mode": "slow-start", "threshold_ns": 0}, "threshold_ns"),
        ({"mode": "slow-start", "gap_bytes": 100}, "gap_bytes"),
        ({"rate": "5Gbit", "quantum_bytes": 1_517}, "quantum_bytes"),
        ({"rate": "100Gbit", "quantum_bytes": 1_518}, "quantum_bytes"),
        ({"rate": "8kbit", "quantum_bytes": 1_518}, "quantum_bytes"),
        ({"mode": "pspd", "quantum_bytes": 1_518}, "quantum_bytes"),
        (
            {"rate": "1Mbit", "slots": 4, "slot_ns": 1_000, "slot": 1, "quantum_bytes": 1_518},
            "quantum_bytes",
        ),
        ({"rate": "1Mbit", "slots": 4, "slot_ns": 1_000}, "slot"),
        ({"rate": "1Mbit", "slots": 4, "slot": 1}, "slot_ns"),
        ({"rate": "1Mbit", "slots": 4, "slot_ns": 1_000, "slot": 5}, "slot"),
        ({"rate": "1Mbit", "slots": 4, "slot_ns": 1_000, "slot": 0}, "slot"),
        ({"rate": "1Mbit", "slots": 1, "slot_ns": 1_000, "slot": 1}, "slots"),
        ({"rate": "1Mbit", "slots": 4, "slot_ns": 99, "slot": 1}, "slot_ns"),
        ({"rate": "1Mbit", "slots": 4, "slot_ns": 250_000_001, "slot": 1}, "slot_ns"),
        ({"mode": "dynamic", "slot_ns": 1_000}, "slot_ns"),
        ({"rate": "1Mbit", "slot": 1}, "slot"),
        ({"mode": "pspd", "slots": 4, "slot_ns": 1_000, "slot": 1}, "slot"),
        ({"mode": "clustered", "slots": 4}, "slots"),
        ({"rate": "1Mbit", "speed": 1}, "speed"),
        ([], "body"),
        ("500Mbit", "body"),
        (5, "body"),
    ],
)
def test_wrong_class(client: Client, body: Any, field: str) -> None:
    said = problem(client.put(CLASS, body), 422)
    assert [error["field"] for error in said["errors"]] == [field]
    assert said["detail"].startswith("class 'video' on switch 's1': ")
    assert client.service.switches["s1"].desired.classes == {}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e5"])
def test_numbers_that_are_none(client: Client, value: str) -> None:
    response = client.call("PUT", CLASS, content=b'{"rate": %s}' % value.encode())
    assert [error["field"] for error in problem(response, 422)["errors"]] == ["rate"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"rate": "1Mbit"} x', 400),
        (b'{"rate": "1Mbit", "rate": "2Mbit"}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"rate": ' + b"9" * 10_000 + b"}", 400),
        (b'{"a": ' * 50_000 + b"1" + b"}" * 50_000, 400),
        (b'"' + b"x" * (1024 * 1024) + b'"', 413),
    ],
)
def test_hostile_bodies(client: Client, content: bytes, status: int) -> None:
    problem(client.call("PUT", CLASS, content=content), status)


def test_the_last_of_many_names_stands_twice(client: Client) -> None:
    members = ",".join(f'"{n:x}":0' for n in range(100_000))
    said = problem(client.call("PUT", CLASS, content=b'{%s,"1869f":1}' % members.encode()), 400)
    assert "'1869f' stands twice" in said["detail"]


def test_long_body_is_refused_unread(client: Client) -> None:
    problem(client.call("PUT", CLASS, content=b"{}", content_length="1000000000"), 413)


def test_body_must_say_it_is_json(client: Client) -> None:
    response = client.call("PUT", CLASS, {"rate": "1Mbit"}, content_type="text/plain")
    assert "curl: --json" in problem(response, 415)["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"class": "video"}, "match"),
        ({"match": {}}, "class"),
        ({"match": {}, "class": "video", "rate": "1Mbit"}, "rate"),
        ({"match": {}, "class": "vidoe"}, "class"),
        ({"match": {}, "class": "no/slash"}, "class"),
        ({"match": {}, "class": "video", "priority": 0}, "priority"),
        ({"match": {}, "class": "video", "priority": "high"}, "priority"),
        ({"match": {}, "class": "video", "limit_bytes": 5000}, "limit_bytes"),
        ({"match": {"srcc": "10.0.0.1"}, "class": "video"}, "match.srcc"),
        ({"match": {"src": "10.0.0.1/24"}, "class": "video"}, "match.src"),
        ({"match": {"src": "10.0.0"}, "class": "video"}, "match.src"),
        ({"match": {"src": "10.0.0.0/33"}, "class": "video"}, "match.src"),
        ({"match": {"src": "10.0.0.0/255.0.0.0"}, "class": "video"}, "match.src"),
        ({"match": {"src": "fe80::1%eth0"}, "class": "video"}, "match.src"),
        ({"match": {"src": "::ffff:10.0.0.1"}, "class": "video"}, "match.src"),
        ({"match": {"src": "\u0661\u0660.0.0.1"}, "class": "video"}, "match.src"),
        ({"match": {"src": 167772160}, "class": "video"}, "match.src"),
        ({"match": {"src": "10.0.0.1", "dst": "::1"}, "class": "video"}, "match.dst"),
        ({"match": {"src": "::1", "ether_type": "ipv4"}, "class": "video"}, "match.ether_type"),
        ({"match": {"ether_type": 65536}, "class": "video"}, "match.ether_type"),
        ({"match": {"protocol": "tpc"}, "class": "video"}, "match.protocol"),
        ({"match": {"protocol": 256}, "class": "video"}, "match.protocol"),
        ({"match": {"protocol": "icmp", "dst_port": 5}, "class": "video"}, "match.dst_port"),
        ({"match": {"dst_port": 65536}, "class": "video"}, "match.dst_port"),
        ({"match": {"dst_port": "80"}, "class": "video"}, "match.dst_port"),
        ({"match": {"vlan": 4095}, "class": "video"}, "match.vlan"),
        ({"match": {"dscp": 64}, "class": "video"}, "match.dscp"),
        ({"match": {"ingress_port": 510}, "class": "video"}, "match.ingress_port"),
        ({"match": {}, "meter": {}}, "meter.cir"),
        ({"match": {}, "meter": {"cir": "2Mbit", "pir": "1Mbit"}}, "meter.pir"),
        ({"match": {}, "meter": {"cir": "1Mbit", "cburst": 100}}, "meter.cburst"),
        ({"match": {}, "meter": {"cir": "1Mbit", "red_dscp": 1}}, "meter.red_dscp"),
        (
            {"match": {}, "meter": {"cir": "1Mbit", "red_dscp": 1, "drop_red": False}},
            "meter.yellow_dscp",
        ),
        ({"match": {}, "meter": {"cir": "1Mbit", "drop_red": 1}}, "meter.drop_red"),
    ],
)
def test_wrong_flow(client: Client, body: Any, field: str) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    said = problem(client.put(FLOW, body), 422)
    assert [error["field"] for error in said["errors"]] == [field]
    assert said["detail"].startswith("flow 'web' on switch 's1': ")
    assert client.service.switches["s1"].desired.flows == {}


def test_guesses(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    assert "did you mean 'video'?" in client.put(FLOW, {"match": {}, "class": "vidoe"}).text
    assert "did you mean 'src'?" in client.put(FLOW, {"match": {"scr": ""}, "class": "video"}).text
    assert "did you mean 'video'?" in client.call("GET", CLASS.replace("video", "vdeo")).text


def test_flow_with_a_class(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    match = {"src": "10.0.0.0/24", "protocol": "tcp", "dst_port": 5001}
    made = client.put(FLOW, {"match": match, "class": "video"})
    assert made.status_code == 201
    assert made.json()["class_index"] == 1
    assert made.json()["match"] == match
    assert client.put(FLOW, {"match": match, "class": "video"}).status_code == 200
    refused = problem(client.call("DELETE", CLASS), 409)
    assert "used by 'web'" in refused["detail"]
    assert client.call("DELETE", FLOW).status_code == 204
    assert client.call("DELETE", CLASS).status_code == 204


def test_flow_with_a_rate_has_a_class_of_its_own(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    made = client.put(FLOW, {"match": {"dscp": 46}, "rate": "10Mbit"}).json()
    assert made["class_index"] == 2
    assert made["class"] is None
    faster = client.put(FLOW, {"match": {"dscp": 46}, "rate": "20Mbit"}).json()
    assert faster["class_index"] == 2
    shared = client.put(FLOW, {"match": {"dscp": 46}, "class": "video"}).json()
    assert shared["class_index"] == 1
    # The private index is free again, but its turn comes only after those never used.
    assert client.put(CLASS + "2", {"rate": "1Mbit"}).json()["index"] == 3


def test_same_match_needs_another_priority(client: Client) -> None:
    body = {"match": {"src": "10.0.0.0/8"}, "rate": "1Mbit"}
    client.put(FLOW, body)
    said = problem(client.put(FLOW + "2", body), 409)
    assert "flow 'web'" in said["detail"]
    assert client.put(FLOW + "2", body | {"priority": 5}).status_code == 201
    client.call("DELETE", FLOW)
    assert client.put(FLOW + "3", body).status_code == 201


def test_rate_above_the_line_rate(client: Client) -> None:
    ports = [PortInfo(1), PortInfo(2, line_rate_bps=10**9), PortInfo(3, line_rate_bps=10**8)]
    client.service.switches["s1"].driver.ports = ports
    said = problem(client.put(CLASS, {"rate": "1001Mbit"}), 422)["errors"][0]
    assert said["message"] == "1.001Gbit is above the line rate of port 2, 1Gbit"
    assert client.put(CLASS, {"rate": "1Gbit"}).status_code == 201
    problem(client.put(CLASS, {"rate": "1Gbit", "port": 3}), 422)
    # A port that is named and has no line rate takes any rate.
    assert client.put(CLASS, {"rate": "2Gbit", "port": 1}).status_code == 200
    assert problem(client.put(CLASS, {"rate": "1Mbit", "port": 9}), 422)["errors"][0]["field"] == (
        "port"
    )
    problem(client.put(FLOW, {"match": {}, "rate": "2Gbit"}), 422)
    problem(client.put(FLOW, {"match": {"ingress_port": 9}, "rate": "1Mbit"}), 422)


def test_a_line_rate_below_what_was_accepted(client: Client) -> None:
    ports = [PortInfo(1, line_rate_bps=10**9), PortInfo(2, line_rate_bps=10**8)]
    client.service.switches["s1"].driver.ports = ports
    assert client.put(CLASS, {"rate": "500Mbit"}).status_code == 201
    assert client.put(FLOW, {"match": {}, "rate": "300Mbit"}).status_code == 201
    port = "/v1/switches/s1/ports/1"
    errors = problem(client.put(port, {"line_rate": "200Mbit"}), 422)["errors"]
    assert [error["field"] for error in errors] == ["line_rate"] * 2
    assert [error["message"] for error in errors] == [
        "class 'video' leaves by any port at 500Mbit",
        "flow 'web' leaves by any port at 300Mbit",
    ]
    (error,) = problem(client.put(port, {"line_rate": "400Mbit"}), 422)["errors"]
    assert error["message"].startswith("class 'video'")
    assert client.put("/v1/switches/s1/ports/2", {"line_rate": "50Mbit"}).status_code < 300
    assert client.put(port, {"line_rate": "500Mbit"}).status_code < 300


def test_gap_frames_need_a_line_rate(client: Client) -> None:
    ports = [PortInfo(1), PortInfo(2, line_rate_bps=10**9, gap_mode="pause-frames")]
    client.service.switches["s1"].driver.ports = ports
    one, two = "/v1/switches/s1/ports/1", "/v1/switches/s1/ports/2"
    for path, body in [(one, {"gap_mode": "pause-frames"}), (two, {"line_rate": "none"})]:
        (error,) = problem(client.put(path, body), 422)["errors"]
        assert (error["field"], error["expected"]) == (
            "line_rate",
            "a line_rate, or gap_mode accounted",
        )
    assert client.put(one, {"gap_mode": "pause-frames", "line_rate": "1Gbit"}).status_code == 201
    assert client.put(two, {"gap_mode": "accounted", "line_rate": "none"}).status_code == 201


@pytest.mark.parametrize("path", ["bandwidth?port=0", "burstiness?port=0"])
@pytest.mark.parametrize("name", ["from_ns", "to_ns"])
def test_times_that_no_clock_shows(client: Client, path: str, name: str) -> None:
    said = client.call("GET", f"/v1/switches/wan/{path}&{name}={2**63}")
    assert [error["field"] for error in problem(said, 422)["errors"]] == [name]


class Traffic:
    """A replacement of a switch's own service with given answers."""

    def __init__(self, *answers: list[PortInfo] | None) -> None:
        self._answers = iter(answers)

    async def ports(self) -> list[PortInfo]:
        """Return the next answer; None is none."""
        answer = next(self._answers)
        if answer is None:
            raise ServiceUnavailableError("gone", grpc.StatusCode.UNAVAILABLE)
        return answer


@pytest.mark.parametrize("path", ["/v1/switches/s1", "/v1/switches"])
def test_ports_are_read_when_they_are_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    driver: Any = client.service.switches["s1"].driver
    up, down = [PortInfo(1, up=True)], [PortInfo(1, up=False)]
    monkeypatch.setattr(driver._connection, "traffic", Traffic(up, down, up, None))
    monkeypatch.setattr(driver._connection, "switch", object())

    def said() -> Any:
        body = client.call("GET", path).json()
        switch = body if path.endswith("s1") else body["switches"][0]
        return [port["up"] for port in switch["ports"]]

    assert said() == []
    monkeypatch.setattr(driver._connection, "state", State.CONNECTED)
    assert [said(), said(), said()] == [[True], [False], [True]]
    # Without the switch's answer the states are unknown; its ports are still listed.
    assert said() == [None]
    monkeypatch.setattr(driver._connection, "state", State.PENDING)
    assert said() == [None]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example"},
        {"host": "rebound.example:8080"},
        {"host": "192.0.2.1"},
        {"host": "127.0.0.1.rebound.example"},
        {"host": "[::1"},
        {"host": "localhost", "origin": "https://rebound.example"},
        {"host": "localhost:8080", "origin": "http://localhost:3000"},
        {"host": "localhost", "origin": "null"},
    ],
)
def test_pages_of_other_hosts_are_refused(client: Client, headers: dict[str, str]) -> None:
    said = problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, None, **headers), 403)
    assert said["type"] == "urn:pacer:problem:other-host"
    problem(client.call("GET", "/v1/state", None, None, **headers), 403)
    problem(client.call("GET", CLASS), 404)


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "127.1.2.3:80", "[::1]:8080"])
def test_this_hosts_own_names(client: Client, host: str) -> None:
    for headers in ({"host": host}, {"host": host, "origin": f"http://{host}"}):
        assert client.call("PUT", CLASS, {"rate": "1Mbit"}, None, **headers).status_code < 300


def test_unknown_switch(client: Client) -> None:
    for method, path in [
        ("GET", "/v1/switches/wam"),
        ("GET", "/v1/switches/wam/stats"),
        ("GET", "/v1/switches/wam/classes"),
        ("DELETE", "/v1/switches/wam/flows/x"),
    ]:
        said = problem(client.call(method, path), 404)
        assert said["type"] == "urn:pacer:problem:unknown-switch"
        assert "did you mean 'wan'?" in said["detail"]
    problem(client.put("/v1/switches/wam/classes/x", {"rate": "1Mbit"}), 404)


def test_wrong_paths_and_methods(client: Client) -> None:
    assert "/docs lists all paths" in problem(client.call("GET", "/v1/nothing"), 404)["detail"]
    said = problem(client.call("PATCH", CLASS, {}), 405)["detail"]
    assert "this path takes DELETE, GET, PUT" in said
    assert "PUT replaces all settings" in said
    refused = client.call("POST", CLASS)
    problem(refused, 405)
    assert refused.headers["allow"] == "DELETE, GET, PUT"
    problem(client.put(CLASS + "%20x", {"rate": "1Mbit"}), 422)
    problem(client.call("GET", "/v1/switches/" + "x" * 65), 422)


def test_program_without_classes(client: Client) -> None:
    problem(client.call("GET", "/v1/switches/wan/classes"), 409)
    problem(client.put("/v1/switches/wan/flows/x", {"match": {}, "rate": "1Mbit"}), 409)
    problem(client.call("GET", "/v1/switches/s1/bandwidth?port=1"), 409)
    problem(client.call("GET", "/v1/switches/wan/bandwidth?port=1"), 503)
    problem(client.call("GET", "/v1/switches/wan/bandwidth?port=7"), 422)
    problem(client.call("GET", "/v1/switches/wan/bandwidth"), 422)


@pytest.mark.parametrize("reads", range(6))
@pytest.mark.parametrize("how", ["away", "broken off"])
def test_a_switch_that_goes_away_while_its_bandwidth_is_read(
    client: Client, monkeypatch: pytest.MonkeyPatch, reads: int, how: str
) -> None:
    path = "/v1/switches/wan/bandwidth?port=1"
    left = [6]

    async def registers(name: str, indices: Iterable[int]) -> dict[int, int] | None:
        left[0] -= 1
        if left[0] < 0:
            if how == "away":
                return None
            raise SwitchUnreadableError("connection closed", gone=True)
        # Window 5 has 1000 bytes, all in its first bin.
        ids = {"GtrcnetIngress.window_id": 5, "GtrcnetIngress.bin_id": 1000}
        sizes = {4096 + 5: 1000, 65536 + 1000: 1000, 1: 777}
        if name in ids:
            return {i: ids[name] if sizes.get(i) else 0 for i in indices}
        return {i: sizes.get(i, 0) for i in indices}

    monkeypatch.setattr(client.service.switch("wan").driver, "registers", registers)
    said = client.call("GET", path).json()
    assert said["windows"] == {"start_ns": [500_000_000], "bytes": [1000], "vb_max_bytes": [1000]}
    assert said["bins"] == {"start_ns": [500_000_000], "bytes": [1000]}
    assert said["vb_max_bytes"] == 777
    left[0] = reads
    assert problem(client.call("GET", path), 503)["type"].endswith("switch-unreadable")


def test_switches_and_health(client: Client) -> None:
    listed = client.call("GET", "/v1/switches").json()["switches"]
    assert [switch["name"] for switch in listed] == ["s1", "wan"]
    assert {switch["state"] for switch in listed} == {"pending"}
    health = client.call("GET", "/healthz").json()
    assert health["status"] == "ok"
    assert (health["switches"], health["connected"]) == (2, 0)


def test_statistics_of_a_switch_that_is_away(client: Client) -> None:
    client.put(CLASS, {"rate": "500Mbit"})
    said = client.call("GET", "/v1/switches/s1/stats").json()
    assert said["state"] == "pending"
    assert [entry["name"] for entry in said["classes"]] == [None, "video"]
    assert said["classes"][1]["accepted"] is None
    assert said["drops"] is None


def test_api_page_needs_no_network(client: Client) -> None:
    start = client.call("GET", "/")
    assert start.status_code == 307
    assert start.headers["location"] == "/dashboard/"
    page = client.call("GET", "/docs")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        asset = client.call("GET", f"/static-offline-docs/{name}")
        assert asset.status_code == 200
        assert name in page.text


def test_the_document_is_rendered_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask for it, and again and again."""
    first = client.call("GET", "/openapi.json")
    assert first.status_code == 200
    monkeypatch.setattr(client.app, "openapi", lambda: pytest.fail("it is rendered again"))
    again = client.call("GET", "/openapi.json")
    assert again.content == first.content
    assert again.headers["content-type"] == "application/json"


def test_openapi_document(client: Client) -> None:
    document = client.call("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["components"]["schemas"]["ClassSpec"]["examples"]
    refs = set(_refs(document))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert refs <= known


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _refs(value)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)
FIELDS = "mode rate limit_bytes allowance_ns port match priority class meter src dst cir vlan"
field_names = st.sampled_from(FIELDS.split())
bodies = st.one_of(
    json_values,
    st.dictionaries(field_names, st.one_of(json_values, st.dictionaries(field_names, json_values))),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from([CLASS, FLOW]), body=bodies)
def test_any_body_gets_a_proper_answer(client: Client, path: str, body: Any) -> None:
    response = client.put(path, body)
    if response.status_code not in (200, 201):
        problem(response, response.status_code)
        assert 400 <= response.status_code < 500


def test_etag_guards_against_changes_of_others(client: Client) -> None:
    first = client.put(CLASS, {"rate": "500Mbit"})
    tag = first.headers["etag"]
    assert tag == f'"{first.json()["revision"]}"'
    assert client.put(CLASS, {"rate": "500Mbit"}).headers["etag"] == tag
    changed = client.call("PUT", CLASS, {"rate": "300Mbit"}, if_match=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    assert client.call("GET", CLASS).headers["etag"] == changed.headers["etag"]
    said = problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_match=tag), 412)
    assert changed.headers["etag"] in said["detail"]
    problem(client.call("DELETE", CLASS, if_match=tag), 412)
    assert client.call("GET", CLASS).json()["rate"] == "300Mbit"
    both = f"{tag}, {changed.headers['etag']}"
    assert client.call("DELETE", CLASS, if_match=both).status_code == 204


def test_conditions_on_what_is_there(client: Client) -> None:
    problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_match="*"), 412)
    problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_match='"1"'), 412)
    made = client.call("PUT", CLASS, {"rate": "1Mbit"}, if_none_match="*")
    assert made.status_code == 201
    problem(client.call("PUT", CLASS, {"rate": "2Mbit"}, if_none_match="*"), 412)
    assert client.call("PUT", CLASS, {"rate": "2Mbit"}, if_match="*").status_code == 200
    # A weak ETag is never equal in this comparison (RFC 9110 section 8.8.3.2).
    weak = "W/" + client.call("GET", CLASS).headers["etag"]
    problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_match=weak), 412)
    said = problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_match="17"), 422)
    assert [error["field"] for error in said["errors"]] == ["If-Match"]
    problem(client.call("PUT", CLASS, {"rate": "1Mbit"}, if_none_match='"17"'), 422)


def test_pages_and_filters(client: Client) -> None:
    classes = "/v1/switches/s1/classes"
    for number in range(5):
        spec = {"rate": "1Mbit"} if number % 2 else {"mode": "unpaced"}
        client.put(f"{classes}/c{number}", spec)
    seen = []
    path = f"{classes}?limit=2&prefix=c"
    while path is not None:
        answer = client.call("GET", path).json()
        assert answer["total"] == 5
        assert len(answer["classes"]) <= 2
        seen += [entry["name"] for entry in answer["classes"]]
        path = answer["next"]
    assert seen == ["c0", "c1", "c2", "c3", "c4"]
    paced = client.call("GET", f"{classes}?mode=static").json()
    assert [entry["name"] for entry in paced["classes"]] == ["c1", "c3"]
    assert client.call("GET", f"{classes}?state=applied").json()["total"] == 0
    client.put(FLOW, {"match": {}, "class": "c1"})
    assert client.call("GET", "/v1/switches/s1/flows?class=c1").json()["total"] == 1
    assert client.call("GET", "/v1/switches/s1/flows?class=c2").json()["total"] == 0
    for wrong in ("limit=0", "limit=10001", "limit=x"):
        problem(client.call("GET", f"{classes}?{wrong}"), 422)


def test_meter_by_name(client: Client) -> None:
    gold = "/v1/switches/s1/meters/gold"
    made = client.put(gold, {"cir": "50Mbit", "pir": "80Mbit"})
    assert made.status_code == 201
    assert made.json()["pir_bps"] == 80_000_000
    flow = client.put(FLOW, {"match": {"dst_port": 80}, "meter": "gold"}).json()
    assert (flow["meter_name"], flow["meter"]["cir"]) == ("gold", "50Mbit")
    client.put(gold, {"cir": "60Mbit"})
    assert client.call("GET", FLOW).json()["meter"]["cir"] == "60Mbit"
    assert "used by 'web'" in problem(client.call("DELETE", gold), 409)["detail"]
    said = problem(client.put(FLOW, {"match": {}, "meter": "glod"}), 422)
    assert "did you mean 'gold'?" in said["errors"][0]["message"]
    client.call("DELETE", FLOW)
    assert client.call("DELETE", gold).status_code == 204


def test_ranges_of_ports(client: Client) -> None:
    client.put(CLASS, {"rate": "1Mbit"})
    made = client.put(FLOW, {"match": {"dst_port": "5000-5999"}, "class": "video"})
    assert made.json()["match"] == {"dst_port": "5000-5999"}
    assert made.json()["entries"] == 9
    for wrong in ("5999-5000", "0-5", "1-65536", "5000", "a-b"):
        said = problem(client.put(FLOW, {"match": {"dst_port": wrong}, "class": "video"}), 422)
        assert said["errors"][0]["field"] == "match.dst_port"
    both = {"src_port": "1-65534", "dst_port": "1-65534"}
    problem(client.put(FLOW, {"match": both, "class": "video"}), 422)
    # Each entry has a meter of its own on this switch: the flow would get its rate nine times.
    metered = {"match": {"dst_port": "5000-5999"}, "meter": {"cir": "1Mbit"}}
    assert problem(client.put(FLOW, metered), 422)["errors"][0]["field"] == "meter"


def test_ports_of_a_switch(client: Client) -> None:
    port = "/v1/switches/s1/ports/2"
    problem(client.call("GET", port), 404)
    made = client.put(port, {"line_rate": "1Gbit", "delay_ns": 5})
    assert made.status_code == 201
    assert made.json()["desired"] == {"line_rate": "1Gbit", "delay_ns": 5}
    assert made.json()["state"] == "pending"
    # A request counts before the switch has the change.
    problem(client.put(CLASS, {"rate": "2Gbit"}), 422)
    client.put(CLASS, {"rate": "900Mbit", "port": 2})
    said = problem(client.put(port, {"line_rate": "100Mbit"}), 422)
    assert "class 'video'" in said["errors"][0]["message"]
    listed = client.call("GET", "/v1/switches/s1/ports").json()
    assert [entry["port"] for entry in listed["ports"]] == [2]
    problem(client.put(port, {"gap_mode": "empty"}), 422)
    without = {"line_rate": "none", "gap_mode": "pause-frames"}
    assert problem(client.put(port, without), 422)["errors"][0]["field"] == "line_rate"
    filled = {"line_rate": "1Gbit", "gap_mode": "pause-frames"}
    assert client.put(port, filled).json()["desired"] == filled
    longest = {**filled, "gap_frame_max_bytes": 9216}
    assert client.put(port, longest).json()["desired"] == longest
    for size_bytes in (59, 9217):
        problem(client.put(port, {**filled, "gap_frame_max_bytes": size_bytes}), 422)
    said = problem(client.put(port, {"gap_frame_max_bytes": 300}), 422)
    assert said["errors"][0]["field"] == "gap_frame_max_bytes"
    problem(client.put(port, {"line_rate": "fast"}), 422)
    problem(client.put("/v1/switches/s1/ports/0", {}), 422)
    assert client.put(port, {"line_rate": "none"}).status_code == 200
    assert client.call("DELETE", port).status_code == 204
    problem(client.call("DELETE", port), 404)

"""Requests and answers as Ryu's documentation of `rest_qos` has them."""

import json
from typing import Any

import httpx
import pytest

from pacer_controller.stores import SqliteStore, StoreError
from rest_client import Client, problem

S1 = "0000000000000001"


def call(client: Client, method: str, path: str, body: Any = None) -> httpx.Response:
    """Make a request as `curl -d` does: JSON that says it is a form."""
    content = json.dumps(body).encode() if body is not None else None
    return client.call(
        method, path, content=content, content_type="application/x-www-form-urlencoded"
    )


def result(client: Client, method: str, path: str, body: Any = None) -> Any:
    """Check the members around the command's result; return the result."""
    response = call(client, method, path, body)
    assert response.status_code == 200, response.text
    (one,) = response.json()
    assert one["switch_id"] == S1
    return one["command_result"]


QUEUES = {
    "type": "linux-htb",
    "max_rate": "1000000",
    "queues": [{"max_rate": "500000"}, {"min_rate": "800000"}],
}


def test_address_of_the_database(client: Client) -> None:
    path = f"/v1.0/conf/switches/{S1}/ovsdb_addr"
    assert call(client, "PUT", path, "tcp:127.0.0.1:6632").status_code == 201
    problem(call(client, "PUT", path, "127.0.0.1"), 400)


def test_queues(client: Client) -> None:
    assert result(client, "GET", f"/qos/queue/{S1}") == {
        "result": "failure",
        "details": "Queue is not exists.",
    }
    details = {
        "0": {"config": {"max-rate": "500000"}},
        "1": {"config": {"min-rate": "800000"}},
    }
    set_ = result(client, "POST", f"/qos/queue/{S1}", QUEUES)
    assert set_ == {"result": "success", "details": details}
    assert result(client, "GET", f"/qos/queue/{S1}") == {"result": "success", "details": details}
    classes = client.call("GET", "/v1/switches/s1/classes").json()["classes"]
    assert [(one["name"], one["rate_bps"]) for one in classes] == [
        ("queue-0", 500_000),
        ("queue-1", None),
    ]
    # Those set before are replaced.
    result(client, "POST", f"/qos/queue/{S1}", {"queues": [{"max_rate": "100000"}]})
    assert client.call("GET", "/v1/switches/s1/classes").json()["total"] == 1
    assert result(client, "DELETE", f"/qos/queue/{S1}") == "success"
    assert client.call("GET", "/v1/switches/s1/classes").json()["total"] == 0


def test_rule_for_a_flow(client: Client) -> None:
    result(client, "POST", f"/qos/queue/{S1}", QUEUES)
    body = {
        "match": {"nw_dst": "10.0.0.1", "nw_proto": "UDP", "tp_dst": "5002"},
        "actions": {"queue": "1"},
    }
    assert result(client, "POST", f"/qos/rules/{S1}", body) == [
        {"result": "success", "details": "QoS added. : qos_id=1"}
    ]
    assert result(client, "GET", f"/qos/rules/{S1}") == [
        {
            "qos": [
                {
                    "priority": 1,
                    "dl_type": "IPv4",
                    "nw_proto": "UDP",
                    "tp_dst": 5002,
                    "qos_id": 1,
                    "nw_dst": "10.0.0.1",
                    "actions": [{"queue": "1"}],
                }
            ]
        }
    ]
    flow = client.call("GET", "/v1/switches/s1/flows/qos-0-1").json()
    assert flow["class"] == "queue-1"
    # The same match again replaces the rule, as in OpenFlow.
    again = result(client, "POST", f"/qos/rules/{S1}", body | {"actions": {"queue": "0"}})
    assert again[0]["details"] == "QoS added. : qos_id=2"
    (rules,) = result(client, "GET", f"/qos/rules/{S1}")
    assert [rule["qos_id"] for rule in rules["qos"]] == [2]
    assert result(client, "DELETE", f"/qos/rules/{S1}", {"qos_id": "2"}) == [
        {"result": "success", "details": " deleted. : QoS ID=2"}
    ]
    assert result(client, "DELETE", f"/qos/rules/{S1}", {"qos_id": "2"}) == {
        "result": "failure",
        "details": "QoS rule is not exist. : QoS ID=2",
    }


def test_rules_by_dscp(client: Client) -> None:
    queues = [{"max_rate": "1000000"}, {"min_rate": "200000"}, {"min_rate": "500000"}]
    result(client, "POST", f"/qos/queue/{S1}", {"type": "linux-htb", "queues": queues})
    for dscp, queue in (("26", "1"), ("34", "2")):
        body = {"match": {"ip_dscp": dscp}, "actions": {"queue": queue}}
        result(client, "POST", f"/qos/rules/{S1}", body)
    (rules,) = result(client, "GET", f"/qos/rules/{S1}")
    assert [(r["dl_type"], r["ip_dscp"], r["actions"]) for r in rules["qos"]] == [
        ("IPv4", 26, [{"queue": "1"}]),
        ("IPv4", 34, [{"queue": "2"}]),
    ]
    assert result(client, "DELETE", f"/qos/rules/{S1}", {"qos_id": "all"}) == [
        {"result": "success", "details": " deleted. : QoS ID=1,2"}
    ]


def test_rules_of_a_vlan(client: Client) -> None:
    body = {"priority": "1", "match": {"ip_dscp": "26"}, "actions": {"queue": "0"}}
    del body["priority"]
    assert result(client, "POST", f"/qos/rules/{S1}/2", body) == [
        {"result": "success", "details": "QoS added. : qos_id=1", "vlan_id": 2}
    ]
    assert result(client, "GET", f"/qos/rules/{S1}") == []
    (of_vlan,) = result(client, "GET", f"/qos/rules/{S1}/2")
    assert of_vlan["vlan_id"] == 2
    assert of_vlan["qos"][0]["dl_vlan"] == 2
    assert result(client, "GET", f"/qos/rules/{S1}/all") == [of_vlan]
    problem(call(client, "GET", f"/qos/rules/{S1}/1"), 400)
    problem(call(client, "GET", f"/qos/rules/{S1}/4095"), 400)


def test_meter_that_drops(client: Client) -> None:
    body = {"meter_id": "1", "flags": "KBPS", "bands": [{"type": "DROP", "rate": "1000"}]}
    assert result(client, "POST", f"/qos/meter/{S1}", body) == [
        {"result": "success", "details": "Meter added. : Meter ID=1"}
    ]
    rule = {
        "match": {"in_port": "1", "nw_proto": "UDP", "dl_type": "IPv4"},
        "actions": {"meter": "1"},
    }
    result(client, "POST", f"/qos/rules/{S1}", rule)
    (rules,) = result(client, "GET", f"/qos/rules/{S1}")
    assert rules["qos"][0]["actions"] == [{"meter": "1"}]
    flow = client.call("GET", "/v1/switches/s1/flows/qos-0-1").json()
    assert (flow["meter_name"], flow["meter"]["cir"], flow["meter"]["drop_red"]) == (
        "meter-1",
        "1Mbit",
        True,
    )
    said = result(client, "GET", f"/qos/meter/{S1}")["1"]
    assert said[0]["bands"] == [{"type": "DROP", "rate": 1000}]
    problem(call(client, "DELETE", f"/qos/meter/{S1}", {"meter_id": "1"}), 409)
    result(client, "DELETE", f"/qos/rules/{S1}", {"qos_id": "all"})
    assert result(client, "DELETE", f"/qos/meter/{S1}", {"meter_id": "1"}) == {
        "result": "success",
        "details": "Meter deleted. : Meter ID=1",
    }


def test_meter_that_remarks(client: Client) -> None:
    band = {"type": "DSCP_REMARK", "rate": "400", "prec_level": "1"}
    result(client, "POST", f"/qos/meter/{S1}", {"meter_id": "1", "flags": "KBPS", "bands": [band]})
    rule = {"match": {"ip_dscp": "10"}, "actions": {"meter": "1"}}
    result(client, "POST", f"/qos/rules/{S1}", rule)
    meter = client.call("GET", "/v1/switches/s1/flows/qos-0-1").json()["meter"]
    # AF11 becomes AF12 above 400 kbit/s, for any colour.
    assert (meter["cir"], meter["yellow_dscp"], meter["red_dscp"]) == ("400kbit", 12, 12)
    assert meter["drop_red"] is False


def test_all_switches(client: Client) -> None:
    rule = {"match": {"ip_dscp": "26"}, "actions": {"queue": "1"}}
    said = call(client, "POST", "/qos/rules/all", rule).json()
    # Only switches with queues are meant.
    assert [one["switch_id"] for one in said] == [S1]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/qos/rules/00000000000000ff", None),
        ("POST", f"/qos/rules/{S1}", {"match": {"nw_proto": "TCP"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"dl_type": "IPX"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"colour": "red"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"nw_dst": "nowhere"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"ip_dscp": "64"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"priority": "65535", "ip_dscp": "1"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"ip_dscp": "1"}, "actions": {"meter": "7"}}),
        ("POST", f"/qos/rules/{S1}", {"match": {"ip_dscp": "1"}, "actions": {"mark": "26"}}),
        ("POST", f"/qos/rules/{S1}", {"match": [], "actions": {"queue": "1"}}),
        ("POST", f"/qos/rules/{S1}", []),
        ("POST", f"/qos/queue/{S1}", {"queues": [{}]}),
        ("POST", f"/qos/queue/{S1}", {"queues": [{"max_rate": "-1"}]}),
        ("POST", f"/qos/queue/{S1}", {"queues": [{"max_rate": "fast"}]}),
        ("POST", f"/qos/queue/{S1}", {"port_name": "s1-eth9", "queues": []}),
        ("POST", f"/qos/meter/{S1}", {"meter_id": "1", "flags": "PKTPS", "bands": []}),
        ("POST", f"/qos/meter/{S1}", {"meter_id": "1", "bands": [{"type": "DROP"}]}),
        ("DELETE", f"/qos/rules/{S1}", {"qos_id": "x"}),
    ],
)
def test_wrong_requests(client: Client, method: str, path: str, body: Any) -> None:
    problem(call(client, method, path, body), 400)
    assert client.call("GET", "/v1/switches/s1/state").json() == {
        "ports": {},
        "classes": {},
        "meters": {},
        "flows": {},
    }


def test_bodies_that_are_no_json(client: Client) -> None:
    for method, content in (("POST", b"{"), ("DELETE", b"x" * (1024 * 1024 + 1))):
        answer = client.call(method, f"/qos/rules/{S1}", content=content)
        assert answer.status_code in (400, 413)


@pytest.mark.parametrize(
    "path",
    [
        f"/qos/queue/{S1}",
        f"/qos/rules/{S1}",
        f"/qos/rules/{S1}/2",
        f"/qos/meter/{S1}",
        f"/v1.0/conf/switches/{S1}/ovsdb_addr",
    ],
)
def test_reads_see_what_other_controllers_have_acknowledged(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def fails() -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(SqliteStore, "shared", True)
    monkeypatch.setattr(client.store, "catch_up", fails)
    said = problem(client.call("GET", path), 503)
    assert said["type"] == "urn:pacer:problem:not-current"
    assert client.call("GET", path, cache_control="max-stale").status_code == 200
    assert client.call("GET", f"/qos/queue/status/{S1}").status_code == 200


def test_changes_are_planned_again_on_what_other_controllers_have_acknowledged(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may not yet have the meter, the rule and the meter that are asked for."""
    meter = {"meter_id": "1", "bands": [{"type": "DROP", "rate": "1000"}]}
    rule = {"match": {"ip_dscp": "26"}, "actions": {"meter": "1"}}
    found = client.service.switch("s1")
    late: list[tuple[str, Any, Any]] = []

    async def catch_up() -> None:
        while late:
            found.desired.set(*late.pop())

    monkeypatch.setattr(SqliteStore, "shared", True)
    monkeypatch.setattr(client.store, "catch_up", catch_up)

    def hide(kind: str, name: str) -> None:
        late.append((kind, name, found.desired.resources[kind][name]))
        found.desired.set(kind, name, None)

    result(client, "POST", f"/qos/meter/{S1}", meter)
    hide("meter", "meter-1")
    result(client, "POST", f"/qos/rules/{S1}", rule)
    assert not late
    hide("flow", "qos-0-1")
    (deleted,) = result(client, "DELETE", f"/qos/rules/{S1}", {"qos_id": "1"})
    assert deleted["result"] == "success"
    assert not found.desired.flows
    hide("meter", "meter-1")
    result(client, "DELETE", f"/qos/meter/{S1}", meter)
    assert not found.desired.meters
    # Deleting a meter that does not exist succeeds.
    result(client, "DELETE", f"/qos/meter/{S1}", meter)

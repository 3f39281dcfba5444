"""The whole desired state as one document; switches as resources; the events of changes."""

from pathlib import Path
from typing import Any

import pytest

from controller_harness import free_port
from rest_client import Client, problem

STATE = "/v1/state"
OF_S1 = "/v1/switches/s1/state"

VIDEO = {
    "classes": {"video": {"rate": "500Mbit"}, "bulk": {"mode": "unpaced"}},
    "meters": {"gold": {"cir": "5Mbit"}},
    "flows": {
        "web": {"match": {"dst_port": 80}, "class": "video"},
        "own": {"match": {"dst_port": "5000-5003"}, "rate": "1Mbit"},
        "metered": {"match": {"src": "10.0.0.0/8"}, "class": "bulk", "meter": "gold"},
    },
    "ports": {"2": {"line_rate": "1Gbit"}},
}


def test_what_is_got_can_be_put(client: Client) -> None:
    made = client.put(OF_S1, VIDEO).json()
    assert made["summary"] == {"create": 7, "update": 0, "delete": 0, "unchanged": 0}
    assert made["switches"] == {"s1": "pending"}
    whole = client.call("GET", STATE)
    assert whole.json()["switches"]["s1"]["classes"]["video"]["rate"] == "500Mbit"
    again = client.call("PUT", STATE, whole.json(), if_match=whole.headers["etag"]).json()
    assert again["summary"] == {"create": 0, "update": 0, "delete": 0, "unchanged": 7}
    assert again["changes"] == []
    assert client.call("GET", STATE).headers["etag"] == whole.headers["etag"]


def test_put_makes_it_exactly_this(client: Client) -> None:
    client.put(OF_S1, VIDEO)
    own = client.call("GET", "/v1/switches/s1/flows/own").json()
    result = client.put(
        OF_S1,
        {
            "classes": {"video": {"rate": "300Mbit"}},
            "flows": {"own": {"match": {"dst_port": 80}, "rate": "1Mbit"}},
        },
    ).json()
    assert result["summary"] == {"create": 0, "update": 2, "delete": 5, "unchanged": 0}
    (video,) = client.call("GET", "/v1/switches/s1/classes").json()["classes"]
    assert (video["name"], video["rate"]) == ("video", "300Mbit")
    (flow,) = client.call("GET", "/v1/switches/s1/flows").json()["flows"]
    # It took over the match of another flow, and kept its class on the switch.
    assert flow["match"] == {"dst_port": 80}
    assert flow["class_index"] == own["class_index"]
    assert client.call("GET", "/v1/switches/s1/meters").json()["total"] == 0


def test_dry_run_says_and_changes_nothing(client: Client) -> None:
    client.put(OF_S1, VIDEO)
    before = client.call("GET", STATE)
    said = client.put(OF_S1 + "?dry_run=true", {"classes": {"video": {"rate": "300Mbit"}}}).json()
    assert said["dry_run"] is True
    assert said["summary"]["delete"] == 6
    (update,) = [change for change in said["changes"] if change["op"] == "update"]
    assert (update["kind"], update["switch"], update["name"]) == ("class", "s1", "video")
    assert update["before"]["rate"] == "500Mbit"
    assert update["after"]["rate"] == "300Mbit"
    after = client.call("GET", STATE)
    assert after.json() == before.json()
    assert after.headers["etag"] == before.headers["etag"]
    # Its class numbers are not taken, either.
    assert client.put("/v1/switches/s1/classes/x", {"rate": "1Mbit"}).json()["index"] == 4


def wrong(**members: Any) -> dict[str, Any]:
    return {**VIDEO, **members}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (wrong(classes={}), "flows.web.class"),
        (wrong(meters={}), "flows.metered.meter"),
        (wrong(classes={"video": {"rate": "fast"}}), "classes.video.rate"),
        (wrong(classes={"video": {"rate": "2Gbit"}, "bulk": {}}), "classes.video.rate"),
        (wrong(flows={"f": {"match": {"src": "x"}, "rate": "1Mbit"}}), "flows.f.match.src"),
        (wrong(flows={"f": {"match": {}, "meter": {"cir": 1}}}), "flows.f.meter.cir"),
        (wrong(ports={"0": {}}), "ports.0"),
        (wrong(ports={"x": {}}), "ports.x"),
        (wrong(classes={"no/slash": {"rate": "1Mbit"}}), "classes.no/slash"),
        (wrong(colours={}), "colours"),
        ([], "body"),
        (wrong(classes=[]), "classes"),
        (wrong(classes={"video": {"rat": "1Mbit"}}), "classes.video.rat"),
    ],
)
def test_wrong_state_changes_nothing(client: Client, body: Any, field: str) -> None:
    client.put(OF_S1, {"classes": {"old": {"rate": "1Mbit"}}})
    said = problem(client.put(OF_S1, body), 422)
    assert field in [error["field"].removesuffix(".[key]") for error in said["errors"]]
    assert list(client.call("GET", OF_S1).json()["classes"]) == ["old"]
    if isinstance(body, dict):
        inside = problem(client.put(STATE, {"switches": {"s1": body}}), 422)
        fields = [error["field"].removesuffix(".[key]") for error in inside["errors"]]
        assert f"switches.s1.{field}" in fields


def test_unknown_field_says_which_was_meant(client: Client) -> None:
    said = problem(client.put(OF_S1, {"classes": {"video": {"rat": "1Mbit"}}}), 422)
    assert "did you mean 'rate'?" in said["errors"][0]["message"]


def test_two_flows_of_one_match(client: Client) -> None:
    flow = {"match": {"dst_port": 80}, "rate": "1Mbit"}
    for query in ("", "?dry_run=true"):
        said = problem(client.put(OF_S1 + query, {"flows": {"a": flow, "b": flow}}), 409)
        assert said["type"] == "urn:pacer:problem:duplicate-match"
        assert client.call("GET", OF_S1).json()["flows"] == {}
    assert client.put(OF_S1, {"flows": {"a": flow}}).status_code == 200


def test_stale_state(client: Client) -> None:
    tag = client.call("GET", OF_S1).headers["etag"]
    changed = client.call("PUT", OF_S1, VIDEO, if_match=tag)
    assert changed.status_code == 200
    problem(client.call("PUT", OF_S1, {}, if_match=tag), 412)
    assert client.call("PUT", OF_S1, {}, if_match=changed.headers["etag"]).status_code == 200


def test_switches_come_and_go(client: Client) -> None:
    path = "/v1/switches/s9"
    settings = {"kind": "p4runtime", "address": f"127.0.0.1:{free_port()}"}
    made = client.put(path, settings)
    assert made.status_code == 201, made.text
    assert made.json()["configured"] is False
    assert client.put(path + "/classes/video", {"rate": "1Mbit"}).status_code == 201
    assert client.put(path, settings).status_code == 200
    moved = client.put(path, settings | {"address": f"127.0.0.1:{free_port()}"})
    assert moved.status_code == 200
    assert moved.json()["classes"] == 1
    # The desired state is the same, and no class number is assigned twice.
    assert client.put(path + "/classes/x", {"rate": "1Mbit"}).json()["index"] == 2
    twin = client.put("/v1/switches/s10", {"address": moved.json()["address"]})
    assert problem(twin, 409)["type"] == "urn:pacer:problem:duplicate-switch"
    tag = moved.headers["etag"]
    problem(client.call("DELETE", path, if_match='"1"'), 412)
    assert client.call("DELETE", path, if_match=tag).status_code == 204
    problem(client.call("GET", path), 404)
    client.put(path, settings)
    assert client.call("GET", path + "/classes").json()["total"] == 0


def test_configured_switches_stay(client: Client) -> None:
    problem(client.call("DELETE", "/v1/switches/s1"), 409)
    problem(client.put("/v1/switches/s1", {"address": "127.0.0.1:1"}), 409)
    client.put("/v1/switches/s1/classes/video", {"rate": "1Mbit"})
    result = client.put(STATE, {"switches": {}}).json()
    assert result["summary"]["delete"] == 1
    assert [s["name"] for s in client.call("GET", "/v1/switches").json()["switches"]] == [
        "s1",
        "wan",
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"address": "nowhere"},
        {"address": "127.0.0.1:9", "program": "pacer", "wire": ["1:2"]},
        {"address": "127.0.0.1:9", "kind": "abacus"},
        {"address": "127.0.0.1:9", "device_id": -1},
        {"kind": "openvswitch"},
        {"address": "127.0.0.1:9", "colour": "red"},
    ],
)
def test_wrong_switch(client: Client, body: Any) -> None:
    assert problem(client.put("/v1/switches/s9", body), 422)["errors"]
    problem(client.call("GET", "/v1/switches/s9"), 404)


def test_switches_by_the_whole_state(client: Client) -> None:
    settings = {"kind": "p4runtime", "address": f"127.0.0.1:{free_port()}"}
    body = {"switches": {"s9": {"switch": settings, "classes": {"video": {"rate": "1Mbit"}}}}}
    said = client.put(STATE + "?dry_run=true", body).json()
    assert [(c["op"], c["kind"], c["name"]) for c in said["changes"]] == [
        ("create", "switch", "s9"),
        ("create", "class", "video"),
    ]
    problem(client.call("GET", "/v1/switches/s9"), 404)
    assert client.put(STATE, body).status_code == 200
    assert client.call("GET", "/v1/switches/s9/classes/video").json()["rate"] == "1Mbit"
    problem(client.put(STATE, {"switches": {"s8": {}}}), 404)
    assert client.put(STATE, {"switches": {}}).json()["summary"]["delete"] == 2
    problem(client.call("GET", "/v1/switches/s9"), 404)


def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    first = Client(state)
    first.put("/v1/switches/s9", {"address": f"127.0.0.1:{free_port()}"})
    first.put("/v1/switches/s9/state", VIDEO)
    said = first.call("GET", "/v1/switches/s9/state").json()
    tag = first.call("GET", "/v1/switches/s9/classes/video").headers["etag"]
    first.store.shut()
    second = Client(state)
    assert second.call("GET", "/v1/switches/s9/state").json() == said
    assert second.call("GET", "/v1/switches/s9/classes/video").headers["etag"] == tag
    second.store.shut()

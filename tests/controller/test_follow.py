"""The setting `follow` of a class over REST, and the controller's reaction to a reading."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from controller_harness import free_port
from pacer_controller.following import CLASSES_MOST, FollowSpec
from pacer_controller.p4rt import bandwidth
from pacer_controller.service.follow import Followed, Follower
from pacer_controller.southbound import State, SwitchUnreadableError, VirtualQueue
from rest_client import Client, problem

CLASS = "/v1/switches/s1/classes/video"
MS = 1_000_000
FOLLOW = {
    "switch": "wan",
    "port": 1,
    "fifo_bytes": 65_536,
    "least_rate": "10Mbit",
    "most_rate": "500Mbit",
}


def test_a_class_shows_what_it_follows(client: Client) -> None:
    made = client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW})
    assert made.status_code == 201, made.text
    assert made.json()["follow"] == FOLLOW
    assert client.call("GET", CLASS).json()["follow"] == FOLLOW


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"rate": "5Mbit"}, "rate"),
        ({"rate": "600Mbit"}, "rate"),
        ({"mode": "pspd", "rate": None}, "follow"),
        ({"follow": FOLLOW | {"least_rate": "501Mbit"}}, "follow.least_rate"),
        ({"follow": FOLLOW | {"fifo_bytes": 1518}}, "follow.fifo_bytes"),
        ({"follow": FOLLOW | {"port": 4}}, "follow.port"),
        ({"follow": FOLLOW | {"port": 3}}, "follow.port"),
        ({"follow": FOLLOW | {"switch": "lan"}}, "follow.switch"),
        ({"follow": FOLLOW | {"switch": "s1"}}, "follow.switch"),
    ],
)
def test_what_a_class_cannot_follow(client: Client, changed: dict[str, Any], field: str) -> None:
    refused = client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW} | changed)
    found = problem(refused, 422)
    assert field in {error["field"] for error in found["errors"]}, found


def test_a_class_follows_a_port_of_a_wire(client: Client) -> None:
    """No packet comes in at another port, so the rate would never change."""
    refused = client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW | {"port": 3}})
    (error,) = problem(refused, 422)["errors"]
    assert error["message"] == "no wire of switch 'wan' has port 3"
    assert error["expected"] == "one of 1, 2"
    assert client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW | {"port": 2}}).status_code == 201


def test_a_limited_number_of_classes_follow(client: Client) -> None:
    for number in range(CLASSES_MOST):
        path = f"/v1/switches/s1/classes/c{number}"
        assert client.put(path, {"rate": "400Mbit", "follow": FOLLOW}).status_code == 201
    refused = problem(client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW}), 422)
    assert refused["errors"][0]["field"] == "follow"
    # One that follows already may change.
    changed = {"rate": "300Mbit", "follow": FOLLOW}
    assert client.put("/v1/switches/s1/classes/c0", changed).status_code == 200


OF_S1 = "/v1/switches/s1/state"
STATE = "/v1/state"


@pytest.mark.parametrize("switch", ["lan", "s1"])
def test_a_state_names_a_switch_that_measures(client: Client, switch: str) -> None:
    """As a request for one class does, whether the state is of one switch or of all."""
    body = {"classes": {"video": {"rate": "400Mbit", "follow": FOLLOW | {"switch": switch}}}}
    found = problem(client.put(OF_S1, body), 422)
    assert [error["field"] for error in found["errors"]] == ["classes.video.follow.switch"]
    found = problem(client.put(STATE, {"switches": {"s1": body}}), 422)
    assert [error["field"] for error in found["errors"]] == [
        "switches.s1.classes.video.follow.switch"
    ]
    assert client.call("GET", OF_S1).json()["classes"] == {}


def measuring(**settings: Any) -> dict[str, Any]:
    """Return the settings of a switch that runs gtrcnet."""
    # Another host than that of the other switches: a free port may be found twice.
    address = f"127.0.0.2:{free_port()}"
    return {"address": address, "program": "gtrcnet", "wire": ["1:2"], **settings}


def test_a_state_may_bring_the_switch_that_it_follows(client: Client) -> None:
    following = {"video": {"rate": "400Mbit", "follow": FOLLOW | {"switch": "far"}}}
    body = {
        "switches": {
            "s1": {"classes": following},
            "far": {"switch": measuring(bottleneck="500Mbit")},
        }
    }
    assert client.put(STATE, body).status_code == 200
    whole = client.call("GET", STATE).json()
    assert client.put(STATE, whole).json()["summary"]["update"] == 0
    # Without it, nothing could be followed any longer.
    body["switches"].pop("far")
    found = problem(client.put(STATE, body), 422)
    assert found["errors"][0]["field"] == "switches.s1.classes.video.follow.switch"


def test_a_state_has_a_limited_number_of_classes_that_follow(client: Client) -> None:
    one = {"rate": "400Mbit", "follow": FOLLOW}
    body = {"classes": {f"c{number:02}": one for number in range(CLASSES_MOST)}}
    assert client.put(OF_S1, body).status_code == 200
    assert client.put(OF_S1, body).status_code == 200
    body["classes"]["video"] = one
    found = problem(client.put(OF_S1, body), 422)
    assert [error["field"] for error in found["errors"]] == ["classes.video.follow"]


def test_a_switch_that_is_followed_keeps_its_bottleneck(client: Client) -> None:
    path = "/v1/switches/far"
    settings = measuring(bottleneck="500Mbit")
    assert client.put(path, settings).status_code == 201
    follow = FOLLOW | {"switch": "far"}
    assert client.put(CLASS, {"rate": "400Mbit", "follow": follow}).status_code == 201
    without = {name: value for name, value in settings.items() if name != "bottleneck"}
    rewired = settings | {"wire": ["2:3"]}
    for refused in (
        *(client.call("DELETE", path), client.put(path, without)),
        client.put(path, rewired),
    ):
        found = problem(refused, 409)
        assert found["type"] == "urn:pacer:problem:switch-in-use"
        assert "class 'video' on switch 's1'" in found["detail"]
    assert client.put(path, settings | {"bottleneck": "400Mbit"}).status_code == 200
    assert client.put(CLASS, {"rate": "400Mbit"}).status_code == 200
    assert client.put(path, without).status_code == 200
    # It still measures bandwidth, but has no queue to follow.
    found = problem(client.put(CLASS, {"rate": "400Mbit", "follow": follow}), 422)
    assert found["errors"][0]["field"] == "follow.switch"
    assert client.call("DELETE", path).status_code == 204


class Bottleneck:
    """Answers with given readings, one after the other; None: unreadable."""

    def __init__(self, *readings: VirtualQueue | None) -> None:
        self._readings = list(readings)

    bottleneck_ports = (1, 2)

    async def queue(self, _port: int) -> VirtualQueue | None:
        """Return the next reading."""
        found = self._readings.pop(0)
        if found is None:
            raise SwitchUnreadableError("away")
        return found


def stepped(
    client: Client, monkeypatch: pytest.MonkeyPatch, *readings: VirtualQueue | None
) -> dict[str, Any]:
    """Return the class after a step for each reading."""
    service = client.service
    client.put(CLASS, {"rate": "400Mbit", "follow": FOLLOW})
    driver = type(service.switches["wan"].driver)
    bottleneck = Bottleneck(*readings)
    monkeypatch.setattr(driver, "measuring", property(lambda _: bottleneck))
    monkeypatch.setattr(driver, "state", property(lambda _: State.CONNECTED))
    # Changes are stored and would be on the switch once it is back.
    monkeypatch.setattr(driver, "apply", _applied)
    follower = Follower(service)
    followed = [Followed("s1", "video", FollowSpec.model_validate(FOLLOW))]

    async def steps() -> None:
        for _ in readings:
            await follower.step(followed)

    asyncio.run(steps())
    return dict(client.call("GET", CLASS).json())


async def _applied(*_: Any, **__: Any) -> bool:
    return True


def queued(ms: int, queue_bytes: int) -> VirtualQueue:
    return VirtualQueue(ms * MS, queue_bytes, (ms // 100 - 1) * 100 * MS, 5_000_000, queue_bytes)


GROWING = (queued(1_000, 1_518), queued(1_050, 1_518), queued(1_100, 31_518))


def test_a_queue_lowers_the_rate_and_an_event_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30,000 bytes in 50 ms are 4.8 Mbit/s too much; half a second drains 31,518 at 504 kbit/s."""
    found = stepped(client, monkeypatch, *GROWING)
    assert found["rate_bps"] == 400_000_000 - 4_800_000 - 505_000
    newest = client.service.events.select(kinds=["change"])[-1]
    assert newest["data"]["actor"] == "follow"
    assert newest["data"]["path"] == "wan port 1: queue 31518 bytes"
    assert "video" in newest["message"]
    assert "rate 400Mbit -> 394.695Mbit" in newest["message"]


def test_a_bottleneck_that_cannot_be_read_changes_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stepped(client, monkeypatch, *GROWING[:2], None)
    assert found["rate_bps"] == 400_000_000


def test_without_a_class_that_follows_nothing_is_read(client: Client) -> None:
    """It waits for an event, and is cancelled as the service stops."""
    client.put(CLASS, {"rate": "400Mbit"})

    async def run() -> None:
        following = asyncio.create_task(Follower(client.service).run())
        done, _ = await asyncio.wait([following], timeout=0.01)
        assert not done
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    asyncio.run(run())


def test_the_queue_is_read_with_its_last_whole_window() -> None:
    window = 41 * 100
    cells = {
        "vb_last_ns": {1: window * 100 * MS + 150 * MS},
        "vb_now_q24": {1: (70_000 << 24) + 5},
        "window_id": {4096 + window % 4096: window},
        "window_bytes": {4096 + window % 4096: 5_000_000},
        "window_vb_max_bytes": {4096 + window % 4096: 90_000},
    }

    async def registers(name: str, indices: Iterable[int]) -> dict[int, int]:
        known = cells[name.removeprefix("GtrcnetIngress.")]
        return {index: known.get(index, 0) for index in indices}

    found = asyncio.run(bandwidth.queue(registers, 1))
    at_ns = window * 100 * MS + 150 * MS
    assert found == VirtualQueue(at_ns, 70_000, window * 100 * MS, 5_000_000, 90_000)
    # A cell that belongs to another turn of the ring: nothing came in the window.
    cells["window_id"] = {4096 + window % 4096: window - 4096}
    found = asyncio.run(bandwidth.queue(registers, 1))
    assert found == VirtualQueue(at_ns, 70_000, window * 100 * MS, 0, 0)
    assert asyncio.run(bandwidth.queue(registers, 2)) is None

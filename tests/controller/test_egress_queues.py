"""Egress queues of ports as desired state: what is refused, and what a real switch then has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from controller_harness import TARGET, Controller, Network, Switch, eventually, free_port
from pacer_controller import egress_queues
from pacer_controller.cli.main import main as pacer
from pacer_controller.egress_queues import EgressQueuesSpec
from pacer_controller.southbound import PortInfo
from rest_client import Client, problem

PORT = "/v1/switches/s1/ports/2"
QUEUES = {
    "queues": 3,
    "scheduler": "wfq:4:2:1",
    "aqm": "codel",
    "settings": [{"queue": 0, "rate": "10Mbit", "packets": 64}, {"queue": 2, "aqm": "none"}],
}


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.store.shut()


def test_queues_are_kept_with_the_port(client: Client) -> None:
    port = {"line_rate": "100Mbit", "egress_queues": QUEUES}
    made = client.put(PORT, port)
    assert (made.status_code, made.json()["desired"]) == (201, port)
    assert made.json()["egress_queues"] is None
    etag = made.headers["etag"]
    other = client.call("PUT", PORT, {"egress_queues": "none"}, if_match='"0"')
    problem(other, 412)
    fifo = client.call("PUT", PORT, {"egress_queues": "none"}, if_match=etag)
    assert fifo.json()["desired"] == {"egress_queues": "none"}


@pytest.mark.parametrize(
    ("queues", "field", "message"),
    [
        ({"queues": 0}, "queues", "0 is not allowed"),
        ({"queues": 65}, "queues", "65 is not allowed"),
        ({}, "queues", ""),
        ({"queues": 2, "scheduler": "wfq 1 1"}, "scheduler", "'wfq 1 1' is no scheduler"),
        ({"queues": 2, "scheduler": "wfq:1"}, "scheduler", "1 weights for 2 queues"),
        (
            {"queues": 2, "scheduler": "strict{q1+q2}"},
            "scheduler",
            "q2: the port has queues 0 to 1",
        ),
        (
            {"queues": 2, "scheduler": "strict{q1+wfq{q0}:rate=101mbit}"},
            "scheduler",
            "rate 101mbit is above the line rate, 100Mbit",
        ),
        ({"queues": 2, "aqm": "cake"}, "aqm", "'cake' is no active queue management"),
        (
            {"queues": 2, "settings": [{"queue": 1, "aqm": "codel:soon"}]},
            "settings.0.aqm",
            "'soon' is not a time such as 5ms",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "rate": "1Mbit", "min_rate": "2Mbit"}]},
            "settings.0.min_rate",
            "queue 1: 2Mbit is above the rate, 1Mbit",
        ),
        (
            {"queues": 2, "settings": [{"queue": n, "min_rate": "51Mbit"} for n in (0, 1)]},
            "scheduler",
            "all minimum rates together, 102Mbit, are above the line rate, 100Mbit",
        ),
        ({"queues": 2, "colour": "red"}, "colour", ""),
        ({"queues": 2, "buffer_bytes": "all"}, "buffer_bytes", "'all' is no buffer"),
        ({"queues": 2, "buffer_bytes": 0}, "buffer_bytes", "0 is no buffer"),
        (
            {"queues": 2, "settings": [{"queue": 2}]},
            "settings.0.queue",
            "queue 2: the port has queues 0 to 1",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1}, {"queue": 1}]},
            "settings.1.queue",
            "queue 1 is given twice",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "burst_bytes": 9000}]},
            "settings.0.burst_bytes",
            "only a rate has a burst",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "rate": "101Mbit"}]},
            "settings.0.rate",
            "queue 1: 101Mbit is above the line rate, 100Mbit",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "packets": 0}]},
            "settings.0.packets",
            "0 is not allowed",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "packets": 2**32 + 1}]},
            "settings.0.packets",
            "4294967297 is not allowed",
        ),
    ],
)
def test_wrong_settings_are_named(
    client: Client, queues: dict[str, object], field: str, message: str
) -> None:
    client.service.switches["s1"].driver.ports = [PortInfo(2, line_rate_bps=10**8)]
    for more in ({}, {"line_rate": "100Mbit"}):
        (error,) = problem(client.put(PORT, {**more, "egress_queues": queues}), 422)["errors"]
        assert error["field"] == f"egress_queues.{field}"
        assert message in error["message"]
        assert error["expected"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"queue": 1, "limit": 3}, "one of queue, fifo_bytes, "),
        ({"queue": 64}, "less than 64"),
    ],
)
def test_a_wrong_field_of_a_queue_says_what_there_is(
    client: Client, setting: dict[str, object], expected: str
) -> None:
    body = {"egress_queues": {"queues": 3, "settings": [setting]}}
    (error,) = problem(client.put(PORT, body), 422)["errors"]
    assert error["expected"].startswith(expected)


def test_a_line_too_slow_for_a_queue_is_refused(client: Client) -> None:
    queues = {"queues": 1, "settings": [{"queue": 0, "rate": "10Mbit"}]}
    assert client.put(PORT, {"line_rate": "10Mbit", "egress_queues": queues}).status_code == 201
    slower = {"line_rate": "9Mbit", "egress_queues": queues}
    (error,) = problem(client.put(PORT, slower), 422)["errors"]
    assert error["field"] == "egress_queues.settings.0.rate"


def test_switches_without_them_refuse(client: Client) -> None:
    other = {"kind": "p4runtime", "address": "127.0.0.1:1", "target": "bmv2", "ports": "1-2"}
    assert client.put("/v1/switches/other", other).status_code == 201
    body = {"egress_queues": {"queues": 2}}
    (error,) = problem(client.put("/v1/switches/other/ports/2", body), 422)["errors"]
    assert error["field"] == "egress_queues"
    assert "have no egress queues; those of a pacing_switch and of Open vSwitch" in error["message"]
    # A FIFO is what its ports have.
    assert client.put("/v1/switches/other/ports/2", {"egress_queues": "none"}).status_code == 201


def test_settings_have_one_form() -> None:
    spec = EgressQueuesSpec.model_validate(
        {
            "queues": 3,
            "settings": [
                {"queue": 2, "rate": "1Mbit", "burst_bytes": 1518},
                {"queue": 1},
                {"queue": 0, "fifo_bytes": 9},
            ],
        }
    )
    of_switch = {
        "queues": 3,
        "scheduler": "strict",
        "aqm": "none",
        "settings": [{"queue": 0, "fifo_bytes": 9}, {"queue": 2, "rate_bps": 1_000_000}],
    }
    assert egress_queues.plain(spec.wanted()) == of_switch
    assert egress_queues.text(spec.wanted()) == egress_queues.text(of_switch)
    assert egress_queues.read(egress_queues.text(of_switch)) == of_switch
    assert egress_queues.read(egress_queues.text(None)) is None


def test_the_buffer_of_the_switch_is_a_member_of_its_message() -> None:
    spec = EgressQueuesSpec.model_validate(
        {
            "queues": 2,
            "buffer_bytes": "switch",
            "settings": [{"queue": 1, "buffer_share_ppm": 500_000}],
        }
    )
    assert not spec.problems()
    message = egress_queues.message(egress_queues.plain(spec.wanted()))
    assert message["switch_buffer"] is True
    assert "buffer_bytes" not in message
    assert egress_queues.plain(message) == egress_queues.plain(spec.wanted())


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: the ports of bmv2 have no egress queues")
def test_a_switch_has_them_and_gets_them_back(
    wires: Network, start_controller: Callable[..., Controller], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after a restart of the switch; what it refuses changes nothing."""
    switch = Switch(wires, {2: "rate=100mbit,queues=2"}, "--switch-buffer", "1MB")
    switch.start()
    try:
        controller = start_controller("--switch", f"s1={switch.address}{switch.options}")
        controller.wait_connected()
        assert controller.get(PORT)["egress_queues"]["queues"] == 2
        made = controller.put(PORT, {"egress_queues": QUEUES})
        assert (made.status_code, made.json()["state"]) == (201, "applied")
        actual = {
            "queues": 3,
            "scheduler": "wfq:4:2:1",
            "aqm": "codel",
            "settings": [
                {"queue": 0, "fifo_packets": 64, "rate_bps": 10_000_000},
                {"queue": 2, "aqm": "none"},
            ],
        }
        assert controller.get(PORT)["egress_queues"] == actual
        wrong = {"egress_queues": {"queues": 3, "scheduler": "wfq:1:0:1"}}
        refused = controller.put(PORT, wrong)
        assert refused.status_code == 422, refused.text
        assert "weight 0 is not between 1 and 65536" in refused.text
        # The switch takes each kind of words that the controller takes.
        held = "strict{q2+wfq{paced:4+q1+q0}}"
        for scheduler in (
            "drr:1:2:3",
            held,
            "strict{q2+wfq{q1:4+drr{q0}:2:min=1mbit}:rate=40mbit}",
        ):
            for aqm in ("fq_codel:1ms", "pie:20ms:ecn", "dualpi2", "red:30KB:90KB:0.1"):
                body = {"egress_queues": {"queues": 3, "scheduler": scheduler, "aqm": aqm}}
                taken = controller.put(PORT, body)
                assert (taken.status_code, taken.json()["state"]) == (200, "applied"), taken.text
        controller.put(PORT, {"egress_queues": QUEUES | {"buffer_bytes": "switch"}})
        assert controller.get(PORT)["egress_queues"] == actual | {"buffer_bytes": "switch"}
        totals = controller.get("/v1/switches/s1/stats")["traffic_manager"]
        assert totals["buffer"]["size_bytes"] == 2**20
        controller.put(PORT, {"egress_queues": QUEUES})
        assert controller.get(PORT)["egress_queues"] == actual
        check_commands(controller, capsys)
        controller.put(PORT, {"egress_queues": QUEUES})
        switch.kill()
        switch.start()

        def again() -> bool:
            return bool(controller.get(PORT)["egress_queues"] == actual)

        eventually(again, "the switch has the queues again")
        controller.wait_connected()
        assert controller.get("/v1/switches/s1")["counters"]["drift_entries"] == 0
    finally:
        switch.kill()


def check_commands(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    """Set and unset queues on the command line; export and apply them."""

    def run(*words: str) -> str:
        status = pacer(["--url", controller.url, *words])
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out

    said = run("queue", "set", "s1", "2", "q1.rate=20mbit,q0.packets=none", "aqm=pie:20ms")
    assert "queues=3,scheduler=wfq:4:2:1,aqm=pie:20ms,q0.rate=10mbit,q1.rate=20mbit" in said
    asked = controller.get(PORT)["desired"]["egress_queues"]
    assert asked["settings"][:2] == [{"queue": 0, "rate": "10Mbit"}, {"queue": 1, "rate": "20Mbit"}]
    state = yaml.safe_load(run("export"))
    assert state["switches"]["s1"]["ports"]["2"]["egress_queues"] == asked
    assert "3 wfq:4:2:1" in run("port", "show", "s1")
    assert "no egress queues, applied" in run("queue", "unset", "s1", "2")
    port = controller.get(PORT)
    assert (port["egress_queues"], port["desired"]) == (None, None)
    assert pacer(["--url", controller.url, "queue", "set", "s1", "2", "q0.rate=1mbit"]) == 2
    assert "give their number, queues=8" in capsys.readouterr().err


def test_queues_of_a_switch_that_is_away_are_not_known(
    start_controller: Callable[..., Controller], capsys: pytest.CaptureFixture[str]
) -> None:
    controller = start_controller("--switch", f"s1=127.0.0.1:{free_port()}")
    assert pacer(["--url", controller.url, "queue", "show", "s1"]) == 2
    said = capsys.readouterr().err
    assert "s1' is unreachable" in said
    assert "queues are not known" in said

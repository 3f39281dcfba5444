"""The controller against a real switch process; packets through real interfaces."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pacing_switch import TimedFrame, write_capture
from relay import Relay

from controller_harness import COMPILED, TARGET, Controller, Network, Switch, eventually
from pacer_controller.burst import capture
from pacer_controller.cli.main import main as pacer
from pacer_controller.rates import time_per_byte_q24

CLASS = "/v1/switches/s1/classes/video"
FLOW = "/v1/switches/s1/flows/web"
MATCH = {"src": "10.0.0.0/24", "protocol": "udp", "dst_port": 5001}

A = 0x020000000001
B = 0x020000000002
BROADCAST = 2**48 - 1

Start = Callable[..., Controller]


def observe(switch: Switch, *command: str, program: str = "pacer") -> str:
    p4info = COMPILED / TARGET / f"{program}.p4info.txtpb"
    script = Path(__file__).with_name("observer.py")
    done = subprocess.run(
        [sys.executable, str(script), switch.address, str(p4info), *command],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries_of(switch: Switch, table: str, program: str = "pacer") -> list[dict[str, Any]]:
    """Return a table's entries as the switch has them: action parameters and keys by name."""
    rows = json.loads(observe(switch, "read", program=program))
    return [
        {"action": action.partition(".")[2], **dict(match), **dict(params)}
        for name, match, _, action, params in rows
        if name.endswith(f".{table}")
    ]


def frame(source: int, destination: int, payload: bytes = b"", ether_type: int = 0x88B5) -> bytes:
    """Return an Ethernet frame, padded to its shortest."""
    head = destination.to_bytes(6, "big") + source.to_bytes(6, "big")
    return (head + ether_type.to_bytes(2, "big") + payload).ljust(60, b"\0")


def udp(source: int, destination: int, port: int) -> bytes:
    """Return a UDP packet from 10.0.0.1 to 10.0.1.1 (checksums of no interest here)."""
    ipv4 = bytes.fromhex("4500001c00004000401100000a0000010a000101")
    ports = (40000).to_bytes(2, "big") + port.to_bytes(2, "big")
    return frame(source, destination, ipv4 + ports + bytes.fromhex("00080000"), 0x0800)


def options(switch: Switch, name: str = "s1") -> tuple[str, str]:
    return "--switch", f"{name}={switch.address}{switch.options}"


def test_connects_and_reports(controller: Controller, switch: Switch, network: Network) -> None:
    said = controller.get("/v1/switches/s1")
    assert said["state"] == "connected"
    assert said["last_error"] is None
    assert said["address"] == switch.address
    if network.private:
        assert [port["port"] for port in said["ports"]] == [1, 2, 3]
    assert controller.get("/healthz")["connected"] == 1


def test_class_and_flow_reach_the_switch(controller: Controller, switch: Switch) -> None:
    made = controller.put(CLASS, {"rate": "500Mbit"})
    assert made.status_code == 201
    assert made.json()["state"] == "applied"
    assert controller.put(FLOW, {"match": MATCH, "class": "video"}).json()["state"] == "applied"
    assert entries_of(switch, "classes") == [
        {
            "action": "paced_static",
            "class_id": 1,
            "time_per_byte_q24": 16 << 24,
            "limit_bytes": 33_554_432,
            "allowance_ns": 262_144,
        }
    ]
    (flow,) = entries_of(switch, "flows")
    assert flow["class_id"] == 1
    assert flow["src_addr"] == [0xFFFF0A000000, (1 << 128) - (1 << 8)]
    assert flow["dst_port"] == [5001, 0xFFFF]

    changed = controller.put(CLASS, {"rate": "300Mbit"})
    assert changed.status_code == 200
    (entry,) = entries_of(switch, "classes")
    assert entry["time_per_byte_q24"] == time_per_byte_q24(300_000_000)

    assert controller.http.delete(FLOW).status_code == 204
    assert controller.http.delete(CLASS).status_code == 204
    assert entries_of(switch, "classes") == []
    assert entries_of(switch, "flows") == []


def test_flow_with_a_rate_and_a_meter(controller: Controller, switch: Switch) -> None:
    meter = {"cir": "5Mbit", "pir": "8Mbit", "yellow_dscp": 10}
    made = controller.put(FLOW, {"match": MATCH, "rate": "10Mbit", "meter": meter})
    assert made.status_code == 201, made.text
    (flow,) = entries_of(switch, "flows")
    assert (flow["mark"], flow["drop_red"], flow["yellow_dscp"]) == (1, 1, 10)
    (entry,) = entries_of(switch, "classes")
    assert entry["class_id"] == flow["class_id"]
    assert controller.put(FLOW, {"match": MATCH, "meter": meter}).status_code == 200
    assert entries_of(switch, "classes") == []


def test_reading_back_finds_nothing_to_mend(start_controller: Start, switch: Switch) -> None:
    controller = start_controller(*options(switch), "--reconcile-interval", "0.1")
    controller.wait_connected()
    controller.put(CLASS, {"rate": "500Mbit"})
    controller.put(CLASS + "2", {"mode": "unpaced"})
    controller.put(FLOW, {"match": MATCH, "class": "video", "meter": {"cir": "1Mbit"}})
    controller.put(FLOW + "6", {"match": {"src": "2001:db8::/32"}, "rate": "8kbit"})
    controller.put(FLOW + "all", {"match": {}, "class": "video2"})

    def reconciles() -> int:
        return int(controller.get("/v1/switches/s1")["counters"]["reconciles"])

    enough = reconciles() + 3
    eventually(lambda: reconciles() >= enough, "three more reconciles")
    assert controller.get("/v1/switches/s1")["counters"]["drift_entries"] == 0


def test_refused_request_changes_nothing(controller: Controller, switch: Switch) -> None:
    controller.put(CLASS, {"rate": "500Mbit"})
    before = observe(switch, "read")
    for path, body in [
        (CLASS, {"rate": -1}),
        (CLASS, {"rate": "fast"}),
        (FLOW, {"match": MATCH, "class": "vidoe"}),
        (FLOW, {"match": {"src": "10.0.0.1/8"}, "class": "video"}),
    ]:
        assert controller.put(path, body).status_code == 422
    assert observe(switch, "read") == before


def test_switch_away_means_pending_then_applied(start_controller: Start, network: Network) -> None:
    switch = Switch(network)
    controller = start_controller(*options(switch))
    assert controller.put(CLASS, {"rate": "500Mbit"}).json()["state"] == "pending"
    switch.start()
    try:
        controller.wait_connected()
        assert controller.get(CLASS)["state"] == "applied"
        assert len(entries_of(switch, "classes")) == 1
    finally:
        switch.kill()


def test_restarted_switch_gets_everything_back(controller: Controller, switch: Switch) -> None:
    controller.put(CLASS, {"rate": "500Mbit"})
    controller.put(FLOW, {"match": MATCH, "class": "video"})
    before = sorted(map(str, entries_of(switch, "classes") + entries_of(switch, "flows")))
    switch.kill()
    eventually(
        lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch seen as away"
    )
    assert controller.put(CLASS + "2", {"rate": "1Mbit"}).json()["state"] == "pending"
    assert controller.http.delete(CLASS + "2").status_code == 204
    switch.start()
    controller.wait_connected()
    after = sorted(map(str, entries_of(switch, "classes") + entries_of(switch, "flows")))
    assert after == before


@pytest.mark.parametrize("given", ["", ",target=bmv2,ports=1-2"])
def test_a_switch_that_falls_silent_is_away(
    start_controller: Start, switch: Switch, given: str
) -> None:
    """A machine that loses power ends no connection. Stock BMv2 takes no keepalive probes."""
    relay = Relay(switch.address)
    try:
        which = f"s1={relay.address}{given or switch.options}"
        # Reading the switch back would notice it, too.
        controller = start_controller("--switch", which, "--reconcile-interval", "0")
        controller.wait_connected()
        relay.stall()
        eventually(
            lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch seen as away"
        )
        relay.resume()
        controller.wait_connected()
    finally:
        relay.close()


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 ports have no settings")
@pytest.mark.parametrize("given", ["", ",ports=1+2"])
def test_a_restarted_switch_gets_its_ports_settings_back(
    wires: Network, start_controller: Start, given: str
) -> None:
    switch = Switch(wires)
    switch.start()
    try:
        controller = start_controller("--switch", f"s1={switch.address}{given}")
        controller.wait_connected()
        path = "/v1/switches/s1/ports/1"
        assert controller.put(path, {"fifo_bytes": 20000}).json()["state"] == "applied"
        switch.kill()
        eventually(
            lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch seen as away"
        )
        switch.start()
        controller.wait_connected()
        # Another controller asks the switch itself.
        reader = start_controller("--switch", f"s1={switch.address}")
        eventually(lambda: reader.get("/v1/switches/s1/ports")["ports"], "the ports are known")
        assert reader.get(path)["fifo_bytes"] == 20000
    finally:
        switch.kill()


def test_killed_controller_remembers(
    start_controller: Start, switch: Switch, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "state"))
    first = start_controller(*options(switch), *state)
    first.wait_connected()
    for number in range(20):
        body = {"match": {"dst_port": 1000 + number}, "rate": 8000 + number}
        assert first.put(FLOW + str(number), body).status_code == 201
    first.process.kill()
    second = start_controller(*options(switch), *state)
    second.wait_connected()
    assert len(second.get("/v1/switches/s1/flows")["flows"]) == 20
    # The switch had everything, so nothing was written again.
    assert second.get("/v1/switches/s1")["counters"]["reconcile_writes"] == 0
    assert len(entries_of(switch, "flows")) == 20


def test_foreign_change_is_mended(start_controller: Start, switch: Switch) -> None:
    controller = start_controller(*options(switch), "--reconcile-interval", "0.2")
    controller.wait_connected()
    controller.put(CLASS, {"rate": "500Mbit"})
    observe(switch, "delete-class", "1")
    eventually(lambda: len(entries_of(switch, "classes")) == 1, "the class is back")
    controller.wait_connected()


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 tells its primary to bidders only")
def test_second_controller_waits_and_takes_over(start_controller: Start, switch: Switch) -> None:
    first = start_controller(*options(switch))
    first.wait_connected()
    first.put(CLASS, {"rate": "500Mbit"})
    second = start_controller(*options(switch))
    eventually(
        lambda: second.get("/v1/switches/s1")["state"] == "backup", "the second is the backup"
    )
    assert second.put(CLASS, {"rate": "500Mbit"}).json()["state"] == "pending"
    first.process.kill()
    second.wait_connected()
    assert len(entries_of(switch, "classes")) == 1
    assert second.get("/v1/switches/s1")["counters"]["reconcile_writes"] == 0


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 takes any port")
def test_a_switch_with_another_cpu_port_is_told_what_is_wrong(
    start_controller: Start, switch: Switch
) -> None:
    controller = start_controller("--switch", f"s1={switch.address},cpu-port=400")
    said = eventually(
        lambda: controller.get("/v1/switches/s1")["last_error"], "what is wrong is said"
    )
    assert "no port 400" in said
    assert "--cpu-port 400" in said


def stations(controller: Controller) -> int:
    return int(controller.get("/v1/switches/s1")["stations"])


def test_learns_and_forwards(wires: Network, controller: Controller, switch: Switch) -> None:
    with wires.listen(2) as second, wires.listen(3) as third:
        wires.send(1, frame(A, BROADCAST, b"flooded"))
        for receiver in (second, third):
            assert b"flooded" in receive(receiver, A)
        eventually(lambda: stations(controller) == 1, "A is learned")
        assert {(e["dst_mac"], e["port"]) for e in entries_of(switch, "forward")} == {(A, 1)}
        assert [e["ingress_port"] for e in entries_of(switch, "sources")] == [1]
    with wires.listen(1) as first, wires.listen(3) as third:
        wires.send(3, frame(B, A, b"unknown source"))
        assert b"unknown source" in receive(first, B)
        eventually(lambda: stations(controller) == 2, "B is learned")
        wires.send(1, frame(A, B, b"to B alone"))
        assert b"to B alone" in receive(third, A)


def test_reconciling_leaves_stations_alone(
    wires: Network, start_controller: Start, switch: Switch
) -> None:
    controller = start_controller(*options(switch), "--reconcile-interval", "0.1")
    controller.wait_connected()
    wires.send(1, frame(A, BROADCAST))
    eventually(lambda: stations(controller) == 1, "A is learned")
    counters = controller.get("/v1/switches/s1")["counters"]

    def three_more() -> bool:
        now = controller.get("/v1/switches/s1")["counters"]
        return bool(now["reconciles"] >= counters["reconciles"] + 3)

    eventually(three_more, "three more reconciles")
    assert controller.get("/v1/switches/s1")["counters"]["reconcile_writes"] == 0
    assert [e["port"] for e in entries_of(switch, "forward")] == [1]
    assert [e["ingress_port"] for e in entries_of(switch, "sources")] == [1]


def test_moved_station(wires: Network, controller: Controller, switch: Switch) -> None:
    wires.send(1, frame(A, BROADCAST))
    eventually(lambda: stations(controller) == 1, "A is learned")
    wires.send(2, frame(A, BROADCAST))

    def moved() -> bool:
        return int(controller.get("/v1/switches/s1")["learning"]["moved"]) == 1

    eventually(moved, "the move is seen")
    assert [e["port"] for e in entries_of(switch, "forward")] == [2]
    assert [e["ingress_port"] for e in entries_of(switch, "sources")] == [2]


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 does not say which ports are up")
def test_a_link_that_goes_down_is_seen(wires: Network, controller: Controller) -> None:
    def up() -> list[bool]:
        switch = controller.get("/v1/switches/s1")["ports"]
        statistics = controller.get("/v1/switches/s1/stats")["ports"]
        return [port["up"] for port in (switch[1], statistics[1])]

    eventually(lambda: up() == [True, True], "port 2 is up")
    subprocess.run(["ip", "link", "set", "sw2", "down"], check=True)
    try:
        eventually(lambda: up() == [False, False], "port 2 is down")
    finally:
        subprocess.run(["ip", "link", "set", "sw2", "up"], check=True)
    eventually(lambda: up() == [True, True], "port 2 is up again")


def test_counters_follow_the_packets(wires: Network, controller: Controller) -> None:
    controller.put(CLASS, {"rate": "500Mbit"})
    controller.put(FLOW, {"match": MATCH, "class": "video"})
    with wires.listen(2) as receiver:
        for _ in range(5):
            wires.send(1, udp(A, B, 5001))
        wires.send(1, udp(A, B, 5002))
        for _ in range(6):
            receive(receiver, A)

    def counted() -> Any:
        said = controller.get("/v1/switches/s1/stats")
        return said if said["classes"][1]["accepted"]["packets"] >= 5 else None

    said = eventually(counted, "five packets counted")
    video = said["classes"][1]
    assert video["name"] == "video"
    assert video["accepted"] == {"packets": 5, "bytes": 300}
    assert video["limit_dropped"] == {"packets": 0, "bytes": 0}
    assert said["flows"] == [
        {"name": "web", "class": "video", "matched": {"packets": 5, "bytes": 300}}
    ]
    if TARGET == "pacing_switch":
        assert video["backlog_bytes"] == 0
        assert said["now_ns"] > 0
        assert [port["port"] for port in said["ports"]] == [1, 2, 3]
        assert said["ports"][0]["statistics"]["rx_packets"] >= 6
        assert said["ports"][1]["statistics"]["lateness"]["max_ns"] >= 0
        # One gap between each two of the frames flooded to port 2.
        sent = said["ports"][1]["statistics"]["tx_packets"]
        assert sum(said["ports"][1]["statistics"]["gaps"]["buckets"]) == sent - 1
        assert 'pacer_port_gap_seconds_count{port="2",switch="s1"}' in (
            controller.http.get("/metrics").text
        )


def test_every_mode_is_applied_and_stays(switch: Switch, start_controller: Start) -> None:
    """One class goes through all modes; the switch takes each and holds its settings."""
    controller = start_controller(*options(switch), "--reconcile-interval", "0.2")
    controller.wait_connected()
    modes: list[dict[str, Any]] = [
        {"mode": "timer", "rate": "500Mbit", "tick_hz": 250, "ecn_threshold_bytes": 100_000},
        {"mode": "pspd", "ecn_threshold_bytes": 100_000},
        {"mode": "clustered", "threshold_ns": 12_500},
        {"mode": "shared", "rate": "900Mbit", "window_margin_bytes": 50_000},
        {"mode": "dynamic", "headroom_percent": 150, "rate": "900Mbit"},
        {"mode": "slow-start", "threshold_ns": 2_000_000, "window_margin_bytes": 50_000}
        | {"rate": "900Mbit"},
        {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 1023, "ecn_threshold_bytes": 100_000},
        {"mode": "static", "rate": "500Mbit", "ecn_threshold_bytes": 100_000},
        {"mode": "static", "rate": "500Mbit", "window_margin_bytes": 50_000},
        {"mode": "static", "rate": "5Gbit", "quantum_bytes": 6_072},
        {"mode": "static", "rate": "125Mbit", "slots": 4, "slot_ns": 24_288, "slot": 3},
        {"mode": "pspd", "slots": 16, "slot_ns": 24_288},
        {"mode": "dynamic", "slots": 16, "slot_ns": 24_288, "headroom_percent": 150},
        {"mode": "unpaced"},
        {"mode": "dynamic"},
    ]
    for spec in modes:
        said = controller.put(CLASS, spec)
        assert said.status_code in (200, 201)
        assert said.json()["state"] == "applied"
        assert {name: said.json()[name] for name in spec} == spec
    before = controller.get("/v1/switches/s1")["counters"]
    # The entries read back are those written, so reconciling finds nothing to do.
    eventually(
        lambda: controller.get("/v1/switches/s1")["counters"]["reconciles"] > before["reconciles"],
        "reconciled once more",
    )
    after = controller.get("/v1/switches/s1")["counters"]
    assert after["drift_entries"] == 0
    assert after["reconcile_writes"] == before["reconcile_writes"]
    dynamic = controller.get("/v1/switches/s1/stats")["classes"][1]
    assert dynamic["ce_marked"] == {"packets": 0, "bytes": 0}
    if TARGET == "pacing_switch":
        assert (dynamic["rtt_ns"], dynamic["in_flight_bytes"]) == (0, 0)


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 has an order of its own")
def test_of_overlapping_flows_priority_then_age_then_name_decides(
    wires: Network, controller: Controller, switch: Switch
) -> None:
    meter = {"meter": {"cir": "1Gbit"}}
    for name, match in [("b", {"dst_port": 5001}), ("a", {"protocol": "udp"})]:
        assert controller.put(FLOW + name, {"match": match, **meter}).status_code == 201

    def winner() -> Any:
        """Send a packet that all flows match; return the flow whose count grew."""

        def counts() -> dict[str, int]:
            flows = controller.get("/v1/switches/s1/stats")["flows"]
            return {flow["name"]: flow["matched"]["packets"] for flow in flows}

        before = counts()
        wires.send(1, udp(A, B, 5001))
        grown: list[str] = eventually(
            lambda: [name for name, count in counts().items() if count > before[name]],
            "the packet is counted",
        )
        assert len(grown) == 1
        return grown[0]

    assert winner() == "webb"
    # A change of the action leaves the entry its place.
    controller.put(FLOW + "b", {"match": {"dst_port": 5001}, "meter": {"cir": "2Gbit"}})
    assert winner() == "webb"
    switch.kill()
    eventually(lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch is away")
    switch.start()
    controller.wait_connected()
    assert winner() == "weba"
    controller.put(FLOW + "c", {"match": {}, "priority": 1001, **meter})
    assert winner() == "webc"


def receive(receiver: Any, source: int) -> bytes:
    """Return the next frame from a station; other frames are passed over."""
    while True:
        data = bytes(receiver.recv(2048))
        if data[6:12] == source.to_bytes(6, "big"):
            return data


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 ports have no line rate")
def test_rate_above_the_line_rate(wires: Network, start_controller: Start) -> None:
    switch = Switch(wires, {2: "rate=1gbit"})
    switch.start()
    try:
        controller = start_controller(*options(switch))
        controller.wait_connected()
        refused = controller.put(CLASS, {"rate": "2Gbit"})
        assert refused.status_code == 422
        assert "2Gbit is above the line rate of port 2, 1Gbit" in refused.json()["detail"]
        assert controller.put(CLASS, {"rate": "1Gbit"}).status_code == 201
    finally:
        switch.kill()


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 ports have no line rate")
def test_a_rate_above_the_line_rate_asked_for_while_the_switch_was_away(
    wires: Network, start_controller: Start
) -> None:
    switch = Switch(wires, {2: "rate=1gbit"})
    controller = start_controller(*options(switch))
    own = {"match": MATCH, "rate": "3Gbit"}
    assert controller.put(CLASS, {"rate": "2Gbit"}).json()["state"] == "pending"
    assert controller.put(CLASS + "2", {"rate": "1Mbit"}).json()["state"] == "pending"
    assert controller.put(FLOW, own).json()["state"] == "pending"
    switch.start()
    try:
        controller.wait_connected()
        too_fast = "2Gbit is above the line rate of port 2, 1Gbit"
        said = controller.get(CLASS)
        assert (said["state"], too_fast in said["state_reason"]) == ("failed", True)
        assert controller.get(FLOW)["state"] == "failed"
        assert controller.get(CLASS + "2")["state"] == "applied"
        assert [entry["class_id"] for entry in entries_of(switch, "classes")] == [2]
        assert entries_of(switch, "flows") == []
        events = controller.get("/v1/events?kind=failed")["events"]
        assert {event["data"]["resource"] for event in events} == {"class 'video'", "flow 'web'"}
        assert too_fast in events[0]["message"]
        # Put right, one by its own rate, the other by its port's.
        controller.put(CLASS, {"rate": "1Gbit"})
        eventually(lambda: controller.get(CLASS)["state"] == "applied", "the class is applied")
        assert controller.get(FLOW)["state"] == "failed"
        controller.put("/v1/switches/s1/ports/2", {"line_rate": "10Gbit"})
        eventually(lambda: controller.get(FLOW)["state"] == "applied", "the flow is applied")
        assert len(entries_of(switch, "classes")) == 3
    finally:
        switch.kill()


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 does not write registers")
@pytest.mark.parametrize(
    "body",
    [{"match": MATCH, "class": "video"}, {"match": MATCH, "rate": "8kbit"}],
    ids=["class", "rate of its own"],
)
def test_a_new_class_owes_nothing_of_what_its_index_owed_before(
    wires: Network, start_controller: Start, switch: Switch, body: dict[str, Any]
) -> None:
    def prepare(controller: Controller) -> None:
        controller.wait_connected()
        if "class" in body:
            assert controller.put(CLASS, {"rate": "8kbit"}).json()["index"] == 1
        assert controller.put(FLOW, body).json()["class_index"] == 1

    def owed_ns(controller: Controller) -> int:
        return int(controller.get("/v1/switches/s1/stats")["classes"][1]["owed_ns"])

    first = start_controller(*options(switch))
    prepare(first)
    for _ in range(100):
        # 1.5 s each at 8 kbit/s.
        wires.send(1, udp(A, B, 5001).ljust(1514, b"\0"))
    eventually(lambda: owed_ns(first) > 100_000_000_000, "a gap of more than 100 s")
    first.process.kill()
    # Another controller, which knows nothing of the former's classes, takes the same index.
    second = start_controller(*options(switch))
    prepare(second)
    assert owed_ns(second) == 0
    counted = second.get("/v1/switches/s1/stats")["classes"][1]["accepted"]
    assert counted == {"packets": 0, "bytes": 0}


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 does not read registers")
def test_gtrcnet_measures(wires: Network, start_controller: Start, switch: Switch) -> None:
    controller = start_controller(
        "--switch", f"wan={switch.address},program=gtrcnet,wire=1:2,bottleneck=500mbit"
    )
    controller.wait_connected("wan")
    assert len(entries_of(switch, "monitor", "gtrcnet")) == 2
    with wires.listen(2) as receiver:
        for _ in range(10):
            wires.send(1, frame(A, B, bytes(986)))
        for _ in range(10):
            receive(receiver, A)

    def measured() -> Any:
        said = controller.get("/v1/switches/wan/bandwidth?port=1")
        return said if sum(said["bins"]["bytes"]) >= 10_040 else None

    said = eventually(measured, "ten frames measured")
    assert sum(said["bins"]["bytes"]) == 10 * 1004
    assert sum(said["windows"]["bytes"]) == 10 * 1004
    assert max(said["windows"]["vb_max_bytes"]) == said["vb_max_bytes"] >= 1004
    assert said["bins"]["start_ns"] == sorted(said["bins"]["start_ns"])
    assert all(start % 500_000 == 0 for start in said["bins"]["start_ns"])
    empty = controller.get("/v1/switches/wan/bandwidth?port=2")
    assert empty["bins"] == {"start_ns": [], "bytes": []}


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 does not read registers")
def test_burstiness_is_that_of_the_same_trace(
    wires: Network, start_controller: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """gtrcnet.p4's measurements equal those of the offline tool from the switch's capture."""
    switch = Switch(wires, None, "--pcap", str(tmp_path))
    switch.start()
    config = tmp_path / "controller.toml"
    config.write_text(
        f'[switches.wan]\naddress = "{switch.address}"\nprogram = "gtrcnet"\nwire = ["1:2"]\n'
        'bottleneck = "8kbit"\n[switches.wan.measured.web]\n'
        'match = { src = "10.0.0.0/24", protocol = "udp", dst_port = 5001 }\n'
        'bottleneck = "16kbit"\n'
    )
    try:
        controller = start_controller("--config", str(config))
        controller.wait_connected("wan")
        tagged = udp(A, B, 5001)
        tagged = tagged[:12] + bytes.fromhex("8100 0064") + tagged[12:]
        sizes = [60, 1514, 700, 1000]
        sent = 0
        for number in range(40):
            packet = tagged if number % 3 else udp(A, B, 5001 if number % 2 else 80)
            wires.send(1, packet.ljust(sizes[number % 4], b"\0"))
            sent += max(len(packet), sizes[number % 4]) + 4
            # Over several windows, whichever packet comes in which.
            time.sleep(0.01)

        def measured() -> Any:
            said = controller.get("/v1/switches/wan/burstiness?port=1")
            return said if sum(said["windows"]["bytes"]) >= sent else None

        of_port = eventually(measured, "forty frames measured")
        of_flow = controller.get("/v1/switches/wan/burstiness?flow=web")
        assert controller.http.get("/v1/switches/wan/burstiness?flow=wep").status_code == 404
        assert controller.http.get("/v1/switches/wan/burstiness").status_code == 422
        assert pacer(["--json", "--url", str(controller.http.base_url), "burst", "wan"]) == 0
        told = json.loads(capsys.readouterr().out)["measured"]
        assert [(one["port"], one["flow"]) for one in told] == [(1, None), (2, None), (None, "web")]
        assert [told[0], told[2]] == [of_port, of_flow]
    finally:
        switch.stop()
    # The file's times are since 1970, the switch's since boot; the difference is constant.
    packets = list(capture.read(tmp_path / "sw1_in.pcap"))
    shift_ns = of_port["last_ns"] - packets[-1].at_ns
    trace = tmp_path / "shifted.pcap"
    write_capture(trace, [TimedFrame(p.at_ns + shift_ns, p.data) for p in packets])
    arguments = ["--json", "burst", str(trace), "--vb"]
    assert pacer([*arguments, "8kbit"]) == 0
    (offline,) = json.loads(capsys.readouterr().out)["measured"]
    for key in ("window_ns", "last_ns", "summary", "windows"):
        assert of_port[key] == offline[key], key
    assert of_port["summary"]["vb_max_bytes"] > 2 * 1518
    # The flow comes with and without a VLAN tag, and the tool tells both as one.
    assert pacer([*arguments, "16kbit", "--per-flow"]) == 0
    flows = {one["flow"]: one for one in json.loads(capsys.readouterr().out)["measured"]}
    offline = flows["udp 10.0.0.1:40000 > 10.0.1.1:5001"]
    for key in ("window_ns", "last_ns", "summary", "windows"):
        assert of_flow[key] == offline[key], key
    assert sum(of_flow["windows"]["bytes"]) < sent

"""The controller against the patched Open vSwitch (`make ovs`): classes become paced queues."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_bridge import BRIDGE, Bridge, Start, controlled, put, running

from controller_harness import ROOT, Controller, Network, eventually
from pacer_controller.cli.main import main as pacer

PACKET = (
    "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),"
    "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=5001)"
)
PACKET_BYTES = 9000


def installed() -> Path | None:
    """Return where the patched Open vSwitch is, if it is built."""
    chosen = os.environ.get("PACER_OVS")
    if chosen:
        return Path(chosen)
    command = [str(ROOT / "ovs-patches" / "build"), "--print"]
    built = subprocess.run(command, capture_output=True, text=True)
    return Path(built.stdout.strip()) if built.returncode == 0 else None


@pytest.fixture
def bridge(network: Network, tmp_path: Path) -> Iterator[Bridge]:
    """Run the patched Open vSwitch."""
    ovs = installed()
    if ovs is None:
        pytest.skip("not run: Open vSwitch with the pacer is not built (make ovs)")
    with running(tmp_path, ovs / "bin", ovs / "share" / "vswitch.ovsschema") as made:
        yield made


@pytest.fixture
def ovs(bridge: Bridge, start_controller: Start) -> Controller:
    """Run a controller of the bridge."""
    return controlled(bridge, start_controller, "pacer")


def shown(bridge: Bridge, port: str = "p2") -> str:
    """Return the switch's own description of a port's pacer."""
    return bridge.appctl("dpif-netdev/pacer-show", port)


def sent_and_held(bridge: Bridge) -> tuple[int, int]:
    """Return how many packets the pacer of port 2 has sent, and how many it holds."""
    found = re.search(r"^  sent: (\d+) packets.*\n  held: (\d+) packets", shown(bridge), re.M)
    assert found is not None
    return int(found[1]), int(found[2])


def test_classes_are_paced_queues(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/ports/2", {"line_rate": "1Gbit", "counts": "layer2", "fifo_bytes": 70_000})
    put(ovs, "/classes/video", {"rate": "500Mbit", "limit_bytes": 65_536})
    text = shown(bridge)
    assert "p2: max-rate 1000000000 bit/s (layer2), limit 70000 bytes" in text
    assert "queue 1: static, rate 500000000 bit/s, limit 65536 bytes, allowance 262144 ns" in text
    put(ovs, "/classes/video", {"rate": "500Mbit", "allowance_ns": "exact"})
    assert "allowance 24288 ns" in shown(bridge)
    put(ovs, "/classes/video", {"rate": "300Mbit"})
    assert "queue 1: static, rate 300000000 bit/s" in shown(bridge)
    put(ovs, "/classes/bulk", {"mode": "unpaced"})
    assert "queue 2: unpaced" in shown(bridge)
    qos = bridge.vsctl("get", "port", "p2", "qos").strip()
    assert bridge.vsctl("get", "qos", qos, "status").strip() == "{}"
    assert ovs.http.delete(BRIDGE + "/classes/video").status_code == 204
    assert "queue 1" not in shown(bridge)


def test_a_class_may_have_a_fixed_gap(bridge: Bridge, ovs: Controller) -> None:
    spec = {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 1023, "limit_bytes": 65_536}
    put(ovs, "/classes/bulk", spec)
    text = shown(bridge)
    assert "queue 1: ipg, rate 1000000000 bit/s, gap 1023 bytes, limit 65536 bytes" in text
    assert "allowance 203920 ns" in text
    put(ovs, "/classes/bulk", {"rate": "1Gbit"})
    assert "queue 1: static, rate 1000000000 bit/s, limit" in shown(bridge)
    refused = ovs.put(BRIDGE + "/classes/other", {"mode": "dynamic"})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["field"] == "mode"
    assert error["expected"] == "one of ipg, static, unpaced"


def test_a_class_may_mark_by_queue_length(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/video", {"rate": "500Mbit", "ecn_threshold_bytes": 100_000})
    assert "ecn-threshold 100000 bytes" in shown(bridge)
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    assert "ecn-threshold" not in shown(bridge)


def test_pause_frames_fill_the_gaps_of_a_port(bridge: Bridge, ovs: Controller) -> None:
    asked = {"line_rate": "8kbit", "gap_mode": "pause-frames"}
    put(ovs, "/ports/2", asked)
    assert "max-rate 8000 bit/s (wire), gaps pause-frames (up to 1514 bytes)" in shown(bridge)
    put(ovs, "/ports/2", {**asked, "gap_frame_max_bytes": 300})
    assert "gaps pause-frames (up to 300 bytes)" in shown(bridge)
    said = ovs.get(BRIDGE + "/ports/2")
    assert (said["gap_mode"], said["gap_frame_max_bytes"]) == ("pause-frames", 300)
    put(ovs, "/ports/2", {"line_rate": "8kbit", "gap_mode": "accounted"})
    assert "gaps" not in shown(bridge)
    assert ovs.get(BRIDGE + "/ports/2")["gap_mode"] == "accounted"
    # Their time is that of a line.
    assert ovs.put(BRIDGE + "/ports/1", {"gap_mode": "pause-frames"}).status_code == 422


def test_packets_of_a_flow_are_held_and_counted(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/slow", {"rate": "8kbit", "allowance_ns": 0})
    match = {"ether_type": "ipv4", "protocol": "udp", "dst_port": 5001}
    put(ovs, "/flows/slow", {"match": match, "class": "slow"})
    # Each takes nine seconds at that rate.
    for _ in range(20):
        bridge.appctl("netdev-dummy/receive", "p1", PACKET, "--len", str(PACKET_BYTES))
    eventually(lambda: sum(sent_and_held(bridge)) == 20, "all have arrived")
    assert sent_and_held(bridge)[1] > 0
    # Much faster, but for packets to come: those that wait keep their departure times.
    put(ovs, "/classes/slow", {"rate": "1Gbit"})
    sent, held = sent_and_held(bridge)
    assert sent + held == 20
    assert held > 0
    eventually(lambda: counted(ovs) >= sent, "what was sent is in the statistics")
    assert counted(ovs) < 20


def counted(controller: Controller) -> int:
    """Return the packets that the class has sent, as the controller says."""
    counters = controller.get(BRIDGE + "/stats")["classes"]
    return int(counters[1]["accepted"]["packets"])


def test_restart_of_the_switch(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/ports/2", {"line_rate": "1Gbit"})
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    before = shown(bridge)
    bridge.kill("ovs-vswitchd")
    eventually(lambda: ovs.get(BRIDGE)["state"] == "pending", "the bridge is away")
    bridge.start_switch()
    ovs.wait_connected("br0")
    eventually(lambda: shown(bridge) == before, "the pacer is back")


def test_bad_values_of_others_are_named_and_mended(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    qos = bridge.vsctl("get", "port", "p2", "qos").strip()
    queue = bridge.vsctl("get", "qos", qos, "queues:1").strip()
    for wrong in ("0", "-5", "fast"):
        bridge.vsctl("set", "queue", queue, f"other_config:rate={wrong}")
        # The switch goes on at the rate it had.
        assert "queue 1: static, rate 500000000 bit/s" in shown(bridge)
        eventually(
            lambda: (
                bridge.vsctl("get", "queue", queue, "other_config:rate").strip() == '"500000000"'
            ),
            "the controller has put it right",
        )
    assert ovs.put(BRIDGE + "/classes/video", {"rate": "0"}).status_code == 422
    put(ovs, "/ports/2", {"line_rate": "1Gbit"})
    assert ovs.put(BRIDGE + "/classes/x", {"rate": "2Gbit", "port": 2}).status_code == 422


def reported(controller: Controller, path: str) -> str:
    """Return the state of a resource, with its reason where it has one."""
    said = controller.get(BRIDGE + path)
    reason = said["state_reason"]
    return said["state"] if reason is None else f"{said['state']}: {reason}"


def wait_for_state(controller: Controller, path: str, expected: str) -> None:
    """Wait until a resource is reported so."""
    eventually(lambda: reported(controller, path) == expected, f"{path}: {expected}")


def test_what_the_switch_refuses_has_failed(bridge: Bridge, ovs: Controller) -> None:
    """One port's line is slower than a class: the switch keeps the class off it, and says so."""
    put(ovs, "/ports/1", {"line_rate": "100Mbit"})
    put(ovs, "/ports/2", {"line_rate": "1Gbit"})
    put(ovs, "/classes/bound", {"rate": "400Mbit", "port": 2})
    put(ovs, "/classes/slow", {"rate": "50Mbit"})
    ovs.put(BRIDGE + "/classes/fast", {"rate": "500Mbit"})
    match = {"ether_type": "ipv4", "protocol": "udp", "dst_port": 5001}
    ovs.put(BRIDGE + "/flows/own", {"match": match, "rate": "300Mbit"})
    refused = "failed: port p1 refuses it: rate {} is above max-rate 100000000"
    wait_for_state(ovs, "/classes/fast", refused.format("500000000"))
    wait_for_state(ovs, "/flows/own", refused.format("300000000"))
    assert "queue 2: static, rate 50000000 bit/s" in shown(bridge, "p1")
    assert "500000000" not in shown(bridge, "p1")
    assert "rate 500000000 bit/s" in shown(bridge, "p2")
    # A class that leaves only by the other port, and one that is slow enough, have not failed.
    assert reported(ovs, "/classes/bound") == "applied"
    assert reported(ovs, "/classes/slow") == "applied"
    events = ovs.get("/v1/events?kind=failed")["events"]
    assert sorted(event["data"]["resource"] for event in events) == ["class 'fast'", "flow 'own'"]
    # Told to leave by the faster port; or slow enough now.
    ovs.put(BRIDGE + "/classes/fast", {"rate": "500Mbit", "port": 2})
    ovs.put(BRIDGE + "/flows/own", {"match": match, "rate": "90Mbit"})
    wait_for_state(ovs, "/classes/fast", "applied")
    wait_for_state(ovs, "/flows/own", "applied")
    assert ovs.get(BRIDGE)["failed"] == {}


EGRESS_QUEUES = {
    "queues": 3,
    "scheduler": "drr:1:4:2",
    "settings": [
        {"queue": 0, "fifo_bytes": 70_000},
        {"queue": 2, "packets": 64, "rate": "10Mbit", "burst_bytes": 3_000},
    ],
}
EGRESS_QUEUES_SHOWN = {
    "queues": 3,
    "scheduler": "drr:1:4:2",
    "aqm": "none",
    "settings": [
        {"queue": 0, "fifo_bytes": 70_000},
        {"queue": 2, "fifo_packets": 64, "rate_bps": 10_000_000, "burst_bytes": 3_000},
    ],
}


def wait_for_queues(bridge: Bridge, controller: Controller, expected: object) -> None:
    """Wait until the controller shows a port's egress queues so, and the switch has no refusal."""
    eventually(lambda: controller.get(BRIDGE + "/ports/2")["egress_queues"] == expected, "queues")
    assert bridge.vsctl("get", "qos", qos_of(bridge), "status").strip() == "{}"


def qos_of(bridge: Bridge, port: str = "p2") -> str:
    """Return the row of a port's QoS."""
    return bridge.vsctl("get", "port", port, "qos").strip()


def test_egress_queues_of_a_port(bridge: Bridge, ovs: Controller) -> None:
    """They are unpaced queues of this port alone, beside those of the classes."""
    put(ovs, "/classes/video", {"rate": "30Mbit"})
    put(ovs, "/classes/bulk", {"mode": "unpaced"})
    port = {"line_rate": "100Mbit", "fifo_bytes": 90_000, "egress_queues": EGRESS_QUEUES}
    assert put(ovs, "/ports/2", port)["egress_queues"] == EGRESS_QUEUES_SHOWN
    text = shown(bridge)
    assert "p2: max-rate 100000000 bit/s (wire), scheduler drr, limit 90000 bytes" in text
    assert "queue 0: unpaced, weight 1, limit 70000 bytes" in text
    assert "queue 1: static, rate 30000000 bit/s" in text
    assert "queue 2: unpaced, weight 1, limit" in text
    assert "queue 62001: unpaced, weight 4, limit 90000 bytes" in text
    assert "queue 62002: unpaced, weight 2, limit 90000 bytes, limit-packets 64, " in text
    assert "max-rate 10000000 bit/s, burst 3000 bytes" in text
    assert "queue 62001" not in shown(bridge, "p1")
    wait_for_queues(bridge, ovs, EGRESS_QUEUES_SHOWN)
    # A class that comes and one that goes leave them alone.
    put(ovs, "/classes/late", {"rate": "20Mbit"})
    assert ovs.http.delete(BRIDGE + "/classes/bulk").status_code == 204
    assert set(bridge.queues("p2")) == {"0", "1", "3", "62001", "62002"}
    wait_for_queues(bridge, ovs, EGRESS_QUEUES_SHOWN)
    strict = {"queues": 2}
    shown_strict = {"queues": 2, "scheduler": "strict", "aqm": "none", "settings": []}
    put(ovs, "/ports/2", {**port, "egress_queues": strict})
    assert ", scheduler strict, " in shown(bridge)
    assert "queue 62002" not in shown(bridge)
    wait_for_queues(bridge, ovs, shown_strict)
    assert ovs.get(BRIDGE)["counters"]["drift_entries"] == 0
    put(ovs, "/ports/2", {**port, "egress_queues": "none"})
    assert "scheduler" not in shown(bridge)
    assert set(bridge.queues("p2")) == {"1", "3"}
    wait_for_queues(bridge, ovs, None)


def test_egress_queues_are_mended_and_back_after_a_restart(bridge: Bridge, ovs: Controller) -> None:
    ports = {"2": {"line_rate": "100Mbit", "egress_queues": EGRESS_QUEUES}}
    assert ovs.put(BRIDGE + "/state", {"ports": ports}).status_code == 200
    before = shown(bridge)
    assert "queue 62001: unpaced, weight 4" in before
    qos = qos_of(bridge)
    queue = bridge.vsctl("get", "qos", qos, "queues:62001").strip()
    bridge.vsctl(
        *("remove", "qos", qos, "other_config", "scheduler"),
        *("--", "set", "queue", queue, "other_config:weight=9"),
        *("--", "remove", "qos", qos, "queues", "62002"),
    )
    eventually(lambda: shown(bridge) == before, "they are as they were")
    wait_for_queues(bridge, ovs, EGRESS_QUEUES_SHOWN)
    bridge.kill("ovs-vswitchd")
    eventually(lambda: ovs.get(BRIDGE)["state"] == "pending", "the bridge is away")
    bridge.start_switch()
    ovs.wait_connected("br0")
    eventually(lambda: shown(bridge) == before, "they are back")
    # The bridge keeps only the rows that are asked for.
    assert ovs.http.delete(BRIDGE + "/ports/2").status_code == 204
    eventually(lambda: not bridge.vsctl("--bare", "list", "queue").strip(), "the rows are gone")


def test_packets_of_egress_queues_are_ordered_and_counted(bridge: Bridge, ovs: Controller) -> None:
    """A flow of somebody else leads to a queue by its number on the switch."""
    queues = {"queues": 3, "settings": [{"queue": 1, "packets": 2}]}
    put(ovs, "/ports/2", {"line_rate": "8kbit", "egress_queues": queues})
    bridge.ofctl("add-flow", "priority=9,udp,tp_dst=5001,actions=set_queue:62001,output:2")
    bridge.ofctl("add-flow", "priority=9,udp,tp_dst=5002,actions=set_queue:62002,output:2")
    # Each takes nine seconds of the line; the first is on it while the others come.
    packets = [
        word
        for port in (5001, 5001, 5001, 5001, 5002, 5002)
        for word in (PACKET.replace("dst=5001", f"dst={port}"), "--len", str(PACKET_BYTES))
    ]
    bridge.appctl("netdev-dummy/receive", "p1", *packets)

    def statistics() -> list[tuple[int, int, dict[str, int]]]:
        (port,) = [p for p in ovs.get(BRIDGE + "/stats")["ports"] if p["port"] == 2]
        found = port["statistics"]["queues"]
        assert [queue["sojourn"] for queue in found] == [None, None, None]
        return [(queue["queue"], queue["tx_packets"], queue["drops"]) for queue in found]

    lost = {"queue-full": 1}
    eventually(lambda: statistics()[1][2] == lost, "the queue of two packets was full")
    assert statistics()[0] == (0, 0, {"queue-full": 0})
    # The first packet was the only one when it came; of those that wait, queue 2 goes first.
    eventually(lambda: statistics()[2][1] > 0, "one of queue 2 is next")
    assert statistics()[1][1] == 1


def test_egress_queues_that_the_pacer_cannot_have(bridge: Bridge, ovs: Controller) -> None:
    line = {"line_rate": "100Mbit"}
    of_queue = {"queue": 1, "rate": "10Mbit"}
    for queues, field, message in (
        ({"queues": 2, "scheduler": "strict{q1+q0}"}, "scheduler", "no trees of schedulers"),
        ({"queues": 2, "aqm": "codel"}, "aqm", "no active queue management"),
        ({"queues": 2, "buffer_bytes": 9_000}, "buffer_bytes", "no common buffer"),
        (
            {"queues": 2, "settings": [{**of_queue, "aqm": "pie"}]},
            "settings.0.aqm",
            "no active queue management",
        ),
        (
            {"queues": 2, "settings": [{**of_queue, "min_rate": "1Mbit"}]},
            "settings.0.min_rate",
            "queue 1: the switch's queues have no minimum rates",
        ),
        (
            {"queues": 2, "settings": [{**of_queue, "fifo_bytes": 2**32}]},
            "settings.0.fifo_bytes",
            "queue 1: 4294967296 is above the switch's largest, 4294967295",
        ),
        (
            {"queues": 2, "settings": [{**of_queue, "packets": 2**20 + 1}]},
            "settings.0.packets",
            "queue 1: 1048577 is above the switch's largest, 1048576",
        ),
        (
            {"queues": 2, "settings": [{**of_queue, "burst_bytes": 2**20 + 1}]},
            "settings.0.burst_bytes",
            "queue 1: 1048577 is above the switch's largest, 1048576",
        ),
        (
            {"queues": 2, "settings": [{"queue": 1, "rate": "200Mbit"}]},
            "settings.0.rate",
            "queue 1: 200Mbit is above the line rate, 100Mbit",
        ),
    ):
        refused = ovs.put(BRIDGE + "/ports/2", {**line, "egress_queues": queues})
        assert refused.status_code == 422, queues
        (error,) = refused.json()["errors"]
        assert error["field"] == f"egress_queues.{field}"
        assert message in error["message"]
    assert bridge.queues("p2") == {}
    # The largest values, and words that say no, are taken.
    most = {"queue": 63, "fifo_bytes": 2**32 - 1, "packets": 2**20, "rate": "8kbit"}
    most |= {"burst_bytes": 2**20, "aqm": "none"}
    put(ovs, "/ports/2", {**line, "egress_queues": {"queues": 64, "settings": [most]}})
    assert "queue 62063: unpaced, limit 4294967295 bytes" in shown(bridge)
    assert bridge.vsctl("get", "qos", qos_of(bridge), "status").strip() == "{}"


def test_egress_queues_on_the_command_line(
    bridge: Bridge, ovs: Controller, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> str:
        assert pacer(["--url", ovs.url, *words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    put(ovs, "/ports/2", {"line_rate": "100Mbit"})
    run("queue", "set", "br0", "2", "queues=3,scheduler=wfq:4:2:1,q0.rate=10mbit")
    said = run("queue", "set", "br0", "2", "q1.fifo=64KB")
    assert "queues=3,scheduler=wfq:4:2:1,q0.rate=10mbit,q1.fifo=64KB, applied" in said
    assert "queue 0: unpaced, weight 4, limit 1048576 bytes, max-rate 10000000" in shown(bridge)
    listed = json.loads(run("--json", "queue", "br0"))["br0"]["queues"]
    assert [(one["port"], one["queue"]) for one in listed] == [(2, 0), (2, 1), (2, 2)]
    assert "QUEUE" in run("queue", "br0")
    run("queue", "unset", "br0", "2")
    assert "scheduler" not in shown(bridge)
    assert "max-rate 100000000" in shown(bridge)
    assert ovs.get(BRIDGE + "/ports/2")["egress_queues"] is None

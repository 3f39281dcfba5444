"""The controller against the patched Open vSwitch (`make ovs`): classes become paced queues."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_bridge import BRIDGE, Bridge, Start, controlled, put, running

from controller_harness import ROOT, Controller, Network, eventually

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

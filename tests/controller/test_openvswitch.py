"""The controller against Open vSwitch as Debian has it: a private one, with a dummy datapath."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_ryu import QUEUES

from controller_harness import Controller, Network, eventually

Start = Callable[..., Controller]
BRIDGE = "/v1/switches/br0"
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


class Bridge:
    """A database and a switch process of our own, in a directory of our own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = f"unix:{directory}/db.sock"
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        self._env = {**os.environ, **dict.fromkeys(names, str(directory))}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.run("ovsdb-tool", "create", f"{directory}/conf.db", str(SCHEMA))
        self._start("ovsdb-server", f"{directory}/conf.db", f"--remote=p{self.database}")
        eventually((directory / "db.sock").exists, "the database listens")
        self.vsctl("--no-wait", "init")
        self.start_switch()
        ports = ["--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy"]
        ports += ["ofport_request=1", "--", "add-port", "br0", "p2", "--", "set", "interface"]
        ports += ["p2", "type=dummy", "ofport_request=2"]
        bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]
        self.vsctl(*bridge, "fail_mode=standalone", *ports)

    def run(self, *command: str) -> str:
        """Run a tool on it and return what it says."""
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _start(self, *command: str) -> None:
        log = f"--log-file={self.directory}/{command[0]}.log"
        self._processes[command[0]] = subprocess.Popen(
            [*command, log], env=self._env, stderr=subprocess.DEVNULL
        )

    def start_switch(self) -> None:
        """Start the switch process."""
        self._start("ovs-vswitchd", self.database, "--enable-dummy=override", "--disable-system")

    def kill(self, *names: str) -> None:
        """Kill processes by name; all when none is named."""
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.kill()
            process.wait()

    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl."""
        return self.run("ovs-vsctl", f"--db={self.database}", "--timeout=20", *arguments)

    def ofctl(self, command: str, *arguments: str) -> str:
        """Run ovs-ofctl."""
        target = f"unix:{self.directory}/br0.mgmt"
        options = [one for one in arguments if one.startswith("--")]
        rest = [one for one in arguments if one not in options]
        return self.run("ovs-ofctl", "-O", "OpenFlow13", *options, command, target, *rest)

    def flows(self) -> list[str]:
        """Return match and actions of all flows with a cookie."""
        lines = self.ofctl("dump-flows", "--no-stats").splitlines()
        return sorted(line.partition("priority=")[2] for line in lines if "cookie=0x70" in line)

    def queues(self, port: str) -> dict[str, dict[str, str]]:
        """Return the `other_config` of a port's queues, by number."""
        qos = self.vsctl("get", "port", port, "qos").strip()
        if qos == "[]":
            return {}
        row = json.loads(self.vsctl("--format=json", "--columns=queues", "list", "qos", qos))
        return {
            str(number): dict(
                json.loads(
                    self.vsctl("--format=json", "--columns=other_config", "list", "queue", uuid[1])
                )["data"][0][0][1]
            )
            for number, uuid in row["data"][0][0][1]
        }


@pytest.fixture
def bridge(network: Network, tmp_path: Path) -> Iterator[Bridge]:
    """Run an Open vSwitch."""
    if shutil.which("ovs-vswitchd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("not run: no Open vSwitch (apt-get install openvswitch-switch)")
    made = Bridge(tmp_path)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def ovs(bridge: Bridge, start_controller: Start) -> Controller:
    """Run a controller of the bridge."""
    made = start_controller(
        "--switch", f"br0={bridge.database},bridge=br0", "--reconcile-interval", "0.3"
    )
    made.wait_connected("br0")
    return made


def put(controller: Controller, path: str, body: Any) -> dict[str, Any]:
    answer = controller.put(BRIDGE + path, body)
    assert answer.status_code in (200, 201), answer.text
    said = dict(answer.json())
    assert said.get("state", "applied") == "applied"
    return said


def test_flows_and_queues(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    put(
        ovs,
        "/flows/web",
        {"match": {"src": "10.0.0.0/24", "protocol": "tcp", "dst_port": 80}, "class": "video"},
    )
    assert bridge.flows() == ["1000,tcp,nw_src=10.0.0.0/24,tp_dst=80 actions=set_queue:1,NORMAL"]
    for port in ("p1", "p2"):
        assert bridge.queues(port) == {"1": {"max-rate": "500000000"}}
    assert bridge.vsctl("get", "port", "p1", "qos").strip() != "[]"
    put(ovs, "/classes/video", {"rate": "300Mbit"})
    assert bridge.queues("p2") == {"1": {"max-rate": "300000000"}}
    put(ovs, "/flows/own", {"match": {"vlan": 5, "dscp": 46}, "rate": "10Mbit"})
    assert bridge.queues("p1")["2"] == {"max-rate": "10000000"}
    # A DSCP alone is that of both versions of IP.
    assert len([one for one in bridge.flows() if "dl_vlan=5" in one]) == 2
    said = ovs.get(BRIDGE)
    assert said["kind"] == "openvswitch"
    assert len(said["dpid"]) == 16
    assert [port["interface"] for port in said["ports"]] == ["p1", "p2"]
    ovs.http.delete(BRIDGE + "/flows/own")
    ovs.http.delete(BRIDGE + "/flows/web")
    assert ovs.http.delete(BRIDGE + "/classes/video").status_code == 204
    assert bridge.flows() == []
    assert bridge.queues("p1") == {}


def test_meters_ranges_and_marks(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/meters/gold", {"cir": "5Mbit"})
    put(
        ovs,
        "/flows/m",
        {
            "match": {"protocol": "udp", "ether_type": "ipv4", "dst_port": "5000-5007"},
            "meter": "gold",
        },
    )
    (meter,) = [m for m in bridge.ofctl("dump-meters").splitlines() if "meter=" in m]
    assert "meter=1" in meter
    assert "rate=5000" in bridge.ofctl("dump-meters")
    assert bridge.flows() == ["1000,udp,tp_dst=0x1388/0xfff8 actions=meter:1,NORMAL"]
    put(ovs, "/flows/mark", {"match": {"dst": "2001:db8::/32"}, "set_dscp": 26})
    assert "1000,ipv6,ipv6_dst=2001:db8::/32 actions=set_field:26->ip_dscp,NORMAL" in bridge.flows()
    refused = ovs.put(BRIDGE + "/meters/x", {"cir": "5Mbit", "yellow_dscp": 10})
    assert refused.status_code == 422
    high = {"match": {}, "meter": "gold", "priority": 70_000}
    assert ovs.put(BRIDGE + "/flows/x", high).status_code == 422
    limited = put(ovs, "/ports/2", {"line_rate": "1Gbit"})
    assert limited["line_rate"] == "1Gbit"
    assert ovs.put(BRIDGE + "/classes/x", {"rate": "2Gbit", "port": 2}).status_code == 422
    # What the program of a P4 switch can do and a bridge cannot.
    for field, spec in (
        ("mode", {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 12}),
        ("mode", {"mode": "dynamic"}),
        ("ecn_threshold_bytes", {"rate": "8Mbit", "ecn_threshold_bytes": 9_000}),
        ("window_margin_bytes", {"rate": "8Mbit", "window_margin_bytes": 9_000}),
    ):
        refused = ovs.put(BRIDGE + "/classes/x", spec)
        assert refused.status_code == 422
        assert [error["field"] for error in refused.json()["errors"]] == [field]


def test_everything_is_back_after_a_restart(bridge: Bridge, ovs: Controller) -> None:
    state = {
        "classes": {"video": {"rate": "500Mbit"}},
        "flows": {
            f"f{n}": {
                "match": {"ether_type": "ipv4", "protocol": "tcp", "dst_port": 1000 + n},
                "class": "video",
            }
            for n in range(100)
        },
    }
    assert ovs.put(BRIDGE + "/state", state).status_code == 200
    before = bridge.flows()
    assert len(before) == 100
    bridge.kill("ovs-vswitchd")
    eventually(lambda: ovs.get(BRIDGE)["state"] == "pending", "the bridge is away")
    put_while_away = ovs.put(BRIDGE + "/classes/video", {"rate": "400Mbit"})
    assert put_while_away.json()["state"] == "pending"
    bridge.start_switch()
    ovs.wait_connected("br0")
    assert bridge.flows() == before
    assert bridge.queues("p1") == {"1": {"max-rate": "400000000"}}


def test_foreign_changes_are_mended_and_told(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    put(ovs, "/flows/web", {"match": {"dst": "10.0.0.1"}, "class": "video"})
    before = bridge.flows()
    bridge.ofctl("add-flow", "table=0,priority=7,ip,nw_dst=10.9.9.9,actions=drop")
    bridge.ofctl("del-flows", "ip,nw_dst=10.0.0.1")
    eventually(lambda: bridge.flows() == before, "the flow is back")
    # What others have put there is theirs.
    assert "nw_dst=10.9.9.9" in bridge.ofctl("dump-flows")
    bridge.vsctl("clear", "port", "p1", "qos")
    eventually(lambda: bridge.queues("p1") == {"1": {"max-rate": "500000000"}}, "QoS is back")
    told = eventually(
        lambda: [e["kind"] for e in ovs.get("/v1/events?kind=drift&kind=mended")["events"]],
        "it is told",
    )
    assert told[:2] == ["drift", "mended"]


def test_ryus_examples_on_open_vswitch(bridge: Bridge, ovs: Controller) -> None:
    dpid = ovs.get(BRIDGE)["dpid"]
    done = ovs.http.post(f"/qos/queue/{dpid}", json=QUEUES)
    assert done.status_code == 200, done.text
    numbers = {c["name"]: str(c["index"]) for c in ovs.get(BRIDGE + "/classes")["classes"]}
    assert bridge.queues("p1")[numbers["queue-0"]] == {"max-rate": "500000"}
    rule = {
        "match": {"nw_dst": "172.16.20.10", "nw_proto": "UDP", "tp_dst": "5002"},
        "actions": {"mark": "26"},
    }
    assert ovs.http.post(f"/qos/rules/{dpid}", json=rule).status_code == 200
    assert bridge.flows() == [
        "1,udp,nw_dst=172.16.20.10,tp_dst=5002 actions=set_field:26->ip_dscp,NORMAL"
    ]
    (said,) = ovs.get(f"/qos/rules/{dpid}")[0]["command_result"]
    assert said["qos"][0]["actions"] == [{"mark": "26"}]


def test_a_bridge_that_is_not_there(bridge: Bridge, start_controller: Start) -> None:
    controller = start_controller("--switch", f"br7={bridge.database},bridge=br7")
    said = eventually(
        lambda: controller.get("/v1/switches/br7")["last_error"], "what is wrong is said"
    )
    assert "No such file" in said
    assert controller.put("/v1/switches/br7/classes/x", {"rate": "1Mbit"}).json()["state"] == (
        "pending"
    )

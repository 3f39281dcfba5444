"""The controller against Open vSwitch as Debian has it: a private one, with a dummy datapath."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_bridge import BRIDGE, SCHEMA, Bridge, Start, controlled, put, running
from test_ryu import QUEUES

from controller_harness import Controller, Network, eventually
from pacer_controller import egress_queues
from pacer_controller.egress_queues import EgressQueuesSpec
from pacer_controller.openvswitch import flows, ovsdb, queues, refusals
from pacer_controller.openvswitch.openflow import OpenFlow, OpenFlowError, StaleRoleError
from pacer_controller.openvswitch.ovsdb import Database, OvsdbError
from pacer_controller.openvswitch.switch import QUEUES_MOST
from pacer_controller.rows import PORTS, Change, Op, by_key, row
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.checks import Checker
from pacer_controller.southbound import PortInfo
from rest_client import Client


@pytest.fixture
def bridge(network: Network, tmp_path: Path) -> Iterator[Bridge]:
    """Run an Open vSwitch."""
    if shutil.which("ovs-vswitchd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("not run: no Open vSwitch (apt-get install openvswitch-switch)")
    with running(tmp_path) as made:
        yield made


@pytest.fixture
def ovs(bridge: Bridge, start_controller: Start) -> Controller:
    """Run a controller of the bridge."""
    return controlled(bridge, start_controller, "linux-htb")


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
    refused = ovs.put(BRIDGE + "/ports/2", {"egress_queues": {"queues": 2}})
    assert refused.status_code == 422
    assert "the switch's ports have no egress queues" in refused.json()["detail"]
    # Features that the program of a P4 switch has and a bridge lacks.
    for field, spec in (
        ("mode", {"mode": "ipg", "rate": "1Gbit", "gap_bytes": 12}),
        ("mode", {"mode": "timer", "rate": "8Mbit"}),
        ("mode", {"mode": "pspd"}),
        ("mode", {"mode": "clustered"}),
        ("mode", {"mode": "shared", "rate": "8Mbit"}),
        ("mode", {"mode": "dynamic"}),
        ("ecn_threshold_bytes", {"rate": "8Mbit", "ecn_threshold_bytes": 9_000}),
        ("slots", {"rate": "8Mbit", "slots": 4, "slot_ns": 1_518_000, "slot": 1}),
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
    # Flows of others stay.
    assert "nw_dst=10.9.9.9" in bridge.ofctl("dump-flows")
    bridge.vsctl("clear", "port", "p1", "qos")
    eventually(lambda: bridge.queues("p1") == {"1": {"max-rate": "500000000"}}, "QoS is back")
    told = eventually(
        lambda: [e["kind"] for e in ovs.get("/v1/events?kind=drift&kind=mended")["events"]],
        "it is told",
    )
    assert told[:2] == ["drift", "mended"]


def test_foreign_values_that_are_no_numbers_are_mended(bridge: Bridge, ovs: Controller) -> None:
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    queue = bridge.vsctl("--bare", "--columns=_uuid", "list", "queue").strip()
    bridge.vsctl(
        *("set", "qos", _qos(bridge), "other_config:max-rate=10Mbit", "other_config:limit=all"),
        *("--", "set", "queue", queue, "external_ids:pacer-queue=first"),
    )

    def mended() -> bool:
        config = bridge.vsctl("get", "qos", _qos(bridge), "other_config").strip()
        rows = bridge.vsctl("--bare", "--columns=_uuid", "list", "queue").split()
        return config == "{}" and len(rows) == 1 and queue not in rows

    eventually(mended, "QoS and queue are as they were")
    assert bridge.queues("p1") == {"1": {"max-rate": "500000000"}}
    ovs.wait_connected("br0")
    assert ovs.get(BRIDGE)["last_error"] is None
    put(ovs, "/classes/video", {"rate": "400Mbit"})


def test_a_database_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovsdb, "SILENCE_MS", 50)
    path = tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        database = ovsdb.Database(f"unix:{path}", "br0", "br0")
        with pytest.raises(ovsdb.OvsdbError, match="no answer within"):
            database.read()


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


def test_rates_above_the_line_rate(bridge: Bridge, ovs: Controller) -> None:
    for port in ("1", "2"):
        put(ovs, f"/ports/{port}", {"line_rate": "1Gbit"})
    refused = ovs.put(BRIDGE + "/classes/video", {"rate": "2Gbit"})
    assert refused.status_code == 422
    assert "2Gbit is above the line rate of port 1, 1Gbit" in refused.json()["detail"]
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    put(ovs, "/ports/1", {"line_rate": "100Mbit"})
    refused = ovs.put(BRIDGE + "/ports/2", {"line_rate": "100Mbit"})
    assert refused.status_code == 422
    assert "class 'video' leaves by any port at 500Mbit" in refused.json()["detail"]
    bridge.kill("ovs-vswitchd")
    eventually(lambda: ovs.get(BRIDGE)["state"] == "pending", "the bridge is away")
    # The fast port's own line rate, which is unknown now, turns out to be none.
    assert ovs.http.delete(BRIDGE + "/ports/2").status_code == 204
    bridge.start_switch()
    ovs.wait_connected("br0")
    said = eventually(
        lambda: (c := ovs.get(BRIDGE + "/classes/video"))["state"] == "failed" and c,
        "the class cannot be",
    )
    assert "500Mbit is above the line rate of port 1, 100Mbit" in said["state_reason"]
    assert bridge.queues("p1") == {"1": {"max-rate": "500000000"}}
    assert ovs.put(BRIDGE + "/classes/video", {"rate": "80Mbit"}).status_code == 200
    eventually(
        lambda: ovs.get(BRIDGE + "/classes/video")["state"] == "applied", "the class is there"
    )
    assert bridge.queues("p1") == {"1": {"max-rate": "80000000"}}


def test_one_controller_at_a_time(bridge: Bridge, ovs: Controller, start_controller: Start) -> None:
    which = f"br0={bridge.database},bridge=br0,qos-type=linux-htb"
    second = start_controller("--switch", which)
    eventually(lambda: second.get(BRIDGE)["state"] == "backup", "the second is the backup")
    assert second.put(BRIDGE + "/classes/video", {"rate": "2Mbit"}).json()["state"] == "pending"
    put(ovs, "/classes/video", {"rate": "1Mbit"})
    assert bridge.queues("p1") == {"1": {"max-rate": "1000000"}}
    ovs.process.kill()
    second.wait_connected("br0")
    assert bridge.queues("p1") == {"1": {"max-rate": "2000000"}}


def test_who_has_lost_the_lock_writes_nothing(bridge: Bridge) -> None:
    """A new connection has no lock, and writes nothing."""
    first, second = (Database(bridge.database, "br0", "br0") for _ in range(2))
    queues = {1: {"max-rate": "1000000"}}
    try:
        assert first.lock(steal=False)
        assert first.fence(5) == 0
        first.sync("linux-htb", queues, {})
        # Of two concurrent requests, one gets the lock.
        assert not second.lock(steal=False)
        with pytest.raises(OvsdbError, match="not this controller's"):
            second.sync("linux-htb", {}, {})
        # The holder of a newer lease takes it, and bids more than is borne.
        assert second.lock(steal=True)
        assert second.fence(5) == 5
        assert second.fence(6) == 0
        with pytest.raises(OvsdbError):
            first.sync("linux-htb", {}, {})
        assert bridge.queues("p1") == {"1": {"max-rate": "1000000"}}
        # With the connection the lock is gone, and reading does not hide that.
        second.close()
        with pytest.raises(OvsdbError, match="and with it the bridge's lock"):
            second.read()
        assert second.lock(steal=True)
        with pytest.raises(OvsdbError, match="not this controller's"):
            second.sync("linux-htb", {}, {})
    finally:
        first.close()
        second.close()


def test_a_queue_of_one_port_is_on_that_port_alone(bridge: Bridge) -> None:
    database = Database(bridge.database, "br0", "br0")
    of_classes = {1: {"max-rate": "1000000"}}
    own = {"max-rate": "2000000"}
    try:
        assert database.lock(steal=False)
        assert database.fence(5) == 0

        def sync(of_port: dict[int, dict[str, str]]) -> list[str]:
            return database.sync("linux-htb", of_classes, {}, own_queues={2: of_port})

        assert "queue 7 of port 2" in sync({7: own})
        assert bridge.queues("p1") == of_ports(of_classes)
        assert bridge.queues("p2") == of_ports(of_classes | {7: own})
        first, second = database.read().ports
        assert (first.own_queues, second.own_queues) == ({}, {7: own})
        assert sync({7: own}) == []
        # A row that lost its port is no longer a queue of this controller.
        bridge.vsctl("set", "queue", second.queues[7], "external_ids:pacer-port=two")
        assert f"queue row {second.queues[7]}" in sync({7: own})
        assert bridge.queues("p2") == of_ports(of_classes | {7: own})
        assert sync({}) == ["QoS of port 2", "queue 7 of port 2"]
        assert bridge.queues("p2") == of_ports(of_classes)
        assert len(bridge.vsctl("--bare", "--columns=_uuid", "list", "queue").split()) == 1
    finally:
        database.close()


def of_ports(rows: dict[int, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return queues in the form of `Bridge.queues`."""
    return {str(number): config for number, config in rows.items()}


@pytest.mark.parametrize(
    ("asked", "order", "rows"),
    [
        ({"queues": 2}, "strict", {0: {}, 62_001: {}}),
        (
            {"queues": 3, "scheduler": "wfq:4:+2:65536", "settings": [{"queue": 1, "packets": 9}]},
            "wfq",
            {
                0: {"weight": "4"},
                62_001: {"weight": "2", "limit-packets": "9"},
                62_002: {"weight": "65536"},
            },
        ),
        (
            {
                "queues": 2,
                "scheduler": "drr:1:1",
                "settings": [
                    {"queue": 0, "rate": "8kbit", "burst_bytes": 0},
                    {"queue": 1, "fifo_bytes": 1, "rate": "1Mbit"},
                ],
            },
            "drr",
            {
                0: {"weight": "1", "max-rate": "8000", "burst": "0"},
                62_001: {"weight": "1", "max-rate": "1000000", "limit": "1"},
            },
        ),
    ],
)
def test_egress_queues_are_rows_of_the_pacer_and_back(
    asked: dict[str, object], order: str, rows: dict[int, dict[str, str]]
) -> None:
    plain = egress_queues.plain(EgressQueuesSpec.model_validate(asked).wanted())
    expected = {number: {"mode": "unpaced", **config} for number, config in rows.items()}
    assert (queues.scheduler(plain), queues.settings(plain)) == (order, expected)
    weights = plain["scheduler"].replace("+", "")
    assert queues.plain({"scheduler": order}, expected) == {**plain, "scheduler": weights}


def test_egress_queues_have_numbers_that_no_class_has() -> None:
    numbers = [queues.number_of(queue) for queue in range(egress_queues.QUEUES_MAX)]
    assert [queues.queue_of(number) for number in numbers] == list(range(egress_queues.QUEUES_MAX))
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert QUEUES_MOST < numbers[1] < numbers[-1] < 2**16
    assert {queues.queue_of(index) for index in range(1, QUEUES_MOST + 1)} == {None}


def test_statistics_of_egress_queues() -> None:
    """Bytes are with FCS, as those of a pacing_switch."""
    counters = {(2, 0): (3, 180, 0), (2, 62_001): (1, 60, 5), (1, 62_001): (9, 9, 9)}
    found = queues.statistics(2, 3, counters)
    known = ("queue", "tx_packets", "tx_bytes", "drops")
    assert [[one[name] for name in known] for one in found] == [
        [0, 3, 192, {"queue-full": 0}],
        [1, 1, 64, {"queue-full": 5}],
        [2, 0, 0, {"queue-full": 0}],
    ]
    assert {value for one in found for name, value in one.items() if name not in known} == {None}


def test_egress_queues_with_values_of_others() -> None:
    """Somebody has changed the rows; the controller repairs them at the next reconcile."""
    rows = {0: {"weight": "3", "limit": "all"}, 62_001: {"max-rate": "-1", "burst": "9"}}
    assert queues.plain({}, rows)["scheduler"] == "fifo"  # type: ignore[index]
    read = queues.plain({"scheduler": "drr"}, rows)
    settings = [{"queue": 1, "burst_bytes": 9}]
    assert read == {"queues": 2, "scheduler": "drr:3:1", "aqm": "none", "settings": settings}
    assert queues.plain({"scheduler": "drr"}, {}) is None


def test_a_refused_egress_queue_fails_its_port() -> None:
    port = row(PORTS, {"port": 2}, "settings", {}, owner="port 2")
    of_class = flows.queue_row(1, ClassSpec(mode="unpaced"), "class 'bulk'")
    status = "queue 62003: burst is wrong; queue 0: limit is wrong; queue 1: limit is wrong"
    ports = [PortInfo(1, "p1"), PortInfo(2, "p2")]
    found = refusals.by_owner({"p2": status, "p1": status}, ports, by_key([port, of_class]))
    assert found == {
        "port 2": "port p2 refuses it: egress queue 3: burst is wrong; "
        "port p2 refuses it: egress queue 0: limit is wrong",
        "class 'bulk'": "port p2 refuses it: limit is wrong; port p1 refuses it: limit is wrong",
    }


def test_egress_queues_that_a_bridge_cannot_have_have_failed() -> None:
    """The switch has become a bridge after they were accepted."""
    client = Client()
    try:
        path = "/v1/switches/other"
        former = {"kind": "p4runtime", "address": "127.0.0.1:1", "ports": "1-2"}
        assert client.put(path, former).status_code == 201
        body = {"egress_queues": {"queues": 2, "aqm": "codel"}}
        assert client.put(path + "/ports/2", body).status_code == 201
        for qos_type, reason in (
            ("pacer", "the switch's queues have no active queue management; want no aqm"),
            ("linux-htb", "the switch's ports have no egress queues"),
        ):
            bridge = {"kind": "openvswitch", "ovsdb": "unix:/nowhere", "bridge": "br0"}
            assert client.put(path, bridge | {"qos_type": qos_type}).status_code == 200
            found = client.service.switch("other")
            assert Checker.of(found).unfit(found.desired)["port 2"].startswith(reason)
    finally:
        client.store.shut()


def test_a_former_master_of_a_bridge_writes_nothing(bridge: Bridge) -> None:
    """OpenFlow's generation ids: a controller with an older one is refused."""

    async def run() -> None:
        target = f"unix:{bridge.database.removeprefix('unix:').rpartition('/')[0]}/br0.mgmt"
        async with OpenFlow.connect(target) as old, OpenFlow.connect(target) as new:
            await old.become_master(7)
            await new.become_master(8)
            entry = row(flows.FLOWS, {"eth_type": 0x800}, "classify", {"queue": 1}, priority=7)
            with pytest.raises(OpenFlowError, match="another controller is master"):
                await old.write([Change(Op.INSERT, entry)])
            with pytest.raises(StaleRoleError) as stale:
                await old.become_master(7)
            assert stale.value.generation == 8
            assert await new.read_flows() == ([], {})

    asyncio.run(run())


def test_the_best_type_of_qos(bridge: Bridge, start_controller: Start) -> None:
    """The choice depends on the types that the switch reports: Debian's has no `pacer`."""
    ovs = start_controller("--switch", f"br0={bridge.database},bridge=br0")
    ovs.wait_connected("br0")
    put(ovs, "/classes/video", {"rate": "500Mbit"})
    schema = json.loads(SCHEMA.read_text())
    kind = "pacer" if "status" in schema["tables"]["QoS"]["columns"] else "linux-htb"
    said = ovs.get(BRIDGE)
    assert (said["qos_type"], said["qos_type_in_use"]) == ("auto", kind)
    assert bridge.vsctl("get", "qos", _qos(bridge), "type").strip() == kind


def _qos(bridge: Bridge) -> str:
    return bridge.vsctl("get", "port", "p1", "qos").strip()


def test_a_bridge_that_is_not_there(bridge: Bridge, start_controller: Start) -> None:
    controller = start_controller("--switch", f"br7={bridge.database},bridge=br7")
    said = eventually(
        lambda: controller.get("/v1/switches/br7")["last_error"], "what is wrong is said"
    )
    assert said == "there is no bridge 'br7'"
    assert controller.put("/v1/switches/br7/classes/x", {"rate": "1Mbit"}).json()["state"] == (
        "pending"
    )

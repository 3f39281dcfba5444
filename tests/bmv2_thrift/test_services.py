"""BMv2's Thrift services of the real binary, by the stubs that BMv2's clients use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from p4runtime_client import Client, P4RuntimeError, Program
from pacing_switch import Switch
from stranger import strangers_answer
from stubs import Clients, connected, generate, types
from subscriber import message_of, subscribed
from virtual_switch import binary

PROGRAMS = Path(__file__).resolve().parents[2] / "switch/crates/p4runtime-server/tests/programs"
KINDS = PROGRAMS / "kinds.json"
SPECIAL = "KindsIngress.special"
OPTIONS = ("--thrift-port", "0", "--cpu-port", "510")
MAC_BYTES = 6
# Of holders, as docs/thrift.md says.
THRIFT_CONNECTIONS = 64
# Types of messages of BMv2's event log.
PACKET_IN, PACKET_OUT = 0, 1
PARSER_EXTRACT, DEPARSER_EMIT = 4, 7
PIPELINE_DONE, CONDITION_EVAL = 10, 11
QUEUES_ON_WIRES = Path(__file__).with_name("queues_on_wires.py")
SLOW_QUEUE_ON_WIRES = Path(__file__).with_name("slow_queue_on_wires.py")
QUEUE_SETTINGS_ON_WIRES = Path(__file__).with_name("queue_settings_on_wires.py")
PORTS_ON_WIRES = Path(__file__).with_name("ports_on_wires.py")


@pytest.fixture(scope="session", autouse=True)
def _stubs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Stubs to import, made from the interface files."""
    if shutil.which("thrift") is None:
        pytest.skip("not run: there is no Thrift compiler (Debian's thrift-compiler)")
    generate(tmp_path_factory.mktemp("stubs"))


class Running:
    """A switch with clients of both its servers."""

    def __init__(self, clients: Clients, p4runtime: Client) -> None:
        self.clients = clients
        self.p4runtime = p4runtime
        self.types = types("standard")

    def key(self, mac: int) -> list[Any]:
        """A key of the table `special`."""
        exact = self.types.BmMatchParamExact(mac.to_bytes(MAC_BYTES, "big"))
        return [self.types.BmMatchParam(type=self.types.BmMatchParamType.EXACT, exact=exact)]

    def add(self, mac: int, port: int) -> int:
        """Add an entry to `special`; returns its handle."""
        handle: int = self.clients.standard.bm_mt_add_entry(
            0,
            SPECIAL,
            self.key(mac),
            "KindsIngress.send",
            [port.to_bytes(2, "big")],
            self.types.BmAddEntryOptions(priority=0),
        )
        return handle

    def handles(self) -> dict[int, int]:
        """Addresses in `special` by handle."""
        entries = self.clients.standard.bm_mt_get_entries(0, SPECIAL)
        key = {entry.entry_handle: entry.match_key[0].exact.key for entry in entries}
        return {handle: int.from_bytes(key[handle], "big") for handle in key}


@pytest.fixture
def running() -> Iterator[Running]:
    """A switch that has started with the program, without ports."""
    with Switch(KINDS, options=OPTIONS, binary=binary()) as switch:
        line = switch.wait_for_line(": Thrift at ")
        program = Program(PROGRAMS / "kinds.p4info.txtpb", KINDS)
        p4runtime = Client(switch.grpc_address, 0, program)
        with connected(int(line.rpartition(":")[2])) as clients:
            yield Running(clients, p4runtime)
        p4runtime.close()
    assert switch.process.returncode == 0


def test_the_program_and_its_digest_are_told(running: Running) -> None:
    standard = running.clients.standard
    text = standard.bm_get_config()
    assert json.loads(text) == json.loads(KINDS.read_text())
    assert standard.bm_get_config_md5() == hashlib.md5(KINDS.read_bytes()).digest()
    info = standard.bm_mgmt_get_info()
    assert info.device_id == 0
    assert info.thrift_port > 0


def test_both_servers_see_the_same_tables(running: Running) -> None:
    p4runtime = running.p4runtime
    assert running.add(mac=1, port=1) == 0
    assert p4runtime.become_primary() == 0
    # A new program begins without entries, also for Thrift.
    p4runtime.push()
    assert running.handles() == {}
    assert running.add(mac=1, port=1) == 0
    entry = p4runtime.entry(SPECIAL, {"hdr.ethernet.dst": 2}, "KindsIngress.send", {"port": 2})
    p4runtime.insert(entry)
    assert running.handles() == {0: 1, 1: 2}
    (first, second) = p4runtime.entries(SPECIAL)
    assert first.match[0].exact.value == b"\1"
    running.clients.standard.bm_mt_modify_entry(0, SPECIAL, 1, "KindsIngress.drop", [])
    (first, second) = p4runtime.entries(SPECIAL)
    dropped = p4runtime.program.action("KindsIngress.drop").preamble.id
    assert second.action.action.action_id == dropped
    p4runtime.delete(p4runtime.entry(SPECIAL, {"hdr.ethernet.dst": 1}))
    with pytest.raises(running.types.InvalidTableOperation) as refused:
        running.clients.standard.bm_mt_get_entry(0, SPECIAL, 0)
    assert refused.value.code == running.types.TableOperationErrorCode.INVALID_HANDLE


def test_what_is_attached_to_an_entry_ends_with_it(running: Running) -> None:
    p4runtime, standard = running.p4runtime, running.clients.standard
    assert p4runtime.become_primary() == 0
    p4runtime.push()

    def attached() -> list[bytes]:
        return [entry.metadata for entry in p4runtime.entries(SPECIAL)]

    for end in (
        lambda: standard.bm_mt_delete_entry(0, SPECIAL, 0),
        lambda: standard.bm_mt_clear_entries(0, SPECIAL, False),
        standard.bm_reset_state,
    ):
        entry = p4runtime.entry(SPECIAL, {"hdr.ethernet.dst": 1}, "KindsIngress.send", {"port": 2})
        entry.table_entry.metadata = b"cookie"
        p4runtime.insert(entry)
        assert attached() == [b"cookie"]
        end()
        handle = running.add(mac=1, port=1)
        assert attached() == [b""]
        standard.bm_mt_delete_entry(0, SPECIAL, handle)
        standard.bm_mt_clear_entries(0, SPECIAL, False)


def test_groups_of_either_server_are_seen_by_the_other(running: Running) -> None:
    p4runtime, pre = running.p4runtime, running.clients.simple_pre_lag
    assert p4runtime.become_primary() == 0
    p4runtime.push()
    # The controller's port is the only one that this switch has.
    p4runtime.insert(p4runtime.multicast_group(4, [510]))
    node = pre.bm_mc_node_create(0, 9, "1" + "0" * 510, "")
    told = json.loads(pre.bm_mc_get_entries(0))
    assert told["mgrps"] == [{"id": 4, "l1_handles": [0]}]
    assert told["l2_handles"][0]["ports"] == [510]
    pre.bm_mc_mgrp_create(0, 7)
    pre.bm_mc_node_associate(0, 7, node)
    pattern = p4runtime.multicast_group(7, [])
    (group,) = p4runtime.read(pattern)
    (replica,) = group.packet_replication_engine_entry.multicast_group_entry.replicas
    assert replica.instance == 9
    # Deleted over P4Runtime, it is gone for Thrift, too.
    p4runtime.delete(pattern)
    assert [group["id"] for group in json.loads(pre.bm_mc_get_entries(0))["mgrps"]] == [4]


def test_a_program_swapped_in_is_unknown_to_p4runtime(running: Running) -> None:
    p4runtime, standard = running.p4runtime, running.clients.standard
    assert p4runtime.become_primary() == 0
    p4runtime.push()
    running.add(mac=1, port=1)
    standard.bm_load_new_config(KINDS.read_text())
    with pytest.raises(P4RuntimeError, match="swap_configs"):
        p4runtime.entries(SPECIAL)
    running.add(mac=2, port=2)
    standard.bm_swap_configs()
    assert running.handles() == {0: 2}
    with pytest.raises(P4RuntimeError, match="no forwarding pipeline config"):
        p4runtime.entries(SPECIAL)
    p4runtime.push()
    assert p4runtime.entries(SPECIAL) == []


def test_a_stranger_changes_nothing_that_a_holder_controls(running: Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root can become another user")
    port = running.clients.standard.bm_mgmt_get_info().thrift_port

    def answer() -> str:
        return strangers_answer(port, "standard:bm_reset_state")

    running.add(mac=1, port=1)
    # As over P4Runtime, a stranger may do everything until a holder has bid.
    assert "not allowed" not in answer()
    assert running.handles() == {}
    running.add(mac=1, port=1)
    assert running.p4runtime.become_primary() == 0
    assert "not allowed" in answer()
    assert running.handles() == {0: 1}


def test_sessions_queues_and_time(running: Running) -> None:
    target, config = running.clients.simple_switch, types("simple_switch").MirroringSessionConfig
    target.mirroring_session_add(5, config(port=510))
    assert target.mirroring_session_get(5) == config(port=510)
    with pytest.raises(types("simple_switch").InvalidMirroringOperation):
        target.mirroring_session_delete(6)
    assert target.mirroring_mapping_get_egress_port(5) == 510
    assert target.set_all_egress_queue_rates(1000) == 0
    first = target.get_time_elapsed_us()
    assert target.get_time_elapsed_us() >= first > 0
    assert target.get_time_since_epoch_us() > 1_600_000_000_000_000


def told_on_wires(script: Path, folder: Path) -> Any:
    """What a script tells that runs in a network namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("not run: only root can make network interfaces")
    inside = ["unshare", "--net", sys.executable, str(script), str(folder)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(inside, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_priority_queues_in_real_time(tmp_path: Path) -> None:
    """The second packet of the slow queue leaves a second later, after one of a higher priority."""
    told = told_on_wires(QUEUES_ON_WIRES, tmp_path)
    assert told == {"received": [0, 7, 0], "drops": {"3": {"queue-full": 1}}}


Call = list[str | int]
RATE_OF_QUEUE = "set_egress_priority_queue_rate"
DEPTH_OF_QUEUE = "set_egress_priority_queue_depth"
REFUSED: list[tuple[Call, str]] = [
    ([RATE_OF_QUEUE, 1, 3, 1_000], "3 given, 0 to 2 expected: port 1 has 3 queues"),
    ([DEPTH_OF_QUEUE, 1, 3, 10], "3 given, 0 to 2 expected: port 1 has 3 queues"),
    ([DEPTH_OF_QUEUE, 1, -1, 10], "-1 given, 0 to 2 expected: port 1 has 3 queues"),
    ([RATE_OF_QUEUE, 2, 1, 1_000], "1 given, 0 expected: port 2 has one queue"),
    ([DEPTH_OF_QUEUE, 2, -1, 10], "-1 given, 0 expected: port 2 has one queue"),
    # A port that the switch does not have has as many queues as the port with the most, and so has
    # the controller's.
    ([RATE_OF_QUEUE, 9, 3, 1_000], "3 given, 0 to 2 expected: port 9 has 3 queues"),
    ([DEPTH_OF_QUEUE, -1, 3, 10], "3 given, 0 to 2 expected: port -1 has 3 queues"),
    ([RATE_OF_QUEUE, 510, 3, 1_000], "3 given, 0 to 2 expected: port 510 has 3 queues"),
]
IGNORED: list[Call] = [
    [RATE_OF_QUEUE, 9, 2, 1_000],
    ["set_egress_queue_rate", -1, 1_000],
    # Port 1 in 16 bits.
    ["set_egress_queue_depth", 65_537, 10],
    ["set_egress_queue_depth", 510, 10],
]
IN_TREE: list[Call] = [[RATE_OF_QUEUE, 1, 1, 1_000], [DEPTH_OF_QUEUE, 1, 0, 10]]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What queue_settings_on_wires.py tells of these calls."""
    folder = tmp_path_factory.mktemp("settings")
    calls = {"refused": [call for call, _ in REFUSED], "ignored": IGNORED, "in tree": IN_TREE}
    (folder / "calls.json").write_text(json.dumps(calls))
    return told_on_wires(QUEUE_SETTINGS_ON_WIRES, folder)


def test_settings_of_queues_that_a_port_does_not_have_are_refused(settings: Any) -> None:
    """Nothing has changed after each."""
    expected = [[f"priority: {error}", settings["queues"]] for _, error in REFUSED]
    assert settings["refused"] == expected


def test_settings_of_ports_that_the_switch_does_not_have_change_nothing(settings: Any) -> None:
    assert settings["ignored"] == [[None, settings["queues"]]] * len(IGNORED)


def test_settings_of_queues_in_a_tree_leave_the_tree_and_its_other_queues(settings: Any) -> None:
    tree = settings["queues"]["1"]
    assert tree["scheduler"] == "strict{q2+wfq{q1:4+q0}:rate=40mbit}"
    lowest, middle, highest = tree["settings"]
    # A rate in packets takes the place of one in bits.
    assert (middle["rate_bps"], middle["burst_bytes"]) == (10_000_000, 3_072)
    slow = {"queue": 1, "rate_pps": 1_000}
    short = lowest | {"fifo_bytes": (1 << 64) - 1, "fifo_packets": 10}
    expected = [[lowest, slow, highest], [short, slow, highest]]
    assert settings["in tree"] == [
        [None, {"1": tree | {"settings": queues}, "2": None}] for queues in expected
    ]


def test_a_stranger_sets_no_queue_of_a_switch_that_a_holder_controls(settings: Any) -> None:
    answer, before, after = settings["stranger"]
    assert "not allowed: this switch has controllers" in answer
    assert after == before
    assert settings["refusals"]["thrift-stranger"] == 1


def test_a_slow_queue_tells_depths_and_times_as_bmv2s_own_test_has_them(tmp_path: Path) -> None:
    """The assertions of BMv2's test_queueing.cpp, whose unit is the time of a packet."""
    told = told_on_wires(SLOW_QUEUE_ON_WIRES, tmp_path)
    alone, *others = told["slow"]
    unit_us = 1_000_000 / told["rate_pps"]
    # QueueingBasic.
    assert (alone["enq_qdepth"], alone["deq_qdepth"]) == (0, 0)
    # QueueingAdvanced. The program has 32 bits of the time in microseconds.
    packets = len(others)
    begins = others[0]["enq_timestamp"]
    enqueued = [(each["enq_timestamp"] - begins) % (1 << 32) for each in others]
    waits = [each["deq_timedelta"] for each in others]
    assert enqueued == sorted(enqueued)
    assert enqueued[-1] < unit_us
    assert others[0]["enq_qdepth"] == 0
    assert others[-1]["enq_qdepth"] > packets - 2
    assert waits == sorted(waits)
    assert waits[0] < 2 * unit_us
    assert waits[-1] > (packets - 2) * unit_us
    assert others[0]["deq_qdepth"] > packets - 2
    assert others[-1]["deq_qdepth"] == 0
    # Its depth, and a queue of a higher priority.
    assert packets == 16
    assert told["drops"] == {"1": {"queue-full": 1}}
    assert told["order"] == [1, 6, *[1] * 16]


def sample_of(stream: socket.socket) -> tuple[int, int, bytes]:
    """Receive a learning message as p4-utils reads it; return list, buffer and the only sample."""
    message = message_of(stream)
    topic, device, context, of, buffer, count = struct.unpack("=4sQiiQi", message[:32])
    assert (topic, device, context, count) == (b"LEA|", 0, 0, 1)
    return of, buffer, message[32:]


def test_digests_are_published_until_they_are_acknowledged(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/notifications.ipc"
    # Of this port, the program takes the fields of packet-outs for the first bytes of the frame.
    options = ("--thrift-port", "0", "--cpu-port", "5", "--notifications-addr", address)
    with Switch(KINDS, options=options, binary=binary()) as switch:
        line = switch.wait_for_line(": Thrift at ")
        program = Program(PROGRAMS / "kinds.p4info.txtpb", KINDS)
        p4runtime = Client(switch.grpc_address, 0, program)
        p4runtime.become_primary()
        p4runtime.push()
        with (
            connected(int(line.rpartition(":")[2])) as clients,
            subscribed(address) as stream,
        ):
            assert clients.standard.bm_mgmt_get_info().notifications_socket == address
            running = Running(clients, p4runtime)

            def learn() -> None:
                clients.standard.bm_mt_add_entry(
                    *(0, SPECIAL, running.key(5), "KindsIngress.learn", [b"\0\1"]),
                    running.types.BmAddEntryOptions(priority=0),
                )

            def send(source: int) -> None:
                ethernet = (5).to_bytes(6, "big") + source.to_bytes(6, "big") + b"\x12\x34"
                p4runtime.packet_out(ethernet.ljust(60, b"\0")[2:], egress_port=0)

            learn()
            # The second one has the same digest as the first.
            for source in (7, 7, 8):
                send(source)
            seen = [sample_of(stream) for _ in range(2)]
            assert [(buffer, sample[:6]) for _, buffer, sample in seen] == [
                (1, (7).to_bytes(6, "big")),
                (2, (8).to_bytes(6, "big")),
            ]
            of, buffer, sample = seen[0]
            # int<12>, bool, enum, bit<9>: each in whole bytes.
            assert sample[6:8] == b"\x0f\xfe"
            assert sample[-2:] == (5).to_bytes(2, "big")
            clients.standard.bm_learning_ack_buffer(0, of, buffer)
            send(7)
            assert sample_of(stream) == (of, 3, sample)
            # A reset forgets what was sent, and removes the entry.
            clients.standard.bm_reset_state()
            learn()
            send(7)
            assert sample_of(stream) == (of, 4, sample)
        p4runtime.close()


def test_idle_entries_are_published_with_their_handles(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/notifications.ipc"
    options = (*OPTIONS, "--notifications-addr", address, "--device-id", "4")
    with Switch(KINDS, options=options, binary=binary()) as switch:
        line = switch.wait_for_line(": Thrift at ")
        program = Program(PROGRAMS / "kinds.p4info.txtpb", KINDS)
        p4runtime = Client(switch.grpc_address, 4, program)
        with (
            connected(int(line.rpartition(":")[2])) as clients,
            subscribed(address) as stream,
        ):
            running = Running(clients, p4runtime)
            running.add(5, 1)
            handle = running.add(6, 1)
            clients.standard.bm_mt_set_entry_ttl(0, SPECIAL, handle, 20)
            tables = json.loads(KINDS.read_text())["pipelines"][0]["tables"]
            number = next(table["id"] for table in tables if table["name"] == SPECIAL)
            # Again after another timeout.
            for buffer in range(2):
                message = message_of(stream)
                assert struct.unpack("=4sQIQiI", message[:32]) == (
                    *(b"AGE|", 4, 0, buffer, number, 1),
                )
                assert struct.unpack("=I", message[32:]) == (handle,)
        p4runtime.close()


def test_ports_are_published_when_they_go_down_and_up_and_come_back(tmp_path: Path) -> None:
    told = told_on_wires(PORTS_ON_WIRES, tmp_path)
    down, up, back = [bytes.fromhex(message) for message in told]
    header = struct.pack("=4sQI16x", b"PRT|", 0, 1)
    assert down == header + struct.pack("=ii", 2, 0)
    assert up == back == header + struct.pack("=ii", 2, 1)


def test_events_of_packets_are_published_while_somebody_has_subscribed(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/log.ipc"
    options = ("--cpu-port", "510", "--nanolog", address, "--device-id", "4")
    with Switch(KINDS, options=options, binary=binary()) as switch:
        program = Program(PROGRAMS / "kinds.p4info.txtpb", KINDS)
        p4runtime = Client(switch.grpc_address, 4, program)
        p4runtime.become_primary()
        p4runtime.push()
        with subscribed(address) as stream:
            p4runtime.packet_out(bytes(60), egress_port=510)
            messages: list[tuple[int, bytes]] = []
            while not messages or messages[-1][0] != PACKET_OUT:
                message = message_of(stream)
                kind, device, context, _, packet, copy = struct.unpack("=iQIQQQ", message[:40])
                assert (device, context, packet, copy) == (4, 0, 0, 0)
                messages.append((kind, message[40:]))
        p4runtime.close()
    port = struct.pack("=i", 510)
    assert messages[0] == (PACKET_IN, port)
    assert messages[-1] == (PACKET_OUT, port)
    kinds = {kind for kind, _ in messages}
    assert {PARSER_EXTRACT, PIPELINE_DONE, CONDITION_EVAL, DEPARSER_EMIT} <= kinds


def test_an_event_log_without_a_place_is_reported_and_left_out(tmp_path: Path) -> None:
    options = ("--nanolog", "tcp://0.0.0.0:5555")
    with Switch(KINDS, options=options, log=tmp_path / "log", binary=binary()):
        pass
    told = (tmp_path / "log").read_text()
    assert "no event log: --nanolog tcp://0.0.0.0:5555: " in told
    assert "ready" in told


def is_answered(stream: socket.socket) -> bool:
    """Whether a call on a connection is answered; else the switch has closed it."""
    name = b"standard:bm_mgmt_get_info"
    try:
        stream.sendall(b"\x80\1\0\1" + struct.pack(">I", len(name)) + name + b"\0\0\0\1\0")
        answer = stream.recv(4, socket.MSG_WAITALL)
    except (ConnectionResetError, BrokenPipeError):
        return False
    assert answer in {b"", b"\x80\1\0\2"}
    return bool(answer)


def test_a_thousand_connections_are_answered_or_refused(tmp_path: Path) -> None:
    """Each refusal is counted, and a client that comes after them is answered."""
    stats = tmp_path / "stats.json"
    options = ("--thrift-port", "0", "--stats-file", str(stats))
    with Switch(KINDS, options=options, binary=binary()) as switch:
        address = ("127.0.0.1", int(switch.wait_for_line(": Thrift at ").rpartition(":")[2]))
        served, refused = [], 0
        # Not all at once: a process may have no more than 1,024 descriptors.
        for _ in range(5):
            streams = [socket.create_connection(address, timeout=60) for _ in range(200)]
            for stream in streams:
                if is_answered(stream):
                    served.append(stream)
                else:
                    refused += 1
                    stream.close()
        assert (len(served), refused) == (THRIFT_CONNECTIONS, 1_000 - THRIFT_CONNECTIONS)
        for stream in served:
            stream.close()
        # The places are free a moment after the clients have gone.
        later = 0
        while True:
            with socket.create_connection(address, timeout=60) as stream:
                if is_answered(stream):
                    break
                later += 1
    refusals = json.loads(stats.read_text())["refusals"]
    assert refusals == {"thrift-connections-full": refused + later}

"""BMv2's Thrift services of the real binary, by the stubs that BMv2's clients use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from p4runtime_client import Client, P4RuntimeError, Program
from pacing_switch import Switch
from stubs import Clients, connected, generate, types
from virtual_switch import binary

PROGRAMS = Path(__file__).resolve().parents[2] / "switch/crates/p4runtime-server/tests/programs"
KINDS = PROGRAMS / "kinds.json"
SPECIAL = "KindsIngress.special"
OPTIONS = ("--thrift-port", "0", "--cpu-port", "510")
MAC_BYTES = 6


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


NOBODY = 65534
# Calls bm_reset_state and prints the answer. It runs as another user, who reads none of our files.
RESET = """
import socket, struct, sys
name = b"standard:bm_reset_state"
call = b"\\x80\\1\\0\\1" + struct.pack(">i", len(name)) + name + b"\\0\\0\\0\\1\\0"
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as switch:
    switch.sendall(call)
    print(switch.recv(4096))
"""


def test_a_stranger_changes_nothing_that_a_holder_controls(running: Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root can become another user")
    port = str(running.clients.standard.bm_mgmt_get_info().thrift_port)

    def answer() -> str:
        command = ["/usr/bin/python3", "-c", RESET, port]
        ended = subprocess.run(command, user=NOBODY, capture_output=True, text=True, check=True)
        return ended.stdout

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

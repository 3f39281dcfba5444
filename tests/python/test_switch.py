"""The switch of a `with` block: it is ready, tells its address, and ends with the block."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from pathlib import Path

import pytest
from namespaces import told_inside
from pacing_switch import ProcessError, Switch, TimedFrame, VirtualSwitch
from pacing_switch.offloads import OffloadError, turn_off
from pacing_switch.processes import LoggedProcess
from virtual_switch import COMPILED, binary

PACER = COMPILED / "pacer.json"
BROADCAST = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + bytes(46)
OFFLOADS = (
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "rx-vlan-offload",
    "tx-vlan-offload",
)
"""As `ethtool -k` has them."""
INSIDE = Path(__file__).with_name("on_wires.py")


def test_the_block_begins_when_the_switch_serves_and_ends_with_it() -> None:
    with Switch(binary=binary()) as switch:
        host, _, port = switch.grpc_address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()
        os.kill(switch.pid, 0)
        assert switch.process.pid == switch.pid
        assert switch.grpc_address in switch.log.read_text()
        log = switch.log
    assert switch.process.returncode == 0
    assert not log.parent.exists()


def test_the_log_stays_where_it_is_asked_for(tmp_path: Path) -> None:
    with Switch(PACER, log=tmp_path / "s1.log", binary=binary()) as switch:
        assert switch.log == tmp_path / "s1.log"
    assert "pacing_switch: ready" in (tmp_path / "s1.log").read_text()


def test_frames_pass_between_wires(tmp_path: Path) -> None:
    told = told_inside(INSIDE, tmp_path)
    assert told["passed"]
    assert "port 1: no interface 'none'" in told["refused"]
    if not told["offloads"]:
        pytest.skip("not run: no ethtool to ask for offloads")
    states = dict(re.findall(r"^\s*([a-z0-9-]+): (on|off)", told["offloads"], re.MULTILINE))
    assert {name: states[name] for name in OFFLOADS} == dict.fromkeys(OFFLOADS, "off")


def test_an_interface_that_is_not_there_is_named() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as through,
        pytest.raises(OffloadError, match="none0: cannot turn its offloads off: No such device"),
    ):
        turn_off(through, "none0", ["rx"])


@pytest.mark.parametrize(
    ("program", "named"),
    [("none.json", "none.json"), (str(Path(__file__)), "not BMv2 JSON")],
)
def test_a_refusal_has_the_words_of_the_switch(program: str, named: str) -> None:
    with pytest.raises(ProcessError) as refused:
        Switch(program, binary=binary()).__enter__()
    assert named in str(refused.value)
    assert "pacing_switch ended with status 1" in str(refused.value)


def test_a_switch_that_dies_in_the_block_is_an_error() -> None:
    switch = Switch(binary=binary()).__enter__()
    switch.process.send_signal(signal.SIGKILL)
    with pytest.raises(ProcessError, match="status -9"):
        switch.__exit__(None, None, None)


def test_an_error_of_the_block_is_not_covered() -> None:
    def dies_and_fails() -> None:
        with Switch(binary=binary()) as switch:
            switch.process.send_signal(signal.SIGKILL)
            raise KeyError

    with pytest.raises(KeyError):
        dies_and_fails()


def test_a_block_can_end_the_switch() -> None:
    with Switch(binary=binary()) as switch:
        assert switch.stop() == 0


def test_without_its_block_there_is_no_address() -> None:
    with pytest.raises(RuntimeError, match="with Switch"):
        _ = Switch(binary=binary()).grpc_address


def test_a_line_that_does_not_come_is_an_error() -> None:
    with Switch(binary=binary()) as switch:
        assert switch.grpc_address in switch.wait_for_line("ready")
        switch.stop()
        with pytest.raises(ProcessError, match="ended with status 0"):
            switch.wait_for_line("never printed")


def test_a_process_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pacing_switch.processes.STOP_TIMEOUT_S", 0.1)
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\necho stubborn: ready\nread line <>/dev/zero\n")
    stubborn.chmod(stat.S_IRWXU)
    process = LoggedProcess([str(stubborn)], tmp_path / "log", "stubborn: ready")
    process.wait_ready()
    assert process.stop() == -signal.SIGKILL


def groups() -> dict[str, object]:
    """Flood the frames of unknown stations to both ports."""
    replicas = [{"egress_port": port, "instance": port} for port in (1, 2)]
    return {
        "multicast_group_entries": [
            {"multicast_group_id": group, "replicas": replicas} for group in (1, 2)
        ]
    }


def test_virtual_time_is_exact() -> None:
    frames = [TimedFrame(1_000_000 * number, BROADCAST) for number in range(3)]
    with VirtualSwitch(
        PACER,
        ports={1: "", 2: "rate=100mbit,delay=1ms"},
        runtime=groups(),
        options=["--cpu-port", "510"],
        binary=binary(),
    ) as switch:
        sent = switch.run({1: frames})
        # 64 bytes of the frame, 20 of preamble and gap.
        expected = [timed.at_ns + 1_000_000 for timed in frames]
        assert [timed.frame for timed in sent[2]] == [BROADCAST] * 3
        assert [timed.at_ns for timed in sent[2]] == expected
        assert sent[1] == []
        assert json.loads((switch.folder / "stats.json").read_text()) == switch.statistics()
        folder = switch.folder
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="with VirtualSwitch"):
        switch.run({})


def test_virtual_time_refuses_what_cannot_be(tmp_path: Path) -> None:
    with VirtualSwitch("none.json", {1: ""}, folder=tmp_path, binary=binary()) as switch:
        with pytest.raises(ProcessError, match=r"none\.json"):
            switch.run({})
        with pytest.raises(ValueError, match="port 3"):
            switch.run({3: []})

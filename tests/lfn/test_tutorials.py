"""Mininet's P4 switch classes, as the P4 tutorials write them, start `pacing_switch`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_mininet import paths
from pacer_mininet.runs import isolated

INSIDE = Path(__file__).with_name("tutorial_inside.py")
# Sends frames of more than 60 bytes by port 2, and writes their length into them.
PROGRAM = Path(__file__).resolve().parents[1] / "conformance/compiled/lengths.json"
TIMEOUT_S = 120
FRAME_BYTES = 71


def test_the_tutorials_command_line_starts_the_switch(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: Mininet's P4 switch: needs root, to make network namespaces")
    try:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_programs("ip", "mnexec", "unshare")
    except paths.MissingError as error:
        pytest.skip(f"not run: Mininet's P4 switch: {error}")
    probe = subprocess.run(isolated(["true"]), capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: Mininet's P4 switch: no namespaces here: {probe.stderr.strip()}")
    # The tutorials tell a P4Runtime switch by `grpc` in its name.
    switch = tmp_path / "simple_switch_grpc"
    switch.symlink_to(paths.SWITCH_BINARY)
    captures = tmp_path / "captures"
    captures.mkdir()
    command = [sys.executable, str(INSIDE), str(switch), str(PROGRAM), str(captures)]
    script = ["sh", "-ec", 'ip link set lo up && exec "$@"', "sh"]
    ended = subprocess.run(
        isolated([*script, *command]), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    length = FRAME_BYTES.to_bytes(4, "big")
    expected = bytes(1) + length + length + bytes(FRAME_BYTES - 9)
    assert told["frame"] == expected.hex(), told
    assert "s1-eth1_in.pcap" in told["files"]
    assert "s1-eth2_out.pcap" in told["files"]
    assert "Thrift at 127.0.0.1:9090" in told["log"]
    assert "no event log" not in told["log"]

"""One short run on this machine's own kernel; a busy machine cannot break its assertions.

If namespaces cannot be made, it is skipped and says so.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.runs import isolated

INSIDE = Path(__file__).with_name("smoke_inside.py")
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def smoke() -> dict[str, Any]:
    """Run `smoke_inside.py` in namespaces of its own; return its output."""
    try:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        paths.need_programs("ip", "mnexec", "ethtool", "ping", "unshare")
    except paths.MissingError as error:
        pytest.skip(f"not run: real-time smoke test: {error}")
    if os.geteuid() != 0:
        pytest.skip("not run: real-time smoke test: needs root, to make network namespaces")
    probe = subprocess.run(isolated(["true"]), capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: real-time smoke test: no namespaces here: {probe.stderr.strip()}")
    ended = subprocess.run(
        isolated([sys.executable, str(INSIDE)]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def test_data_arrives_intact(smoke: dict[str, Any]) -> None:
    assert smoke["received_digest"] == smoke["sent_digest"]


def test_rate_is_never_above_the_target(smoke: dict[str, Any]) -> None:
    """Lost time is made up within the allowance (one MTU), so no machine can make this too fast.

    Counted from the first to the last bin that saw a packet, both of them whole.
    """
    rate_bytes = smoke["rate_bps"] * smoke["span_ns"] // 8 // 10**9
    assert 0 < smoke["bytes_in"] <= rate_bytes + 2 * 1518


def test_counters_agree(smoke: dict[str, Any]) -> None:
    """The wan received all packets that the edge sent. The edge sent or dropped all it accepted."""
    lost = smoke["edge_to_wan_packets"] - smoke["wan_from_edge_packets"]
    assert 0 <= lost <= smoke["rx_ring_full"]
    assert smoke["bytes_in"] >= smoke["sent_bytes"]
    assert smoke["rx_ring_full"] == 0 or smoke["retransmits"] > 0


def test_nothing_is_left_behind(smoke: dict[str, Any]) -> None:
    names = os.listdir("/sys/class/net")
    assert not [name for name in names if name.startswith(("edge1-eth", "wan-eth", "a1-eth"))]

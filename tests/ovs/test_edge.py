"""The demo with Open vSwitch at the edge, in virtual time: short, exact, always the same."""

import os
from typing import Any

import pytest
from pacer_mininet.ovs_switch import installed_ovs
from pacer_mininet.paths import MissingError
from pacer_mininet.runs import LabUnavailableError, Plan, check_lab, make_runs

FRAME_BYTES = 1518


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """Two seconds of TCP, paced by Open vSwitch."""
    if os.environ.get("LAB") == "1":
        pytest.skip("not inside the lab")
    try:
        installed_ovs()
        check_lab()
    except (MissingError, LabUnavailableError) as error:
        pytest.skip(str(error))
    results = make_runs(
        Plan(("ovs-paced",), seconds="2"), realtime=False, listener=lambda _event: None
    )
    return dict(results["ovs-paced"]["run"])


def test_no_packet_is_lost(run: dict[str, Any]) -> None:
    """Neither at the bottleneck, whose FIFO is the demo's, nor at the edge."""
    assert run["bottleneck_drops"] == 0
    assert run["edge_drops"] == 0
    assert run["retransmits"] == 0
    assert run["goodput_second_half_bps"] > 100_000_000


def test_gaps_are_exact(run: dict[str, Any]) -> None:
    """In front of a virtual bottleneck of the class's rate there is never more than one frame."""
    assert run["vb_max_bytes"] == FRAME_BYTES
    assert run["lateness_max_ns"]["s1"] == 0

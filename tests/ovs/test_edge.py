"""The demo with Open vSwitch at the edge, in virtual time: short, exact, always the same."""

import os
from typing import Any

import pytest
from pacer_mininet.counters import lateness_between
from pacer_mininet.experiments import jobs
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.scenario import OVS_PACED, Scenario
from pacer_mininet.ovs_switch import installed_ovs, lateness_shown
from pacer_mininet.paths import MissingError
from pacer_mininet.runs import LabUnavailableError, check_lab, side_by_side

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
    job = jobs.Job("ovs-paced", Scenario(one_flow(OVS_PACED), seconds=2))
    command = ([job.name], jobs.command_of(job, realtime=False))
    (ended,) = side_by_side([command], 1, lambda _event: None)
    return dict(ended.wait()[job.name])


def test_no_packet_is_lost(run: dict[str, Any]) -> None:
    """No packet is lost, neither at the bottleneck, whose FIFO is the demo's, nor at the edge."""
    assert run["bottleneck_drops"] == 0
    assert run["edge_drops"] == 0
    assert run["retransmits"] == 0
    assert run["flows"][0]["goodput_second_half_bps"] > 100_000_000


def test_gaps_are_exact(run: dict[str, Any]) -> None:
    """In front of a virtual bottleneck of the class's rate there is never more than one frame."""
    assert run["wan"]["queue_max_bytes"] == FRAME_BYTES
    assert run["lateness_max_ns"]["edge1"] == 0


def test_lateness_that_grows_is_reported() -> None:
    """Also when the worst of a run is in another bucket than the worst before it."""
    answers = (
        "  lateness: max 3 ns, 0 ns: 9, from 2 ns: 1\n",
        "  lateness: max 5000 ns, 0 ns: 12, from 2 ns: 1, from 4096 ns: 2\n",
    )
    before, after = (
        {"ports": [{"port": 2, "statistics": {"lateness": lateness_shown(answer)}}]}
        for answer in answers
    )
    assert lateness_between(before, after) == 5000
    assert lateness_between(after, after) == 0

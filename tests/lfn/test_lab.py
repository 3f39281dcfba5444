"""The long fat network in virtual time: exact assertions, since nothing here is measured twice.

Skipped with a message where there is no lab.
"""

import json
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import jobs
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.scenario import PACED, UNPACED, Scenario
from pacer_mininet.runs import Running, side_by_side, stopping
from pacer_mininet.traffic import ideal_goodput_bps

RATE_BPS = 500_000_000
FRAME_BYTES = 1518
LAB_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
JOBS = [
    jobs.Job(shaper.name, Scenario(one_flow(shaper), seconds=6, bins=True))
    for shaper in (PACED, UNPACED)
]


def _ignore(_event: dict[str, Any]) -> None:
    """Ignore progress."""


@pytest.fixture(scope="module")
def results(lab: None) -> dict[str, dict[str, Any]]:
    """Make the paced and the unpaced run, side by side."""
    commands = [([job.name], jobs.command_of(job, realtime=False)) for job in JOBS]
    ended = side_by_side(commands, len(JOBS), _ignore)
    return {name: found for run in ended for name, found in run.wait().items()}


@pytest.fixture(scope="module")
def paced(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the results of the paced run."""
    return results["paced"]


@pytest.fixture(scope="module")
def unpaced(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the results of the unpaced run."""
    return results["unpaced"]


def test_paced_loses_nothing_anywhere(paced: dict[str, Any]) -> None:
    assert paced["drops_by_cause"] == {}
    assert paced["bottleneck_drops"] == paced["edge_drops"] == 0
    assert paced["retransmits"] == 0


def test_paced_fills_the_bottleneck(paced: dict[str, Any]) -> None:
    ideal_bps = ideal_goodput_bps(RATE_BPS)
    assert 0.99 * ideal_bps <= paced["flows"][0]["goodput_second_half_bps"] <= 1.0001 * ideal_bps


def test_paced_keeps_the_order(paced: dict[str, Any]) -> None:
    assert paced["out_of_order_arrivals"] == 0
    assert paced["flows"][0]["reorderings_seen"] == 0


def test_rtt_of_the_empty_path_is_exact(paced: dict[str, Any], unpaced: dict[str, Any]) -> None:
    for run in (paced, unpaced):
        assert run["flows"][0]["rtt_ms"]["min"] == 200.0


def test_paced_never_queues_at_the_virtual_bottleneck(paced: dict[str, Any]) -> None:
    assert paced["wan"]["queue_max_bytes"] <= 2 * FRAME_BYTES
    assert paced["lateness_max_ns"] == {"edge1": 0, "wan": 0}


def test_paced_bins_hold_what_the_rate_allows(results: dict[str, dict[str, Any]]) -> None:
    series = results["paced"]["series"]
    allowed_bytes = RATE_BPS * series["bin_ns"] // 8 // 10**9
    assert max(series["bin_bytes"]) <= allowed_bytes + FRAME_BYTES


def test_unpaced_overruns_the_bottleneck(unpaced: dict[str, Any]) -> None:
    assert unpaced["bottleneck_drops"] > 0
    assert set(unpaced["drops_by_cause"]["wan"]) == {"fifo-full"}
    assert unpaced["edge_drops"] == 0
    assert unpaced["retransmits"] >= unpaced["bottleneck_drops"]
    assert unpaced["wan"]["queue_max_bytes"] > JOBS[1].scenario.fifo_bytes


def test_congestion_control_and_buffers_are_the_ones_asked_for(paced: dict[str, Any]) -> None:
    (flow,) = paced["flows"]
    assert flow["congestion_control"] == "bic"
    assert flow["send_buffer_bytes"] == flow["receive_buffer_bytes"] == 25_000_000


def test_runs_on_one_network_give_what_they_give_alone(results: dict[str, dict[str, Any]]) -> None:
    """In either order: nothing is left of the run before."""
    command = [job.name for job in JOBS], jobs.command_of(*reversed(JOBS), realtime=False)
    after: dict[str, dict[str, Any]] = {}
    again = [jobs.Job(f"{job.name} again", job.scenario) for job in JOBS]
    repeated = [job.name for job in again], jobs.command_of(*again, realtime=False)
    for run in side_by_side([command, repeated], 2, _ignore):
        after |= run.wait()
    for job in JOBS:
        assert json.dumps(after[job.name]) == json.dumps(results[job.name]), job.name
        assert json.dumps(after[f"{job.name} again"]) == json.dumps(results[job.name]), job.name


def test_the_same_run_gives_the_same_bytes(results: dict[str, dict[str, Any]]) -> None:
    """Also where setting up is other work: no bytecode is found, programs are looked up long."""
    elsewhere = (
        *("--env", "PYTHONPYCACHEPREFIX=/nowhere"),
        *("--env", "PATH=" + ":".join([f"/nowhere/{i}" for i in range(40)] + [LAB_PATH])),
    )
    again: dict[str, dict[str, Any]] = {}
    running = []
    for job in JOBS:
        words = jobs.command_of(job, realtime=False)
        after = words.index(str(paths.LAB_RUN)) + 1
        words[after:after] = elsewhere
        running.append(Running([job.name], words, _ignore))
    with stopping(running):
        for run in running:
            again |= run.wait()
    for job in JOBS:
        assert json.dumps(again[job.name]) == json.dumps(results[job.name]), job.name

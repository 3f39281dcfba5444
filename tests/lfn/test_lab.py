"""The long fat network in virtual time: exact assertions, since nothing here is measured twice.

Not run, loudly, where there is no lab.
"""

import json
from typing import Any

import pytest

from pacer_mininet.runs import (
    Plan,
    Running,
    lab_command,
    make_runs,
    stopping,
)
from pacer_mininet.table import ideal_goodput_bps

RATE_BPS = 500_000_000
FRAME_BYTES = 1518
LAB_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLAN = Plan(("paced", "unpaced"), seconds="6")


def _ignore(_event: dict[str, Any]) -> None:
    """Take progress nobody watches."""


@pytest.fixture(scope="module")
def results(lab: None) -> dict[str, dict[str, Any]]:
    """Make the paced and the unpaced run, side by side."""
    return make_runs(PLAN, realtime=False, listener=_ignore)


@pytest.fixture(scope="module")
def paced(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the paced run gave."""
    return dict(results["paced"]["run"])


@pytest.fixture(scope="module")
def unpaced(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the unpaced run gave."""
    return dict(results["unpaced"]["run"])


def test_paced_loses_nothing_anywhere(paced: dict[str, Any]) -> None:
    assert paced["bottleneck_drops_by_cause"] == {}
    assert paced["edge_drops_by_cause"] == {}
    assert paced["bottleneck_drops"] == paced["edge_drops"] == 0
    assert paced["retransmits"] == 0


def test_paced_fills_the_bottleneck(paced: dict[str, Any]) -> None:
    ideal_bps = ideal_goodput_bps(RATE_BPS)
    assert 0.99 * ideal_bps <= paced["goodput_second_half_bps"] <= 1.0001 * ideal_bps


def test_paced_keeps_the_order(paced: dict[str, Any]) -> None:
    assert paced["out_of_order_arrivals"] == 0
    assert paced["reorderings_seen"] == 0


def test_rtt_of_the_empty_path_is_exact(paced: dict[str, Any], unpaced: dict[str, Any]) -> None:
    for run in (paced, unpaced):
        assert run["rtt_ms"]["min"] == 200.0
        assert run["ping_rtt_ms"] == 200.0


def test_paced_never_queues_at_the_virtual_bottleneck(paced: dict[str, Any]) -> None:
    assert paced["vb_max_bytes"] <= 2 * FRAME_BYTES
    assert paced["lateness_max_ns"] == {"s1": 0, "wan": 0, "s2": 0}


def test_paced_bins_hold_what_the_rate_allows(results: dict[str, dict[str, Any]]) -> None:
    series = results["paced"]["series"]
    allowed_bytes = RATE_BPS * series["bin_ns"] // 8 // 10**9
    assert max(series["bin_bytes"]) <= allowed_bytes + FRAME_BYTES


def test_unpaced_overruns_the_bottleneck(unpaced: dict[str, Any]) -> None:
    assert unpaced["bottleneck_drops"] > 0
    assert set(unpaced["bottleneck_drops_by_cause"]) == {"fifo-full"}
    assert unpaced["edge_drops"] == 0
    assert unpaced["retransmits"] >= unpaced["bottleneck_drops"]
    assert unpaced["vb_max_bytes"] > unpaced["fifo_bytes"]


def test_congestion_control_and_buffers_are_the_ones_asked_for(paced: dict[str, Any]) -> None:
    assert paced["congestion_control"] == "bic"
    assert paced["send_buffer_bytes"] == paced["receive_buffer_bytes"] == 25_000_000


def test_the_same_run_gives_the_same_bytes(results: dict[str, dict[str, Any]]) -> None:
    """Also where setting up is other work: no bytecode is found, programs are looked up long."""
    elsewhere = (
        *("--env", "PYTHONPYCACHEPREFIX=/nowhere"),
        *("--env", "PATH=" + ":".join([f"/nowhere/{i}" for i in range(40)] + [LAB_PATH])),
    )
    again: dict[str, dict[str, Any]] = {}
    running = []
    for name in PLAN.names:
        lab_run, *words = lab_command(PLAN, name)
        running.append(Running(name, [lab_run, *elsewhere, *words], _ignore))
    with stopping(running):
        for run in running:
            again[run.name] = run.wait()
    for name in PLAN.names:
        first = {key: results[name][key] for key in ("run", "series")}
        assert json.dumps(again[name]) == json.dumps(first), name

"""A switch with more ports than it looks at one by one serves all of them.

Skipped with a message where there is no lab.
"""

import json
import subprocess
from typing import Any

import pytest

from pacer_mininet.experiments import jobs
from pacer_mininet.experiments.experiment import many_flows
from pacer_mininet.experiments.scenario import PACED, Scenario

HOSTS = 20
MS = 1_000_000
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def run(lab: None) -> dict[str, Any]:
    """Have twenty senders behind one edge send at a twentieth of the path each."""
    scenario = Scenario(
        many_flows(PACED, HOSTS), seconds=2, rtt_ns=20 * MS, socket_buffer_bytes=1_250_000
    )
    done = subprocess.run(
        jobs.command_of(jobs.Job("hosts", scenario), realtime=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])["result"]
    assert isinstance(result, dict)
    return result


def test_every_sender_has_its_share(run: dict[str, Any]) -> None:
    share_bps = 476_900_000 / HOSTS
    shares = [flow["goodput_second_half_bps"] / share_bps for flow in run["flows"]]
    assert len(shares) == HOSTS
    assert min(shares) > 0.97, shares
    assert max(shares) < 1.01, shares


def test_nothing_is_late_or_lost_at_the_edge(run: dict[str, Any]) -> None:
    assert run["edge_drops"] == 0
    assert set(run["lateness_max_ns"].values()) == {0}

"""A scaled-down experiment, as `make experiments QUICK=1` makes it, in virtual time.

Skipped with a message where there is no lab, or no Snakemake.
"""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.experiments import catalogue, jobs
from pacer_mininet.experiments.scenario import Flow, Scenario
from pacer_mininet.experiments.store import Store

pytestmark = pytest.mark.skipif(
    not paths.SNAKEMAKE.exists(), reason="not run: Snakemake is not installed: make experiments"
)

COMMAND = [sys.executable, str(paths.MININET_DIR / "experiments.py"), "--quick", "fig9"]
LONGEST_S = 600


def make(*options: str) -> str:
    """Make the experiment, which succeeds; return what is printed."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digest(said: str) -> str:
    """Return the digest of all tables that the experiments print."""
    (found,) = re.findall(r"sha256 ([0-9a-f]{64})", said)
    return str(found)


@pytest.fixture(scope="module")
def made(lab: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Make the experiment on two processors; return the results and what was printed."""
    results = tmp_path_factory.mktemp("results")
    return results, make("--cores", "2", "--results", str(results))


def test_two_senders_share_what_is_paced(made: tuple[Path, str]) -> None:
    results, _ = made
    found = json.loads((results / "experiments" / "fig9.json").read_text())
    rows = {row["column"]: row for row in found["rows"]}
    assert [row["skipped"] for row in rows.values()] == [None, None, None]
    for shaped in ("paced", "fq"):
        assert rows[shaped]["values"]["share"]["median"] >= 95
    assert rows["paced"]["values"]["lost"]["median"] == 0
    assert rows["paced"]["mode"] == "lab"
    assert rows["unpaced"]["values"]["lost"]["median"] > 0
    report = (results / "report.html").read_bytes()
    # All is remembered: nothing is made again, and the report is the same.
    assert "3 runs; 0 to be made" in make("--cores", "2", "--results", str(results))
    assert (results / "report.html").read_bytes() == report


def test_neither_a_kill_nor_the_number_of_processors_changes_a_table(
    made: tuple[Path, str], tmp_path: Path
) -> None:
    _, said = made
    options = ("--results", str(tmp_path), "--cores", "1")
    killed = subprocess.Popen(
        [*COMMAND, *options], stdin=subprocess.DEVNULL, start_new_session=True
    )
    until = time.monotonic() + LONGEST_S
    # Between the first result and the last.
    while not list((tmp_path / "experiments" / "runs").glob("*.json")):
        assert killed.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    # The killed pass frees the results as soon as its runs have ended.
    while (
        continued := subprocess.run([*COMMAND, *options], capture_output=True, text=True)
    ).returncode:
        assert "another" in continued.stderr, continued.stderr
        assert time.monotonic() < until
        time.sleep(0.1)
    assert "3 runs; 3 to be made" not in continued.stdout
    assert digest(continued.stdout) == digest(said)


def test_a_run_is_the_same_behind_another_one_on_their_network(lab: None, tmp_path: Path) -> None:
    cell = catalogue.of_kernel(quick=False, realtime=False)["ipg"].cells[0]
    # Its wire loses packets at random.
    one, two = (dataclasses.replace(cell.scenario, seconds=5, seed=seed) for seed in (1, 2))

    def made(*scenarios: Scenario) -> list[bytes]:
        """Return the results of runs on one network."""
        results = Store(tmp_path, {})
        found: list[bytes] = []

        def listener(event: dict[str, Any]) -> None:
            if event["event"] == "done":
                found.append(results.content(scenarios[len(found)]))

        group = [jobs.Job(str(number), each) for number, each in enumerate(scenarios)]
        assert len(jobs.by_network(group)) == 1
        assert jobs.make([group], results, listener, realtime=False) == {}
        return found

    first, second, third = made(one, two, one)
    assert first == third
    assert made(two) == [second]
    for result in (first, second):
        assert json.loads(result)["retransmits"] > 0


def test_a_bottleneck_changes_its_rate_and_that_of_its_virtual_one(
    lab: None, tmp_path: Path
) -> None:
    """15 Mbit/s of UDP through 20 Mbit/s, which are 10 from 1 s to 2 s, and a FIFO of 64 KB."""
    scenario = Scenario(
        (Flow(udp_bps=15_000_000),),
        seconds=3,
        rate_bps=20_000_000,
        rtt_ns=10_000_000,
        rate_steps=((1_000, 10_000_000), (2_000, 20_000_000)),
    )
    results = Store(tmp_path, {})
    job = jobs.Job("steps", scenario)
    assert jobs.make([[job]], results, lambda _: None, realtime=False) == {}
    found = results.load(scenario)
    assert found is not None
    queues = found["series"]["window_vb_max_bytes"]
    assert max(queues[:10]) <= 2 * 1518
    # 5 Mbit/s too much make 625 KB in a second, of which the FIFO holds 64 KB. In the next second
    # the virtual bottleneck, which loses nothing, carries 5 Mbit/s more than comes.
    assert 560_000 < queues[19] < 640_000
    assert queues[20] > queues[22] > queues[24] > queues[26] > 0
    drops = found["series"]["bottleneck_drops"]
    lost = dict(zip(drops["at_ms"], drops["packets"], strict=True))
    assert max(packets for at_ms, packets in lost.items() if at_ms < 1_100) == 0
    assert 330 < found["bottleneck_drops"] < 400
    assert min(packets for at_ms, packets in lost.items() if at_ms > 2_100) == max(lost.values())

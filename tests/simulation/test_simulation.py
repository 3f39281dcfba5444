"""A hundred seeds without a violation, faults planted on purpose that are found, and replays."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import run
import world
from world import BRIDGES, CLIENTS_UNTIL_S, ETCD, SQLITE, Scene, scene_of, schedule

RUN = Path(__file__).with_name("run.py")

FOUND_BY = {
    "drop-compare": (8, "condition"),
    "acknowledge-early": (12, "lost"),
    "reuse-id": (1, "id-reused"),
    "forget-gap": (12, "stale"),
    "skip-lease-time": (132, "fenced"),
    "trust-answers": (3, "rest"),
    "skip-sync": (1, "lost"),
    "acknowledge-failed": (1, "lost"),
    "forget-bids": (1, "rest"),
    "skip-lock": (1, "one-writer"),
    "skip-right": (1, "fenced"),
    "reuse-generation": (1, "id-reused"),
}
"""A seed that finds each planted fault, and the rule that the fault breaks. The next seeds are
tried, too, since a seed's story changes with each change of the product."""

TRIED = 60


def simulate(*options: object, hashes: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, str(RUN), *map(str, options)]
    environment = os.environ | {"PYTHONHASHSEED": hashes}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=1800
    )


def test_a_hundred_seeds_without_a_violation() -> None:
    done = simulate("--seeds", 100, "--jobs", os.cpu_count() or 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 seeds, 0 failed" in done.stdout


def test_processes_are_replaced_between_blocks_of_seeds() -> None:
    work = [run.Work(str(number), SQLITE, "") for number in range(1, 6)]
    with mock.patch.object(run, "SEEDS_OF_A_WORKER", 1):
        seeds = [one.seed for one, _ in run.results_of(work, 2)]
    assert seeds == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("plant", FOUND_BY)
def test_a_planted_fault_is_found(plant: str) -> None:
    first, rule = FOUND_BY[plant]
    # An error of the planted code itself breaks the rule "unexpected", which does not count.
    done = simulate(
        *("--plant", plant, "--rule", rule, "--first", first, "--seeds", TRIED, "--quick")
    )
    assert done.returncode == 1, f"not found within {TRIED} seeds: {done.stdout}{done.stderr}"
    said = rf"seed \d+ fails.*\n  {rule}: "
    assert re.search(said, done.stdout), done.stdout + done.stderr


def test_a_write_in_doubt_may_have_removed_an_event() -> None:
    """The program ends while it takes back a write that a switch has refused."""
    done = simulate("--first", 328, "--seeds", 1, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("share", "kind", "scenes", "least", "most"),
    [
        ("OUTLIVING", "-sending", [ETCD, BRIDGES], 25, 65),
        ("HOLDING", "hold-", [BRIDGES], 15, 35),
    ],
)
def test_a_controller_outlives_its_leases_in_addition_to_other_faults(
    share: str, kind: str, scenes: list[Scene], least: int, most: int
) -> None:
    added = 0
    for number in range(1, 201):
        seed, scene = str(number), scene_of(number)
        faults = schedule(seed, scene)
        with mock.patch.object(world, share, -1.0):
            others = schedule(seed, scene)
        more = [one for one in faults if kind in one.kind]
        rest = [one for one in faults if one not in more]
        assert [str(one) for one in rest] == [str(one) for one in others]
        assert len(more) <= (1 if scene in scenes else 0)
        assert all(one.for_s > 3 and one.at_s + one.for_s <= CLIENTS_UNTIL_S for one in more)
        added += len(more)
    assert least <= added <= most


def test_a_seed_replays_to_the_byte() -> None:
    one = simulate("--first", 7, "--seeds", 4, "--digests", hashes="1")
    digests = dict(re.findall(r"^seed (\d+): ([0-9a-f]{32})$", one.stdout, re.MULTILINE))
    assert one.returncode == 0, one.stderr
    assert list(digests) == ["7", "8", "9", "10"]
    # Another process, another order of hashes outside, and no seed before: a state file, three
    # controllers, and the same with bridges.
    for seed in (8, 9, 10):
        other = simulate("--first", seed, "--seeds", 1, "--digests", hashes="2")
        assert other.returncode == 0, other.stderr
        assert f"seed {seed}: {digests[str(seed)]}\n" in other.stdout


def test_a_failing_seed_is_reduced_and_tells_how_to_run_it_again() -> None:
    first, rule = FOUND_BY["skip-lease-time"]
    done = simulate(
        *("--plant", "skip-lease-time", "--rule", rule, "--first", first, "--seeds", TRIED)
    )
    text = done.stdout
    assert done.returncode == 1, text + done.stderr
    seed = re.search(r"seed (\d+) fails", text)
    assert seed is not None, text
    assert f"--first {seed[1]} --seeds 1 --story --plant skip-lease-time" in text
    faults = re.search(r"faults that it takes:\n((?:    .*\n)+)", text)
    assert faults is not None, text
    # A controller writes after its lease only when something keeps it from renewing it.
    assert len(faults[1].splitlines()) <= 3

"""The search for a non-drop rate, the order and the store of readings, and the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import comparison
import comparison_page
import pytest
from non_drop import STEP, Found, Trial, search
from targets import ROOT

GENERATOR_PPS = 1_000_000.0


class Device:
    """A device that forwards so many packets per second, and under a flood fewer.

    `stalls`: the numbers of the trials in which it loses one packet, whatever the rate.
    """

    def __init__(self, limit_pps: float, flooded_pps: float, stalls: tuple[int, ...] = ()) -> None:
        self.limit_pps, self.flooded_pps, self.stalls = limit_pps, flooded_pps, stalls
        self.trials: list[tuple[float | None, float]] = []

    def __call__(self, pps: float | None, seconds: float) -> Trial:
        """Forward for a time."""
        self.trials.append((pps, seconds))
        offered_pps = GENERATOR_PPS if pps is None else pps
        taken_pps = offered_pps if offered_pps <= self.limit_pps else self.flooded_pps
        sent, received = round(offered_pps * seconds), round(taken_pps * seconds)
        stalled = len(self.trials) - 1 in self.stalls
        return Trial(sent, received - stalled, seconds, cpu_s=seconds)


def found(device: Device) -> Found:
    return search(device, 10, 1)


@pytest.mark.parametrize("limit_pps", [700, 15_000, 460_000, 990_000])
def test_the_search_finds_the_limit_of_a_device(limit_pps: float) -> None:
    device = Device(limit_pps, limit_pps * 0.7)
    result = found(device)
    assert limit_pps * 0.97 < result.non_drop_pps <= limit_pps
    assert result.flood_pps == pytest.approx(limit_pps * 0.7, rel=0.01)
    assert result.most_pps == pytest.approx(result.non_drop_pps, rel=0.03)
    assert not result.at_generator
    # The rate that counts went through a whole trial.
    last_pps, seconds = device.trials[-1]
    assert last_pps == pytest.approx(result.non_drop_pps, rel=0.01)
    assert seconds == 10


def test_a_device_that_loses_nothing_is_as_fast_as_the_generator() -> None:
    device = Device(2 * GENERATOR_PPS, 0)
    result = found(device)
    assert (result.non_drop_pps, result.at_generator) == (GENERATOR_PPS, True)
    assert device.trials == [(None, 1), (None, 10)]


def test_a_stall_in_a_short_trial_does_not_halve_the_result() -> None:
    steady = found(Device(460_000, 400_000))
    assert found(Device(460_000, 400_000, stalls=(1, 3))).non_drop_pps == steady.non_drop_pps


def test_a_loss_in_a_whole_trial_counts() -> None:
    steady = Device(460_000, 400_000)
    best_pps = found(steady).non_drop_pps
    last = len(steady.trials) - 1
    unsteady = Device(460_000, 400_000, stalls=(last,))
    assert found(unsteady).non_drop_pps == pytest.approx(best_pps * (1 - STEP))


def test_a_device_that_always_loses_has_no_non_drop_rate() -> None:
    result = found(Device(460_000, 400_000, stalls=tuple(range(1000))))
    assert result.non_drop_pps == 0
    assert result.most_pps == pytest.approx(400_000, rel=0.01)


def test_readings_are_interleaved() -> None:
    made = comparison.jobs(["a", "b"], 2, (64, 1518), (1,))
    assert [job.round for job in made] == [1] * 8 + [2] * 8
    assert [(job.part, job.target) for job in made[:2]] == [("packets", "a"), ("packets", "b")]
    assert [(job.target, job.offloads) for job in made if job.part == "tcp"][:4] == [
        ("a", True),
        ("b", True),
        ("a", False),
        ("b", False),
    ]
    assert len(set(made)) == len(made)


def target(name: str, digest: str, start: Callable[..., Any] = lambda _: None) -> comparison.Target:
    return comparison.Target(name, f"`{name}`", f"{name} 1.0", digest, start)


def stored(tmp_path: Path, targets: list[comparison.Target]) -> dict[str, Any]:
    absent = {"c": "bring it"}
    return comparison.begun(tmp_path / "readings.json", 1.0, targets, absent, "")


@pytest.fixture
def no_iperf3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "first_line", lambda *_: "a version")


@pytest.mark.usefixtures("no_iperf3")
def test_a_call_goes_on_where_another_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "readings.json"
    wanted = comparison.jobs(["a", "b"], 1, (64,), ())
    targets = [target("a", "1"), target("b", "2")]

    def read(of: comparison.Target, frame_bytes: int, seconds: float) -> dict[str, Any]:
        assert (frame_bytes, seconds) == (64, 1.0)
        if of.name == "b" and "error" not in out.read_text():
            raise SystemExit(f"{ROOT}/b does not come up")
        return FOUND | {"half_lost": 0}

    monkeypatch.setattr(comparison, "packets_reading", read)
    document = stored(tmp_path, targets)
    comparison.measure(document, wanted[:1], targets, out)
    document = stored(tmp_path, targets)
    assert comparison.missing(document, wanted, retry=False) == wanted[1:]
    comparison.measure(document, wanted[1:], targets, out)
    document = stored(tmp_path, targets)
    assert comparison.missing(document, wanted, retry=False) == []
    # The reading of the second failed. It is there, and is made again if that is asked for.
    assert [reading.get("error") for reading in document["readings"]] == [
        None,
        "b does not come up",
    ]
    assert comparison.missing(document, wanted, retry=True) == wanted[1:]
    comparison.measure(document, wanted[1:], targets, out)
    assert comparison.missing(stored(tmp_path, targets), wanted, retry=True) == []


@pytest.mark.usefixtures("no_iperf3")
def test_readings_of_other_programs_are_not_mixed(tmp_path: Path) -> None:
    out = tmp_path / "readings.json"
    comparison.store(stored(tmp_path, [target("a", "1")]), out)
    with pytest.raises(SystemExit, match="of other programs"):
        stored(tmp_path, [target("a", "2")])
    # Another target may join.
    assert set(stored(tmp_path, [target("c", "3")])["targets"]) == {"a", "c"}


FOUND = {
    "non_drop_pps": 400_000.0,
    "most_pps": 420_000.0,
    "flood_pps": 380_000.0,
    "at_generator": False,
    "trials": 9,
    "half_pps": 200_000.0,
    "half_cpu_us": 1.25,
    "half_p50_us": 20.0,
    "half_p99_us": 60.0,
}


def document() -> dict[str, Any]:
    rows: list[tuple[comparison.Job, dict[str, Any]]] = []
    for number, pps in enumerate((400_000, 410_000, 395_000), 1):
        job = comparison.Job("packets", "a", number, frame_bytes=64)
        rows.append((job, FOUND | {"non_drop_pps": pps, "half_lost": 0}))
        job = comparison.Job("packets", "bridge", number, frame_bytes=64)
        rows.append((job, FOUND | {"at_generator": True, "half_cpu_us": None, "half_lost": 0}))
        job = comparison.Job("tcp", "a", number, streams=8, offloads=True)
        rows.append((job, {"bps": number * 1e9}))
        job = comparison.Job("tcp", "bridge", number, streams=8, offloads=True)
        rows.append((job, {"error": "iperf3: no way"}))
    return {
        "seconds": 10.0,
        "tcp_seconds": 5.0,
        "machine": {"processor": "A", "processors": 2, "kernel": "Linux 6", "iperf3": "iperf 3.12"},
        "commit": "0123456789ab",
        "targets": {
            name: {"command": f"`{name}`", "version": "1.0", "digest": "1"}
            for name in ("a", "bridge")
        },
        "absent": {"peer": "Build it."},
        "readings": [
            {"job": asdict(job), "load": 0.5, "at": "2026-01-01T00:00:00Z"} | reading
            for job, reading in rows
        ],
    }


def test_the_page_has_medians_ranges_failures_and_what_was_not_there() -> None:
    text = comparison_page.page(document())
    lines = text.splitlines()
    assert "| a | 400 (395 to 410) |" in lines
    assert "| bridge | at least 400 (400 to 400) |" in lines
    assert "| a | 20.0 (20.0 to 20.0) / 60.0 (60.0 to 60.0) |" in lines
    assert "| a | 1.25 (1.25 to 1.25) |" in lines
    assert "| bridge | - |" in lines
    assert "| a | 420 / 380 |" in lines
    assert "| a | 2.00 (1.00 to 3.00) |" in lines
    assert "| bridge | fails |" in lines
    assert "- bridge, TCP, offloads on: iperf3: no way (3 readings)" in lines
    assert "- peer: Build it." in lines
    assert "All packets came through." in text


def test_the_page_says_why_tcp_fails_through_bmv2() -> None:
    of = document()
    assert "TcpInCsumErrors" not in comparison_page.page(of)
    of["readings"][3]["job"]["target"] = "simple_switch_grpc, pacer.p4"
    text = comparison_page.page(of)
    assert "- simple_switch_grpc, pacer.p4, TCP, offloads on: iperf3: no way (1 readings)" in text
    assert "`TcpInCsumErrors`" in text


def test_the_page_in_the_tree_is_that_of_its_readings() -> None:
    readings = ROOT / "docs" / "comparison.json"
    kept = json.loads(readings.read_text()) if readings.exists() else None
    assert (ROOT / "docs" / "comparison.md").read_text() == comparison_page.page(kept)

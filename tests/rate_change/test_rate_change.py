"""A new rate by `curl -X PUT` while TCP runs, in the lab: exact assertions, in virtual time.

Skipped with a message where there is no lab.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import rate_change
from pacer_mininet import paths
from pacer_mininet.runs import LabUnavailableError, check_lab
from wire import NS_PER_S, Seen, rates_bps, settled_ns

FRAME_BYTES = 1518
PAYLOAD_BYTES = 1448
RATES_BPS = [100_000_000, 300_000_000, 50_000_000]
SECONDS = 2


def _run() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    said: list[dict[str, Any]] = []
    rates = [str(rate) for rate in RATES_BPS]
    result = rate_change.events(rate_change.command(rates, SECONDS), said.append)
    return said, result


@pytest.fixture(scope="module")
def run() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Make the run; skip, loudly, where the lab cannot run or the parts are not built."""
    try:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        paths.need_programs("iperf", "curl", "mnexec", "ethtool", "ping")
        check_lab()
    except (LabUnavailableError, paths.MissingError) as error:
        pytest.skip(f"not run: rate change in the lab: {error}")
    return _run()


@pytest.fixture(scope="module")
def steps(run: tuple[list[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
    """The measurements of each rate."""
    return list(run[1]["steps"])


def test_every_rate_was_asked_for(steps: list[dict[str, Any]]) -> None:
    assert [step["rate_bps"] for step in steps] == RATES_BPS
    assert all(len(step["windows_bps"]) >= 10 * SECONDS - 1 for step in steps)


def test_nothing_is_lost_at_the_switch(
    run: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    said, result = run
    assert result["s1_drops_by_cause"] == {}
    assert result["s1_packets_in"] == result["s1_packets_out"] == result["frames"] > 0
    assert result["retransmits"] == 0
    assert [event["s1_drops"] for event in said if event["event"] == "second"] == [0] * (
        SECONDS * len(RATES_BPS)
    )


def test_the_wire_follows_within_a_second(steps: list[dict[str, Any]]) -> None:
    """From one second after the answer on, every 100 ms hold the new rate, to 1 %."""
    for step in steps:
        windows = step["windows_bps"][10:]
        assert windows
        for rate_bps in windows:
            assert abs(rate_bps - step["rate_bps"]) <= step["rate_bps"] // 100


def test_every_gap_is_exact_as_soon_as_the_old_backlog_has_left(
    steps: list[dict[str, Any]],
) -> None:
    """Packets queued in the class at the change, at most a TCP window, leave at the old rate.

    After that every gap is the new rate's to 1 ns, so each 100 ms hold it to one frame.
    """
    assert steps[0]["exact_after_ns"] is not None
    window_bytes = rate_change.WINDOW_BYTES * FRAME_BYTES // PAYLOAD_BYTES + FRAME_BYTES
    for before, step in pairwise(steps):
        backlog_ns = window_bytes * 8 * NS_PER_S // before["rate_bps"]
        assert step["exact_after_ns"] is not None
        assert 0 < step["exact_after_ns"] <= backlog_ns < NS_PER_S
        first_whole = step["exact_after_ns"] // step["window_ns"] + 1
        frame_bps = FRAME_BYTES * 8 * NS_PER_S // step["window_ns"]
        for rate_bps in step["windows_bps"][first_whole:]:
            assert abs(rate_bps - step["rate_bps"]) <= frame_bps


def test_until_then_the_wire_keeps_the_old_rate(steps: list[dict[str, Any]]) -> None:
    """The window of the change holds the old rate's frames and the new rate's, none missing."""
    for before, step in pairwise(steps):
        share = step["exact_after_ns"] / step["window_ns"]
        expected_bps = share * before["rate_bps"] + (1 - share) * step["rate_bps"]
        frame_bps = FRAME_BYTES * 8 * NS_PER_S // step["window_ns"]
        assert abs(step["windows_bps"][0] - expected_bps) <= 2 * frame_bps


def test_the_same_run_gives_the_same_bytes(
    run: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    assert json.dumps(_run()) == json.dumps(run)


def test_settling_is_seen_and_so_is_its_absence() -> None:
    """The measuring itself, on frames made up for it."""
    slow = [Seen(at * 121_440, 1518) for at in range(100)]
    fast = [Seen(slow[-1].at_ns + at * 40_480, 1518) for at in range(1, 101)]
    frames = slow + fast
    until_ns = frames[-1].at_ns + 1
    assert settled_ns(frames, 300_000_000, 0, until_ns) == slow[-1].at_ns
    assert settled_ns(frames, 100_000_000, 0, slow[-1].at_ns) == 0
    assert settled_ns(frames, 100_000_000, 0, until_ns) is None
    assert settled_ns([], 100_000_000, 0, until_ns) is None
    assert rates_bps(slow, 0, 10_000_000) == []
    at_rate = [Seen(at * 121_440, 1518) for at in range(1000)]
    assert rates_bps(at_rate, 0, 100_000_000) == [824 * 1518 * 80]

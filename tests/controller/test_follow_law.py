"""The law by which a class's rate follows a queue, on a path that is computed: no time passes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pacer_controller.service.follow_law import STEP_BPS, WINDOW_NS, Law
from pacer_controller.southbound import VirtualQueue

MS = 1_000_000
INTERVAL_MS = 50
FIFO_BYTES = 1 << 20
PATH_BPS = 500_000_000
LEAST_BPS, MOST_BPS = 10_000_000, 600_000_000

Bps = Callable[[int], int]
"""Bit/s at a time in ms."""


@dataclass
class Run:
    """The effect of a class with this law on a path.

    Attributes:
        rates: time in ms and rate of each change.
        queues: queue at the end of each ms, in bytes.
        carried: bytes that the class sent in each ms.

    """

    rates: list[tuple[int, int]] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    carried: list[int] = field(default_factory=list)

    def used_percent(self, path: Bps, from_ms: int, to_ms: int) -> float:
        """Return the part of the path that the class used."""
        free = sum(path(ms) // 8_000 for ms in range(from_ms, to_ms))
        return 100 * sum(self.carried[from_ms:to_ms]) / free


def follow(
    path: Bps,
    seconds: int,
    rate_bps: int,
    fifo_bytes: int = FIFO_BYTES,
    sends: Bps = lambda _: 10**12,
    delay_ms: int = 5,
) -> Run:
    """Let a class follow a path; its packets come `delay_ms` after it has sent them."""
    law, made = Law(fifo_bytes, LEAST_BPS, MOST_BPS), Run()
    queue, windows = 0, {0: [0, 0]}
    on_the_way = [0] * delay_ms
    for ms in range(seconds * 1000):
        made.carried.append(min(rate_bps, sends(ms)) // 8_000)
        on_the_way.append(made.carried[-1])
        arriving = on_the_way.pop(0)
        queue = max(0, queue - path(ms) // 8_000) + arriving
        waiting = queue - min(queue, path(ms) // 8_000)
        made.queues.append(waiting)
        window = windows.setdefault(ms * MS // WINDOW_NS, [0, 0])
        window[0] += arriving
        window[1] = max(window[1], waiting)
        if ms % INTERVAL_MS == INTERVAL_MS - 1 and ms * MS >= WINDOW_NS:
            whole = ms * MS // WINDOW_NS - 1
            found = VirtualQueue(ms * MS, waiting, whole * WINDOW_NS, *windows[whole])
            wanted = law.next_rate(found, rate_bps)
            if wanted is not None:
                rate_bps = wanted
                made.rates.append((ms, wanted))
    return made


def steady(bps: int) -> Bps:
    return lambda _: bps


@pytest.mark.parametrize("fifo_bytes", [64 << 10, 256 << 10, FIFO_BYTES])
def test_a_class_finds_the_path_and_loses_nothing(fifo_bytes: int) -> None:
    made = follow(steady(PATH_BPS), 60, 450_000_000, fifo_bytes)
    assert max(made.queues) < fifo_bytes
    assert made.used_percent(steady(PATH_BPS), 50_000, 60_000) > 98


def test_a_path_that_becomes_slower_bit_by_bit_loses_nothing() -> None:
    """10 Mbit/s less each half second, down to 300; a second later the rate is there."""

    def path(ms: int) -> int:
        return max(300_000_000, PATH_BPS - ms // 500 * 10_000_000)

    made = follow(path, 14, 495_000_000)
    assert max(made.queues) < FIFO_BYTES
    assert made.used_percent(path, 0, 14_000) > 90


def test_a_path_that_becomes_slower_at_once_is_followed_within_a_second() -> None:
    def path(ms: int) -> int:
        return PATH_BPS if ms < 2_000 else 300_000_000

    made = follow(path, 10, 495_000_000)
    assert max(made.queues[3_500:]) < FIFO_BYTES
    assert 200_000_000 < made.rates[-1][1] < 310_000_000
    # At 200 Mbit/s too much, the queue holds a quarter of a second of arrivals at most.
    assert max(made.queues) < 200_000_000 // 8 // 4


def test_a_path_that_becomes_faster_is_found() -> None:
    def path(ms: int) -> int:
        return 300_000_000 if ms < 5_000 else PATH_BPS

    made = follow(path, 20, 295_000_000)
    assert max(made.queues) < FIFO_BYTES
    assert made.used_percent(path, 15_000, 20_000) > 97


def test_changes_become_rare_once_the_path_is_found() -> None:
    made = follow(steady(PATH_BPS), 60, 495_000_000)
    assert sum(ms >= 30_000 for ms, _ in made.rates) <= 2 * 30


def test_rates_are_whole_steps_within_their_bounds() -> None:
    for path_bps in (1_000_000, 2_000_000_000):
        made = follow(steady(path_bps), 20, 300_000_000)
        found = {rate_bps for _, rate_bps in made.rates}
        assert found
        assert all(LEAST_BPS <= rate_bps <= MOST_BPS for rate_bps in found)
        assert all(rate_bps % STEP_BPS == 0 for rate_bps in found)
    assert made.rates[-1][1] == MOST_BPS


def test_a_class_that_does_not_use_its_rate_gets_no_more() -> None:
    made = follow(steady(PATH_BPS), 20, 200_000_000, sends=steady(100_000_000))
    assert made.rates == []


def test_bursts_of_others_above_a_quarter_of_the_fifo_stop_the_search() -> None:
    law = Law(FIFO_BYTES, LEAST_BPS, MOST_BPS)
    for number in range(100):
        at_ns = number * INTERVAL_MS * MS
        start_ns = at_ns // WINDOW_NS * WINDOW_NS - WINDOW_NS
        found = VirtualQueue(at_ns, 0, start_ns, 400_000_000 // 80, FIFO_BYTES // 3)
        assert law.next_rate(found, 400_000_000) is None


def test_several_classes_share_a_change() -> None:
    changes = []
    for classes in (1, 4):
        law = Law(FIFO_BYTES, LEAST_BPS, MOST_BPS)
        queues = (0, 0, FIFO_BYTES // 2)
        readings = [VirtualQueue(n * 50 * MS, q, 0, 0, q) for n, q in enumerate(queues)]
        rates = [law.next_rate(one, 400_000_000, classes) for one in readings]
        assert rates[:2] == [None, None]
        changes.append(400_000_000 - (rates[2] or 0))
    assert abs(changes[0] / 4 - changes[1]) <= STEP_BPS


def test_a_switch_that_begins_anew_changes_nothing() -> None:
    law = Law(FIFO_BYTES, LEAST_BPS, MOST_BPS)
    later = VirtualQueue(10_000 * MS, 0, 9_800 * MS, 0, 0)
    assert law.next_rate(later, 400_000_000) is None
    anew = VirtualQueue(50 * MS, FIFO_BYTES, 0, 0, 0)
    assert law.next_rate(anew, 400_000_000) is None

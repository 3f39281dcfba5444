"""The definition of growth in a soak."""

from typing import Any

import pytest
from growth import MIB, growths


def samples(
    memory_bytes: list[int], descriptors: int = 10, rate_ms: float = 10.0
) -> list[dict[str, Any]]:
    process = {"descriptors": descriptors, "threads": 3}
    return [
        {
            "at_s": 10.0 * number,
            "switch": {"memory_bytes": memory, **process},
            "controller": {"memory_bytes": 100 * MIB, **process},
            "s3": {"memory_bytes": memory, "descriptors": 10, "threads": 3},
            "rate_ms": {"median": rate_ms, "p99": 20 * rate_ms},
            "change_ms": {"median": 1.0, "p99": 2.0},
            "packet_ms": {"median": 1.0, "p99": 2.0},
            "state_bytes": MIB,
        }
        for number, memory in enumerate(memory_bytes)
    ]


def failing(made: list[dict[str, Any]]) -> list[str]:
    return [one.name for one in growths(made) if one.fails]


def test_caches_that_fill_at_first_are_no_growth() -> None:
    assert failing(samples([MIB] * 100 + [40 * MIB] * 300)) == []


def test_a_leak_is_found() -> None:
    assert failing(samples([40 * MIB + 10_000 * n for n in range(400)])) == [
        "switch: memory",
        "switch of restarted controllers: memory",
    ]


def test_one_more_descriptor_is_found() -> None:
    made = samples([MIB] * 300) + samples([MIB] * 100, descriptors=11)
    assert failing(made) == ["switch: descriptors"]


def test_rate_changes_that_take_longer_and_longer_are_found() -> None:
    made = [samples([MIB], rate_ms=10.0 + 0.1 * number)[0] for number in range(400)]
    assert failing(made) == ["rate change: median, ms"]


def test_times_that_vary_are_no_growth() -> None:
    made = [samples([MIB], rate_ms=10.0 + 4.0 * (number % 2))[0] for number in range(400)]
    assert failing(made) == []


def test_restarts_that_take_longer_are_found() -> None:
    made = samples([MIB] * 400)
    for number in range(0, 400, 30):
        made[number]["restart_s"] = {"switch ended": 1.0, "controller killed": 2.0 + number / 20}
    assert failing(made) == ["restart of a killed controller, s"]


def test_a_run_without_restarts_has_no_figure_of_them() -> None:
    names = [one.name for one in growths(samples([MIB] * 400))]
    assert "rate change: median, ms" in names
    assert "restart of a killed controller, s" not in names


def test_a_run_is_too_short_for_quarters() -> None:
    with pytest.raises(ValueError, match="3 samples are too few"):
        growths(samples([MIB] * 3))

"""The row of a class beside trains."""

from __future__ import annotations

import beside
import pytest
from tables import markdown


def reading(p99_us: float, early_us: float, trains_bps: float = 0.0) -> beside.Reading:
    return {
        "mean_rate_bps": 499e6,
        "p50_us": 0.2,
        "p99_us": p99_us,
        "early_us": early_us,
        "trains": 1 if trains_bps else 0,
        "trains_bps": trains_bps,
    }


def test_the_ratio_is_of_readings_of_the_same_minute() -> None:
    """A machine that gets slower meets both readings of a pair alike."""
    pairs = [
        (reading(10.0 * slow, 0.1), reading(11.0 * slow, 0.2, 3e9 / slow)) for slow in (1, 3, 9)
    ]
    row = beside.compared(pairs)
    assert row["ratio"] == pytest.approx(1.1)
    assert (row["without_p99_us"], row["beside_p99_us"]) == (30.0, 33.0)
    assert row["trains_bps"] == 1e9


def test_the_earliest_frame_of_any_reading_is_told() -> None:
    pairs = [(reading(10, 0.1), reading(10, 0.2, 3e9)), (reading(10, 7.5), reading(10, 0.1, 3e9))]
    row = beside.compared(pairs)
    assert row["early_us"] == 7.5
    assert "| 7.5 |" in markdown("trains", [row])

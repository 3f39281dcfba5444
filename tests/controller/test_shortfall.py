"""Why a class is below its rate: exact, from figures that a reading could have."""

import pytest

from pacer_controller.service.shortfall import Interval, below_rate

SECOND_NS = 1_000_000_000


def test_a_class_at_its_rate_has_no_reason() -> None:
    assert below_rate(500_000_000, 500_000_000, Interval(SECOND_NS)) is None
    assert below_rate(500_000_000, 490_000_000, Interval(SECOND_NS)) is None
    assert below_rate(500_000_000, 510_000_000, Interval(SECOND_NS)) is None


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (Interval(SECOND_NS), "no-demand"),
        # 20 % short of a second are 200 ms: stalls explain at least half of it from 100 ms on.
        (Interval(SECOND_NS, stalled_ns=99_999_999), "no-demand"),
        (Interval(SECOND_NS, stalled_ns=100_000_001), "stalled"),
        (Interval(SECOND_NS, busiest_line_percent=98.0), "line"),
        (Interval(SECOND_NS, busiest_line_percent=97.9), "no-demand"),
        (Interval(SECOND_NS, limit_dropped=1), "limit"),
        (Interval(SECOND_NS, limit_dropped=1, busiest_line_percent=100.0), "line"),
    ],
)
def test_the_reason_is_what_explains_most_of_it(seen: Interval, reason: str) -> None:
    found = below_rate(500_000_000, 400_000_000, seen)
    assert found is not None
    assert found["reason"] == reason
    assert found["short_percent"] == 20.0
    assert found["stalled_ms"] == round(seen.stalled_ns / 1e6, 3)

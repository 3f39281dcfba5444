"""The reason why a class is below its rate, from figures that a reading could have."""

import pytest

from pacer_controller.service.shortfall import Interval, below_rate
from pacer_controller.service.statistics import Growth, below_rate_of
from pacer_controller.southbound import PortInfo

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
        (Interval(SECOND_NS, line_percent=98.0), "line"),
        (Interval(SECOND_NS, line_percent=97.9), "no-demand"),
        (Interval(SECOND_NS, limit_dropped=1), "limit"),
        (Interval(SECOND_NS, limit_dropped=1, line_percent=100.0), "line"),
    ],
)
def test_the_reason_is_what_explains_most_of_it(seen: Interval, reason: str) -> None:
    found = below_rate(500_000_000, 400_000_000, seen)
    assert found is not None
    assert found["reason"] == reason
    assert found["short_percent"] == 20.0
    assert found["stalled_ms"] == round(seen.stalled_ns / 1e6, 3)


@pytest.mark.parametrize(
    ("port", "second_line_bps", "reason"),
    [
        (1, 0, "line"),
        (2, 0, "no-demand"),
        # Its packets may leave by the other line, which has room.
        (None, 0, "no-demand"),
        (None, 1_000_000_000, "line"),
    ],
)
def test_a_full_line_is_the_reason_where_the_class_has_no_other(
    port: int | None, second_line_bps: int, reason: str
) -> None:
    ports = [PortInfo(number, f"eth{number}", True, 1_000_000_000) for number in (1, 2)]
    sent_bps = {("line", 1): 1_000_000_000, ("line", 2): second_line_bps, ("class", 7): 400_000_000}
    growth = Growth({key: bps // 8 for key, bps in sent_bps.items()}, SECOND_NS)
    owner = {"mode": "static", "rate_bps": 500_000_000, "port": port}
    found = below_rate_of(owner, 7, growth, ports)
    assert found is not None
    assert found["reason"] == reason


@pytest.mark.parametrize(
    ("mode", "named"),
    [("static", True), ("timer", True), ("shared", True), ("slow-start", False), ("ipg", False)],
)
def test_only_a_class_whose_rate_is_its_target_is_below_it(mode: str, named: bool) -> None:
    growth = Growth({("class", 7): 400_000_000 // 8}, SECOND_NS)
    owner = {"mode": mode, "rate_bps": 500_000_000, "port": None}
    assert (below_rate_of(owner, 7, growth, []) is not None) == named

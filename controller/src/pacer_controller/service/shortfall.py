"""The reason why a class sent less than its rate.

The pacer sends the packets of a class at exactly the class's rate. So a class that is below its
rate had nothing to send for a part of the time, lost packets at its limit, shared a full line, or
waited while the machine ran something else.
"""

from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["stalled", "line", "limit", "no-demand"]

SLACK_PERCENT = 2
"""Largest shortfall of a class that counts as at its rate, since intervals may split packets."""

FULL_LINE_PERCENT = 98
"""Smallest share of time for which a full line is busy."""


@dataclass(frozen=True)
class Interval:
    """Measurements of a class, its port and its switch between two readings.

    Attributes:
        duration_ns: the length of the interval.
        stalled_ns: the time for which the machine stalled the switch.
        limit_dropped: the packets that the class lost at its limit.
        line_percent: the share of time for which the class's line was busy; None: it has no rate.

    """

    duration_ns: int
    stalled_ns: int = 0
    limit_dropped: int = 0
    line_percent: float | None = None


def below_rate(rate_bps: int, achieved_bps: int, seen: Interval) -> dict[str, Any] | None:
    """Return the reason why a class achieved less than its rate; None if it is at its rate.

    The result has `reason`, one of Reason; `short_percent`, the shortfall in percent of the rate;
    and `stalled_ms`. Stalls are the reason if they explain at least half of the shortfall.
    """
    short_bps = rate_bps - achieved_bps
    if 100 * short_bps <= SLACK_PERCENT * rate_bps:
        return None
    reason: Reason = "no-demand"
    if 2 * seen.stalled_ns * rate_bps >= short_bps * seen.duration_ns:
        reason = "stalled"
    elif (seen.line_percent or 0) >= FULL_LINE_PERCENT:
        reason = "line"
    elif seen.limit_dropped:
        reason = "limit"
    return {
        "reason": reason,
        "short_percent": round(100 * short_bps / rate_bps, 1),
        "stalled_ms": round(seen.stalled_ns / 1e6, 3),
    }

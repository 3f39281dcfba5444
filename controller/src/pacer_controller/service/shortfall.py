"""Says why a class sent less than its rate.

The pacer sends what a class holds at exactly the class's rate. So a class that is below it had
nothing to send for a part of the time, lost packets at its limit, shared a full line, or waited
while the machine ran something else.
"""

from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["stalled", "line", "limit", "no-demand"]

SLACK_PERCENT = 2
"""A class within so much of its rate is at it: intervals do not end between two packets."""

FULL_LINE_PERCENT = 98
"""A line that is busy for so much of the time is full."""


@dataclass(frozen=True)
class Interval:
    """Measurements of a class, its port and its switch between two readings.

    Attributes:
        duration_ns: how long it was.
        stalled_ns: for how long the machine kept the switch from its work.
        limit_dropped: packets that the class lost at its limit.
        line_percent: how busy the class's line was; None where it has no rate.

    """

    duration_ns: int
    stalled_ns: int = 0
    limit_dropped: int = 0
    line_percent: float | None = None


def below_rate(rate_bps: int, achieved_bps: int, seen: Interval) -> dict[str, Any] | None:
    """Return why a class of `rate_bps` came to `achieved_bps` only; None if it is at its rate.

    The answer has `reason`, one of Reason, `short_percent`, by how much the class is below its
    rate, and `stalled_ms`. Stalls are the reason where they explain at least half of what is short.
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

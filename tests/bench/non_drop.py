"""The search for a non-drop rate: the highest at which a device loses no frame (RFC 2544, 26.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

RESOLUTION = 0.02
"""Where the search by short trials ends, as a share of the rate."""

STEP = 0.05
"""By this share the second whole trial is slower, the next one by twice as much, and so on."""

WHOLE_TRIALS_MAX = 8
STALL_SHARE = 0.1
"""A trial that loses more of what was sent does so for its rate, not for a stall."""


@dataclass(frozen=True)
class Trial:
    """Frames sent for a time, and what came of them."""

    sent: int
    received: int
    seconds: float
    """While frames were sent."""
    cpu_s: float
    """Processor time of the device; 0 if the kernel forwards."""

    @property
    def lost(self) -> int:
        """Frames that did not come through."""
        return max(self.sent - self.received, 0)

    @property
    def offered_pps(self) -> float:
        """The rate that was sent."""
        return self.sent / self.seconds

    @property
    def delivered_pps(self) -> float:
        """The rate that came through."""
        return self.received / self.seconds


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    non_drop_pps: float
    """0: no rate was without loss."""
    most_pps: float
    """The highest rate that came through in any trial, with or without loss."""
    flood_pps: float
    """The rate that came through when as many frames as possible were sent."""
    at_generator: bool
    """The device lost nothing of what the generator can send, so it may forward more."""
    trials: int


def search(
    attempt: Callable[[float | None, float], Trial], seconds: float, short_s: float
) -> Found:
    """Find the non-drop rate.

    A binary search by trials of `short_s` ends at a rate that trials of `seconds` then confirm, at
    lower and lower rates until one of them is without loss. A short trial that loses little is
    repeated once, so that a stall of the machine does not halve the result.

    Args:
        attempt: sends frames at a rate (None: as many as possible) for a time.
        seconds: of a trial that counts.
        short_s: of a trial that only guides the search.

    """
    made: list[Trial] = []

    def is_lossless(pps: float | None, for_s: float) -> bool:
        made.append(attempt(pps, for_s))
        return made[-1].lost == 0

    def is_lossless_again(pps: float) -> bool:
        again = made[-1].lost < STALL_SHARE * made[-1].sent
        return again and is_lossless(pps, short_s)

    def found(non_drop_pps: float, *, at_generator: bool = False) -> Found:
        most_pps = max(trial.delivered_pps for trial in made)
        return Found(non_drop_pps, most_pps, flood.delivered_pps, at_generator, len(made))

    if is_lossless(None, short_s) and is_lossless(None, seconds):
        flood = made[-1]
        return found(flood.offered_pps, at_generator=True)
    flood = made[0]
    low, high, pps = 0.0, flood.offered_pps, max(flood.delivered_pps, 1.0)
    while high - low > RESOLUTION * high and high >= 1:
        if is_lossless(pps, short_s) or is_lossless_again(pps):
            low = pps
        else:
            high = pps
        pps = math.sqrt(low * high) if low else high / 2
    pps = low
    for number in range(1, WHOLE_TRIALS_MAX + 1):
        if pps < 1:
            break
        if is_lossless(pps, seconds):
            return found(made[-1].offered_pps)
        pps *= 1 - number * STEP
    return found(0.0)

"""A bound on work that is done at the same time; who waits longest is next."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

RECONCILES = 32
"""Most switches that are connected and reconciled at the same time.

A controller that starts has all of its switches to reconcile. Without a bound, each of them would
wait for all others at every step, and none would be done before nearly all are.
"""

HOLD_S = 5.0
"""Longest time for which work counts, in seconds: a switch that is slow to answer costs little."""


class Permits:
    """A number of permits.

    Args:
        count: the number of permits.
        hold_s: the time after which a permit goes to the next, although its work goes on, in
            seconds.

    """

    def __init__(self, count: int = RECONCILES, hold_s: float = HOLD_S) -> None:
        self._free = asyncio.Semaphore(count)
        self._hold_s = hold_s

    async def take(self) -> "Permit":
        """Wait for a permit, and take it; the caller releases it."""
        await self._free.acquire()
        return Permit(self._free, self._hold_s)

    @contextlib.asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Wait for a permit, and hold it."""
        permit = await self.take()
        try:
            yield
        finally:
            permit.release()


class Permit:
    """A permit that is taken; made by `Permits.take`."""

    def __init__(self, free: asyncio.Semaphore, hold_s: float) -> None:
        self._free = free
        self._held = True
        self._timer = asyncio.get_running_loop().call_later(hold_s, self.release)

    def release(self) -> None:
        """Give the permit back, once."""
        if self._held:
            self._held = False
            self._timer.cancel()
            self._free.release()

"""Concurrent requests for a switch's counters share one reading.

So at most one reading of a switch is under way, for any number of streams, pages and scrapers.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pacer_controller.southbound import Driver, Reading, SwitchUnreadableError

SHARED_S = 0.05
"""Largest age of a shared reading for a client that reads periodically, in seconds.

It is so small that, at the shortest interval of a stream, no two readings of a client are the same
or less than 150 ms apart.
"""

READ_MOST_S = 30.0
"""Longest time that a reading may take."""


@dataclass(frozen=True)
class Sample:
    """A reading of a switch.

    Attributes:
        reading: the counters.
        at_ns: the time by the switch's clock, or else by this machine's monotonic clock.

    """

    reading: Reading
    at_ns: int


class _Under:
    """A reading that is under way.

    Attributes:
        began_s: the monotonic time when it began; infinite before that.
        task: the task that reads.

    """

    def __init__(self, read: "Callable[[_Under], Coroutine[Any, Any, Sample]]") -> None:
        self.began_s = math.inf
        self.task = asyncio.create_task(read(self), name="sample")


class Sampler:
    """Reads the counters of one switch.

    Args:
        driver: the driver of the switch.
        classes: returns the indices of classes to read.

    """

    def __init__(self, driver: Driver, classes: Callable[[], list[int]]) -> None:
        self._driver = driver
        self._classes = classes
        self._newest: tuple[float, Sample] | None = None
        self._under: _Under | None = None

    async def read(self, age_s: float) -> Sample:
        """Return a sample that began at most `age_s` before this call, or after it.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """
        least_s = time.monotonic() - age_s
        if self._newest is not None and self._newest[0] >= least_s:
            return self._newest[1]
        while True:
            under = self._under
            if under is None or under.task.done():
                under = self._under = _Under(self._read)
            # `wait` does not cancel the task if this caller is cancelled: others may wait for it.
            await asyncio.wait([under.task])
            if under.began_s >= least_s:
                return under.task.result()

    async def _read(self, under: _Under) -> Sample:
        under.began_s = time.monotonic()
        try:
            async with asyncio.timeout(READ_MOST_S):
                await self._driver.refresh_ports()
                reading = await self._driver.read(self._classes())
        except TimeoutError:
            raise SwitchUnreadableError(f"no answer within {READ_MOST_S:g} s") from None
        at_ns = reading.now_ns if reading.now_ns is not None else time.monotonic_ns()
        sample = Sample(reading, at_ns)
        self._newest = (under.began_s, sample)
        return sample

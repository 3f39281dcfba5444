"""Lets the rates of classes follow the queue of a bottleneck downstream (setting `follow`).

A change of a class's rate is handled like a request: it is checked, stored, and recorded as an
event whose actor is `follow`. While the measuring switch cannot be read, the rate does not change.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from typing import NamedTuple

from pacer_controller.following import CLASSES_MOST, FollowSpec
from pacer_controller.problems import Problem
from pacer_controller.records import ClassRecord
from pacer_controller.service.checks import Condition
from pacer_controller.service.core import Service
from pacer_controller.service.follow_law import Law
from pacer_controller.service.managed import Origin
from pacer_controller.southbound import State, SwitchUnreadableError, VirtualQueue
from pacer_controller.stores import StoreError

_LOG = logging.getLogger(__name__)

INTERVAL_S = 0.05
READ_MOST_S = 1.0
"""Longest time that one reading, or one change, may take."""


class Followed(NamedTuple):
    """A class that follows, by the names of its switch and of the class."""

    switch: str
    name: str
    spec: FollowSpec


class Follower:
    """Reads the bottlenecks that classes follow, and changes the classes' rates.

    Args:
        service: the service that has the classes.

    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._laws: dict[Followed, Law] = {}

    async def run(self) -> None:
        """Follow until cancelled; without a class that follows, wait for the next event."""
        while True:
            last = self._service.events.last_id
            followed = self._followed()
            if not followed:
                self._laws.clear()
                await self._service.events.wait(last)
                # The pause limits how often a series of changes makes this look at all classes.
                await asyncio.sleep(INTERVAL_S)
                continue
            try:
                await self.step(followed)
            except Exception:
                _LOG.exception("a class's rate could not follow")
            await asyncio.sleep(INTERVAL_S)

    def _followed(self) -> list[Followed]:
        # Concurrent requests on several switches may together have exceeded the limit.
        found = [
            Followed(managed.name, name, spec)
            for managed in self._service.switches.values()
            for name, spec in managed.desired.following.items()
        ]
        return found[:CLASSES_MOST]

    async def step(self, followed: list[Followed]) -> None:
        """Read each bottleneck once, and change the rates of the classes that follow it."""
        self._laws = {one: self._laws.get(one) or _law_of(one.spec) for one in followed}
        places = list(dict.fromkeys((one.spec.switch, one.spec.port) for one in followed))
        readings = await asyncio.gather(*(self._read(*place) for place in places))
        seen = dict(zip(places, readings, strict=True))
        classes = Counter((one.spec.switch, one.spec.port) for one in followed)
        await asyncio.gather(
            *(
                self._follow(one, reading, classes[one.spec.switch, one.spec.port])
                for one in followed
                if (reading := seen[one.spec.switch, one.spec.port]) is not None
            )
        )

    async def _read(self, switch: str, port: int) -> VirtualQueue | None:
        found = self._service.switches.get(switch)
        if found is None or found.driver.measuring is None:
            return None
        with contextlib.suppress(SwitchUnreadableError, TimeoutError):
            async with asyncio.timeout(READ_MOST_S):
                return await found.driver.measuring.queue(port)
        return None

    async def _follow(self, one: Followed, seen: VirtualQueue, classes: int) -> None:
        record = self._record(one)
        if record is None or record.spec.rate is None:
            return
        rate_bps = self._laws[one].next_rate(seen, record.spec.rate, classes)
        if rate_bps is None:
            return
        spec = record.spec.model_copy(update={"rate": rate_bps})
        where = f"{one.spec.switch} port {one.spec.port}: queue {seen.queue_bytes} bytes"
        # A request that has changed the class meanwhile takes precedence.
        condition = Condition([record.revision])
        try:
            async with asyncio.timeout(READ_MOST_S):
                origin = Origin(actor="follow", path=where)
                await self._service.put(one.switch, "class", one.name, spec, condition, origin)
        except (Problem, StoreError, TimeoutError) as error:
            _LOG.warning("class %s on switch %s keeps its rate: %s", one.name, one.switch, error)

    def _record(self, one: Followed) -> ClassRecord | None:
        found = self._service.switches.get(one.switch)
        if found is None or found.driver.state is not State.CONNECTED:
            return None
        record = found.desired.classes.get(one.name)
        return record if record is not None and record.spec.follow == one.spec else None


def _law_of(spec: FollowSpec) -> Law:
    return Law(spec.fifo_bytes, spec.least_rate, spec.most_rate)

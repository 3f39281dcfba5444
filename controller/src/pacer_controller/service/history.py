"""The rates of the last minute, so that a page that is opened can draw them at once."""

import asyncio
import time
from collections import deque
from typing import Any

from pacer_controller.problems import Problem
from pacer_controller.service.core import Service
from pacer_controller.service.managed import Samples
from pacer_controller.southbound import State

KEPT_S = 60.0
INTERVAL_S = 2.0
CLASSES_MOST = 256
"""A switch with more classes is not read: that takes longer, and a page shows fewer."""

Point = tuple[float, dict[tuple[str, str], tuple[int | None, int | None]]]
"""When it was, and achieved rate and rate in bit/s by kind and name."""


class History:
    """Reads all connected switches now and then, and keeps the rates for a minute.

    Args:
        service: whose switches.

    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._points: dict[str, deque[Point]] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        samples: dict[str, Samples] = {}
        while True:
            for name, found in list(self._service.switches.items()):
                if found.driver.state is State.CONNECTED and len(found.desired.used) < CLASSES_MOST:
                    await self._read(name, samples.setdefault(name, Samples()))
            for name in self._points.keys() - self._service.switches.keys():
                del self._points[name]
            await asyncio.sleep(INTERVAL_S)

    async def _read(self, name: str, samples: Samples) -> None:
        try:
            measured = await self._service.statistics(name, samples)
        except Problem:
            # Requests for statistics report it.
            return
        points = self._points.setdefault(name, deque(maxlen=round(KEPT_S / INTERVAL_S)))
        rates = {
            ("flow" if row["flow"] else "class", str(row["flow"] or row["name"])): (
                row["achieved_bps"],
                row["rate_bps"],
            )
            for row in measured["classes"]
            if row["flow"] or row["name"]
        }
        points.append((time.monotonic(), rates))

    def view(self, name: str) -> dict[str, Any]:
        """Return the rates of a switch's classes, oldest first.

        Raises:
            Problem: there is no such switch.

        """
        self._service.switch(name)
        now_s = time.monotonic()
        classes: dict[tuple[str, str], list[list[float | None]]] = {}
        for at_s, rates in self._points.get(name, ()):
            age_s = round(now_s - at_s, 3)
            if age_s <= KEPT_S:
                for key, pair in rates.items():
                    classes.setdefault(key, []).append([age_s, *pair])
        return {
            "switch": name,
            "classes": [
                {"kind": kind, "name": of, "points": points}
                for (kind, of), points in classes.items()
            ],
        }

"""The rates of the last minute, so that a newly opened page can draw them at once."""

import asyncio
import logging
import time
from collections import Counter, deque
from typing import Any

from pacer_controller.problems import Problem
from pacer_controller.service.core import Service
from pacer_controller.service.managed import ManagedSwitch, Samples
from pacer_controller.service.sample import SHARED_S
from pacer_controller.service.statistics import statistics
from pacer_controller.southbound import State

_LOG = logging.getLogger(__name__)

KEPT_S = 60.0
INTERVAL_S = 2.0
READ_MOST_S = 5.0
"""Longest time that one reading of a switch may take."""
CLASSES_MOST = 256
"""Most classes of a switch that is read: more take longer, and a page shows fewer."""

Point = tuple[float, dict[tuple[str, str], tuple[int | None, int | None]]]
"""The time in seconds, and achieved rate and rate in bit/s by kind and name."""


class History:
    """Reads all connected switches every INTERVAL_S, and keeps the rates for a minute.

    Args:
        service: the service that has the switches.

    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._points: dict[ManagedSwitch, deque[Point]] = {}
        self._overdue: Counter[ManagedSwitch] = Counter()

    async def run(self) -> None:
        """Read until cancelled."""
        samples: dict[ManagedSwitch, Samples] = {}
        while True:
            switches = list(self._service.switches.values())
            samples = {found: samples.get(found, Samples()) for found in switches}
            self._points = {
                found: self._points.get(found, deque(maxlen=round(KEPT_S / INTERVAL_S)))
                for found in switches
            }
            self._overdue = Counter({found: self._overdue[found] for found in switches})
            await asyncio.gather(*(self._read(found, of) for found, of in samples.items()))
            await asyncio.sleep(INTERVAL_S)

    async def _read(self, found: ManagedSwitch, samples: Samples) -> None:
        if found.driver.state is not State.CONNECTED or len(found.desired.used) >= CLASSES_MOST:
            return
        try:
            async with asyncio.timeout(READ_MOST_S):
                measured = await statistics(found, samples, SHARED_S)
        except Problem:  # Requests for statistics report it.
            return
        except TimeoutError:
            self._overdue[found] += 1
            _LOG.warning("reading switch %s took longer than %g s", found.name, READ_MOST_S)
            return
        except Exception:
            _LOG.exception("the rates of switch %s could not be read", found.name)
            return
        rates = {
            ("flow" if row["flow"] else "class", str(row["flow"] or row["name"])): (
                row["achieved_bps"],
                row["rate_bps"],
            )
            for row in measured["classes"]
            if row["flow"] or row["name"]
        }
        self._points[found].append((time.monotonic(), rates))

    def view(self, name: str) -> dict[str, Any]:
        """Return the rates of a switch's classes, oldest first.

        Raises:
            Problem: there is no such switch.

        """
        found = self._service.switch(name)
        now_s = time.monotonic()
        classes: dict[tuple[str, str], list[list[float | None]]] = {}
        for at_s, rates in self._points.get(found, ()):
            age_s = round(now_s - at_s, 3)
            if age_s <= KEPT_S:
                for key, pair in rates.items():
                    classes.setdefault(key, []).append([age_s, *pair])
        return {
            "switch": name,
            "overdue": self._overdue[found],
            "classes": [
                {"kind": kind, "name": of, "points": points}
                for (kind, of), points in classes.items()
            ],
        }

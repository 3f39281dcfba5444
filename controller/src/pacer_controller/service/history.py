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

READS_MOST_PER_S = 20.0
"""Most switches that are read in a second: more have fewer points in a minute."""

CLASSES_MOST = 256
"""Most classes of a switch that is read: more take longer, and a page shows fewer."""

Point = tuple[float, dict[tuple[str, str], tuple[int | None, int | None]]]
"""The time in seconds, and achieved rate and rate in bit/s by kind and name."""


class History:
    """Reads the connected switches in turn, and keeps the rates for a minute.

    Each switch is read every INTERVAL_S, or less often if more than READS_MOST_PER_S would be read
    in a second. The readings are spread over this time.

    Args:
        service: the service that has the switches.

    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._points: dict[ManagedSwitch, deque[Point]] = {}
        self._overdue: Counter[ManagedSwitch] = Counter()
        self._under: set[ManagedSwitch] = set()
        """The switches whose reading is under way."""

    async def run(self) -> None:
        """Read until cancelled."""
        samples: dict[ManagedSwitch, Samples] = {}
        async with asyncio.TaskGroup() as readings:
            while True:
                samples = self._known(samples)
                read = [found for found in samples if self._reads(found)]
                pause_s = max(INTERVAL_S / max(1, len(read)), 1 / READS_MOST_PER_S)
                for found in read:
                    if found not in self._under:
                        self._under.add(found)
                        readings.create_task(self._read(found, samples[found]))
                    await asyncio.sleep(pause_s)
                if not read:
                    await asyncio.sleep(INTERVAL_S)

    def _known(self, samples: dict[ManagedSwitch, Samples]) -> dict[ManagedSwitch, Samples]:
        """Return the samples of all switches, and forget those that are gone."""
        switches = list(self._service.switches.values())
        self._points = {
            found: self._points.get(found, deque(maxlen=round(KEPT_S / INTERVAL_S)))
            for found in switches
        }
        self._overdue = Counter({found: self._overdue[found] for found in switches})
        return {found: samples.get(found, Samples()) for found in switches}

    @staticmethod
    def _reads(found: ManagedSwitch) -> bool:
        connected = found.driver.state is State.CONNECTED
        return connected and len(found.desired.used) < CLASSES_MOST

    async def _read(self, found: ManagedSwitch, samples: Samples) -> None:
        try:
            async with asyncio.timeout(READ_MOST_S):
                measured = await statistics(found, samples, SHARED_S)
        except Problem:  # Requests for statistics report it.
            return
        except TimeoutError:
            if found in self._points:
                self._overdue[found] += 1
            _LOG.warning("reading switch %s took longer than %g s", found.name, READ_MOST_S)
            return
        except Exception:
            _LOG.exception("the rates of switch %s could not be read", found.name)
            return
        finally:
            self._under.discard(found)
        rates = {
            ("flow" if row["flow"] else "class", str(row["flow"] or row["name"])): (
                row["achieved_bps"],
                row["rate_bps"],
            )
            for row in measured["classes"]
            if row["flow"] or row["name"]
        }
        points = self._points.get(found)
        if points is not None:
            points.append((time.monotonic(), rates))

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

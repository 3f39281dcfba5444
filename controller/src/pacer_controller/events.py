"""What happened: kept in the state file, readable as a list, and followed by streams."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pacer_controller.store import EVENTS_KEPT, Store, StoreError

_LOG = logging.getLogger(__name__)

Kind = Literal[
    "change", "denied", "switch-state", "drift", "mended", "failed", "controller", "replication"
]
KINDS: tuple[str, ...] = get_args(Kind)

Event = dict[str, Any]
"""Members `id`, `time`, `kind`, `switch`, `message`, `data`."""


def draft(kind: str, switch: str | None, message: str, data: Mapping[str, Any]) -> Event:
    """Return an event that has no number yet."""
    # Wall-clock time, for people; nothing is decided by it.
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"time": now, "kind": kind, "switch": switch, "message": message, "data": dict(data)}


class EventLog:
    """The newest events, in memory and in the state file.

    Args:
        store: where they are kept; the caller closes it.

    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: deque[Event] = deque(store.events(), maxlen=EVENTS_KEPT)
        self._arrived = asyncio.Event()
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)

    @property
    def last_id(self) -> int:
        """Number of the newest event; 0 when there is none."""
        return int(self._events[-1]["id"]) if self._events else 0

    def record(
        self, kind: str, switch: str | None, message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        """Keep an event and tell those who follow."""
        event = draft(kind, switch, message, data or {})
        try:
            numbers = self._store.write([], [event])
        except StoreError as error:
            # What happened to a switch must not depend on whether it can be written down.
            _LOG.error("%s; not kept: %s", error, message)
            return
        self.publish(numbers, [event])

    def publish(self, numbers: Sequence[int], drafts: Sequence[Event]) -> None:
        """Tell those who follow of events that are in the state file by these numbers."""
        for number, event in zip(numbers, drafts, strict=True):
            self._events.append({"id": number, **event})
            self.counts[event["kind"]] = self.counts.get(event["kind"], 0) + 1
        if numbers:
            self._arrived.set()
            self._arrived = asyncio.Event()

    def get(self, number: int) -> Event | None:
        """Return an event by its number."""
        return next((event for event in reversed(self._events) if event["id"] == number), None)

    def select(
        self, after: int = 0, kinds: Sequence[str] = (), switches: Sequence[str] = ()
    ) -> list[Event]:
        """Return the events after a number, of these kinds and switches (none given: all)."""
        found: list[Event] = []
        for event in reversed(self._events):
            if event["id"] <= after:
                break
            if (not kinds or event["kind"] in kinds) and (
                not switches or event["switch"] in switches
            ):
                found.append(event)
        found.reverse()
        return found

    async def wait(self, after: int) -> None:
        """Wait until there is an event after a number."""
        while self.last_id <= after:
            await self._arrived.wait()

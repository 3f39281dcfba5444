"""Events: kept in the store, readable as a list, and followed by streams."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pacer_controller.kept_events import Event, KeptEvents
from pacer_controller.stores import EVENTS_KEPT, Store, StoreError

_LOG = logging.getLogger(__name__)

Kind = Literal["change", "denied", "switch-state", "drift", "mended", "failed", "controller"]
KINDS: tuple[str, ...] = get_args(Kind)

WAITING_MOST = 1_000
"""Most events that wait to be stored; further ones are dropped, and counted."""

TOGETHER_MOST = 64
"""Most events that are stored at a time."""

GAP_S = 30.0
"""Longest time that events wait for one with a lower number."""


def draft(kind: str, switch: str | None, message: str, data: Mapping[str, Any]) -> Event:
    """Return an event that has no number yet."""
    # Wall-clock time, for people only.
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"time": now, "kind": kind, "switch": switch, "message": message, "data": dict(data)}


class EventLog:
    """The newest events, in memory and in the store.

    An event gets its number when it is stored, and is published later, when the switch has the
    change. Events are published in the order of their numbers, each when all lower ones are
    published or dropped, so that a reader who has seen a number has missed none below it.

    Args:
        store: the store that keeps them; the caller closes it.

    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events = KeptEvents(store.events(), EVENTS_KEPT)
        self._arrived = asyncio.Event()
        self._next: int | None = None
        """The lowest number neither published nor dropped; None before the first event."""
        self._held: dict[int, Event | None] = {}
        """Events from that number on that are not published yet; None: dropped."""
        self._gap_until_s: float | None = None
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.dropped = 0
        """The number of events that were not stored."""
        self._waiting: deque[Event] = deque()
        self._storing: asyncio.Task[None] | None = None

    @property
    def last_id(self) -> int:
        """Number of the newest event; 0 when there is none."""
        return self._events.last_id

    def record(
        self, kind: str, switch: str | None, message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        """Queue an event to be stored and then published."""
        if len(self._waiting) >= WAITING_MOST:
            self.dropped += 1
            return
        data, controller = data or {}, self._store.controller
        if controller is not None:
            data = {**data, "controller": controller}
        self._waiting.append(draft(kind, switch, message, data))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_waiting(), name="events")

    async def _store_waiting(self) -> None:
        """Store the waiting events in order, until none waits."""
        try:
            while self._waiting:
                most = min(len(self._waiting), TOGETHER_MOST)
                events = [self._waiting.popleft() for _ in range(most)]
                try:
                    written = await self._store.write([], events)
                except StoreError as error:
                    # An event that cannot be stored must have no effect on the switch.
                    self.dropped += len(events)
                    _LOG.error("%s; %d events not kept: %s", error, most, events[0]["message"])
                else:
                    if written.numbers:
                        self.publish(written.numbers, events)
        finally:
            self._storing = None

    async def flush(self) -> None:
        """Wait until all recorded events are stored."""
        while self._storing is not None:
            await asyncio.wait([self._storing])

    def follow(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Publish events that the store's feed brings, in its order."""
        for event in events:
            self.counts[event["kind"]] = self.counts.get(event["kind"], 0) + 1
            self._events.add(dict(event))
        self._arrived.set()
        self._arrived = asyncio.Event()

    def publish(self, numbers: Sequence[int], drafts: Sequence[Event]) -> None:
        """Publish events that are in the store under these numbers."""
        for number, event in zip(numbers, drafts, strict=True):
            self.counts[event["kind"]] = self.counts.get(event["kind"], 0) + 1
            if self._next is None:
                self._next = number
            if number >= self._next:
                self._held[number] = {"id": number, **event}
            else:
                # The event is too late for streams, which are past its number; lists have it.
                self._events.add({"id": number, **event})
        self._release()

    def drop(self, numbers: Sequence[int]) -> None:
        """Stop waiting for events with these numbers: their changes were undone."""
        self._held |= {n: None for n in numbers if self._next is not None and n >= self._next}
        self._release()

    def _release(self) -> None:
        """Publish the events whose turn it is."""
        published = False
        while self._held and self._next is not None:
            if self._next not in self._held:
                if self._waits():
                    break
                self._next = min(self._held)
            self._gap_until_s = None
            event = self._held.pop(self._next)
            self._next += 1
            if event is not None:
                self._events.add(event)
                published = True
        if published:
            self._arrived.set()
            self._arrived = asyncio.Event()

    def _waits(self) -> bool:
        """Return whether to wait for the next number, which others have overtaken."""
        if len(self._held) >= EVENTS_KEPT:
            return False
        now_s = time.monotonic()
        if self._gap_until_s is None:
            self._gap_until_s = now_s + GAP_S
            # 10 ms later, since `_waits` compares with the clock.
            asyncio.get_running_loop().call_later(GAP_S + 0.01, self._release)
        return now_s < self._gap_until_s

    def get(self, number: int) -> Event | None:
        """Return an event by its number."""
        return self._events.get(number)

    def select(
        self, after: int = 0, kinds: Sequence[str] = (), switches: Sequence[str] = ()
    ) -> list[Event]:
        """Return the events after a number, of these kinds and switches (none given: all)."""
        return self._events.select(after, kinds, switches)[0]

    def page(
        self,
        after: int,
        kinds: Sequence[str],
        switches: Sequence[str],
        limit: int,
        *,
        newest: bool,
    ) -> tuple[list[Event], int]:
        """Return some of the events that `select` returns, and their number (`KeptEvents`)."""
        return self._events.select(after, kinds, switches, limit, newest=newest)

    async def wait(self, after: int) -> None:
        """Wait until there is an event after a number."""
        while self.last_id <= after:
            await self._arrived.wait()

"""The leader's side: writes on their way to the follower, and who waits for them to be there.

A follower asks for what comes after the last write it has on disk; asking is how it says that it
has that one. When nothing is new the answer waits a moment.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from pacer_controller.problems import Problem
from pacer_controller.records import Entry
from pacer_controller.replication import wire
from pacer_controller.store import Store

POLL_S = 0.4
"""Longest time that an answer waits for something new."""

HOLD_S = 6.0
"""How long writes wait for a follower that has fallen silent, before they are acknowledged without
it. A follower takes over no later than `pair.TAKE_OVER_S`, which is less, after it last asked:
by then none has been."""

KEPT_CHANGES = 50_000
"""Changes that are kept for a follower that is behind; one further behind gets a snapshot. What one
in sync has yet to get is kept in any case: nobody who waits for it is told before."""


class Feed:
    """What a follower has yet to get, and how far it has come.

    Args:
        store: the state; the caller closes it.
        alone: called before writes are acknowledged without the follower: raises the Problem when
            this controller must not.

    """

    def __init__(self, store: Store, alone: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._alone = alone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entries: deque[Entry] = deque()
        self._changes = 0
        self._moved = asyncio.Event()
        self._heard_s = float("-inf")
        self._follower: str | None = None
        self.open = False
        """Whether this controller leads."""
        self.in_sync = False
        """Whether the follower has everything that was acknowledged, and may take over."""
        self.left = False
        """Whether the follower said that it stops, and so does not take over."""
        self.acknowledged = -1
        """Newest write that the follower has on disk."""

    @property
    def live(self) -> bool:
        """Whether the follower was heard of lately."""
        return time.monotonic() - self._heard_s < HOLD_S

    def begin(self) -> None:
        """Begin to lead: nobody has anything of this epoch."""
        self._loop = asyncio.get_running_loop()
        self._entries.clear()
        self._changes = 0
        self._follower, self.acknowledged, self.in_sync = None, -1, False
        self._heard_s, self.left = float("-inf"), False
        self.open = True
        self._store.on_write = self._written

    def end(self) -> None:
        """Lead no longer; those who wait are told."""
        self.open = False
        self.in_sync = False
        self._store.on_write = None
        self._move()

    def _written(self, entry: Entry) -> None:
        """Keep a write for the follower; called from the thread that writes."""
        self._entries.append(entry)
        self._changes += len(entry.changes) + 1
        while self._changes > KEPT_CHANGES and len(self._entries) > 1:
            if self.in_sync and self._entries[0].sequence > self.acknowledged:
                break
            self._changes -= len(self._entries.popleft().changes) + 1
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._move)

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._moved.wait()
        except TimeoutError:
            pass

    # ---- the follower's requests ----

    async def read(self, follower: str, epoch: int, after: int) -> dict[str, Any]:
        """Return what comes after a write, or a snapshot when that write is not of this line.

        Raises:
            Problem: another follower is there already.
            StoreError: the state file could not be written.

        """
        if self._follower not in (None, follower) and self.live:
            raise Problem(
                HTTPStatus.CONFLICT,
                "another-follower",
                "Another controller follows already",
                f"controller {self._follower} follows this one, which takes one follower",
            )
        if follower != self._follower:
            # The former one has been silent for so long that it will not take over.
            self._follower, self.acknowledged, self.in_sync = follower, -1, False
        self._heard_s, self.left = time.monotonic(), False
        if epoch != self._store.epoch:
            # It has given up what it had, and says so itself.
            self.in_sync = False
        if epoch != self._store.epoch or not self._has_all_after(after):
            # One in sync may take over until it knows that it is not: writes wait until it has
            # asked again, or has been silent for long enough.
            said = await asyncio.to_thread(self._store.snapshot)
            return {"snapshot": wire.snapshot(said), "in_sync": False}
        self.acknowledged = max(after, self.acknowledged)
        self._move()
        if after == self._newest():
            if not self.in_sync:
                # On disk first: from here on a restart of this controller must not lead unasked.
                await asyncio.to_thread(self._store.set_alone, False)
                self.in_sync = self.open
            else:
                await self._wait(POLL_S)
        entries = [wire.entry(one) for one in list(self._entries) if one.sequence > after]
        return {"entries": entries, "in_sync": self.in_sync}

    def _has_all_after(self, after: int) -> bool:
        """Whether every write after a number is still kept."""
        newest = self._newest()
        first = self._entries[0].sequence if self._entries else newest + 1
        return first - 1 <= after <= newest

    def _newest(self) -> int:
        """Return the number of the newest write, which the store may not have counted yet."""
        newest = self._entries[-1].sequence if self._entries else -1
        return max(newest, self._store.sequence)

    def leave(self, follower: str) -> None:
        """Note that the follower stops: writes need not wait for it."""
        if follower == self._follower:
            self._heard_s, self.left = float("-inf"), True
            self._move()

    # ---- writes ----

    async def wait_for(self, sequence: int) -> None:
        """Wait until the follower has a write on disk, or may no longer take over.

        Raises:
            Problem: this controller leads no longer.
            StoreError: the state file could not be written.

        """
        while self.in_sync and self.acknowledged < sequence:
            heard_s = self._heard_s
            left_s = heard_s + HOLD_S - time.monotonic()
            if left_s > 0:
                await self._wait(left_s)
                continue
            await self._alone()
            await asyncio.to_thread(self._store.set_alone, True)
            if self._heard_s > heard_s and self.in_sync:
                # It was there after all, and may take over.
                await asyncio.to_thread(self._store.set_alone, False)
                continue
            self.in_sync = False
            self._move()
        if not self.open:
            raise ceased_to_lead()


def not_leading(leader: str | None) -> Problem:
    """Return the 503 for a write to a controller that does not lead."""
    where = f"send changes to {leader}" if leader else "no other is known to lead"
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not-leading",
        "This controller does not lead",
        f"another controller has the desired state: {where}; nothing was changed",
    )


def cut_off() -> Problem:
    """Return the 503 for a change of a leader that nobody answers who could say that it is one."""
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not-leading",
        "This controller cannot tell whether it leads",
        "neither the other controller nor any switch answers, and the other may have taken over: "
        "ask that one what became of the change, or try again",
    )


def ceased_to_lead() -> Problem:
    """Return the 503 for a change that was on its way when another controller took over."""
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not-leading",
        "This controller does not lead",
        "it ceased to lead while it made the change: ask the other controller what became of it",
    )

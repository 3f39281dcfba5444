"""How a change is made: planned, stored, brought to the switch, all or nothing.

Changes go through four steps under the switch's lock: everything is checked (`plan`); desired
state and entries are staged in memory; the new state is stored together with its audit event; the
switch gets the difference. A switch that is away gets it when it comes back. A switch that
refuses has the stored change taken back, so that desired state never holds what its switch cannot.
Where a second controller follows this one, it has the change on disk before the switch gets it.

Requests that wait for the lock while another holds it are made together: one transaction, one
write to the switch. When that is refused each of them is made alone, so that each learns its own
fate.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from pacer_controller import events as event_log
from pacer_controller.events import Event, EventLog
from pacer_controller.problems import Problem
from pacer_controller.records import ResourceChange
from pacer_controller.rows import Key, Row, Rows
from pacer_controller.schemas import stored
from pacer_controller.service.checks import resource_name
from pacer_controller.service.managed import Allocation, Job, ManagedSwitch, Origin
from pacer_controller.southbound import SwitchRefusedError
from pacer_controller.store import Store, StoreError, SwitchSettings

BATCH = 256
"""Most requests that are made together."""

EVENT_CHANGES = 20
"""Most changes that an audit event lists."""


def change_view(change: ResourceChange) -> dict[str, Any]:
    """Return a change as clients see it."""
    op = "delete" if change.after is None else "create" if change.before is None else "update"
    return {
        "op": op,
        "kind": change.kind,
        "switch": change.switch,
        "name": change.name,
        "before": stored(change.before.spec) if change.before is not None else None,
        "after": stored(change.after.spec) if change.after is not None else None,
    }


def audit(origin: Origin, views: Sequence[dict[str, Any]], switch: str | None) -> Event:
    """Return the event that says who changed what."""
    message = _message(views[0])
    if len(views) > 1:
        message += f" (and {len(views) - 1} more changes)"
    data = {
        "actor": origin.actor,
        "client": origin.client,
        "method": origin.method,
        "path": origin.path,
        "changes": list(views[:EVENT_CHANGES]),
        "count": len(views),
    }
    return event_log.draft("change", switch, message, data)


def _message(view: dict[str, Any]) -> str:
    """Say in one line what a change is, with what is different of the resource."""
    name = view["name"]
    what = f"switch {name!r}"
    if view["kind"] != "switch":
        what = resource_name(view["kind"], name, view["switch"])
    if view["op"] != "update":
        return f"{what}: {view['op']}d"
    before, after = view["before"] or {}, view["after"] or {}
    differences = [
        f"{key} {_short(before.get(key))} -> {_short(after.get(key))}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return f"{what}: {', '.join(differences[:4])}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


class Replication(Protocol):
    """What changes have to do with a second controller."""

    def require_leading(self) -> None:
        """Raise the 503 unless this controller takes changes."""

    async def replicated(self, sequence: int) -> None:
        """Wait until a write is where it must be before it is acknowledged.

        Raises:
            Problem: this controller takes no changes any longer.
            StoreError: the state file could not be written.

        """


class NoReplication:
    """A controller by itself."""

    def require_leading(self) -> None:
        """Take every change."""

    async def replicated(self, sequence: int) -> None:
        """Wait for nobody."""


class Committer:
    """Makes changes.

    Args:
        store: desired state; the caller closes it.
        events: where audit events go.

    Attributes:
        replication: what a second controller has to do with it.

    """

    def __init__(self, store: Store, events: EventLog) -> None:
        self._store = store
        self._events = events
        self.replication: Replication = NoReplication()

    async def submit(
        self,
        found: ManagedSwitch,
        plan: Callable[[Allocation], list[ResourceChange]],
        origin: Origin,
    ) -> list[ResourceChange]:
        """Make one request's change to one switch, perhaps together with others that wait.

        Raises:
            Problem: nothing was changed.
            StoreError: nothing was changed.

        """
        self.replication.require_leading()
        job = Job(plan, origin)
        found.queue.append(job)
        try:
            async with found.lock:
                while not job.done:
                    await self._make_next(found)
        except asyncio.CancelledError:
            # Whoever asked is gone; what is not begun need not be.
            if job in found.queue:
                found.queue.remove(job)
            raise
        if job.error is not None:
            raise job.error
        return job.changes

    async def _make_next(self, found: ManagedSwitch) -> None:
        """Make the changes of the requests that have waited longest; the caller holds the lock."""
        jobs = [found.queue.popleft() for _ in range(min(BATCH, len(found.queue)))]
        try:
            await self._make(found, jobs)
        finally:
            # Broken off: those who wait for the others make them.
            found.queue.extendleft(job for job in reversed(jobs) if not job.done)

    async def _make(self, found: ManagedSwitch, jobs: Sequence[Job]) -> None:
        """Make the changes of several requests; the caller holds the lock."""
        try:
            self.replication.require_leading()
            await self._make_together(found, jobs)
        except SwitchRefusedError as error:
            if len(jobs) == 1:
                jobs[0].error, jobs[0].done = refused(found, error), True
                return
            for job in jobs:
                if not job.done:
                    await self._make(found, [job])
        except Exception as error:
            for job in jobs:
                if not job.done:
                    job.error, job.done = error, True
            if not isinstance(error, (Problem, StoreError)):
                raise

    async def _make_together(self, found: ManagedSwitch, jobs: Sequence[Job]) -> None:
        staged: list[Job] = []
        before: dict[Key, Row | None] = {}
        fresh: list[int] = []
        for job in jobs:
            allocation = Allocation(found)
            try:
                changes = job.plan(allocation)
                touched = found.stage(changes)
            except Problem as problem:
                allocation.undo()
                job.error, job.done = problem, True
                continue
            except BaseException:
                allocation.undo()
                self._unstage(found, staged)
                raise
            job.changes = changes
            before = touched | before
            fresh += allocation.fresh
            staged.append(job)
        if any(job.changes for job in staged):
            await self._bring(found, staged, before, fresh)
        for job in staged:
            job.done = True

    async def _bring(
        self,
        found: ManagedSwitch,
        staged: Sequence[Job],
        before: dict[Key, Row | None],
        fresh: Sequence[int],
    ) -> None:
        """Store what is staged and bring it to the switch."""
        changes = [change for job in staged for change in job.changes]
        drafts = [
            audit(job.origin, [change_view(change) for change in job.changes], found.name)
            for job in staged
            if job.changes
        ]
        # Its thread goes on when this task is cancelled.
        writing = asyncio.ensure_future(asyncio.to_thread(self._store.write, changes, drafts))
        try:
            numbers = await asyncio.shield(writing)
            await self.replication.replicated(self._store.sequence)
            await found.driver.apply(*difference(found, before), fresh=fresh)
        except BaseException:
            self._unstage(found, staged)
            await asyncio.wait([writing])
            if not writing.cancelled() and writing.exception() is None:
                await self._take_back(changes, writing.result())
            raise
        found.last_change = self._store.revision
        self._events.publish(numbers, drafts)

    async def _take_back(
        self,
        changes: Sequence[ResourceChange],
        numbers: Sequence[int],
        switches: SwitchSettings | None = None,
    ) -> None:
        """Undo what is stored, here and at the follower."""
        await asyncio.to_thread(self._store.take_back, changes, numbers, switches)
        self._events.drop(numbers)
        with contextlib.suppress(Problem):
            # Who leads no longer takes over the new leader's state anyway.
            await self.replication.replicated(self._store.sequence)

    def _unstage(self, found: ManagedSwitch, staged: Sequence[Job]) -> None:
        for job in reversed(staged):
            found.unstage(job.changes)
            job.changes = []

    async def submit_all(
        self,
        plans: Mapping[ManagedSwitch, Sequence[ResourceChange]],
        fresh: Mapping[ManagedSwitch, Sequence[int]],
        origin: Origin,
        views: Sequence[dict[str, Any]],
        settings: SwitchSettings,
        forgotten: Sequence[ResourceChange],
    ) -> None:
        """Make changes to several switches, all or nothing; the caller holds their locks.

        Args:
            plans: changes by switch.
            fresh: classes that are new, by switch.
            origin: who asked.
            views: all of it, as clients see it.
            settings: of the switches that are new or changed; None: the switch leaves.
            forgotten: resources of the switches that leave, which those keep.

        Raises:
            Problem: nothing was changed.
            StoreError: nothing was changed.

        """
        self.replication.require_leading()
        staged: list[ManagedSwitch] = []
        befores: dict[ManagedSwitch, dict[Key, Row | None]] = {}
        drafts = [audit(origin, views, _only_switch(views))] if views else []
        try:
            for found, changes in plans.items():
                befores[found] = found.stage(changes)
                staged.append(found)
            stored_before = self._store.switches()
            former = {name: stored_before.get(name) for name in settings}
            stored_changes = [*(c for p in plans.values() for c in p), *forgotten]
            numbers = self._store.write(stored_changes, drafts, settings)
        except BaseException:
            for found in reversed(staged):
                found.unstage(plans[found])
            raise
        applied: dict[ManagedSwitch, tuple[Rows, Rows]] = {}
        try:
            await self.replication.replicated(self._store.sequence)
            for found in staged:
                pair = difference(found, befores[found])
                await found.driver.apply(*pair, fresh=fresh.get(found, []))
                applied[found] = pair
        except BaseException as error:
            # A switch that is new or changed is not connected yet: it refuses nothing.
            for other in reversed(staged):
                other.unstage(plans[other])
            await self._take_back(stored_changes, numbers, former)
            for other, (before, after) in applied.items():
                with contextlib.suppress(SwitchRefusedError):
                    await other.driver.apply(after, before)
            if isinstance(error, SwitchRefusedError):
                raise refused(found, error) from None
            raise
        for found in staged:
            found.last_change = self._store.revision
        self._events.publish(numbers, drafts)


def _only_switch(views: Sequence[dict[str, Any]]) -> str | None:
    names = {view["switch"] for view in views}
    return names.pop() if len(names) == 1 else None


def difference(found: ManagedSwitch, before: dict[Key, Row | None]) -> tuple[Rows, Rows]:
    """Return the entries concerned, as they were and as they are to be."""
    after = {key: row for key in before if (row := found.wanted.get(key)) is not None}
    return {key: row for key, row in before.items() if row is not None}, after


def refused(found: ManagedSwitch, error: SwitchRefusedError) -> Problem:
    """Return the 5xx for a switch that refuses."""
    if any(refusal.table_full for refusal in error.refusals):
        return Problem(
            HTTPStatus.INSUFFICIENT_STORAGE,
            "switch-full",
            "A table of the switch is full",
            f"switch {found.name!r}: {error}; nothing was changed",
        )
    return Problem(
        HTTPStatus.BAD_GATEWAY,
        "switch-refused",
        "The switch refused the change",
        f"switch {found.name!r}: {error}; nothing was changed",
    )


@contextlib.asynccontextmanager
async def locked(switches: Sequence[ManagedSwitch]) -> AsyncIterator[None]:
    """Hold the locks of several switches, taken by name, so that two holders cannot block."""
    async with contextlib.AsyncExitStack() as stack:
        for found in sorted(switches, key=lambda one: one.name):
            await stack.enter_async_context(found.lock)
        yield

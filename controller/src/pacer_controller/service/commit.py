"""Makes changes: plans them, stores them and writes them to the switch, all or nothing.

A change goes through four steps under the switch's lock. The request plans it against desired
state. Desired state and entries change in memory (`Staged`). The store gets the change with its
audit event. The switch gets the difference; a disconnected switch gets it when it reconnects. If
the switch refuses the change, it is undone, so desired state holds no change that its switch
refused, unless the store cannot undo it (`KeptError`). A change that depends on a newer write of
another controller is undone (`StaleError`), and the request plans it again. Other earlier writes of
other controllers are applied first (`Sync.take_before`). If another controller drives the switch,
that controller writes the change.

Requests that wait for the lock form a batch. They plan one after another, each against the changes
that the others have staged. One transaction and one write to the switch then make them together. If
the switch refuses that write, each change is made alone, so that each request gets its own outcome.
The store leaves out a change of a resource that another controller has changed; only that request
plans again. A request that touches a resource of an earlier one in the batch begins the next batch,
and an index that the batch frees stays unused in it. Limits and equal matches are checked against
all staged changes, so a 409 may name a flow of the batch that is refused afterwards.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from pacer_controller.events import EventLog
from pacer_controller.kept_events import Event
from pacer_controller.problems import Problem
from pacer_controller.records import ResourceChange
from pacer_controller.rows import Key, Row, Rows
from pacer_controller.service.audit import audit, change_view
from pacer_controller.service.change import Change, Resource, Staged
from pacer_controller.service.checks import Spec
from pacer_controller.service.managed import ManagedSwitch, Origin
from pacer_controller.southbound import SwitchRefusedError
from pacer_controller.stores import (
    StaleError,
    Store,
    StoreError,
    SwitchSettings,
    UncertainError,
    Written,
)

_LOG = logging.getLogger(__name__)

BATCH = 256
"""Most requests of one batch."""

_UNDONE = "; nothing was changed"
_KEPT = "; the change could not be taken back, and may be stored: read it"


class RefusedProblem(Problem):
    """The switch refused a change, which was undone."""


class KeptError(UncertainError):
    """The switch refused a change that could not be taken back from the store.

    It is stored, unless the store does not answer, and the state of its switch is `failed`.

    Attributes:
        written: the write, if it stays in memory, too; None: the feed brings it back.

    """

    def __init__(self, text: str, written: Written | None) -> None:
        super().__init__(text)
        self.written = written


_Kept = list[tuple[StoreError, Written | None]]
"""The error of a write that could not be taken back, and `KeptError.written`; empty: none."""


class Committer:
    """Makes changes.

    Args:
        store: the store of desired state; the caller closes it.
        events: the log that receives audit events.
        before: applies the writes of other controllers to a switch before a revision
            (`Sync.take_before`).

    """

    def __init__(
        self,
        store: Store,
        events: EventLog,
        before: Callable[[ManagedSwitch, int], Awaitable[Mapping[Key, Row | None] | None]],
    ) -> None:
        self._store = store
        self._events = events
        self._before = before
        self._lines: dict[ManagedSwitch, deque[Change]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def turn(
        self, found: ManagedSwitch, kind: str, name: str, spec: Spec | None, origin: Origin
    ) -> AsyncIterator[Change]:
        """Wait for this request's turn at a switch, and hold it until `commit` or the end.

        Within the turn, only this request changes the switch's desired state; others wait.

        Args:
            found: the switch.
            kind: the kind of the resource that the request changes.
            name: the name of the resource.
            spec: the new settings of the resource; None: it is removed.
            origin: the origin of the request.

        """
        change = Change(found, kind, name, spec, origin)
        line = self._lines.get(found)
        if line is None:
            line = self._lines[found] = deque()
            serving = asyncio.create_task(self._serve(found, line), name=f"changes {found.name}")
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        line.append(change)
        try:
            await change.turn
            yield change
        finally:
            change.end()

    async def _serve(self, found: ManagedSwitch, line: deque[Change]) -> None:
        """Give turns to the waiting requests, and make their changes, until none waits."""
        try:
            while line:
                batch, changes = Staged(found), list[Change]()
                async with found.lock:
                    try:
                        await self._plan(line, batch, changes)
                        if changes:
                            await self._make_batch(batch, changes)
                    except Exception as error:
                        _LOG.exception("changes of switch %s failed", found.name)
                        # Without a batch, it is the fault of the request whose turn is next.
                        for change in changes or ([line.popleft()] if line else []):
                            change.fail(error)
                        batch.undo()
        finally:
            del self._lines[found]

    async def _plan(self, line: deque[Change], batch: Staged, changes: list[Change]) -> None:
        """Give turns to the requests that wait longest, as long as they touch other resources."""
        touched: set[Resource] = set()
        while line and len(changes) < min(BATCH, self._store.changes_most):
            try:
                touches = line[0].touches()
            except Exception as error:
                # The error belongs to this request only.
                line.popleft().fail(error)
                continue
            if changes and (line[0].alone or changes[-1].alone or touches & touched):
                break
            if batch.exhausted:
                break
            change = line.popleft()
            if await change.plan(batch):
                changes.append(change)
                touched |= touches

    async def _make_batch(self, batch: Staged, changes: Sequence[Change]) -> None:
        """Make the staged changes together, or one by one if the switch refuses them."""
        drafts = [audit(c.origin, [change_view(one) for one in c.changes]) for c in changes]
        making = asyncio.create_task(self.make([batch], drafts, whole=False))
        if len(changes) == 1:
            # The task has begun before a request can be cancelled, so it undoes its changes.
            changes[0].made.add_done_callback(lambda made: made.cancelled() and making.cancel())
        await asyncio.wait([making])
        for change in changes:
            if change.resource in batch.stale:
                change.fail(StaleError(f"{change.resource} was changed by another controller"))
        alone = len(changes) == 1 or making.cancelled()
        if alone or not isinstance(making.exception(), RefusedProblem):
            for change in changes:
                change.answer(making)
            return
        for change in changes:
            if change.made.done():
                continue
            again = Staged(batch.found)
            try:
                again.add(change.changes, change.allocation.fresh)
            except Exception as error:
                change.fail(error)
            else:
                await self._make_batch(again, [change])

    async def make(
        self,
        staged: Sequence[Staged],
        drafts: Sequence[Event],
        settings: SwitchSettings | None = None,
        forgotten: Sequence[ResourceChange] = (),
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Store staged changes and write them to their switches, all or nothing.

        The caller holds the locks of the switches. After an error, the staged changes are undone.

        Args:
            staged: the changes by switch.
            drafts: the audit events.
            settings: the settings of switches that are new or changed; None: the switch is
                removed.
            forgotten: the resources of removed switches; the switches keep their entries.
            bases: further revisions that the changes were planned on, by switch.
            whole: whether the changes depend on everything of their switches (`Store.write`).

        Raises:
            Problem: nothing was changed.
            StaleError: nothing was changed; plan it again.
            UncertainError: the change may be stored.
            StoreError: nothing was changed.

        """
        kept: _Kept = []
        try:
            return await self._make(staged, drafts, settings, forgotten, bases, kept, whole=whole)
        except RefusedProblem as problem:
            for error, written in kept:
                raise KeptError(problem.detail.removesuffix(_UNDONE) + _KEPT, written) from error
            raise

    async def _make(
        self,
        staged: Sequence[Staged],
        drafts: Sequence[Event],
        settings: SwitchSettings | None,
        forgotten: Sequence[ResourceChange],
        bases: Mapping[str, int] | None,
        kept: _Kept,
        *,
        whole: bool,
    ) -> Written:
        """Make changes (`make`); `kept` is filled if they could not be taken back."""
        changes = [*(change for one in staged for change in one.changes), *forgotten]
        former: dict[str, Any] = {}
        async with contextlib.AsyncExitStack() as undo:
            for one in staged:
                undo.callback(one.undo)
            if settings:
                stored_before = self._store.switches()
                former = {name: stored_before.get(name) for name in settings}
            planned_on = {one.found.name: one.found.last_change for one in staged}
            planned_on |= bases or {}
            # The write continues if this task is cancelled.
            writing = asyncio.ensure_future(
                self._store.write(changes, drafts, settings, planned_on, whole=whole)
            )
            take_back = partial(self._take_back, writing, staged, changes, drafts, former, kept)
            undo.push_async_callback(_to_the_end, take_back, whole)
            written = await asyncio.shield(writing)
            revisions = [await self._base_after(one, written) for one in staged]
            # All switches change at once, for a reader of the whole state and its revision.
            for one, revision in zip(staged, revisions, strict=True):
                one.stored(written.revision, revision)
            for one in staged:
                before, after = one.difference()
                try:
                    await one.found.driver.apply(before, after, fresh=one.fresh)
                except SwitchRefusedError as error:
                    if one.others:
                        one.found.driver.mend()
                    raise refused(one.found, error) from None
                undo.push_async_callback(_to_the_end, _apply_back, one.found, before, after)
            undo.pop_all()
        for one in staged:
            one.found.brought_to = one.found.last_change
        if written.numbers:
            self._events.publish(written.numbers, drafts)
        return written

    async def _base_after(self, one: Staged, written: Written) -> int:
        """Apply earlier writes of other controllers; return the switch's revision after a write."""
        name = one.found.name
        if written.stale:
            one.drop(written.stale)
        if name in written.behind:
            others = await self._before(one.found, written.revision)
            if others is None:
                # The feed brings all of it later.
                return one.found.last_change
            one.others = others
        return written.bases.get(name, one.found.last_change)

    async def _take_back(
        self,
        writing: "asyncio.Future[Written]",
        staged: Sequence[Staged],
        changes: Sequence[ResourceChange],
        drafts: Sequence[Event],
        switches: SwitchSettings,
        kept: _Kept,
        whole: bool,
    ) -> None:
        """Undo a write to the store; `kept` is filled if it stays."""
        await asyncio.wait([writing])
        if writing.exception() is not None:
            return
        written = writing.result()
        if written.stale:
            both = zip(changes, drafts, strict=True)
            made = [(one, said) for one, said in both if (one.kind, one.name) not in written.stale]
            changes, drafts = [one for one, _ in made], [said for _, said in made]
        try:
            back = await self._store.take_back(
                changes, written, drafts, switches, written.bases, whole=whole
            )
        except StoreError as error:
            _LOG.warning("a change that a switch refused is stored: %s", error)
            if self._store.shared:
                # Another controller has planned on the write, or etcd does not answer. The write
                # stays, and the feed brings it back into memory.
                for one in staged:
                    one.undo()
                    one.found.moved_to(0)
                kept.append((error, None))
                return
            # A file has no feed, and holds the write. Readers may have seen it, and see it again
            # after the restart, so they must not see the former state between.
            for one in staged:
                base = written.bases.get(one.found.name, one.found.last_change)
                one.keep(written.revision, base)
                one.found.driver.mend()
            self._events.publish(written.numbers, drafts)
            kept.append((error, written))
            return
        self._events.drop(written.numbers)
        for one in staged:
            # The content and its revision change at once.
            one.undo()
            if one.found.name not in back.behind:
                one.found.moved_to(back.bases.get(one.found.name, one.found.last_change))
                one.found.brought_to = one.found.last_change


async def _to_the_end(work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    """Await `work` to its end, even if this task is cancelled."""
    working = asyncio.create_task(work(*arguments))
    while not working.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([working])
    working.result()


async def _apply_back(found: ManagedSwitch, before: Rows, after: Rows) -> None:
    """Undo a change on a switch; the next reconcile repairs entries that the switch refuses."""
    with contextlib.suppress(SwitchRefusedError):
        await found.driver.apply(after, before)


def refused(found: ManagedSwitch, error: SwitchRefusedError) -> RefusedProblem:
    """Return the 5xx for a change that the switch refused."""
    detail = f"switch {found.name!r}: {error}{_UNDONE}"
    if any(refusal.table_full for refusal in error.refusals):
        title = "A table of the switch is full"
        return RefusedProblem(HTTPStatus.INSUFFICIENT_STORAGE, "switch-full", title, detail)
    title = "The switch refused the change"
    return RefusedProblem(HTTPStatus.BAD_GATEWAY, "switch-refused", title, detail)


@contextlib.asynccontextmanager
async def locked(switches: Sequence[ManagedSwitch]) -> AsyncIterator[None]:
    """Hold the locks of several switches, taken in order of name to avoid deadlocks."""
    async with contextlib.AsyncExitStack() as stack:
        for found in sorted(switches, key=lambda one: one.name):
            await stack.enter_async_context(found.lock)
        yield

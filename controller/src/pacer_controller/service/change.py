"""One request's change, which is planned in the request's turn and staged in memory."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pacer_controller.records import Record, ResourceChange, index_of, stamped
from pacer_controller.rows import Key, Row, Rows
from pacer_controller.schemas import FlowSpec
from pacer_controller.service.checks import Spec
from pacer_controller.service.managed import Allocation, ManagedSwitch, Origin
from pacer_controller.stores import Written

Resource = tuple[str, str]
"""Kind and name."""


class Staged:
    """Changes to one switch that are not stored yet.

    Attributes:
        found: the switch.
        changes: the changes in order.
        fresh: the indices of new classes.
        freed: the indices of removed classes.
        stale: kind and name of each resource whose change was dropped, because another controller
            has changed it.
        others: the former entries of resources that other controllers have changed meanwhile.
            Their changes go to the switch together with these.

    """

    def __init__(self, found: ManagedSwitch) -> None:
        self.found = found
        self.changes: list[ResourceChange] = []
        self.fresh: list[int] = []
        self.freed: set[int] = set()
        self.before: dict[Key, Row | None] = {}
        self.stale: Collection[Resource] = frozenset()
        self.others: Mapping[Key, Row | None] = {}

    def add(self, changes: Sequence[ResourceChange], fresh: Sequence[int]) -> None:
        """Make further changes in memory.

        Raises:
            Problem: two flows would have the same match, or the switch holds no more entries.

        """
        for key, row in self.found.stage(changes).items():
            self.before.setdefault(key, row)
        self.changes += changes
        self.fresh += fresh
        indices = ((index_of(one.before), index_of(one.after)) for one in changes)
        self.freed.update(old for old, new in indices if old is not None and old != new)

    @property
    def exhausted(self) -> bool:
        """Whether the only free indices are those that these changes free."""
        known = len(self.found.desired.used) + len(self.freed)
        return bool(self.freed) and known >= self.found.driver.capabilities.classes

    def drop(self, stale: Collection[Resource]) -> None:
        """Undo the changes of resources that another controller has changed meanwhile."""
        self.stale = stale
        dropped = [one for one in self.changes if (one.kind, one.name) in stale]
        self.changes = [one for one in self.changes if (one.kind, one.name) not in stale]
        self.found.unstage(dropped)

    def undo(self) -> None:
        """Undo all changes; a second call has no effect."""
        changes, self.changes = self.changes, []
        self.found.unstage(changes)

    def stored(self, revision: int, base: int) -> None:
        """Record that all changes are stored.

        Args:
            revision: the revision of the write.
            base: the revision of the switch after it.

        """
        self.changes = [
            one if one.after is None else replace(one, after=stamped(one.after, revision))
            for one in self.changes
        ]
        self.found.settle(self.changes, base)

    def keep(self, revision: int, base: int) -> None:
        """Record that all changes are stored (`stored`), and let `undo` have no effect."""
        self.stored(revision, base)
        self.changes = []

    def difference(self) -> tuple[Rows, Rows]:
        """Return the entries of the changed resources before and after the changes."""
        wanted = self.found.wanted
        before = {**self.others, **self.before}
        after = {key: row for key in before if (row := wanted.get(key)) is not None}
        return {key: row for key, row in before.items() if row is not None}, after


class Change:
    """One request's change to one resource, made in the request's turn.

    Args:
        found: the switch.
        kind: the kind of the resource.
        name: the name of the resource.
        spec: the new settings of the resource; None: it is removed.
        origin: the origin of the request.

    """

    def __init__(
        self, found: ManagedSwitch, kind: str, name: str, spec: Spec | None, origin: Origin
    ) -> None:
        self.allocation = Allocation(found)
        self.origin = origin
        self.changes: list[ResourceChange] = []
        self._found = found
        self._resource: Resource = (kind, name)
        self._spec = spec
        self._batch: Staged | None = None
        loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = loop.create_future()
        self.planned: asyncio.Future[bool] = loop.create_future()
        """Whether the request has planned a change."""
        self.made: asyncio.Future[int] = loop.create_future()
        """The revision of the write."""

    def replace(self, before: Record | None, after: Record | None) -> None:
        """Plan the new version of the resource; `after` None: it is removed."""
        kind, name = self._resource
        self.changes.append(ResourceChange(self._found.name, kind, name, before, after))

    async def commit(self) -> int:
        """Make the planned change; return the revision of the write, 0 if nothing was planned.

        When this returns, the switch has the change, or will get it when it reconnects.

        Raises:
            Problem: nothing was changed.
            StaleError: nothing was changed; plan it again.
            StoreError: nothing was changed.

        """
        if not self.changes or self._batch is None:
            return 0
        self._batch.add(self.changes, self.allocation.fresh)
        self.planned.set_result(True)
        return await self.made

    # ---- for the committer ----

    @property
    def resource(self) -> Resource:
        """The changed resource."""
        return self._resource

    @property
    def alone(self) -> bool:
        """Whether this change touches all others: a port's line rate limits all their rates."""
        return self._resource[0] == "port"

    def touches(self) -> set[Resource]:
        """Return the resource and the resources that it refers to, before and after."""
        kind, name = self._resource
        old: Record | None = self._found.desired.resources[kind].get(name)
        found = {self._resource}
        for spec in (self._spec, old.spec if old is not None else None):
            if isinstance(spec, FlowSpec):
                used = (("class", spec.class_name), ("meter", spec.meter_name))
                found |= {(of, one) for of, one in used if one is not None}
        return found

    async def plan(self, batch: Staged) -> bool:
        """Give the request its turn; return whether it has planned a change."""
        if self.turn.cancelled():
            return False
        self._batch = batch
        self.allocation.avoid = batch.freed
        self.turn.set_result(None)
        return await self.planned

    def end(self) -> None:
        """End the turn; a change without a commit is dropped."""
        if not self.planned.done():
            self.allocation.undo()
            self.planned.set_result(False)

    def answer(self, making: "asyncio.Future[Written]") -> None:
        """Pass the outcome to the request, if it still waits."""
        if making.cancelled():
            self.made.cancel()
        elif (error := making.exception()) is not None:
            self.fail(error)
        elif not self.made.done():
            self.made.set_result(making.result().revision)

    def fail(self, error: BaseException) -> None:
        """End the request with an error, if it still waits."""
        waiting = self.made if self.turn.done() else self.turn
        if not waiting.done():
            waiting.set_exception(error)

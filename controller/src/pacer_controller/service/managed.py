"""A switch with its desired state, its entries, and the lock under which both move."""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pacer_controller.problems import Problem
from pacer_controller.records import Desired, Record, ResourceChange
from pacer_controller.rows import BASES, Key, Row, Rows
from pacer_controller.southbound import Driver, State


@dataclass(frozen=True)
class Origin:
    """The origin of a change, for audit events."""

    actor: str | None = None
    client: str | None = None
    method: str = ""
    path: str = ""


class Allocation:
    """Class indices taken while a change is planned; given back if nothing comes of it."""

    def __init__(self, found: "ManagedSwitch") -> None:
        self._indices = found.desired.indices
        self._capacity = found.driver.capabilities.classes
        self._switch = found.name
        self.numbers_meters = found.driver.capabilities.numbered_meters
        self.fresh: list[int] = []
        self.avoid: Set[int] = frozenset()

    def take(self) -> int:
        """Return a free index.

        Raises:
            Problem: the switch holds no more classes.

        """
        index = self._indices.free(self._capacity, self.avoid)
        if index is None:
            raise full("classes", self._switch, self._capacity)
        self._indices.take(index)
        self.fresh.append(index)
        return index

    def undo(self) -> None:
        """Release what was taken."""
        for index in self.fresh:
            self._indices.release(index)
        self.fresh.clear()


def full(what: str, switch: str, capacity: int) -> Problem:
    """Return the 409 for more than a switch holds."""
    return Problem(
        HTTPStatus.CONFLICT,
        "limit-reached",
        f"The switch holds no more {what}",
        f"switch {switch!r} holds {capacity} {what}, and all are in use",
    )


@dataclass
class Samples:
    """Counts at one time, to compute rates from; keys name what is counted."""

    at_ns: int = -1
    counts: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(eq=False)
class ManagedSwitch:
    """A switch with its desired state and lock.

    Attributes:
        name: how clients call it.
        settings: what it was made from, as a client would write it.
        configured: whether it is in the configuration, so that requests cannot change it.
        revision: number of the change that made it.
        last_change: number of the newest change of anything of it.
        wanted: the entries that the switch should hold, by key; changed under the lock only.

    """

    name: str
    settings: dict[str, Any]
    desired: Desired
    configured: bool
    revision: int
    last_change: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: Rows = field(default_factory=dict)
    samples: Samples = field(default_factory=Samples)
    task: asyncio.Task[None] | None = None
    flow_entries: int = 0
    _rows: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    _driver: Driver | None = None

    @property
    def device(self) -> tuple[object, ...]:
        """Identity of the device."""
        names = ("address", "device_id", "ovsdb", "bridge")
        return tuple(self.settings.get(name) or None for name in names)

    @property
    def driver(self) -> Driver:
        """The driver."""
        if self._driver is None:
            raise RuntimeError(f"switch {self.name} has no driver yet")
        return self._driver

    def attach(self, driver: Driver) -> None:
        """Set the driver, and make the entries of everything desired."""
        self._driver = driver
        for kind, name, record in self.desired.all():
            self._add(kind, name, record)

    def _add(self, kind: str, name: str, record: Record) -> None:
        rows = self.driver.rows(record, self.desired)
        for row in rows:
            other = self.wanted.get(row.key)
            if other is not None:
                raise _duplicate(self.name, row, other)
        self.wanted.update((row.key, row) for row in rows)
        self._rows[kind, name] = rows
        if kind == "flow":
            self.flow_entries += sum(row.table not in BASES for row in rows)

    def _remove(self, kind: str, name: str) -> None:
        for row in self._rows.pop((kind, name), ()):
            del self.wanted[row.key]
            if kind == "flow" and row.table not in BASES:
                self.flow_entries -= 1

    def rows_of(self, kind: str, name: str) -> Sequence[Row]:
        """Return the entries of a resource."""
        return self._rows.get((kind, name), ())

    def ordered(self) -> Rows:
        """Return the entries that the switch should hold, by kind and name of their resources.

        The order counts where flows of the same priority overlap, since the entry that is older
        wins: it must not depend on what the flows went through before.
        """
        return {
            row.key: row for kind, name, _ in self.desired.all() for row in self.rows_of(kind, name)
        }

    def stage(self, changes: Sequence[ResourceChange]) -> dict[Key, Row | None]:
        """Make changes to desired state and entries, all or nothing.

        Returns:
            The entries concerned as they were; None where there was none.

        Raises:
            Problem: two flows would have the same match, or the switch holds no more entries.

        """
        affected = self._affected(changes)
        before: dict[Key, Row | None] = {}
        try:
            self._replace(changes, affected, before)
            if self.flow_entries > self.driver.capabilities.flow_entries > 0:
                raise full("flow entries", self.name, self.driver.capabilities.flow_entries)
        except Exception:
            self._replace([c.reversed() for c in reversed(changes)], affected, {})
            raise
        return before

    def _affected(self, changes: Sequence[ResourceChange]) -> list[tuple[str, str]]:
        """Return kind and name of what changes, and of the flows whose meter does."""
        affected = dict.fromkeys((change.kind, change.name) for change in changes)
        meters = {change.name for change in changes if change.kind == "meter" and change.before}
        if meters:
            users = (n for n, flow in self.desired.flows.items() if flow.spec.meter_name in meters)
            affected.update(dict.fromkeys(("flow", name) for name in users))
        return list(affected)

    def _replace(
        self,
        changes: Sequence[ResourceChange],
        affected: Sequence[tuple[str, str]],
        before: dict[Key, Row | None],
    ) -> None:
        for kind, name in affected:
            for row in self.rows_of(kind, name):
                before[row.key] = row
            self._remove(kind, name)
        for change in changes:
            self.desired.set(change.kind, change.name, change.after)
        for kind, name in affected:
            record = self.desired.resources[kind].get(name)
            if record is not None:
                self._add(kind, name, record)
                for row in self.rows_of(kind, name):
                    before.setdefault(row.key, None)

    def unstage(self, changes: Sequence[ResourceChange]) -> None:
        """Take changes back."""
        reverse = [change.reversed() for change in reversed(changes)]
        self._replace(reverse, self._affected(reverse), {})

    def resource_state(self, owner: str) -> tuple[str, str | None]:
        """Return "applied", "pending" or "failed" for a resource, and why."""
        reason = self.driver.failed.get(owner)
        if reason is not None:
            return "failed", reason
        if self.driver.state is State.CONNECTED:
            return "applied", None
        condition = self.driver.state.value if self.driver.reachable else "unreachable"
        return "pending", f"switch is {condition}"

    def flow_names(self) -> dict[Key, str]:
        """Return the flow that each flow entry belongs to."""
        return {
            row.key: name
            for (kind, name), rows in self._rows.items()
            if kind == "flow"
            for row in rows
        }


def _duplicate(switch: str, row: Row, other: Row) -> Problem:
    return Problem(
        HTTPStatus.CONFLICT,
        "duplicate-match",
        "Another flow has the same match and priority",
        f"{row.owner} on switch {switch!r} has the match and priority {row.priority} of "
        f"{other.owner}; give it another priority or delete the other",
    )

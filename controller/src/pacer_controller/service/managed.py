"""A switch with its desired state, its entries, and the lock that protects both."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pacer_controller.entries import UNCLASSIFIED
from pacer_controller.problems import Problem
from pacer_controller.records import Desired, Record, ResourceChange
from pacer_controller.rows import BASES, Key, Row, Rows
from pacer_controller.service.sample import Sampler
from pacer_controller.southbound import Capabilities, Driver, PortInfo, State, SwitchCounters
from pacer_controller.stores import Status


@dataclass(frozen=True)
class Origin:
    """The origin of a change, for audit events.

    Attributes:
        user: the owner of the request's token; None: users have no tokens.
        actor: the author of the change, as the client names it.
        client: the client's address.
        method: the method of the request.
        path: the path of the request.

    """

    actor: str | None = None
    client: str | None = None
    method: str = ""
    path: str = ""
    user: str | None = None


class Allocation:
    """Class indices taken while a change is planned, and released if it is not made."""

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
        """Release the taken indices."""
        for index in self.fresh:
            self._indices.release(index)
        self.fresh.clear()


def full(what: str, switch: str, capacity: int) -> Problem:
    """Return the 409 for a switch that has reached a limit."""
    return Problem(
        HTTPStatus.CONFLICT,
        "limit-reached",
        f"The switch holds no more {what}",
        f"switch {switch!r} holds {capacity} {what}, and all are in use",
    )


@dataclass
class Samples:
    """Counts at one time, from which rates are computed; a key is kind and index of a count."""

    at_ns: int = -1
    counts: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(eq=False)
class ManagedSwitch:
    """A switch with its desired state and lock.

    Attributes:
        name: the switch's name for clients.
        settings: its settings, as a client would write them.
        configured: whether it is in the configuration, so that requests cannot change it.
        revision: the number of the change that made it.
        last_change: the revision of the newest write to the switch or its resources.
        wanted: the entries that the switch should hold, by key; changed under the lock only.
        status: returns the status from the controller that drives the switch; None: this one does.
        brought_to: the revision up to which the driver has received all changes.
        unstored: the stored versions of resources that have changed in memory only, by kind and
            name.

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
    status: Callable[[], Status | None] = lambda: None
    brought_to: int = 0
    unstored: dict[tuple[str, str], Record | None] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _rows: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    _driver: Driver | None = None
    _sampler: Sampler | None = None

    def __post_init__(self) -> None:
        # A driver starts with the whole desired state.
        self.brought_to = self.last_change

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
        self._sampler = Sampler(driver, self._class_indices)
        for kind, name, record in self.desired.all():
            self._add(kind, name, record)

    def _class_indices(self) -> list[int]:
        """Return the indices of all classes, including private ones and that of no class."""
        flows = self.stored("flow").values()
        of_flows = [one.private_index for one in flows if one.spec.private_class() is not None]
        of_classes = [one.index for one in self.stored("class").values()]
        return [UNCLASSIFIED, *of_classes, *(one for one in of_flows if one is not None)]

    @property
    def sampler(self) -> Sampler:
        """The sampler of the switch's counters."""
        if self._sampler is None:
            raise RuntimeError(f"switch {self.name} has no driver yet")
        return self._sampler

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

        The order matters if flows of the same priority overlap, since the older entry wins. So it
        must not depend on the history of the flows.
        """
        return {
            row.key: row for kind, name, _ in self.desired.all() for row in self.rows_of(kind, name)
        }

    def stage(self, changes: Sequence[ResourceChange]) -> dict[Key, Row | None]:
        """Make changes to desired state and entries, all or nothing.

        Returns:
            The former entry by key, for each key concerned; None: there was none.

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
        for change in changes:
            self.unstored.setdefault((change.kind, change.name), change.before)
        return before

    def _affected(self, changes: Sequence[ResourceChange]) -> list[tuple[str, str]]:
        """Return kind and name of the changed resources, and of flows whose meter changes."""
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
        """Undo staged changes."""
        reverse = [change.reversed() for change in reversed(changes)]
        self._replace(reverse, self._affected(reverse), {})
        for change in changes:
            self.unstored.pop((change.kind, change.name), None)

    def settle(self, changes: Sequence[ResourceChange], base: int) -> None:
        """Record that changes are stored; their records now have the write's revision."""
        for change in changes:
            # Only the revision is new, so the entries stay.
            if change.after is not None:
                self.desired.resources[change.kind][change.name] = change.after
            self.unstored.pop((change.kind, change.name), None)
        self.moved_to(base)

    def moved_to(self, base: int) -> None:
        """Record the revision of the newest write, and wake the tasks that wait for it."""
        self.last_change = base
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self, base: int, timeout_s: float) -> None:
        """Wait until the newest write is no longer that of revision `base`, or for `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.last_change == base:
                    await self._moved.wait()

    def stored(self, kind: str) -> dict[str, Any]:
        """Return the resources of a kind as the store has them, without staged changes."""
        of_kind = self.desired.resources[kind]
        waiting = {name: one for (of, name), one in self.unstored.items() if of == kind}
        if not waiting:
            return of_kind
        return {name: one for name, one in (of_kind | waiting).items() if one is not None}

    @property
    def state(self) -> str:
        """The state of the switch, from the controller that drives it."""
        status = self.status()
        return self.driver.state.value if status is None else status.state

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the switch."""
        return self.driver.capabilities

    @property
    def ports(self) -> Sequence[PortInfo]:
        """The switch's ports, as far as they are known."""
        return self.driver.ports

    @property
    def counters(self) -> SwitchCounters:
        """The counters of this controller's connections and writes to the switch."""
        return self.driver.counters

    def describe(self) -> dict[str, Any]:
        """Return the driver's description of the switch, for clients."""
        return self.driver.describe()

    @property
    def failed(self) -> Mapping[str, str]:
        """The reason for each resource that the switch does not hold, by owner of its entries.

        It comes from the controller that drives the switch.
        """
        status = self.status()
        return self.driver.failed if status is None else status.failed

    def resource_state(self, owner: str, revision: int) -> tuple[str, str | None]:
        """Return "applied", "pending" or "failed" for a revision of a resource, and the reason."""
        status = self.status()
        if status is not None:
            return _elsewhere(status, owner, revision)
        reason = self.driver.failed.get(owner)
        if reason is not None:
            return "failed", reason
        if self.driver.state is State.CONNECTED:
            return "applied", None
        condition = self.driver.state.value if self.driver.reachable else "unreachable"
        return "pending", f"switch is {condition}"

    def brought(self) -> str:
        """Return "applied", "pending" or "failed" for the whole desired state."""
        if self.failed:
            return "failed"
        status = self.status()
        behind = status is not None and status.base < self.last_change
        return "applied" if self.state == State.CONNECTED.value and not behind else "pending"

    def flow_names(self) -> dict[Key, str]:
        """Return the name of the flow of each flow entry, by key of the entry."""
        return {
            row.key: name
            for (kind, name), rows in self._rows.items()
            if kind == "flow"
            for row in rows
        }


def _elsewhere(status: Status, owner: str, revision: int) -> tuple[str, str | None]:
    """Return the state of a resource on a switch of another controller, and the reason."""
    if owner in status.failed:
        return "failed", status.failed[owner]
    if not status.controller:
        return "pending", "no controller drives the switch"
    if status.state != State.CONNECTED.value:
        return "pending", f"switch is {status.state} at controller {status.controller}"
    if revision > status.base:
        return "pending", f"controller {status.controller} has yet to bring it to the switch"
    return "applied", None


def _duplicate(switch: str, row: Row, other: Row) -> Problem:
    return Problem(
        HTTPStatus.CONFLICT,
        "duplicate-match",
        "Another flow has the same match and priority",
        f"{row.owner} on switch {switch!r} has the match and priority {row.priority} of "
        f"{other.owner}; give it another priority or delete the other",
    )

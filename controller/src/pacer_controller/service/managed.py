"""A switch with its desired state, its entries, and the lock under which both move."""

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
        user: whose token the request had; None: users have no tokens.
        actor: who asked, as the client says.
        client: its address.
        method: of the request.
        path: of the request.

    """

    actor: str | None = None
    client: str | None = None
    method: str = ""
    path: str = ""
    user: str | None = None


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
        last_change: revision of the newest write of anything of it.
        wanted: the entries that the switch should hold, by key; changed under the lock only.
        status: returns what the controller says that drives the switch; None: this one does.
        brought_to: revision up to which the driver has been given what changed.
        unstored: resources that are changed in memory only so far, as the store has them.

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
        # A driver begins with all of it.
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
        """Return the indices of classes, those of flows and that of no class included."""
        flows = self.stored("flow").values()
        of_flows = [one.private_index for one in flows if one.spec.private_class() is not None]
        of_classes = [one.index for one in self.stored("class").values()]
        return [UNCLASSIFIED, *of_classes, *(one for one in of_flows if one is not None)]

    @property
    def sampler(self) -> Sampler:
        """What reads the switch's counters."""
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
        for change in changes:
            self.unstored.setdefault((change.kind, change.name), change.before)
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
        for change in changes:
            self.unstored.pop((change.kind, change.name), None)

    def settle(self, changes: Sequence[ResourceChange], base: int) -> None:
        """Note that changes are in the store; their records have its revision now."""
        for change in changes:
            # Without another look at the entries: only the revision is new.
            if change.after is not None:
                self.desired.resources[change.kind][change.name] = change.after
            self.unstored.pop((change.kind, change.name), None)
        self.moved_to(base)

    def moved_to(self, base: int) -> None:
        """Note the revision of the newest write, and wake who waits for it."""
        self.last_change = base
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self, base: int, timeout_s: float) -> None:
        """Wait until there is another write than the one of this revision, for a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.last_change == base:
                    await self._moved.wait()

    def stored(self, kind: str) -> dict[str, Any]:
        """Return the resources of a kind as the store has them: nothing that may be taken back."""
        of_kind = self.desired.resources[kind]
        waiting = {name: one for (of, name), one in self.unstored.items() if of == kind}
        if not waiting:
            return of_kind
        return {name: one for name, one in (of_kind | waiting).items() if one is not None}

    @property
    def state(self) -> str:
        """How the switch is, as whoever drives it says."""
        status = self.status()
        return self.driver.state.value if status is None else status.state

    @property
    def capabilities(self) -> Capabilities:
        """What the switch can do."""
        return self.driver.capabilities

    @property
    def ports(self) -> Sequence[PortInfo]:
        """The switch's ports, as far as they are known."""
        return self.driver.ports

    @property
    def counters(self) -> SwitchCounters:
        """What this controller has sent to the switch, and how often it was connected."""
        return self.driver.counters

    def describe(self) -> dict[str, Any]:
        """Return what the driver says of the switch, for clients."""
        return self.driver.describe()

    @property
    def failed(self) -> Mapping[str, str]:
        """What the switch does not hold, as whoever drives it says."""
        status = self.status()
        return self.driver.failed if status is None else status.failed

    def resource_state(self, owner: str, revision: int) -> tuple[str, str | None]:
        """Return "applied", "pending" or "failed" for a resource of a revision, and why."""
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
        """Return "applied", "pending" or "failed" for all that is desired."""
        if self.failed:
            return "failed"
        status = self.status()
        behind = status is not None and status.base < self.last_change
        return "applied" if self.state == State.CONNECTED.value and not behind else "pending"

    def flow_names(self) -> dict[Key, str]:
        """Return the flow that each flow entry belongs to."""
        return {
            row.key: name
            for (kind, name), rows in self._rows.items()
            if kind == "flow"
            for row in rows
        }


def _elsewhere(status: Status, owner: str, revision: int) -> tuple[str, str | None]:
    """Return the state of a resource on a switch that another controller drives, and why."""
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

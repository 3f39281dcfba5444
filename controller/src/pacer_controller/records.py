"""The desired state of each switch in memory.

A record is an accepted resource: its name, the requested settings, the number of the change that
made it, and the indices that the controller has added. `Desired` has all records of one switch.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pydantic import BaseModel

from pacer_controller.following import FollowSpec
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec, PortSpec

PLURALS = {"port": "ports", "meter": "meters", "class": "classes", "flow": "flows"}
"""Kinds of resources on a switch, each after those it may refer to, with the names of lists."""

KINDS = tuple(PLURALS)


@dataclass(frozen=True)
class ClassRecord:
    """A class as accepted: its name, its index on the switch, its settings."""

    name: str
    index: int
    spec: ClassSpec
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True)
class FlowRecord:
    """A flow as accepted; `private_index` is its own class's index when it has a rate."""

    name: str
    private_index: int | None
    spec: FlowSpec
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True)
class MeterRecord:
    """A meter as accepted."""

    name: str
    spec: MeterSpec
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True)
class PortRecord:
    """The settings requested for a port; the name is its number in decimal."""

    name: str
    spec: PortSpec
    revision: int = field(default=0, compare=False)


Record = ClassRecord | FlowRecord | MeterRecord | PortRecord

SPECS: Mapping[str, type[BaseModel]] = {
    "port": PortSpec,
    "meter": MeterSpec,
    "class": ClassSpec,
    "flow": FlowSpec,
}


def index_of(record: Record | None) -> int | None:
    """Return the class index that a record holds."""
    if isinstance(record, ClassRecord):
        return record.index
    return record.private_index if isinstance(record, FlowRecord) else None


@dataclass(frozen=True)
class ResourceChange:
    """One resource before and after: created (`before` None), changed, or deleted.

    A record of revision 0 has not been stored yet.
    """

    switch: str
    kind: str
    name: str
    before: Record | None
    after: Record | None

    @property
    def keeps_shape(self) -> bool:
        """Whether the change leaves the set's shape as it is.

        The shape is everything that changes of other resources depend on: the resource's
        existence, its class index, and its references. The rates that must fit a port are not part
        of it, because a change of a port depends on all resources.
        """
        before, after = self.before, self.after
        if before is None or after is None or index_of(before) != index_of(after):
            return False
        if isinstance(before, FlowRecord) and isinstance(after, FlowRecord):
            return _referred(before.spec) == _referred(after.spec)
        if isinstance(before, ClassRecord) and isinstance(after, ClassRecord):
            return before.spec.follow == after.spec.follow
        return self.kind == "meter"

    def unstored(self) -> "ResourceChange":
        """Return the change with a record that has no revision yet."""
        return self if self.after is None else replace(self, after=replace(self.after, revision=0))

    def reversed(self) -> "ResourceChange":
        """Return the change that undoes this one."""
        return ResourceChange(self.switch, self.kind, self.name, self.after, self.before)


def _referred(spec: FlowSpec) -> tuple[object, ...]:
    return spec.match, spec.priority, spec.class_name, spec.meter_name


def stamped(record: Record, revision: int) -> Record:
    """Return a record with the revision of the write that made it, unless it has one already."""
    return record if record.revision else replace(record, revision=revision)


def record_of(kind: str, name: str, index: int | None, spec: object, revision: int) -> Record:
    """Return the record of a kind from its stored form.

    Raises:
        ValueError: it is not a valid stored form.

    """
    if kind == "class":
        if index is None:
            raise ValueError(f"class {name!r} has no index")
        return ClassRecord(name, index, ClassSpec.model_validate(spec), revision)
    if kind == "flow":
        return FlowRecord(name, index, FlowSpec.model_validate(spec), revision)
    if kind == "meter":
        return MeterRecord(name, MeterSpec.model_validate(spec), revision)
    if kind == "port":
        return PortRecord(name, PortSpec.model_validate(spec), revision)
    raise ValueError(f"no kind of resource is called {kind!r}")


class Indices:
    """The class indices of one switch, taken in rotation.

    A deleted class may still hold packets on the switch and owe a gap, so its index is reused as
    late as possible.
    """

    def __init__(self) -> None:
        self.used: set[int] = set()
        self._next = 1

    def take(self, index: int) -> None:
        """Mark an index as used."""
        self.used.add(index)
        self._next = max(self._next, index + 1)

    def release(self, index: int) -> None:
        """Mark an index as free."""
        self.used.discard(index)

    def free(self, capacity: int, avoid: Set[int] = frozenset()) -> int | None:
        """Return the next free index that is not in `avoid`; None when there is none."""
        for index in chain(range(self._next, capacity + 1), range(1, capacity + 1)):
            if index not in self.used and index not in avoid:
                # The next index to try, also after the round has started again.
                self._next = index
                return index
        return None


@dataclass
class Desired:
    """Desired state of one switch."""

    resources: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    indices: Indices = field(default_factory=Indices)
    following: dict[str, FollowSpec] = field(default_factory=dict)
    """The `follow` settings of the classes that have them, by name of the class."""

    @property
    def classes(self) -> dict[str, ClassRecord]:
        """Classes by name."""
        return self.resources["class"]

    @property
    def flows(self) -> dict[str, FlowRecord]:
        """Flows by name."""
        return self.resources["flow"]

    @property
    def meters(self) -> dict[str, MeterRecord]:
        """Meters by name."""
        return self.resources["meter"]

    @property
    def ports(self) -> dict[str, PortRecord]:
        """Settings requested for ports, by number in decimal."""
        return self.resources["port"]

    @property
    def used(self) -> set[int]:
        """Class indices in use, private ones included."""
        return self.indices.used

    def set(self, kind: str, name: str, record: Record | None) -> None:
        """Add, replace or (None) remove a resource."""
        of_kind = self.resources[kind]
        old_index, new_index = index_of(of_kind.get(name)), index_of(record)
        if old_index is not None and old_index != new_index:
            self.indices.release(old_index)
        if kind == "class":
            self.following.pop(name, None)
        if isinstance(record, ClassRecord) and record.spec.follow is not None:
            self.following[name] = record.spec.follow
        if record is None:
            of_kind.pop(name, None)
        else:
            of_kind[name] = record
            if new_index is not None:
                self.indices.take(new_index)

    def all(self) -> Iterator[tuple[str, str, Record]]:
        """Yield kind, name and record of everything: kinds in the order of KINDS, then by name."""
        for kind in KINDS:
            for name, record in sorted(self.resources[kind].items()):
                yield kind, name, record

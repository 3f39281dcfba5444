"""Entries of a switch in a form that compares by value, and the writes between two sets of them.

All functions here are pure. A `Row` is one entry of a switch in canonical form, whether it is
wanted or was read back, so that the two compare. `changes` lists the writes that turn one set of
rows into another. A single request and the repair of a whole switch use the same function. Only the
resets of a new class's counters and clock are written apart (`access.reset_classes`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MatchValue = int | str | tuple[int, int]
"""An exact value, or value and mask."""

PORTS = "port"
"""Table of the ports' settings: not one of the program, but written and read back like one."""

CLASSES = "PacerIngress.classes"
QUEUES = "queue"
METERS = "meter"

BASES = frozenset({PORTS, CLASSES, QUEUES, METERS})
"""Tables whose entries others refer to: `pacer`'s classes, Open vSwitch's queues and meters."""

Key = tuple[str, tuple[tuple[str, MatchValue], ...], int]
"""Identity of an entry: table, match, priority."""


@dataclass(frozen=True)
class Row:
    """One table entry in canonical form.

    Attributes:
        table: full name of the table.
        match: fields by name, sorted; don't-care fields are left out.
        priority: 0 for tables without ternary keys.
        action: full name of the action.
        params: parameters by name, sorted.
        meter: (cir, cburst, pir, pburst) of the direct meter in bytes/s and bytes, or None.
        owner: the resource it comes from, for messages; no part of its value.

    """

    table: str
    match: tuple[tuple[str, MatchValue], ...]
    priority: int
    action: str
    params: tuple[tuple[str, int | str], ...]
    meter: tuple[int, int, int, int] | None = None
    owner: str = field(default="", compare=False)

    @property
    def key(self) -> Key:
        """Identity of the entry in the switch."""
        return (self.table, self.match, self.priority)


Rows = dict[Key, Row]


class Op(Enum):
    """Kinds of writes."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """One write."""

    op: Op
    row: Row


def row(
    table: str,
    match: Mapping[str, MatchValue],
    action: str,
    params: Mapping[str, int | str] | None = None,
    **rest: Any,
) -> Row:
    """Make a row; match and parameters may come in any order."""
    return Row(
        table,
        tuple(sorted(match.items())),
        rest.pop("priority", 0),
        f"{table.partition('.')[0]}.{action}",
        tuple(sorted((params or {}).items())),
        **rest,
    )


def owner_of(kind: str, name: str) -> str:
    """Name a resource in messages, as the owner of its rows."""
    return f"{kind} {name if kind == 'port' else repr(name)}"


def by_key(rows: Iterable[Row]) -> Rows:
    """Index rows by key."""
    return {entry.key: entry for entry in rows}


def changes(current: Rows, wanted: Rows) -> list[Change]:
    """Return the fewest writes from `current` to `wanted`, in an order that is safe throughout.

    Entries that others refer to (classes, meters, ports) are inserted before those and deleted
    after them. A flow whose match changes is inserted before its old entry is deleted, so every
    packet matches one of them.
    """
    ordered: list[tuple[int, Change]] = []
    for key, entry in wanted.items():
        old = current.get(key)
        if old is None:
            ordered.append((_rank(entry, Op.INSERT), Change(Op.INSERT, entry)))
        elif old != entry:
            ordered.append((_rank(entry, Op.MODIFY), Change(Op.MODIFY, entry)))
    for key, entry in current.items():
        if key not in wanted:
            ordered.append((_rank(entry, Op.DELETE), Change(Op.DELETE, entry)))
    ordered.sort(key=lambda item: item[0])
    return [change for _, change in ordered]


def carry_out(made: Iterable[Change], rows: Rows) -> None:
    """Apply to `rows` the changes that the switch has made."""
    for change in made:
        if change.op is Op.DELETE:
            rows.pop(change.row.key, None)
        else:
            rows[change.row.key] = change.row


def _rank(entry: Row, op: Op) -> int:
    if op is Op.DELETE:
        return 3 if entry.table in BASES else 2
    return 0 if entry.table in BASES else 1

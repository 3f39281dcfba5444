"""The desired state, in SQLite: what clients have been told is accepted.

A write is on disk (`synchronous=FULL`, WAL) before the call returns. Everything is also kept in
memory, so that reading never touches the file. One process owns a file at a time.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pacer_controller.schemas import ClassSpec, FlowSpec, stored

_MIGRATIONS = (
    """
    CREATE TABLE classes (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        class_index INTEGER NOT NULL CHECK (class_index > 0),
        spec TEXT NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE flows (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        private_index INTEGER CHECK (private_index > 0),
        spec TEXT NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    """,
)
"""One script per schema version; `PRAGMA user_version` says how many have run."""


class StoreError(Exception):
    """The state file cannot be used; the text names it and says why."""


@dataclass(frozen=True)
class ClassRecord:
    """A class as accepted: its name, its index on the switch, what it is."""

    name: str
    index: int
    spec: ClassSpec


@dataclass(frozen=True)
class FlowRecord:
    """A flow as accepted; `private_index` is its own class's index when it has a rate."""

    name: str
    private_index: int | None
    spec: FlowSpec


@dataclass
class Desired:
    """Desired state of one switch; changed by the store alone."""

    classes: dict[str, ClassRecord] = field(default_factory=dict)
    flows: dict[str, FlowRecord] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    """Class indices in use, private ones included."""

    def put_class(self, record: ClassRecord) -> None:
        """Add or replace a class."""
        self.drop_class(record.name)
        self.classes[record.name] = record
        self.used.add(record.index)

    def drop_class(self, name: str) -> None:
        """Remove a class if it is there."""
        old = self.classes.pop(name, None)
        if old is not None:
            self.used.discard(old.index)

    def put_flow(self, record: FlowRecord) -> None:
        """Add or replace a flow."""
        self.drop_flow(record.name)
        self.flows[record.name] = record
        if record.private_index is not None:
            self.used.add(record.private_index)

    def drop_flow(self, name: str) -> None:
        """Remove a flow if it is there."""
        old = self.flows.pop(name, None)
        if old is not None and old.private_index is not None:
            self.used.discard(old.private_index)


class Store:
    """Desired state of all switches.

    Args:
        path: the SQLite file, made if missing; ":memory:" keeps nothing after the process ends.

    Raises:
        StoreError: not a state file, made by a newer version, in use, or not accessible.

    """

    def __init__(self, path: str) -> None:
        self._path = path
        if path != ":memory:" and not Path(path).parent.is_dir():
            raise StoreError(f"state file {path}: its directory does not exist")
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0)
            # Exclusive: a second controller on the same file would overwrite the first one's.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._migrate()
            self._switches = self._load()
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(f"state file {path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _migrate(self) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(_MIGRATIONS):
            raise ValueError(
                f"written by a newer version (schema {version}, this one knows {len(_MIGRATIONS)})"
            )
        for number in range(version, len(_MIGRATIONS)):
            # user_version takes no parameter; it is our own integer.
            mark = f"PRAGMA user_version = {number + 1}"
            self._db.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[number]} {mark}; COMMIT;")

    def _load(self) -> dict[str, Desired]:
        switches: dict[str, Desired] = {}
        for switch, name, index, spec in self._db.execute(
            "SELECT switch, name, class_index, spec FROM classes"
        ):
            record = ClassRecord(name, index, ClassSpec.model_validate(json.loads(spec)))
            switches.setdefault(switch, Desired()).put_class(record)
        for switch, name, index, spec in self._db.execute(
            "SELECT switch, name, private_index, spec FROM flows"
        ):
            flow = FlowRecord(name, index, FlowSpec.model_validate(json.loads(spec)))
            switches.setdefault(switch, Desired()).put_flow(flow)
        return switches

    def desired(self, switch: str) -> Desired:
        """Return the live desired state of a switch; change it only through this store."""
        return self._switches.setdefault(switch, Desired())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def write(
        self,
        switch: str,
        classes: Mapping[str, ClassRecord | None] | None = None,
        flows: Mapping[str, FlowRecord | None] | None = None,
    ) -> None:
        """Put (a record) or remove (None) classes and flows of a switch, all or nothing.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        try:
            with self._transaction():
                for name, record in (classes or {}).items():
                    if record is None:
                        self._execute(
                            "DELETE FROM classes WHERE switch = ? AND name = ?", switch, name
                        )
                    else:
                        self._execute(
                            "INSERT OR REPLACE INTO classes VALUES (?, ?, ?, ?)",
                            *(switch, name, record.index, json.dumps(stored(record.spec))),
                        )
                for name, flow in (flows or {}).items():
                    if flow is None:
                        self._execute(
                            "DELETE FROM flows WHERE switch = ? AND name = ?", switch, name
                        )
                    else:
                        self._execute(
                            "INSERT OR REPLACE INTO flows VALUES (?, ?, ?, ?)",
                            *(switch, name, flow.private_index, json.dumps(stored(flow.spec))),
                        )
        except sqlite3.Error as error:
            raise StoreError(f"state file {self._path}: {error}") from error
        current = self.desired(switch)
        for name, record in (classes or {}).items():
            current.drop_class(name) if record is None else current.put_class(record)
        for name, flow in (flows or {}).items():
            current.drop_flow(name) if flow is None else current.put_flow(flow)

    def _execute(self, statement: str, *values: object) -> None:
        self._db.execute(statement, values)

"""The desired state and the events, in SQLite: what clients have been told is accepted.

A write is on disk (`synchronous=FULL`, WAL) before the call returns. Records are also kept in
memory by the caller, so that reading never touches the file. One process owns a file at a time.

Writes are numbered (`sequence`), and the state belongs to an epoch: by these a second controller
knows whether what it has is the same (`pacer_controller.replication`).
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from pacer_controller.migrations import MIGRATIONS
from pacer_controller.records import (
    KINDS,
    PLURALS,
    Desired,
    Entry,
    ResourceChange,
    Snapshot,
    index_of,
    record_of,
)
from pacer_controller.schemas import stored

EVENTS_KEPT = 10_000
_EVENTS_SLACK = 1_000
"""Number of old events that are removed at a time."""

SwitchSettings = Mapping[str, tuple[Mapping[str, Any], int] | None]
"""Settings and revision by name; None: no such switch."""


class StoreError(Exception):
    """The state file cannot be used; the text names it and says why."""


class Store:
    """Desired state of all switches, and what happened.

    Args:
        path: the SQLite file, made if missing; ":memory:" keeps nothing after the process ends.

    Raises:
        StoreError: not a state file, made by a newer version, in use, or not accessible.

    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.on_write: Callable[[Entry], None] | None = None
        """Called with each write that changes the state, in order, once it is on disk, in the
        writing thread."""
        if path != ":memory:" and not Path(path).parent.is_dir():
            raise StoreError(f"state file {path}: its directory does not exist")
        try:
            # Changes are written in a thread of the caller's, one at a time (`_lock`): waiting for
            # the disk must not hold up requests that only read.
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=1.0, check_same_thread=False
            )
            # Exclusive: a second controller on the same file would overwrite the first one's.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._migrate()
            self._read_all()
            self._events = self._db.execute("SELECT count(*) FROM events").fetchone()[0]
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
        if version > len(MIGRATIONS):
            raise ValueError(
                f"written by a newer version (schema {version}, this one knows {len(MIGRATIONS)})"
            )
        for number in range(version, len(MIGRATIONS)):
            # user_version takes no parameter; it is our own integer.
            mark = f"PRAGMA user_version = {number + 1}"
            self._db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} {mark}; COMMIT;")

    def _read_all(self) -> None:
        self._switches: dict[str, Desired] = {}
        for one in self._resources():
            self._switches.setdefault(one.switch, Desired()).set(one.kind, one.name, one.after)
        columns = "revision, epoch, sequence, alone"
        row = self._db.execute(f"SELECT {columns} FROM progress").fetchone()  # noqa: S608
        self.revision, self.epoch, self.sequence = map(int, row[:3])
        self.alone = bool(row[3])

    def _resources(self) -> Iterator[ResourceChange]:
        for kind in KINDS:
            # Names of tables and columns are our own.
            statement = f"SELECT switch, name, {_index(kind)}, spec, revision FROM {PLURALS[kind]}"  # noqa: S608
            for switch, name, index, spec, revision in self._db.execute(statement):
                record = record_of(kind, name, index, json.loads(spec), revision)
                yield ResourceChange(switch, kind, name, None, record)

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch as it was when the file was opened."""
        return self._switches.setdefault(switch, Desired())

    def forget(self, switch: str) -> None:
        """Drop the desired state of a switch from memory, once it has been deleted."""
        self._switches.pop(switch, None)

    def switches(self) -> dict[str, tuple[dict[str, Any], int]]:
        """Return settings and revision of the switches that were made by requests, by name."""
        rows = self._db.execute("SELECT name, spec, revision FROM switches")
        return {name: (json.loads(spec), revision) for name, spec, revision in rows}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Do all or nothing; the caller holds the lock."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"state file {self._path}: {error}") from error

    def next_revision(self) -> int:
        """Return the number of the next change; it is kept with the next `write`."""
        self.revision += 1
        return self.revision

    def write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Mapping[str, Any]] = (),
        switches: SwitchSettings | None = None,
    ) -> list[int]:
        """Store changes and what is to be said about them, all or nothing.

        Args:
            changes: resources; only `after` is looked at.
            events: members `time`, `kind`, `switch`, `message`, `data`.
            switches: of those that requests made, change or remove.

        Returns:
            The events' numbers.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        with self._lock:
            with self._transaction():
                numbers = self._write(changes, events, switches or {})
                if changes or switches:
                    self._advance(self.sequence + 1, self.revision)
            if changes or switches:
                self._tell(changes, events, switches or {})
        return numbers

    def _write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Mapping[str, Any]],
        switches: SwitchSettings,
    ) -> list[int]:
        """Write within a transaction; returns the events' numbers."""
        self._write_changes(changes)
        for name, settings in switches.items():
            if settings is None:
                self._db.execute("DELETE FROM switches WHERE name = ?", (name,))
            else:
                values = (name, json.dumps(settings[0]), settings[1])
                self._db.execute("INSERT OR REPLACE INTO switches VALUES (?, ?, ?)", values)
        numbers = [self._insert_event(event) for event in events]
        self._events += len(numbers)
        if self._events > EVENTS_KEPT + _EVENTS_SLACK:
            self._db.execute(
                "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (EVENTS_KEPT,)
            )
            self._events = EVENTS_KEPT
        return numbers

    def _advance(self, sequence: int, revision: int) -> None:
        self._db.execute("UPDATE progress SET sequence = ?, revision = ?", (sequence, revision))

    def _tell(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Mapping[str, Any]],
        switches: SwitchSettings,
    ) -> None:
        """Pass on a write that is on disk, then count it: its number is visible last."""
        entry = Entry(self.sequence + 1, self.revision, changes, switches, events)
        try:
            if self.on_write is not None:
                self.on_write(entry)
        finally:
            self.sequence = entry.sequence

    def _write_changes(self, changes: Sequence[ResourceChange]) -> None:
        puts: dict[str, list[tuple[object, ...]]] = {}
        drops: dict[str, list[tuple[object, ...]]] = {}
        last = {(change.switch, change.kind, change.name): change.after for change in changes}
        for (switch, kind, name), record in last.items():
            if record is None:
                drops.setdefault(kind, []).append((switch, name))
            else:
                spec = json.dumps(stored(record.spec))
                row = (switch, name, index_of(record), spec, record.revision)
                puts.setdefault(kind, []).append(row)
        for kind, names in drops.items():
            self._db.executemany(
                f"DELETE FROM {PLURALS[kind]} WHERE switch = ? AND name = ?",  # noqa: S608
                names,
            )
        for kind, rows in puts.items():
            columns = "switch, name, spec, revision"
            if kind in ("class", "flow"):
                columns = f"switch, name, {_index(kind)}, spec, revision"
            else:
                rows = [(*row[:2], *row[3:]) for row in rows]
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(
                f"INSERT OR REPLACE INTO {PLURALS[kind]} ({columns}) VALUES ({marks})",  # noqa: S608
                rows,
            )

    def _insert_event(self, event: Mapping[str, Any]) -> int:
        cursor = self._db.execute(
            "INSERT INTO events (time, kind, switch, message, data) "
            "VALUES (:time, :kind, :switch, :message, :data)",
            {**event, "data": json.dumps(event["data"])},
        )
        return int(cursor.lastrowid or 0)

    def take_back(
        self,
        changes: Sequence[ResourceChange],
        events: Iterable[int],
        switches: SwitchSettings | None = None,
    ) -> None:
        """Undo a `write` of these changes and events; `switches` is what was before.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        back = [change.reversed() for change in reversed(changes)]
        with self._lock:
            with self._transaction():
                self._write(back, (), switches or {})
                self._db.executemany("DELETE FROM events WHERE id = ?", [(n,) for n in events])
                self._advance(self.sequence + 1, self.revision)
            self._tell(back, (), switches or {})

    # ---- what two controllers share ----

    def snapshot(self) -> Snapshot:
        """Return the whole state as it is on disk."""
        with self._lock:
            resources = list(self._resources())
            return Snapshot(self.epoch, self.sequence, self.revision, resources, self.switches())

    def replace(self, snapshot: Snapshot) -> None:
        """Forget the whole state and take another's; `desired` is anew then.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        with self._lock:
            with self._transaction():
                for table in (*PLURALS.values(), "switches"):
                    self._db.execute(f"DELETE FROM {table}")  # noqa: S608
                self._write(snapshot.resources, (), snapshot.switches)
                self._advance(snapshot.sequence, snapshot.revision)
                self._db.execute("UPDATE progress SET epoch = ?, alone = 0", (snapshot.epoch,))
            self._read_all()

    def repeat(self, entries: Sequence[Entry]) -> list[int]:
        """Repeat another's writes that follow on what is here; returns the events' numbers.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        last = entries[-1]
        switches = {name: one for entry in entries for name, one in entry.switches.items()}
        changes = [change for entry in entries for change in entry.changes]
        events = [event for entry in entries for event in entry.events]
        with self._lock:
            with self._transaction():
                numbers = self._write(changes, events, switches)
                self._advance(last.sequence, last.revision)
            self.sequence, self.revision = last.sequence, last.revision
        return numbers

    def begin_epoch(self, epoch: int) -> None:
        """Note that this controller leads from now on, and that no other may take over yet.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        with self._lock:
            with self._transaction():
                self._db.execute("UPDATE progress SET epoch = ?, alone = 1", (epoch,))
            self.epoch, self.alone = epoch, True

    def set_alone(self, alone: bool) -> None:
        """Note whether no other controller may take over: it has not everything.

        Raises:
            StoreError: the file could not be written; nothing has changed.

        """
        if alone != self.alone:
            with self._lock:
                with self._transaction():
                    self._db.execute("UPDATE progress SET alone = ?", (int(alone),))
                self.alone = alone

    def reload(self) -> None:
        """Read the state from the file again: `desired` is anew then.

        Raises:
            StoreError: the file could not be read.

        """
        try:
            with self._lock:
                self._read_all()
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(f"state file {self._path}: {error}") from error

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events, at most EVENTS_KEPT of them, oldest first."""
        rows = self._db.execute(
            "SELECT id, time, kind, switch, message, data FROM events ORDER BY id DESC LIMIT ?",
            (EVENTS_KEPT,),
        ).fetchall()
        names = ("id", "time", "kind", "switch", "message")
        return [
            {**dict(zip(names, row, strict=False)), "data": json.loads(row[5])}
            for row in reversed(rows)
        ]

    def probe(self) -> None:
        """Check that the file can be written.

        Raises:
            StoreError: it cannot.

        """
        with self._lock, self._transaction():
            self._db.execute("UPDATE progress SET revision = revision")


def _index(kind: str) -> str:
    """Return the column that holds the class index of a kind, or an expression for none."""
    return {"class": "class_index", "flow": "private_index"}.get(kind, "NULL")

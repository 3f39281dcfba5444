"""A store of one controller, in an SQLite file.

A write is on disk (`synchronous=FULL`, WAL) before it is acknowledged. The caller keeps the records
in memory, too, so reads never touch the file. One process owns a file at a time. After the file is
opened, one thread makes all calls to the database, so that a slow disk delays only the requests
that write.

After an error of the disk, or when the disk is full, the store refuses all writes: the data that
the kernel dropped after a failed fsync is unknown (https://www.sqlite.org/atomiccommit.html,
section 9). The process must then end (`SqliteStore.broken`), and read the file at its next start.
The kernel may still show data that is not on the disk, so the store first writes the WAL again
(`_write_again`).
"""

import asyncio
import json
import logging
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from pacer_controller.records import (
    KINDS,
    PLURALS,
    Desired,
    ResourceChange,
    index_of,
    record_of,
    stamped,
)
from pacer_controller.schemas import stored
from pacer_controller.southbound import FenceError, Tenure
from pacer_controller.stores.base import (
    EPOCH_S,
    EVENTS_KEPT,
    EVENTS_SLACK,
    SWITCHES,
    Event,
    Feed,
    StaleError,
    Status,
    StoreError,
    SwitchSettings,
    UncertainError,
    Written,
    epoch_above,
)
from pacer_controller.stores.migrations import MIGRATIONS

_LOG = logging.getLogger(__name__)

MEMORY = ":memory:"

BID_BITS = 32
"""Lower bits of a fencing number, which count bids; the bits above identify the file."""

_FATAL = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    # The kernel mounts a file system read-only after an error of its disk.
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
}
"""Errors of the disk, not of a request, after which the file cannot be trusted."""

_CHUNK_BYTES = 2**20
"""Largest part of a WAL that is written again with one call."""

_Result = TypeVar("_Result")


class SqliteStore:
    """The desired state of all switches, and the events (`base.Store`).

    Args:
        path: the SQLite file, created if missing; ":memory:" keeps nothing after the process ends.

    Raises:
        StoreError: the file is not a state file, was made by a newer version, is in use, or is not
            accessible.

    """

    shared = False
    changes_most = 256

    def __init__(self, path: str) -> None:
        self._path = path
        self.broken: str | None = None
        """The error after which the store refuses all writes; None: it takes writes."""
        self._closed = False
        if path != MEMORY:
            _prepare(Path(path))
        try:
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=1.0, check_same_thread=False
            )
            # Exclusive, because a second controller would overwrite the first one's state.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            # The lock is this process's now.
            if path != MEMORY:
                _write_again(f"{path}-wal")
            self._migrate()
            if path != MEMORY:
                _sync_directory(Path(path).parent)
            self._read_all()
            self._kept = self._db.execute("SELECT count(*) FROM events").fetchone()[0]
        except (sqlite3.Error, OSError, ValueError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            used = "another process uses it: stop that controller, or name another file"
            raise StoreError(
                f"{self.name}: {used if code == sqlite3.SQLITE_BUSY else error}"
            ) from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    @property
    def controller(self) -> None:
        """None: no other controller may use it (`base.Store.controller`)."""

    @property
    def name(self) -> str:
        """The store's name in messages (`base.Store.name`)."""
        return f"state file {self._path}"

    def shut(self) -> None:
        """Close the file."""
        self._closed = True
        self._thread.shutdown()
        self._db.close()

    async def close(self) -> None:
        """Close the file (`base.Store.close`)."""
        self.shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

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
        self._states: dict[str, Desired] = {}
        for one in self._resources():
            self._states.setdefault(one.switch, Desired()).set(one.kind, one.name, one.after)
        row = self._db.execute("SELECT revision, epoch, bids FROM progress").fetchone()
        self._revision, self._epoch, self._bids = map(int, row)
        if not self._epoch:
            # Wall-clock time, so that a newer file bids higher than an older one.
            self._epoch = int(time.time()) // EPOCH_S
            # Random bits keep the numbers of files of the same epoch apart.
            self._bids = secrets.randbits(30) << BID_BITS
        self._file = self._bids >> BID_BITS
        rows = self._db.execute("SELECT name, spec, revision FROM switches")
        self._settings: dict[str, tuple[Mapping[str, Any], int]] = {
            name: (json.loads(spec), revision) for name, spec, revision in rows
        }
        # The file has no base per switch. None is newer than the newest write, so take that.
        self._bases: dict[str, int] = dict.fromkeys((*self._states, SWITCHES), self._revision)

    def _resources(self) -> Iterator[ResourceChange]:
        for kind in KINDS:
            # Names of tables and columns are our own.
            statement = f"SELECT switch, name, {_index(kind)}, spec, revision FROM {PLURALS[kind]}"  # noqa: S608
            for switch, name, index, spec, revision in self._db.execute(statement):
                record = record_of(kind, name, index, json.loads(spec), revision)
                yield ResourceChange(switch, kind, name, None, record)

    # ---- the state in memory ----

    @property
    def revision(self) -> int:
        """Revision of the newest write (`base.Store.revision`)."""
        return self._revision

    def base(self, switch: str) -> int:
        """Return the revision of the newest write to a switch (`base.Store.base`)."""
        return self._bases.get(switch, 0)

    def known(self) -> Collection[str]:
        """Return the names of the switches that have resources (`base.Store.known`)."""
        return self._states.keys()

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch (`base.Store.desired`)."""
        return self._states.setdefault(switch, Desired())

    def forget(self, switch: str) -> None:
        """Drop the desired state of a switch from memory (`base.Store.forget`)."""
        self._states.pop(switch, None)

    def switches(self) -> dict[str, tuple[Mapping[str, Any], int]]:
        """Return the switches that requests made (`base.Store.switches`)."""
        return dict(self._settings)

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events (`base.Store.events`)."""
        statement = (
            "SELECT id, time, kind, switch, message, data FROM events ORDER BY id DESC LIMIT ?"
        )
        try:
            rows = self._db.execute(statement, (EVENTS_KEPT,)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.name}: {error}") from error
        names = ("id", "time", "kind", "switch", "message")
        return [
            {**dict(zip(names, row, strict=False)), "data": json.loads(row[5])}
            for row in reversed(rows)
        ]

    # ---- writes ----

    async def _in_thread(self, call: Callable[[], _Result]) -> _Result:
        if self._closed:
            raise StoreError(f"{self.name} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make the body one transaction; it runs in the store's thread."""
        if self.broken is not None:
            raise StoreError(f"{self.name}: {self.broken} earlier: start the controller anew")
        committing = False
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            committing = True
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in _FATAL:
                self.broken = str(error)
                _LOG.critical("%s: %s: nothing more is stored", self.name, error)
                if committing:
                    # Some or all of the transaction may be on the disk.
                    raise UncertainError(f"{self.name}: {error}") from error
            elif self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(f"{self.name}: {error}") from error

    async def write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Event] = (),
        switches: SwitchSettings | None = None,
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Store changes (`base.Store.write`); `whole` has no effect without other writers."""
        return await self._in_thread(lambda: self._write(changes, events, switches or {}, bases))

    async def take_back(
        self,
        changes: Sequence[ResourceChange],
        written: Written,
        events: Sequence[Event],
        switches: SwitchSettings | None = None,
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Undo a `write` (`base.Store.take_back`); its events are removed."""
        back = [change.reversed() for change in reversed(changes)]
        try:
            return await self._in_thread(
                lambda: self._write(back, (), switches or {}, bases, written.numbers)
            )
        except StoreError as error:
            # The file may have a change that its switch refused; the next start reads which.
            self.broken = self.broken or str(error)
            raise

    def _write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Event],
        switches: SwitchSettings,
        bases: Mapping[str, int] | None,
        without: Sequence[int] = (),
    ) -> Written:
        for switch, planned_on in (bases or {}).items():
            if self.base(switch) != planned_on:
                raise StaleError(f"{self.name}: revision {planned_on} is not the newest")
        changed = bool(changes or switches)
        revision = self._revision + 1 if changed else self._revision
        settings = dict(self._settings)
        with self._transaction():
            self._write_changes(changes, revision)
            for name, one in switches.items():
                if one is None:
                    self._db.execute("DELETE FROM switches WHERE name = ?", (name,))
                    settings.pop(name, None)
                else:
                    settings[name] = (one[0], one[1] or revision)
                    values = (name, json.dumps(one[0]), settings[name][1])
                    self._db.execute("INSERT OR REPLACE INTO switches VALUES (?, ?, ?)", values)
            numbers = [self._insert_event(event) for event in events]
            self._db.executemany("DELETE FROM events WHERE id = ?", [(n,) for n in without])
            kept = self._drop_old(self._kept + len(numbers))
            if changed:
                self._db.execute("UPDATE progress SET revision = ?", (revision,))
        self._revision, self._settings, self._kept = revision, settings, kept
        moved = {change.switch for change in changes} | ({SWITCHES} if switches else set())
        bases = dict.fromkeys(moved, revision)
        self._bases |= bases
        return Written(revision, bases, numbers)

    def _drop_old(self, kept: int) -> int:
        """Remove old events when there are too many; returns how many are left."""
        if kept <= EVENTS_KEPT + EVENTS_SLACK:
            return kept
        statement = "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?"
        self._db.execute(statement, (EVENTS_KEPT,))
        return EVENTS_KEPT

    def _write_changes(self, changes: Sequence[ResourceChange], revision: int) -> None:
        puts: dict[str, list[tuple[object, ...]]] = {}
        drops: dict[str, list[tuple[object, ...]]] = {}
        last = {(change.switch, change.kind, change.name): change.after for change in changes}
        for (switch, kind, name), record in last.items():
            if record is None:
                drops.setdefault(kind, []).append((switch, name))
            else:
                spec = json.dumps(stored(record.spec))
                of = stamped(record, revision).revision
                puts.setdefault(kind, []).append((switch, name, index_of(record), spec, of))
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

    def _insert_event(self, event: Event) -> int:
        cursor = self._db.execute(
            "INSERT INTO events (time, kind, switch, message, data) "
            "VALUES (:time, :kind, :switch, :message, :data)",
            {**event, "data": json.dumps(event["data"])},
        )
        return int(cursor.lastrowid or 0)

    async def load(self) -> None:
        """Read the state from the file again; `desired` returns new objects afterwards."""
        await self._in_thread(self._read_all)

    async def catch_up(self) -> None:
        """Return at once: there is no other writer (`base.Store.catch_up`)."""

    async def probe(self) -> None:
        """Check that the file can be written (`base.Store.probe`)."""

        def touch() -> None:
            with self._transaction():
                self._db.execute("UPDATE progress SET revision = revision")

        await self._in_thread(touch)

    # ---- assignment: this controller drives all switches ----

    async def start(
        self,
        feed: Feed,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Do nothing: there is no other writer (`base.Store.start`)."""

    async def stop(self) -> None:
        """Do nothing (`base.Store.stop`)."""

    def tenure(self, switch: str) -> Tenure:
        """Return the right to write to a switch, which is always held (`base.Store.tenure`)."""
        return _Owner(self)

    def status(self, switch: str) -> Status | None:
        """Return None: this controller drives it (`base.Store.status`)."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return a description of the store (`base.Store.describe`)."""
        return {
            "kind": "sqlite",
            "epoch": self._epoch,
            "controller": self.controller,
            "controllers": [],
            "driven": None,
        }

    def gave(self, fence: int) -> bool:
        """Whether this file has given a fencing number."""
        return fence >> 64 == self._epoch and (fence & (2**64 - 1)) >> BID_BITS == self._file

    async def bid(self, above: int) -> int:
        """Return a fencing number that the file has never given before, above `above`."""

        def count() -> int:
            epoch, bids = self._epoch, self._bids + 1
            if above >= epoch << 64 | bids:
                epoch = epoch_above(above)
            with self._transaction():
                self._db.execute("UPDATE progress SET epoch = ?, bids = ?", (epoch, bids))
            self._epoch, self._bids = epoch, bids
            return epoch << 64 | bids

        try:
            return await self._in_thread(count)
        except StoreError as error:
            raise FenceError(str(error)) from None


class _Owner:
    """The right of the only controller (`southbound.Tenure`)."""

    held = True
    exclusive = False

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def bid(self, above: int = 0) -> int:
        return await self._store.bid(above)

    def gave(self, fence: int) -> bool:
        return self._store.gave(fence)

    async def becomes(self, held: bool) -> None:
        if not held:
            await asyncio.Event().wait()

    def reaches(self, reachable: bool) -> None:
        pass


def _prepare(path: Path) -> None:
    """Create the file, readable by its owner only, or check that others cannot write it.

    Raises:
        StoreError: the directory of the file is missing, or other users may write the file.

    """
    if not path.parent.is_dir():
        raise StoreError(f"state file {path}: its directory does not exist")
    try:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise StoreError(
                    f"state file {path}: others may write it: chmod go-w {path}"
                ) from None
    except OSError as error:
        raise StoreError(f"state file {path}: {error.strerror}") from None


def _write_again(path: str) -> None:
    """Write a file's content again, and sync it; nothing happens if the file does not exist.

    After a failed sync the kernel may show content that is not on the disk, and that no later sync
    brings to the disk (https://wiki.postgresql.org/wiki/Fsync_Errors). SQLite reads a WAL up to its
    first gap: after a loss of power, such a gap would hide all later writes.

    Raises:
        OSError: the disk does not take it.

    """
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        at = 0
        while data := os.pread(file, _CHUNK_BYTES, at):
            at += os.pwrite(file, data, at)
        os.fsync(file)
    finally:
        os.close(file)


def _sync_directory(path: Path) -> None:
    """Sync a directory, so that its files are there after a loss of power.

    SQLite syncs the directory once it has created the WAL, and ignores errors of that sync. After
    such an error, or if the process ended before the sync, the WAL would be gone with the power.

    Raises:
        OSError: the disk does not take them.

    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _index(kind: str) -> str:
    """Return the column that holds the class index of a kind, or an expression for none."""
    return {"class": "class_index", "flow": "private_index"}.get(kind, "NULL")

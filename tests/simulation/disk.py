"""A model of a disk, and of the kernel's page cache above it.

Written data is in the page cache at once, and outlives the program. It outlives a loss of power
only once it has been synced. Without a sync, each sector has one of the states that it went
through, independently of its neighbours, and a sector may be torn. Creations and removals of files
survive in their order, up to some point. A sync that fails keeps the cache's content and marks it
clean, as Linux does (https://wiki.postgresql.org/wiki/Fsync_Errors): data that did not reach the
medium stays readable, and no later sync brings it there.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

SECTOR = 512
"""Unit that a loss of power tears, in bytes."""

TORN = 0.1
"""Share of torn sectors: they have only the first bytes of a write."""


@dataclass(eq=False)
class Inode:
    """A file, without its name.

    Attributes:
        data: the content that programs see.
        durable: the content on the medium.
        pending: the writes since the last sync: offset and bytes, or size and None.

    """

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)


@dataclass
class Failing:
    """A failing call of a disk.

    Attributes:
        number: number of the error, as in `errno`.
        once: whether only the next call fails.

    """

    number: int
    once: bool = False


class Disk:
    """The disk, with one directory.

    Args:
        seed: the seed of the data that survive a loss of power.

    Attributes:
        failing: calls that fail: "read", "write", "sync", "remove".
        fuse: the number of calls until an action, and the action.

    """

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(f"{seed}/disk")
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._pending_names: list[tuple[str, Inode | None]] = []
        self.failing: dict[str, Failing] = {}
        self.fuse: tuple[int, Callable[[], None]] | None = None
        self.calls = 0
        self.losses = 0

    # ---- calls of programs ----

    def _begin(self, kind: str) -> None:
        """Count a call, and burn the fuse."""
        self.calls += 1
        if self.fuse is not None:
            left, call = self.fuse
            self.fuse = (left - 1, call) if left > 1 else None
            if self.fuse is None:
                call()

    def _fail(self, kind: str) -> None:
        failing = self.failing.get(kind)
        if failing is not None:
            if failing.once:
                del self.failing[kind]
            raise OSError(failing.number, f"{kind} fails")

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        return path in self._names

    def find(self, path: str) -> Inode | None:
        """Return the file of a name."""
        return self._names.get(path)

    def create(self, path: str) -> Inode:
        """Make an empty file."""
        self._begin("create")
        made = self._names[path] = Inode()
        self._pending_names.append((path, made))
        return made

    def remove(self, path: str) -> None:
        """Remove a file's name.

        Raises:
            OSError: there is none, or it fails.

        """
        self._begin("remove")
        self._fail("remove")
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, path)
        del self._names[path]
        self._pending_names.append((path, None))

    def read(self, file: Inode, at: int, count: int) -> bytes:
        """Return a part of the content, up to the end of the file.

        Raises:
            OSError: it fails.

        """
        self._fail("read")
        return bytes(file.data[at : at + count])

    def write(self, file: Inode, at: int, data: bytes) -> None:
        """Write; the file grows if need be.

        Raises:
            OSError: it fails; some of it may be written.

        """
        self._begin("write")
        grows = at + len(data) > len(file.data)
        failing = self.failing.get("write")
        if failing is not None and (grows or failing.number != errno.ENOSPC):
            some = data[: self._chance.randrange(len(data) + 1)]
            if some and self._chance.random() < 0.5:
                self._put(file, at, some)
            self._fail("write")
        self._put(file, at, data)

    def truncate(self, file: Inode, size: int) -> None:
        """Set a file's size."""
        self._begin("truncate")
        file.pending.append((size, None))
        _apply(file.data, size, None)

    def sync(self, file: Inode) -> None:
        """Bring all writes of a file to the medium.

        Raises:
            OSError: the sync fails; an unknown part of the writes is on the medium, and no later
                call brings the rest.

        """
        self._begin("sync")
        if "sync" in self.failing:
            self._settle(file)
            self._fail("sync")
        file.durable[:] = _after(file)
        file.pending.clear()

    def sync_names(self) -> None:
        """Bring creations and removals of files to the medium."""
        self._begin("sync")
        self._fail("sync")
        self._settle_names(len(self._pending_names))

    # ---- loss of power ----

    def lose_power(self) -> None:
        """Forget unsynced data, or a part of them."""
        self.losses += 1
        self.fuse = None
        for file in {id(one): one for one in self._all()}.values():
            self._settle(file)
            file.data[:] = file.durable
        self._settle_names(self._chance.randrange(len(self._pending_names) + 1))
        self._names = dict(self._durable_names)

    def unsynced(self) -> list[str]:
        """Return the names of files with unsynced data."""
        dirty = [path for path, file in self._names.items() if file.pending]
        return sorted({*dirty, *(path for path, _ in self._pending_names)})

    def _all(self) -> list[Inode]:
        made = [file for _, file in self._pending_names if file is not None]
        return [*self._names.values(), *self._durable_names.values(), *made]

    @staticmethod
    def _put(file: Inode, at: int, data: bytes) -> None:
        file.pending.append((at, data))
        _apply(file.data, at, data)

    def _settle_names(self, count: int) -> None:
        for path, file in self._pending_names[:count]:
            if file is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = file
        self._pending_names.clear()

    def _settle(self, file: Inode) -> None:
        """Bring a part of the writes to the medium, and forget that the rest is missing."""
        pending, chance = file.pending, self._chance
        if not pending:
            return
        how, every = chance.choice(("none", "all", "first", "any", "any")), len(pending)
        fixed = {"none": 0, "all": every, "first": chance.randrange(every + 1)}.get(how)

        def up_to() -> int:
            return chance.randrange(every + 1) if fixed is None else fixed

        size = len(file.durable)
        for at, data in pending[: up_to()]:
            size = at if data is None else max(size, at + len(data))
        image = bytearray(file.durable[:size]).ljust(size, b"\0")
        for start in range(0, size, SECTOR):
            touching = _touching(pending, start)
            if touching:
                count = up_to()
                sector = bytearray(file.durable[start : start + SECTOR].ljust(SECTOR, b"\0"))
                for number, at, data in touching:
                    if number < count:
                        _apply_within(sector, at, data)
                    elif number == count and data and chance.random() < TORN:
                        _apply_within(sector, at, data[: chance.randrange(len(data))])
                image[start : start + SECTOR] = sector[: size - start]
        file.durable[:] = image
        pending.clear()


def _touching(
    pending: list[tuple[int, bytes | None]], start: int
) -> list[tuple[int, int, bytes | None]]:
    """Return number, offset and bytes of a sector's writes; offsets count from its start."""
    found = []
    for number, (at, data) in enumerate(pending):
        within = at < start + SECTOR and (data is None or at + len(data) > start)
        if within:
            found.append((number, at - start, data))
    return found


def _apply_within(sector: bytearray, at: int, data: bytes | None) -> None:
    """Apply a write to a sector; the write may begin before the sector or end behind it."""
    if data is None:
        sector[max(0, at) :] = bytes(SECTOR - max(0, at))
        return
    data, at = (data[-at:], 0) if at < 0 else (data, at)
    data = data[: SECTOR - at]
    sector[at : at + len(data)] = data


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    """Write bytes, or set the size."""
    if data is None:
        del content[at:]
        content.extend(bytes(at - len(content)))
        return
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _after(file: Inode) -> bytearray:
    """Return the medium's content after all pending writes."""
    image = bytearray(file.durable)
    for at, data in file.pending:
        _apply(image, at, data)
    return image

"""Puts simulated disks beneath SQLite and beneath the store's own calls of the kernel.

The SQLite of Python's `sqlite3` runs with all of its code but the part that calls the kernel. That
part is a VFS (https://www.sqlite.org/vfs.html), here one of Python functions. It follows os_unix.c
where durability depends on it: it syncs the directory with the same files. Without shared memory
(version 1 of the methods) SQLite can use a WAL in exclusive mode only, as the store does.

A file belongs to the process that has opened it. Once the process has ended, every call on the file
fails and does nothing, so that SQLite cannot go on when Python frees the connection.
"""

import _sqlite3
import contextlib
import ctypes
import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from unittest import mock

from disk import Disk, Inode
from loop import PROCESS, Process, SimulatedLoop
from pacer_controller.stores import sqlite as store_module

_OK, _BUSY, _FULL, _NOTFOUND, _CANTOPEN = 0, 5, 13, 12, 14
_IOERR = 10
_READ, _SHORT_READ, _WRITE, _FSYNC, _DIR_FSYNC, _TRUNCATE, _DELETE = (
    _IOERR | n << 8 for n in (1, 2, 3, 4, 5, 6, 10)
)
_DELETE_NOENT = _IOERR | 23 << 8

_OPEN_CREATE, _OPEN_DELETE_ON_CLOSE, _OPEN_EXCLUSIVE = 0x4, 0x8, 0x10
_SYNCED_WITH_NAME = 0x800 | 0x4000 | 0x80000
"""Kinds of files whose first sync also syncs the directory: journals and the WAL."""

_SHARED, _RESERVED, _PENDING, _EXCLUSIVE = 1, 2, 3, 4
_SECTOR = 4096
_POWERSAFE_OVERWRITE = 0x1000
_JULIAN_1970 = 2_440_587.5

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int


def _method(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(_INT, *arguments)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 1."""

    _fields_ = (
        ("iVersion", _INT),
        ("xClose", _method(_POINTER)),
        ("xRead", _method(_POINTER, _POINTER, _INT, ctypes.c_int64)),
        ("xWrite", _method(_POINTER, _POINTER, _INT, ctypes.c_int64)),
        ("xTruncate", _method(_POINTER, ctypes.c_int64)),
        ("xSync", _method(_POINTER, _INT)),
        ("xFileSize", _method(_POINTER, ctypes.POINTER(ctypes.c_int64))),
        ("xLock", _method(_POINTER, _INT)),
        ("xUnlock", _method(_POINTER, _INT)),
        ("xCheckReservedLock", _method(_POINTER, ctypes.POINTER(_INT))),
        ("xFileControl", _method(_POINTER, _INT, _POINTER)),
        ("xSectorSize", _method(_POINTER)),
        ("xDeviceCharacteristics", _method(_POINTER)),
    )


class _File(ctypes.Structure):
    """`sqlite3_file`, followed by this module's number of the file."""

    _fields_ = (("pMethods", ctypes.POINTER(_Methods)), ("number", ctypes.c_int64))


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 1."""

    _fields_ = (
        ("iVersion", _INT),
        ("szOsFile", _INT),
        ("mxPathname", _INT),
        ("pNext", _POINTER),
        ("zName", ctypes.c_char_p),
        ("pAppData", _POINTER),
        (
            "xOpen",
            _method(_POINTER, ctypes.c_char_p, ctypes.POINTER(_File), _INT, ctypes.POINTER(_INT)),
        ),
        ("xDelete", _method(_POINTER, ctypes.c_char_p, _INT)),
        ("xAccess", _method(_POINTER, ctypes.c_char_p, _INT, ctypes.POINTER(_INT))),
        ("xFullPathname", _method(_POINTER, ctypes.c_char_p, _INT, _POINTER)),
        ("xDlOpen", _POINTER),
        ("xDlError", _POINTER),
        ("xDlSym", _POINTER),
        ("xDlClose", _POINTER),
        ("xRandomness", _method(_POINTER, _INT, _POINTER)),
        ("xSleep", _method(_POINTER, _INT)),
        ("xCurrentTime", _method(_POINTER, ctypes.POINTER(ctypes.c_double))),
        ("xGetLastError", _method(_POINTER, _INT, _POINTER)),
    )


@dataclass(eq=False)
class _Open:
    """A file that a process has open."""

    process: Process
    disk: Disk
    file: Inode
    path: str | None
    sync_name: bool = False
    remove: bool = False
    lock: int = 0
    gone: bool = False
    """Whether the simulation is over."""

    def check(self) -> Disk:
        """Return the disk; OSError if the process has ended."""
        if self.gone or not self.process.alive:
            raise OSError(errno.EIO, "the process has ended")
        return self.disk


_files: dict[int, _Open] = {}
_loops: list[SimulatedLoop] = []


def _opened(pointer: int) -> _Open:
    return _files[_File.from_address(pointer).number]


def _own() -> tuple[Process, Disk]:
    """Return the calling process and its disk."""
    process = PROCESS.get(None)
    disk = process.node.disk if process is not None else None
    if process is None or disk is None or not process.alive:
        raise OSError(errno.EIO, "no disk")
    return process, disk


def _told(code: int, call: Callable[[], None]) -> int:
    """Call a function; return the code of its error."""
    try:
        call()
    except OSError as error:
        return _FULL if error.errno == errno.ENOSPC else code
    return _OK


# ---- files ----


def _close(pointer: int) -> int:
    opened = _files.pop(_File.from_address(pointer).number)
    if opened.remove and opened.path is not None:
        with contextlib.suppress(OSError):
            opened.check().remove(opened.path)
    return _OK


def _read(pointer: int, into: int, count: int, at: int) -> int:
    opened = _opened(pointer)
    try:
        data = opened.check().read(opened.file, at, count)
    except OSError:
        return _READ
    ctypes.memmove(into, data.ljust(count, b"\0"), count)
    return _OK if len(data) == count else _SHORT_READ


def _write(pointer: int, source: int, count: int, at: int) -> int:
    opened, data = _opened(pointer), ctypes.string_at(source, count)
    return _told(_WRITE, lambda: _done(opened, lambda d: d.write(opened.file, at, data)))


def _truncate(pointer: int, size: int) -> int:
    opened = _opened(pointer)
    return _told(_TRUNCATE, lambda: _done(opened, lambda d: d.truncate(opened.file, size)))


def _sync(pointer: int, _: int) -> int:
    opened = _opened(pointer)
    said = _told(_FSYNC, lambda: _done(opened, lambda d: d.sync(opened.file)))
    if said == _OK and opened.sync_name:
        opened.sync_name = False
        # As os_unix.c: errors of this sync are ignored.
        with contextlib.suppress(OSError):
            _done(opened, lambda d: d.sync_names())
    return said


def _done(opened: _Open, call: Callable[[Disk], None]) -> None:
    """Call a function of the disk; fails if the process has ended before the call or during it."""
    call(opened.check())
    opened.check()


def _size(pointer: int, into: Any) -> int:
    into[0] = len(_opened(pointer).file.data)
    return _OK


def _others(opened: _Open) -> int:
    """Return the highest lock that another process has on a file."""
    locks = (
        one.lock
        for one in _files.values()
        if one is not opened and one.file is opened.file and one.process.alive
    )
    return max(locks, default=0)


def _lock(pointer: int, level: int) -> int:
    opened = _opened(pointer)
    allowed = {_SHARED: _RESERVED, _RESERVED: _SHARED, _EXCLUSIVE: 0}[level]
    if _others(opened) > allowed:
        return _BUSY
    opened.lock = max(opened.lock, level)
    return _OK


def _unlock(pointer: int, level: int) -> int:
    opened = _opened(pointer)
    opened.lock = min(opened.lock, level)
    return _OK


def _check_reserved(pointer: int, into: Any) -> int:
    into[0] = int(_others(_opened(pointer)) >= _RESERVED)
    return _OK


# ---- the file system ----


def _open(_: int, name: bytes | None, pointer: Any, flags: int, out: Any) -> int:
    pointer[0].pMethods = None
    try:
        process, disk = _own()
        path = name.decode() if name else None
        file = disk.find(path) if path is not None else Inode()
        made = file is None
        if file is None:
            assert path is not None
            if not flags & _OPEN_CREATE:
                return _CANTOPEN
            file = disk.create(path)
        elif path is not None and flags & _OPEN_EXCLUSIVE:
            return _CANTOPEN
    except OSError:
        return _CANTOPEN
    opened = _Open(process, disk, file, path, made and bool(flags & _SYNCED_WITH_NAME))
    opened.remove = bool(flags & _OPEN_DELETE_ON_CLOSE)
    number = max(_files, default=0) + 1
    _files[number] = opened
    pointer[0].number = number
    pointer[0].pMethods = ctypes.pointer(_METHODS)
    if out:
        out[0] = flags
    return _OK


def _delete(_: int, name: bytes, sync: int) -> int:
    try:
        disk = _own()[1]
        disk.remove(name.decode())
        _own()
    except FileNotFoundError:
        return _DELETE_NOENT
    except OSError:
        return _DELETE
    return _told(_DIR_FSYNC, disk.sync_names) if sync else _OK


def _access(_: int, name: bytes, flags: int, out: Any) -> int:
    try:
        file = _own()[1].find(name.decode())
    except OSError:
        file = None
    # As os_unix.c: an empty file counts as absent.
    out[0] = int(file is not None and (flags != 0 or bool(file.data)))
    return _OK


def _full_path(_: int, name: bytes, size: int, into: int) -> int:
    if len(name) + 1 > size:
        return _CANTOPEN
    ctypes.memmove(into, name + b"\0", len(name) + 1)
    return _OK


def _randomness(_: int, count: int, into: int) -> int:
    ctypes.memmove(into, os.urandom(count), count)
    return count


def _now(_: int, into: Any) -> int:
    into[0] = _JULIAN_1970 + (_loops[-1].wall() if _loops else 0.0) / 86_400
    return _OK


def _fields(kind: Any, values: dict[str, Any]) -> Any:
    """Make a structure; functions become callbacks of their fields' types."""
    types = dict(kind._fields_)
    return kind(**{name: types[name](v) if callable(v) else v for name, v in values.items()})


_METHODS = _fields(
    _Methods,
    {
        "iVersion": 1,
        "xClose": _close,
        "xRead": _read,
        "xWrite": _write,
        "xTruncate": _truncate,
        "xSync": _sync,
        "xFileSize": _size,
        "xLock": _lock,
        "xUnlock": _unlock,
        "xCheckReservedLock": _check_reserved,
        "xFileControl": lambda _, __, ___: _NOTFOUND,
        "xSectorSize": lambda _: _SECTOR,
        "xDeviceCharacteristics": lambda _: _POWERSAFE_OVERWRITE,
    },
)

_VFS = _fields(
    _Vfs,
    {
        "iVersion": 1,
        "szOsFile": ctypes.sizeof(_File),
        "mxPathname": 512,
        "zName": b"simulated",
        "xOpen": _open,
        "xDelete": _delete,
        "xAccess": _access,
        "xFullPathname": _full_path,
        "xRandomness": _randomness,
        "xSleep": lambda _, micro_s: micro_s,
        "xCurrentTime": _now,
        "xGetLastError": lambda _, __, ___: 0,
    },
)


def _library() -> Any:
    """Return the SQLite that Python's module has loaded."""
    # A look-up in the module's file finds the symbols of the library that it is linked to.
    found = ctypes.CDLL(_sqlite3.__file__)
    found.sqlite3_vfs_find.restype = _POINTER
    found.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
    found.sqlite3_vfs_register.argtypes = [_POINTER, _INT]
    found.sqlite3_randomness.argtypes = [_INT, _POINTER]
    return found


# ---- the store's own calls ----


class _Path(PurePosixPath):
    """The store's substitute for `pathlib.Path`."""

    def is_dir(self) -> bool:
        """Return True: the disk has one directory."""
        return True

    def stat(self) -> Any:
        """Return the mode of a file."""
        return SimpleNamespace(st_mode=stat.S_IFREG | 0o600)


class _Kernel:
    """The store's substitute for the module `os`."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str | os.PathLike[str], flags: int, _mode: int = 0o777) -> int:
        """Open a file, or the directory."""
        process, disk = _own()
        name = os.fspath(path)
        file = disk.find(name)
        if flags & os.O_DIRECTORY:
            file = Inode()
        elif file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            file = disk.create(name)
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        number = max(self._open, default=2) + 1
        self._open[number] = _Open(process, disk, file, None, bool(flags & os.O_DIRECTORY))
        return number

    def close(self, number: int) -> None:
        """Close a file."""
        del self._open[number]

    def pread(self, number: int, count: int, at: int) -> bytes:
        """Read from a file."""
        opened = self._open[number]
        return opened.check().read(opened.file, at, count)

    def pwrite(self, number: int, data: bytes, at: int) -> int:
        """Write to a file."""
        opened = self._open[number]
        _done(opened, lambda disk: disk.write(opened.file, at, data))
        return len(data)

    def fsync(self, number: int) -> None:
        """Sync a file, or the directory."""
        opened = self._open[number]
        if opened.sync_name:
            _done(opened, lambda disk: disk.sync_names())
        else:
            _done(opened, lambda disk: disk.sync(opened.file))


@contextlib.contextmanager
def installed(loop: SimulatedLoop) -> Iterator[None]:
    """Have SQLite and the store use the disks of a simulation's nodes while the block runs."""
    library = _library()
    real = library.sqlite3_vfs_find(None)
    connect, made = sqlite3.connect, list[sqlite3.Connection]()

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*given, **options))
        return made[-1]

    _loops.append(loop)
    library.sqlite3_vfs_register(ctypes.addressof(_VFS), 1)
    # SQLite seeds its random numbers anew, from the simulation's.
    library.sqlite3_randomness(0, None)
    try:
        with (
            mock.patch.object(store_module, "os", _Kernel()),
            mock.patch.object(store_module, "Path", _Path),
            mock.patch.object(sqlite3, "connect", connected),
        ):
            yield
    finally:
        # Connections close here, since no callback may be called any more when Python ends.
        for one in _files.values():
            one.gone = True
        for connection in made:
            connection.close()
        library.sqlite3_vfs_register(real, 1)
        library.sqlite3_randomness(0, None)
        _loops.pop()

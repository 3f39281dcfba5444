"""Users of the REST interface, with their tokens and roles.

The file of users is JSON and has the hashes of tokens:

    {"users": {"alice": {"role": "rates", "token_sha256": "9f86d0...", "added": "2026-01-31"}}}

The controller makes the tokens, of 256 random bits. So a plain hash is enough: a token cannot be
found from it by trial.
"""

import fcntl
import hashlib
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from pacer_controller.config import ConfigError
from pacer_controller.option_files import check_private

_LOG = logging.getLogger(__name__)

Role = Literal["read", "rates", "all"]
ROLES: tuple[Role, ...] = get_args(Role)
"""The roles, in ascending order: each has the rights of the ones before it."""

TOKEN_BYTES = 32
USERS_MOST = 1000

SINGLE = "token"
"""Name of the user of `--token-file`."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]


@dataclass(frozen=True)
class User:
    """The owner of a token."""

    name: str
    role: Role


class Entry(BaseModel):
    """A user in the file."""

    model_config = ConfigDict(extra="forbid")

    role: Role
    token_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    added: str = Field(max_length=64)


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    users: Annotated[dict[Name, Entry], Field(max_length=USERS_MOST)] = {}


def read(path: Path) -> dict[str, Entry]:
    """Return the users of a file by name; none if there is no file.

    Raises:
        ConfigError: other users can read or change the file, it is not a file of users, or it
            cannot be read.

    """
    try:
        path.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"--tokens {path}: {error.strerror}") from None
    check_private("--tokens", path, group_may_read=False, in_own_folder=True)
    try:
        found = _Content.model_validate_json(path.read_bytes()).users
    except OSError as error:
        raise ConfigError(f"--tokens {path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"])) or "file"
        raise ConfigError(f"--tokens {path}: {at}: {first['msg']}") from None
    if SINGLE in found:
        raise ConfigError(f"--tokens {path}: {SINGLE!r} is the user of --token-file: rename it")
    return found


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Entry]]:
    """Yield the users of a file for a change, then write the file for the owner of its folder.

    Raises:
        ConfigError: the file or its folder cannot be used.

    """
    folder = path.resolve().parent
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"--tokens {path}: {folder}: {error.strerror}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        users = read(path)
        yield users
        content = {"users": {name: one.model_dump() for name, one in sorted(users.items())}}
        try:
            _replace(path.resolve(), json.dumps(content, indent=2) + "\n", held)
        except OSError as error:
            raise ConfigError(f"--tokens {path}: {error.strerror}") from None
    finally:
        os.close(held)


def _replace(path: Path, text: str, folder: int) -> None:
    # mkstemp makes the file with mode 0600.
    handle, made = tempfile.mkstemp(prefix=".tokens", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            of = os.fstat(folder)
            if os.geteuid() == 0:
                # The controller may run as another user, who owns the folder.
                os.fchown(file.fileno(), of.st_uid, of.st_gid)
            os.fsync(file.fileno())
        os.replace(made, path)
    except OSError:
        os.unlink(made)
        raise
    os.fsync(folder)


def add(path: Path, name: str, role: Role, today: date) -> str:
    """Add a user to a file, and return the token, which is not stored.

    Raises:
        ConfigError: the name is not allowed or taken, or the file cannot be used.

    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with changing(path) as users:
        if name in users:
            raise ConfigError(f"user {name!r} has a token: revoke it first")
        if len(users) >= USERS_MOST:
            raise ConfigError(f"{USERS_MOST} users have tokens: revoke some")
        entry = Entry(role=role, token_sha256=_hash(token.encode()), added=today.isoformat())
        try:
            users.update(_Content(users={name: entry}).users)
        except ValidationError:
            raise ConfigError(f"user {name!r}: want 1 to 64 of A-Z a-z 0-9 . _ @ -") from None
        if name == SINGLE:
            raise ConfigError(f"user {name!r}: that is the user of --token-file")
    return token


def revoke(path: Path, name: str) -> None:
    """Remove a user from a file.

    Raises:
        ConfigError: there is no such user, or the file cannot be used.

    """
    with changing(path) as users:
        if users.pop(name, None) is None:
            raise ConfigError(f"there is no user {name!r}; there are: {', '.join(users) or 'none'}")


@dataclass(frozen=True)
class Changes:
    """The differences between two readings of the file, as names of users."""

    added: list[str]
    revoked: list[str]
    changed: list[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.revoked or self.changed)


class Users:
    """The users of the controller.

    Args:
        single: the token of `--token-file`, whose user has the role `all`; None: there is none.
        path: the file of users; None: there is none.

    Raises:
        ConfigError: the file cannot be used.

    """

    def __init__(self, single: str | None = None, path: Path | None = None) -> None:
        self.required = single is not None or path is not None
        """Whether requests need a token."""
        self._single = {} if single is None else {_hash(single.encode()): User(SINGLE, "all")}
        self._path = path
        self._seen = self._signature()
        self._entries: Mapping[str, Entry] = {} if path is None else read(path)
        self._by_hash = self._hashes()
        if self.required and not self._by_hash:
            _LOG.warning("%s has no users: `pacer-controller token add` gives tokens", path)

    def find(self, token: bytes) -> User | None:
        """Return the user of a token.

        The time that this takes depends on hashes only, which a client cannot choose.
        """
        return self._by_hash.get(_hash(token))

    def refresh(self) -> Changes | None:
        """Read the file again if it has changed; return the differences, or None without any.

        This reads the disk: do not call it on the event loop.

        Raises:
            ConfigError: the file cannot be used; the users stay as they are.

        """
        signature = self._signature()
        if self._path is None or signature == self._seen:
            return None
        self._seen = signature
        before, self._entries = self._entries, read(self._path)
        self._by_hash = self._hashes()
        both = before.keys() & self._entries.keys()
        return Changes(
            sorted(self._entries.keys() - before.keys()),
            sorted(before.keys() - self._entries.keys()),
            sorted(name for name in both if before[name] != self._entries[name]),
        )

    def _hashes(self) -> dict[str, User]:
        of_file = {one.token_sha256: User(name, one.role) for name, one in self._entries.items()}
        return of_file | self._single

    def _signature(self) -> tuple[int, ...] | None:
        """Return values that change when the file does; None: there is no file."""
        try:
            found = os.stat(self._path) if self._path is not None else None
        except OSError:
            return None
        if found is None:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()

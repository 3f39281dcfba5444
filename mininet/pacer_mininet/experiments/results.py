"""The directory of results: one program writes to it at a time, and files appear whole."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class BusyError(RuntimeError):
    """The results cannot be written now, or not by this user; the text says why."""


@contextlib.contextmanager
def results_directory(directory: Path) -> Iterator[IO[str]]:
    """Make the directory of the results and lock it while the block runs; yield the lock's file.

    A child process that inherits the file keeps the lock until it ends, too.

    Raises:
        BusyError: another program has locked it, or it cannot be written.

    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The lock file stays: another program may already have opened it.
        lock = (directory / ".lock").open("a")
    except OSError as error:
        raise BusyError(f"cannot write to {directory}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another demo or experiment is running and will write to {directory}: wait until "
                "it is done, or run this one from another checkout"
            ) from None
        yield lock


def write_whole(file: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all; its directory is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)


def write_json(file: Path, found: object) -> None:
    """Write JSON for people, whole: equal values give equal bytes."""
    write_whole(file, json.dumps(found, indent=1) + "\n")


def read_object(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none, or it cannot be read."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None

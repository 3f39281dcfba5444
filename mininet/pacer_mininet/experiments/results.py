"""The directory of results: one program writes to it at a time."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


class BusyError(RuntimeError):
    """The results cannot be written, by us or now; the text says why."""


@contextlib.contextmanager
def results_directory(directory: Path) -> Iterator[None]:
    """Make the directory of the results, and have it to ourselves while the block runs.

    Raises:
        BusyError: another program has it, or it cannot be written.

    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Never removed: a program that comes next may hold it open already.
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
        yield

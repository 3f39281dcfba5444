"""Work in the network namespaces of hosts."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

CLONE_NEWNET = 0x40000000

Result = TypeVar("Result")


def in_namespace_of(pid: int, work: Callable[[], Result]) -> Result:
    """Call `work` in the network namespace of process `pid`; return what it returns.

    A socket stays in the namespace it was made in. The thread that goes there ends afterwards, so
    that no other thread of ours ever leaves its own.

    Raises:
        OSError: there is no such namespace, or we may not go there.
        Exception: what `work` raised.

    """
    results: list[Result] = []
    errors: list[Exception] = []

    def go_and_work() -> None:
        try:
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle, CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, f"setns: {os.strerror(number)}")
            finally:
                os.close(handle)
            results.append(work())
        except Exception as error:  # raised again by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=go_and_work, name="setns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

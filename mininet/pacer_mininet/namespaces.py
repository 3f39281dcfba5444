"""Calls functions in the network namespaces of hosts."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

CLONE_NEWNET = 0x40000000

Result = TypeVar("Result")


def in_namespace_of(pid: int, work: Callable[[], Result]) -> Result:
    """Call `work` in the network namespace of process `pid`; return its result.

    A socket stays in the namespace in which it was made. `work` runs in a thread of its own, which
    enters the namespace and then ends; no other thread leaves its namespace.

    Raises:
        OSError: there is no such namespace, or entering it is not allowed.
        Exception: any exception of `work`.

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
        except Exception as error:  # raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=go_and_work, name="setns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

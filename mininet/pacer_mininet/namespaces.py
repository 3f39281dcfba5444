"""Sockets in the network namespaces of hosts."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable

CLONE_NEWNET = 0x40000000


def socket_in_namespace_of(pid: int, make: Callable[[], socket.socket]) -> socket.socket:
    """Call `make` in the network namespace of `pid`; return the socket that it makes.

    A socket stays in the namespace it was made in. The thread that goes there ends afterwards, so
    that no other thread of ours ever leaves its own.

    Raises:
        OSError: there is no such namespace, we may not go there, or `make` raised it.

    """
    made: list[socket.socket] = []
    errors: list[OSError] = []

    def go_and_make() -> None:
        try:
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle, CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, f"setns: {os.strerror(number)}")
            finally:
                os.close(handle)
            made.append(make())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=go_and_make, name="setns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]

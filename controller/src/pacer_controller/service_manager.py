"""Notifies systemd of the controller's state (sd_notify(3)): ready, alive, ending."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping

PARTS = 3
"""Notifications that the event loop sends in systemd's watchdog time."""


def notify(message: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send a message to systemd, if it listens; an error is ignored."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
    ):
        # An address that begins with a zero byte is in no file system.
        sender.sendto(message.encode(), address.replace("@", "\0", 1))


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the time after which systemd restarts a silent process; None: it does not.

    Raises:
        ValueError: systemd's variables are no numbers.

    """
    wanted = environment.get("WATCHDOG_USEC")
    if wanted is None or int(environment.get("WATCHDOG_PID", os.getpid())) != os.getpid():
        return None
    return int(wanted) / 1_000_000


@contextlib.asynccontextmanager
async def told() -> AsyncIterator[None]:
    """Notify systemd at the start and at the end, and of the running event loop in between."""
    notify("READY=1")
    limit_s = watchdog_s()
    alive = None if limit_s is None else asyncio.create_task(_stay_alive(limit_s / PARTS))
    try:
        yield
    finally:
        notify("STOPPING=1")
        if alive is not None:
            alive.cancel()


async def _stay_alive(period_s: float) -> None:
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(period_s)

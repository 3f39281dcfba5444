"""Puts tasks of the simulated loop in the place of the product's threads with a loop of their own.

A task belongs to the process that starts it. So it stops with its process and its node, as a thread
does. Its steps and those of the process's other tasks come in the order in which they are ready.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

from pacer_controller.stores.etcd import client, leases, thread_channel


class TaskThread:
    """A task with the interface of a thread (`loop_thread.LoopThread`).

    Args:
        work: makes the coroutine of the task.
        name: the name of the task.

    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._work(), name=self._name)

    async def stop(self) -> None:
        """Cancel the task, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Have the product use tasks instead of threads while the block runs."""
    with (
        mock.patch.object(leases, "LoopThread", TaskThread),
        mock.patch.object(thread_channel, "connect", client.connect),
    ):
        yield

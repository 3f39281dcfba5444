"""Work on an event loop of its own, in a thread of its own, which a busy event loop does not delay.

The simulation puts a task of its own loop in the place of the thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """A thread with an event loop that runs one coroutine.

    Args:
        work: makes the coroutine; called in the thread.
        name: the name of the thread.

    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        # A daemon: it does not keep a process alive whose main thread ends by an error.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._running = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the work."""
        self._thread.start()
        self._running.wait()

    async def stop(self) -> None:
        """Cancel the work, and wait for its end."""
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._supervise())

    async def _supervise(self) -> None:
        """Run the work until its end; the loop is open until then."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._work(), name=self._thread.name)
        self._running.set()
        await asyncio.wait([self._task])

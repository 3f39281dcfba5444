"""An asyncio event loop on virtual time, which several simulated machines share.

A `Node` is a machine, a `Process` one life of the program on it. Every callback belongs to the
process in whose context it was made. The callbacks of one node run in the order in which asyncio
would run them; which node runs next is drawn from the seed. A callback of a process that has ended
is never run, so a process can end at each of its awaits; one of a node that is paused waits. Time
passes only when no node has anything to do.

Nothing here reads a real clock or opens a socket: two runs of one seed are equal to the byte.
"""

import asyncio
import contextlib
import contextvars
import hashlib
import heapq
import itertools
import math
import random
import struct
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import greenlet
from disk import Disk

EPOCH_S = 1_760_000_000.0
"""The wall clock when a simulation begins, in seconds since 1970."""

STORM = 2_000_000
"""More callbacks at one instant than this are taken for a loop without an end."""

NOTES = 4_000
"""Lines of the story that are kept."""


class SimulationError(Exception):
    """The simulation itself cannot go on; no finding about what it simulates."""


class Node:
    """A machine.

    Args:
        name: its host name.
        index: place in the digest.
        rate: seconds of its monotonic clock in one second of the simulation.

    Attributes:
        ready: callbacks that wait for their turn.
        paused: whether its programs stand still, as after SIGSTOP.
        powered: whether it is on; its kernel answers while it is.
        wall_s: the lead of its wall clock, in seconds.
        process: the process that runs there.
        disk: the disk of its files; None: it has none.

    """

    def __init__(self, name: str, index: int, rate: float = 1.0) -> None:
        self.name = name
        self.index = index
        self.rate = rate
        self.ready: deque[asyncio.Handle] = deque()
        self.paused = False
        self.powered = True
        self.wall_s = 0.0
        self.process: Process | None = None
        self.disk: Disk | None = None
        self.lives = 0
        self.fuse: tuple[int, Callable[[], None]] | None = None
        """The number of callbacks until an action on this node, and the action."""

    def __repr__(self) -> str:
        return self.name


class Process:
    """One life of the program of a node.

    Args:
        loop: the loop that runs it.
        node: the machine.

    """

    def __init__(self, loop: "SimulatedLoop", node: Node) -> None:
        self.loop = loop
        self.node = node
        self.alive = True
        node.lives += 1
        self.name = f"{node.name}#{node.lives}"
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        self.program: Any = None
        """The program that runs in it, for code that needs it."""
        self.at_end: list[Callable[[], None]] = []
        """Called when it ends: the kernel closes its connections."""
        node.process = self

    def __repr__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Begin a task in the process."""
        return self.context.copy().run(self.loop.create_task, work, name=name or self.name)

    def post(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have something called in the process when its turn comes."""
        if self.alive:
            self.loop.enqueue(_Handle(call, arguments, self.loop, self.context), self)

    def end(self) -> None:
        """End it at once; none of its code runs any more, not even `finally`."""
        if not self.alive:
            return
        self.alive = False
        # Kept until the simulation ends: were they freed, their coroutines would be closed, and
        # a process that is gone would run its `finally` blocks.
        tasks = asyncio.all_tasks(self.loop)
        self.loop.graves.extend(one for one in tasks if getattr(one, "process", None) is self)
        self.loop.graves.extend(self.node.ready)
        self.node.ready.clear()
        self.loop.idle(self.node)
        for call in self.at_end:
            call()
        if self.node.process is self:
            self.node.process = None


PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class _Handle(asyncio.Handle):
    """A callback, made in a third of the time: it keeps no traceback for a debug mode."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: "SimulatedLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task with a hash that is the same in each run: sets of tasks are walked in its order."""

    _numbers = itertools.count()

    def __init__(self, process: Process, *arguments: Any, **options: Any) -> None:
        self.process = process
        self._number = next(_Task._numbers)
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """A future with a hash that is the same in each run."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_Task._numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop.

    Args:
        seed: the seed of the order of nodes, and of the times of threads.

    """

    def __init__(self, seed: str) -> None:
        self.now_s = 0.0
        """Time since the beginning."""
        super().__init__()
        self.graves: list[Any] = []
        self.notes: deque[str] = deque(maxlen=NOTES)
        self.handles = 0
        """Callbacks that have run."""
        self.faults: list[dict[str, Any]] = []
        """The reports of asyncio: unhandled exceptions."""
        self._chance = random.Random(f"{seed}/order")
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, Any, tuple[Any, ...] | None]] = []
        self._runnable: list[Node] = []
        self._nodes: dict[str, Node] = {}
        self._threads: weakref.WeakKeyDictionary[Any, deque[Callable[[], None]]] = (
            weakref.WeakKeyDictionary()
        )
        """The call that the thread of an executor makes, followed by those that wait."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._over = False
        _Task._numbers = itertools.count()
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(lambda _, what: self._report(what))
        self.world = Process(self, self.node("world"))

    # ---- nodes ----

    def node(self, name: str, rate: float = 1.0) -> Node:
        """Return the node of a name, made if there is none."""
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = Node(name, len(self._nodes), rate)
        return found

    def pause(self, node: Node) -> None:
        """Stop a node's programs, as SIGSTOP does."""
        node.paused = True
        self.idle(node)

    def resume(self, node: Node) -> None:
        """Let a node's programs go on."""
        node.paused = False
        if node.ready and node not in self._runnable:
            self._runnable.append(node)

    def idle(self, node: Node) -> None:
        """Take a node from those that have something to do."""
        if node in self._runnable:
            self._runnable.remove(node)

    # ---- the story and its digest ----

    def note(self, text: str) -> None:
        """Add a line to the story."""
        self.notes.append(f"{self.now_s:10.6f} {text}")
        self._hash.update(text.encode())

    def mark(self, data: bytes) -> None:
        """Add bytes to the digest."""
        self._hash.update(data)

    @property
    def digest(self) -> str:
        """The digest of all that has happened."""
        return self._hash.hexdigest()

    def _report(self, what: dict[str, Any]) -> None:
        if not self._over:
            self.faults.append(what)

    # ---- asyncio's interface of a loop ----

    def time(self) -> float:
        """Return the monotonic clock of the calling process."""
        return self.now_s * PROCESS.get(self.world).node.rate if self.now_s else 0.0

    def wall(self) -> float:
        """Return the wall clock of the calling process."""
        return EPOCH_S + self.now_s + PROCESS.get(self.world).node.wall_s

    def asking(self) -> str:
        """Return the name of the process that runs at this moment."""
        return PROCESS.get(self.world).name

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a new future."""
        return _Future(loop=self)

    def _make_task(
        self,
        _: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        process = PROCESS.get(self.world) if context is None else context.get(PROCESS, self.world)
        return _Task(process, work, loop=self, context=context)

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Have a callback run in the turn of the process that it belongs to."""
        handle = _Handle(callback, args, self, context)
        process = PROCESS.get(self.world) if context is None else context.get(PROCESS, self.world)
        self.enqueue(handle, process)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def enqueue(self, handle: asyncio.Handle, process: Process) -> None:
        """Put a callback at the end of its node's line."""
        if self._over:
            return
        if not process.alive:
            self.graves.append(handle)
            return
        node = process.node
        if not node.ready and not node.paused:
            self._runnable.append(node)
        node.ready.append(handle)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have a callback run after a time of the caller's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have a callback run at a time of the caller's clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = PROCESS.get(self.world) if context is None else context.get(PROCESS, self.world)
        at_s = self.now_s
        if when > at_s * process.node.rate:
            # The quotient can round to now. A process that waits for it would then wait in vain.
            at_s = max(when / process.node.rate, math.nextafter(at_s, math.inf))
        heapq.heappush(self._timers, (at_s, next(self._numbers), handle, (process,)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the handle is dropped when its time comes."""

    def at(self, at_s: float, call: Callable[..., object], *arguments: Any) -> None:
        """Have the world do something at a time of the simulation; not in any process."""
        heapq.heappush(self._timers, (at_s, next(self._numbers), call, arguments))

    def after(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> None:
        """Have the world do something after a time of the simulation."""
        self.at(self.now_s + delay_s, call, *arguments)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Do a thread's work in a callback; calls of one executor run one after the other."""
        future = self.create_future()
        delay_s = self._chance.expovariate(1 / 0.001)
        process = PROCESS.get(self.world)
        line: deque[Callable[[], None]] = deque()
        if executor is not None:
            line = self._threads.setdefault(executor, line)

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)
            line.popleft()
            if line:
                line[0]()

        def run() -> None:
            thread = greenlet.greenlet(work)
            thread.gr_context = contextvars.copy_context()
            thread.switch()

        line.append(lambda: self.after(delay_s, process.post, run))
        if len(line) == 1:
            line[0]()
        return future

    def block(self, until: Callable[[Callable[[], None]], None]) -> None:
        """Let a thread wait while other callbacks run.

        Args:
            until: called with the function that ends the wait.

        """
        thread, process = greenlet.getcurrent(), PROCESS.get(self.world)
        assert thread.parent is not None, "the event loop itself would wait"
        over = False

        def wake() -> None:
            nonlocal over
            if not over:
                over = True
                process.post(thread.switch)

        # Kept to the end, as the tasks of a process that has ended are.
        self.graves.append(thread)
        until(wake)
        thread.parent.switch()

    def _process_events(self, _: Any) -> None:
        """Do nothing: there are none."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is none."""

    def _run_once(self) -> None:
        """Run callbacks until the loop is to stop."""
        chance, pack, runnable = self._chance.random, struct.Struct("<dI").pack, self._runnable
        update = self._hash.update
        at_once = 0
        while not self._stopping:  # type: ignore[attr-defined]
            if not runnable:
                before_s = self.now_s
                if not self._advance():
                    raise SimulationError("nobody will ever do anything again")
                if self.now_s > before_s:
                    at_once = 0
                continue
            node = runnable[int(chance() * len(runnable))] if len(runnable) > 1 else runnable[0]
            handle = node.ready.popleft()
            if not node.ready:
                runnable.remove(node)
            if handle._cancelled:
                continue
            self.handles += 1
            at_once += 1
            if at_once > STORM:
                raise SimulationError(f"{node} goes in circles with {handle}")
            update(pack(self.now_s, node.index))
            handle._run()
            if node.fuse is not None:
                left, call = node.fuse
                node.fuse = (left - 1, call) if left > 1 else None
                if node.fuse is None:
                    call()

    def _advance(self) -> bool:
        """Go on to the next time at which something happens; returns whether there is one."""
        while self._timers:
            at_s, _, call, arguments = heapq.heappop(self._timers)
            if isinstance(call, asyncio.TimerHandle):
                if call.cancelled():
                    continue
                self.now_s = at_s
                assert arguments is not None
                self.enqueue(call, arguments[0])
            else:
                self.now_s = at_s
                call(*(arguments or ()))
            if self._runnable:
                return True
        return False

    def finish(self) -> None:
        """End everything; objects that are freed from now on do nothing."""
        self._over = True
        for node in self._nodes.values():
            if node.process is not None:
                node.process.alive = False
            node.ready.clear()
        self._timers.clear()
        self._runnable.clear()
        self.graves.clear()
        with contextlib.suppress(RuntimeError):
            self.close()


@contextlib.contextmanager
def entered(process: Process) -> Iterator[None]:
    """Make tasks and callbacks that the block begins belong to a process."""
    token = PROCESS.set(process)
    try:
        yield
    finally:
        PROCESS.reset(token)

"""gRPC over the simulated network, under the unchanged Python layer of grpc.aio.

grpc.aio is a thin layer over `cygrpc`, its C core. `installed` puts a core of the simulation in its
place: channels that connect through `network`, with gRPC's states, back-off, deadlines, keepalives
and status codes. So clients that use grpc.aio run as they are. Servers are functions of the
simulation (`Server`).

The core's behaviour is modelled on grpc 1.8x: src/core/client_channel, and
src/python/grpcio/grpc/_cython/_cygrpc/aio/call.pyx.pxi.
"""

import asyncio
import contextlib
import itertools
import types
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import grpc
from grpc._cython import cygrpc
from grpc.aio import _channel
from loop import PROCESS, Process
from network import Endpoint, Network

IDLE, CONNECTING, READY, FAILURE, SHUTDOWN = range(5)

HANDSHAKE_S = 20.0
"""Time for connecting where `grpc.min_reconnect_backoff_ms` says nothing."""

BACKOFF_FIRST_S, BACKOFF_MOST_S, BACKOFF_GROWTH = 1.0, 120.0, 1.6

Metadata = tuple[tuple[str, Any], ...]


def _status(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> Any:
    return cygrpc.AioRpcStatus(code.value[0], details, trailing, details)


class Core:
    """A replacement of `cygrpc` in grpc.aio's channels.

    Args:
        network: the network that they use.

    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.asked: Callable[[Process, str, str, str], None] = lambda *_: None
        """Told of each call when it is made: process, target, method, phase."""

    def channel(self, target: bytes, options: Any, credentials: Any, loop: Any) -> "AioChannel":
        """Return a new channel."""
        return AioChannel(self, target.decode(), dict(options))


@contextlib.contextmanager
def installed(core: Core) -> Iterator[None]:
    """Have grpc.aio use the simulation's core while the block runs."""
    names = {name: getattr(cygrpc, name) for name in dir(cygrpc) if not name.startswith("__")}
    names |= {"AioChannel": core.channel, "get_working_loop": asyncio.get_running_loop}
    with mock.patch.object(_channel, "cygrpc", types.SimpleNamespace(**names)):
        yield


class AioChannel:
    """A channel (`cygrpc.AioChannel`)."""

    def __init__(self, core: Core, target: str, options: dict[Any, Any]) -> None:
        def option_s(name: str, default_s: float) -> float:
            return float(options.get(f"grpc.{name}_ms", default_s * 1000)) / 1000

        self.core = core
        self.host = target
        self.process = PROCESS.get()
        self._loop: Any = asyncio.get_running_loop()
        self._connect_s = option_s("min_reconnect_backoff", HANDSHAKE_S)
        self._most_s = option_s("max_reconnect_backoff", BACKOFF_MOST_S)
        self._first_s = min(option_s("initial_reconnect_backoff", BACKOFF_FIRST_S), self._most_s)
        every_s = option_s("keepalive_time", float("inf"))
        self._keepalive = (every_s, option_s("keepalive_timeout", 20.0))
        self._backoff_s = self._first_s
        self.state = IDLE
        self.end: Endpoint | None = None
        self._waiting: list[AioCall] = []
        self.calls: dict[int, AioCall] = {}
        self._numbers = itertools.count(1)
        self._watchers: list[asyncio.Future[Any]] = []
        self._closing = False
        self._attempt = 0
        self._why = "connecting"

    def target(self) -> bytes:
        """Return the target of the channel."""
        return self.host.encode()

    def closing(self) -> None:
        """Take no new calls."""
        self._closing = True

    def closed(self) -> bool:
        """Whether it is closed."""
        return self.state == SHUTDOWN

    def close(self) -> None:
        """Close it; calls that go on are cancelled."""
        self._closing = True
        if self.state == SHUTDOWN:
            return
        for call in [*self._waiting, *self.calls.values()]:
            call.finish(_status(grpc.StatusCode.CANCELLED, "Channel closed!"))
        self._waiting.clear()
        end, self.end = self.end, None
        self._become(SHUTDOWN)
        if end is not None:
            end.close()

    def get_registered_call_handle(self, _: bytes) -> int:
        """Return a handle of a method."""
        return 0

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        """Return the state."""
        if try_to_connect and self.state == IDLE:
            self._connect()
        return self.state

    async def watch_connectivity_state(self, last: int, _: float | None) -> bool:
        """Wait until the state is another."""
        while self.state == last:
            future = self._loop.create_future()
            self._watchers.append(future)
            await future
        return True

    def call(
        self, method: bytes, deadline: float | None, _: Any, wait_for_ready: bool | None, __: int
    ) -> "AioCall":
        """Return a new call."""
        if self._closing:
            raise cygrpc.UsageError("Channel is closed.")
        left_s = None if deadline is None else deadline - self._loop.wall()
        name = method.decode()
        self.core.asked(self.process, self.host, name, "made")
        return AioCall(self, name, left_s, bool(wait_for_ready))

    # ---- connecting ----

    def _become(self, state: int) -> None:
        self.state = state
        watchers, self._watchers = self._watchers, []
        for future in watchers:
            if not future.done():
                future.set_result(None)

    def _connect(self) -> None:
        self._become(CONNECTING)
        self._attempt += 1
        attempt, given_up = self._attempt, False

        def opened(end: Endpoint) -> None:
            if attempt != self._attempt or self.state != CONNECTING or given_up:
                end.close()
                return
            # Ready when the server has spoken: its settings come first.
            end.received = greeted
            end.broken = failed
            self.end = end
            end.send(("hello", b""))

        def greeted(_: Any) -> None:
            end = self.end
            if attempt != self._attempt or self.state != CONNECTING or end is None:
                return
            end.received, end.broken = self._received, self._broken
            if self._keepalive[0] != float("inf"):
                end.keepalive = self._keepalive
                self.core.network.suspect()
            self._backoff_s = self._first_s
            self._become(READY)
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                self._start(call)

        def failed(reason: str) -> None:
            nonlocal given_up
            if attempt != self._attempt or self.state != CONNECTING or given_up:
                return
            given_up = True
            end, self.end = self.end, None
            if end is not None:
                end.close()
            self._why = f"failed to connect to {self.host}: {reason}"
            self._become(FAILURE)
            waiting = [call for call in self._waiting if not call.wait_for_ready]
            self._waiting = [call for call in self._waiting if call.wait_for_ready]
            for call in waiting:
                call.finish(_status(grpc.StatusCode.UNAVAILABLE, self._why))
            self._loop.call_later(self._backoff_s, again)
            self._backoff_s = min(self._backoff_s * BACKOFF_GROWTH, self._most_s)

        def again() -> None:
            if attempt == self._attempt and self.state == FAILURE:
                self._become(IDLE)
                if self._waiting:
                    self._connect()

        self._loop.call_later(max(self._connect_s, self._backoff_s), failed, "timed out")
        self.core.network.connect(self.host, opened, failed)

    def _broken(self, reason: str) -> None:
        if self.state == SHUTDOWN:
            return
        self.end = None
        self._become(IDLE)
        for call in list(self.calls.values()):
            call.finish(_status(grpc.StatusCode.UNAVAILABLE, reason))

    # ---- calls ----

    def attach(self, call: "AioCall") -> None:
        """Send a call as soon as there is a connection, or fail it."""
        if self.state == READY:
            self._start(call)
            return
        if self.state == FAILURE and not call.wait_for_ready:
            call.finish(_status(grpc.StatusCode.UNAVAILABLE, self._why))
            return
        self._waiting.append(call)
        if self.state == IDLE:
            self._connect()

    def _start(self, call: "AioCall") -> None:
        number = next(self._numbers)
        self.calls[number] = call
        call.begin(number)

    def detach(self, call: "AioCall") -> None:
        """Forget a call that has ended."""
        if call in self._waiting:
            self._waiting.remove(call)
        if call.number:
            self.calls.pop(call.number, None)

    def send(self, *message: Any) -> None:
        """Send to the server."""
        if self.end is not None:
            self.end.send(message)

    def _received(self, message: Any) -> None:
        kind, number, *rest = message
        call = self.calls.get(number)
        if call is not None:
            call.take(kind, *rest)


class AioCall:
    """A call (`cygrpc._AioCall`)."""

    def __init__(
        self, channel: AioChannel, method: str, left_s: float | None, wait_for_ready: bool
    ) -> None:
        self._channel = channel
        self._loop: Any = asyncio.get_running_loop()
        self.method = method
        self.wait_for_ready = wait_for_ready
        self.number = 0
        self._status: Any = None
        self._initial_metadata: Any = None
        self._local = False
        self._begun = self._loop.create_future()
        """Whether there is a connection."""
        self._spoken = self._loop.create_future()
        """Done when the server has answered something."""
        self._inbox: deque[bytes] = deque()
        self._ending: Any = None
        """The status from the server, until all it sent before has been taken."""
        self._waiters: list[asyncio.Future[Any]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._timer = None
        if left_s is not None:
            expired = _status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            self._timer = self._loop.call_later(max(0.0, left_s), self._expire, expired)

    # ---- from the channel ----

    def begin(self, number: int) -> None:
        """Go on, now that there is a connection."""
        self.number = number
        if not self._begun.done():
            self._begun.set_result(True)

    def take(self, kind: str, *rest: Any) -> None:
        """Take a message of the server."""
        if not self._spoken.done():
            self._spoken.set_result(None)
        if kind == "data":
            self._inbox.append(rest[-1])
            self._wake()
        elif kind == "status":
            code, details, trailing, _ = rest
            self._ending = _status(code, details, trailing)
            self._wake()
            if not self._inbox:
                self.finish(self._ending)

    def _expire(self, status: Any) -> None:
        self._tell_server()
        self.finish(status)

    def _tell_server(self) -> None:
        if self.number and self._status is None:
            self._channel.send("cancel", self.number, b"")

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def finish(self, status: Any) -> None:
        """End the call."""
        if self._status is not None:
            return
        self._status = status
        self._initial_metadata = self._initial_metadata or ()
        if self._timer is not None:
            self._timer.cancel()
        self._channel.detach(self)
        for future in (self._begun, self._spoken):
            if not future.done():
                future.set_result(None)
        self._wake()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    # ---- from grpc.aio ----

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._status is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._status is not None and self._status.code() == 1

    def is_locally_cancelled(self) -> bool:
        """Whether it was cancelled here."""
        return self._local

    def is_ok(self) -> bool:
        """Whether it ended well."""
        return self._status is not None and self._status.code() == 0

    def cancel(self, details: str) -> None:
        """End it from here."""
        self._local = True
        self._tell_server()
        if self._status is None:
            status = _status(grpc.StatusCode.CANCELLED, details)
            # As C core does: the status is an event of the next round.
            self._loop.call_soon(self.finish, status)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Have something called at the end."""
        if self.done():
            callback()
        else:
            self._callbacks.append(callback)

    def time_remaining(self) -> float | None:
        """Return nothing, since no caller uses it."""
        return None

    def set_internal_error(self, text: str) -> None:
        """End it with an error of this side."""
        self.finish(_status(grpc.StatusCode.INTERNAL, text))

    async def status(self) -> Any:
        """Wait for the end."""
        while self._status is None:
            await self._wait()
        return self._status

    async def initial_metadata(self) -> Any:
        """Wait for the initial metadata."""
        await self._shielded(self._spoken)
        return self._initial_metadata or ()

    async def _wait(self) -> None:
        future = self._loop.create_future()
        self._waiters.append(future)
        await future

    async def _shielded(self, future: "asyncio.Future[Any]") -> Any:
        return await asyncio.shield(future) if not future.done() else future.result()

    async def _open(self, metadata: Any, request: bytes | None) -> bool:
        self._channel.attach(self)
        begun = await self._shielded(self._begun)
        if begun and self._status is None:
            self._channel.send("call", self.number, self.method, tuple(metadata), request or b"")
            return True
        return False

    async def _message(self) -> bytes | None:
        while not self._inbox:
            if self._status is not None:
                return None
            if self._ending is not None:
                self.finish(self._ending)
                return None
            await self._wait()
        message = self._inbox.popleft()
        if self._ending is not None and not self._inbox:
            self.finish(self._ending)
        return message

    async def unary_unary(self, request: bytes, metadata: Any, _: Any) -> bytes | None:
        """Make a call with one request and one answer."""
        if self._status is None:
            await self._open(metadata, request)
        message = await self._message()
        await self.status()
        return message

    async def initiate_unary_stream(self, request: bytes, metadata: Any, _: Any) -> None:
        """Begin a call with one request and many answers."""
        if self._status is None:
            await self._open(metadata, request)
        await self._shielded(self._spoken)

    async def initiate_stream_stream(
        self, metadata: Any, observer: Callable[[], None], _: Any
    ) -> None:
        """Begin a call with many requests and many answers."""
        if self._status is None:
            await self._open(metadata, None)
        observer()
        await self._shielded(self._spoken)

    async def receive_serialized_message(self) -> Any:
        """Wait for the next answer."""
        message = await self._message()
        return cygrpc.EOF if message is None else message

    async def send_serialized_message(self, message: bytes) -> None:
        """Send the next request."""
        if self._status is not None:
            raise cygrpc.InternalError("the call has ended")
        self._channel.send("more", self.number, message)
        await asyncio.sleep(0)

    async def send_receive_close(self) -> None:
        """Send that there is no further request."""
        self._channel.send("half", self.number, b"")


# ---- servers ----


class AbortError(Exception):
    """The error that a method answers instead of a message."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> None:
        super().__init__(details)
        self.code, self.details, self.trailing = code, details, trailing


class ServerCall:
    """A call at the server.

    Attributes:
        client: the process that made it.
        metadata: the metadata that came with it.
        ended: whether it is over, for any reason.
        at_end: called at the end.

    """

    def __init__(self, end: Endpoint, number: int, metadata: Metadata, request_type: Any) -> None:
        self._end = end
        self._number = number
        self._type = request_type
        assert end.other is not None
        self.client = end.other.process
        self.metadata = dict(metadata)
        self.ended = False
        self.inbox: deque[Any] = deque()
        self._half = False
        self._waiter: asyncio.Future[Any] | None = None
        self.at_end: list[Callable[[], object]] = []

    def send(self, message: Any) -> None:
        """Send a message, unless it is over."""
        if not self.ended:
            self._end.send(("data", self._number, message.SerializeToString()))

    def more(self, data: bytes) -> None:
        """Take a request."""
        self.inbox.append(self._type.FromString(data))
        self._wake()

    def half(self) -> None:
        """Note that there is no further request."""
        self._half = True
        self._wake()

    async def requests(self) -> AsyncIterator[Any]:
        """Yield the requests."""
        while True:
            while self.inbox:
                yield self.inbox.popleft()
            if self._half or self.ended:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def finish(
        self,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        details: str = "",
        trailing: Metadata = (),
    ) -> None:
        """End it, and say so."""
        if not self.ended:
            self._end.send(("status", self._number, code, details, trailing, b""))
            self.lost()

    def lost(self) -> None:
        """End it without a word."""
        if not self.ended:
            self.ended = True
            self._wake()
            for call in self.at_end:
                call()


Unary = Callable[[Any, ServerCall], Awaitable[Any]]
Stream = Callable[[ServerCall], Awaitable[None]]


class Server:
    """Serves methods at a port of the process that makes it.

    Args:
        network: the network that it serves.
        port: the port.
        unary: methods with one answer, by name: request type and function.
        streams: methods with many answers, by name: request type and function.
        keepalive: time until a silent client is asked for a sign of life, and for its answer.

    """

    def __init__(
        self,
        network: Network,
        port: int,
        unary: Mapping[str, tuple[Any, Unary]],
        streams: Mapping[str, tuple[Any, Stream]],
        keepalive: tuple[float, float] | None = None,
    ) -> None:
        self._unary, self._streams, self._keepalive = unary, streams, keepalive
        self._process = PROCESS.get()
        self._ends: dict[Endpoint, dict[int, ServerCall]] = {}
        network.listen(self._process, port, self._accept)

    def _accept(self, end: Endpoint) -> None:
        calls: dict[int, ServerCall] = {}
        end.keepalive = self._keepalive
        self._ends[end] = calls

        def received(message: Any) -> None:
            kind, *rest = message
            if kind == "call":
                self._begin(end, calls, *rest)
            elif kind != "hello" and (call := calls.get(rest[0])) is not None:
                if kind == "more":
                    call.more(rest[1])
                elif kind == "half":
                    call.half()
                else:
                    call.lost()

        def broken(_: str) -> None:
            self._ends.pop(end, None)
            for call in list(calls.values()):
                call.lost()

        end.received, end.broken = received, broken
        end.send(("settings", 0, b""))

    def end_connections(self) -> None:
        """Break all connections."""
        for end in list(self._ends):
            end.lose("connection reset")

    def _begin(
        self,
        end: Endpoint,
        calls: dict[int, ServerCall],
        number: int,
        method: str,
        metadata: Metadata,
        data: bytes,
    ) -> None:
        name = method.rpartition("/")[2]
        found = self._unary.get(name) or self._streams.get(name)
        call = ServerCall(end, number, metadata, found[0] if found is not None else None)
        if found is None:
            call.finish(grpc.StatusCode.UNIMPLEMENTED, f"no method {method}")
            return
        calls[number] = call
        call.at_end.append(lambda: calls.pop(number, None))
        if name in self._unary:
            work = self._answer(self._unary[name][1], call, found[0].FromString(data))
        else:
            if data:
                call.more(data)
                call.half()
            work = self._serve(self._streams[name][1], call)
        self._process.spawn(work, f"{self._process.name} {name}")

    async def _answer(self, method: Unary, call: ServerCall, request: Any) -> None:
        try:
            answer = await method(request, call)
        except AbortError as error:
            call.finish(error.code, error.details, error.trailing)
        else:
            call.send(answer)
            call.finish()

    async def _serve(self, method: Stream, call: ServerCall) -> None:
        try:
            await method(call)
        except AbortError as error:
            call.finish(error.code, error.details, error.trailing)
        else:
            call.finish()

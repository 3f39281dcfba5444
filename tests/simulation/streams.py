"""Byte streams of the simulated network, for the protocols of Open vSwitch.

OpenFlow uses `asyncio.open_connection`, and OVSDB uses `ovs.stream.Stream`, on which a thread waits
(`SimulatedLoop.block`). The parsers above them are the real ones.
"""

import asyncio
import contextlib
import errno
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import ovs.json
import ovs.poller
import ovs.stream
import ovs.timeval
from loop import PROCESS, SimulatedLoop
from network import Endpoint, Network

Sent = Callable[[Any, str, bytes], None]
"""Called with the sending process, the name of the receiving node, and the bytes."""

BLOCK_MOST_MS = 60_000
"""Longest wait without a limit of its own."""


class _Writer:
    """The part of `asyncio.StreamWriter` that is used."""

    def __init__(self, end: Endpoint, sent: Sent) -> None:
        self._end = end
        self._sent = sent

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._sent(self._end.process, self._end.peer.name, data)
        self._end.send((data,))

    def close(self) -> None:
        """End the connection."""
        self._end.close()


class _Stream:
    """Stands for `ovs.stream.Stream`."""

    def __init__(self, loop: SimulatedLoop, name: str, sent: Sent) -> None:
        self.name = name
        self._loop = loop
        self._sent = sent
        self._end: Endpoint | None = None
        self._input: deque[bytes] = deque()
        self._error: int | None = None
        """Number of the error that ended the connection; 0: the peer has closed it."""
        self._closed = False
        self._wake: Callable[[], None] = lambda: None

    def opened(self, end: Endpoint) -> None:
        """Take the connection."""
        if self._closed:
            end.close()
            return
        self._end = end
        end.received, end.broken = self._received, self.failed
        self._wake()

    def failed(self, reason: str) -> None:
        """Note the end of the connection, or of the attempt."""
        self._error = 0 if reason == "closed by peer" else errno.ECONNRESET
        self._wake()

    def _received(self, message: Any) -> None:
        self._input.append(message[0])
        self._wake()

    @property
    def connected(self) -> bool:
        """Whether the connection was made."""
        return self._end is not None

    @property
    def ready(self) -> bool:
        """Whether there is something to be read, or the connection has ended."""
        return bool(self._input) or self._error is not None or self._closed

    def wait(self, timeout_ms: float) -> None:
        """Let the thread wait until the stream is ready, for a limited time."""

        def until(wake: Callable[[], None]) -> None:
            self._wake = wake
            delay_s = timeout_ms / 1000 / PROCESS.get().node.rate
            self._loop.after(max(0.0, delay_s), wake)

        self._loop.block(until)
        self._wake = lambda: None

    # ---- calls of ovs.jsonrpc ----

    def send(self, data: Any) -> int:
        """Send; returns how many bytes, or the negative number of an error."""
        if self._end is None or not self._end.open:
            return -errno.EPIPE
        encoded = data.encode() if isinstance(data, str) else data
        self._sent(self._end.process, self._end.peer.name, encoded)
        self._end.send((encoded,))
        return len(encoded)

    def recv(self, _: int) -> tuple[int, bytes]:
        """Return an error's number, and bytes; none where the other end has closed.

        The whole of what came at once is returned, so that the parser can take it at once.
        """
        if not self._input:
            return (errno.EAGAIN if self._error is None else self._error), b""
        return 0, self._input.popleft()

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        if self._end is not None:
            self._end.close()
        self._wake()

    def run(self) -> None:
        """Do nothing."""

    def run_wait(self, _: Any) -> None:
        """Do nothing."""

    def send_wait(self, poller: "_Poller") -> None:
        """Wait no longer: everything is sent at once."""
        poller.immediate_wake()

    def recv_wait(self, poller: "_Poller") -> None:
        """Wait until there is something to be read."""
        poller.streams.append(self)


@contextlib.contextmanager
def _quick_parser() -> Iterator[None]:
    """Read whole messages with Python's `json` while the block runs: in a tenth of the time.

    The real parser reads all other input: messages in pieces, and invalid ones.
    """
    real: Any = ovs.json.Parser
    feed, is_done, finish = real.feed, real.is_done, real.finish
    decode = json.JSONDecoder().raw_decode

    def feed_quickly(self: Any, text: str) -> Any:
        if "begun" not in self.__dict__:
            self.begun = True
            with contextlib.suppress(ValueError):
                message, end = decode(text)
                if isinstance(message, dict):
                    self.message = message
                    return end
        return feed(self, text)

    with (
        mock.patch.object(real, "feed", feed_quickly),
        mock.patch.object(real, "is_done", lambda self: hasattr(self, "message") or is_done(self)),
        mock.patch.object(
            real, "finish", lambda self: getattr(self, "message", None) or finish(self)
        ),
    ):
        yield


class _Poller:
    """Stands for `ovs.poller.Poller`."""

    def __init__(self) -> None:
        self.streams: list[_Stream] = []
        self._timeout_ms: float = BLOCK_MOST_MS

    def immediate_wake(self) -> None:
        """Wait for nothing."""
        self._timeout_ms = 0

    def timer_wait_until(self, at_ms: float) -> None:
        """Wait until then at most."""
        self._timeout_ms = min(self._timeout_ms, at_ms - ovs.timeval.msec())

    def block(self) -> None:
        """Wait."""
        if self._timeout_ms > 0 and not any(one.ready for one in self.streams):
            (stream,) = self.streams
            stream.wait(self._timeout_ms)


@contextlib.contextmanager
def installed(loop: SimulatedLoop, network: Network, sent: Sent) -> Iterator[None]:
    """Route byte streams through a simulated network while the block runs.

    Args:
        loop: the simulation's loop.
        network: the network.
        sent: called with all bytes that a controller sends.

    """

    async def open_connection(host: str, port: int) -> tuple[asyncio.StreamReader, _Writer]:
        reader = asyncio.StreamReader(loop=loop)
        made: asyncio.Future[Endpoint] = loop.create_future()

        def opened(end: Endpoint) -> None:
            if made.done():
                end.close()
                return
            end.received, end.broken = lambda message: reader.feed_data(message[0]), broken
            made.set_result(end)

        def broken(reason: str) -> None:
            if reason == "closed by peer":
                reader.feed_eof()
            else:
                reader.set_exception(ConnectionResetError(errno.ECONNRESET, reason))

        def failed(reason: str) -> None:
            if not made.done():
                made.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, reason))

        network.connect(f"{host}:{port}", opened, failed)
        return reader, _Writer(await made, sent)

    def open_stream(name: str) -> tuple[int, _Stream]:
        stream = _Stream(loop, name, sent)
        network.connect(name.removeprefix("tcp:"), stream.opened, stream.failed)
        return 0, stream

    def open_block(opened: tuple[int, _Stream], timeout_ms: float) -> tuple[int, _Stream | None]:
        _, stream = opened
        if not stream.connected and not stream.ready:
            stream.wait(timeout_ms)
        if stream.connected:
            return 0, stream
        error = errno.ECONNREFUSED if stream.ready else errno.ETIMEDOUT
        stream.close()
        return error, None

    with (
        mock.patch.object(asyncio, "open_connection", open_connection),
        mock.patch.object(ovs.stream.Stream, "open", open_stream),
        mock.patch.object(ovs.stream.Stream, "open_block", open_block),
        mock.patch.object(ovs.poller, "Poller", _Poller),
        _quick_parser(),
    ):
        yield

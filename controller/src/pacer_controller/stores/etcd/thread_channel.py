"""Channels for an event loop in a thread of its own.

grpc.aio has one queue of events for all event loops of a process, and wakes each loop for every
event (grpc 1.8x: src/python/grpcio/grpc/_cython/_cygrpc/aio/completion_queue.pyx.pxi). A second
loop would wake for each message of the first one, compete for the interpreter's lock, and pass the
event on. So these channels use gRPC's synchronous interface, and wait in threads of the loop's
executor.
"""

import asyncio
import queue
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio


class ThreadChannel:
    """The part of `grpc.aio.Channel` that `client.EtcdClient` uses.

    Args:
        channel: the channel that carries the calls.

    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary_unary(self, *method: Any, **settings: Any) -> Callable[..., Awaitable[Any]]:
        """Return a function that makes calls with one request and one answer."""
        call = self._channel.unary_unary(*method, **settings)

        def made(request: Any, *, timeout: float, metadata: Any = None) -> Awaitable[Any]:
            return asyncio.to_thread(call, request, timeout=timeout, metadata=metadata)

        return made

    def stream_stream(self, *method: Any, **settings: Any) -> Callable[..., "_Stream"]:
        """Return a function that begins calls with many requests and answers."""
        call = self._channel.stream_stream(*method, **settings)
        return lambda *, metadata: _Stream(call, metadata)

    async def close(self) -> None:
        """Close it; calls that go on are cancelled, so that no thread of the executor waits."""
        self._channel.close()


class _Stream:
    """A call with many requests and answers (`grpc.aio.StreamStreamCall`)."""

    def __init__(self, call: Any, metadata: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = call(iter(self._requests.get, None), metadata=metadata)

    async def write(self, request: Any) -> None:
        """Send a request."""
        self._requests.put(request)

    async def read(self) -> Any:
        """Return the next answer, or `grpc.aio.EOF` at the end."""
        return await asyncio.to_thread(next, self._call, grpc.aio.EOF)

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()
        self._requests.put(None)


def connect(
    endpoint: str, credentials: grpc.ChannelCredentials | None, options: Sequence[tuple[str, Any]]
) -> ThreadChannel:
    """Return a channel; without credentials, it does not use TLS."""
    if credentials is None:
        return ThreadChannel(grpc.insecure_channel(endpoint, options=options))
    return ThreadChannel(grpc.secure_channel(endpoint, credentials, options=options))

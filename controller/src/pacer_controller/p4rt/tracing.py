"""Traces of packets, from switches that have the service `pacer.v1.PacketTracing`."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from pacer_controller import packet_tracing
from pacer_controller.southbound import (
    FilterInstruction,
    SwitchUnreadableError,
    TracingRefusedError,
)
from pacer_controller.switch_services import ServiceUnavailableError


class SwitchTracing:
    """The traces of packets of one switch (`southbound.Tracing`).

    Args:
        channel: the connection to the switch.

    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def dry_run(self, port: int, frame: bytes) -> dict[str, Any]:
        """Return the trace that a frame would have (`southbound.Tracing.dry_run`)."""
        with _told():
            return await packet_tracing.dry_run(self._channel, port, frame)

    async def watch(
        self, port: int | None, instructions: Sequence[FilterInstruction], count: int
    ) -> AsyncIterator[tuple[dict[str, Any], int]]:
        """Yield traces of packets that come in (`southbound.Tracing.watch`)."""
        with _told():
            async for found in packet_tracing.watch(self._channel, port, instructions, count):
                yield found


@contextmanager
def _told() -> Iterator[None]:
    """Turn the errors of the service into those of drivers."""
    try:
        yield
    except ServiceUnavailableError as error:
        if error.refused or error.code in _REFUSALS:
            raise TracingRefusedError(str(error)) from None
        gone = error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        raise SwitchUnreadableError(str(error), gone=gone) from None


_REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
)

"""Client of the switch's own gRPC service, `pacer.v1.PacketTracing`: traces of packets."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc.aio

from pacer_controller.southbound import FilterInstruction
from pacer_controller.switch_services import call, stream

_TIMEOUT_S = 5.0
_SERVICE = "PacketTracing"


async def dry_run(channel: grpc.aio.Channel, port: int, frame: bytes) -> dict[str, Any]:
    """Return the trace that a frame would have if it came in at a port now, in JSON form.

    The members are those of `switch/proto/packet_trace.proto`, with numbers of 64 bits as numbers.

    Raises:
        ServiceUnavailableError: no answer, no such service, or refused.

    """
    answer = await call(channel, _SERVICE, "DryRun", _TIMEOUT_S, port=port, frame=frame)
    return _plain(answer.trace)


async def watch(
    channel: grpc.aio.Channel,
    port: int | None,
    instructions: Sequence[FilterInstruction],
    count: int,
) -> AsyncIterator[tuple[dict[str, Any], int]]:
    """Yield traces of packets that come in from now on, as `dry_run` returns them.

    Beside each is the number of packets that have been skipped since the one before.

    Args:
        channel: the connection to the switch.
        port: only packets that come in there.
        instructions: the filter that accepts the packets; empty: all packets.
        count: the number of traces.

    Raises:
        ServiceUnavailableError: no answer, no such service, or refused.

    """
    fields: dict[str, Any] = {
        "filter": [instruction._asdict() for instruction in instructions],
        "count": count,
    }
    if port is not None:
        fields["port"] = port
    async for answer in stream(channel, _SERVICE, "Watch", **fields):
        yield _plain(answer.trace), answer.skipped


def _plain(message: Any) -> dict[str, Any]:
    """Return a message in protobuf's JSON form, with the names of its fields and with numbers."""
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return [_one(field, item) for item in value]
    return _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value

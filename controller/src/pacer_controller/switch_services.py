"""Calls of the switch's own gRPC services, whose interfaces are in `switch/proto`.

Their messages are made at run time from the interfaces. So there is no generated code in the
repository, and a checkout always uses the interfaces from which its switch is built.
"""

import asyncio
import functools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

_PACKAGE = "pacer.v1"
_PROTOS = ("traffic_manager.proto", "packet_tracing.proto")


class ServiceUnavailableError(Exception):
    """A service did not answer, or not as asked.

    Attributes:
        code: gRPC's code of the error.
        unimplemented: whether the switch lacks this service.
        refused: whether it answered that the request is wrong.

    """

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code
        self.unimplemented = code == grpc.StatusCode.UNIMPLEMENTED
        self.refused = code in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.UNIMPLEMENTED,
        )


def proto_directory() -> Path:
    """Return the directory of the interfaces: the checkout's, else the package's own copy."""
    here = Path(__file__).resolve()
    candidates = [here.parent / "proto"]
    if len(here.parents) > 3:
        candidates.insert(0, here.parents[3] / "switch" / "proto")
    for directory in candidates:
        if all((directory / name).is_file() for name in _PROTOS):
            return directory
    raise FileNotFoundError(f"{', '.join(_PROTOS)} in none of: {', '.join(map(str, candidates))}")


@functools.cache
def messages() -> dict[str, Any]:
    """Compile the interfaces; return message classes by name without package."""
    directory = proto_directory()
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch) / "descriptors"
        status = protoc.main(
            [
                "protoc",
                f"-I{directory}",
                "--include_imports",
                f"--descriptor_set_out={descriptors}",
                *_PROTOS,
            ]
        )
        if status != 0:
            raise RuntimeError(f"{', '.join(_PROTOS)} in {directory} do not compile")
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    # A pool of its own, so that files of the same name in other packages do not collide.
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    names = [message.name for file in files.file for message in file.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in names
    }


def _refusal(method: str, error: grpc.aio.AioRpcError) -> ServiceUnavailableError:
    text = f"{method}: {error.code().name}: {error.details()}"
    return ServiceUnavailableError(text, error.code())


def _closed(method: str) -> ServiceUnavailableError:
    """Return the error of a call whose connection was closed.

    Closing the connection cancels the calls on it. This must not end the task that waits for one,
    unless the task itself was cancelled.

    Raises:
        asyncio.CancelledError: the task was cancelled.

    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    return ServiceUnavailableError(f"{method}: connection closed", grpc.StatusCode.CANCELLED)


async def call(
    channel: grpc.aio.Channel, service: str, method: str, timeout_s: float, **fields: Any
) -> Any:
    """Call a method and return its answer.

    Raises:
        ServiceUnavailableError: no answer, no such service, or refused.

    """
    request = messages()[f"{method}Request"](**fields)
    unary = channel.unary_unary(
        f"/{_PACKAGE}.{service}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=messages()[f"{method}Response"].FromString,
    )
    try:
        return await unary(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        raise _refusal(method, error) from None
    except (grpc.aio.UsageError, asyncio.CancelledError):
        raise _closed(method) from None


async def stream(
    channel: grpc.aio.Channel, service: str, method: str, **fields: Any
) -> AsyncIterator[Any]:
    """Call a method and return its answers as they come.

    Raises:
        ServiceUnavailableError: as `call`.

    """
    request = messages()[f"{method}Request"](**fields)
    unary = channel.unary_stream(
        f"/{_PACKAGE}.{service}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=messages()[f"{method}Response"].FromString,
    )
    answers = unary(request)
    try:
        async for answer in answers:
            yield answer
    except grpc.aio.AioRpcError as error:
        raise _refusal(method, error) from None
    except (grpc.aio.UsageError, asyncio.CancelledError):
        raise _closed(method) from None
    finally:
        answers.cancel()

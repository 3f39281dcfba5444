"""A client without rights that asks a server for all it can, until it is killed; not a test itself.

    flood_client.py HOST:PORT [notifications|p4runtime|rest|thrift]

Prints a line once each kind of request has been answered, refused or cut off.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

LIMIT_S = 5
ANNOUNCED_BYTES = 60 << 20
PROGRAM_BYTES = 8 << 20
KINDS = 7
WATCH = b"\x18\x01"
"""A WatchRequest for one packet."""

SUBSCRIBER = b"\0SP\0\0\x21\0\0"
"""A subscriber's greeting in nanomsg's protocol."""

CONNECTIONS = {"notifications": 0, "p4runtime": 64, "rest": 64, "thrift": 12}
"""Connections that are held in silence. Notifications admit no stranger. Thrift's server has 16 for
all strangers, and each call of this client has one of its own."""


def p4runtime_calls(address: str) -> Iterator[Callable[[], object]]:
    """Calls of each kind to a switch, again and again."""
    channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
    stub = p4r_grpc.P4RuntimeStub(channel)
    election_id = p4r.Uint128(high=1 << 63, low=0)
    bid = p4r.MasterArbitrationUpdate(device_id=0, election_id=election_id)
    stream = p4r.StreamMessageRequest(arbitration=bid)
    write = p4r.WriteRequest(election_id=election_id, updates=[p4r.Update()] * 1000)
    read = p4r.ReadRequest(entities=[p4r.Entity(table_entry=p4r.TableEntry())])
    config = p4r.ForwardingPipelineConfig(p4_device_config=bytes(ANNOUNCED_BYTES))
    push = p4r.SetForwardingPipelineConfigRequest(election_id=election_id, config=config)
    pull = p4r.GetForwardingPipelineConfigRequest()
    watch: Any = channel.unary_stream("/pacer.v1.PacketTracing/Watch")
    yield from itertools.cycle(
        [
            lambda: list(stub.StreamChannel(iter([stream]), timeout=LIMIT_S)),
            lambda: stub.Write(write, timeout=LIMIT_S),
            lambda: list(stub.Read(read, timeout=LIMIT_S)),
            lambda: stub.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S),
            lambda: stub.SetForwardingPipelineConfig(push, timeout=LIMIT_S),
            lambda: stub.GetForwardingPipelineConfig(pull, timeout=LIMIT_S),
            lambda: list(watch(WATCH, timeout=LIMIT_S)),
        ]
    )


def rest_calls(address: str) -> Iterator[Callable[[], object]]:
    """Requests of each kind to a controller, again and again."""
    whose = {"Authorization": "Bearer nobody"}
    body = b"{" * (1 << 20)

    def ask(
        method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] = whose
    ) -> None:
        connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
        with contextlib.closing(connection):
            connection.request(method, path, content, headers)
            connection.getresponse().read()

    yield from itertools.cycle(
        [
            lambda: ask("GET", "/v1/state"),
            lambda: ask("PUT", "/v1/state", body),
            lambda: ask("GET", "/v1/events/stream", headers={}),
            lambda: ask("GET", "/healthz", headers={"X-Padding": "a" * 60_000}),
            lambda: ask("PUT", "/v1/state", b"", {"Content-Length": str(ANNOUNCED_BYTES)}),
        ]
    )


def send_alone(address: str, message: bytes) -> None:
    """Send bytes over a connection of their own, and wait for an answer or the connection's end."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        connection.sendall(message)
        # The beginning of the answer; nothing if the connection is closed.
        connection.recv(1 << 16)


def thrift_call(function: str, *arguments: bytes) -> bytes:
    """Encode a call in Thrift's binary protocol."""
    name = f"standard:{function}".encode()
    head = b"\x80\x01\0\x01" + len(name).to_bytes(4, "big") + name + bytes(4)
    return head + b"".join(arguments) + b"\0"


def thrift_text(number: int, text: bytes) -> bytes:
    """Encode an argument that is a string."""
    return b"\x0b" + number.to_bytes(2, "big") + len(text).to_bytes(4, "big") + text


def thrift_calls(address: str) -> Iterator[Callable[[], object]]:
    """Calls of each kind to a switch by BMv2's Thrift interface, again and again."""
    context = b"\x08\0\x01" + bytes(4)
    table = thrift_text(2, b"PacerIngress.forward")
    ask = partial(send_alone, address)
    program = thrift_call("bm_load_new_config", thrift_text(1, bytes(PROGRAM_BYTES)))
    yield from itertools.cycle(
        [
            lambda: ask(thrift_call("bm_mgmt_get_info")),
            lambda: ask(thrift_call("bm_mt_get_entries", context, table)),
            lambda: ask(thrift_call("bm_reset_state")),
            lambda: ask(program),
            lambda: ask(b"GET / HTTP/1.1\r\n\r\n"),
        ]
    )


def notifications_calls(address: str) -> Iterator[Callable[[], object]]:
    """Subscriptions to a switch's notifications, again and again."""
    yield from itertools.repeat(partial(send_alone, address, SUBSCRIBER))


CALLS = {
    "notifications": notifications_calls,
    "p4runtime": p4runtime_calls,
    "rest": rest_calls,
    "thrift": thrift_calls,
}


def silent_connections(address: str, count: int) -> list[socket.socket]:
    """Open as many connections, and say nothing on them."""
    host, _, port = address.rpartition(":")
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((host, int(port)), LIMIT_S))
    return held


def churn(address: str) -> None:
    """Connect again and again."""
    host, _, port = address.rpartition(":")
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), LIMIT_S).close()


def main() -> None:
    """Ask until killed."""
    address, *given = sys.argv[1:]
    kind = given[0] if given else "p4runtime"
    held: list[socket.socket] = []
    for number, call in enumerate(CALLS[kind](address)):
        with contextlib.suppress(grpc.RpcError, OSError, http.client.HTTPException):
            call()
        if number == KINDS:
            # Not before, because they would take the places that the calls need.
            held += silent_connections(address, CONNECTIONS[kind])
            threading.Thread(target=churn, args=[address], daemon=True).start()
            print("at it", flush=True)


if __name__ == "__main__":
    main()

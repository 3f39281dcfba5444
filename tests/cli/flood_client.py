"""A client without rights that asks a server for all it can, until it is killed; not a test itself.

    flood_client.py HOST:PORT [p4runtime|rest]

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

import grpc
from finsy.proto import p4r, p4r_grpc

LIMIT_S = 5
ANNOUNCED_BYTES = 60 << 20
CONNECTIONS = 64
KINDS = 5


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
    yield from itertools.cycle(
        [
            lambda: list(stub.StreamChannel(iter([stream]), timeout=LIMIT_S)),
            lambda: stub.Write(write, timeout=LIMIT_S),
            lambda: list(stub.Read(read, timeout=LIMIT_S)),
            lambda: stub.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S),
            lambda: stub.SetForwardingPipelineConfig(push, timeout=LIMIT_S),
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


CALLS = {"p4runtime": p4runtime_calls, "rest": rest_calls}


def silent_connections(address: str) -> list[socket.socket]:
    """Open more connections than an address may have, and say nothing on them."""
    host, _, port = address.rpartition(":")
    held: list[socket.socket] = []
    while len(held) < CONNECTIONS:
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
    address, *kind = sys.argv[1:]
    calls = CALLS[kind[0] if kind else "p4runtime"]
    held: list[socket.socket] = []
    for number, call in enumerate(calls(address)):
        with contextlib.suppress(grpc.RpcError, OSError, http.client.HTTPException):
            call()
        if number == KINDS:
            # Not before, because they would take the places that the calls need.
            held += silent_connections(address)
            threading.Thread(target=churn, args=[address], daemon=True).start()
            print("at it", flush=True)


if __name__ == "__main__":
    main()

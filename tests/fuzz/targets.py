"""The fuzz targets of the controller.

Each takes any bytes and returns. An exception that is not the part's own error is a finding.
`fuzz.py` looks for new inputs, `test_corpus.py` replays the ones that are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import ovs.jsonrpc
from os_ken.ofproto import ofproto_v1_3 as ofp
from pacer_controller.openvswitch.openflow import OpenFlow, OpenFlowError
from pacer_controller.openvswitch.ovsdb import Database, OvsdbError
from pacer_controller.rows import METERS, Change, Op, row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "controller"))
from rest_client import Client

# os-ken logs each message that it cannot read, with a trace.
logging.getLogger("os_ken").setLevel(logging.CRITICAL)

TURNS = 8
"""Of the event loop, after which a message has been dealt with."""

RECORD_BYTES = 4
"""Of a record's head: version, type, and two bytes of length."""

QUEUE = {"max-rate": "1000000"}


# ---- OpenFlow --------------------------------------------------------------------------------


def records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Return version, type and body of the messages that the bytes stand for."""
    at = 0
    while len(data) - at >= RECORD_BYTES:
        version, kind = data[at], data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big") % (65_536 - ofp.OFP_HEADER_SIZE)
        yield version, kind, data[at + 4 : at + 4 + length]
        at += 4 + length


class Bridge:
    """The other end of an OpenFlow connection: answers messages with the records, in order.

    The answer to a message has its number. Where a record is no answer, as a greeting or the first
    part of one, the next record follows on its own.
    """

    def __init__(self, reader: asyncio.StreamReader, data: bytes) -> None:
        self._reader = reader
        self._records = records(data)
        self._number = bytes(4)

    def write(self, request: bytes) -> None:
        """Take a message."""
        self._number = request[4:8]

    async def answer(self) -> None:
        """Send all records, each when the one before has been dealt with; then end."""
        for version, kind, body in self._records:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            length = (ofp.OFP_HEADER_SIZE + len(body)).to_bytes(2, "big")
            self._reader.feed_data(bytes((version, kind)) + length + self._number + body)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._reader.feed_eof()

    def close(self) -> None:
        """End the connection."""


async def _openflow(data: bytes) -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    bridge: Any = Bridge(reader, data)
    meter = row(METERS, {"meter": 1}, "drop", {"rate": 1, "burst_size": 1}, owner="a meter")
    answering = asyncio.create_task(bridge.answer())
    async with OpenFlow.over(reader, bridge) as connection:
        calls: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
            lambda: connection.become_master(7),
            connection.read_flows,
            connection.read_meters,
            connection.queue_counters,
            connection.port_counters,
            lambda: connection.write([Change(Op.INSERT, meter)]),
            connection.echo,
        )
        for call in calls:
            with contextlib.suppress(OpenFlowError):
                await call()
    await answering


def openflow(data: bytes) -> None:
    """Have a bridge answer the controller's OpenFlow messages with these."""
    with contextlib.suppress(OpenFlowError):
        asyncio.run(_openflow(data))


# ---- OVSDB -----------------------------------------------------------------------------------


class Answers:
    """A connection to a database that answers each request with the next line."""

    def __init__(self, data: bytes) -> None:
        self._lines = iter(data.splitlines())
        self._asked: Any = None

    def send(self, message: Any) -> int:
        """Take a request."""
        self._asked = message.id
        return 0

    def recv(self) -> tuple[int, Any]:
        """Return the next line as the answer, or the end of the connection."""
        for line in self._lines:
            try:
                result = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(result, dict) and "method" in result:
                # A message of the server's own.
                error = ovs.jsonrpc.Message.from_json(result)
                if isinstance(error, str):
                    continue
                return 0, error
            return 0, ovs.jsonrpc.Message.create_reply(result, self._asked)
        return -1, None

    def close(self) -> None:
        """End the connection."""


def ovsdb(data: bytes) -> None:
    """Have a database answer the controller's requests with these lines of JSON."""
    database = Database("unix:/nonexistent", "br0", "fuzz")
    database._connection = Answers(data)
    database._paces = data[:1] == b"{"
    calls: tuple[Callable[[], Any], ...] = (
        lambda: database.lock(steal=True),
        lambda: database.fence(7),
        database.qos_type,
        lambda: database.sync("linux-htb", {1: QUEUE}, {1: QUEUE}, kept=[2]),
        database.read,
        database.probe,
    )
    for call in calls:
        with contextlib.suppress(OvsdbError):
            call()


# ---- REST ------------------------------------------------------------------------------------

METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")
AWAY = ("/bandwidth", "/readyz", "/stream")
"""Paths with an honest 5xx while the switch is away, and streams, which do not end."""

_CLIENT: list[Client] = []


def rest(data: bytes) -> None:
    """Make a request: its method and path are the first line, the rest is the body."""
    if not _CLIENT:
        _CLIENT.append(Client())
    first, _, body = data.partition(b"\n")
    method, _, path = first.decode("latin-1").partition(" ")
    if method not in METHODS or not path.startswith("/") or any(end in path for end in AWAY):
        return
    try:
        answer = _CLIENT[0].call(method, path, content=body)
    except httpx.InvalidURL:
        return
    assert answer.status_code < 500, f"{first!r}: {answer.status_code} {answer.text}"


TARGETS: dict[str, Callable[[bytes], None]] = {"openflow": openflow, "ovsdb": ovsdb, "rest": rest}

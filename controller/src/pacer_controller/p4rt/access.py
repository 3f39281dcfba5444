"""Reading and writing rows, counters and registers over one P4Runtime connection."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import finsy as fy
import grpc.aio
from finsy.proto import p4r

from pacer_controller import entries
from pacer_controller.p4rt import errors
from pacer_controller.rows import CLASSES, PORTS, Change, Key, Op, Row
from pacer_controller.southbound import Count, Refusal, SwitchUnreadableError

_LOG = logging.getLogger(__name__)

WRITE_BATCH = 500
"""Updates in one WriteRequest: well under gRPC's 4 MB message limit."""

READ_BATCH = 1000
"""Entities in one ReadRequest."""

CLASS_COUNTERS = {
    "accepted": "PacerIngress.class_accepted",
    "limit_dropped": "PacerIngress.class_limit_drops",
    "red_dropped": "PacerIngress.class_red_drops",
    "ce_marked": "PacerIngress.class_ce_marks",
}

CLASS_CLOCK = ("PacerIngress.clock_ns", "PacerIngress.clock_frac")
"""Registers of the time at which a class may next send: whole nanoseconds, and 2^-24 of one."""

CLASS_FLOWS = {
    "rtt_ns": "PacerIngress.class_rtt_ns",
    "in_flight_bytes": "PacerIngress.class_in_flight_bytes",
}
"""Registers with the last state of a class's TCP flows."""

_DROPS = "PacerIngress.drops"

DROP_CAUSES = {
    1: "parser-error",
    3: "class-limit",
    4: "meter-red",
    6: "same-port",
}
"""Cells of the `drops` counter of `pacer.p4`."""

_HOLD_DROPS = "PacerEgress.hold_drops"
"""Counter of the program for stock BMv2: packets dropped because it can hold no more."""

HOLD_LIMIT = "hold-limit"


async def read(switch: fy.Switch, query: Sequence[Any]) -> AsyncIterator[Any]:
    """Read entities; finsy's own signature is one of coroutines, which it does not return."""
    answers: Any = switch.read(query)
    async for entity in answers:
        yield entity


async def read_table(
    switch: fy.Switch, schema: fy.P4Schema, table: str, *, meters: bool = False
) -> list[Row]:
    """Return a table's entries, the default one left out."""
    query = fy.P4TableEntry(table)
    if meters:
        # Asking for a direct resource: set it in the query (P4Runtime 9.1.4).
        query.meter_config = fy.P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0)
    return [
        entries.from_finsy(entry, schema)
        async for entry in read(switch, [query])
        if not entry.is_default_action
    ]


async def write(switch: fy.Switch, pending: Sequence[Change]) -> list[Refusal]:
    """Write changes of table entries in order; return the refusals.

    Raises:
        fy.P4ClientError: the connection is gone; it is unknown which changes were made.

    """
    refused: list[Refusal] = []
    for start in range(0, len(pending), WRITE_BATCH):
        batch = pending[start : start + WRITE_BATCH]
        try:
            await switch.write([_update(change) for change in batch])
        except fy.P4ClientError as error:
            if errors.gone(error):
                raise
            refused += errors.refusals(error, batch)
    return refused


def _update(change: Change) -> fy.P4TableEntry:
    if change.op is Op.DELETE:
        return -entries.identity_to_finsy(change.row)
    entry = entries.to_finsy(change.row)
    return +entry if change.op is Op.INSERT else ~entry


async def reset_classes(switch: fy.Switch, classes: Iterable[int]) -> None:
    """Set counters and clock of new classes to zero, since a former class may have used the index.

    A clock ahead of the present time is gap that the former class owed; the new one owes nothing.
    """
    fresh = list(classes)
    counters = [
        ~fy.P4CounterEntry(counter, index=index, data=fy.P4CounterData())
        for index in fresh
        for counter in CLASS_COUNTERS.values()
    ]
    clocks = [
        ~fy.P4RegisterEntry(register, index=index, data=0)
        for index in fresh
        for register in CLASS_CLOCK
    ]
    await _reset(switch, "clocks", clocks)
    await _reset(switch, "counters", counters)


async def _reset(switch: fy.Switch, what: str, updates: Sequence[Any]) -> None:
    """Write resets of cells. A class is accepted even if the switch cannot write them."""
    try:
        for start in range(0, len(updates), WRITE_BATCH):
            await switch.write(updates[start : start + WRITE_BATCH])
    except fy.P4ClientError as error:
        if errors.gone(error):
            raise
        # Stock BMv2 writes no registers (docs/bmv2.md), so this is not worth a warning.
        level = logging.DEBUG if errors.unimplemented(error) else logging.WARNING
        _LOG.log(level, "%s: %s not reset: %s", switch.name, what, errors.describe(error))


def new_classes(pending: Iterable[Change]) -> list[int]:
    """Return the indices of the classes that changes create."""
    return [
        int(value)
        for change in pending
        if change.op is Op.INSERT and change.row.table == CLASSES
        for name, value in change.row.match
        if name == "class_id" and isinstance(value, int)
    ]


def split_ports(pending: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return changes of table entries, and changes of ports' settings."""
    ports = [change for change in pending if change.row.table == PORTS]
    return [change for change in pending if change.row.table != PORTS], ports


class ConnectionClosedError(Exception):
    """The connection was closed at this side during a request."""


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Turn all errors of a connection closed within the block into one exception.

    Raises:
        ConnectionClosedError: it was closed; it is unknown which changes were made.

    """
    try:
        yield
    except (AssertionError, grpc.aio.UsageError) as error:
        # finsy asserts, and gRPC complains, when the connection is closed in between.
        raise ConnectionClosedError("connection closed") from error
    except asyncio.CancelledError as error:
        # Closing the connection cancels the calls on it, which must not cancel the caller.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionClosedError("connection closed") from error


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        with connected():
            yield
    except fy.P4ClientError as error:
        raise SwitchUnreadableError(errors.describe(error), gone=errors.gone(error)) from error
    except ConnectionClosedError as error:
        raise SwitchUnreadableError(str(error), gone=True) from error


async def _read_all(switch: fy.Switch, query: Sequence[object]) -> AsyncIterator[Any]:
    with _reading():
        for start in range(0, len(query), READ_BATCH):
            async for entry in read(switch, query[start : start + READ_BATCH]):
                yield entry


def _count(data: fy.P4CounterData | None) -> Count:
    return Count() if data is None else Count(data.packet_count, data.byte_count)


@dataclass(frozen=True)
class Counters:
    """The counters of a switch.

    Attributes:
        classes: by short name and class index.
        drops: the program's drops by cause.
        flows: by flow entry.

    """

    classes: Mapping[str, Mapping[int, Count]]
    drops: Mapping[str, Count]
    flows: Mapping[Key, Count]


async def counters(switch: fy.Switch, schema: fy.P4Schema, classes: Sequence[int]) -> Counters:
    """Read the counters of some classes, of all flows, and of drops, in one request if they fit.

    Raises:
        SwitchUnreadableError: the switch did not answer.

    """
    short = {schema.counters[name].id: label for label, name in CLASS_COUNTERS.items()}
    query: list[object] = [
        fy.P4CounterEntry(n, index=i) for i in classes for n in CLASS_COUNTERS.values()
    ]
    query += [fy.P4CounterEntry(_DROPS, index=index) for index in DROP_CAUSES]
    if _HOLD_DROPS in {counter.name for counter in schema.counters}:
        query.append(fy.P4CounterEntry(_HOLD_DROPS, index=0))
    query.append(fy.P4TableEntry(entries.FLOWS, counter_data=fy.P4CounterData()))
    of_classes: dict[str, dict[int, Count]] = {label: {} for label in CLASS_COUNTERS}
    drops: dict[str, Count] = {}
    flows: dict[Key, Count] = {}
    drop_number = schema.counters[_DROPS].id
    async for entry in _read_all(switch, query):
        if isinstance(entry, fy.P4TableEntry):
            if not entry.is_default_action:
                flows[entries.from_finsy(entry, schema).key] = _count(entry.counter_data)
            continue
        number = schema.counters[entry.counter_id].id
        if number in short:
            of_classes[short[number]][entry.index] = _count(entry.data)
        elif number == drop_number:
            drops[DROP_CAUSES[entry.index]] = _count(entry.data)
        else:
            drops[HOLD_LIMIT] = _count(entry.data)
    return Counters(of_classes, drops, flows)


async def registers(
    switch: fy.Switch, schema: fy.P4Schema, name: str, indices: Iterable[int]
) -> dict[int, int] | None:
    """Return register cells by index; None when the switch does not read registers."""
    number = schema.registers[name].id
    query = [
        p4r.Entity(register_entry=p4r.RegisterEntry(register_id=number, index=p4r.Index(index=i)))
        for i in indices
    ]
    result: dict[int, int] = {}
    try:
        async for entry in _read_all(switch, query):
            result[entry.index] = int(entry.data)
    except SwitchUnreadableError as error:
        cause = error.__cause__
        if isinstance(cause, fy.P4ClientError) and errors.unimplemented(cause):
            return None
        raise
    return result

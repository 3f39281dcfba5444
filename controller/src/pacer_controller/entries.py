"""Resources to table entries and back: what the switch should hold, and how to get there.

Everything here is pure. A `Row` is one table entry in canonical form, whatever it came from, so
that "what is wanted" and "what was read back" compare by value; `changes` lists the writes that
turn one into the other, and there are no others: applying one request and mending a whole
switch are the same computation.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import finsy as fy

from pacer_controller import rates
from pacer_controller.schemas import (
    ETHER_TYPE_IPV4,
    ETHER_TYPE_IPV6,
    ClassSpec,
    FlowSpec,
    MatchSpec,
)
from pacer_controller.store import ClassRecord, Desired, FlowRecord

FLOOD_GROUP = 1
"""Multicast group of all ports."""

FLOOD_AND_LEARN_GROUP = 2
"""Multicast group of all ports and the CPU port."""

CLASSES = "PacerIngress.classes"
FLOWS = "PacerIngress.flows"
FORWARD = "PacerIngress.forward"
SOURCES = "PacerIngress.sources"
WIRE = "GtrcnetIngress.wire"
MONITOR = "GtrcnetIngress.monitor"

UNCLASSIFIED = 0
"""Class of packets that no flow matches, and of flows that only meter; never paced."""

_IPV4_MAPPED = 0xFFFF << 32

_WIDTHS = {
    "ingress_port": 9,
    "ether_type": 16,
    "vlan_id": 12,
    "src_addr": 128,
    "dst_addr": 128,
    "dscp": 6,
    "protocol": 8,
    "src_port": 16,
    "dst_port": 16,
}
"""Ternary keys of `flows`, in the order of the program."""

MatchValue = int | tuple[int, int]
"""An exact value, or value and mask."""

Key = tuple[str, tuple[tuple[str, MatchValue], ...], int]
"""What identifies an entry: table, match, priority."""


@dataclass(frozen=True)
class Row:
    """One table entry in canonical form.

    Attributes:
        table: full name of the table.
        match: fields by name, sorted; don't-care fields are left out.
        priority: 0 for tables without ternary keys.
        action: full name of the action.
        params: parameters by name, sorted.
        meter: (cir, cburst, pir, pburst) of the direct meter in bytes/s and bytes, or None.
        owner: the resource it comes from, for messages; no part of its value.

    """

    table: str
    match: tuple[tuple[str, MatchValue], ...]
    priority: int
    action: str
    params: tuple[tuple[str, int], ...]
    meter: tuple[int, int, int, int] | None = None
    owner: str = field(default="", compare=False)

    @property
    def key(self) -> Key:
        """What identifies the entry in the switch."""
        return (self.table, self.match, self.priority)


Rows = dict[Key, Row]


class Op(Enum):
    """What is done to an entry."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """One write."""

    op: Op
    row: Row


def row(
    table: str,
    match: Mapping[str, MatchValue],
    action: str,
    params: Mapping[str, int] | None = None,
    **rest: Any,
) -> Row:
    """Make a row; match and parameters may come in any order."""
    return Row(
        table,
        tuple(sorted(match.items())),
        rest.pop("priority", 0),
        f"{table.partition('.')[0]}.{action}",
        tuple(sorted((params or {}).items())),
        **rest,
    )


def class_row(index: int, spec: ClassSpec, owner: str) -> Row:
    """Return the entry of `classes` for a class."""
    if spec.rate is None:
        return row(CLASSES, {"class_id": index}, "unpaced", owner=owner)
    allowance_ns = spec.allowance_ns
    if allowance_ns is None:
        allowance_ns = rates.default_allowance_ns(spec.rate)
    params = {
        "time_per_byte_q24": rates.time_per_byte_q24(spec.rate),
        "limit_bytes": spec.limit_bytes,
        "allowance_ns": allowance_ns,
    }
    return row(CLASSES, {"class_id": index}, "paced_static", params, owner=owner)


def address_key(prefix: str) -> tuple[int, int]:
    """Return value and mask of an address key; IPv4 is ::ffff:a.b.c.d, RFC 4291 section 2.5.5.2."""
    network = ipaddress.ip_network(prefix)
    value, length = int(network.network_address), network.prefixlen
    if network.version == 4:
        value, length = _IPV4_MAPPED | value, 96 + length
    mask = ((1 << length) - 1) << (128 - length)
    return value & mask, mask


def match_keys(match: MatchSpec) -> dict[str, MatchValue]:
    """Return the keys of `flows` for a match.

    An address also fixes the EtherType: the address keys of packets that are not IP are zero,
    which a short IPv6 prefix would match.
    """
    exact: dict[str, int | None] = {
        "ingress_port": match.ingress_port,
        "ether_type": match.ether_type,
        "vlan_id": match.vlan,
        "dscp": match.dscp,
        "protocol": match.protocol,
        "src_port": match.src_port,
        "dst_port": match.dst_port,
    }
    family = match.family()
    if family is not None:
        exact["ether_type"] = ETHER_TYPE_IPV4 if family == 4 else ETHER_TYPE_IPV6
    keys: dict[str, MatchValue] = {
        name: (value, (1 << _WIDTHS[name]) - 1)
        for name, value in exact.items()
        if value is not None
    }
    for name, prefix in (("src_addr", match.src), ("dst_addr", match.dst)):
        if prefix is not None:
            value, mask = address_key(prefix)
            # P4Runtime 9.1.1: a don't-care field is left out, never sent with an empty mask.
            if mask != 0:
                keys[name] = (value, mask)
    return keys


def flow_row(spec: FlowSpec, class_index: int, owner: str) -> Row:
    """Return the entry of `flows` for a flow."""
    meter = spec.meter
    params = {"class_id": class_index, "drop_red": 0, "mark": 0, "yellow_dscp": 0, "red_dscp": 0}
    rates_of_meter = None
    if meter is not None:
        params["drop_red"] = int(meter.drop_red)
        params["mark"] = int(meter.marks)
        params["yellow_dscp"] = meter.yellow_dscp or 0
        params["red_dscp"] = meter.red_dscp or 0
        rates_of_meter = (
            rates.bytes_per_second(meter.cir),
            meter.cburst_bytes,
            rates.bytes_per_second(meter.pir_bps),
            meter.pburst_bytes,
        )
    return row(
        FLOWS,
        match_keys(spec.match),
        "classify",
        params,
        priority=spec.priority,
        meter=rates_of_meter,
        owner=owner,
    )


def class_owner(name: str) -> str:
    """Name a class in messages."""
    return f"class {name!r}"


def flow_owner(name: str) -> str:
    """Name a flow in messages."""
    return f"flow {name!r}"


def class_record_rows(record: ClassRecord) -> list[Row]:
    """Return the entries of a class."""
    return [class_row(record.index, record.spec, class_owner(record.name))]


def flow_record_rows(record: FlowRecord, classes: Mapping[str, ClassRecord]) -> list[Row]:
    """Return the entries of a flow, its private class included."""
    owner = flow_owner(record.name)
    private = record.spec.private_class()
    if private is not None and record.private_index is not None:
        return [
            class_row(record.private_index, private, owner),
            flow_row(record.spec, record.private_index, owner),
        ]
    index = UNCLASSIFIED
    if record.spec.class_name is not None:
        index = classes[record.spec.class_name].index
    return [flow_row(record.spec, index, owner)]


def by_key(rows: Iterable[Row]) -> Rows:
    """Index rows by key."""
    return {entry.key: entry for entry in rows}


def desired_rows(desired: Desired) -> Rows:
    """Return all entries of `classes` and `flows` that the switch should hold, by name.

    The order counts where flows of the same priority overlap, since the entry that is older wins:
    it must not depend on what the flows went through before.
    """
    rows: Rows = {}
    for _, record in sorted(desired.classes.items()):
        rows.update(by_key(class_record_rows(record)))
    for _, flow in sorted(desired.flows.items()):
        rows.update(by_key(flow_record_rows(flow, desired.classes)))
    return rows


def changes(current: Rows, wanted: Rows) -> list[Change]:
    """Return the fewest writes from `current` to `wanted`, in an order that is safe throughout.

    Classes come before the flows that use them and go after them; a flow whose match changes is
    inserted anew before the old entry goes, so no packet falls between.
    """
    ordered: list[tuple[int, Change]] = []
    for key, entry in wanted.items():
        old = current.get(key)
        if old is None:
            ordered.append((_rank(entry, Op.INSERT), Change(Op.INSERT, entry)))
        elif old != entry:
            ordered.append((_rank(entry, Op.MODIFY), Change(Op.MODIFY, entry)))
    for key, entry in current.items():
        if key not in wanted:
            ordered.append((_rank(entry, Op.DELETE), Change(Op.DELETE, entry)))
    ordered.sort(key=lambda item: item[0])
    return [change for _, change in ordered]


def _rank(entry: Row, op: Op) -> int:
    if op is Op.DELETE:
        return 3 if entry.table == CLASSES else 2
    return 0 if entry.table == CLASSES else 1


def to_finsy(entry: Row) -> fy.P4TableEntry:
    """Return the finsy form of a row."""
    meter = None
    if entry.meter is not None:
        cir, cburst, pir, pburst = entry.meter
        meter = fy.P4MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)
    return fy.P4TableEntry(
        entry.table,
        match=fy.P4TableMatch(entry.match),
        action=fy.P4TableAction(entry.action, **dict(entry.params)),
        priority=entry.priority,
        meter_config=meter,
    )


def identity_to_finsy(entry: Row) -> fy.P4TableEntry:
    """Return what identifies a row, in finsy form: all that a DELETE may carry."""
    return fy.P4TableEntry(entry.table, match=fy.P4TableMatch(entry.match), priority=entry.priority)


def from_finsy(entry: fy.P4TableEntry, schema: fy.P4Schema) -> Row:
    """Return the row of an entry that was read back."""
    table = schema.tables[entry.table_id]
    match: dict[str, MatchValue] = {}
    for name, value in (entry.match or {}).items():
        match[name] = tuple(int(v) for v in value) if isinstance(value, tuple) else int(value)  # type: ignore[assignment]
    action, params = "", {}
    if isinstance(entry.action, fy.P4TableAction):
        action = schema.actions[entry.action.name].name
        params = {name: int(value) for name, value in entry.action.args.items()}
    meter = entry.meter_config
    return Row(
        table.name,
        tuple(sorted(match.items())),
        entry.priority,
        action,
        tuple(sorted(params.items())),
        _meter_of(meter),
        "entry of unknown origin",
    )


_UNLIMITED = (2**63 - 1, 2**32)


def _meter_of(meter: fy.P4MeterConfig | None) -> tuple[int, int, int, int] | None:
    """Return a meter's four numbers; a default meter, which marks all green, is None.

    Servers show a meter without rates as absent, as all zero, or as rates no link can reach
    (P4Runtime 9.3).
    """
    if meter is None or meter.cir == 0 or meter.cir >= _UNLIMITED[1]:
        return None
    return (meter.cir, meter.cburst, meter.pir, meter.pburst)

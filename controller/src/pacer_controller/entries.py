"""Translates resources to the P4 program's table entries, and entries to rows; all pure."""

import ipaddress
from collections.abc import Mapping

import finsy as fy

from pacer_controller import egress_queues, rates
from pacer_controller.egress_queues import EgressQueuesSpec
from pacer_controller.fields import (
    DEFAULT_HEADROOM_PERCENT,
    DEFAULT_THRESHOLD_NS,
    DEFAULT_TICK_HZ,
    ETHER_TYPE_IPV4,
    ETHER_TYPE_IPV6,
    port_range,
)
from pacer_controller.measured import MeasuredFlowSpec
from pacer_controller.records import (
    ClassRecord,
    Desired,
    FlowRecord,
    MeterRecord,
    PortRecord,
    Record,
)
from pacer_controller.rows import CLASSES, PORTS, MatchValue, Row, owner_of, row
from pacer_controller.schemas import (
    GAP_FRAME_MAX_BYTES,
    PAUSE_FRAMES,
    ClassSpec,
    FlowSpec,
    MatchSpec,
    MeterSpec,
)

FLOOD_GROUP = 1
"""Multicast group of all ports."""

FLOOD_AND_LEARN_GROUP = 2
"""Multicast group of all ports and the CPU port."""

FLOWS = "PacerIngress.flows"
FORWARD = "PacerIngress.forward"
SOURCES = "PacerIngress.sources"
WIRE = "GtrcnetIngress.wire"
MONITOR = "GtrcnetIngress.monitor"
MEASURED_FLOWS = "GtrcnetIngress.flows"

MODE_ACTIONS = {
    "unpaced": "PacerIngress.unpaced",
    "static": "PacerIngress.paced_static",
    "ipg": "PacerIngress.paced_ipg",
    "timer": "PacerIngress.paced_timer",
    "pspd": "PacerIngress.paced_pspd",
    "dynamic": "PacerIngress.paced_dynamic",
    "slow-start": "PacerIngress.paced_slow_start",
    "clustered": "PacerIngress.paced_clustered",
    "shared": "PacerIngress.paced_shared",
}
"""Modes of classes, and the action that a program must have for them."""

SLOT_ACTIONS = {
    "static": "PacerIngress.paced_static_in_slot",
    "pspd": "PacerIngress.paced_pspd_in_slots",
    "dynamic": "PacerIngress.paced_dynamic_in_slots",
}
"""Modes whose classes can have slots, and the action that a program must have for them."""

FOLLOWING_ACTIONS = frozenset(
    actions[mode]
    for actions in (MODE_ACTIONS, SLOT_ACTIONS)
    for mode in ("pspd", "dynamic", "slow-start", "clustered", "shared")
    if mode in actions
)
"""Actions of modes whose TCP flows the program always follows."""

CONTROLLED_ACTION = "PacerIngress.paced_static_controlled"
"""A program that has it can mark packets by queue length, and lower receive windows."""

UNCLASSIFIED = 0
"""Class of packets that no flow matches, and of flows that only meter; never paced."""

MAX_FLOW_ENTRIES = 256
"""Most entries that one flow's ranges of ports may need."""

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


def class_row(index: int, spec: ClassSpec, owner: str) -> Row:
    """Return the entry of `classes` for a class."""
    action, params = class_action(spec)
    return row(CLASSES, {"class_id": index}, action, params, owner=owner)


def class_action(spec: ClassSpec) -> tuple[str, dict[str, int]]:
    """Return the program's action for a class, and its parameters."""
    if spec.mode == "unpaced":
        return "unpaced", {}
    pace = {
        "time_per_byte_q24": rates.time_per_byte_q24(spec.rate) if spec.rate is not None else 0,
        "limit_bytes": spec.limit_bytes,
        "allowance_ns": spec.allowed_ns,
    }
    marking = {"ecn_threshold_bytes": spec.ecn_threshold_bytes or 0}
    below_ns = DEFAULT_THRESHOLD_NS if spec.threshold_ns is None else spec.threshold_ns
    if spec.mode in ("pspd", "clustered"):
        del pace["time_per_byte_q24"]
        if spec.mode == "pspd":
            return _in_slots(spec, "paced_pspd", pace | marking)
        return "paced_clustered", pace | marking | {"release_below_ns": below_ns}
    if spec.mode == "ipg":
        return "paced_ipg", pace | marking | {"gap_bytes": spec.gap_bytes or 0}
    if spec.mode == "timer":
        hz = DEFAULT_TICK_HZ if spec.tick_hz is None else spec.tick_hz
        return "paced_timer", pace | marking | rates.tick(hz)
    margin_bytes = spec.window_margin_bytes or 0
    if spec.mode == "shared":
        sharing = {
            "bytes_per_ns_q24": rates.payload_bytes_per_ns_q24(spec.rate or 0),
            "clamps_windows": int(margin_bytes > 0),
            "window_margin_bytes": margin_bytes,
        }
        return "paced_shared", pace | marking | sharing
    clamp_bps = spec.rate if margin_bytes else None
    control = marking | {
        "bytes_per_ns_q24": rates.payload_bytes_per_ns_q24(clamp_bps) if clamp_bps else 0,
        "window_margin_bytes": margin_bytes,
    }
    if spec.mode == "static":
        if spec.slots is not None:
            return _in_slots(spec, "paced_static", pace | control)
        if spec.quantum_bytes is not None and spec.rate is not None:
            # Behind multiples of the cycle by all of it, so at multiples.
            cycle = rates.cycle(rates.quantum_ns(spec.quantum_bytes, spec.rate))
            offset = {"offset_ns": cycle["cycle_ns"]}
            return "paced_static_in_slot", pace | control | cycle | offset
        # Classes without control of their backlog use the cheaper action.
        if any(control.values()):
            return "paced_static_controlled", pace | control
        return "paced_static", pace
    percent = DEFAULT_HEADROOM_PERCENT if spec.headroom_percent is None else spec.headroom_percent
    flow = pace | control | {"inverse_headroom_q16": rates.inverse_headroom_q16(percent)}
    if spec.mode == "dynamic":
        return _in_slots(spec, "paced_dynamic", flow)
    return "paced_slow_start", flow | {"release_below_ns": below_ns}


def _in_slots(spec: ClassSpec, action: str, params: dict[str, int]) -> tuple[str, dict[str, int]]:
    """Return the action that the class needs for its slots, if it has any, and its parameters."""
    if spec.slots is None or spec.slot_ns is None:
        return action, params
    cycle = rates.cycle(spec.slots * spec.slot_ns)
    if spec.mode == "static":
        offset_ns = (spec.slot or 0) * spec.slot_ns
        return f"{action}_in_slot", params | cycle | {"offset_ns": offset_ns}
    of_flows = {"slots": spec.slots, "slot_ns": spec.slot_ns}
    return f"{action}_in_slots", params | cycle | of_flows


def address_key(prefix: str) -> tuple[int, int]:
    """Return value and mask of an address key; IPv4 is ::ffff:a.b.c.d, RFC 4291 section 2.5.5.2."""
    network = ipaddress.ip_network(prefix)
    value, length = int(network.network_address), network.prefixlen
    if network.version == 4:
        value, length = _IPV4_MAPPED | value, 96 + length
    mask = ((1 << length) - 1) << (128 - length)
    return value & mask, mask


def range_masks(first: int, last: int, width: int = 16) -> list[tuple[int, int]]:
    """Return the fewest values with masks that together match exactly `first` to `last`."""
    found = []
    while first <= last:
        # The largest aligned block that begins here and ends at `last` at the latest.
        size = first & -first or 1 << width
        while first + size - 1 > last:
            size >>= 1
        found.append((first, (1 << width) - size))
        first += size
    return found


def port_masks(value: int | str | None) -> list[tuple[int, int] | None]:
    """Return the keys of a port or range of ports; one None when any port will do."""
    return [None] if value is None else list(range_masks(*port_range(value)))


def entry_count(match: MatchSpec) -> int:
    """Return how many entries a match needs."""
    return len(port_masks(match.src_port)) * len(port_masks(match.dst_port))


def match_keys(match: MatchSpec) -> list[dict[str, MatchValue]]:
    """Return the keys of `flows` for a match: one entry for each pair of blocks of ports.

    An address also fixes the EtherType: the address keys of packets that are not IP are zero,
    which a short IPv6 prefix would match.
    """
    exact: dict[str, int | None] = {
        "ingress_port": match.ingress_port,
        "ether_type": match.ether_type,
        "vlan_id": match.vlan,
        "dscp": match.dscp,
        "protocol": match.protocol,
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
    ports = [
        {"src_port": source, "dst_port": destination}
        for source in port_masks(match.src_port)
        for destination in port_masks(match.dst_port)
    ]
    return [keys | {name: key for name, key in pair.items() if key is not None} for pair in ports]


def flow_rows(spec: FlowSpec, meter: MeterSpec | None, class_index: int, owner: str) -> list[Row]:
    """Return the entries of `flows` for a flow."""
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
    return [
        row(
            FLOWS,
            keys,
            "classify",
            params,
            priority=spec.priority,
            meter=rates_of_meter,
            owner=owner,
        )
        for keys in match_keys(spec.match)
    ]


def measured_flow_rows(
    spec: MeasuredFlowSpec, slot: int, priority: int, bottleneck_bps: int, owner: str
) -> list[Row]:
    """Return the entries that make gtrcnet measure a flow in a slot."""
    params = {"slot": slot, "bytes_per_ns_q24": rates.draining_bytes_per_ns_q24(bottleneck_bps)}
    return [
        row(MEASURED_FLOWS, keys, "measure_flow", params, priority=priority, owner=owner)
        for keys in match_keys(spec.match)
    ]


def _queues_text(queues: EgressQueuesSpec | str | None) -> str | None:
    """Return egress queues as a parameter of a row."""
    return egress_queues.text(queues.wanted()) if isinstance(queues, EgressQueuesSpec) else queues


def port_row(record: PortRecord) -> Row:
    """Return the requested settings of a port as a row; only given settings are in it.

    A row with PAUSE frames always has their length. Without it, a switch would keep the length
    that it had, and a restarted switch its default, so the same request would have two results.
    """
    spec = record.spec
    longest_bytes = spec.gap_frame_max_bytes
    if spec.gap_mode == PAUSE_FRAMES and longest_bytes is None:
        longest_bytes = GAP_FRAME_MAX_BYTES
    given = {
        "line_rate_bps": spec.line_rate,
        "counts": spec.counts,
        "fifo_bytes": spec.fifo_bytes,
        "delay_ns": spec.delay_ns,
        "gap_mode": spec.gap_mode,
        "gap_frame_max_bytes": longest_bytes,
        "egress_queues": _queues_text(spec.egress_queues),
    }
    params = {name: value for name, value in given.items() if value is not None}
    return row(
        PORTS, {"port": int(record.name)}, "settings", params, owner=owner_of("port", record.name)
    )


def meter_of(spec: FlowSpec, meters: Mapping[str, MeterRecord]) -> MeterSpec | None:
    """Return a flow's meter, whether it is in place or by name."""
    return meters[spec.meter].spec if isinstance(spec.meter, str) else spec.meter


def record_rows(record: Record, desired: Desired) -> list[Row]:
    """Return the entries of a resource; a flow's own class is among the flow's."""
    if isinstance(record, ClassRecord):
        return [class_row(record.index, record.spec, owner_of("class", record.name))]
    if isinstance(record, PortRecord):
        return [port_row(record)]
    if isinstance(record, MeterRecord):
        # A direct meter is configured with each flow's entry.
        return []
    return _flow_record_rows(record, desired)


def _flow_record_rows(record: FlowRecord, desired: Desired) -> list[Row]:
    owner = owner_of("flow", record.name)
    meter = meter_of(record.spec, desired.meters)
    private = record.spec.private_class()
    if private is not None and record.private_index is not None:
        return [
            class_row(record.private_index, private, owner),
            *flow_rows(record.spec, meter, record.private_index, owner),
        ]
    index = UNCLASSIFIED
    if record.spec.class_name is not None:
        index = desired.classes[record.spec.class_name].index
    return flow_rows(record.spec, meter, index, owner)


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
    """Return the identity of a row in finsy form; a DELETE may carry nothing else."""
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

"""Translates resources to a bridge's flows, meters and queues; all functions are pure.

A flow is an OpenFlow entry that sets a queue and ends with NORMAL; a class is a queue of that
number on every port. In OpenFlow, a match on ports must name the protocol, and a match on
addresses, DSCP or protocol must name the EtherType. A flow that leaves them open becomes one entry
for each possibility.
"""

import ipaddress
from itertools import product
from typing import Any

from pacer_controller.entries import meter_of, port_masks, port_row
from pacer_controller.fields import ETHER_TYPE_IPV4, ETHER_TYPE_IPV6
from pacer_controller.records import ClassRecord, Desired, FlowRecord, MeterRecord, Record
from pacer_controller.rows import METERS, QUEUES, MatchValue, Row, owner_of, row
from pacer_controller.schemas import ClassSpec, FlowSpec, MatchSpec, MeterSpec

FLOWS = "flow"
MAX_PRIORITY = 65534

_TCP, _UDP = 6, 17
_PORT_NAMES = {_TCP: "tcp", _UDP: "udp"}
_VLAN_PRESENT = 0x1000
_NO_VLAN = 0


def matches(match: MatchSpec) -> list[dict[str, MatchValue]]:
    """Return the OpenFlow matches of a match: OXM fields, numbers or numbers with masks."""
    ports = match.src_port is not None or match.dst_port is not None
    protocols = [match.protocol]
    if ports and match.protocol is None:
        protocols = [_TCP, _UDP]
    family = match.family()
    ether_types = [match.ether_type]
    if family is not None:
        ether_types = [ETHER_TYPE_IPV4 if family == 4 else ETHER_TYPE_IPV6]
    elif match.ether_type is None and (protocols != [None] or match.dscp is not None):
        ether_types = [ETHER_TYPE_IPV4, ETHER_TYPE_IPV6]
    base: dict[str, MatchValue] = {}
    if match.ingress_port is not None:
        base["in_port"] = match.ingress_port
    if match.vlan is not None:
        base["vlan_vid"] = _VLAN_PRESENT | match.vlan if match.vlan else _NO_VLAN
    if match.dscp is not None:
        base["ip_dscp"] = match.dscp
    base |= _addresses(match)
    result = []
    for ether_type, protocol in product(ether_types, protocols):
        fields = dict(base)
        if ether_type is not None:
            fields["eth_type"] = ether_type
        if protocol is not None:
            fields["ip_proto"] = protocol
        pairs = product(port_masks(match.src_port), port_masks(match.dst_port))
        for source, destination in pairs:
            name = _PORT_NAMES.get(protocol or 0, "")
            some = {f"{name}_src": source, f"{name}_dst": destination}
            result.append(fields | {n: _unmasked(v) for n, v in some.items() if v is not None})
    return result


def _unmasked(value: tuple[int, int]) -> MatchValue:
    """Return a whole value without its mask, as switches show it."""
    return value[0] if value[1] == 0xFFFF else value


def _addresses(match: MatchSpec) -> dict[str, MatchValue]:
    fields: dict[str, MatchValue] = {}
    for name, prefix in (("src", match.src), ("dst", match.dst)):
        if prefix is None:
            continue
        network = ipaddress.ip_network(prefix)
        mask = int(network.netmask)
        if mask == 0:
            continue
        whole = network.prefixlen == network.max_prefixlen
        address = int(network.network_address)
        fields[f"ipv{network.version}_{name}"] = address if whole else (address, mask)
    return fields


def meter_row(number: int, spec: MeterSpec, owner: str) -> Row:
    """Return a meter: it drops above the peak rate, in whole kbit/s."""
    params: dict[str, int | str] = {
        "rate": max(1, spec.pir_bps // 1000),
        "burst_size": max(1, spec.pburst_bytes * 8 // 1000),
    }
    return row(METERS, {"meter": number}, "drop", params, owner=owner)


def queue_row(index: int, spec: ClassSpec, owner: str) -> Row:
    """Return a queue with a class's settings; `queue_settings` has its form for a type of QoS."""
    params: dict[str, int | str] = {"mode": spec.mode, "limit": spec.limit_bytes}
    if spec.rate is not None:
        params["rate"] = spec.rate
        params["allowance"] = spec.allowed_ns
    if spec.gap_bytes is not None:
        params["gap"] = spec.gap_bytes
    if spec.ecn_threshold_bytes is not None:
        params["ecn-threshold"] = spec.ecn_threshold_bytes
    if spec.port is not None:
        params["port"] = spec.port
    return row(QUEUES, {"queue": index}, "queue", params, owner=owner)


def record_rows(record: Record, desired: Desired) -> list[Row]:
    """Return a bridge's rows for a resource; those of a flow include its own queue and meter."""
    if isinstance(record, ClassRecord):
        return [queue_row(record.index, record.spec, owner_of("class", record.name))]
    if isinstance(record, MeterRecord):
        # Each flow that names the meter has a meter of its own.
        return []
    if isinstance(record, FlowRecord):
        return _flow_rows(record, desired)
    return [port_row(record)]


def _flow_rows(record: FlowRecord, desired: Desired) -> list[Row]:
    spec, owner = record.spec, owner_of("flow", record.name)
    rows: list[Row] = []
    actions: dict[str, int | str] = {}
    private = spec.private_class()
    if private is not None and record.private_index is not None:
        rows.append(queue_row(record.private_index, private, owner))
        actions["queue"] = record.private_index
    elif spec.class_name is not None:
        actions["queue"] = desired.classes[spec.class_name].index
    meter = meter_of(spec, desired.meters)
    if meter is not None and record.private_index is not None:
        rows.append(meter_row(record.private_index, meter, owner))
        actions["meter"] = record.private_index
    if spec.set_dscp is not None:
        actions["set_dscp"] = spec.set_dscp
    rows += [
        row(FLOWS, fields, "classify", actions, priority=spec.priority, owner=owner)
        for fields in matches(_for_dscp(spec))
    ]
    return rows


def _for_dscp(spec: FlowSpec) -> MatchSpec:
    """Return the match; a flow that sets the DSCP matches IP only, since others have no DSCP."""
    match = spec.match
    if spec.set_dscp is None or match.ether_type is not None or match.family() is not None:
        return match
    return match if match.protocol or match.dscp else match.model_copy(update={"ether_type": 0x800})


def queue_settings(entry: Row, qos_type: str) -> dict[str, str]:
    """Return a queue's `other_config` for a type of QoS."""
    values: dict[str, Any] = dict(entry.params)
    if qos_type == "pacer":
        # The queue is on every port, even if the class names one port.
        return {name: str(value) for name, value in values.items() if name != "port"}
    # linux-htb: an unpaced queue may take the whole line and has no guarantee.
    return {"max-rate": str(values["rate"])} if "rate" in values else {"min-rate": "8000"}

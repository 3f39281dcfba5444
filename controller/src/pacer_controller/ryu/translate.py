"""Ryu's matches, actions, queues and meters as resources of this controller, and back.

A queue is the class `queue-N`, a rule the flow `qos-VLAN-N`, a meter the meter `meter-N`. Like Ryu,
this module accepts numbers as text and as numbers.
"""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from pacer_controller.problems import Problem
from pacer_controller.records import ClassRecord, FlowRecord
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec

ETHER_TYPES = {"ARP": "arp", "IPv4": "ipv4", "IPv6": "ipv6"}
PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "ICMP": "icmp", "ICMPv6": "icmpv6"}
_ETHER_NAMES = {0x0806: "ARP", 0x0800: "IPv4", 0x86DD: "IPv6"}
_PROTOCOL_NAMES = {6: "TCP", 17: "UDP", 1: "ICMP", 58: "ICMPv6"}

PRIORITY_MIN, PRIORITY_MAX = 1, 65534
AF_STEP = 2
"""Difference in DSCP of one drop precedence of an assured forwarding class (RFC 2597)."""

_QUEUE_NAME = re.compile(r"queue-([0-9]{1,9})")
_RULE_NAME = re.compile(r"qos-([0-9]{1,4})-([0-9]{1,9})")


class RyuError(Problem):
    """A request that Ryu answers with 400.

    Args:
        detail: the error.

    """

    def __init__(self, detail: str) -> None:
        title = "The request has wrong values"
        super().__init__(HTTPStatus.BAD_REQUEST, "invalid-ryu-request", title, detail)


def number(value: object, what: str, low: int, high: int) -> int:
    """Read a number, given as such or as decimal text.

    Raises:
        RyuError: it is none, or out of range.

    """
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RyuError(f"{what}: {ascii(value)[:40]} is not a number from {low} to {high}")
    return value


def members(value: object, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RyuError: it is none.

    """
    if not isinstance(value, dict):
        raise RyuError(f"{what}: want an object")
    return value


def checked(make: Callable[[], Any], what: str) -> Any:
    """Make a resource; its errors become one line.

    Raises:
        RyuError: it cannot be made.

    """
    try:
        made = make()
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise RyuError(f"{what}: {path}: {first['msg']}") from None
    problems = made.problems()
    if problems:
        raise RyuError(f"{what}: {problems[0].message}; want {problems[0].expected}")
    return made


# ---- queues ----


def queue_name(queue: int) -> str:
    """Return the class of a queue."""
    return f"queue-{queue}"


def queue_number(name: str) -> int | None:
    """Return the queue of a class; None when it is no queue."""
    found = _QUEUE_NAME.fullmatch(name)
    return int(found.group(1)) if found else None


def queue_class(queue: Mapping[str, Any], port: int | None) -> tuple[ClassSpec, dict[str, str]]:
    """Return the class of a queue, and its configuration as Ryu shows it.

    The class is paced at `max_rate`. A queue with a `min_rate` alone takes the bandwidth that the
    others leave.

    Raises:
        RyuError: it has neither rate, or a wrong one.

    """
    config = {
        name.replace("_", "-"): str(queue[name])
        for name in ("max_rate", "min_rate")
        if queue.get(name) is not None
    }
    if not config:
        raise RyuError("Required to specify max_rate or min_rate")
    spec: dict[str, Any] = {"mode": "unpaced"}
    if "max-rate" in config:
        rate_bps = number(queue["max_rate"], "max_rate", 1, 10**12)
        spec = {"mode": "static", "rate": rate_bps}
    if "min-rate" in config:
        number(queue["min_rate"], "min_rate", 1, 10**12)
    if port is not None:
        spec["port"] = port
    return checked(lambda: ClassSpec.model_validate(spec), "queue"), config


def queue_config(record: ClassRecord) -> dict[str, str]:
    """Return a queue's configuration as far as its class has it."""
    return {} if record.spec.rate is None else {"max-rate": str(record.spec.rate)}


# ---- rules ----


def rule_name(vlan: int, rule: int) -> str:
    """Return the flow of a rule."""
    return f"qos-{vlan}-{rule}"


def rule_of(name: str) -> tuple[int, int] | None:
    """Return VLAN and number of a flow's rule; None when it is no rule."""
    found = _RULE_NAME.fullmatch(name)
    return (int(found.group(1)), int(found.group(2))) if found else None


_TEXT_FIELDS = {"nw_src": "src", "nw_dst": "dst", "ipv6_src": "src", "ipv6_dst": "dst"}
_NUMBER_FIELDS = {
    "in_port": ("ingress_port", 1, 509),
    "tp_src": ("src_port", 1, 65535),
    "tp_dst": ("dst_port", 1, 65535),
    "ip_dscp": ("dscp", 0, 63),
    "dscp": ("dscp", 0, 63),
}


_WORD_FIELDS: Mapping[str, tuple[str, Mapping[Any, Any], str]] = {
    "dl_type": ("ether_type", ETHER_TYPES, "Unknown dl_type "),
    "nw_proto": ("protocol", PROTOCOLS, "Unknown nw_proto"),
}


def match_of(ryu: Mapping[str, Any], vlan: int) -> dict[str, Any]:
    """Return a match in this controller's form.

    Raises:
        RyuError: an unknown field, or a wrong value.

    """
    match: dict[str, Any] = {"vlan": vlan} if vlan else {}
    for name, value in ryu.items():
        if name == "priority":
            continue
        if name in _TEXT_FIELDS:
            match[_TEXT_FIELDS[name]] = value
        elif name in _NUMBER_FIELDS:
            ours, low, high = _NUMBER_FIELDS[name]
            match[ours] = number(value, name, low, high)
        elif name in _WORD_FIELDS:
            ours, known, unknown = _WORD_FIELDS[name]
            if value not in known:
                raise RyuError(f"{unknown}: {value}")
            match[ours] = known[value]
        elif name == "dl_vlan":
            match["vlan"] = number(value, name, 0, 4094)
        else:
            raise RyuError(f"Invalid rule parameter. : key={name}")
    if "ether_type" not in match:
        # As in Ryu, addresses decide the IP version; a DSCP alone means IPv4.
        ipv6 = "ipv6_src" in ryu or "ipv6_dst" in ryu or ryu.get("nw_proto") == "ICMPv6"
        if {"src", "dst", "dscp"} & match.keys() or ryu.get("nw_proto") in ("ICMP", "ICMPv6"):
            match["ether_type"] = "ipv6" if ipv6 else "ipv4"
        elif ryu.get("nw_proto") in ("TCP", "UDP"):
            raise RyuError("no dl_type was specified")
    return match


def rule_flow(
    body: Mapping[str, Any], vlan: int, meter_of: Callable[[int, int | None], str | dict[str, Any]]
) -> tuple[FlowSpec, int | None]:
    """Return the flow of a rule, and the queue it needs.

    Args:
        body: the request.
        vlan: the VLAN of the path; 0: none.
        meter_of: returns the meter with a number, for packets of a DSCP.

    Raises:
        RyuError: the request is wrong.

    """
    given = members(body.get("match", {}), "match")
    actions = members(body.get("actions", {"queue": "0"}), "actions")
    low, high = PRIORITY_MIN, PRIORITY_MAX
    priority = number(given.get("priority", low), "Invalid priority value", low, high)
    match = match_of(given, vlan)
    spec: dict[str, Any] = {"match": match, "priority": priority}
    queue = None
    if "queue" in actions:
        queue = number(actions["queue"], "queue", 0, 65535)
        spec["class"] = queue_name(queue)
    if "meter" in actions:
        meter = number(actions["meter"], "meter", 1, 2**32 - 1)
        spec["meter"] = meter_of(meter, match.get("dscp"))
    if "mark" in actions:
        spec["set_dscp"] = number(actions["mark"], "mark", 0, 63)
    unknown = actions.keys() - {"queue", "meter", "mark"}
    if unknown:
        raise RyuError(f"Invalid rule parameter. : key={min(unknown)}")
    return checked(lambda: FlowSpec.model_validate(spec), "rule"), queue


def rule_view(record: FlowRecord, rule: int, meter: str | None) -> dict[str, Any]:
    """Return a rule as Ryu shows it."""
    spec = record.spec
    match = spec.match
    view: dict[str, Any] = {"qos_id": rule, "priority": spec.priority}
    if match.ether_type is not None:
        view["dl_type"] = _ETHER_NAMES.get(match.ether_type, match.ether_type)
    if match.protocol is not None:
        view["nw_proto"] = _PROTOCOL_NAMES.get(match.protocol, match.protocol)
    ipv6 = match.family() == 6
    for name, prefix in (("src", match.src), ("dst", match.dst)):
        if prefix is not None:
            # A whole address is shown without its length.
            shown = prefix.removesuffix("/128" if ipv6 else "/32")
            view[f"{'ipv6' if ipv6 else 'nw'}_{name}"] = shown
    names: list[tuple[str, object]] = [
        ("in_port", match.ingress_port),
        ("tp_src", match.src_port),
        ("tp_dst", match.dst_port),
        ("ip_dscp", match.dscp),
        ("dl_vlan", match.vlan),
    ]
    view |= {name: value for name, value in names if value is not None}
    actions: list[dict[str, str]] = []
    if spec.set_dscp is not None:
        actions.append({"mark": str(spec.set_dscp)})
    if meter is not None:
        actions.append({"meter": meter})
    queue = queue_number(spec.class_name) if spec.class_name is not None else None
    if queue is not None:
        actions.append({"queue": str(queue)})
    return view | {"actions": actions}


# ---- meters ----


def meter_name(meter: int) -> str:
    """Return the meter of a number."""
    return f"meter-{meter}"


def meter_spec(body: Mapping[str, Any]) -> tuple[MeterSpec, int]:
    """Return the meter of a request, and by how many drop precedences it marks down (0: drops).

    Raises:
        RyuError: the request is wrong, or this controller does not have it.

    """
    flags = body.get("flags", "KBPS")
    flags = [flags] if isinstance(flags, str) else flags
    if not isinstance(flags, list) or not set(map(str, flags)) <= {"KBPS", "BURST", "STATS"}:
        raise RyuError("Invalid meter parameter. : flags: want KBPS, with BURST or STATS if needed")
    bands = body.get("bands")
    if not isinstance(bands, list) or not 1 <= len(bands) <= 2:
        raise RyuError("Invalid meter parameter. : bands: want one or two")
    spec: dict[str, Any] = {}
    precedence = 0
    for band in sorted((members(b, "band") for b in bands), key=lambda b: str(b.get("type"))):
        rate_bps = 1000 * number(band.get("rate"), "rate", 8, 10**8)
        burst = number(band.get("burst_size", 0), "burst_size", 0, 2**25) * 1000 // 8
        kind = str(band.get("type", band.get("action"))).upper()
        if kind == "DROP":
            spec |= {"cir": spec.get("cir", rate_bps), "pir": rate_bps, "drop_red": True}
            spec |= {"pburst": burst} if burst else {}
        elif kind in ("DSCP_REMARK", "REMARK"):
            precedence = number(band.get("prec_level", 1), "prec_level", 1, 2)
            spec |= {"cir": rate_bps, "pir": max(rate_bps, spec.get("pir", rate_bps))}
            spec |= {"drop_red": spec.get("drop_red", False)}
            spec |= {"cburst": burst} if burst else {}
        else:
            raise RyuError("Invalid meter parameter. : type: want DROP or DSCP_REMARK")
    return checked(lambda: MeterSpec.model_validate(spec), "meter"), precedence


def marked(spec: MeterSpec, precedence: int, dscp: int | None) -> MeterSpec:
    """Return the meter that lowers the DSCP of packets, instead of dropping them.

    Raises:
        RyuError: the flow matches no DSCP, which must be known.

    """
    if dscp is None:
        raise RyuError("a meter that remarks needs a rule that matches ip_dscp")
    lower = dscp + AF_STEP * precedence
    if lower > 63:
        raise RyuError(f"ip_dscp {dscp} has no drop precedence {precedence} levels down")
    changes: dict[str, Any] = {"yellow_dscp": lower}
    if not spec.drop_red:
        changes["red_dscp"] = lower
    return spec.model_copy(update=changes)

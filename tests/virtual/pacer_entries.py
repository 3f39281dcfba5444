"""Entries of pacer.p4 for runs without a controller, as runtime files have them."""

from __future__ import annotations

from collections.abc import Mapping

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

FRACTION_BITS = 24
MTU_FRAME_BYTES = 1518
EXPERIMENTAL_ETHER_TYPE = 0x9000
ETHERNET_BYTES = 14


def time_per_byte_q24(rate_bps: int) -> int:
    """8e9 / rate in 2^-24 ns, to nearest (pacing contract)."""
    return ((8_000_000_000 << FRACTION_BITS) + rate_bps // 2) // rate_bps


def class_entry(
    class_id: int,
    action: str,
    params: Mapping[str, int],
    *,
    operation: str = "insert",
    at_ns: int = 0,
) -> dict[str, object]:
    """A class in any mode: an action of the program's table of classes and its parameters."""
    return {
        "table": "PacerIngress.classes",
        "match": {"class_id": class_id},
        "action_name": f"PacerIngress.{action}",
        "action_params": dict(params),
        "operation": operation,
        "at_ns": at_ns,
    }


def paced_class(
    class_id: int,
    rate_bps: int,
    *,
    limit_bytes: int = 1 << 30,
    allowance_ns: int | None = None,
) -> dict[str, object]:
    """A class with a static target rate; the allowance is one MTU's time unless given."""
    cost = time_per_byte_q24(rate_bps)
    if allowance_ns is None:
        allowance_ns = MTU_FRAME_BYTES * cost >> FRACTION_BITS
    params = {
        "time_per_byte_q24": cost,
        "limit_bytes": limit_bytes,
        "allowance_ns": allowance_ns,
    }
    return class_entry(class_id, "paced_static", params)


def timer_class(
    class_id: int, rate_bps: int, tick_ns: int, limit_bytes: int = 1 << 30, allowance_ns: int = 0
) -> dict[str, object]:
    """A class that releases its packets by ticks."""
    settings = {
        "time_per_byte_q24": time_per_byte_q24(rate_bps),
        "tick_ns": tick_ns,
        "ticks_per_ns_q64": (1 << 64) // tick_ns,
        "limit_bytes": limit_bytes,
        "allowance_ns": allowance_ns,
        "ecn_threshold_bytes": 0,
    }
    return class_entry(class_id, "paced_timer", settings)


def class_in_slot(class_id: int, rate_bps: int, cycle_ns: int, offset_ns: int) -> dict[str, object]:
    """A class of a static target rate, whose packets leave so long behind multiples of a cycle."""
    settings = {
        "time_per_byte_q24": time_per_byte_q24(rate_bps),
        "limit_bytes": 1 << 30,
        "allowance_ns": 0,
        "ecn_threshold_bytes": 0,
        "bytes_per_ns_q24": 0,
        "window_margin_bytes": 0,
        "cycle_ns": cycle_ns,
        "cycles_per_ns_q64": (1 << 64) // cycle_ns,
        "offset_ns": offset_ns,
    }
    return class_entry(class_id, "paced_static_in_slot", settings)


def slots_of_flows(slots: int, slot_ns: int) -> dict[str, int]:
    """The parameters of a class whose flows get slots in turn."""
    cycle_ns = slots * slot_ns
    return {
        "cycle_ns": cycle_ns,
        "cycles_per_ns_q64": (1 << 64) // cycle_ns,
        "slot_ns": slot_ns,
        "slots": slots,
    }


def flow_by_ether_type(class_id: int) -> dict[str, object]:
    """Frames of Ethernet type 0x9000 + class belong to the class."""
    return flow({"ether_type": [EXPERIMENTAL_ETHER_TYPE + class_id, 0xFFFF]}, class_id)


def flow_by_dscp(class_id: int) -> dict[str, object]:
    """IP packets whose DSCP is the class's number belong to it (up to 63)."""
    return flow({"dscp": [class_id, 0x3F]}, class_id)


def flow(match: Mapping[str, list[int]], class_id: int) -> dict[str, object]:
    """Packets that match belong to the class."""
    return {
        "table": "PacerIngress.flows",
        "match": dict(match),
        "action_name": "PacerIngress.classify",
        "action_params": {
            "class_id": class_id,
            "drop_red": 0,
            "mark": 0,
            "yellow_dscp": 0,
            "red_dscp": 0,
        },
        "priority": 1,
    }


def station(mac: str, port: int) -> list[dict[str, object]]:
    """A host behind a port, known to the switch."""
    number = int(mac.replace(":", ""), 16)
    return [
        {
            "table": "PacerIngress.forward",
            "match": {"dst_mac": number},
            "action_name": "PacerIngress.forward_to",
            "action_params": {"port": port},
        },
        {
            "table": "PacerIngress.sources",
            "match": {"src_mac": number, "ingress_port": port},
            "action_name": "PacerIngress.known",
            "action_params": {},
        },
    ]


def all_to(port: int) -> list[dict[str, object]]:
    """Multicast groups that send every packet to one port, for any addresses."""
    replicas = [{"egress_port": port, "instance": 1}]
    return [{"multicast_group_id": group, "replicas": replicas} for group in (1, 2)]


def frame(packet_id: int, class_id: int, length_bytes: int) -> bytes:
    """A frame of a class with a number of its own, which stands in the source address."""
    header = _ethernet(packet_id, EXPERIMENTAL_ETHER_TYPE + class_id)
    return header + bytes(length_bytes - len(header))


def ip_frame(packet_id: int, class_id: int, length_bytes: int, ecn: int) -> bytes:
    """The same as an IP packet with that ECN codepoint: IPv6 when its number is odd.

    A frame that is too short for the header has none.
    """
    payload = Raw(bytes(max(0, length_bytes - ETHERNET_BYTES - (40 if packet_id % 2 else 20))))
    traffic_class = class_id << 2 | ecn
    if packet_id % 2:
        network = bytes(IPv6(src="::1", dst="::2", tc=traffic_class, nh=59) / payload)
        whole = _ethernet(packet_id, 0x86DD) + network
    else:
        network = bytes(IP(src="10.0.0.1", dst="10.0.0.2", tos=traffic_class, proto=99) / payload)
        whole = _ethernet(packet_id, 0x0800) + network
    if len(whole) > length_bytes:
        return frame(packet_id, class_id, length_bytes)
    return whole


def _ethernet(packet_id: int, ether_type: int) -> bytes:
    return (
        b"\x02\x00\x00\x00\x00\x02"
        + (0x02 << 40 | packet_id).to_bytes(6, "big")
        + ether_type.to_bytes(2, "big")
    )


def packet_id(of: bytes) -> int:
    """The number that `frame` put in."""
    return int.from_bytes(of[6:12], "big") & 0xFF_FFFF_FFFF

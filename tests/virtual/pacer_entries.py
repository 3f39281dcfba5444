"""Entries of pacer.p4 for runs without a controller, as runtime files have them."""

from __future__ import annotations

FRACTION_BITS = 24
MTU_FRAME_BYTES = 1518
EXPERIMENTAL_ETHER_TYPE = 0x9000


def time_per_byte_q24(rate_bps: int) -> int:
    """8e9 / rate in 2^-24 ns, to nearest (pacing contract)."""
    return ((8_000_000_000 << FRACTION_BITS) + rate_bps // 2) // rate_bps


def paced_class(
    class_id: int,
    rate_bps: int,
    *,
    limit_bytes: int = 1 << 30,
    allowance_ns: int | None = None,
    operation: str = "insert",
    at_ns: int = 0,
) -> dict[str, object]:
    """A class with a static target rate; the allowance is one MTU's time unless given."""
    cost = time_per_byte_q24(rate_bps)
    if allowance_ns is None:
        allowance_ns = MTU_FRAME_BYTES * cost >> FRACTION_BITS
    return {
        "table": "PacerIngress.classes",
        "match": {"class_id": class_id},
        "action_name": "PacerIngress.paced_static",
        "action_params": {
            "time_per_byte_q24": cost,
            "limit_bytes": limit_bytes,
            "allowance_ns": allowance_ns,
        },
        "operation": operation,
        "at_ns": at_ns,
    }


def unpaced_class(class_id: int, *, operation: str = "insert", at_ns: int = 0) -> dict[str, object]:
    """A class that is told apart but not paced."""
    return {
        "table": "PacerIngress.classes",
        "match": {"class_id": class_id},
        "action_name": "PacerIngress.unpaced",
        "action_params": {},
        "operation": operation,
        "at_ns": at_ns,
    }


def flow_by_ether_type(class_id: int) -> dict[str, object]:
    """Frames of Ethernet type 0x9000 + class belong to the class."""
    return {
        "table": "PacerIngress.flows",
        "match": {"ether_type": [EXPERIMENTAL_ETHER_TYPE + class_id, 0xFFFF]},
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


def all_to(port: int) -> list[dict[str, object]]:
    """Multicast groups that send every packet to one port, whatever its addresses."""
    replicas = [{"egress_port": port, "instance": 1}]
    return [{"multicast_group_id": group, "replicas": replicas} for group in (1, 2)]


def frame(packet_id: int, class_id: int, length_bytes: int) -> bytes:
    """A frame of a class with a number of its own, which stands in the source address."""
    header = (
        b"\x02\x00\x00\x00\x00\x02"
        + (0x02 << 40 | packet_id).to_bytes(6, "big")
        + (EXPERIMENTAL_ETHER_TYPE + class_id).to_bytes(2, "big")
    )
    return header + bytes(length_bytes - len(header))


def packet_id(of: bytes) -> int:
    """The number that `frame` put in."""
    return int.from_bytes(of[6:12], "big") & 0xFF_FFFF_FFFF

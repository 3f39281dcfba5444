"""Frames with correct IPv4 headers, for programs that read and change DSCP and ECN."""

from __future__ import annotations

import struct

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

NOT_ECT, ECT_1, ECT_0, CE = range(4)
"""Values of the ECN field (RFC 3168)."""


def frame(transport: Packet, number: int, dscp: int = 0, ecn: int = NOT_ECT) -> bytes:
    """A frame with correct checksums; `number` is its IP identification."""
    ip = IP(src="10.0.0.1", dst="10.0.0.2", id=number, tos=dscp << 2 | ecn)
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / transport)


def tcp() -> Packet:
    """A TCP segment."""
    return TCP(sport=1, dport=2) / Raw(bytes(100))


def udp() -> Packet:
    """A UDP datagram."""
    return UDP(sport=1, dport=2) / Raw(bytes(100))


def ones_sum(header: bytes) -> int:
    """The ones' complement sum of the 16-bit words (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    return (total & 0xFFFF) + (total >> 16)


def ipv4_header(
    tos: int = 0, *, total_bytes: int = 500, protocol: int = 99, source: int = 1
) -> bytes:
    """An IPv4 header with its checksum."""
    words = (0x45, tos, total_bytes, 0, 0, 64, protocol, 0, source, 2)
    header = bytearray(struct.pack(">BBHHHBBHII", *words))
    struct.pack_into(">H", header, 10, 0xFFFF ^ ones_sum(bytes(header)))
    return bytes(header)


def ipv6_header(traffic_class: int) -> bytes:
    """An IPv6 header without a next one, from and to no address."""
    return struct.pack(">IHBB32x", 6 << 28 | traffic_class << 20, 460, 59, 64)

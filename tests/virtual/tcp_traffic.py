"""TCP between two hosts, as a switch between them sees it: a sender that keeps a window.

It is no real TCP: round trips, losses and windows are chosen, not negotiated, so that the program's
reaction can be computed.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from flow_model import Address, Segment
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

SEGMENT_BYTES = 1448
STATIONS = {"02:00:00:00:00:01": 1, "02:00:00:00:00:02": 2}
"""The port of each station."""
CLIENT_MAC, SERVER_MAC = STATIONS


def frame_of(segment: Segment, from_port: int, window: int = 5000, scale: int | None = 7) -> bytes:
    """The segment on the wire; the addresses say which IP it is. A SYN has the window's scale."""
    flags = segment.flags + ("A" if segment.acknowledgement is not None else "")
    frame, tcp = _template(
        *(segment.sender, segment.receiver, flags, segment.payload_bytes, from_port, window, scale)
    )
    filled = bytearray(frame)
    _NUMBERS.pack_into(filled, tcp + 4, segment.sequence, segment.acknowledgement or 0)
    (checksum,) = _WORD.unpack_from(frame, tcp + 16)
    total = (~checksum & 0xFFFF) + sum(struct.unpack_from(">4H", filled, tcp + 4))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    _WORD.pack_into(filled, tcp + 16, ~total & 0xFFFF)
    return bytes(filled)


_NUMBERS = struct.Struct(">II")
_WORD = struct.Struct(">H")


@functools.lru_cache(maxsize=4096)
def _template(
    sender: Address,
    receiver: Address,
    flags: str,
    payload_bytes: int,
    from_port: int,
    window: int,
    scale: int | None,
) -> tuple[bytes, int]:
    """A frame with both numbers 0, and where its TCP header begins; Scapy takes long for one."""
    source, destination = (CLIENT_MAC, SERVER_MAC) if from_port == 1 else (SERVER_MAC, CLIENT_MAC)
    tcp = TCP(
        sport=sender[1],
        dport=receiver[1],
        flags=flags,
        window=window,
        options=_options(scale) if "S" in flags else [("Timestamp", (1, 1)), *_NOPS],
    )
    (source_ip, _, vlan), (destination_ip, _, _) = (
        end[0].partition("%") for end in (sender, receiver)
    )
    internet = IPv6 if ":" in sender[0] else IP
    frame = Ether(src=source, dst=destination)
    if vlan:
        frame /= Dot1Q(vlan=int(vlan))
    frame /= internet(src=source_ip, dst=destination_ip)
    return bytes(frame / tcp / Raw(bytes(payload_bytes))), len(frame)


SYN, ACK = 0x02, 0x10
"""Bits of TCP's flags."""

_HEADERS = struct.Struct(">6s6sHBBHHHBBHII HHIIBBHHH")


def raw_frame(
    from_port: int,
    host: int,
    port: int,
    flags: int,
    seq: int,
    ack: int,
    *,
    payload_bytes: int = 0,
) -> bytes:
    """A segment of the client's at this IPv4 address and port, or of 10.0.0.2:5001 to it.

    Without TCP options, its checksum 0; made by hand, for Scapy takes a second for some thousand.
    """
    macs = [bytes.fromhex(mac.replace(":", "")) for mac in (CLIENT_MAC, SERVER_MAC)]
    addresses, ports = [host, 0x0A000002], [port, 5001]
    if from_port == 2:
        for pair in (macs, addresses, ports):
            pair.reverse()
    total = 40 + payload_bytes
    words = (0x4500, total, 0x4006, *(half for a in addresses for half in divmod(a, 1 << 16)))
    checksum = sum(words)
    while checksum >> 16:
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    network = (0x0800, 0x45, 0, total, 0, 0, 0x40, 6, ~checksum & 0xFFFF, *addresses)
    headers = _HEADERS.pack(macs[1], macs[0], *network, *ports, seq, ack, 0x50, flags, 500, 0, 0)
    return headers + bytes(payload_bytes)


_NOPS = [("NOP", None), ("NOP", None)]


def _options(scale: int | None) -> list[tuple[str, object]]:
    """A SYN's, in the order that Linux has them."""
    scaling = _NOPS if scale is None else [("NOP", None), ("WScale", scale)]
    return [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (1, 0)), *scaling]


@dataclass
class Sender:
    """One flow: its sender's segments and the acknowledgements, as they pass the switch.

    `rounds` are round trips: the window in segments, and the number of the one that is lost beyond
    the switch (-1: none). A lost segment is sent again two thirds of a round trip later. The path
    takes a segment every `path_ns`; earlier arrivals wait there. From round trip `reroute[0]` on
    the path is another, with a round-trip time of `reroute[1]` ns.
    """

    client: Address
    server: Address
    rounds: Sequence[tuple[int, int]]
    rtt_ns: int = 10_000_000
    begin_ns: int = 1
    first: int = 0
    spacing_ns: int = 1_000
    handshake: bool = True
    path_ns: int = 0
    reroute: tuple[int, int] | None = None
    sent: list[Segment] = field(default_factory=list)
    answered: list[Segment] = field(default_factory=list)

    def segments(self) -> Iterator[tuple[int, Segment]]:
        """Ports and segments in order of time."""
        self.sent.clear()
        self.answered.clear()
        now_ns = self.begin_ns
        number = self.first
        rtt_ns = self.rtt_ns
        if self.handshake:
            self._send(now_ns, number, 0, "S")
            number = (number + 1) % (1 << 32)
            now_ns += self.rtt_ns
            self._answer(now_ns, number, "S")
        for n, (window, lost) in enumerate(self.rounds):
            if self.reroute is not None and n == self.reroute[0]:
                rtt_ns = self.reroute[1]
            now_ns += rtt_ns // 100
            through_ns = now_ns
            for k in range(window):
                at_ns = now_ns + k * self.spacing_ns
                through_ns = max(at_ns, through_ns) + self.path_ns
                self._send(at_ns, number, SEGMENT_BYTES)
                if k == lost:
                    again_ns = at_ns + 2 * rtt_ns // 3
                    self._send(again_ns, number, SEGMENT_BYTES)
                number = (number + SEGMENT_BYTES) % (1 << 32)
                if lost < 0 and k % 2:
                    self._answer(through_ns + rtt_ns, number)
            now_ns += rtt_ns + window * max(self.spacing_ns, self.path_ns)
            if lost >= 0:
                now_ns += rtt_ns
            self._answer(now_ns, number)
        self._send(now_ns + 1, number, 0, "F")
        both = [(1, one) for one in self.sent] + [(2, one) for one in self.answered]
        yield from sorted(both, key=lambda pair: pair[1].at_ns)

    def _send(self, at_ns: int, number: int, payload_bytes: int, flags: str = "") -> None:
        acknowledgement = None if flags == "S" else 1
        segment = Segment(
            at_ns, self.client, self.server, number, payload_bytes, acknowledgement, flags
        )
        self.sent.append(replace(segment, length_bytes=len(frame_of(segment, 1))))

    def _answer(self, at_ns: int, number: int, flags: str = "") -> None:
        segment = Segment(at_ns, self.server, self.client, 0, 0, number, flags)
        self.answered.append(replace(segment, length_bytes=len(frame_of(segment, 2))))

"""Notes when each packet arrives at an interface, in a ring that the kernel fills.

It costs no system call for a packet, so a run in the lab is the same with and without it.
"""

import array
import mmap
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mininet.link import Intf

from pacer_mininet.namespaces import in_namespace_of
from pacer_mininet.traffic import FCS_BYTES, NS_PER_S

SOL_PACKET = 263
PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 5, 6, 10
TPACKET_V2 = 1
ETH_P_ALL = 3
SO_ATTACH_FILTER = 26
"""Of packet(7), linux/if_packet.h and socket(7)."""

ARRIVED = (
    (0x28, 0, 0, 0xFFFFF004),  # ldh type: of the packet, as seen by this interface
    (0x15, 3, 0, 4),  # jeq PACKET_OUTGOING: none
    (0x28, 0, 0, 12),  # ldh [12]
    (0x15, 0, 1, 0x0800),  # jeq IPv4, else none
    (0x06, 0, 0, 0xFFFFFFFF),  # ret all
    (0x06, 0, 0, 0),  # ret nothing
)
"""A filter of classic BPF: IPv4 packets that come in."""

FRAME_BYTES = 128
"""A slot of the ring: its header, then a packet's headers up to TCP's time stamp."""

BLOCK_BYTES = 1 << 16

_HEADER = struct.Struct("=IIIHHII")
"""struct tpacket2_hdr: status, length, captured, mac, net, s, ns."""

_FILTER = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("=HxxxxxxQ")
_STATISTICS = struct.Struct("=II")
_IDENTITY_BYTES = 62

_ECN_CE = 3
"""Bits of the second byte of an IPv4 header."""

_FIRST_REAL_NS = 10**18
"""Stamps before this (2001) are of CLOCK_MONOTONIC, which begins at boot."""


class TapError(OSError):
    """A tap has lost packets."""


@dataclass(frozen=True)
class Seen:
    """A packet that arrived.

    Attributes:
        at_ns: when, on CLOCK_MONOTONIC.
        identity: bytes that no other packet of a run has: addresses, ports, IP identification, TCP
            sequence number and time stamp.
        port: the destination's TCP or UDP port.
        frame_bytes: its length, layer 2 with FCS.
        is_ce: whether its ECN field is CE (RFC 3168).

    """

    at_ns: int
    identity: bytes
    port: int
    frame_bytes: int = 0
    is_ce: bool = False


class Tap:
    """The IPv4 packets that come in at an interface."""

    def __init__(self, interface: Intf, packets: int) -> None:
        """Begin to note them; there is room for `packets`."""
        self.name = interface.name
        blocks = -(-packets * FRAME_BYTES // BLOCK_BYTES)
        self._slots = blocks * BLOCK_BYTES // FRAME_BYTES
        ring = struct.pack("=IIII", BLOCK_BYTES, blocks, FRAME_BYTES, self._slots)

        def make() -> socket.socket:
            # Protocol 0: nothing arrives before it is bound.
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            tap.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            tap.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
            _attach(tap)
            tap.bind((interface.name, ETH_P_ALL))
            return tap

        self._socket = in_namespace_of(interface.node.pid, make)
        self._ring = mmap.mmap(self._socket.fileno(), blocks * BLOCK_BYTES)

    def read(self) -> Iterator[Seen]:
        """Return the packets that have arrived, in order.

        Raises:
            TapError: there were more than it has room for.

        """
        counted = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
        lost = _STATISTICS.unpack(counted)[1]
        if lost:
            raise TapError(f"{self.name}: {lost} packets more than {self._slots}")
        since_boot_ns = time.time_ns() - time.monotonic_ns()
        for slot in range(self._slots):
            start = slot * FRAME_BYTES
            status, length, _, mac, _, seconds, ns = _HEADER.unpack_from(self._ring, start)
            if not status:
                return
            packet = self._ring[start + mac : start + mac + _IDENTITY_BYTES]
            identity = packet[18:20] + packet[26:42] + packet[58:62]
            at_ns = seconds * NS_PER_S + ns
            # A packet that fq sent has its departure time as its stamp until it leaves the
            # namespace. That is monotonic; the kernel's own stamps are not.
            if at_ns >= _FIRST_REAL_NS:
                at_ns -= since_boot_ns
            yield Seen(
                at_ns,
                identity,
                port=int.from_bytes(packet[36:38], "big"),
                frame_bytes=length + FCS_BYTES,
                is_ce=packet[15] & _ECN_CE == _ECN_CE,
            )

    def close(self) -> None:
        """End it."""
        self._ring.close()
        self._socket.close()


def _attach(tap: socket.socket) -> None:
    """Attach the filter to a socket."""
    instructions = array.array("B", b"".join(_FILTER.pack(*one) for one in ARRIVED))
    address, _ = instructions.buffer_info()
    tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _PROGRAM.pack(len(ARRIVED), address))

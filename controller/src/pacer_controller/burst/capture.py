"""Packets of capture files, with exact times and the lengths they had on the wire.

pcap with stamps in us or ns, either byte order; pcapng with any resolution, several interfaces and
sections. dpkt knows the forms of headers and blocks; its readers are not used, since they return
times as floating-point numbers (a ns is lost) and not a packet's length before it was cut.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dpkt import pcap, pcapng
from dpkt.dpkt import Error as DpktError

NS_PER_S = 1_000_000_000
ETHERNET = 1
MAX_BLOCK_BYTES = 16 << 20
"""No capture has longer packets; a length above is a broken file."""


class CaptureError(ValueError):
    """A file that cannot be read as a capture; the text says why."""


@dataclass(frozen=True)
class Packet:
    """A captured packet.

    Attributes:
        at_ns: time since 1970 (or whatever the capture counts from).
        length: bytes on the wire, without FCS.
        data: the captured bytes, which may be fewer.

    """

    at_ns: int
    length: int
    data: bytes


def read(path: Path) -> Iterator[Packet]:
    """Give the packets of a file in its order.

    A packet that is cut off at the end of the file, because the capture was killed, is left out.

    Raises:
        CaptureError: the file is not a capture, not of Ethernet, or broken.
        OSError: the file cannot be read.

    """
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        try:
            if magic == struct.pack("<I", pcapng.PCAPNG_BT_SHB):
                yield from _pcapng(file)
            elif magic in _PCAP:
                yield from _pcap(file, *_PCAP[magic])
            else:
                raise CaptureError("no pcap or pcapng file")
        except (CaptureError, DpktError, ValueError, struct.error) as error:
            raise CaptureError(f"{path}: {error or 'broken'}") from None


_PCAP = {
    struct.pack(order + "I", magic): (order, ns_per_unit)
    for order in "<>"
    for magic, ns_per_unit in ((pcap.TCPDUMP_MAGIC, 1000), (pcap.TCPDUMP_MAGIC_NANO, 1))
}
"""Byte order and ns per unit of the second half of a stamp, by the file's first bytes."""


def _need_ethernet(link_type: int) -> None:
    if link_type & 0xFFFF != ETHERNET:
        raise CaptureError(f"link type {link_type & 0xFFFF}; only captures of Ethernet are read")


def _pcap(file: IO[bytes], order: str, ns_per_unit: int) -> Iterator[Packet]:
    little = order == "<"
    head = file.read(pcap.FileHdr.__hdr_len__)
    _need_ethernet((pcap.LEFileHdr if little else pcap.FileHdr)(head).linktype)
    record = pcap.LEPktHdr if little else pcap.PktHdr
    while len(head := file.read(record.__hdr_len__)) == record.__hdr_len__:
        header = record(head)
        if header.caplen > MAX_BLOCK_BYTES:
            raise CaptureError(f"a packet of {header.caplen} bytes: the file is broken")
        data = file.read(header.caplen)
        if len(data) < header.caplen:
            return
        yield Packet(header.tv_sec * NS_PER_S + header.tv_usec * ns_per_unit, header.len, data)


@dataclass(frozen=True)
class _Interface:
    """Time resolution and link type of an interface of a pcapng section."""

    link_type: int
    units_per_s: int
    offset_s: int

    def time_ns(self, stamp: int) -> int:
        """Return ns, to nearest below."""
        return self.offset_s * NS_PER_S + stamp * NS_PER_S // self.units_per_s


def _pcapng(file: IO[bytes]) -> Iterator[Packet]:
    order, interfaces = "<", list[_Interface]()
    while len(head := file.read(12)) == 12:
        kind = struct.unpack_from("<I", head)[0]
        if kind == pcapng.PCAPNG_BT_SHB:
            # A new section: its byte order is its own, and so are its interfaces.
            little = struct.unpack_from("<I", head, 8)[0] == pcapng.BYTE_ORDER_MAGIC
            order, interfaces = "<" if little else ">", []
        kind, length = struct.unpack_from(order + "II", head)
        if not 12 <= length <= MAX_BLOCK_BYTES:
            raise CaptureError(f"a block of {length} bytes: the file is broken")
        block = head + file.read(length - 12)
        if len(block) < length:
            return
        if kind == pcapng.PCAPNG_BT_IDB:
            interfaces.append(_interface(block, order))
        elif kind == pcapng.PCAPNG_BT_EPB:
            yield _packet(block, order, interfaces)
        elif kind == pcapng.PCAPNG_BT_SPB:
            raise CaptureError("its packets have no times (simple packet blocks)")


def _interface(block: bytes, order: str) -> _Interface:
    little = order == "<"
    described = (
        pcapng.InterfaceDescriptionBlockLE if little else pcapng.InterfaceDescriptionBlock
    )(block)
    units_per_s, offset_s = 10**6, 0
    for option in described.opts:
        if option.code == pcapng.PCAPNG_OPT_IF_TSRESOL:
            exponent = option.data[0]
            units_per_s = 2 ** (exponent & 0x7F) if exponent & 0x80 else 10**exponent
        elif option.code == pcapng.PCAPNG_OPT_IF_TSOFFSET:
            offset_s = struct.unpack(order + "q", option.data)[0]
    return _Interface(described.linktype, units_per_s, offset_s)


def _packet(block: bytes, order: str, interfaces: list[_Interface]) -> Packet:
    number, high, low, kept, length = struct.unpack_from(order + "5I", block, 8)
    if number >= len(interfaces) or 28 + kept > len(block):
        raise CaptureError("a packet of no described interface, or longer than its block")
    interface = interfaces[number]
    _need_ethernet(interface.link_type)
    return Packet(interface.time_ns(high << 32 | low), length, block[28 : 28 + kept])

"""Capture files of the example: writes its input, shows its output.

    packets.py write INPUT.pcap
    packets.py show INPUT.pcap OUTPUT.pcap

pcap with nanosecond stamps: a header of 24 bytes, then each packet behind 16 bytes with its time
and length. Any tool that writes pcap does as well (tcpdump, Wireshark, scapy).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

PACKETS = 6
FRAME_BYTES = 1514  # without FCS, as captures have it
# Back to back on a 1 Gbit/s line: 1514 bytes, FCS 4, preamble 8, gap between frames 12.
GAP_NS = (FRAME_BYTES + 24) * 8

NANOSECOND_MAGIC = 0xA1B23C4D
FILE_HEADER = struct.Struct("<IHHiIII")
PACKET_HEADER = struct.Struct("<IIII")
NS_PER_S = 1_000_000_000
NUMBER_AT = 18  # of the IPv4 identification


def frame(number: int) -> bytes:
    """A UDP packet from 10.0.0.1 to port 5001 of 10.0.0.2, with its number in the IPv4 header."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    ip_bytes = FRAME_BYTES - len(ethernet)
    words = [0x4500, ip_bytes, number, 0, 0x4011, 0, 0x0A00, 1, 0x0A00, 2]
    total = sum(words)
    words[5] = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    udp = struct.pack(">HHHH", 4000, 5001, ip_bytes - 20, 0)
    return (ethernet + struct.pack(">10H", *words) + udp).ljust(FRAME_BYTES, b"\0")


def write(path: Path) -> None:
    """The example's input: some packets back to back."""
    with path.open("wb") as out:
        out.write(FILE_HEADER.pack(NANOSECOND_MAGIC, 2, 4, 0, 0, 65_535, 1))
        for number in range(PACKETS):
            seconds, nanoseconds = divmod(number * GAP_NS, NS_PER_S)
            out.write(PACKET_HEADER.pack(seconds, nanoseconds, FRAME_BYTES, FRAME_BYTES))
            out.write(frame(number))


def read(path: Path) -> Iterator[tuple[int, int]]:
    """Number and time (ns) of each packet."""
    data = path.read_bytes()
    at = FILE_HEADER.size
    while at < len(data):
        seconds, nanoseconds, size, _ = PACKET_HEADER.unpack_from(data, at)
        at += PACKET_HEADER.size
        (number,) = struct.unpack_from(">H", data, at + NUMBER_AT)
        at += size
        yield number, seconds * NS_PER_S + nanoseconds


def show(came: Path, left: Path) -> None:
    """Print the arrival and departure of each packet, and the time since the previous departure."""
    arrivals = dict(read(came))
    before_ns = None
    print("packet   came (ns)   left (ns)    gap (ns)")
    for number, at_ns in read(left):
        gap = "" if before_ns is None else f"{at_ns - before_ns:12}"
        print(f"{number:6}{arrivals[number]:12}{at_ns:12}{gap}")
        before_ns = at_ns


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path]:
            write(Path(path))
        case ["show", came, left]:
            show(Path(came), Path(left))
        case _:
            sys.exit(__doc__)

"""Capture files with nanosecond stamps: what the switch reads and writes in virtual time."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# pcap with nanosecond stamps (draft-ietf-opsawg-pcap, section 4).
_FILE_HEADER = struct.Struct("<IHHiIII")
_RECORD_HEADER = struct.Struct("<IIII")
_NANOSECOND_MAGIC = 0xA1B23C4D
_ETHERNET = 1
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class TimedFrame:
    """A frame without FCS and the time of its first bit, in nanoseconds."""

    at_ns: int
    frame: bytes


def write_capture(path: Path, frames: Iterable[TimedFrame]) -> None:
    """Write frames, in order of time, with nanosecond stamps."""
    with path.open("wb") as out:
        out.write(_FILE_HEADER.pack(_NANOSECOND_MAGIC, 2, 4, 0, 0, 65535, _ETHERNET))
        for timed in frames:
            seconds, nanoseconds = divmod(timed.at_ns, _NS_PER_S)
            size = len(timed.frame)
            out.write(_RECORD_HEADER.pack(seconds, nanoseconds, size, size) + timed.frame)


def read_capture(path: Path) -> list[TimedFrame]:
    """Read what `write_capture` or the switch wrote.

    Raises:
        ValueError: the file is no little-endian pcap with nanosecond stamps.

    """
    data = path.read_bytes()
    if len(data) < _FILE_HEADER.size or _FILE_HEADER.unpack_from(data)[0] != _NANOSECOND_MAGIC:
        raise ValueError(f"{path}: no little-endian pcap with nanosecond stamps")
    frames = []
    at = _FILE_HEADER.size
    while at < len(data):
        seconds, nanoseconds, size, _ = _RECORD_HEADER.unpack_from(data, at)
        at += _RECORD_HEADER.size
        frames.append(TimedFrame(seconds * _NS_PER_S + nanoseconds, data[at : at + size]))
        at += size
    return frames

"""Runs the real `pacing_switch` in virtual time: frames in, frames with departure times out."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILED = REPOSITORY / "p4src" / "compiled" / "pacing_switch"

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


PAUSE = bytes.fromhex("0180c2000001")
"""The destination address of PAUSE frames (IEEE 802.3, Annex 31B)."""


def gap_frames_of(sent: Iterable[TimedFrame]) -> tuple[list[TimedFrame], list[TimedFrame]]:
    """Returns the PAUSE frames that a port sent, and its packets.

    Raises ValueError for a PAUSE frame with a pause time other than 0.
    """
    gap_frames, packets = [], []
    for timed in sent:
        if timed.frame.startswith(PAUSE):
            if timed.frame[12:18] != b"\x88\x08\x00\x01\x00\x00" or any(timed.frame[18:]):
                raise ValueError(f"not a PAUSE frame of pause time 0: {timed.frame.hex()}")
            gap_frames.append(timed)
        else:
            packets.append(timed)
    return gap_frames, packets


@dataclass(frozen=True)
class Port:
    """A port of the switch; `settings` as on its command line (`rate=1gbit,counts=wire`)."""

    number: int
    settings: str = ""


@dataclass(frozen=True)
class VirtualRun:
    """The input of one run in virtual time."""

    ports: Sequence[Port]
    arrivals: Mapping[int, Iterable[TimedFrame]]
    runtime: dict[str, object] = field(default_factory=dict)
    program: str = "pacer"
    options: Sequence[str] = ()
    """Further words of the command line."""


def binary() -> Path:
    """The switch under test: $PACING_SWITCH, or the release build."""
    given = os.environ.get("PACING_SWITCH")
    path = Path(given) if given else REPOSITORY / "switch/target/release/pacing_switch"
    if not path.exists():
        raise FileNotFoundError(f"no switch at {path}: run `make switch` first")
    return path


def write_capture(path: Path, frames: Iterable[TimedFrame]) -> None:
    """Writes frames, in order of time, with nanosecond stamps."""
    with path.open("wb") as out:
        out.write(_FILE_HEADER.pack(_NANOSECOND_MAGIC, 2, 4, 0, 0, 65535, _ETHERNET))
        for timed in frames:
            seconds, nanoseconds = divmod(timed.at_ns, _NS_PER_S)
            size = len(timed.frame)
            out.write(_RECORD_HEADER.pack(seconds, nanoseconds, size, size) + timed.frame)


def read_capture(path: Path) -> list[TimedFrame]:
    """Reads what `write_capture` or the switch wrote."""
    data = path.read_bytes()
    magic = _FILE_HEADER.unpack_from(data)[0]
    if magic != _NANOSECOND_MAGIC:
        raise ValueError(f"{path}: no little-endian pcap with nanosecond stamps")
    frames = []
    at = _FILE_HEADER.size
    while at < len(data):
        seconds, nanoseconds, size, _ = _RECORD_HEADER.unpack_from(data, at)
        at += _RECORD_HEADER.size
        frames.append(TimedFrame(seconds * _NS_PER_S + nanoseconds, data[at : at + size]))
        at += size
    return frames


def run(what: VirtualRun, folder: Path) -> dict[int, list[TimedFrame]]:
    """Runs the switch to the end of its work; returns the frames of each port.

    `folder` holds the capture files. Raises CalledProcessError, with the switch's
    message on stderr, when it refuses its input.
    """
    command = [str(binary()), "--virtual", "--cpu-port", "510"]
    for port in what.ports:
        stem = folder / f"p{port.number}"
        write_capture(Path(f"{stem}_in.pcap"), what.arrivals.get(port.number, ()))
        command += ["-i", f"{port.number}@{stem}" + (f",{port.settings}" if port.settings else "")]
    runtime = folder / "runtime.json"
    runtime.write_text(json.dumps(what.runtime))
    command += ["--runtime-json", str(runtime), "--stats-file", str(folder / "stats.json")]
    command += [*what.options, str(COMPILED / f"{what.program}.json")]
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, timeout=300)
    return {port.number: read_capture(folder / f"p{port.number}_out.pcap") for port in what.ports}


def statistics(folder: Path) -> dict[str, object]:
    """The statistics that the run in `folder` ended with."""
    loaded: dict[str, object] = json.loads((folder / "stats.json").read_text())
    return loaded

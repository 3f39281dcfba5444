"""Runs the real `pacing_switch` in virtual time: frames in, frames with departure times out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pacing_switch import TimedFrame, VirtualSwitch

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILED = REPOSITORY / "p4src" / "compiled" / "pacing_switch"

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


def run(what: VirtualRun, folder: Path) -> dict[int, list[TimedFrame]]:
    """Runs the switch to the end of its work; returns the frames of each port.

    `folder` holds the capture files. Raises ProcessError, with the switch's message, when it
    refuses its input.
    """
    with VirtualSwitch(
        COMPILED / f"{what.program}.json",
        {port.number: port.settings for port in what.ports},
        runtime=what.runtime,
        options=["--cpu-port", "510", *what.options],
        folder=folder,
        binary=binary(),
    ) as switch:
        return switch.run(what.arrivals)


def statistics(folder: Path) -> dict[str, object]:
    """The statistics that the run in `folder` ended with."""
    loaded: dict[str, object] = json.loads((folder / "stats.json").read_text())
    return loaded

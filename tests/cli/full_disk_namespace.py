"""Packet traces on a full disk, in namespaces of their own; not a test itself.

Prints one JSON object: how a switch ended whose disk had room again, and one whose disk never had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from inside_namespace import Wires, ended, running
from pacing_switch.wires import make_wires

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FRAMES = 20
LOST = "packet traces are lost until there is room"
WRITTEN_AGAIN = "packet traces are written again"


def fill(disk: Path) -> Path:
    """Leave a disk without room but for one page, which is no whole number of traces."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE_BYTES))
        except OSError:
            file.truncate(file.tell() - PAGE_BYTES)
    return filler


def traced(folder: Path, disk: Path, room_again: bool) -> dict[str, Any]:
    """Send frames through a switch with traces on a disk that is full."""
    filler = fill(disk)
    traces = disk / "traces.json"
    wires = Wires()
    with running(folder, "--packet-trace", str(traces)) as switch:
        forwarded = wires.forwarded(FRAMES)
        switch.wait_for_line(LOST)
        forwarded += wires.forwarded(FRAMES)
        if room_again:
            filler.unlink()
            switch.wait_for_line(WRITTEN_AGAIN)
            forwarded += wires.forwarded(FRAMES)
        told = ended(switch)
    told |= {"sent": wires.sent, "forwarded": forwarded, "traces": traces.read_text()}
    for file in (filler, traces):
        file.unlink(missing_ok=True)
    return told


def main() -> None:
    """Run both and print the result."""
    folder = Path(sys.argv[1])
    make_wires([("a0", "a1"), ("b0", "b1")])
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    runs = {"again": True, "never": False}
    print(json.dumps({name: traced(folder, disk, room) for name, room in runs.items()}))


if __name__ == "__main__":
    main()

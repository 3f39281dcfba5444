"""How many packets a second pacing_switch traces.

    traces.py [--out FILE.json] [--packets N] [--rounds N]

Sends N packets through pacer.p4 and router.p4 in virtual time: without traces, with each packet's
trace as protobuf, and as JSON. The readings alternate. Needs neither root nor interfaces; files are
in the machine's temporary folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pacing_switch import TimedFrame
from pacing_switch.captures import write_capture
from targets import PACER, ROUTER

from pacer_entries import all_to, flow_by_dscp, ip_frame, paced_class  # isort: skip
from virtual_switch import binary  # isort: skip

FORMS = {"none": None, "protobuf": "traces.binpb", "JSON": "traces.json"}
FRAME_BYTES = 500
INTERVAL_NS = 5_000
"""Between two packets: the line and the class are faster, so none waits for long."""
RATE_BPS = 2_000_000_000
CLASS = 5
FRAME = ip_frame(0, CLASS, FRAME_BYTES, ecn=0)
HOP = {"port": 2, "src_mac": 1, "dst_mac": 2}


@dataclass(frozen=True)
class Workload:
    """A program, and entries that forward `FRAME`."""

    program: Path
    runtime: dict[str, Any]


WORKLOADS = {
    "pacer.p4": Workload(
        PACER / "pacing_switch" / "pacer.json",
        {
            "table_entries": [paced_class(CLASS, RATE_BPS), flow_by_dscp(CLASS)],
            "multicast_group_entries": all_to(2),
        },
    ),
    "router.p4": Workload(
        ROUTER / "router.json",
        {
            "table_entries": [
                {
                    "table": "RouterIngress.routes",
                    "match": {"hdr.ipv4.dst_addr": ["10.0.0.0", 8]},
                    "action_name": "RouterIngress.next_hop",
                    "action_params": HOP,
                }
            ]
        },
    ),
}


@dataclass(frozen=True)
class Reading:
    """One run of the switch. Its time includes that for the capture files."""

    workload: str
    traces: str
    seconds: float
    cpu_seconds: float
    trace_bytes: int


def reading(name: str, form: str, folder: Path) -> Reading:
    """Runs the switch once over the capture in `folder`."""
    workload, file = WORKLOADS[name], FORMS[form]
    command = [str(binary()), "--virtual", "--log-level", "warn", "--cpu-port", "510"]
    command += ["-i", f"1@{folder}/p1", "-i", f"2@{folder}/p2,rate=10gbit"]
    command += ["--runtime-json", str(folder / "runtime.json")]
    command += ["--packet-trace", str(folder / file)] if file else []
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run([*command, str(workload.program)], capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    trace_bytes = (folder / file).stat().st_size if file else 0
    return Reading(name, form, seconds, cpu_seconds, trace_bytes)


def readings(packets: int, rounds: int) -> Iterator[Reading]:
    """The readings of all workloads and forms, in turn."""
    for name, workload in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            arrivals = (TimedFrame(n * INTERVAL_NS, FRAME) for n in range(packets))
            write_capture(folder / "p1_in.pcap", arrivals)
            (folder / "runtime.json").write_text(json.dumps(workload.runtime))
            for _ in range(rounds):
                for form in FORMS:
                    yield reading(name, form, folder)


def main() -> None:
    """Measures, prints a table, and writes the readings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--packets", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found = list(readings(given.packets, given.rounds))
    print(f"{'program':<12}{'traces':<10}{'packets/s':>12}{'processor us':>14}{'bytes':>8}")
    for name in WORKLOADS:
        for form in FORMS:
            those = [r for r in found if (r.workload, r.traces) == (name, form)]
            per_second = given.packets / statistics.median(r.seconds for r in those)
            cpu_us = statistics.median(r.cpu_seconds for r in those) / given.packets * 1e6
            size = those[0].trace_bytes / given.packets
            print(f"{name:<12}{form:<10}{per_second:>12,.0f}{cpu_us:>14.2f}{size:>8,.0f}")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([asdict(r) for r in found], indent=1) + "\n")


if __name__ == "__main__":
    main()

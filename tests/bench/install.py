"""Time and memory for installing very many classes in pacing_switch through P4Runtime.

    install.py [--out FILE.json] [--classes N] [--batch N] [--flows]

Inserts N classes of pacer.p4, each with a rate of its own, in Write requests of `--batch` updates
(--flows: a flow, by its IPv4 source, for each, too), then changes every class's rate, and reads
some back. For each step: the time that the requests took, the switch's processor time, and the
memory that it has then. Needs neither root nor interfaces; the switch serves on the loopback.

The client is Python and makes its requests before the clock runs, a round of them at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from finsy.proto import p4r
from targets import PACER, ROOT, Started, p4_switch

from p4runtime_client import Client  # isort: skip
from pacer_entries import paced_class  # isort: skip

CLASSES_MAX = (1 << 20) - 1
"""Class 0 is for packets that no flow matches."""
RATE_BPS_LEAST = 8_000
FIRST_SOURCE = 0x0A000000
"""10.0.0.0, as the IPv4-mapped address that the program's key has."""
MAPPED = 0xFFFF << 32
REQUESTS_AHEAD = 20
SAMPLES = 1_000
"""Classes read back."""


def rate_bps(number: int, more: int) -> int:
    """A rate that no other class has."""
    return RATE_BPS_LEAST + 10 * number + more


def class_of(client: Client, number: int, more: int) -> p4r.Entity:
    """A class with a rate of its own."""
    params = paced_class(number, rate_bps(number, more), limit_bytes=1 << 20)["action_params"]
    assert isinstance(params, dict)
    return client.entry(
        "PacerIngress.classes", {"class_id": number}, "PacerIngress.paced_static", params
    )


def flow_of(client: Client, number: int) -> p4r.Entity:
    """All packets of one host belong to its class."""
    return client.entry(
        "PacerIngress.flows",
        {"src_addr": MAPPED | (FIRST_SOURCE + number)},
        "PacerIngress.classify",
        {"class_id": number, "drop_red": 0, "mark": 0, "yellow_dscp": 0, "red_dscp": 0},
        priority=1,
    )


def resident_bytes(pid: int) -> int:
    """Memory that the process has, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def step(
    client: Client,
    started: Started,
    kind: p4r.Update.Type.ValueType,
    entity: Callable[[int], p4r.Entity],
    count: int,
    batch: int,
) -> dict[str, Any]:
    """Writes entities 1 to `count`; returns the figures of the writes."""

    def requests() -> Iterator[p4r.WriteRequest]:
        for first in range(1, count + 1, batch):
            request = p4r.WriteRequest(device_id=client.device_id, election_id=client.election_id)
            for number in range(first, min(first + batch, count + 1)):
                request.updates.add(type=kind, entity=entity(number))
            yield request

    waiting = requests()
    seconds = 0.0
    processor = started.cpu_seconds()
    while ahead := list(islice(waiting, REQUESTS_AHEAD)):
        begin = time.monotonic()
        for request in ahead:
            client.stub.Write(request, timeout=60)
        seconds += time.monotonic() - begin
    return {
        "entries": count,
        "seconds": seconds,
        "processor_seconds": started.cpu_seconds() - processor,
        "resident_bytes": resident_bytes(started.pid),
    }


def main() -> int:
    """Install, print, write."""
    parser = argparse.ArgumentParser(description="Very many classes through P4Runtime")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "install.json")
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1_000, help="updates in a Write request")
    parser.add_argument("--flows", action="store_true", help="a flow for each class, too")
    options = parser.parse_args()
    if not 1 <= options.classes <= CLASSES_MAX or options.batch < 1:
        raise SystemExit(f"--classes is 1 to {CLASSES_MAX}, --batch at least 1")
    steps: dict[str, dict[str, Any]] = {}
    with p4_switch("pacing_switch", PACER / "pacing_switch", "pacer", ports=()) as started:
        client = started.client
        assert client is not None
        before = resident_bytes(started.pid)

        def run(
            name: str, kind: p4r.Update.Type.ValueType, entity: Callable[[int], p4r.Entity]
        ) -> None:
            steps[name] = step(client, started, kind, entity, options.classes, options.batch)

        run("classes", p4r.Update.INSERT, lambda number: class_of(client, number, 0))
        if options.flows:
            run("flows", p4r.Update.INSERT, lambda number: flow_of(client, number))
        run("rates changed", p4r.Update.MODIFY, lambda number: class_of(client, number, 1))
        for number in range(1, options.classes + 1, max(1, options.classes // SAMPLES)):
            wanted = class_of(client, number, 1)
            (found,) = client.read(client.entry("PacerIngress.classes", {"class_id": number}))
            assert found == wanted, f"class {number} is not what was written"
    document = {"batch": options.batch, "resident_bytes_before": before, "steps": steps}
    print(f"{'step':14} {'entries':>9} {'s':>7} {'a second':>9} {'CPU s':>7} {'memory':>9}")
    for name, row in steps.items():
        print(
            f"{name:14} {row['entries']:9,} {row['seconds']:7.1f}"
            f" {row['entries'] / row['seconds']:9,.0f} {row['processor_seconds']:7.1f}"
            f" {row['resident_bytes'] / 1e6:6.0f} MB"
        )
    print(f"memory before: {before / 1e6:.0f} MB")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

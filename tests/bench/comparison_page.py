#!/usr/bin/env python3
"""Makes the page of the comparison from its readings.

    comparison_page.py READINGS.json PAGE.md

READINGS.json is what comparison.py writes. It is copied beside the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Document = dict[str, Any]
Reading = dict[str, Any]
Line = Sequence[str]

HEAD = """# Comparison with other switches

`make bench-comparison` measures this project's switch beside stock BMv2, Open vSwitch (userspace
datapath, stock and [patched](../ovs-patches/README.md)), a bridge of the kernel, and a bare
forwarder without P4. Each figure is the median of interleaved readings, with the least and the
greatest in brackets. All figures are of one machine, which carries generator, hosts and receiver,
too: compare rows, not machines. [Performance](performance.md) has the rest.
"""

NONE = """
There are no readings yet. To make them, on an idle machine, as root, with `simple_switch_grpc` on
PATH (built with `-O3`, without logging macros and event logger):

    make ovs switch
    ovs-patches/build --stock
    make bench-comparison
    make comparison-page
"""

NON_DROP = """
## Packets without loss

The non-drop rate (RFC 2544, 26.1): the highest rate at which nothing is lost for {seconds:g} s,
by a binary search. Thousands of packets per second, one way, by frame size with FCS. A target has
one core and the generator the other. *At least*: the target loses nothing of what the generator
can send.
"""

MOST = """
## The most that comes through

Thousands of packets per second: the highest rate that came through in any trial, with or without
loss; then the rate that comes through when the generator sends as fast as it can. Some switches
forward less under such a load.
"""

LATENCY = """
## Latency at half of that rate

Median and 99th percentile, in us, from the target's interface to the receiver's, at half of the
non-drop rate. The kernel stamps about a thousand probes a second among the packets. {lost}
"""

PROCESSOR = """
## Processor time of a packet

Us of the target's processor for each packet at half of the non-drop rate, polling included. The
kernel bridge works in the sender's time.
"""

TCP = """
## TCP between hosts

Goodput in Gbit/s over {seconds:g} s, by number of streams. Two hosts, in network namespaces,
share all processors with the target. *On*: their offloads are as the kernel makes them. *Off*:
all offloads are off at both ends of their wires.
"""

RUN = """
## What was run

{processors} processors ({processor}), {kernel}, {iperf3}. Trials of {seconds:g} s, TCP of
{tcp_seconds:g} s; at most {rounds} readings of a figure, from {first} to {last}, at a load of
{load_least:.1f} to {load_most:.1f}. This project: commit `{commit}`. [All
readings](comparison.json) are beside this page.
"""

BMV2_CHECKSUMS = (
    "BMv2 forwards a checksum that a host leaves to its hardware as it comes, unfinished. The "
    "receiver drops these segments (`TcpInCsumErrors`)."
)
"""Why TCP does not even connect."""

ABSENT = """
## Missing programs

"""

BMV2 = "simple_switch_grpc"
OFFLOADS_ON = "TCP, offloads on"

FAILED = """
## What failed

A failed reading counts for no figure.

"""


def table(lines: Iterable[Line]) -> str:
    """A table whose first line is its head."""
    head, *rest = lines
    shown = [head, ["---"] * len(head), *rest]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in shown)


def amount(value: float) -> str:
    """A number with three digits or more."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """The median, with the range where there is one."""
    if not values:
        return "-"
    middle = amount(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({amount(min(values))} to {amount(max(values))})"


def each(readings: Iterable[Reading], name: str, scale: float = 1.0) -> list[float]:
    """A figure of all readings that have it."""
    return [reading[name] * scale for reading in readings if reading.get(name) is not None]


def grid(
    document: Document,
    part: str,
    columns: Sequence[tuple[str, dict[str, Any]]],
    cell: Callable[[list[Reading]], str],
) -> str:
    """A row for each target, a column for each kind of job."""
    head = ["", *(title for title, _ in columns)]
    lines = [head]
    for name in document["targets"]:
        line = [name]
        for _, wanted in columns:
            here = [
                reading
                for reading in document["readings"]
                if reading["job"]["part"] == part
                and reading["job"]["target"] == name
                and all(reading["job"][key] == value for key, value in wanted.items())
            ]
            whole = [reading for reading in here if "error" not in reading]
            line.append(cell(whole) if whole or not here else "fails")
        lines.append(line)
    return table(lines)


def non_drop(readings: list[Reading]) -> str:
    """The rate of some readings."""
    shown = spread(each(readings, "non_drop_pps", 1e-3))
    limits = [reading["at_generator"] for reading in readings]
    return f"at least {shown}" if limits and 2 * sum(limits) > len(limits) else shown


def most(readings: list[Reading]) -> str:
    """The highest rate, and that of a flood."""
    if not readings:
        return "-"
    rates = (median(each(readings, name, 1e-3)) for name in ("most_pps", "flood_pps"))
    return " / ".join(amount(rate) for rate in rates)


def latency(readings: list[Reading]) -> str:
    """Median and 99th percentile."""
    names = ("half_p50_us", "half_p99_us")
    return " / ".join(spread(each(readings, name)) for name in names) if readings else "-"


def packets(document: Document) -> str:
    """The sections on packets."""
    sizes = sorted(
        {
            reading["job"]["frame_bytes"]
            for reading in document["readings"]
            if reading["job"]["part"] == "packets"
        }
    )
    if not sizes:
        return ""
    columns = [(f"{size} bytes", {"frame_bytes": size}) for size in sizes]
    lossy = sum(reading.get("half_lost", 0) > 0 for reading in document["readings"])
    count = sum("half_lost" in reading for reading in document["readings"])
    lost = "All packets came through." if not lossy else ""
    lost = lost or f"In {lossy} of {count} readings some packets were lost."
    return "".join(
        (
            NON_DROP.format(seconds=document["seconds"]),
            grid(document, "packets", columns, non_drop),
            LATENCY.format(lost=lost),
            grid(document, "packets", columns, latency),
            PROCESSOR,
            grid(document, "packets", columns, lambda here: spread(each(here, "half_cpu_us"))),
            MOST,
            grid(document, "packets", columns, most),
        )
    )


def tcp(document: Document) -> str:
    """The section on TCP."""
    columns = sorted(
        {
            (not reading["job"]["offloads"], reading["job"]["streams"])
            for reading in document["readings"]
            if reading["job"]["part"] == "tcp"
        }
    )
    if not columns:
        return ""
    titled = [
        (f"{'off' if off else 'on'}, {count}", {"offloads": not off, "streams": count})
        for off, count in columns
    ]
    return TCP.format(seconds=document["tcp_seconds"]) + grid(
        document, "tcp", titled, lambda here: spread(each(here, "bps", 1e-9))
    )


def run(document: Document) -> str:
    """The section on machine, versions and commands."""
    readings = document["readings"]
    loads = [reading["load"] for reading in readings]
    text = RUN.format(
        **document["machine"],
        **{name: document[name] for name in ("seconds", "tcp_seconds", "commit")},
        rounds=max(reading["job"]["round"] for reading in readings),
        first=min(reading["at"] for reading in readings),
        last=max(reading["at"] for reading in readings),
        load_least=min(loads),
        load_most=max(loads),
    )
    lines = [["", "version", "how it is run"]]
    lines += [[name, of["version"], of["command"]] for name, of in document["targets"].items()]
    return text + table(lines)


def failed(document: Document) -> str:
    """The section on readings that failed: targets, and why."""
    causes: dict[tuple[str, str], int] = {}
    for reading in document["readings"]:
        if "error" in reading:
            job = reading["job"]
            why = reading["error"].strip().partition("\n")[0]
            kind = "packets"
            if job["part"] == "tcp":
                kind = OFFLOADS_ON if job["offloads"] else "TCP, offloads off"
            key = (f"{job['target']}, {kind}", why)
            causes[key] = causes.get(key, 0) + 1
    lines = [f"- {what}: {why} ({count} readings)\n" for (what, why), count in causes.items()]
    if any(what.startswith(BMV2) and what.endswith(OFFLOADS_ON) for what, _ in causes):
        lines.append(f"\n{BMV2_CHECKSUMS}\n")
    return FAILED + "".join(lines) if lines else ""


def page(document: Document | None) -> str:
    """The whole page; without readings, how to make them."""
    if not document or not document["readings"]:
        return HEAD + NONE
    text = HEAD + packets(document) + tcp(document) + run(document) + failed(document)
    if document["absent"]:
        lines = [f"- {name}: {how}\n" for name, how in document["absent"].items()]
        text += ABSENT + "".join(lines)
    return text


def main() -> None:
    """Write the page, and the readings beside it."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    text = source.read_text()
    out.write_text(page(json.loads(text)))
    beside = out.with_suffix(".json")
    if beside.resolve() != source.resolve():
        beside.write_text(text)
    print(f"written: {out}, {beside}")


if __name__ == "__main__":
    main()

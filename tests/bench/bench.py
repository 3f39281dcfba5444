"""Real-time figures, as ratios within one run.

    bench.py [--out FILE.json] [--seconds S] [--only PART,...]

forwarding: frames of 64 and 1500 bytes, one way, through the project's bare forwarder, through
pacing_switch with pacer.p4 and with a plain IPv4 router, each with AF_PACKET and with AF_XDP ports,
and through simple_switch_grpc with the same programs where it is installed; the far end's interface
counter counts. Beside frames
per second: frames per second of processor time, which other load changes less. gaps: UDP offered at
1.2 times the rate into a class of pacing_switch, Linux TBF and HTB; an independent receiver at the
far veth takes kernel time stamps. spin: gaps and processor time for several values of --spin.
busy: classes beside four processes that compute without end, interleaved with TBF and HTB.
trains: gaps of a class while other ports carry TCP in trains at full speed, interleaved with gaps
without it.
stages: processor time of each of three threads for a packet, and what they would carry with a
processor each, which is calculated.
latency: single unpaced frames, from interface to interface. idle: processor time with four ports up
and no traffic. Everything happens in a network namespace of its own. Needs root.

The tables go beside FILE.json, as Markdown.

Absolute figures belong to the machine and to what else it is doing; compare rows of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import beside
import measures
from own_namespace import run_inside
from pacer_entries import paced_class
from pacing_switch.wires import WireError, make_wires
from tables import markdown
from targets import (
    PACER,
    ROOT,
    ROUTER,
    SENDER_CPU,
    TARGET_CPU,
    WIRE,
    Started,
    bare_forwarder,
    forward_by_pacer,
    forward_by_router,
    install_class,
    p4_switch,
    pace,
    running,
)

FRAME_BYTES = (64, 1500)
"""Without FCS."""
RATES_BPS = (10_000_000, 100_000_000, 500_000_000)
SPINS_US = (0, 10, 25, 50, 100, 200)
SPIN_RATES_BPS = (100_000_000, 500_000_000)
ROUNDS = 3
XDP = ("--port-driver", "af_xdp")
AF_XDP = 44
"""Not exported by Python's socket module."""
BUSY_RATES_BPS = (10_000_000, 200_000_000, 500_000_000)
BUSY_PROCESSES = 4
BUSY_ROUNDS = 5
EVERYWHERE = f"0-{(os.cpu_count() or 1) - 1}"
ALLOWANCE_BYTES = 16_384
STAGES = {"receive": "receive_us", "pacing_switch": "program_us", "send": "send_us"}
"""The names of the three threads. With one, it is the second."""
STAGES_PPS = 100_000
"""Fewer than any of them carries: a thread that finds a ring full would poll."""
IDLE_SECONDS = 20.0
IDLE_PORTS = tuple((port, f"idle{port}") for port in range(1, 5))
LATENCY_SECONDS_PER_SECOND = 2
"""Single frames are few: measured for longer than the rest."""

Rows = list[dict[str, Any]]
Targets = dict[tuple[str, str], Callable[[], AbstractContextManager[Started]]]


def quiet(*command: str) -> None:
    """Runs a command; shows its output only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


def targets() -> Targets:
    """The forwarders, by target and program."""
    found: Targets = {
        ("bare forwarder", "-"): bare_forwarder,
        ("pacing_switch", "pacer.p4"): lambda: p4_switch(
            "pacing_switch", PACER / "pacing_switch", "pacer", forward_by_pacer
        ),
        ("pacing_switch", "router.p4"): lambda: p4_switch(
            "pacing_switch", ROUTER, "router", forward_by_router
        ),
    }
    if shutil.which("simple_switch_grpc"):
        found["simple_switch_grpc", "pacer.p4"] = lambda: p4_switch(
            "bmv2", PACER / "bmv2", "pacer", forward_by_pacer
        )
        found["simple_switch_grpc", "router.p4"] = lambda: p4_switch(
            "bmv2", ROUTER, "router", forward_by_router
        )
    else:
        print("not run: simple_switch_grpc (not on PATH)")
    return found


def has_xdp() -> bool:
    """Whether there are AF_XDP sockets here; says so if not."""
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW).close()
    except OSError as error:
        print(f"not run: AF_XDP ports ({error})")
        return False
    return True


def xdp_targets() -> Targets:
    """The forwarders between AF_XDP ports."""
    if not has_xdp():
        return {}
    return {
        ("bare forwarder, AF_XDP", "-"): lambda: bare_forwarder(*XDP),
        ("pacing_switch, AF_XDP", "pacer.p4"): lambda: p4_switch(
            "pacing_switch", PACER / "pacing_switch", "pacer", forward_by_pacer, options=XDP
        ),
        ("pacing_switch, AF_XDP", "router.p4"): lambda: p4_switch(
            "pacing_switch", ROUTER, "router", forward_by_router, options=XDP
        ),
    }


def paced_switch(rate_bps: int, *options: str) -> AbstractContextManager[Started]:
    """pacing_switch with pacer.p4 that has the sender's frames in a class with a rate."""
    return p4_switch(
        "pacing_switch",
        PACER / "pacing_switch",
        "pacer",
        forward_by_pacer,
        lambda client: pace(client, rate_bps),
        options=options,
    )


def forwarding(seconds: float) -> Rows:
    """All targets, interleaved over several rounds, so that noise meets each alike."""
    readings: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    forwarders = {**targets(), **xdp_targets()}
    for _ in range(ROUNDS):
        for (name, program), target in forwarders.items():
            with target() as started:
                for frame_bytes in FRAME_BYTES:
                    reading = measures.forwarding(started, frame_bytes, seconds)
                    readings.setdefault((name, program, frame_bytes), []).append(reading)
    rows: Rows = [
        {
            "target": name,
            "program": program,
            "frame_bytes": frame_bytes,
            "pps": round(median(pps for pps, _ in values)),
            "pps_min": round(min(pps for pps, _ in values)),
            "pps_max": round(max(pps for pps, _ in values)),
            "packets_per_cpu_second": round(median(work for _, work in values)),
        }
        for (name, program, frame_bytes), values in sorted(
            readings.items(), key=lambda item: item[0][2]
        )
    ]
    for row in rows:
        bare = next(
            other
            for other in rows
            if other["target"] == "bare forwarder" and other["frame_bytes"] == row["frame_bytes"]
        )
        row["of_bare"] = row["pps"] / max(bare["pps"], 1)
        row["of_bare_per_cpu_second"] = row["packets_per_cpu_second"] / max(
            bare["packets_per_cpu_second"], 1
        )
    return rows


def gap_row(shaper: str, rate_bps: int, report: dict[str, Any]) -> dict[str, Any]:
    """The part of a gapmeter report that goes into the results: errors against the ideal gap."""
    return {
        "shaper": shaper,
        "rate_bps": rate_bps,
        "mean_rate_bps": report["mean_rate_bps"],
        "p50_us": report["error_p50_us"],
        "p99_us": report["error_p99_us"],
        "p999_us": report["error_p999_us"],
        "max_us": report["error_max_us"],
        "back_to_back_max": report["back_to_back_max"],
        "back_to_back_max_unstalled": report["back_to_back_max_unstalled"],
        "stalls_seen": report["stalls"],
        "queue_max_bytes": report["queue_max_bytes"],
    }


def paced_row(
    rate_bps: int, seconds: float, *options: str, shaper: str = "pacing_switch", nice: int = 0
) -> dict[str, Any]:
    """Gaps behind pacing_switch, its processor time and its own account of its stalls."""
    with paced_switch(rate_bps, *options) as started:
        # Of the thread that paces, which is the first.
        os.setpriority(os.PRIO_PROCESS, started.pid, nice)
        used_s = -started.cpu_seconds()
        report = measures.gaps(WIRE.receiver, rate_bps, seconds, SENDER_CPU)
        used_s += started.cpu_seconds()
    # The sender runs longer than the measurement, so this is about its share of the time.
    return {
        **gap_row(shaper, rate_bps, report),
        "cpu_share": used_s / report["seconds"],
        "polling": started.statistics["polling"],
    }


@contextmanager
def kernel_shaper(kind: str, rate_bps: int) -> Iterator[None]:
    """TBF or HTB on the sender's own interface."""
    # The kernel counts a frame without FCS: the same gap is a rate of 1514 / 1518.
    frame_bytes = measures.FRAME_BYTES_MTU
    rate = f"{rate_bps * (frame_bytes - 4) // frame_bytes}bit"
    on = ["dev", WIRE.sender]
    if kind == "tbf":
        quiet("tc", "qdisc", "add", *on, "root", "tbf", "rate", rate,
              "burst", "15000", "limit", "1000000")  # fmt: skip
    else:
        quiet("tc", "qdisc", "add", *on, "root", "handle", "1:", "htb", "default", "1")
        quiet("tc", "class", "add", *on, "parent", "1:", "classid", "1:1", "htb",
              "rate", rate, "burst", "15k")  # fmt: skip
    try:
        yield
    finally:
        quiet("tc", "qdisc", "del", *on, "root")


def gaps(seconds: float) -> Rows:
    """Each shaper at each rate."""
    rows = []
    xdp = has_xdp()
    for rate_bps in RATES_BPS:
        rows.append(paced_row(rate_bps, seconds))
        rows.append(paced_row(rate_bps, seconds, shaper="pacing_switch, nice -20", nice=-20))
        if xdp:
            rows.append(paced_row(rate_bps, seconds, *XDP, shaper="pacing_switch, AF_XDP"))
        for kind in ("tbf", "htb"):
            with kernel_shaper(kind, rate_bps):
                # No device between: the far end of the sender's own pair receives. The shaper
                # works on the sender's core.
                report = measures.gaps(WIRE.device_in, rate_bps, seconds, TARGET_CPU)
            rows.append(gap_row(kind, rate_bps, report))
    return rows


def spin(seconds: float) -> Rows:
    """Gap errors and processor time with and without spinning."""
    return [
        {"spin_us": spin_us, **paced_row(rate_bps, seconds, "--spin", f"{spin_us}us")}
        for rate_bps in SPIN_RATES_BPS
        for spin_us in SPINS_US
    ]


def beside_others(shaper: str, rate_bps: int, seconds: float) -> dict[str, Any]:
    """Gaps behind a shaper that shares all processors with what else there is."""
    if shaper != "pacing_switch":
        with kernel_shaper(shaper, rate_bps), measures.as_instrument():
            report = measures.gaps(WIRE.device_in, rate_bps, seconds, TARGET_CPU)
        return gap_row(shaper, rate_bps, report)
    allowance_ns = ALLOWANCE_BYTES * 8_000_000_000 // rate_bps
    entry = paced_class(1, rate_bps, limit_bytes=1 << 20, allowance_ns=allowance_ns)
    with p4_switch(
        "pacing_switch",
        PACER / "pacing_switch",
        "pacer",
        forward_by_pacer,
        lambda client: install_class(client, entry),
        cpus=EVERYWHERE,
    ):
        with measures.as_instrument():
            report = measures.gaps(WIRE.receiver, rate_bps, seconds, SENDER_CPU)
        return gap_row(shaper, rate_bps, report)


def busy(seconds: float) -> Rows:
    """Classes on a busy machine, as medians of interleaved readings."""
    readings: dict[tuple[int, str], Rows] = {}
    with ExitStack() as others:
        for _ in range(BUSY_PROCESSES):
            others.enter_context(running(["sh", "-c", "while :; do :; done"], EVERYWHERE))
        for _ in range(BUSY_ROUNDS):
            for rate_bps in BUSY_RATES_BPS:
                for shaper in ("pacing_switch", "tbf", "htb"):
                    row = beside_others(shaper, rate_bps, seconds)
                    readings.setdefault((rate_bps, shaper), []).append(row)
    figures = ("mean_rate_bps", "p50_us", "p99_us", "queue_max_bytes")
    return [
        {"shaper": shaper, "rate_bps": rate_bps}
        | {name: median(row[name] for row in rows) for name in figures}
        for (rate_bps, shaper), rows in readings.items()
    ]


def stage_times_us(folder: Path, program: str, threads: int, seconds: float) -> dict[str, float]:
    """Processor time of each thread for a packet of 64 bytes."""
    entries = forward_by_router if program == "router" else forward_by_pacer
    options = ("--threads", str(threads), "--realtime", "off")
    with p4_switch(
        "pacing_switch", folder, program, entries, options=options, cpus=EVERYWHERE
    ) as started:
        before_s = started.thread_seconds()
        packets = measures.trial(started, 64, STAGES_PPS, seconds).received
        after_s = started.thread_seconds()
    used_s = {name: after_s[name] - before_s.get(name, 0.0) for name in after_s}
    return {name: used_s.get(name, 0.0) / packets * 1e6 for name in STAGES}


def stages(seconds: float) -> Rows:
    """Both programs, with one thread and with three in turn."""
    rows: Rows = []
    for folder, program in ((PACER / "pacing_switch", "pacer"), (ROUTER, "router")):
        readings = [
            (
                stage_times_us(folder, program, 1, seconds),
                stage_times_us(folder, program, 3, seconds),
            )
            for _ in range(BUSY_ROUNDS)
        ]
        one_us = median(sum(one.values()) for one, _ in readings)
        three_us = {name: median(three[name] for _, three in readings) for name in STAGES}
        longest_us = max(three_us.values())
        rows.append(
            {
                "program": f"{program}.p4",
                "one_us": one_us,
                **{STAGES[name]: time_us for name, time_us in three_us.items()},
                "calculated_pps": 1e6 / longest_us,
                "calculated_ratio": one_us / longest_us,
            }
        )
    return rows


def latency(seconds: float) -> Rows:
    """The time of single frames through each target."""
    rows: Rows = []
    for (name, program), target in targets().items():
        with target():
            found = measures.latency(seconds * LATENCY_SECONDS_PER_SECOND)
        if not found:
            raise SystemExit(f"{name}, {program}: no frame came through")
        rows.append(
            {
                "target": name,
                "program": program,
                "frames": len(found),
                "p50_us": found[len(found) // 2],
                "p99_us": found[len(found) * 99 // 100],
                "max_us": found[-1],
            }
        )
    return rows


def idle(_: float) -> Rows:
    """Processor time of pacing_switch with pacer.p4 when nothing comes."""
    make_wires([(name, f"{name}far") for _, name in IDLE_PORTS])
    target = p4_switch("pacing_switch", PACER / "pacing_switch", "pacer", ports=IDLE_PORTS)
    with target as started:
        share = measures.cpu_share(started, IDLE_SECONDS)
    return [
        {
            "target": "pacing_switch",
            "ports": len(IDLE_PORTS),
            "seconds": IDLE_SECONDS,
            "cpu_share": share,
        }
    ]


PARTS: dict[str, Callable[[float], Rows]] = {
    "forwarding": forwarding,
    "gaps": gaps,
    "spin": spin,
    "busy": busy,
    "trains": beside.trains,
    "stages": stages,
    "latency": latency,
    "idle": idle,
}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Real-time figures, as ratios within one run")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench.json")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each reading")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by comma (default: all)")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise SystemExit(f"--only: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if (status := run_inside()) is not None:
        return status
    # The measured target has its core to itself.
    os.sched_setaffinity(0, {SENDER_CPU})
    try:
        make_wires([(WIRE.sender, WIRE.device_in), (WIRE.device_out, WIRE.receiver)])
    except WireError as error:
        raise SystemExit(f"cannot run: {error}") from error
    loads = os.getloadavg()
    document = {part: PARTS[part](options.seconds) for part in parts}
    load = f"Load of the machine's {os.cpu_count()} cores: {loads[0]:.1f} before"
    load += f", {os.getloadavg()[0]:.1f} after.\n"
    tables = "\n".join([load, *(f"{part}:\n\n{markdown(part, document[part])}" for part in parts)])
    print(tables)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    beside = options.out.with_suffix(".md")
    beside.write_text(tables)
    print(f"written to {options.out} and {beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compares switches: non-drop rates, latency and processor time, and TCP between hosts.

    comparison.py [--out FILE.json] [--seconds S] [--rounds N] [--sizes 64,...] [--streams 1,...]
                  [--only TEXT] [--part packets|tcp] [--quick] [--retry] [--bmv2-build TEXT]

Targets: pacing_switch with pacer.p4 and router.p4, the project's bare forwarder, a bridge of the
kernel, simple_switch_grpc with the same programs, and the userspace datapath of Open vSwitch, stock
and patched. Those that are not there are named, with the way to get them.

packets: for each frame size (with FCS) the highest rate at which a target loses nothing for S
seconds (RFC 2544), then latency and processor time at half of it. The target has one core, the
generator the other. tcp: streams between two hosts, whose offloads are on or off; hosts and target
share all processors.

Each round reads everything once, so that what else the machine does meets all targets. FILE.json
is written after each reading, and a further call makes the readings that are missing there. So the
program may be ended at any time. The page goes beside FILE.json, as Markdown. In a network
namespace of its own. Needs root, ethtool and iperf3.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import comparison_page
import measures
import tcp
from non_drop import search
from own_namespace import run_inside
from p4runtime_client import Client
from pacing_switch.wires import WireError, make_wires
from targets import (
    PACER,
    PORTS,
    RELEASE,
    ROOT,
    ROUTER,
    SENDER_CPU,
    TARGET_CPU,
    WIRE,
    Started,
    bare_forwarder,
    forward_by_pacer,
    forward_by_router,
    kernel_bridge,
    open_vswitch,
    p4_switch,
)

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
"""Of RFC 2544, for Ethernet; bytes with FCS."""

STREAMS = (1, 8, 64)
SECONDS = 10.0
ROUNDS = 5
QUICK: dict[str, Any] = {"seconds": 1.0, "rounds": 1, "sizes": (64, 1518), "streams": (1, 8)}

BMV2_ABSENT = (
    "Build [BMv2](https://github.com/p4lang/behavioral-model) with PI, `-O3` and without logging "
    "macros and event logger, and put its folder on PATH."
)
FOURWARD_ABSENT = (
    "It is a simulator without network interfaces: its packets come by gRPC (`InjectPacket`), so "
    "it can stand neither between wires nor between hosts. Bazel builds it, with its own backend "
    "of p4c. Its own benchmark: `bazel test //p4runtime:DataplaneBenchmark "
    "--test_output=streamed` in a clone of [4ward](https://github.com/smolkaj/4ward)."
)

Document = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a target stands: interfaces, processors, and the entries of the two programs there.

    `trains`: frames of several segments come.
    """

    ports: Sequence[tuple[int, str]]
    cpus: str
    pacer: Callable[[Client], None]
    router: Callable[[Client], None]
    trains: bool


@dataclass(frozen=True)
class Target:
    """A switch to measure; `digest` identifies what runs."""

    name: str
    command: str
    version: str
    digest: str
    start: Callable[[Place], AbstractContextManager[Started]]


@dataclass(frozen=True)
class Job:
    """A reading to make: of packets of a size, or of TCP with a number of streams."""

    part: str
    target: str
    round: int
    frame_bytes: int = 0
    streams: int = 0
    offloads: bool = False

    @property
    def kind(self) -> str:
        """What is read, for people."""
        if self.part == "packets":
            return f"{self.frame_bytes} bytes"
        return f"{self.streams} streams, offloads {'on' if self.offloads else 'off'}"

    def seconds(self, trial_s: float) -> float:
        """About how long it takes: three whole trials and ten short ones, and starts."""
        return 4 * trial_s + 12 if self.part == "packets" else trial_s / 2 + 4


def first_line(*command: str) -> str:
    """What a program prints first, as for `--version`."""
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def digest(binary: str | Path) -> str:
    """Identify a program by its contents."""
    return hashlib.sha256(Path(binary).read_bytes()).hexdigest()[:16]


def p4_target(kind: str, binary: str, name: str, more: str, program: str) -> Target:
    """A P4 switch with one of the two programs."""
    folder = ROUTER if program == "router" else PACER / kind
    return Target(
        f"{name}, {program}.p4",
        f"`{name} --no-p4 {more}-i 1@{WIRE.device_in} -i 2@{WIRE.device_out}`; program and entries "
        "by P4Runtime",
        first_line(binary, "--version"),
        digest(binary),
        lambda place: p4_switch(
            kind,
            folder,
            program,
            place.router if program == "router" else place.pacer,
            ports=place.ports,
            cpus=place.cpus,
        ),
    )


def ovs_target(name: str, installed: Path) -> Target:
    """A build of Open vSwitch."""
    daemon = installed / "bin" / "ovs-vswitchd"
    return Target(
        name,
        "`ovs-vswitchd`, `datapath_type=netdev`, a flow from each port to the other; between hosts "
        "with offloads `userspace-tso-enable=true`",
        first_line(str(daemon), "--version"),
        digest(daemon),
        lambda place: open_vswitch(installed, place.ports, place.cpus, trains=place.trains),
    )


def all_targets() -> tuple[list[Target], dict[str, str]]:
    """Everything that is there, and why the rest is not."""
    linux = f"{platform.system()} {platform.release()}"
    forwarder, switch = RELEASE / "forwarder", str(RELEASE / "pacing_switch")
    found = [
        Target("kernel bridge", "`ip link add bridge type bridge`", linux, linux,
               lambda place: kernel_bridge(place.ports)),
        Target("bare forwarder", f"`forwarder {WIRE.device_in} {WIRE.device_out}`",
               first_line(str(forwarder), "--version"), digest(forwarder),
               lambda place: bare_forwarder(ports=place.ports, cpus=place.cpus)),
    ]  # fmt: skip
    found += [
        p4_target("pacing_switch", switch, "pacing_switch", "", program)
        for program in ("pacer", "router")
    ]
    absent = {}
    if bmv2 := shutil.which("simple_switch_grpc"):
        found += [
            p4_target("bmv2", bmv2, "simple_switch_grpc", "--log-level off ", program)
            for program in ("pacer", "router")
        ]
    else:
        absent["simple_switch_grpc"] = BMV2_ABSENT
    build = str(ROOT / "ovs-patches" / "build")
    for name, option, how in (
        ("Open vSwitch, stock", "--stock", "`ovs-patches/build --stock`"),
        ("Open vSwitch, patched", "", "`make ovs`"),
    ):
        words = [build, "--print", *([option] if option else [])]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            found.append(ovs_target(name, Path(done.stdout.strip())))
        else:
            absent[name] = f"{how} builds it."
    absent["4ward (Kotlin)"] = FOURWARD_ABSENT
    return found, absent


def packets_reading(target: Target, frame_bytes: int, seconds: float) -> Document:
    """The non-drop rate, and what the target does at half of it."""
    # The measured target has its core to itself.
    os.sched_setaffinity(0, {SENDER_CPU})
    place = Place(PORTS, str(TARGET_CPU), forward_by_pacer, forward_by_router, trains=False)
    with target.start(place) as started:
        measures.announce()
        found = search(
            lambda pps, for_s: measures.trial(started, frame_bytes, pps, for_s),
            seconds,
            max(seconds / 10, 0.2),
        )
        reading = asdict(found)
        if not found.non_drop_pps:
            return reading
        half_pps = found.non_drop_pps / 2
        every = max(round(half_pps / measures.PROBES_PER_SECOND), 1)
        with measures.Probes() as probes:
            options = ("--probe-every", str(every))
            trial = measures.trial(started, frame_bytes, half_pps, seconds, *options)
            times_us = probes.latencies_us()
    if not times_us:
        raise SystemExit("no probe came through")
    return reading | {
        "half_pps": trial.delivered_pps,
        "half_lost": trial.lost,
        "half_cpu_us": trial.cpu_s / trial.received * 1e6 if started.pid else None,
        "half_probes": len(times_us),
        "half_p50_us": times_us[len(times_us) // 2],
        "half_p99_us": times_us[len(times_us) * 99 // 100],
        "half_max_us": times_us[-1],
    }


def tcp_reading(target: Target, job: Job, seconds: float) -> Document:
    """Goodput between hosts."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    place = Place(tcp.PORTS, tcp.everywhere(), tcp.forward, tcp.route, trains=job.offloads)
    with tcp.hosts(offloads=job.offloads) as inside, target.start(place):
        return {"bps": tcp.goodput_bps(inside, seconds, job.streams)}


def jobs(
    names: Sequence[str], rounds: int, sizes: Sequence[int], streams: Sequence[int]
) -> list[Job]:
    """All readings, round by round."""
    return [
        job
        for number in range(1, rounds + 1)
        for job in (
            *(
                Job("packets", name, number, frame_bytes=frame_bytes)
                for frame_bytes in sizes
                for name in names
            ),
            *(
                Job("tcp", name, number, streams=count, offloads=offloads)
                for offloads in (True, False)
                for count in streams
                for name in names
            ),
        )
    ]


def machine() -> dict[str, Any]:
    """What the readings are of."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": models[0] if models else platform.machine(),
        "processors": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "iperf3": first_line("iperf3", "--version"),
    }


def begun(
    out: Path, seconds: float, targets: Sequence[Target], absent: dict[str, str], bmv2_build: str
) -> Document:
    """The stored readings, if they are of the same machine, programs and length; else none.

    Ends the program if the file has other ones.
    """
    document: Document = {
        "seconds": seconds,
        "tcp_seconds": max(round(seconds / 2), 1),
        "machine": machine(),
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"),
        "targets": {},
        "readings": [],
    }
    if out.exists():
        stored = json.loads(out.read_text())
        same = all(stored[key] == document[key] for key in ("seconds", "machine")) and all(
            stored["targets"].get(target.name, {}).get("digest", target.digest) == target.digest
            for target in targets
        )
        if not same:
            raise SystemExit(
                f"{out} has readings of another machine, of other programs or of another length: "
                "remove it, or name another file (--out)"
            )
        document = stored
    for target in targets:
        version = target.version
        if target.name.startswith("simple_switch_grpc") and bmv2_build:
            version += f", {bmv2_build}"
        elif target.name in document["targets"]:
            continue
        shown = {"command": target.command, "version": version, "digest": target.digest}
        document["targets"][target.name] = shown
    document["absent"] = {
        name: how
        for name, how in absent.items()
        if not any(known.startswith(name) for known in document["targets"])
    }
    return document


def missing(document: Document, wanted: Sequence[Job], *, retry: bool) -> list[Job]:
    """The readings that are not stored; with `retry`, those that failed, too."""
    if retry:
        kept = [reading for reading in document["readings"] if "error" not in reading]
        document["readings"] = kept
    made = {Job(**reading["job"]) for reading in document["readings"]}
    return [job for job in wanted if job not in made]


def store(document: Document, out: Path) -> None:
    """Write the readings and the page, so that an end at any time leaves the file whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(out)
    out.with_suffix(".md").write_text(comparison_page.page(document))


def measure(document: Document, todo: Sequence[Job], targets: Sequence[Target], out: Path) -> None:
    """Make readings, and store each."""
    by_name = {target.name: target for target in targets}
    for number, job in enumerate(todo, 1):
        target = by_name[job.target]
        reading: Document = {"job": asdict(job), "load": os.getloadavg()[0]}
        reading["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # It runs for hours without anybody: what fails is stored, and the next reading made.
        try:
            if job.part == "packets":
                reading |= packets_reading(target, job.frame_bytes, document["seconds"])
                shown = f"{reading['non_drop_pps']:,.0f} packets/s without loss"
            else:
                reading |= tcp_reading(target, job, document["tcp_seconds"])
                shown = f"{reading['bps'] / 1e9:.2f} Gbit/s"
        except (Exception, SystemExit) as error:
            is_known = isinstance(error, tcp.TcpError | SystemExit)
            text = str(error) if is_known else f"{type(error).__name__}: {error}"
            reading["error"] = shown = text.replace(f"{ROOT}/", "")
        print(f"{number} of {len(todo)}: {job.target}, {job.kind}: {shown}", flush=True)
        document["readings"].append(reading)
        store(document, out)


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(int(word) for word in text.split(","))


def main() -> int:
    """Measure what is missing, store it, print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "comparison.json")
    parser.add_argument("--seconds", type=float, help=f"length of a trial ({SECONDS:.0f})")
    parser.add_argument("--rounds", type=int, help=f"readings of each figure ({ROUNDS})")
    parser.add_argument("--sizes", type=numbers, help="frame sizes with FCS")
    parser.add_argument("--streams", type=numbers, help="numbers of TCP streams")
    parser.add_argument("--only", default="", help="targets whose name has this text")
    parser.add_argument("--part", choices=("packets", "tcp"))
    parser.add_argument("--quick", action="store_true", help="a reading of each, of a second")
    parser.add_argument("--retry", action="store_true", help="make failed readings again")
    parser.add_argument("--bmv2-build", default="", help="how BMv2 was built, for the page")
    given = parser.parse_args()
    if (status := run_inside()) is not None:
        return status
    settings: dict[str, Any] = {
        "seconds": SECONDS,
        "rounds": ROUNDS,
        "sizes": SIZES,
        "streams": STREAMS,
    }
    if given.quick:
        settings |= QUICK
    settings |= {name: value for name in settings if (value := getattr(given, name)) is not None}
    targets, absent = all_targets()
    targets = [target for target in targets if given.only in target.name]
    document = begun(given.out, settings["seconds"], targets, absent, given.bmv2_build)
    for name, how in document["absent"].items():
        print(f"not run: {name}. {how}")
    names = [target.name for target in targets]
    wanted = jobs(names, settings["rounds"], settings["sizes"], settings["streams"])
    todo = [
        job
        for job in missing(document, wanted, retry=given.retry)
        if given.part in (None, job.part)
    ]
    hours = sum(job.seconds(settings["seconds"]) for job in todo) / 3600
    print(f"{len(todo)} readings, about {hours:.1f} hours", flush=True)
    try:
        make_wires([(WIRE.sender, WIRE.device_in), (WIRE.device_out, WIRE.receiver)])
    except WireError as error:
        raise SystemExit(f"cannot run: {error}") from error
    measure(document, todo, targets, given.out)
    store(document, given.out)
    print(f"written to {given.out} and {given.out.with_suffix('.md')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

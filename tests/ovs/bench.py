"""The cost of the pacer in Open vSwitch: patched against stock, and by number of queues.

    bench.py [--out FILE.json] [--pairs N] [--seconds S] [--only instructions|unused|paced]

- `instructions`: how many the main thread executes for a turn of the datapath in which a packet
  comes in and leaves, patched (no pacer configured) and stock; counted by valgrind's callgrind on
  a dummy datapath, whatever else the machine does. Not run without valgrind.
- `unused`: frames per second of 64 bytes between two veth pairs, with more offered than it can
  forward, and processor time of ovs-vswitchd per frame; patched (no pacer configured) and stock in
  turn, in real time. The result is the median of the pairs' ratios and its confidence interval.
- `paced`: with 1, 100 and 10,000 queues on the port, in real time: one of 100 Mbit/s whose gaps
  are measured by a receiver of its own; the others of 8 kbit/s, which get two frames of 1514 bytes
  every two seconds each, so that three in four of them hold one. Besides, the pacer alone
  (test-pacer's benchmark) with as many queues busy. ovs-vswitchd has real-time priority there, or
  the gaps would be those of the machine's scheduler.

Everything happens in a network namespace of its own. Needs root, `make ovs switch`; the stock build
is made if it is not there (or named by OVS_STOCK, as the patched one by PACER_OVS).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "common"))

from open_vswitch import READY_S, OpenVSwitch, quiet  # noqa: E402

BUILD = ROOT / "ovs-patches" / "build"
RELEASE = Path(os.environ.get("WIRETOOLS") or ROOT / "switch" / "target" / "release")
INSIDE = "PACER_BENCH_INSIDE"
SENDER, DEVICE_IN, DEVICE_OUT, RECEIVER = "gen", "in", "out", "sink"
OFFERED_PPS = 1_000_000
FRAME_BYTES = 64
PACED_FRAME_BYTES = 1514
PACED_RATE_BPS = 100_000_000
FCS_BYTES = 4
QUEUES = (1, 100, 10_000)
PACED_PORT = 5001
SLOW_RATE_BPS = 8_000
SLOW_PERIOD_SECONDS = 2.0
FIRST_SLOW_PORT = 10_000
DUMMY_PACKETS = 100
DUMMY_ROUNDS = 10
DUMMY_FLOW = (
    "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),"
    "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)"
)


def make_wires() -> None:
    """Two veth pairs, offloads off, no IPv6 noise."""
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    quiet("ip", "link", "set", "lo", "up")
    for one, other in ((SENDER, DEVICE_IN), (DEVICE_OUT, RECEIVER)):
        quiet("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        for end in (one, other):
            for feature in ("tso", "gso", "gro", "tx"):
                subprocess.run(["ethtool", "-K", end, feature, "off"], capture_output=True)
            quiet("ip", "link", "set", end, "up")


class Ovs(OpenVSwitch):
    """A running Open vSwitch that forwards from one wire to the other."""

    def receive(self, packets: int) -> None:
        """Lets packets arrive at a dummy device, and waits until they are dealt with."""
        wanted = self._dealt_with() + packets
        self.appctl("netdev-dummy/receive", DEVICE_IN, *[DUMMY_FLOW] * packets)
        limit = time.monotonic() + READY_S
        while self._dealt_with() < wanted:
            if time.monotonic() > limit:
                raise SystemExit("packets got lost")
            time.sleep(0.5)

    def _dealt_with(self) -> int:
        shown = self.appctl("dpif-netdev/pmd-stats-show")
        return sum(int(n) for n in re.findall(r"Rx packets: +(\d+)", shown))

    def pace(self, queues: int) -> None:
        """Gives the outgoing port that many paced queues: 1 is the fast one."""
        numbers = ",".join(["1=@fast", *(f"{n}=@slow" for n in range(2, queues + 1))])
        words = ["--id=@qos", "create", "qos", "type=pacer", f"queues={numbers}"]
        words += ["--", "--id=@fast", "create", "queue", f"other_config:rate={PACED_RATE_BPS}"]
        if queues > 1:
            words += ["--", "--id=@slow", "create", "queue", f"other_config:rate={SLOW_RATE_BPS}"]
        self.vsctl(*words, "--", "set", "port", DEVICE_OUT, "qos=@qos")
        to_queue = {PACED_PORT: 1} | {slow_port(n): n for n in range(2, queues + 1)}
        self.flows(
            [
                f"in_port={DEVICE_IN},udp,tp_dst={port},actions=set_queue:{n},output:{DEVICE_OUT}"
                for port, n in to_queue.items()
            ]
        )

    def processor_seconds(self) -> float:
        """Processor time that the main thread of ovs-vswitchd has used, which forwards."""
        used_ns = Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]
        return int(used_ns) / 1e9

    def put_first(self) -> None:
        """Gives the main thread of ovs-vswitchd real-time priority."""
        os.sched_setscheduler(self.pid, os.SCHED_FIFO, os.sched_param(10))


@contextmanager
def running(installed: Path, under: Sequence[str] = ()) -> Iterator[Ovs]:
    """Open vSwitch, for a while; with a dummy datapath if it runs under another program."""
    ports = (DEVICE_IN, DEVICE_OUT)
    with Ovs.running(installed, ports, under=under, dummy=bool(under)) as ovs:
        ovs.flows([f"in_port={DEVICE_IN},actions=output:{DEVICE_OUT}"])
        yield ovs


def received() -> int:
    """Frames that came out at the far end."""
    # Not below /sys, which shows the network that it was mounted in.
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == RECEIVER:
            return int(counters.split()[1])
    raise SystemExit(f"there is no {RECEIVER}")


@contextmanager
def blasting(frame_bytes: int, pps: float, seconds: float) -> Iterator[None]:
    """Frames are sent while the block runs."""
    sender = subprocess.Popen(
        [
            *(str(RELEASE / "blaster"), SENDER, "--frame-bytes", str(frame_bytes)),
            *("--rate-pps", f"{pps:.0f}", "--seconds", str(seconds)),
            *("--src-mac", "02:00:00:00:00:01", "--dst-mac", "02:00:00:00:00:02"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        sender.terminate()
        sender.wait()


def slow_port(queue: int) -> int:
    """UDP port of a slow queue."""
    return FIRST_SLOW_PORT + queue


def slow_frame(queue: int) -> bytes:
    """A frame for a slow queue, without checksums, which nothing reads."""
    payload = bytes(PACED_FRAME_BYTES - 42)
    udp = struct.pack("!HHHH", 5000, slow_port(queue), 8 + len(payload), 0)
    addresses = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0)
    return b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x08\0" + ip + addresses + udp + payload


@contextmanager
def slow_queues_fed(queues: int) -> Iterator[None]:
    """Two frames for each slow queue every period, evenly, while the block runs."""
    over = threading.Event()

    def feed() -> None:
        numbers = list(range(2, queues + 1))
        pause = SLOW_PERIOD_SECONDS / max(len(numbers), 1)
        frames = [slow_frame(number) for number in numbers]
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((SENDER, 0))
            begin, sent = time.monotonic(), 0
            while frames and not over.is_set():
                for _ in range(2):
                    sender.send(frames[sent % len(frames)])
                sent += 1
                wait = begin + sent * pause - time.monotonic()
                if wait > 0.002:
                    time.sleep(wait)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def speed(ovs: Ovs, frame_bytes: int, pps: float, seconds: float) -> tuple[float, float]:
    """Frames per second that came out, and processor time per frame in us."""
    with blasting(frame_bytes, pps, seconds + 2):
        time.sleep(0.5)
        begin, frames, used = time.monotonic(), received(), ovs.processor_seconds()
        time.sleep(seconds)
        frames, used = received() - frames, ovs.processor_seconds() - used
        took = time.monotonic() - begin
    if not frames:
        raise SystemExit("nothing came out")
    return frames / took, used / frames * 1e6


def confidence(values: Sequence[float]) -> tuple[float, float]:
    """Interval that holds the median with 95 %, from the order of the values alone."""
    ordered, n = sorted(values), len(values)
    outside, tail = 0, 0.0
    while outside < (n - 1) // 2:
        tail += math.comb(n, outside) / 2**n
        if 2 * tail > 0.05:
            break
        outside += 1
    # With few values it is wider than all of them.
    low = max(outside - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def unused(patched: Path, stock: Path, pairs: int, seconds: float) -> dict[str, object]:
    """Stock and patched without a pacer, in turn; the order changes from pair to pair."""
    speeds: dict[Path, list[tuple[float, float]]] = {patched: [], stock: []}
    for pair in range(pairs):
        for installed in (patched, stock) if pair % 2 else (stock, patched):
            with running(installed) as ovs:
                speeds[installed].append(speed(ovs, FRAME_BYTES, OFFERED_PPS, seconds))
    result: dict[str, object] = {"pairs": pairs}
    for name, installed in (("stock", stock), ("patched", patched)):
        result[f"{name}_pps"] = round(median(pps for pps, _ in speeds[installed]))
        result[f"{name}_us"] = round(median(cost for _, cost in speeds[installed]), 3)
    both = list(zip(speeds[patched], speeds[stock], strict=True))
    ratios = {
        "pps_ratio": [ours[0] / theirs[0] for ours, theirs in both],
        "processor_ratio": [theirs[1] / ours[1] for ours, theirs in both],
    }
    for name, values in ratios.items():
        low, high = confidence(values)
        result[name] = round(median(values), 3)
        result[f"{name}_95"] = [round(low, 3), round(high, 3)]
    return result


def instructions(installed: Path) -> float:
    """Instructions per turn of the datapath with a packet, at a dummy device."""
    with tempfile.TemporaryDirectory() as directory:
        counted = Path(directory) / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=dpif_netdev_run"]
        valgrind += [f"--callgrind-out-file={counted}", "--dump-instr=no", "--quiet"]
        with running(installed, valgrind) as ovs:
            pid = str(ovs.pid)
            ovs.receive(DUMMY_PACKETS)
            quiet("callgrind_control", "--zero", pid)
            for _ in range(DUMMY_ROUNDS):
                ovs.receive(DUMMY_PACKETS)
            quiet("callgrind_control", "--dump", pid)
        (dump,) = Path(directory).glob("callgrind.out.1")
        found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.M)
        if found is None:
            raise SystemExit("callgrind counted nothing")
        return int(found[1]) / (DUMMY_PACKETS * DUMMY_ROUNDS)


def instruction_counts(patched: Path, stock: Path) -> dict[str, object]:
    """Patched against stock, in instructions."""
    if shutil.which("valgrind") is None:
        return {"not run": "no valgrind"}
    theirs, ours = instructions(stock), instructions(patched)
    return {
        "stock": round(theirs, 1),
        "patched": round(ours, 1),
        "ratio": round(theirs / ours, 4),
    }


def gap_errors(seconds: float) -> dict[str, object]:
    """The gaps as an independent receiver measures them."""
    ideal_ns = (PACED_FRAME_BYTES + FCS_BYTES) * 8e9 / PACED_RATE_BPS
    meter = subprocess.Popen(
        [
            *(str(RELEASE / "gapmeter"), RECEIVER, "--match", f"udp-dst={PACED_PORT}"),
            *("--ideal-ns", str(ideal_ns), "--seconds", str(seconds), "--skip", "200"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    text, errors = meter.communicate()
    if meter.returncode != 0:
        raise SystemExit(f"gapmeter: {errors}")
    report: dict[str, object] = json.loads(text)
    return report


def paced(patched: Path, test_program: Path, seconds: float) -> list[dict[str, object]]:
    """A row per number of queues."""
    rows: list[dict[str, object]] = []
    pps = 1.2 * PACED_RATE_BPS / 8 / (PACED_FRAME_BYTES + FCS_BYTES)
    for queues in QUEUES:
        with running(patched) as ovs:
            ovs.pace(queues)
            ovs.put_first()
            with slow_queues_fed(queues):
                time.sleep(SLOW_PERIOD_SECONDS)
                _, cost = speed(ovs, PACED_FRAME_BYTES, pps, seconds)
                with blasting(PACED_FRAME_BYTES, pps, seconds + 3):
                    report = gap_errors(seconds)
        alone = quiet(str(test_program), "test-pacer", "benchmark", str(queues), "1000000")
        rows.append(
            {
                "queues": queues,
                "us_per_frame": round(cost, 3),
                "pacer_alone_ns": int(alone.split()[2]),
                "mean_rate_bps": report["mean_rate_bps"],
                "gap_error_p50_us": report["error_p50_us"],
                "gap_error_p99_us": report["error_p99_us"],
            }
        )
    return rows


def built(*options: str) -> Path:
    """The directory of Open vSwitch, built if needed."""
    return Path(quiet(str(BUILD), *options).strip())


def main() -> int:
    """Everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=("instructions", "unused", "paced"))
    options = parser.parse_args()
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        wanted = (("PACER_OVS", ()), ("OVS_STOCK", ("--stock",)), ("OVSTEST", ("--tree",)))
        for variable, how in wanted:
            if variable not in os.environ:
                found = built(*how)
                os.environ[variable] = str(
                    found / "tests" / "ovstest" if variable == "OVSTEST" else found
                )
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    patched, stock = Path(os.environ["PACER_OVS"]), Path(os.environ["OVS_STOCK"])
    make_wires()
    parts: dict[str, Callable[[], object]] = {
        "instructions": lambda: instruction_counts(patched, stock),
        "unused": lambda: unused(patched, stock, options.pairs, options.seconds),
        "paced": lambda: paced(patched, Path(os.environ["OVSTEST"]), options.seconds),
    }
    document = {name: part() for name, part in parts.items() if options.only in (None, name)}
    text = json.dumps(document, indent=2)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

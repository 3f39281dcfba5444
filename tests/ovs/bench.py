"""What the pacer costs Open vSwitch, in real time: patched against stock, and by number of queues.

    bench.py [--out FILE.json] [--pairs N] [--seconds S]

Cost: processor time of ovs-vswitchd per frame of 64 bytes that it forwards between two veth pairs,
patched (no pacer configured) and stock in turn; the median of the pairs' ratios counts. Processor
time, not frames per second, since that bears a busy machine better. Queues: the same, and the
errors of the gaps, with 1, 100 and 10,000 paced queues on the port, at 100 Mbit/s into one of them.
The pacer alone (test-pacer's benchmark) with as many queues busy.

Everything happens in a network namespace of its own. Needs root, `make ovs switch`; the stock build
is made if it is not there (or named by OVS_STOCK, as the patched one by PACER_OVS).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "ovs-patches" / "build"
RELEASE = Path(os.environ.get("WIRETOOLS") or ROOT / "switch" / "target" / "release")
INSIDE = "PACER_BENCH_INSIDE"
SENDER, DEVICE_IN, DEVICE_OUT, RECEIVER = "gen", "in", "out", "sink"
OFFERED_PPS = 50_000
FRAME_BYTES = 64
PACED_FRAME_BYTES = 1514
PACED_RATE_BPS = 100_000_000
FCS_BYTES = 4
QUEUES = (1, 100, 10_000)
READY_SECONDS = 30.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def quiet(*command: str) -> str:
    """Runs a command that must not fail; returns what it printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:200]}: {done.stderr.strip()}")
    return done.stdout


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


class Ovs:
    """A running Open vSwitch that forwards from one wire to the other."""

    def __init__(self, installed: Path, directory: Path) -> None:
        self.binaries = installed / "bin"
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        os.environ.update(OVS_RUNDIR=str(directory), OVS_LOGDIR=str(directory))
        database = directory / "conf.db"
        schema = installed / "share" / "vswitch.ovsschema"
        quiet(str(self.binaries / "ovsdb-tool"), "create", str(database), str(schema))
        self._start("ovsdb-server", str(database), f"--remote=punix:{directory}/db.sock")
        self._wait_for(directory / "db.sock")
        self.vsctl("--no-wait", "init")
        self._start("ovs-vswitchd", f"unix:{directory}/db.sock")
        self.vsctl(
            *("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"),
            *("--", "add-port", "br0", DEVICE_IN, "--", "add-port", "br0", DEVICE_OUT),
        )
        self.flow(f"in_port={DEVICE_IN},actions=output:{DEVICE_OUT}")

    def _start(self, program: str, *words: str) -> None:
        command = [str(self.binaries / program), *words, f"--unixctl={self.directory}/{program}"]
        self.processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def _wait_for(self, path: Path) -> None:
        limit = time.monotonic() + READY_SECONDS
        while not path.exists():
            if time.monotonic() > limit:
                raise SystemExit(f"no {path.name} after {READY_SECONDS:.0f} s")
            time.sleep(0.02)

    def vsctl(self, *words: str) -> str:
        """Runs ovs-vsctl."""
        return quiet(
            str(self.binaries / "ovs-vsctl"), f"--db=unix:{self.directory}/db.sock", *words
        )

    def flow(self, flow: str) -> None:
        """Replaces all flows by one."""
        ofctl, bridge = str(self.binaries / "ovs-ofctl"), f"unix:{self.directory}/br0.mgmt"
        quiet(ofctl, "del-flows", bridge)
        quiet(ofctl, "--names", "add-flow", bridge, flow)

    def pace(self, queues: int) -> None:
        """Gives the outgoing port that many paced queues; frames go into queue 1."""
        words = ["--id=@qos", "create", "qos", "type=pacer"]
        words += [f"queues={','.join(f'{n}=@queue' for n in range(1, queues + 1))}"]
        words += ["--", "--id=@queue", "create", "queue", f"other_config:rate={PACED_RATE_BPS}"]
        self.vsctl(*words, "--", "set", "port", DEVICE_OUT, "qos=@qos")
        self.flow(f"in_port={DEVICE_IN},actions=set_queue:1,output:{DEVICE_OUT}")

    def processor_seconds(self) -> float:
        """Processor time that ovs-vswitchd has used."""
        stat = Path(f"/proc/{self.processes[-1].pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def stop(self) -> None:
        """Ends the processes, by their ids."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


@contextmanager
def running(installed: Path) -> Iterator[Ovs]:
    """Open vSwitch, for a while."""
    with tempfile.TemporaryDirectory() as directory:
        ovs = Ovs(installed, Path(directory))
        try:
            yield ovs
        finally:
            ovs.stop()
            for device in ("br0", "ovs-netdev"):
                subprocess.run(["ip", "link", "del", device], capture_output=True)


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


def microseconds_per_frame(ovs: Ovs, frame_bytes: int, pps: float, seconds: float) -> float:
    """Processor time per frame that came out."""
    with blasting(frame_bytes, pps, seconds + 2):
        time.sleep(0.5)
        frames, used = received(), ovs.processor_seconds()
        time.sleep(seconds)
        frames, used = received() - frames, ovs.processor_seconds() - used
    if not frames:
        raise SystemExit("nothing came out")
    return used / frames * 1e6


def unused(patched: Path, stock: Path, pairs: int, seconds: float) -> dict[str, object]:
    """Stock and patched without a pacer, in turn; the order changes from pair to pair."""
    ratios, costs = [], {patched: [0.0] * 0, stock: [0.0] * 0}
    for pair in range(pairs):
        cost = {}
        for installed in (patched, stock) if pair % 2 else (stock, patched):
            with running(installed) as ovs:
                cost[installed] = microseconds_per_frame(ovs, FRAME_BYTES, OFFERED_PPS, seconds)
            costs[installed].append(cost[installed])
        ratios.append(cost[stock] / cost[patched])
    return {
        "pairs": pairs,
        "stock_us": round(median(costs[stock]), 3),
        "patched_us": round(median(costs[patched]), 3),
        "speed_ratio": round(median(ratios), 3),
        "speed_ratios": [round(ratio, 3) for ratio in ratios],
    }


def gap_errors(seconds: float) -> dict[str, object]:
    """What an independent receiver sees of the gaps."""
    ideal_ns = (PACED_FRAME_BYTES + FCS_BYTES) * 8e9 / PACED_RATE_BPS
    meter = subprocess.Popen(
        [
            *(str(RELEASE / "gapmeter"), RECEIVER, "--match", "udp-dst=5001"),
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
            cost = microseconds_per_frame(ovs, PACED_FRAME_BYTES, pps, seconds)
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
    """Where Open vSwitch is, built if needed."""
    return Path(quiet(str(BUILD), *options).strip())


def main() -> int:
    """Everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
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
    document = {
        "unused": unused(patched, stock, options.pairs, options.seconds),
        "paced": paced(patched, Path(os.environ["OVSTEST"]), options.seconds),
    }
    text = json.dumps(document, indent=2)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

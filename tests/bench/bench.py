"""Real-time figures, as ratios within one run: packets per second, and errors of gaps.

    bench.py [--out FILE.json] [--seconds S]

Forwarding: frames of 64 and 1500 bytes, one way, through pacing_switch with pacer.p4, through
the project's bare AF_PACKET forwarder, and through simple_switch_grpc with the same program
where it is installed; the far end's interface counter counts. Gaps: UDP offered at 1.2 times the
rate into a class of pacing_switch, Linux TBF and HTB; an independent receiver at the far veth takes
kernel time stamps. Everything happens in a network namespace of its own. Needs root.

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
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
for folder in ("common", "ptf", "virtual"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

from p4runtime_client import Client, Program  # noqa: E402
from pacer_entries import MTU_FRAME_BYTES, paced_class  # noqa: E402
from wires import WireError, make_wires  # noqa: E402

RELEASE = ROOT / "switch" / "target" / "release"
COMPILED = ROOT / "p4src" / "compiled"
DESTINATION = "02:00:00:00:00:02"
SOURCE = "02:00:00:00:00:01"
GRPC_ADDRESS = ("127.0.0.1", 9559)
FRAME_BYTES = (64, 1500)
RATES_BPS = (10_000_000, 100_000_000, 500_000_000)
ROUNDS = 3
OFFERED = 1.2
READY_SECONDS = 60.0
# One core for the sender, the other for what is measured.
SENDER_CPU, TARGET_CPU = 0, 1
INSIDE = "PACER_BENCH_INSIDE"


@dataclass(frozen=True)
class Wire:
    """The sender's and the receiver's interface, and the two of the device between them."""

    sender: str = "gen"
    device_in: str = "in"
    device_out: str = "out"
    receiver: str = "sink"


WIRE = Wire()


def quiet(*command: str) -> None:
    """Runs a command that has nothing to say unless it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def running(command: list[str], cpu: int = TARGET_CPU) -> Iterator[subprocess.Popen[str]]:
    """A process pinned to one core, ended by its pid."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(cpu), *command], stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is not None:
                log.seek(0)
                print(f"{command[0]} ended early:\n{log.read()}", file=sys.stderr)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for_grpc(process: subprocess.Popen[str]) -> None:
    """Returns when the switch accepts connections."""
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        try:
            socket.create_connection(GRPC_ADDRESS, timeout=READY_SECONDS).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise SystemExit("the switch does not come up")


@contextmanager
def p4_switch(target: str, class_rate_bps: int | None = None) -> Iterator[None]:
    """A P4 target with pacer.p4 that forwards the sender's frames, in class 1 if paced."""
    own = ["--grpc-server-addr", f"{GRPC_ADDRESS[0]}:{GRPC_ADDRESS[1]}", "--cpu-port", "510"]
    ports = ["-i", f"1@{WIRE.device_in}", "-i", f"2@{WIRE.device_out}"]
    if target == "bmv2":
        command = ["simple_switch_grpc", "--no-p4", "--log-level", "off", *ports, "--", *own]
    else:
        command = [str(RELEASE / "pacing_switch"), "--no-p4", *own, *ports]
    with running(command) as process:
        wait_for_grpc(process)
        folder = COMPILED / target
        client = Client(
            f"{GRPC_ADDRESS[0]}:{GRPC_ADDRESS[1]}",
            0,
            Program(folder / "pacer.p4info.txtpb", folder / "pacer.json"),
        )
        client.become_primary()
        client.push()
        source, destination = (int(mac.replace(":", ""), 16) for mac in (SOURCE, DESTINATION))
        client.insert(
            client.entry(
                "PacerIngress.sources",
                {"src_mac": source, "ingress_port": 1},
                "PacerIngress.known",
            ),
            client.entry(
                "PacerIngress.forward",
                {"dst_mac": destination},
                "PacerIngress.forward_to",
                {"port": 2},
            ),
        )
        if class_rate_bps is not None:
            params = paced_class(1, class_rate_bps, limit_bytes=1 << 20)["action_params"]
            assert isinstance(params, dict)
            client.insert(
                client.entry(
                    "PacerIngress.classes",
                    {"class_id": 1},
                    "PacerIngress.paced_static",
                    params,
                ),
                client.entry(
                    "PacerIngress.flows",
                    {"ingress_port": 1},
                    "PacerIngress.classify",
                    {"class_id": 1, "drop_red": 0, "mark": 0, "yellow_dscp": 0, "red_dscp": 0},
                    priority=1,
                ),
            )
        yield
        client.close()


@contextmanager
def bare_forwarder() -> Iterator[None]:
    """The project's AF_PACKET forwarder without P4."""
    with running([str(RELEASE / "forwarder"), WIRE.device_in, WIRE.device_out]):
        time.sleep(0.5)  # it opens two interfaces; too short a wait shows as a lower figure
        yield


def received_packets() -> int:
    """The far end's own counter."""
    return int(Path(f"/sys/class/net/{WIRE.receiver}/statistics/rx_packets").read_text())


def blast(interface: str, frame_bytes: int, rate: str, seconds: float) -> list[str]:
    """Command line of the generator."""
    return [
        "taskset",
        "-c",
        str(SENDER_CPU),
        str(RELEASE / "blaster"),
        interface,
        "--src-mac",
        SOURCE,
        "--dst-mac",
        DESTINATION,
        "--frame-bytes",
        str(frame_bytes),
        "--rate-pps",
        rate,
        "--seconds",
        str(seconds),
    ]


def forwarding_pps(frame_bytes: int, seconds: float) -> float:
    """Frames per second that come out at the far end under full load."""
    sender = subprocess.Popen(
        blast(WIRE.sender, frame_bytes, "max", seconds + 1.0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    before, start = received_packets(), time.monotonic()
    time.sleep(seconds)
    after, end = received_packets(), time.monotonic()
    sender.wait()
    return (after - before) / (end - start)


def forwarding(seconds: float) -> list[dict[str, object]]:
    """All targets, interleaved over several rounds, so that noise meets each alike."""
    targets = {
        "bare forwarder": ("-", bare_forwarder),
        "pacing_switch": ("pacer.p4", lambda: p4_switch("pacing_switch")),
    }
    if shutil.which("simple_switch_grpc"):
        targets["simple_switch_grpc"] = ("pacer.p4", lambda: p4_switch("bmv2"))
    else:
        print("not run: simple_switch_grpc (not on PATH)")
    readings: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for name, (_, target) in targets.items():
            with target():
                for frame_bytes in FRAME_BYTES:
                    pps = forwarding_pps(frame_bytes, seconds)
                    readings.setdefault((name, frame_bytes), []).append(pps)
    return [
        {
            "target": name,
            "program": targets[name][0],
            "frame_bytes": frame_bytes,
            "pps": round(median(values)),
            "pps_min": round(min(values)),
            "pps_max": round(max(values)),
        }
        for (name, frame_bytes), values in sorted(readings.items(), key=lambda item: item[0][1])
    ]


def measured_gaps(receiving: str, rate_bps: int, seconds: float) -> dict[str, object]:
    """Offers 1.2 times the rate at the sender; what was seen of the gaps at `receiving`."""
    frame_bytes = MTU_FRAME_BYTES - 4
    ideal_ns = MTU_FRAME_BYTES * 8 * 1_000_000_000 / rate_bps
    receiver = subprocess.Popen(
        [
            str(RELEASE / "gapmeter"),
            receiving,
            "--match",
            "udp-dst=5001",
            "--ideal-ns",
            str(ideal_ns),
            "--seconds",
            str(seconds),
            "--skip",
            "200",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert receiver.stderr is not None
    receiver.stderr.readline()  # "ready"
    pps = OFFERED * rate_bps / (MTU_FRAME_BYTES * 8)
    sender = subprocess.Popen(
        blast(WIRE.sender, frame_bytes, f"{pps:.0f}", seconds + 2.0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    text, errors = receiver.communicate()
    sender.terminate()
    sender.wait()
    if receiver.returncode != 0:
        raise SystemExit(f"gapmeter: {errors}")
    report: dict[str, object] = json.loads(text)
    return report


def gap_row(shaper: str, rate_bps: int, report: dict[str, object]) -> dict[str, object]:
    """What of a gapmeter report goes into the results: errors against the ideal gap."""
    return {
        "shaper": shaper,
        "rate_bps": rate_bps,
        "mean_rate_bps": report["mean_rate_bps"],
        "p50_us": report["error_p50_us"],
        "p99_us": report["error_p99_us"],
        "p999_us": report["error_p999_us"],
        "max_us": report["error_max_us"],
        "back_to_back_max": report["back_to_back_max"],
    }


def gaps(seconds: float) -> list[dict[str, object]]:
    """Each shaper at each rate. The kernel's sit on the sender's own interface."""
    rows = []
    for rate_bps in RATES_BPS:
        with p4_switch("pacing_switch", rate_bps):
            report = measured_gaps(WIRE.receiver, rate_bps, seconds)
            rows.append(gap_row("pacing_switch", rate_bps, report))
        # The kernel counts a frame without FCS: the same gap is a rate of 1514 / 1518.
        kernel_bps = rate_bps * (MTU_FRAME_BYTES - 4) // MTU_FRAME_BYTES
        for shaper, setup in (
            ("tbf", [["root", "tbf", "rate", f"{kernel_bps}bit", "burst", "15000",
                      "limit", "1000000"]]),
            ("htb", [["root", "handle", "1:", "htb", "default", "1"],
                     ["parent", "1:", "classid", "1:1", "htb", "rate", f"{kernel_bps}bit",
                      "burst", "15k"]]),
        ):  # fmt: skip
            for at, arguments in enumerate(setup):
                kind = "qdisc" if at == 0 else "class"
                quiet("tc", kind, "add", "dev", WIRE.sender, *arguments)
            # No device between: the far end of the sender's own pair receives.
            report = measured_gaps(WIRE.device_in, rate_bps, seconds)
            rows.append(gap_row(shaper, rate_bps, report))
            quiet("tc", "qdisc", "del", "dev", WIRE.sender, "root")
    return rows


def print_tables(document: dict[str, list[dict[str, object]]]) -> None:
    """For people."""
    print(f"\n{'target':<20} {'program':<9} {'bytes':>5} {'kpps':>7} {'of bare':>8}")
    bare = {
        row["frame_bytes"]: row["pps"]
        for row in document["forwarding"]
        if row["target"] == "bare forwarder"
    }
    for row in document["forwarding"]:
        pps, reference = row["pps"], bare[row["frame_bytes"]]
        assert isinstance(pps, int)
        assert isinstance(reference, int)
        print(
            f"{row['target']:<20} {row['program']:<9} {row['frame_bytes']:>5} "
            f"{pps / 1000:>7.0f} {pps / max(reference, 1):>8.2f}"
        )
    print(
        f"\n{'shaper':<15} {'Mbit/s':>6} {'mean':>8}   gap error, us: "
        f"{'p50':>6} {'p99':>8} {'p99.9':>8} {'max':>9}   back to back"
    )
    for row in document["gaps"]:
        rate, mean = row["rate_bps"], row["mean_rate_bps"]
        assert isinstance(rate, int)
        assert isinstance(mean, (int, float))
        print(
            f"{row['shaper']:<15} {rate / 1e6:>6.0f} {mean / 1e6:>8.2f}   {'':<14} "
            f"{row['p50_us']:>6.1f} {row['p99_us']:>8.1f} {row['p999_us']:>8.1f} "
            f"{row['max_us']:>9.1f}   {row['back_to_back_max']:>6}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Real-time figures, as ratios within one run")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench.json")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each reading")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("the benchmark makes a network namespace and pins cores: run it as root")
    if INSIDE not in os.environ:
        # A network namespace of its own, which goes when the last process in it ends; /sys shows
        # the interfaces of the namespace that it was mounted in.
        command = ["unshare", "--net", "--mount", "sh", "-c"]
        command += ['mount -t sysfs sysfs /sys && exec "$@"', "sh", sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode
    try:
        make_wires([(WIRE.sender, WIRE.device_in), (WIRE.device_out, WIRE.receiver)])
    except WireError as error:
        raise SystemExit(f"cannot run: {error}") from error
    document = {
        "forwarding": forwarding(options.seconds),
        "gaps": gaps(options.seconds),
    }
    print_tables(document)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

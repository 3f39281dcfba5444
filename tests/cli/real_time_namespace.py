"""Runs the real-time driver's features beside forwarding, in its own namespace; not a test itself.

Prints one JSON object with the switch's output and counters: with `--pcap`, when an interface
loses its carrier, vanishes under it or is slower than its port, and when more comes than its
receive ring holds. Also the niceness, the scheduling class and the capabilities of its threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flood_client import SUBSCRIBER, thrift_call
from flood_namespace import NOTIFICATIONS_PORT, THRIFT_PORT
from inside_namespace import FRAME_BYTES, TIMEOUT_S, Wires, ended, frame_of, listener, running
from pacer_entries import EXPERIMENTAL_ETHER_TYPE, flow_by_ether_type, paced_class
from pacing_switch import read_capture
from pacing_switch.wires import make_wires

PROBE_TYPE = 0x88B6
IDLE_S = 1.0
# The ring holds 4096 frames, perhaps a few more.
BURST = 6_000
CHUNK = 100
# 200 bytes and FCS take 102 ms at this rate.
SLOW_BPS = 16_000
SLOW_FRAMES = 20
STALL_S = 0.5
# More than the kernel and the port's batches hold for an interface of this rate.
QUEUED = 4_000
GRPC_THREADS = 2
SLOW_INTERFACE = "tbf rate 2mbit burst 3k limit 10m"


def captures(folder: Path, threads: str) -> dict[str, Any]:
    """Forward frames with `--pcap`; return the files' content."""
    wires = Wires()
    written = folder / "captures"
    written.mkdir()
    began_ns = time.time_ns()
    with running(folder, "--threads", threads, "--pcap", str(written)) as switch:
        wires.forwarded(100)
        told = ended(switch)
    files = {path.name: read_capture(path) for path in written.iterdir()}
    return told | {
        "sent": [frame_of(number).hex() for number in range(1, wires.sent + 1)],
        "frames": {name: [timed.frame.hex() for timed in file] for name, file in files.items()},
        "times": {name: [timed.at_ns for timed in file] for name, file in files.items()},
        "between": [began_ns, time.time_ns()],
    }


def carrier(folder: Path, threads: str) -> dict[str, Any]:
    """Take the far end of an interface down and up again: the interface itself stays up."""
    with running(folder, "--threads", threads, "-i", "3@c1", ports=(1, 2, 3)) as switch:
        others, there = Wires("b0"), Wires("c0")
        subprocess.run(["ip", "link", "set", "c0", "down"], check=True)
        lost = switch.wait_for_line("has no carrier")
        others.forwarded(20)
        subprocess.run(["ip", "link", "set", "c0", "up"], check=True)
        found = switch.wait_for_line("is up again")
        # A socket tells once that its interface was down.
        there.receiver = listener("c0")
        forwarded = there.forwarded(20)
        return ended(switch) | {
            "noticed": [lost, found],
            "sent": [others.sent, there.sent],
            "forwarded_after": forwarded,
        }


def threads_of(pid: int) -> list[tuple[str, int, int, int, list[int]]]:
    """Name, niceness, class, permitted capabilities and processors of each thread of a process."""
    seen = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        head, _, fields = (task / "stat").read_text().rpartition(")")
        lines = (task / "status").read_text().splitlines()
        capabilities = next(line for line in lines if line.startswith("CapPrm:")).split()[1]
        niceness, policy = (int(fields.split()[at]) for at in (16, 38))
        processors = sorted(os.sched_getaffinity(int(task.name)))
        name = head.partition("(")[2]
        seen.append((name, niceness, policy, int(capabilities, 16), processors))
    return seen


def priorities(folder: Path, threads: str) -> dict[str, Any]:
    """Look at the switch's threads: without the real-time class, with it, with an own processor."""
    own = ("--pacing-cpu", str(max(os.sched_getaffinity(0))))
    modes = {"off": ("--realtime", "off"), "auto": (), "own": own}
    if len(os.sched_getaffinity(0)) < 2:
        del modes["own"]
    return {name: priorities_with(folder, threads, *more) for name, more in modes.items()}


def priorities_with(folder: Path, threads: str, *more: str) -> dict[str, Any]:
    """Have clients of each control server, and look at the switch's threads."""
    servers = ["--thrift-port", str(THRIFT_PORT), *more]
    servers += ["--notifications-addr", f"tcp://127.0.0.1:{NOTIFICATIONS_PORT}"]
    with running(folder, "--threads", threads, *servers) as switch:
        clients = []
        for port, question in (
            (THRIFT_PORT, thrift_call("bm_mgmt_get_info")),
            (NOTIFICATIONS_PORT, SUBSCRIBER),
        ):
            client = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            client.sendall(question)
            # Answered by the thread of the connection, which lives as long as this.
            client.recv(1)
            clients.append(client)
        # The threads of gRPC begin by themselves.
        limit = time.monotonic() + TIMEOUT_S
        while True:
            seen = threads_of(switch.pid)
            has_realtime = any(policy == os.SCHED_FIFO for _, _, policy, _, _ in seen)
            expected = os.SCHED_OTHER if has_realtime else os.SCHED_BATCH
            grpc = [policy for name, _, policy, _, _ in seen if name == "control"]
            if grpc == [expected] * GRPC_THREADS or time.monotonic() > limit:
                break
        for client in clients:
            client.close()
        return ended(switch) | {"threads": seen}


def vanishing(folder: Path, threads: str) -> dict[str, Any]:
    """Take an interface away from a switch that forwards; the others have to go on."""
    with running(folder, "--threads", threads, "-i", "3@c1", ports=(1, 2, 3)) as switch:
        before = Wires("b0")
        before.forwarded(20)
        subprocess.run(["ip", "link", "delete", "b0"], check=True)
        # It says so when it has noticed.
        noticed = switch.wait_for_line("is gone")
        after = Wires("c0")
        forwarded = after.forwarded(20)
        used_s = -cpu_seconds(switch.pid)
        time.sleep(IDLE_S)  # how long it is watched doing nothing
        used_s += cpu_seconds(switch.pid)
        return ended(switch) | {
            "noticed": noticed,
            "sent": [before.sent, after.sent],
            "forwarded_after": forwarded,
            "cpu_seconds_while_idle": used_s,
            "idle_ns": int(IDLE_S * 1e9),
        }


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overflow(folder: Path, threads: str) -> dict[str, Any]:
    """Stop the switch while more frames come than its ring holds, then let it go on."""
    wires = Wires()
    probes = listener("b0", PROBE_TYPE)
    passing = listener("a1")
    with running(folder, "--threads", threads) as switch:
        switch.process.send_signal(signal.SIGSTOP)
        for first in range(0, BURST, CHUNK):
            for number in range(first, first + CHUNK):
                wires.sender.send(frame_of(number))
            # The kernel's own queue is short: on only when these have come to the interface.
            for _ in range(CHUNK):
                passing.recv(2048)
        switch.process.send_signal(signal.SIGCONT)
        # Frames that come out now were received after all that the ring held.
        sent = BURST
        probes.settimeout(0.1)
        limit = time.monotonic() + TIMEOUT_S
        while time.monotonic() < limit:
            wires.sender.send(frame_of(0, PROBE_TYPE))
            sent += 1
            try:
                probes.recv(2048)
                break
            except TimeoutError:
                continue
        # Earlier probes may be on their way still; they are before this one.
        return ended(switch) | {"sent": sent, "frame_bytes": FRAME_BYTES}


def stalled(folder: Path, threads: str) -> dict[str, Any]:
    """Stop the switch while packets wait for their departure, then let it go on."""
    wires = Wires()
    paced_type = EXPERIMENTAL_ETHER_TYPE + 1
    receiver = listener("b0", paced_type)
    entries = [flow_by_ether_type(1), paced_class(1, SLOW_BPS)]
    with running(folder, "--threads", threads, entries=entries) as switch:
        for number in range(SLOW_FRAMES):
            wires.sender.send(frame_of(number, paced_type))
        # The first leaves at once, perhaps before the others are taken; when the third does, they
        # have been waiting for their departure for long.
        for _ in range(3):
            receiver.recv(2048)
        switch.process.send_signal(signal.SIGSTOP)
        time.sleep(STALL_S)  # the measured stall
        switch.process.send_signal(signal.SIGCONT)
        receiver.recv(2048)
        return ended(switch) | {"stopped_ns": int(STALL_S * 1e9)}


def slow_interface(folder: Path, threads: str) -> dict[str, Any]:
    """Send more to an interface with a rate of its own than the kernel holds for it."""
    shape = ["tc", "qdisc", "replace", "dev", "c1", "root", *SLOW_INTERFACE.split()]
    shaped = subprocess.run(shape, capture_output=True, text=True)
    if shaped.returncode != 0:
        return {"not_run": shaped.stderr.strip()}
    options = ("--threads", threads, "-i", "3@c1,fifo=1MB")
    passing = listener("a1")
    with running(folder, *options, ports=(1, 3)) as switch:
        wires = Wires("c0")
        received = []
        # The receiver must not lose what it does not read for a while.
        wires.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        for first in range(0, QUEUED, CHUNK):
            for number in range(first, first + CHUNK):
                wires.sender.send(frame_of(number))
            for _ in range(CHUNK):
                passing.recv(2048)
            while select.select([wires.receiver], [], [], 0)[0]:
                received.append(wires.receiver.recv(2048))
        left = QUEUED - len(received)
        while len(received) < QUEUED:
            received.append(wires.receiver.recv(2048))
        in_order = sum(frame == frame_of(number) for number, frame in enumerate(received))
        told = ended(switch) | {"sent": QUEUED, "left": left, "in_order": in_order}
    subprocess.run(["tc", "qdisc", "delete", "dev", "c1", "root"], check=True)
    return told


def main() -> None:
    """All of it, with the number of threads of the second argument."""
    folder, threads = Path(sys.argv[1]), sys.argv[2]
    make_wires([("a0", "a1"), ("b0", "b1"), ("c0", "c1")])
    # The interface that vanishes is gone afterwards: last.
    parts = (captures, priorities, overflow, stalled, slow_interface, carrier, vanishing)
    told = {part.__name__: part(folder, threads) for part in parts}
    print(json.dumps(told))


if __name__ == "__main__":
    main()

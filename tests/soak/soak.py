"""Runs switches and a controller for hours under traffic and changes, and says what grows.

    make soak HOURS=2

Three switches and two controllers, in a network namespace of their own. Switch `s1` carries timed
packets all the time. Classes and flows are made, changed and deleted on `s1` and `s2`. Each
`--restart` seconds `s2` is killed, or asked to end, and started again. So is the second controller,
which has switch `s3`. A client reads metrics, statistics and events as a dashboard does. Memory,
file descriptors, threads and processor time of `s1`, `s3` and the first controller, the time that
changes take and the time that packets take are sampled each `SAMPLE_S`.

The run fails when what must stay flat has grown from the second to the last quarter: memory,
descriptors, threads, and the times of changes, packets and restarts. It also fails when a change is
refused, when a restarted controller has lost a change, when a packet is lost, or when a process
ends. The figures go to soak.json and soak.svg.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import random
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
for folder in ("controller", "common", "bench"):
    sys.path.insert(0, str(TESTS / folder))

import httpx  # noqa: E402
from controller_harness import Controller, Network, Switch  # noqa: E402
from growth import Growth, growths, write_plot  # noqa: E402
from pacing_switch.wires import make_wires  # noqa: E402

SAMPLE_S = 10.0
RESTART_S = 300.0
CHANGES_PER_S = 20
CHANGES_PER_SAMPLE = 20
"""Changes at the controller that is restarted."""

PACKETS_PER_S = 1000
CLASSES = 100
"""Classes, each with a flow, that are there at a time on each switch."""

STEADY_CLASSES = 20
"""Classes of `s1` whose flows have packets. Their rates change, and they stay."""

PAYLOAD_BYTES = 800
FIRST_PORT = 5000
MACS = (b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02")
SETTLE_S = 5.0
"""Before the end nothing is sent for this long, so every packet has arrived."""


def udp(destination_port: int, number: int, sent_ns: int) -> bytes:
    """Return a frame from port 1's host to port 2's with its number and time (no checksums)."""
    data = number.to_bytes(8, "big") + sent_ns.to_bytes(8, "big")
    data = data.ljust(PAYLOAD_BYTES, b"\0")
    lengths = (28 + len(data)).to_bytes(2, "big"), (8 + len(data)).to_bytes(2, "big")
    ipv4 = b"\x45\0" + lengths[0] + bytes.fromhex("000040004011") + b"\0\0"
    addresses = bytes.fromhex("0a0000010a000101")
    ports = (40000).to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return MACS[1] + MACS[0] + b"\x08\0" + ipv4 + addresses + ports + lengths[1] + b"\0\0" + data


class Packets:
    """A sender and a receiver of packets, each a thread; both end when `stop` is set."""

    def __init__(self, sending: str, receiving: str, stop: threading.Event) -> None:
        self.sent = 0
        self.received = 0
        self.late: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._stop = stop
        self._out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._out.bind((sending, 0))
        self._in = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self._in.bind((receiving, 0))
        self._in.settimeout(0.5)
        # The switch learns where the receiver is.
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as other:
            other.bind((receiving, 0))
            other.send(MACS[0] + MACS[1] + b"\x88\xb5" + bytes(46))
        self._threads = [threading.Thread(target=run) for run in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        ports = itertools.cycle(range(FIRST_PORT, FIRST_PORT + STEADY_CLASSES))
        due_s = time.monotonic()
        while not self._stop.is_set():
            self._out.send(udp(next(ports), self.sent, time.monotonic_ns()))
            self.sent += 1
            due_s += 1 / PACKETS_PER_S
            # After a stall of this process the rate is the same, so no class overflows.
            due_s = max(due_s, time.monotonic() - 0.01)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _receive(self) -> None:
        end_s: float | None = None
        while end_s is None or time.monotonic() < end_s:
            if end_s is None and self._stop.is_set():
                end_s = time.monotonic() + SETTLE_S
            try:
                frame, address = self._in.recvfrom(2048)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING or frame[:6] != MACS[1]:
                continue
            self.received += 1
            self.late.put((time.monotonic_ns() - int.from_bytes(frame[50:58], "big")) / 1e6)

    def join(self) -> None:
        """Wait until the last packet has arrived."""
        for thread in self._threads:
            thread.join()


class Changes:
    """Makes, changes and deletes classes and flows, by the same steps for the same seed."""

    def __init__(self, url: str, stop: threading.Event, seed: int) -> None:
        self.took_ms: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.rate_ms: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.refused: list[str] = []
        self._stop = stop
        self._random = random.Random(seed)
        self._http = httpx.Client(base_url=url, timeout=60.0, trust_env=False)
        for number in range(STEADY_CLASSES):
            self._class("s1", f"steady{number}", 10)
            self._flow("s1", f"steady{number}", FIRST_PORT + number)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        began = time.monotonic()
        answer = self._http.request(method, path, json=body)
        took_ms = (time.monotonic() - began) * 1000
        self.took_ms.put(took_ms)
        if "/classes/" in path and answer.status_code == httpx.codes.OK:
            # The class was there before: a rate change.
            self.rate_ms.put(took_ms)
        if answer.status_code not in (200, 201, 204):
            self.refused.append(f"{method} {path}: {answer.status_code} {answer.text}")

    def _class(self, switch: str, name: str, mbit: int) -> None:
        self._ask("PUT", f"/v1/switches/{switch}/classes/{name}", {"rate": f"{mbit}Mbit"})

    def _flow(self, switch: str, name: str, port: int) -> None:
        body = {"match": {"dst_port": port}, "class": name}
        self._ask("PUT", f"/v1/switches/{switch}/flows/{name}", body)

    def _run(self) -> None:
        for number in itertools.count():
            for switch in ("s1", "s2"):
                for step in self._steps(switch, number):
                    if self._stop.wait(1 / CHANGES_PER_S):
                        return
                    step()

    def _steps(self, switch: str, number: int) -> list[Any]:
        name = f"c{number}"
        steps = [
            lambda: self._class(switch, name, self._random.randint(1, 100)),
            lambda: self._flow(switch, name, 10_000 + number % 50_000),
            lambda: self._class(switch, name, self._random.randint(1, 100)),
        ]
        if switch == "s1":
            steady = f"steady{number % STEADY_CLASSES}"
            steps.append(lambda: self._class(switch, steady, self._random.randint(8, 12)))
        if number >= CLASSES:
            old = f"/v1/switches/{switch}"
            gone = f"c{number - CLASSES}"
            steps.append(lambda: self._ask("DELETE", f"{old}/flows/{gone}"))
            steps.append(lambda: self._ask("DELETE", f"{old}/classes/{gone}"))
        return steps


class Restarted:
    """A controller that is killed, or asked to end, and started again; and its switch.

    Args:
        state: the file of its desired state.

    """

    def __init__(self, state: Path) -> None:
        for file in state.parent.glob(f"{state.name}*"):
            file.unlink()
        self.switch = Switch(Network(private=True))
        self.switch.start()
        self.lost: list[str] = []
        self._options = ("--switch", f"s3={self.switch.address}", "--state", str(state))
        self._mbit = itertools.cycle(range(1, 100))
        self._controller = self._start()
        self.change()

    def _start(self) -> Controller:
        controller = Controller(*self._options)
        controller.wait_connected("s3")
        return controller

    def change(self) -> None:
        """Change the rate of a class some times."""
        for mbit in itertools.islice(self._mbit, CHANGES_PER_SAMPLE):
            answer = self._controller.put("/v1/switches/s3/classes/kept", {"rate": f"{mbit}Mbit"})
            assert answer.is_success, answer.text
            self._rate_bps = mbit * 1_000_000

    def restart(self, *, kill: bool) -> float:
        """Restart the controller; return the seconds until its switch holds its state again."""
        if kill:
            self._controller.process.kill()
            self._controller.http.close()
        else:
            self._controller.close()
        began = time.monotonic()
        self._controller = self._start()
        took_s = time.monotonic() - began
        found = self._controller.get("/v1/switches/s3/classes/kept")["rate_bps"]
        if found != self._rate_bps:
            self.lost.append(f"after a restart the rate was {found}, not {self._rate_bps} bit/s")
        return took_s

    def close(self) -> None:
        """End both."""
        self._controller.close()
        self.switch.stop()


class Watcher:
    """A dashboard: statistics and metrics each second, and the stream of events."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.events = 0
        self._stop = stop
        self._url = url
        # The stream is read by a thread that nobody waits for: it ends with the controller.
        threading.Thread(target=self._listen, daemon=True).start()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self) -> None:
        paths = ("/metrics", "/v1/switches/s1/stats", "/v1/switches/s2", "/v1/events?limit=10")
        with httpx.Client(base_url=self._url, timeout=60.0, trust_env=False) as http:
            while not self._stop.wait(1.0):
                for path in paths:
                    http.get(path)

    def _listen(self) -> None:
        with httpx.Client(base_url=self._url, timeout=None, trust_env=False) as http:
            while not self._stop.is_set():
                try:
                    with http.stream("GET", "/v1/events/stream") as stream:
                        for line in stream.iter_lines():
                            self.events += line.startswith("data:")
                except httpx.HTTPError:
                    if self._stop.wait(1.0):
                        return


def process_figures(pid: int) -> dict[str, float]:
    """Return a process's resources: memory, descriptors, threads, processor time."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {
        "memory_bytes": int(values["VmRSS"].split()[0]) * 1024,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(values["Threads"]),
        "processor_s": (int(used[11]) + int(used[12])) / 100,
    }


def drained(figures: queue.SimpleQueue[float]) -> dict[str, float]:
    """Return median and 99th percentile of the figures since the last call."""
    found = []
    while not figures.empty():
        found.append(figures.get())
    if not found:
        return {}
    found.sort()
    return {"median": statistics.median(found), "p99": found[int(len(found) * 0.99)]}


class Soak:
    """All of it, for a time.

    Args:
        seconds: how long.
        seed: of the changes.
        folder: for the states of the controllers.
        restart_s: the time between two restarts.

    """

    def __init__(self, seconds: float, seed: int, folder: Path, restart_s: float) -> None:
        self._seconds, self._seed, self._folder = seconds, seed, folder
        self._restart_s = restart_s
        self.samples: list[dict[str, Any]] = []
        self.restarts_s: list[dict[str, float]] = []

    def run(self) -> dict[str, Any]:
        """Run; return all figures."""
        make_wires((f"sw{port}", f"far{port}") for port in (1, 2, 3, 4))
        switches = [
            Switch(Network(private=True, ports={port: f"far{port}" for port in ports}))
            for ports in ((1, 2), (3, 4))
        ]
        for switch in switches:
            switch.start()
        named = [
            f"{name}={switch.address}" for name, switch in zip(("s1", "s2"), switches, strict=True)
        ]
        state = self._folder / "soak.sqlite"
        state.unlink(missing_ok=True)
        controller = Controller(
            *("--switch", named[0], "--switch", named[1], "--state", str(state))
        )
        for name in ("s1", "s2"):
            controller.wait_connected(name)
        restarted = Restarted(self._folder / "restarted.sqlite")
        stop, no_packets = threading.Event(), threading.Event()
        changes = Changes(controller.url, stop, self._seed)
        packets = Packets("far1", "far2", no_packets)
        watcher = Watcher(controller.url, stop)
        began = time.monotonic()
        processes = {
            "switch": switches[0].pid,
            "controller": controller.process.pid,
            "s3": restarted.switch.pid,
        }

        def restart(*, kill: bool) -> dict[str, float]:
            how = "killed" if kill else "ended"
            return {
                f"switch {how}": self._restart(controller, switches[1], kill=kill),
                f"controller {how}": restarted.restart(kill=kill),
            }

        try:
            self._watch(began, processes, changes, packets, restarted, restart)
        finally:
            no_packets.set()
            packets.join()
            stop.set()
            changes.thread.join()
            watcher.thread.join()
        document = {
            "seconds": time.monotonic() - began,
            "samples": self.samples,
            "restarts_s": self.restarts_s,
            "sent": packets.sent,
            "received": packets.received,
            "events": watcher.events,
            "refused": changes.refused,
            "lost": restarted.lost,
            "connected": controller.get("/healthz")["connected"],
        }
        controller.close()
        restarted.close()
        for switch in switches:
            switch.stop()
        return document

    def _watch(
        self,
        began: float,
        processes: dict[str, int],
        changes: Changes,
        packets: Packets,
        restarted: Restarted,
        restart: Callable[..., dict[str, float]],
    ) -> None:
        restart_s = self._restart_s
        for number in itertools.count(1):
            at_s = number * SAMPLE_S
            if at_s > self._seconds:
                return
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            assert changes.thread.is_alive(), "a change has failed; see above"
            sample: dict[str, Any] = {"at_s": time.monotonic() - began}
            sample |= {name: process_figures(pid) for name, pid in processes.items()}
            sample |= {"change_ms": drained(changes.took_ms), "packet_ms": drained(packets.late)}
            sample["rate_ms"] = drained(changes.rate_ms)
            sample["state_bytes"] = sum(
                file.stat().st_size for file in self._folder.glob("soak.sqlite*")
            )
            self.samples.append(sample)
            restarted.change()
            if at_s >= restart_s:
                restart_s += self._restart_s
                took_s = restart(kill=len(self.restarts_s) % 2 == 0)
                sample["restart_s"] = took_s
                self.restarts_s.append(took_s)

    @staticmethod
    def _restart(controller: Controller, switch: Switch, *, kill: bool) -> float:
        """Restart a switch; return the seconds until it holds its state again."""
        (switch.kill if kill else switch.stop)()
        began = time.monotonic()
        switch.start()
        controller.wait_connected("s2")
        return time.monotonic() - began


def verdict(document: dict[str, Any], found: list[Growth]) -> list[str]:
    """Return the errors of a run."""
    wrong = [
        f"{one.name} grew from {one.before:.6g} to {one.after:.6g}" for one in found if one.fails
    ]
    wrong += document["refused"][:10] + document["lost"][:10]
    lost = document["sent"] - document["received"]
    if lost:
        wrong.append(f"{lost} of {document['sent']} packets were lost")
    if document["connected"] != 2:
        wrong.append(f"{document['connected']} of 2 switches are connected at the end")
    return wrong


def main() -> int:
    """Run, print, write; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder")
    text = "seconds between two restarts"
    parser.add_argument("--restart", type=float, default=RESTART_S, help=text)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    document = Soak(options.hours * 3600, options.seed, options.out, options.restart).run()
    found = growths(document["samples"])
    document["growth"] = [one.row() for one in found]
    document["wrong"] = wrong = verdict(document, found)
    (options.out / "soak.json").write_text(json.dumps(document, indent=1) + "\n")
    write_plot(document, options.out / "soak.svg")
    for one in found:
        print(f"{one.name:44} {one.before:14,.3f} {one.after:14,.3f} {one.ratio:7.3f}")
    print(
        f"{document['seconds'] / 3600:.2f} h, {document['sent']:,} packets, "
        f"{len(document['restarts_s'])} restarts; {'; '.join(wrong) or 'nothing wrong'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Changes the rate of a class by `curl -X PUT` while iperf runs through it, and watches the wire.

    python tests/rate_change/rate_change.py                  # in the lab, in virtual time
    sudo build/venv/bin/python tests/rate_change/rate_change.py --realtime

h1 --- s1 --- h2: s1 is a pacing_switch with pacer.p4 and a 1 Gbit/s line to h2; the controller
service stands beside it. Each second a line says what arrives at h2. In real time the sender is
iperf3; in the lab it is iperf 2, because iperf3 3.12 polls its clock in a loop, and in the lab a
loop that never sleeps takes the time that the network should have.

Inside (the lab, or namespaces of its own) the same file runs with `--inside` and says JSON lines:
`second`, `put` and at the end `result`, or `error`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mininet"))

from mininet.net import Mininet
from mininet.topo import Topo
from pacer_mininet import paths, tcp_state
from pacer_mininet.command import FAILURES, prepare_namespace
from pacer_mininet.controller import PacerController
from pacer_mininet.counters import (
    ExperimentError,
    difference,
    drops_by_cause,
)
from pacer_mininet.hosts import LfnHost
from pacer_mininet.lab import in_lab
from pacer_mininet.net import started
from pacer_mininet.runs import (
    LabUnavailableError,
    RunError,
    check_lab,
    isolated,
    need_root,
)
from pacer_mininet.topology import EDGE_FIFO, EDGE_RATE
from pacer_mininet.units import format_rate, parse_rate
from wire import NS_PER_S, WINDOW_NS, Wire, WireError, rates_bps, settled_ns

SENDER_PORT, RECEIVER_PORT = 1, 2
CLASS = "transfer"
TOOLS = ("iperf", "iperf3")
WINDOW_BYTES = 1_000_000
"""TCP window of the hosts. Packets that the class holds when its rate changes leave at the old
rate, so the change shows on the wire after at most this many bytes: 84 ms at 100 Mbit/s."""

FETCH_S = 0.01
START_TIMEOUT_S = 30
DRAIN_S = 30
DEFAULT_SECONDS = 3
DEFAULT_STEPS = ("100mbit", "300mbit", "50mbit")


@dataclass(frozen=True)
class Step:
    """A requested rate: when `curl` started, and when it had its answer."""

    rate_bps: int
    asked_ns: int
    answered_ns: int


class EdgeTopo(Topo):  # type: ignore[misc] # mininet has no types
    """Two hosts at an edge switch, whose port to the receiver is a 1 Gbit/s Ethernet line."""

    def build(self, **_params: Any) -> None:
        """Build the topology."""
        for name in ("h1", "h2"):
            self.addHost(name, cls=LfnHost, socket_buffer_bytes=WINDOW_BYTES)
        self.addSwitch("s1", program="pacer")
        line = {"rate": EDGE_RATE, "counts": "wire", "fifo": EDGE_FIFO}
        self.addLink("h1", "s1", port2=SENDER_PORT)
        self.addLink("s1", "h2", port1=RECEIVER_PORT, params1=line)


def say(event: str, **fields: Any) -> None:
    """Print one event for the process that started this one."""
    print(json.dumps({"event": event, **fields}), flush=True)


def curl_put(url: str, body: dict[str, Any]) -> None:
    """PUT as a user does; ExperimentError with the controller's answer if it refuses."""
    command = ["curl", "-sS", "--fail-with-body", "-X", "PUT", "--json", json.dumps(body), url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    if ended.returncode != 0:
        raise ExperimentError(f"curl -X PUT {url}: {ended.stdout} {ended.stderr}".strip())


def packets(statistics: dict[str, Any], port: int, direction: str) -> int:
    """Return the number of packets that a port has received (`rx`) or sent (`tx`)."""
    found = next(entry for entry in statistics["ports"] if entry["port"] == port)
    return int(found["statistics"][f"{direction}_packets"])


class RateChange:
    """One run on a started network."""

    def __init__(self, net: Mininet, rates_bps: Sequence[int], step_s: int, tool: str) -> None:
        self.rates_bps = list(rates_bps)
        self.step_s = step_s
        self.tool = tool
        # Their default ports.
        self.tcp_port = {"iperf": 5001, "iperf3": 5201}[tool]
        self.h1, self.h2 = net.get("h1"), net.get("h2")
        controller = net.controllers[0]
        assert isinstance(controller, PacerController)
        self.rest = controller.rest
        self.base = f"http://{self.rest.host}:{self.rest.port}/v1/switches/s1"
        self.steps: list[Step] = []
        self.failures: list[Exception] = []

    def put_rate(self, rate_bps: int) -> None:
        """Set a rate with curl, and note the times."""
        asked_ns = time.time_ns()
        try:
            curl_put(f"{self.base}/classes/{CLASS}", {"rate": format_rate(rate_bps)})
        except (ExperimentError, subprocess.SubprocessError, OSError) as error:
            self.failures.append(error)
            return
        self.steps.append(Step(rate_bps, asked_ns, time.time_ns()))
        say("put", rate=format_rate(rate_bps), took_ms=(time.time_ns() - asked_ns) / 1e6)

    def statistics(self) -> dict[str, Any]:
        """Return s1's counters, as in the controller's `stats` resource."""
        statistics = self.rest.get("switches", "s1", "stats")
        if not isinstance(statistics, dict) or statistics.get("now_ns") is None:
            raise ExperimentError("s1 gives no statistics")
        return statistics

    def execute(self) -> dict[str, Any]:
        """Make the run; return the contents of the event `result`."""
        out, err, _ = self.h1.pexec("ping", "-n", "-c", "2", "-i", "0.2", self.h2.IP())
        if " 0% packet loss" not in out:
            raise ExperimentError(f"the hosts cannot reach each other: {(out + err).strip()}")
        self.put_rate(self.rates_bps[0])
        match = {"protocol": "tcp", "dst_port": self.tcp_port}
        curl_put(f"{self.base}/flows/{CLASS}", {"match": match, "class": CLASS})
        before = self.statistics()
        tcp_before = tcp_state.counters(self.h1.pid)
        wire = Wire(self.h2.pid, self.h2.defaultIntf().name)
        one = ["-1"] if self.tool == "iperf3" else ["-P", "1"]
        server = self.h2.popen(self.tool, "-s", *one)
        self._wait_for_listener(server)
        # A second longer than the measurement, so that the last window ends before the connection.
        seconds = self.step_s * len(self.rates_bps) + 1
        cubic = ["-C" if self.tool == "iperf3" else "-Z", "cubic"]
        client = self.h1.popen(self.tool, "-c", self.h2.IP(), "-t", str(seconds), *cubic)
        try:
            end_ns = self._watch(wire, client)
            self._wait_for_end(wire, client)
            self._wait_for_end(wire, server)
        finally:
            for process in (client, server):
                if process.poll() is None:
                    process.kill()
                process.wait()
        after = self.statistics()
        tcp = difference(tcp_state.counters(self.h1.pid), tcp_before)
        wire.close()
        return {
            "steps": list(self._described(wire, end_ns)),
            "s1_drops_by_cause": difference(drops_by_cause(after), drops_by_cause(before)),
            "s1_packets_in": packets(after, SENDER_PORT, "rx") - packets(before, SENDER_PORT, "rx"),
            "s1_packets_out": packets(after, RECEIVER_PORT, "tx")
            - packets(before, RECEIVER_PORT, "tx"),
            "retransmits": tcp.get("TcpRetransSegs", 0),
            "frames": len(wire.frames),
            "frame_bytes": wire.total_bytes,
            "mode": "lab" if in_lab() else "realtime",
        }

    def _wait_for_listener(self, server: Any) -> None:
        wanted = re.compile(f":{self.tcp_port:04X} 0+:0000 0A")
        for _ in range(START_TIMEOUT_S * 100):
            for table in ("tcp", "tcp6"):
                path = Path(f"/proc/{self.h2.pid}/net/{table}")
                if path.exists() and wanted.search(path.read_text()):
                    return
            if server.poll() is not None:
                raise ExperimentError(f"{self.tool} -s ended: {server.communicate()}")
            time.sleep(FETCH_S)
        raise ExperimentError(f"the {self.tool} server does not listen")

    def _watch(self, wire: Wire, client: Any) -> int:
        """Fetch frames, report each second, change the rate; return the time of the end."""
        start_ns = time.time_ns()
        # The first rate has been set already; its time starts here.
        self.steps[0] = Step(self.rates_bps[0], start_ns, start_ns)
        waiting = self.rates_bps[1:]
        curls: list[threading.Thread] = []
        told_bytes, second = 0, 0
        length_s = self.step_s * len(self.rates_bps)
        try:
            while second < length_s:
                time.sleep(FETCH_S)
                wire.fetch()
                if client.poll() not in (None, 0):
                    raise ExperimentError(f"{self.tool} -c failed: {client.communicate()}")
                if self.failures:
                    raise self.failures[0]
                if time.time_ns() < start_ns + (second + 1) * NS_PER_S:
                    continue
                second += 1
                say(
                    "second",
                    second=second,
                    rate_bps=(wire.total_bytes - told_bytes) * 8,
                    target=format_rate(self.steps[-1].rate_bps),
                    s1_drops=sum(drops_by_cause(self.statistics()).values()),
                )
                told_bytes = wire.total_bytes
                if second % self.step_s == 0 and waiting:
                    # In a thread, so that nothing waits for it.
                    thread = threading.Thread(target=self.put_rate, args=(waiting.pop(0),))
                    thread.start()
                    curls.append(thread)
        finally:
            for thread in curls:
                thread.join()
        return start_ns + length_s * NS_PER_S

    def _wait_for_end(self, wire: Wire, process: Any) -> None:
        deadline_ns = time.monotonic_ns() + DRAIN_S * NS_PER_S
        while process.poll() is None:
            if time.monotonic_ns() > deadline_ns:
                raise ExperimentError(f"{self.tool} did not end within {DRAIN_S} s")
            time.sleep(FETCH_S)
            wire.fetch()
        if process.returncode != 0:
            raise ExperimentError(f"{self.tool} failed: {process.communicate()}")

    def _described(self, wire: Wire, end_ns: int) -> Iterator[dict[str, Any]]:
        """Yield the measurements of each rate, from its answer to the next request."""
        ends = [step.asked_ns for step in self.steps[1:]] + [end_ns]
        for step, until_ns in zip(self.steps, ends, strict=True):
            exact_ns = settled_ns(wire.frames, step.rate_bps, step.answered_ns, until_ns)
            yield {
                "rate_bps": step.rate_bps,
                "asked_ns": step.asked_ns,
                "answered_ns": step.answered_ns,
                "put_ms": (step.answered_ns - step.asked_ns) / 1e6,
                "window_ns": WINDOW_NS,
                "windows_bps": rates_bps(wire.frames, step.answered_ns, until_ns),
                "exact_after_ns": None if exact_ns is None else exact_ns - step.answered_ns,
            }


def inside(options: argparse.Namespace) -> int:
    """Make the run in this process and print its events."""
    try:
        paths.need_programs("ip", options.tool, "curl", "ping", "ethtool", "mnexec")
        prepare_namespace()
        with started(EdgeTopo()) as net:
            rates = [parse_rate(rate) for rate in options.rates]
            result = RateChange(net, rates, options.seconds, options.tool).execute()
    except (*FAILURES, WireError) as error:
        say("error", message=str(error))
        return 1
    say("result", **result)
    return 0


def command(
    rates: Sequence[str] = DEFAULT_STEPS,
    seconds: int = DEFAULT_SECONDS,
    *,
    realtime: bool = False,
    tool: str | None = None,
) -> list[str]:
    """Return the command that makes the run in the lab, or in namespaces of its own."""
    tool = tool or ("iperf3" if realtime else "iperf")
    made = [sys.executable, str(Path(__file__).resolve()), "--inside"]
    made += ["--tool", tool, "--seconds", str(seconds), *rates]
    if realtime:
        return isolated(made)
    variables = [word for name in paths.OVERRIDES for word in ("--env", name) if name in os.environ]
    return [str(paths.LAB_RUN), *variables, "--", *made]


def events(made: Sequence[str], listen: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run a `command`, pass on its events, and return its result; RunError if it fails."""
    said: list[str] = []
    result: dict[str, Any] | None = None
    with subprocess.Popen(
        list(made),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line) if line.startswith("{") else None
                if event is None:
                    said.append(line.rstrip())
                elif event["event"] == "result":
                    result = event
                elif event["event"] == "error":
                    said.append(event["message"])
                else:
                    listen(event)
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0 or result is None:
        what = "\n".join(said[-20:]) or "it printed nothing"
        raise RunError(f"the run failed (status {process.returncode}): {what}")
    return result


def show(event: dict[str, Any]) -> None:
    """Print an event as a line for people."""
    if event["event"] == "put":
        print(f"      curl -X PUT {event['rate']}: answered after {event['took_ms']:.3f} ms")
    else:
        print(
            f"{event['second']:3d} s {event['rate_bps'] / 1e6:10.3f} Mbit/s on the wire, "
            f"target {event['target']}, s1 lost {event['s1_drops']}"
        )
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the run that the command line describes; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="rate_change.py",
        description="Changes a class's rate by curl while iperf runs; a line per second.",
    )
    parser.add_argument("rates", nargs="*", default=list(DEFAULT_STEPS), metavar="RATE")
    parser.add_argument("--seconds", type=int, default=DEFAULT_SECONDS, help="at each rate")
    parser.add_argument("--tool", choices=TOOLS, help="default: iperf in the lab, iperf3 outside")
    parser.add_argument("--realtime", action="store_true", help="on this kernel; needs root")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 2 <= options.seconds <= 600:
        parser.error("--seconds: 2 to 600")
    try:
        for rate in options.rates:
            parse_rate(rate)
    except ValueError as error:
        parser.error(str(error))
    if options.inside:
        return inside(options)
    try:
        if options.realtime:
            need_root()
        else:
            check_lab()
        made = command(options.rates, options.seconds, realtime=options.realtime, tool=options.tool)
        result = events(made, show)
    except LabUnavailableError as error:
        print(f"no lab here ({error}); --realtime runs on this kernel", file=sys.stderr)
        return 1
    except (RunError, paths.MissingError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for step in result["steps"] if result["mode"] == "lab" else ():
        after_ns = step["exact_after_ns"]
        exact = "never" if after_ns is None else f"{after_ns / 1e6:.3f} ms after the answer"
        print(f"{format_rate(step['rate_bps']):>8}: every gap exact from {exact}")
    lost = result["s1_drops_by_cause"] or "nothing"
    print(f"s1 lost {lost}; TCP sent {result['retransmits']} segments again")
    return 0


if __name__ == "__main__":
    sys.exit(main())

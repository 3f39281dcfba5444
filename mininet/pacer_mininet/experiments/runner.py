"""Makes scenarios on one network, inside the lab or a namespace, and measures them.

The run ends `seconds` after the first data can reach the receivers. Data in flight at that time is
not counted. Losses are the switches' own counters. Goodput counts the bytes that arrived in order,
by the receiver's kernel. Bandwidth and burstiness are gtrcnet.p4's. The result depends neither on
the wall clock nor on the runs before it on the same network.
"""

import functools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mininet.net import Mininet
from mininet.node import Node

from pacer_mininet import congestion, paths, tcp_state
from pacer_mininet.bmv2_switch import BMv2PacerSwitch
from pacer_mininet.controller import PacerController
from pacer_mininet.counters import (
    ExperimentError,
    check_no_stalls,
    difference,
    drops_by_cause,
    lateness_between,
    stalls_between,
    statistics_of,
)
from pacer_mininet.experiments.bandwidth import READ_BINS_EVERY_S, Measuring
from pacer_mininet.experiments.network import (
    NODE,
    PAYLOAD_BYTES,
    WIRE_OUT,
    edge_of,
    network_key,
    network_of,
)
from pacer_mininet.experiments.queueing import QueueUnderTest
from pacer_mininet.experiments.samples import SAMPLE_NS, Samples
from pacer_mininet.experiments.scenario import (
    LAB_SEED,
    UDP_FRAME_BYTES,
    UDP_PAYLOAD_BYTES,
    Flow,
    Scenario,
)
from pacer_mininet.experiments.shaping import (
    NotOfferedError,
    class_of,
    end_slow_start,
    pacing_rate_bps,
    port_of,
    shape,
    unshape,
)
from pacer_mininet.hosts import introduce, ping, write_settings
from pacer_mininet.lab import in_lab, restart_random_numbers, rewind_random_numbers
from pacer_mininet.ovs_switch import PacingOVSSwitch
from pacer_mininet.sink import Sink
from pacer_mininet.tcp_state import TcpMonitor
from pacer_mininet.traffic import NS_PER_S, bits_per_second
from pacer_mininet.units import format_rate

START_STEP_NS = NS_PER_S
"""A run starts at a multiple of this on the machine's clock. In the lab, the virtual time that
setting up takes differs between checkouts. This start puts every run at the same phase of the bins
of 500 us, the windows of 100 ms and the kernel's ticks."""

SAMPLES_PER_S = NS_PER_S // SAMPLE_NS
DROPS_EVERY = 5
"""Losses are read once in this many samples: asking the controller is the most expensive part."""

JITTER_NS = 12_144
"""One frame's time at 1 Gbit/s: a seed shifts a flow's start by less than this."""

TAIL_NS = 250_000_000

RECONNECT_S = 10.0

PING_TIMEOUT_S = 12.0
LEARNING_S = 0.2
"""Time for the controller to tell the switches where hosts are."""

SETTLE_S = 1.0
SETTLE_RTTS = 4
"""Time in seconds, and number of RTTs, after which a run's connections and queues are gone."""

Report = Callable[[dict[str, Any]], None]


def run_scenarios(
    named: Sequence[tuple[str, Scenario]], report: Report
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Build a network, make runs on it one after the other, take it down.

    Yields each run's name and its measurements, or `{"skipped": why}` where the controller or the
    kernel lacks something that the run needs.

    Args:
        named: the scenarios with their names. They have the same network (`network_key`).
        report: called with the events of the runs.

    Raises:
        MissingError: something is not installed or not built.
        ExperimentError, NodeError, ControllerError: a run failed.

    """
    paths.need_programs("ip", "iperf", "mnexec", "tc")
    (name, first), *_ = named
    assert len({network_key(scenario) for _, scenario in named}) == 1
    report({"event": "phase", "run": name, "phase": "network"})
    with network_of(first) as net:
        for number, (name, scenario) in enumerate(named):
            run = ScenarioRun(name, scenario, net, report)
            try:
                yield name, run.execute()
            except (NotOfferedError, congestion.CongestionControlError) as error:
                yield name, {"skipped": str(error), "series": {}}
            if number < len(named) - 1:
                run.clear()


def _restart_random_numbers() -> None:
    """Make random numbers independent of the set-up, which draws one per process and wait."""
    if in_lab():
        restart_random_numbers()


class ScenarioRun:
    """One run on a started network."""

    def __init__(self, name: str, scenario: Scenario, net: Mininet, report: Report) -> None:
        self.name = name
        self.scenario = scenario
        self.net = net
        self.report = report
        controller = net.controllers[0]
        assert isinstance(controller, PacerController)
        self.rest = controller.rest
        self.senders = [net.get(f"a{n}") for n in range(1, scenario.senders + 1)]
        self.receivers = [net.get(f"b{n}") for n in range(1, scenario.receivers + 1)]
        self.switches = [switch.name for switch in net.switches]
        self.measuring = Measuring(scenario, self.rest)
        self.samples = Samples(scenario)
        self.queue = None if scenario.queueing is None else QueueUnderTest(scenario, net, self.rest)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.sink = Sink(scenario.socket_buffer_bytes)
        self.shaped_by: list[str] = []
        self.drops: list[tuple[int, int]] = []
        """Time since the start, and packets lost at the bottleneck until then."""
        self.drops_before = 0
        self.start_ns = 0

    # ---- preparing ----

    def prepare(self) -> None:
        """Let the network learn where the hosts are, set up shapers, start servers."""
        for control in sorted({flow.congestion_control for flow in self.scenario.flows}):
            congestion.choose(control, congestion.of_this_kernel(control), lab=in_lab())
            if self.scenario.first_ssthresh_packets:
                end_slow_start(control, self.scenario.first_ssthresh_packets)
        # Metrics of an earlier connection to the same host would set the next one's start.
        settings = {"net.ipv4.tcp_no_metrics_save": "1"}
        if self.scenario.ecn:
            settings["net.ipv4.tcp_ecn"] = "1"
        for host in (*self.senders, *self.receivers):
            write_settings(host, settings)
        pairs = [
            (self.senders[sender - 1], self.receivers[receiver - 1])
            for sender, receiver in sorted({(f.sender, f.receiver) for f in self.scenario.flows})
        ]
        # No ARP: its packets belong to no class, and one would be measured as the flow's burst.
        for sender in self.senders:
            introduce(sender, [there for here, there in pairs if here is sender])
        for receiver in self.receivers:
            introduce(receiver, [here for here, there in pairs if there is receiver])
        if self.queue is not None:
            self.queue.join()
        # The first ping teaches the switches both addresses; the second one is forwarded.
        for _ in range(2):
            for sender, receiver in pairs:
                ping(sender, receiver.IP(), timeout_s=PING_TIMEOUT_S)
            time.sleep(LEARNING_S)
        if in_lab():
            rewind_random_numbers(self.scenario.seed - LAB_SEED)
        _restart_random_numbers()  # fq draws the seed of its hash.
        self.shaped_by = shape(self.scenario, self.net, self.rest)
        self._start_servers()

    def _start_servers(self) -> None:
        for number, flow in enumerate(self.scenario.flows):
            receiver, port = self.receivers[flow.receiver - 1], port_of(number)
            if flow.burst_frames:
                self.sink.discard(receiver, port)
            elif flow.udp_bps:
                self._start(receiver, ["iperf", "-s", "-p", str(port), "-y", "C", "-u"])
            else:
                control = flow.congestion_control
                both = control in congestion.AT_BOTH_ENDS
                self.sink.listen(receiver, port, control if both else "")
        self.sink.start()

    def _start(self, host: Node, command: list[str]) -> None:
        self.processes.append(
            host.popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        )

    def client_command(self, number: int, flow: Flow) -> list[str]:
        """Return a sender's command; it sends for longer than the run lasts."""
        scenario = self.scenario
        server = self.receivers[flow.receiver - 1].IP()
        if flow.burst_frames:
            period_ns = flow.burst_frames * UDP_FRAME_BYTES * 8 * NS_PER_S // flow.udp_bps
            bursts = (flow.burst_frames, period_ns, UDP_PAYLOAD_BYTES)
            module = [sys.executable, "-m", "pacer_mininet.bursts"]
            return [*module, server, str(port_of(number)), *map(str, bursts)]
        command = ["iperf", "-c", server, "-p", str(port_of(number)), "-f", "m"]
        if flow.payload_bytes:
            command += ["-n", str(flow.payload_bytes)]
        else:
            command += ["-t", str(scenario.seconds + 2 * scenario.rtt_ns // NS_PER_S + 2)]
        if flow.shaper.kind == "fq":
            command += ["--fq-rate", str(pacing_rate_bps(flow, scenario.rate_bps))]
        if flow.udp_bps:
            command += ["-S", str(flow.tos)] if flow.tos else []
            payload_bps = flow.udp_bps * UDP_PAYLOAD_BYTES // UDP_FRAME_BYTES
            return [*command, "-u", "-l", str(UDP_PAYLOAD_BYTES), "-b", str(payload_bps)]
        return [*command, "-P", str(flow.streams), "-Z", flow.congestion_control]

    # ---- sending ----

    def send(self) -> None:
        """Start all flows at their times and take samples until the run is over."""
        scenario = self.scenario
        due: list[tuple[int, Callable[[], None]]] = [
            (at_ms * 1_000_000, functools.partial(self._change_rate, rate_bps))
            for at_ms, rate_bps in scenario.rate_steps
        ]
        for number, flow in enumerate(scenario.flows):
            # Without a shift, a run with another seed could be the same run again.
            shift_ns = (scenario.seed * 7919 + number * 104_729) % JITTER_NS
            start = functools.partial(self._start_client, number, flow)
            due.append((flow.start_ms * 1_000_000 + shift_ns, start))
        due.sort(key=lambda one: one[0])
        monitors = [TcpMonitor(host.pid) for host in (*self.senders, *self.receivers)]
        # The switches use this clock, too.
        self.samples.ignore_closed(monitors[: len(self.senders)])
        self.start_ns = -(-time.monotonic_ns() // START_STEP_NS) * START_STEP_NS
        self.measuring.start(self.start_ns)
        end_ns = self.samples.end_ns + TAIL_NS
        # One sample is due at the end of the run, where its goodput is counted.
        sample_ns = self.samples.end_ns % SAMPLE_NS or SAMPLE_NS
        self._sleep_until(0)
        if self.queue is not None:
            self.queue.start()
        _restart_random_numbers()
        try:
            while True:
                due_ns = min([sample_ns, *(at_ns for at_ns, _ in due[:1])])
                if due_ns > end_ns:
                    break
                self._sleep_until(due_ns)
                if due and due[0][0] == due_ns:
                    _, act = due.pop(0)
                    act()
                    continue
                self._sample(sample_ns, monitors)
                # Samples missed in a stall of the machine are not taken later.
                late_ns = max(0, time.monotonic_ns() - self.start_ns - sample_ns)
                sample_ns += SAMPLE_NS * (late_ns // SAMPLE_NS + 1)
        finally:
            for monitor in monitors:
                monitor.close()

    def _start_client(self, number: int, flow: Flow) -> None:
        self._start(self.senders[flow.sender - 1], self.client_command(number, flow))

    def _change_rate(self, rate_bps: int) -> None:
        """Change the bottleneck's rate towards the receivers, and the virtual bottleneck's."""
        line = {"line_rate": rate_bps}
        self.rest.put("switches", "wan", "ports", str(WIRE_OUT), body=line)
        wan = self.net.get("wan")
        wan.bottleneck = format_rate(rate_bps)
        self.rest.put("switches", "wan", body=wan.service_request())
        # Its counters cannot be read until the controller has connected again.
        self.rest.wait_until(wan.connected, RECONNECT_S, "wan is not connected")

    def _sleep_until(self, due_ns: int) -> None:
        left_ns = due_ns - (time.monotonic_ns() - self.start_ns)
        # `sleep` rounds up to whole ns; half a ns less makes it exact.
        time.sleep(max(0.0, left_ns - 0.5) / NS_PER_S)

    def _sample(self, due_ns: int, monitors: list[TcpMonitor]) -> None:
        now_ns = time.monotonic_ns() - self.start_ns
        senders = len(self.senders)
        self.samples.take(now_ns, monitors[:senders], monitors[senders:])
        # Number 4 is the one due after more than 400 ms and at most 500 ms.
        number = -(-due_ns // SAMPLE_NS) - 1
        regular = number % DROPS_EVERY == DROPS_EVERY - 1
        if regular:
            self._compare_estimates()
        # Where the rate steps, the time of a loss is a result.
        if regular or self.scenario.rate_steps:
            self.drops.append((now_ns, self._drops_so_far()))
        if number % SAMPLES_PER_S == SAMPLES_PER_S - 1:
            self._report_second(number // SAMPLES_PER_S + 1)
        every = SAMPLES_PER_S * READ_BINS_EVERY_S
        if number % every == every - 1:
            self.measuring.read_so_far(self.start_ns + now_ns)

    def _drops_so_far(self) -> int:
        if self.queue is not None:
            return self.queue.drops()
        drops = drops_by_cause(statistics_of(self.rest, "wan"))
        return sum(drops.values()) - self.drops_before

    def _compare_estimates(self) -> None:
        """Compare the switch's estimates of each followed flow with the sender's kernel's.

        Each switch is read once, for all flows: a reading for each flow would take 100,000 system
        calls with 64 flows, after which the lab's clock moves on (`check_no_stalls`).
        """
        read: dict[str, dict[str, Any]] = {}
        for number, flow in enumerate(self.scenario.flows):
            last = self.samples.last_sent(number)
            if not flow.shaper.follows or len(last) != 1 or not last[0].unacked_packets:
                continue
            edge = f"edge{edge_of(self.scenario, flow.sender)}"
            if edge not in read:
                classes = self.rest.get("switches", edge, "stats")["classes"]
                read[edge] = {one["name"]: one for one in classes}
            seen = read[edge][class_of(self.scenario, number)]
            if seen.get("rtt_ns") and seen.get("in_flight_bytes"):
                in_flight = last[0].unacked_packets * PAYLOAD_BYTES
                self.samples.estimates.append(
                    (seen["rtt_ns"] / (last[0].rtt_us * 1000), seen["in_flight_bytes"] / in_flight)
                )

    def _report_second(self, second: int) -> None:
        until, before = (
            self.samples.delivered_by(seconds * NS_PER_S) for seconds in (second, second - 1)
        )
        self.report(
            {
                "event": "progress",
                "run": self.name,
                "second": second,
                "seconds": self.scenario.seconds,
                "goodput_bps": (until - before) * 8,
                "bottleneck_drops": self.drops[-1][1] if self.drops else 0,
            }
        )

    def clear(self) -> None:
        """Remove the run's settings and connections, and wait until they are gone.

        Raises:
            ExperimentError: connections are left.

        """
        time.sleep(SETTLE_S + SETTLE_RTTS * self.scenario.rtt_ns / NS_PER_S)
        unshape(self.scenario, self.net, self.rest)
        for host in (*self.senders, *self.receivers):
            monitor = TcpMonitor(host.pid)
            left = monitor.connections()
            monitor.close()
            if left:
                raise ExperimentError(f"{host.name} still has {len(left)} connections")

    # ---- the whole ----

    def execute(self) -> dict[str, Any]:
        """Make the run; return its results and its series over time."""
        self._phase("ping")
        try:
            self.prepare()
            before = self._all_statistics()
            self.drops_before = sum(drops_by_cause(before["wan"]).values())
            counters_before = [self._tcp_counters(h) for h in (self.senders, self.receivers)]
            self._phase("iperf")
            self.send()
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
            self.sink.close()
        self._phase("reading")
        # The counters come first: reading tens of thousands of registers takes so long that the
        # lab's clock moves on.
        after = self._all_statistics()
        counters = [
            difference(self._tcp_counters(hosts), earlier)
            for hosts, earlier in zip((self.senders, self.receivers), counters_before, strict=True)
        ]
        self.measuring.read(time.monotonic_ns())
        result = self._result(before, after, counters)
        if self.queue is not None:
            result["queueing"] = self.queue.read(self.start_ns)
            result["bottleneck_drops"] = result["queueing"]["drops"]
        return result

    def _result(
        self,
        before: dict[str, dict[str, Any]],
        after: dict[str, dict[str, Any]],
        counters: list[dict[str, int]],
    ) -> dict[str, Any]:
        lost = {
            name: difference(drops_by_cause(after[name]), drops_by_cause(before[name]))
            for name in self.switches
        }
        delivered_bytes = self.samples.delivered_by(self.samples.end_ns)
        stalls = {name: stalls_between(before[name], after[name]) for name in self.switches}
        if in_lab():
            check_no_stalls(stalls)
        return {
            "mode": "lab" if in_lab() else "realtime",
            "kernel": os.uname().release,
            "commands": self._commands(),
            "flows": [self.samples.flow(number) for number in range(len(self.scenario.flows))],
            "goodput_bps": bits_per_second(delivered_bytes, self.scenario.seconds * NS_PER_S),
            "bottleneck_drops": sum(lost["wan"].values()),
            "edge_drops": sum(
                sum(lost[s].values()) for s in self.switches if s not in ("wan", NODE)
            ),
            "drops_by_cause": {name: causes for name, causes in lost.items() if causes},
            "lateness_max_ns": {
                name: lateness_between(before[name], after[name]) for name in self.switches
            },
            "stalls": stalls,
            "retransmits": counters[0].get("TcpRetransSegs", 0),
            "out_of_order_arrivals": counters[1].get("TcpExtTCPOFOQueue", 0),
            "estimates": self.samples.estimate_errors(),
            "free_bps": self.scenario.free_bps,
            "falls_ms": self.scenario.falls_ms,
            "losing_together": self.samples.losing_together(),
            **{switch: self.measuring.result(switch) for switch in self.measuring.switches},
            "series": self._series(),
        }

    def _series(self) -> dict[str, Any]:
        """Return the run over time, in ms since its start."""
        seconds = self.scenario.seconds + 1
        return {
            **self.measuring.series(seconds),
            "bottleneck_drops": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in self.drops],
                "packets": [packets for _, packets in self.drops],
            },
            **self.samples.series(seconds),
        }

    def _commands(self) -> list[str]:
        """Return the commands that ran in the senders, each after its sender's name."""
        commands = list(self.shaped_by)
        for number, flow in enumerate(self.scenario.flows):
            command = " ".join(self.client_command(number, flow))
            # The same in every checkout.
            commands.append(f"a{flow.sender}: {command.replace(sys.executable, 'python3')}")
        return sorted(commands, key=lambda command: int(command[1 : command.index(":")]))

    def statistics(self, switch: str) -> dict[str, Any]:
        """Return all counters of a switch, as in the controller's `stats` resource."""
        node = self.net.get(switch)
        if isinstance(node, (BMv2PacerSwitch, PacingOVSSwitch)):
            return node.statistics()
        return statistics_of(self.rest, switch)

    def _all_statistics(self) -> dict[str, dict[str, Any]]:
        return {name: self.statistics(name) for name in self.switches}

    @staticmethod
    def _tcp_counters(hosts: Sequence[Node]) -> Counter[str]:
        """Return the kernel's counters of TCP, summed over hosts."""
        total: Counter[str] = Counter()
        for host in hosts:
            total.update(tcp_state.counters(host.pid))
        return total

    def _phase(self, phase: str) -> None:
        self.report({"event": "phase", "run": self.name, "phase": phase})

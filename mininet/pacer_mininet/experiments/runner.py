"""Makes one scenario, inside the lab or a namespace, and measures it.

The run ends `seconds` after the first data can be at the receivers; what is in flight then is cut
off. Losses are the switches' own counts, goodput is what arrived in order by the kernel's count
(UDP: by the measuring switch's), bandwidth and burstiness are gtrcnet.p4's. The result holds
nothing of the wall clock.
"""

import itertools
import os
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mininet.net import Mininet
from mininet.node import Node

from pacer_mininet import congestion, paths, tcp_state
from pacer_mininet.counters import (
    ExperimentError,
    bandwidth_of,
    difference,
    drops_by_cause,
    lateness_between,
    stalls_between,
    statistics_of,
)
from pacer_mininet.experiments.network import PAYLOAD_BYTES, WIRE_IN, edge_of, network_of
from pacer_mininet.experiments.scenario import Flow, Scenario
from pacer_mininet.experiments.shaping import (
    end_slow_start,
    pacing_rate_bps,
    port_of,
    shape,
)
from pacer_mininet.hosts import introduce, ping, write_settings
from pacer_mininet.nodes import PacerController, in_lab
from pacer_mininet.ovs_switch import PacingOVSSwitch
from pacer_mininet.sink import Sink
from pacer_mininet.tcp_state import TcpMonitor, TcpSample
from pacer_mininet.traffic import (
    BIN_NS,
    NS_PER_S,
    WINDOW_NS,
    Bandwidth,
    bits_per_second,
    percentile,
    series,
)

START_STEP_NS = NS_PER_S
"""A run starts at a multiple of this on the machine's clock. In the lab, setting up takes more or
less virtual time from one checkout to another. A run that starts so stands to the bins of 500 us,
the windows of 100 ms and the kernel's ticks as any other does."""

SAMPLE_NS = 100_000_000
SAMPLE_LATE_NS = SAMPLE_NS // 2
"""By how much a sample may be late, in real time, to count for the instant it was due at."""

DROPS_EVERY = 5
"""Losses are read with every so many samples: asking the controller is the dearest of them."""

READ_BINS_EVERY_S = 25
"""Longest time between two readings of the bins: their ring holds 32.7 s."""

JITTER_NS = 12_144
"""One frame's time at 1 Gbit/s: by how much, at most, a seed shifts a flow's start."""

UDP_PAYLOAD_BYTES = 1470
UDP_OVERHEAD_BYTES = 14 + 20 + 8 + 4
"""Ethernet, IPv4, UDP headers and FCS around a datagram's payload."""

TAIL_NS = 250_000_000

PING_TIMEOUT_S = 12.0
LEARNING_S = 0.2
"""What the controller is given to tell the switches where hosts are."""

Report = Callable[[dict[str, Any]], None]


def run_scenario(name: str, scenario: Scenario, report: Report) -> dict[str, Any]:
    """Build the network, make the run, take the network down; return what was measured.

    Raises:
        MissingError: something is not installed or not built.
        CongestionControlError: the kernel has none of that name.
        NotOfferedError: controller or kernel cannot do what the scenario wants.
        ExperimentError, NodeError, ControllerError: the run failed.

    """
    paths.need_programs("ip", "iperf", "mnexec", "tc")
    for control in sorted({flow.congestion_control for flow in scenario.flows}):
        congestion.choose(control, congestion.of_this_kernel(control), lab=in_lab())
    report({"event": "phase", "run": name, "phase": "network"})
    with network_of(scenario) as net:
        return ScenarioRun(name, scenario, net, report).execute()


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
        self.measuring = ["wan", "far"] if scenario.far else ["wan"]
        self.bandwidth = {switch: Bandwidth() for switch in self.measuring}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.sink = Sink(scenario.socket_buffer_bytes)
        self.shaped_by: list[str] = []
        self.sent: dict[tuple[int, int], list[tuple[int, TcpSample]]] = {}
        self.received: dict[tuple[int, int], list[tuple[int, TcpSample]]] = {}
        self.closed: dict[tuple[int, int], int] = {}
        """When a sender's connection was first seen closed, by port of the receiver and its own."""
        self.drops: list[tuple[int, int]] = []
        self.estimates: list[tuple[float, float]] = []
        """RTT and bytes in flight that the switch saw, each over what the sender's kernel says."""
        self.drops_before = 0
        self.start_ns = self.unread_from_ns = 0

    # ---- preparing ----

    def prepare(self) -> None:
        """Let the network learn where the hosts are, set up shapers, start servers."""
        if self.scenario.first_ssthresh_packets:
            for control in sorted({flow.congestion_control for flow in self.scenario.flows}):
                end_slow_start(control, self.scenario.first_ssthresh_packets)
        # What is left of a connection to the same host would set the next one's start.
        settings = {"net.ipv4.tcp_no_metrics_save": "1"}
        if self.scenario.ecn:
            settings["net.ipv4.tcp_ecn"] = "1"
        for host in (*self.senders, *self.receivers):
            write_settings(host, settings)
        pairs = [
            (self.senders[sender - 1], self.receivers[receiver - 1])
            for sender, receiver in sorted({(f.sender, f.receiver) for f in self.scenario.flows})
        ]
        # No ARP: its packets are in no class, and one would be measured as the flow's burst.
        for sender in self.senders:
            introduce(sender, [there for here, there in pairs if here is sender])
        for receiver in self.receivers:
            introduce(receiver, [here for here, there in pairs if there is receiver])
        # The first teaches the switches where both are, the second finds its way.
        for _ in range(2):
            for sender, receiver in pairs:
                ping(sender, receiver.IP(), timeout_s=PING_TIMEOUT_S)
            time.sleep(LEARNING_S)
        self.shaped_by = shape(self.scenario, self.net, self.rest)
        for number, flow in enumerate(self.scenario.flows):
            receiver, port = self.receivers[flow.receiver - 1], port_of(number)
            if flow.udp_bps:
                self._start(receiver, ["iperf", "-s", "-p", str(port), "-y", "C", "-u"])
            else:
                self.sink.listen(receiver, port)
        self.sink.start()

    def _start(self, host: Node, command: list[str]) -> None:
        self.processes.append(
            host.popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        )

    def client_command(self, number: int, flow: Flow) -> list[str]:
        """Return iperf's command line of a sender; it goes on for longer than the run."""
        scenario = self.scenario
        server = self.receivers[flow.receiver - 1].IP()
        command = ["iperf", "-c", server, "-p", str(port_of(number)), "-f", "m"]
        if flow.payload_bytes:
            command += ["-n", str(flow.payload_bytes)]
        else:
            command += ["-t", str(scenario.seconds + 2 * scenario.rtt_ns // NS_PER_S + 2)]
        if flow.shaper.kind == "fq":
            command += ["--fq-rate", str(pacing_rate_bps(flow, scenario.rate_bps))]
        if flow.udp_bps:
            frame_bytes = UDP_PAYLOAD_BYTES + UDP_OVERHEAD_BYTES
            payload_bps = flow.udp_bps * UDP_PAYLOAD_BYTES // frame_bytes
            return [*command, "-u", "-l", str(UDP_PAYLOAD_BYTES), "-b", str(payload_bps)]
        return [*command, "-P", str(flow.streams), "-Z", flow.congestion_control]

    # ---- sending ----

    def send(self) -> None:
        """Start all flows at their times and look at everything until the run is over."""
        scenario = self.scenario
        starts = [(flow.start_ms * 1_000_000, number) for number, flow in enumerate(scenario.flows)]
        # A seed that changes nothing would be the same run again.
        starts = [(ns + (scenario.seed * 7919 + n * 104_729) % JITTER_NS, n) for ns, n in starts]
        starts.sort()
        monitors = [TcpMonitor(host.pid) for host in (*self.senders, *self.receivers)]
        # The switches run on this clock, too.
        self.start_ns = -(-time.monotonic_ns() // START_STEP_NS) * START_STEP_NS
        self.unread_from_ns = self.start_ns
        end_ns = self._end_ns + TAIL_NS
        # So that one is at the end, where the run's goodput is counted.
        sample_ns = self._end_ns % SAMPLE_NS or SAMPLE_NS
        try:
            while True:
                due_ns = min([sample_ns, *(at_ns for at_ns, _ in starts[:1])])
                if due_ns > end_ns:
                    break
                self._sleep_until(due_ns)
                if starts and starts[0][0] == due_ns:
                    _, number = starts.pop(0)
                    flow = scenario.flows[number]
                    self._start(self.senders[flow.sender - 1], self.client_command(number, flow))
                    continue
                self._sample(sample_ns, monitors)
                # After a stall of the machine the missed samples are missed.
                late_ns = max(0, time.monotonic_ns() - self.start_ns - sample_ns)
                sample_ns += SAMPLE_NS * (late_ns // SAMPLE_NS + 1)
        finally:
            for monitor in monitors:
                monitor.close()

    def _sleep_until(self, due_ns: int) -> None:
        left_ns = due_ns - (time.monotonic_ns() - self.start_ns)
        # `sleep` rounds up to whole ns: half a ns less makes it exact.
        time.sleep(max(0.0, left_ns - 0.5) / NS_PER_S)

    def _sample(self, due_ns: int, monitors: list[TcpMonitor]) -> None:
        now_ns = time.monotonic_ns() - self.start_ns
        for monitor in monitors[: len(self.senders)]:
            for sample in monitor.connections():
                if sample.remote_port >= port_of(0):
                    key = (sample.remote_port, sample.local_port)
                    self.sent.setdefault(key, []).append((now_ns, sample))
            if any(flow.payload_bytes for flow in self.scenario.flows):
                for local_port, remote_port in monitor.closed():
                    self.closed.setdefault((remote_port, local_port), now_ns)
        for monitor in monitors[len(self.senders) :]:
            for sample in monitor.connections():
                if sample.local_port < port_of(len(self.scenario.flows)):
                    key = (sample.local_port, sample.remote_port)
                    self.received.setdefault(key, []).append((now_ns, sample))
        # The one at 500 ms, or up to 100 ms before that, is number 4.
        number = -(-due_ns // SAMPLE_NS) - 1
        if number % DROPS_EVERY == DROPS_EVERY - 1:
            self._compare_estimates()
            drops = drops_by_cause(statistics_of(self.rest, "wan"))
            self.drops.append((now_ns, sum(drops.values()) - self.drops_before))
        if number % 10 == 9:
            self._tell(number // 10 + 1)
        if number % (10 * READ_BINS_EVERY_S) == 10 * READ_BINS_EVERY_S - 1:
            self._read_bandwidth()
            # What is a second old is not written to any more.
            self.unread_from_ns = self.start_ns + now_ns - NS_PER_S

    def _compare_estimates(self) -> None:
        """Note how what the switch follows compares with the sender's kernel at this moment."""
        for number, flow in enumerate(self.scenario.flows):
            samples = [s[-1][1] for (port, _), s in self.sent.items() if port == port_of(number)]
            if not flow.shaper.follows or len(samples) != 1 or not samples[0].unacked_packets:
                continue
            edge = f"edge{edge_of(self.scenario, flow.sender)}"
            classes = self.rest.get("switches", edge, "stats")["classes"]
            seen = next(one for one in classes if one["name"] == f"class{number}")
            if seen.get("rtt_ns") and seen.get("in_flight_bytes"):
                in_flight = samples[0].unacked_packets * PAYLOAD_BYTES
                self.estimates.append(
                    (
                        seen["rtt_ns"] / (samples[0].rtt_us * 1000),
                        seen["in_flight_bytes"] / in_flight,
                    )
                )

    def _tell(self, second: int) -> None:
        payload = self._delivered_by(second * NS_PER_S) - self._delivered_by(
            (second - 1) * NS_PER_S
        )
        self.report(
            {
                "event": "progress",
                "run": self.name,
                "second": second,
                "seconds": self.scenario.seconds,
                "goodput_bps": payload * 8,
                "bottleneck_drops": self.drops[-1][1] if self.drops else 0,
            }
        )

    # ---- the whole ----

    def execute(self) -> dict[str, Any]:
        """Make the run; return what it gave and what it looked like."""
        self._phase("ping")
        try:
            self.prepare()
            before = {name: self.statistics(name) for name in self.switches}
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
        # First the counters: reading tens of thousands of registers keeps the lab busy for so
        # long that its clock moves on.
        after = {name: self.statistics(name) for name in self.switches}
        lost = {
            name: difference(drops_by_cause(after[name]), drops_by_cause(before[name]))
            for name in self.switches
        }
        counters = [
            difference(self._tcp_counters(hosts), earlier)
            for hosts, earlier in zip((self.senders, self.receivers), counters_before, strict=True)
        ]
        self._read_bandwidth()
        return {
            "mode": "lab" if in_lab() else "realtime",
            "kernel": os.uname().release,
            "commands": self._commands(),
            "flows": [self._flow(number) for number in range(len(self.scenario.flows))],
            "goodput_bps": bits_per_second(
                self._delivered_by(self._end_ns), self.scenario.seconds * NS_PER_S
            ),
            "bottleneck_drops": sum(lost["wan"].values()),
            "edge_drops": sum(sum(lost[s].values()) for s in self.switches if s != "wan"),
            "drops_by_cause": {name: causes for name, causes in lost.items() if causes},
            "lateness_max_ns": {
                name: lateness_between(before[name], after[name]) for name in self.switches
            },
            "stalls": {name: stalls_between(before[name], after[name]) for name in self.switches},
            "retransmits": counters[0].get("TcpRetransSegs", 0),
            "out_of_order_arrivals": counters[1].get("TcpExtTCPOFOQueue", 0),
            "estimates": {
                "rtt_error_percent": _median_error([rtt for rtt, _ in self.estimates]),
                "in_flight_error_percent": _median_error([there for _, there in self.estimates]),
            },
            **{switch: self._measured(switch) for switch in self.measuring},
            "series": self._series(),
        }

    def _commands(self) -> list[str]:
        """Return the command lines in the senders, sender by sender, after its name."""
        commands = list(self.shaped_by)
        for number, flow in enumerate(self.scenario.flows):
            commands.append(f"a{flow.sender}: {' '.join(self.client_command(number, flow))}")
        return sorted(commands, key=lambda command: int(command[1 : command.index(":")]))

    def statistics(self, switch: str) -> dict[str, Any]:
        """Return all that a switch counts, as the controller's `stats` resource has it."""
        node = self.net.get(switch)
        if isinstance(node, PacingOVSSwitch):
            return node.statistics()
        return statistics_of(self.rest, switch)

    @staticmethod
    def _tcp_counters(hosts: Sequence[Node]) -> Counter[str]:
        """Return the kernel's counters of TCP, summed over hosts."""
        total: Counter[str] = Counter()
        for host in hosts:
            total.update(tcp_state.counters(host.pid))
        return total

    @property
    def _end_ns(self) -> int:
        return self.scenario.rtt_ns * 3 // 2 + self.scenario.seconds * NS_PER_S

    def _phase(self, phase: str) -> None:
        self.report({"event": "phase", "run": self.name, "phase": phase})

    def _read_bandwidth(self) -> None:
        now_ns = time.monotonic_ns()
        between = {"port": WIRE_IN, "from_ns": self.unread_from_ns, "to_ns": now_ns}
        for switch, known in self.bandwidth.items():
            if self.scenario.bins and switch == "wan":
                known.add(bandwidth_of(self.rest.get("switches", switch, "bandwidth", **between)))
            else:
                answer = self.rest.get("switches", switch, "burstiness", **between)
                known.add(bandwidth_of({"bins": {"start_ns": [], "bytes": []}, **answer}))

    # ---- results ----

    def _delivered_by(self, until_ns: int, number: int | None = None) -> int:
        """Return the payload that had arrived in order: of flow `number`, or of all."""
        total = 0
        for (port, _), samples in self.received.items():
            if number is not None and port != port_of(number):
                continue
            due = (s.bytes_received for at, s in samples if at <= until_ns + SAMPLE_LATE_NS)
            total += max(due, default=0)
        return total

    def _flow(self, number: int) -> dict[str, Any]:
        """Return what a flow came to."""
        scenario, flow = self.scenario, self.scenario.flows[number]
        sent = [s for (port, _), samples in self.sent.items() if port == port_of(number)
                for _, s in samples]  # fmt: skip
        if not flow.udp_bps and not sent:
            raise ExperimentError(f"flow {number}: its connection was never seen")
        half_ns = scenario.seconds * NS_PER_S // 2
        late = self._delivered_by(self._end_ns, number)
        half = late - self._delivered_by(self._end_ns - half_ns, number)
        rtts_us = [sample.rtt_us for sample in sent]
        done_ns = self._done_ns(number) if flow.payload_bytes else None
        if done_ns is not None:
            late = flow.payload_bytes
        return {
            "shaper": flow.shaper.name,
            "congestion_control": flow.congestion_control,
            "transfer_bytes": flow.payload_bytes,
            "payload_bytes": late,
            "goodput_bps": bits_per_second(late, scenario.seconds * NS_PER_S),
            "goodput_second_half_bps": bits_per_second(half, half_ns),
            "reorderings_seen": sum(sample.reorderings_seen for sample in self._last(number)),
            **self._buffers(number),
            "completion_ms": None if done_ns is None else done_ns // 1_000_000 - flow.start_ms,
            "rtt_ms": {
                "min": min(s.min_rtt_us for s in sent) / 1e3,
                "mean": round(sum(rtts_us) / len(rtts_us) / 1e3, 3),
                "max": max(rtts_us) / 1e3,
            }
            if sent
            else None,
        }

    def _last(self, number: int) -> list[TcpSample]:
        """Return the last sample of each sending connection of a flow."""
        return [
            samples[-1][1] for (port, _), samples in self.sent.items() if port == port_of(number)
        ]

    def _buffers(self, number: int) -> dict[str, int]:
        """Return the socket buffers that the kernels granted, in bytes: 0 where none was seen."""
        port = port_of(number)
        received = [found[-1][1] for key, found in self.received.items() if key[0] == port]
        return {
            "send_buffer_bytes": max((s.send_buffer_bytes for s in self._last(number)), default=0),
            "receive_buffer_bytes": max((s.receive_buffer_bytes for s in received), default=0),
        }

    def _done_ns(self, number: int) -> int | None:
        """Return when a transfer was first seen done; None if it was not.

        The receiver's socket is gone soon after the last byte, often before it is looked at again;
        the sender's then says that all of it was acknowledged.
        """
        flow = self.scenario.flows[number]
        closed = [at_ns for (port, _), at_ns in self.closed.items() if port == port_of(number)]
        found = [max(closed)] if len(closed) == flow.streams else []
        times = sorted({at for s in self.received.values() for at, _ in s})
        arrived = (at for at in times if self._delivered_by(at, number) >= flow.payload_bytes)
        return min([*found, *itertools.islice(arrived, 1)], default=None)

    def _measured(self, switch: str) -> dict[str, Any]:
        """Return what a measuring switch saw of the run's seconds."""
        scenario = self.scenario
        seen = self.bandwidth[switch].since(self.start_ns)
        first_ns = self.start_ns + scenario.rtt_ns
        bins = series(seen.bin_bytes, first_ns // BIN_NS, scenario.seconds * NS_PER_S // BIN_NS)
        with_bins = scenario.bins and switch == "wan"
        length = scenario.seconds * NS_PER_S // WINDOW_NS
        windows = series(seen.window_bytes, first_ns // WINDOW_NS, length)
        queues = series(seen.window_vb_max_bytes, first_ns // WINDOW_NS, length)
        dynamic = series(seen.window_dynamic_max_bytes, first_ns // WINDOW_NS, length)
        return {
            "bytes": sum(windows),
            "packets_1500": sum(windows) // 1518,
            "bin_max_bps": bits_per_second(max(bins), BIN_NS) if with_bins else None,
            "bin_p99_bps": bits_per_second(percentile(bins, 99), BIN_NS) if with_bins else None,
            "deviation": _deviation(windows[length // 2 :]),
            "abw_mean_bps": bits_per_second(sum(windows), length * WINDOW_NS),
            "abw_max_bps": bits_per_second(max(windows), WINDOW_NS),
            "queue_mean_bytes": sum(queues) // length,
            "queue_max_bytes": max(queues),
            "dynamic_queue_mean_bytes": None if with_bins else sum(dynamic) // length,
            "dynamic_queue_max_bytes": None if with_bins else max(dynamic),
        }

    def _finest(self, seconds: int) -> dict[str, Any]:
        """Return the bandwidth as fine as it was measured: bins of 500 us, or windows."""
        seen = self.bandwidth["wan"]
        counts, step_ns = seen.window_bytes, WINDOW_NS
        if self.scenario.bins:
            counts, step_ns = seen.bin_bytes, BIN_NS
        length = seconds * NS_PER_S // step_ns
        return {"bin_ns": step_ns, "bin_bytes": series(counts, self.start_ns // step_ns, length)}

    def _series(self) -> dict[str, Any]:
        """Return the run as it went, times in ms since the start."""
        seconds = self.scenario.seconds + 1
        seen = self.bandwidth["wan"]
        window = self.start_ns // WINDOW_NS
        length = seconds * NS_PER_S // WINDOW_NS
        # One connection's: of many, their windows say little.
        first = next(iter(self.sent.values()), [])
        return {
            **self._finest(seconds),
            "estimates": [[round(rtt, 4), round(there, 4)] for rtt, there in self.estimates],
            "window_vb_max_bytes": series(seen.window_vb_max_bytes, window, length),
            "bottleneck_drops": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in self.drops],
                "packets": [packets for _, packets in self.drops],
            },
            "sender": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in first],
                "cwnd_packets": [sample.cwnd_packets for _, sample in first],
                "rtt_us": [sample.rtt_us for _, sample in first],
            },
            "flows": [
                [self._delivered_by(ms * 1_000_000, number) for ms in range(0, seconds * 1000, 500)]
                for number in range(min(len(self.scenario.flows), 4))
            ],
        }


def _median_error(ratios: list[float]) -> float | None:
    """Return the median distance of ratios from 1, in percent; None without any."""
    if not ratios:
        return None
    return round(100 * statistics.median(abs(ratio - 1) for ratio in ratios), 2)


def _deviation(values: list[int]) -> float:
    """Return the standard deviation over the mean; 0 where nothing came."""
    mean = sum(values) / max(1, len(values))
    if not mean:
        return 0.0
    return round(statistics.pstdev(values) / mean, 4)

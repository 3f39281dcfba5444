"""One run: iperf across the long fat network, measured everywhere, in the lab or on a kernel.

The network is built, the controller teaches it the stations, ping measures the empty path, then
iperf sends for so many seconds. What is measured, and where:

- goodput: by the iperf server, and every 100 ms by the kernel's count of what arrived in order;
- losses: by the switches' own counters, by cause, from the start of the connection on;
- bandwidth in 500 us bins, and burstiness: by gtrcnet.p4 at the entrance of the bottleneck;
- TCP: RTT, window and retransmissions, by the sender's kernel.

The result holds nothing of the wall clock: two runs in the lab are equal to the byte.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mininet.net import Mininet

from pacer_mininet import congestion, iperf, ovs_switch, paths, tcp_state
from pacer_mininet.hosts import write_settings
from pacer_mininet.nodes import (
    SOCKET_BUFFER_BYTES,
    PacerController,
    in_lab,
    run_in,
    started,
)
from pacer_mininet.rest import RestClient
from pacer_mininet.tcp_state import TcpMonitor, TcpSample
from pacer_mininet.topology import (
    EDGE_RATE,
    S1_PORT_TO_WAN,
    WAN_PORT_TO_SENDER,
    LfnTopo,
)
from pacer_mininet.traffic import (
    BIN_NS,
    NS_PER_S,
    WINDOW_NS,
    Bandwidth,
    bits_per_second,
    percentile,
    series,
)
from pacer_mininet.units import (
    MIN_RATE_BPS,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

RUN_NAMES = ("unpaced", "tbf", "paced")
ALL_RUN_NAMES = RUN_NAMES + ovs_switch.OVS_RUN_NAMES

SAMPLE_NS = 100_000_000
SAMPLE_OFFSET_NS = 50_000_000
"""Samples lie between the multiples of 100 ms at which a path of 200 ms has its events."""

START_STEP_NS = NS_PER_S
"""A run starts at a multiple of this on the machine's clock. In the lab, setting up may take more
or less virtual time from one checkout to another (work that takes very many system calls without a
pause is charged for them); started so, what is measured stands to the bins of 500 us, the windows
of 100 ms and the kernel's ticks as it always does."""

MAX_SECONDS = 3600
READ_BINS_EVERY_S = 25
"""Longest time between two readings of the bins: their ring holds 32.7 s."""

TBF_BURST_BYTES = 15_000
TBF_LIMIT_BYTES = 1_000_000
MTU_FRAME_BYTES = 1518
FCS_BYTES = 4
SWITCHES = ("s1", "wan", "s2")
PACED_CLASS = "lfn"
DRAIN_LIMIT_S = 60
"""How long after its time iperf may go on: what is in its buffer still has to arrive."""

Report = Callable[[dict[str, Any]], None]
"""Takes progress events, plain data that can be sent as JSON."""


class ExperimentError(RuntimeError):
    """A run that could not be made or cannot be trusted; the text says why."""


@dataclass(frozen=True)
class Settings:
    """What describes a run.

    Rates count layer-2 bytes with FCS. Raises ValueError for a value out of range.
    """

    name: str
    seconds: int = 20
    rate_bps: int = 500_000_000
    rtt_ns: int = 200_000_000
    fifo_bytes: int = 64 * 1024
    congestion_control: str = congestion.UNCHOSEN
    socket_buffer_bytes: int = SOCKET_BUFFER_BYTES

    def __post_init__(self) -> None:
        if self.name not in ALL_RUN_NAMES:
            raise ValueError(f"run {self.name!r} is not one of {', '.join(ALL_RUN_NAMES)}")
        if not 1 <= self.seconds <= MAX_SECONDS:
            raise ValueError(f"seconds {self.seconds} is outside 1 to {MAX_SECONDS}")
        if not MIN_RATE_BPS <= self.rate_bps <= parse_rate(EDGE_RATE):
            raise ValueError(
                f"rate {format_rate(self.rate_bps)} is outside 8kbit to the sender's {EDGE_RATE}"
            )
        if congestion.NAME.fullmatch(self.congestion_control) is None:
            raise ValueError(f"{self.congestion_control!r} is not a congestion control's name")

    @property
    def tbf_rate_bps(self) -> int:
        """Rate given to TBF so that full frames leave it at the bottleneck's rate, not above.

        TBF counts layer-2 bytes without FCS (1514 of a full frame's 1518).
        """
        return self.rate_bps * (MTU_FRAME_BYTES - FCS_BYTES) // MTU_FRAME_BYTES


def settings_from(
    name: str,
    *,
    seconds: object = 20,
    rate: object = "500mbit",
    rtt: object = "200ms",
    fifo: object = "64KB",
    congestion_control: str = congestion.UNCHOSEN,
) -> Settings:
    """Return settings from values as people write them; ValueError naming the one at fault."""
    try:
        whole_seconds = int(str(seconds))
    except ValueError:
        raise ValueError(f"seconds {seconds!r} is not a whole number") from None
    return Settings(
        name=name,
        seconds=whole_seconds,
        rate_bps=parse_rate(rate),
        rtt_ns=parse_duration(rtt),
        fifo_bytes=parse_size(fifo),
        congestion_control=congestion_control,
    )


@dataclass
class Samples:
    """What was looked at every 100 ms; times in ns since iperf was started."""

    sender: list[tuple[int, TcpSample]] = field(default_factory=list)
    receiver: list[tuple[int, TcpSample]] = field(default_factory=list)
    bottleneck_drops: list[tuple[int, int]] = field(default_factory=list)


@contextmanager
def long_fat_network(settings: Settings) -> Iterator[Mininet]:
    """Build and start the network; whatever happens, its processes end with the block."""
    with_ovs = settings.name in ovs_switch.OVS_RUN_NAMES
    topo = (ovs_switch.OvsEdgeTopo if with_ovs else LfnTopo)(
        rate=format_rate(settings.rate_bps),
        rtt=f"{settings.rtt_ns}ns",
        fifo=format_size(settings.fifo_bytes),
    )
    with started(topo, ovs_switch.PacingOVSSwitch.live) as net:
        yield net


def run_experiment(settings: Settings, report: Report) -> dict[str, Any]:
    """Build the network, make the run, take the network down; see `Run.execute`.

    Raises:
        MissingError: something is not installed or not built.
        CongestionControlError: the kernel has none that may be used.
        ExperimentError, IperfError, NodeError, ControllerError: the run failed.

    """
    paths.need_programs("ip", "iperf", "mnexec", "ping", "tc")
    choice = settings.congestion_control
    used = congestion.choose(choice, congestion.of_this_kernel(choice), lab=in_lab())
    settings = replace(settings, congestion_control=used)
    report({"event": "phase", "run": settings.name, "phase": "network"})
    with long_fat_network(settings) as net:
        result = Run(settings, net, report).execute()
    result["run"]["congestion_control_asked"] = congestion.asked_for(choice)
    return result


class Run:
    """One run on a started network."""

    def __init__(self, settings: Settings, net: Mininet, report: Report) -> None:
        self.settings = settings
        self.net = net
        self.report = report
        self.h1, self.h2 = net.get("h1"), net.get("h2")
        controller = net.controllers[0]
        assert isinstance(controller, PacerController)
        self.rest = controller.rest
        self.samples = Samples()
        self.bandwidth = Bandwidth()
        self.start_clock_ns = 0
        self.unread_from_ns = 0
        self.wan_drops_before = 0
        self.ovs_shaper: dict[str, Any] | None = None

    # ---- preparing ----

    def ping(self) -> float:
        """Let the network learn where the hosts are; return the empty path's RTT in ms.

        The first exchange teaches ARP and the controller; the second is the measured one.
        """
        rtt_s = self.settings.rtt_ns / NS_PER_S
        # Deadline enough for ARP, the request, and a busy machine.
        command = ["ping", "-n", "-c", "3", "-i", f"{max(0.2, 2 * rtt_s):.3f}"]
        command += ["-W", str(10 + int(2 * rtt_s)), self.h2.IP()]
        out, err, _ = self.h1.pexec(*command)
        found = re.search(r"= ([0-9.]+)/", out)
        if found is None or " 0% packet loss" not in out:
            raise ExperimentError(f"the hosts cannot reach each other: {(out + err).strip()}")
        return float(found[1])

    def shape(self) -> None:
        """Set up what the run is named after."""
        settings = self.settings
        if settings.name == "paced":
            rate = {"mode": "static", "rate": settings.rate_bps, "port": S1_PORT_TO_WAN}
            self.rest.put("switches", "s1", "classes", PACED_CLASS, body=rate)
            flow = {
                "match": {"protocol": "tcp", "dst_port": iperf.PORT},
                "class": PACED_CLASS,
            }
            self.rest.put("switches", "s1", "flows", "iperf", body=flow)
        elif settings.name in ovs_switch.OVS_RUN_NAMES:
            self.ovs_shaper = ovs_switch.shape(
                self.rest, "s1", settings.name, S1_PORT_TO_WAN, settings.rate_bps, iperf.PORT
            )
        elif settings.name == "tbf":
            run_in(
                self.h1,
                *("tc", "qdisc", "add", "dev", self.h1.defaultIntf().name, "root", "tbf"),
                *("rate", f"{settings.tbf_rate_bps}bit", "burst", str(TBF_BURST_BYTES)),
                *("limit", str(TBF_LIMIT_BYTES)),
            )
        # What is left of a connection to the same host would set the next one's start.
        for host in (self.h1, self.h2):
            write_settings(host, {"net.ipv4.tcp_no_metrics_save": "1"})

    # ---- sending ----

    def send(self) -> tuple[str, str]:
        """Run iperf and look at everything while it runs; return what client and server printed."""
        settings = self.settings
        server = self.h2.popen(iperf.server_command())
        # The server has no ready line on a pipe: it is ready when its port is taken.
        iperf.wait_for_listener(self.h2.pid, iperf.PORT)
        sender, receiver = TcpMonitor(self.h1.pid), TcpMonitor(self.h2.pid)
        # The switches run on this clock, too.
        start_ns = -(-time.monotonic_ns() // START_STEP_NS) * START_STEP_NS
        # `sleep` rounds up to whole ns: half a ns less makes it exact.
        time.sleep(max(0.0, start_ns - time.monotonic_ns() - 0.5) / NS_PER_S)
        self.start_clock_ns = self.unread_from_ns = start_ns
        client = self.h1.popen(
            iperf.client_command(self.h2.IP(), settings.seconds, settings.congestion_control)
        )
        limit_ns = (settings.seconds + DRAIN_LIMIT_S) * NS_PER_S
        try:
            due_ns = SAMPLE_OFFSET_NS
            while client.poll() is None or server.poll() is None:
                if client.poll() not in (None, 0):
                    break
                now_ns = time.monotonic_ns() - start_ns
                if now_ns > limit_ns:
                    raise ExperimentError(f"iperf did not end within {limit_ns // NS_PER_S} s")
                if now_ns < due_ns:
                    time.sleep((due_ns - now_ns) / NS_PER_S)
                    continue
                self._sample(now_ns, due_ns, sender, receiver)
                # After a stall of the machine the missed samples are missed.
                due_ns += SAMPLE_NS * ((now_ns - due_ns) // SAMPLE_NS + 1)
            if client.poll() not in (None, 0):
                server.terminate()
            return tuple(  # type: ignore[return-value]
                b"\n".join(process.communicate()).decode(errors="replace")
                for process in (client, server)
            )
        finally:
            sender.close()
            receiver.close()
            for process in (client, server):
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _sample(self, now_ns: int, due_ns: int, sender: TcpMonitor, receiver: TcpMonitor) -> None:
        samples = self.samples
        sent = sender.connection(remote_port=iperf.PORT)
        received = receiver.connection(local_port=iperf.PORT)
        if sent is not None:
            samples.sender.append((now_ns, sent))
        if received is not None:
            samples.receiver.append((now_ns, received))
        number = due_ns // SAMPLE_NS
        if number % (1 if in_lab() else 5) == 0:
            samples.bottleneck_drops.append((now_ns, self._dropped("wan")))
        if number % 10 == 9:
            self._tell(number // 10 + 1)
        if number % (10 * READ_BINS_EVERY_S) == 10 * READ_BINS_EVERY_S - 1:
            self.read_bandwidth(self.unread_from_ns)
            # What is a second old is not written to any more.
            self.unread_from_ns = self.start_clock_ns + now_ns - NS_PER_S

    def _tell(self, second: int) -> None:
        """Report progress: the second's goodput, and what has been lost so far."""
        received = self.samples.receiver
        rate_bps = 0
        if len(received) > 1:
            (since_ns, before), (until_ns, after) = received[max(-11, -len(received))], received[-1]
            count = after.bytes_received - before.bytes_received
            rate_bps = bits_per_second(count, until_ns - since_ns)
        drops = self.samples.bottleneck_drops
        self.report(
            {
                "event": "progress",
                "run": self.settings.name,
                "second": second,
                "seconds": self.settings.seconds,
                "goodput_bps": rate_bps,
                "bottleneck_drops": drops[-1][1] - self.wan_drops_before if drops else 0,
            }
        )

    # ---- the whole ----

    def execute(self) -> dict[str, Any]:
        """Make the run; return `{"run": what it gave, "series": what it looked like}`."""
        settings = self.settings
        self._phase("ping")
        ping_rtt_ms = self.ping()
        self.shape()
        before = {name: self.statistics(name) for name in SWITCHES}
        self.wan_drops_before = sum(drops_by_cause(before["wan"]).values())
        counters_before = [tcp_state.counters(host.pid) for host in (self.h1, self.h2)]
        self._phase("iperf")
        client_text, server_text = self.send()
        iperf.check_client_output(client_text, settings.congestion_control)
        report = iperf.parse_server_report(server_text)
        self._phase("reading")
        # First the counters: reading tens of thousands of registers keeps the lab busy for so
        # long that its clock moves on, and what is sent meanwhile is late.
        after = {name: self.statistics(name) for name in SWITCHES}
        self.read_bandwidth(self.unread_from_ns)
        drops = {
            name: difference(drops_by_cause(after[name]), drops_by_cause(before[name]))
            for name in SWITCHES
        }
        counters = [
            difference(tcp_state.counters(host.pid), before)
            for host, before in zip((self.h1, self.h2), counters_before, strict=True)
        ]
        edge_drops: dict[str, int] = {}
        for name in ("s1", "s2"):
            for cause, packets in drops[name].items():
                edge_drops[cause] = edge_drops.get(cause, 0) + packets
        bandwidth = self.bandwidth.since(self.start_clock_ns)
        # The first data reaches the bottleneck one RTT after the first packet of the handshake.
        first_bin = (self.start_clock_ns + settings.rtt_ns) // BIN_NS
        bins = series(bandwidth.bin_bytes, first_bin, settings.seconds * NS_PER_S // BIN_NS)
        rtts_us = [sample.rtt_us for _, sample in self.samples.sender]
        last = self.samples.sender[-1][1] if self.samples.sender else None
        if last is None or not self.samples.receiver:
            raise ExperimentError("the connection was never seen: the run was too short")
        run = {
            "name": settings.name,
            "mode": "lab" if in_lab() else "realtime",
            "kernel": os.uname().release,
            "congestion_control": settings.congestion_control,
            "seconds": settings.seconds,
            "rate_bps": settings.rate_bps,
            "rtt_ms_path": settings.rtt_ns / 1e6,
            "fifo_bytes": settings.fifo_bytes,
            "edge_rate_bps": parse_rate(EDGE_RATE),
            "window_bytes": settings.socket_buffer_bytes,
            "send_buffer_bytes": last.send_buffer_bytes,
            "receive_buffer_bytes": self.samples.receiver[-1][1].receive_buffer_bytes,
            "shaper": self._shaper(),
            "payload_bytes": report.payload_bytes,
            "goodput_bps": report.rate_bps,
            "goodput_second_half_bps": self._second_half_bps(),
            "bottleneck_drops": sum(drops["wan"].values()),
            "bottleneck_drops_by_cause": drops["wan"],
            "edge_drops": sum(edge_drops.values()),
            "edge_drops_by_cause": edge_drops,
            "retransmits": counters[0].get("TcpRetransSegs", 0),
            "out_of_order_arrivals": counters[1].get("TcpExtTCPOFOQueue", 0),
            "reorderings_seen": last.reorderings_seen,
            "ping_rtt_ms": ping_rtt_ms,
            "rtt_ms": {
                "min": last.min_rtt_us / 1e3,
                "mean": round(sum(rtts_us) / len(rtts_us) / 1e3, 3),
                "max": max(rtts_us) / 1e3,
            },
            "bin_max_bps": bits_per_second(max(bins), BIN_NS),
            "bin_p99_bps": bits_per_second(percentile(bins, 99), BIN_NS),
            "window_max_bps": bits_per_second(
                max(bandwidth.window_bytes.values(), default=0), WINDOW_NS
            ),
            "vb_max_bytes": bandwidth.vb_max_bytes,
            "vb_rate_bps": settings.rate_bps,
            "bottleneck_bytes_in": bandwidth.total_bytes,
            "lateness_max_ns": {
                name: lateness_between(before[name], after[name]) for name in SWITCHES
            },
            "stalls": {name: stalls_between(before[name], after[name]) for name in SWITCHES},
        }
        return {"run": run, "series": self._series(bandwidth)}

    def _phase(self, phase: str) -> None:
        self.report({"event": "phase", "run": self.settings.name, "phase": phase})

    def _shaper(self) -> dict[str, Any]:
        """Return what spaces the sender's packets, with its parameters."""
        settings = self.settings
        if self.ovs_shaper is not None:
            return self.ovs_shaper
        if settings.name == "paced":
            return {"kind": "pacer.p4", "at": "s1", "rate_bps": settings.rate_bps}
        if settings.name == "tbf":
            return {
                "kind": "tbf",
                "at": "h1",
                "rate_bps": settings.tbf_rate_bps,
                "burst_bytes": TBF_BURST_BYTES,
                "limit_bytes": TBF_LIMIT_BYTES,
            }
        return {"kind": "none"}

    def _second_half_bps(self) -> int:
        """Return the rate of what arrived in order in the second half of the run's seconds.

        The seconds start with the first data at the receiver, one and a half RTT after the start.
        """
        settings = self.settings
        half_ns = settings.seconds * NS_PER_S // 2
        from_ns = settings.rtt_ns * 3 // 2 + half_ns
        inside = [
            (at_ns, sample.bytes_received)
            for at_ns, sample in self.samples.receiver
            if from_ns <= at_ns <= from_ns + half_ns
        ]
        if len(inside) < 2:
            raise ExperimentError("the connection ended before its second half")
        (since_ns, before), (until_ns, after) = inside[0], inside[-1]
        return bits_per_second(after - before, until_ns - since_ns)

    def _series(self, bandwidth: Bandwidth) -> dict[str, Any]:
        """Return the run as it went, times in ms since the start."""
        samples = self.samples
        length = (self.settings.seconds + 2) * NS_PER_S // BIN_NS
        return {
            "bin_ns": BIN_NS,
            "bin_bytes": series(bandwidth.bin_bytes, self.start_clock_ns // BIN_NS, length),
            "window_ns": WINDOW_NS,
            "window_vb_max_bytes": series(
                bandwidth.window_vb_max_bytes,
                self.start_clock_ns // WINDOW_NS,
                length * BIN_NS // WINDOW_NS,
            ),
            "bottleneck_drops": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in samples.bottleneck_drops],
                "packets": [n - self.wan_drops_before for _, n in samples.bottleneck_drops],
            },
            "sender": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in samples.sender],
                "cwnd_packets": [sample.cwnd_packets for _, sample in samples.sender],
                "rtt_us": [sample.rtt_us for _, sample in samples.sender],
                "retransmits": [sample.retransmits for _, sample in samples.sender],
            },
            "receiver": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in samples.receiver],
                "payload_bytes": [sample.bytes_received for _, sample in samples.receiver],
            },
        }

    # ---- measuring ----

    def statistics(self, switch: str) -> dict[str, Any]:
        """Return all that a switch counts, as the controller's `stats` resource has it."""
        node = self.net.get(switch)
        if isinstance(node, ovs_switch.PacingOVSSwitch):
            return node.statistics()
        return statistics_of(self.rest, switch)

    def drops(self, switch: str) -> dict[str, int]:
        """Return the packets that a switch has lost so far, by cause."""
        return drops_by_cause(self.statistics(switch))

    def _dropped(self, switch: str) -> int:
        return sum(self.drops(switch).values())

    def read_bandwidth(self, from_ns: int) -> None:
        """Take over what gtrcnet has measured since `from_ns` of its clock."""
        answer = self.rest.get(
            "switches", "wan", "bandwidth", port=WAN_PORT_TO_SENDER, from_ns=from_ns
        )
        self.bandwidth.add(bandwidth_of(answer))


def statistics_of(rest: RestClient, switch: str) -> dict[str, Any]:
    """Return all that a pacing_switch counts, from the controller; ExperimentError without it."""
    statistics = rest.get("switches", switch, "stats")
    if not isinstance(statistics, dict) or statistics.get("now_ns") is None:
        raise ExperimentError(f"switch {switch} gives no statistics")
    return statistics


def drops_by_cause(statistics: dict[str, Any]) -> dict[str, int]:
    """Return all lost packets in a switch's statistics, by cause, those of all ports together.

    The copy of a flooded packet that its sender does not get back is no loss, nor is a PAUSE frame
    that has filled its gap.
    """
    found: dict[str, int] = {}
    parts = [(statistics.get("traffic_manager") or {}).get("drops", {})]
    parts += [(port.get("statistics") or {}).get("drops", {}) for port in statistics["ports"]]
    for part in parts:
        for cause, packets in part.items():
            if cause not in ("pruned", "pause-frame"):
                found[cause] = found.get(cause, 0) + packets
    return dict(sorted(found.items()))


def bandwidth_of(answer: dict[str, Any]) -> Bandwidth:
    """Return what the controller's `bandwidth` resource says, keyed by bin and window.

    `burstiness` has no bins, and dynamic burstiness besides.
    """
    bins, windows = answer["bins"], answer["windows"]
    numbers = [start_ns // WINDOW_NS for start_ns in windows["start_ns"]]
    return Bandwidth(
        {
            start_ns // BIN_NS: count
            for start_ns, count in zip(bins["start_ns"], bins["bytes"], strict=True)
        },
        dict(zip(numbers, windows["bytes"], strict=True)),
        dict(zip(numbers, windows["vb_max_bytes"], strict=True)),
        dict(zip(numbers, windows.get("dynamic_vb_max_bytes", ()), strict=False)),
    )


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return what was counted between two readings, without zeros."""
    counts = {key: value - before.get(key, 0) for key, value in after.items()}
    return {key: value for key, value in counts.items() if value}


def stalls_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int] | None:
    """Return how often and for how long, in ns, the machine kept a switch from its work.

    None for a switch that does not know.
    """
    earlier, later = (reading["traffic_manager"].get("attention") for reading in (before, after))
    if earlier is None or later is None:
        return None
    return {
        "count": later["stalls"] - earlier["stalls"],
        "total_ns": later["stalled_ns"] - earlier["stalled_ns"],
    }


def lateness_between(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Return the greatest lateness, in ns, of the starts of transmission between two readings.

    Exact when it is the greatest since the switch was started; else the upper end of its bucket
    (bucket 0 is "on time", bucket i > 0 holds 2^(i-1) to 2^i - 1 ns).
    """
    greatest_ns = 0
    earlier = {port["port"]: port["statistics"] for port in before["ports"]}
    for port in after["ports"]:
        lateness = port["statistics"]["lateness"]
        counts = zip(
            lateness["buckets"], earlier[port["port"]]["lateness"]["buckets"], strict=False
        )
        grown = [number for number, (now, then) in enumerate(counts) if now > then]
        if grown and grown[-1] > 0:
            greatest_ns = max(greatest_ns, min(lateness["max_ns"], (1 << grown[-1]) - 1))
    return greatest_ns

"""Samples of a run's TCP connections, and the results of each flow from them."""

import itertools
import statistics
from collections.abc import Iterable
from typing import Any

from pacer_mininet.counters import ExperimentError
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.shaping import port_of
from pacer_mininet.tcp_state import TcpMonitor, TcpSample
from pacer_mininet.traffic import NS_PER_S, bits_per_second

SAMPLE_NS = 100_000_000
SAMPLE_LATE_NS = SAMPLE_NS // 2
"""A sample that is at most this late, in real time, counts for the instant at which it was due."""

FLOWS_IN_SERIES = 10

Connection = tuple[int, int]
"""The receiver's port and the sender's."""


class Samples:
    """The samples of a run's connections; times are ns since the run's start."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.end_ns = scenario.rtt_ns * 3 // 2 + scenario.seconds * NS_PER_S
        """The first data arrives 1.5 RTT after the start; the run's seconds begin then."""
        self.sent: dict[Connection, list[tuple[int, TcpSample]]] = {}
        self.received: dict[Connection, list[tuple[int, TcpSample]]] = {}
        self.closed: dict[Connection, int] = {}
        """The time when each connection was first seen closed by its sender."""
        self._closed_before: set[Connection] = set()
        self.estimates: list[tuple[float, float]] = []
        """RTT and bytes in flight as the switch sees them, each over the sender's kernel's."""

    def ignore_closed(self, senders: Iterable[TcpMonitor]) -> None:
        """Ignore the connections that are closed already, from now on."""
        for monitor in senders:
            self._closed_before |= {(remote, local) for local, remote in monitor.closed()}

    def take(
        self, now_ns: int, senders: Iterable[TcpMonitor], receivers: Iterable[TcpMonitor]
    ) -> None:
        """Sample all connections of the hosts."""
        for monitor in senders:
            for sample in monitor.connections():
                if sample.remote_port >= port_of(0):
                    key = (sample.remote_port, sample.local_port)
                    self.sent.setdefault(key, []).append((now_ns, sample))
            if any(flow.payload_bytes for flow in self.scenario.flows):
                for local_port, remote_port in monitor.closed():
                    if (remote_port, local_port) not in self._closed_before:
                        self.closed.setdefault((remote_port, local_port), now_ns)
        for monitor in receivers:
            for sample in monitor.connections():
                if sample.local_port < port_of(len(self.scenario.flows)):
                    key = (sample.local_port, sample.remote_port)
                    self.received.setdefault(key, []).append((now_ns, sample))

    def last_sent(self, number: int) -> list[TcpSample]:
        """Return the last sample of each sending connection of a flow."""
        return [found[-1][1] for key, found in self.sent.items() if key[0] == port_of(number)]

    def delivered_by(self, until_ns: int, number: int | None = None) -> int:
        """Return the payload that had arrived in order: of flow `number`, or of all."""
        total = 0
        for (port, _), samples in self.received.items():
            if number is not None and port != port_of(number):
                continue
            due = (s.bytes_received for at, s in samples if at <= until_ns + SAMPLE_LATE_NS)
            total += max(due, default=0)
        return total

    def flow(self, number: int) -> dict[str, Any]:
        """Return a flow's results.

        Raises:
            ExperimentError: its connection was never seen.

        """
        scenario, flow = self.scenario, self.scenario.flows[number]
        port = port_of(number)
        sent = [one for key, found in self.sent.items() if key[0] == port for _, one in found]
        if not flow.udp_bps and not sent:
            raise ExperimentError(f"flow {number}: its connection was never seen")
        half_ns = scenario.seconds * NS_PER_S // 2
        late = self.delivered_by(self.end_ns, number)
        half = late - self.delivered_by(self.end_ns - half_ns, number)
        rtts_us = [sample.rtt_us for sample in sent]
        done_ns = self._done_ns(number) if flow.payload_bytes else None
        if done_ns is not None:
            late = flow.payload_bytes
        last = self.last_sent(number)
        received = [found[-1][1] for key, found in self.received.items() if key[0] == port]
        return {
            "shaper": flow.shaper.name,
            "congestion_control": flow.congestion_control,
            "transfer_bytes": flow.payload_bytes,
            "payload_bytes": late,
            "goodput_bps": bits_per_second(late, scenario.seconds * NS_PER_S),
            "goodput_second_half_bps": bits_per_second(half, half_ns),
            "reorderings_seen": sum(sample.reorderings_seen for sample in last),
            "send_buffer_bytes": max((s.send_buffer_bytes for s in last), default=0),
            "receive_buffer_bytes": max((s.receive_buffer_bytes for s in received), default=0),
            "completion_ms": None if done_ns is None else done_ns // 1_000_000 - flow.start_ms,
            "rtt_ms": {
                "min": min(s.min_rtt_us for s in sent) / 1e3,
                "mean": round(sum(rtts_us) / len(rtts_us) / 1e3, 3),
                "max": max(rtts_us) / 1e3,
            }
            if sent
            else None,
        }

    def _done_ns(self, number: int) -> int | None:
        """Return when a transfer was first seen done; None if it was not.

        The receiver's socket often closes between the last byte and the next sample. The sender's
        closed connection then shows that all data was acknowledged.
        """
        flow = self.scenario.flows[number]
        closed = [at_ns for (port, _), at_ns in self.closed.items() if port == port_of(number)]
        found = [max(closed)] if len(closed) == flow.streams else []
        times = sorted({at for s in self.received.values() for at, _ in s})
        arrived = (at for at in times if self.delivered_by(at, number) >= flow.payload_bytes)
        return min([*found, *itertools.islice(arrived, 1)], default=None)

    def losses(self, number: int) -> list[int]:
        """Return the samples at which a flow was first seen to resend, by their number.

        Retransmissions within the next round-trip time belong to the same loss.
        """
        apart = self._samples_per_rtt
        found: list[int] = []
        last = -apart - 1
        resent = 0
        for at_ns, samples in sorted(self._sent_by_time(number).items()):
            sample = round(at_ns / SAMPLE_NS)
            total = sum(one.resent_packets for one in samples)
            if total > resent:
                if sample - last > apart:
                    found.append(sample)
                last = sample
            resent = total
        return found

    def _sent_by_time(self, number: int) -> dict[int, list[TcpSample]]:
        by_time: dict[int, list[TcpSample]] = {}
        for (port, _), found in self.sent.items():
            if port == port_of(number):
                for at_ns, sample in found:
                    if at_ns <= self.end_ns:
                        by_time.setdefault(at_ns, []).append(sample)
        return by_time

    @property
    def _samples_per_rtt(self) -> int:
        return max(1, self.scenario.rtt_ns // SAMPLE_NS)

    def losing_together(self) -> dict[str, Any]:
        """Return how many flows lose within one round-trip time of each other.

        `losses` counts the losses of all flows, `most_percent` is the largest part of the flows
        that lose together, `mean_percent` the mean over all losses. None without a loss.
        """
        by_flow = [self.losses(number) for number in range(len(self.scenario.flows))]
        within = self._samples_per_rtt
        together = [
            sum(any(abs(sample - other) <= within for other in others) for others in by_flow)
            for samples in by_flow
            for sample in samples
        ]
        shares = [100 * count / len(by_flow) for count in together]
        return {
            "losses": len(shares),
            "most_percent": round(max(shares), 2) if shares else None,
            "mean_percent": round(statistics.fmean(shares), 2) if shares else None,
        }

    def estimate_errors(self) -> dict[str, float | None]:
        """Return how far the switch's estimates are off the kernel's, as medians in percent."""
        return {
            "rtt_error_percent": _median_error([rtt for rtt, _ in self.estimates]),
            "in_flight_error_percent": _median_error([there for _, there in self.estimates]),
        }

    def series(self, seconds: int) -> dict[str, Any]:
        """Return the run over time: estimates, the first connection, the first flows' bytes."""
        first = next(iter(self.sent.values()), [])
        return {
            "estimates": [[round(rtt, 4), round(there, 4)] for rtt, there in self.estimates],
            "sender": {
                "at_ms": [at_ns // 1_000_000 for at_ns, _ in first],
                "cwnd_packets": [sample.cwnd_packets for _, sample in first],
                "rtt_us": [sample.rtt_us for _, sample in first],
            },
            "flows": [
                self._delivered(number, seconds)
                for number in range(min(len(self.scenario.flows), FLOWS_IN_SERIES))
            ],
        }

    def _delivered(self, number: int, seconds: int) -> list[int]:
        """Return the payload of a flow that had arrived in order, every SAMPLE_NS from 0 on."""
        flow, port = self.scenario.flows[number], port_of(number)
        times = range(0, seconds * NS_PER_S, SAMPLE_NS)
        totals = [0] * len(times)
        for samples in (found for key, found in self.received.items() if key[0] == port):
            most, left = 0, iter([*samples, None])
            sample = next(left)
            for step, at_ns in enumerate(times):
                while sample is not None and sample[0] <= at_ns + SAMPLE_LATE_NS:
                    most = max(most, sample[1].bytes_received)
                    sample = next(left)
                totals[step] += most
        done_ns = self._done_ns(number) if flow.payload_bytes else None
        if done_ns is not None:
            first = -(-(done_ns - SAMPLE_LATE_NS) // SAMPLE_NS)
            totals[first:] = [flow.payload_bytes] * len(totals[first:])
        return totals


def _median_error(ratios: list[float]) -> float | None:
    """Return the median distance of ratios from 1, in percent; None without any."""
    if not ratios:
        return None
    return round(100 * statistics.median(abs(ratio - 1) for ratio in ratios), 2)

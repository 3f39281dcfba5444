"""The service and its switches as Prometheus metrics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pacer_controller import __version__
from pacer_controller.connections import Connections
from pacer_controller.problems import Problem
from pacer_controller.records import KINDS
from pacer_controller.service import Service
from pacer_controller.service.managed import Samples

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = ("connected", "pending", "backup")
_SWITCH_COUNTERS = {
    "connects": "Connections made to the switch.",
    "disconnects": "Connections to the switch that ended.",
    "reconciles": "Times the switch was read back and compared with what is wanted.",
    "reconcile_writes": "Writes that brought the switch back to what is wanted.",
    "drift_entries": "Entries found changed by somebody else.",
    "refused_writes": "Writes that the switch refused.",
}
_CLASS_COUNTERS = {
    "accepted": "of the class, accepted",
    "limit_dropped": "dropped because the class's queue was full",
    "red_dropped": "dropped by a meter",
    "ce_marked": "marked CE because the class's queue was long",
}
_CLASS_GAUGES = {
    "rate_bps": ("target_bits_per_second", "Target rate of the class."),
    "backlog_bytes": ("backlog_bytes", "Bytes that wait in the class's queues."),
    "gap_tokens_bytes": ("gap_tokens_bytes", "Gap the class still owes, in bytes of the line."),
}


_PORT_HISTOGRAMS = {
    "lateness": ("lateness", "How late transmissions started against their schedule."),
    "gaps": ("gap", "How long the line was idle before each frame; 0: back to back."),
}


QUEUES_MOST = 512
"""Most egress queues of a switch that have metrics: a queue has up to 40 time series."""

_QUEUE_GAUGES = {
    "backlog_packets": "Packets that wait in the queue.",
    "backlog_bytes": "Bytes that wait in the queue, with FCS.",
}
_QUEUE_COUNTERS = {
    "tx_packets": "Packets that left the queue for the line.",
    "tx_bytes": "Bytes that left the queue for the line, with FCS.",
    "marked_packets": "Packets that active queue management marked CE.",
}
_SOJOURN_BOUNDS = (0, *range(10, 34))
"""Buckets whose ends are bounds of the sojourn's: no wait, and 1 us to 8.6 s in powers of two."""

_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


def _filled(family: _Family, samples: Iterable[tuple[list[str], float | None]]) -> _Family:
    """Return a metric after adding values by labels; None where there is none."""
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family


class _Static(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        """Yield the collected metrics."""
        yield from self._metrics


class Exporter:
    """Makes the text of `/metrics`.

    Args:
        service: the service whose metrics these are.
        connections: the connections of its clients.

    """

    def __init__(self, service: Service, connections: Connections) -> None:
        self._service = service
        self._connections = connections
        self._samples: dict[str, Samples] = {}

    async def text(self) -> bytes:
        """Read the switches and return the metrics in Prometheus' text format."""
        readings: dict[str, dict[str, Any]] = {}
        unreadable = []
        for name in sorted(self._service.switches):
            try:
                samples = self._samples.setdefault(name, Samples())
                readings[name] = await self._service.statistics(name, samples)
            except Problem:
                unreadable.append(name)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Static(self._metrics(readings, unreadable)))
        return generate_latest(registry)

    def _metrics(
        self, readings: Mapping[str, dict[str, Any]], unreadable: list[str]
    ) -> Iterator[Metric]:
        yield from self._service_metrics()
        yield from self._switch_metrics(unreadable)
        yield from _class_metrics(readings)
        yield from _flow_metrics(readings)
        yield from _port_metrics(readings)
        yield from _queue_metrics(readings)

    def _service_metrics(self) -> Iterator[Metric]:
        yield from self._store_metrics()
        info = GaugeMetricFamily("pacer_info", "Version of the controller.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        events = CounterMetricFamily(
            "pacer_events", "Events since the controller started.", labels=["kind"]
        )
        counts = self._service.events.counts.items()
        yield _filled(events, (([kind], count) for kind, count in counts))
        refusals = CounterMetricFamily(
            "pacer_refusals", "What clients were refused, by cause.", labels=["cause"]
        )
        counts = self._service.refusals.counts.items()
        yield _filled(refusals, (([cause], count) for cause, count in counts))
        connections = GaugeMetricFamily(
            "pacer_connections", "Connections of clients.", labels=["standing"]
        )
        connections.add_metric(["user"], self._connections.users)
        connections.add_metric(["stranger"], self._connections.strangers)
        yield connections

    def _store_metrics(self) -> Iterator[Metric]:
        said = self._service.store.describe()
        text = "Grows when fencing numbers must be higher than a switch remembers."
        yield GaugeMetricFamily("pacer_store_epoch", text, value=float(said["epoch"]))
        yield CounterMetricFamily(
            "pacer_events_dropped",
            "Events that the store did not take.",
            value=self._service.events.dropped,
        )
        if said["driven"] is not None:
            held = sum(one == said["controller"] for one in said["driven"].values())
            text = "Switches that this controller drives."
            yield GaugeMetricFamily("pacer_switches_driven", text, value=held)
            text = "Controllers that share the store."
            yield GaugeMetricFamily("pacer_controllers", text, value=len(said["controllers"]))

    def _switch_metrics(self, unreadable: list[str]) -> Iterator[Metric]:
        switches = self._service.switches
        state = GaugeMetricFamily(
            "pacer_switch_state", "1 for the state the switch is in.", labels=["switch", "state"]
        )
        failed = GaugeMetricFamily(
            "pacer_switch_failed_resources", "Resources the switch refuses.", labels=["switch"]
        )
        readable = GaugeMetricFamily(
            "pacer_switch_readable", "Whether the switch's counters were read.", labels=["switch"]
        )
        wanted = GaugeMetricFamily(
            "pacer_switch_resources", "Resources in the desired state.", labels=["switch", "kind"]
        )
        for name, found in switches.items():
            for one in _STATES:
                state.add_metric([name, one], float(found.state == one))
            failed.add_metric([name], len(found.failed))
            readable.add_metric([name], float(name not in unreadable))
            for kind in KINDS:
                wanted.add_metric([name, kind], len(found.stored(kind)))
        yield from (state, failed, readable, wanted)
        for counter, text in _SWITCH_COUNTERS.items():
            family = CounterMetricFamily(f"pacer_switch_{counter}", text, labels=["switch"])
            counters = ((name, found.counters) for name, found in switches.items())
            yield _filled(family, (([name], getattr(of, counter)) for name, of in counters))


def _class_metrics(readings: Mapping[str, dict[str, Any]]) -> Iterator[Metric]:
    labels = ["switch", "class"]
    rows = [
        ([switch, _class_label(one)], one)
        for switch, said in readings.items()
        for one in said["classes"]
    ]
    for counter, text in _CLASS_COUNTERS.items():
        for unit in ("packets", "bytes"):
            name = f"pacer_class_{counter}_{unit}"
            family = CounterMetricFamily(name, f"{unit.title()} {text}.", labels=labels)
            yield _filled(family, ((at, one[counter] and one[counter][unit]) for at, one in rows))
    for field, (name, text) in _CLASS_GAUGES.items():
        gauge = GaugeMetricFamily(f"pacer_class_{name}", text, labels=labels)
        yield _filled(gauge, ((at, one[field]) for at, one in rows))


def _class_label(one: Mapping[str, Any]) -> str:
    """Return the class's name; `flow:NAME` for a flow's own; `-` for unclassified packets."""
    if one["name"] is not None:
        return str(one["name"])
    return f"flow:{one['flow']}" if one["flow"] is not None else "-"


def _flow_metrics(readings: Mapping[str, dict[str, Any]]) -> Iterator[Metric]:
    rows = [
        ([switch, one["name"]], one["matched"])
        for switch, said in readings.items()
        for one in said["flows"]
    ]
    for unit in ("packets", "bytes"):
        text = f"{unit.title()} that the flow matched."
        family = CounterMetricFamily(f"pacer_flow_matched_{unit}", text, labels=["switch", "flow"])
        yield _filled(family, ((at, matched and matched[unit]) for at, matched in rows))


def _port_metrics(readings: Mapping[str, dict[str, Any]]) -> Iterator[Metric]:
    labels = ["switch", "port"]
    rows = [
        ([switch, str(port["port"])], port)
        for switch, said in readings.items()
        for port in said["ports"]
    ]
    line = GaugeMetricFamily("pacer_port_line_bits_per_second", "Line rate.", labels=labels)
    up = GaugeMetricFamily("pacer_port_up", "Whether the port can carry frames.", labels=labels)
    yield _filled(line, ((at, port["line_rate_bps"]) for at, port in rows))
    yield _filled(up, ((at, port["up"]) for at, port in rows))
    measured = [(at, p["statistics"]) for at, p in rows if p["statistics"] is not None]
    for counter in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes"):
        family = CounterMetricFamily(f"pacer_port_{counter}", f"{counter}.", labels=labels)
        yield _filled(family, ((at, statistics[counter]) for at, statistics in measured))
    drops = CounterMetricFamily(
        "pacer_port_dropped_packets", "Packets lost at the port.", labels=[*labels, "cause"]
    )
    histograms = {
        member: HistogramMetricFamily(f"pacer_port_{name}_seconds", text, labels=labels)
        for member, (name, text) in _PORT_HISTOGRAMS.items()
    }
    for at, statistics in measured:
        for cause, count in statistics.get("drops", {}).items():
            drops.add_metric([*at, cause], count)
        for member, histogram in histograms.items():
            buckets = statistics.get(member, {}).get("buckets", [])
            if buckets:
                histogram.add_metric(at, *_histogram(buckets, range(len(buckets))))
    yield from (drops, *histograms.values())


def _queue_metrics(readings: Mapping[str, dict[str, Any]]) -> Iterator[Metric]:
    labels = ["switch", "port", "queue"]
    left_out = GaugeMetricFamily(
        "pacer_switch_queues_left_out",
        f"Egress queues without metrics: those beyond {QUEUES_MOST} of a switch.",
        labels=["switch"],
    )
    rows: list[tuple[list[str], Mapping[str, Any]]] = []
    for switch, said in readings.items():
        found = [
            ([switch, str(port["port"]), str(queue["queue"])], queue)
            for port in said["ports"]
            for queue in (port["statistics"] or {}).get("queues") or ()
        ]
        left_out.add_metric([switch], len(found[QUEUES_MOST:]))
        rows += found[:QUEUES_MOST]
    yield left_out
    for field, text in _QUEUE_GAUGES.items():
        gauge = GaugeMetricFamily(f"pacer_queue_{field}", text, labels=labels)
        yield _filled(gauge, ((at, queue[field]) for at, queue in rows))
    for field, text in _QUEUE_COUNTERS.items():
        counter = CounterMetricFamily(f"pacer_queue_{field}", text, labels=labels)
        yield _filled(counter, ((at, queue[field]) for at, queue in rows))
    drops = CounterMetricFamily(
        "pacer_queue_dropped_packets", "Packets lost at the queue.", labels=[*labels, "cause"]
    )
    sojourn = HistogramMetricFamily(
        "pacer_queue_sojourn_seconds", "Times that packets waited in the queue.", labels=labels
    )
    for at, queue in rows:
        for cause, count in queue["drops"].items():
            drops.add_metric([*at, cause], count)
        if buckets := queue["sojourn"]["buckets"]:
            sojourn.add_metric(at, *_histogram(buckets, _SOJOURN_BOUNDS))
    yield from (drops, sojourn)


def _histogram(
    buckets: Sequence[int], bounds: Iterable[int]
) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative buckets in seconds, and a lower bound of the sum, which is not kept.

    Args:
        buckets: counts; bucket 0 of the time 0, bucket i of 2^(i-1) ns to below 2^i ns.
        bounds: the buckets whose ends are bounds, in rising order.

    """
    below = list(accumulate(buckets))
    cumulative: list[tuple[str, float]] = [
        (repr(0.0 if number == 0 else 2**number / 1e9), below[min(number, len(below) - 1)])
        for number in bounds
    ]
    cumulative.append(("+Inf", below[-1]))
    least_ns = sum(count * 2 ** (number - 1) for number, count in enumerate(buckets) if number)
    return cumulative, least_ns / 1e9

"""The figures of a run: their titles, and how they are computed from its result."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet.experiments.scenario import UNPACED
from pacer_mininet.published import KIB
from pacer_mininet.traffic import WINDOW_NS, ideal_goodput_bps

Result = dict[str, Any]

LOSS_MS, QUEUE_MS = 500, 1500
"""Times after a fall of the bottleneck's rate: a rate that follows it loses nothing later than the
one, and its queue fits into the FIFO from the other on."""


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    Attributes:
        title: the title of its column, with the unit.
        of: computes it from a result; None where the run does not have it.
        digits: behind the point.
        of_first: whether only the first seed's run has it.

    """

    title: str
    of: Callable[[Result], float | None]
    digits: int = 1
    of_first: bool = False


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 where all are equal, 1/n where one gets everything."""
    squares = sum(value * value for value in values)
    total = sum(values)
    return float(total * total / (len(values) * squares)) if squares else 1.0


Chooses = Callable[[dict[str, Any]], bool]
"""Selects the flows that a figure is about."""


def _any(_flow: dict[str, Any]) -> bool:
    return True


def _unpaced(flow: dict[str, Any]) -> bool:
    return bool(flow["shaper"] == UNPACED.name)


def _spaced(flow: dict[str, Any]) -> bool:
    return not _unpaced(flow)


def _transfers(result: Result) -> bool:
    """Return whether the flows are transfers, which end after a number of bytes."""
    return all(flow["transfer_bytes"] for flow in result["flows"])


def _steady(result: Result, chosen: Chooses = _any) -> list[float]:
    """Return each flow's goodput in the second half; nothing for transfers, which may be over."""
    if _transfers(result):
        return []
    flows = filter(chosen, result["flows"])
    return [float(flow["goodput_second_half_bps"]) for flow in flows]


def _if_any(values: list[float], make: Callable[[list[float]], float]) -> float | None:
    return make(values) if values else None


def _sum_mbps(values: list[float]) -> float:
    return sum(values) / 1e6


def _mean_mbps(values: list[float]) -> float:
    return _sum_mbps(values) / len(values)


def _rtt(result: Result, key: str, choose: Callable[[list[float]], float]) -> float | None:
    return _if_any([flow["rtt_ms"][key] for flow in result["flows"] if flow["rtt_ms"]], choose)


def _completion(result: Result, chosen: Chooses = _any) -> float | None:
    """Return when the last flow ended, in s; None where one did not end."""
    times = [flow["completion_ms"] for flow in filter(chosen, result["flows"])]
    return None if not times or None in times else max(times) / 1e3


def _completion_mean(result: Result) -> float | None:
    """Return the mean time of a transfer, in s; None where one did not end."""
    times = [flow["completion_ms"] for flow in result["flows"]]
    return None if None in times else statistics.fmean(times) / 1e3


def _rtt_steady(result: Result) -> float | None:
    """Return the first connection's longest smoothed RTT in the second half, in ms."""
    sender = result["series"]["sender"]
    samples = list(zip(sender["at_ms"], sender["rtt_us"], strict=True))
    late = [rtt_us for at_ms, rtt_us in samples if at_ms >= samples[-1][0] / 2]
    return max(late) / 1e3 if late else None


def _window_mean(result: Result) -> float | None:
    """Return the mean of the first connection's congestion window, in packets."""
    return _if_any(result["series"]["sender"]["cwnd_packets"], statistics.fmean)


def _speeds(result: Result) -> list[float]:
    """Return each transfer's bytes per ms until it ended; 0 for one that did not."""
    if not _transfers(result):
        return []
    done = ((flow["payload_bytes"], flow["completion_ms"]) for flow in result["flows"])
    return [payload / ms if ms else 0.0 for payload, ms in done]


def _apart(result: Result) -> float | None:
    """Return how much sooner the first transfer ended than the last, in % of that one's time."""
    times = [flow["completion_ms"] for flow in result["flows"]]
    if not _transfers(result) or None in times:
        return None
    return float(100 * (max(times) - min(times)) / max(times))


def _count_done(speeds: list[float]) -> float:
    return sum(speed > 0 for speed in speeds)


def _smallest_share(values: list[float]) -> float:
    return 100.0 * min(values) * len(values) / max(1.0, sum(values))


def _largest_share(values: list[float]) -> float:
    return 100.0 * max(values) * len(values) / max(1.0, sum(values))


def _edge_late_ms(result: Result) -> float | None:
    """Return the greatest lateness of a packet at an edge switch."""
    late = result["lateness_max_ns"]
    edges = [ns for name, ns in late.items() if name.startswith("edge")]
    return max(edges) / 1e6 if edges and None not in edges else None


def _edge_stalls(result: Result) -> float | None:
    """Return how often the machine stalled the edge switches; in the lab it never does."""
    edges = [stalls for name, stalls in result["stalls"].items() if name.startswith("edge")]
    return sum(stalls["count"] for stalls in edges) if None not in edges else None


def _bin(which: str) -> Callable[[Result], float | None]:
    """Make the figure of bins at the bottleneck's entrance, in Mbit/s; None without bins."""
    return lambda result: (bps := result["wan"][f"bin_{which}_bps"]) and bps / 1e6


def _near(result: Result, key: str) -> Any:
    """Return a figure of the measuring switch at the bottleneck's entrance."""
    return result["wan"][key]


def _far(result: Result, key: str) -> Any:
    """Return a figure of the measuring switch behind the bottleneck; 0 where there is none.

    There is none of dynamic or previous-window burstiness then either.
    """
    if "far" in result:
        return result["far"][key]
    return None if key.startswith(("dynamic", "previous")) else 0.0


def _first_loss_s(result: Result) -> float | None:
    """Return until when the first packet was lost, in s; None where none was."""
    drops = result["series"]["bottleneck_drops"]
    times = zip(drops["at_ms"], drops["packets"], strict=True)
    return next((at_ms / 1e3 for at_ms, packets in times if packets), None)


def _soon_after_fall(result: Result, from_ms: float, to_ms: float, within_ms: int) -> bool:
    """Return whether the bottleneck's rate fell less than `within_ms` before a part of a time."""
    return any(from_ms < at_ms + within_ms and at_ms < to_ms for at_ms in result["falls_ms"])


def _lost_late(result: Result) -> float | None:
    """Return the packets lost later than LOSS_MS after a fall, and before; None without a fall."""
    drops = result["series"]["bottleneck_drops"]
    counted = [(0, 0), *zip(drops["at_ms"], drops["packets"], strict=True)]
    late = [
        packets - before
        for (from_ms, before), (to_ms, packets) in itertools.pairwise(counted)
        if not _soon_after_fall(result, from_ms, to_ms, LOSS_MS)
    ]
    return float(sum(late)) if result["falls_ms"] else None


def _queue_late(result: Result) -> float | None:
    """Return the longest queue later than QUEUE_MS after a fall, and before; None without one."""
    step_ms = WINDOW_NS // 1_000_000
    queues = enumerate(result["series"]["window_vb_max_bytes"])
    late = [
        queue
        for number, queue in queues
        if not _soon_after_fall(result, number * step_ms, (number + 1) * step_ms, QUEUE_MS)
    ]
    return float(max(late, default=0)) if result["falls_ms"] else None


def _queue(key: str, unit: float = 1.0) -> Callable[[Result], float | None]:
    """Make a figure of the queue under test."""

    def value(result: Result) -> float | None:
        found = result["queueing"][key]
        return None if found is None else found / unit

    return value


PLACES = (("first", 0), ("last", -1))
"""Names of two flows of a queue under test, and their places."""


def _of_flow(flow: int, key: str, unit: float) -> Callable[[Result], float | None]:
    """Make a figure of a flow in the queue under test."""

    def value(result: Result) -> float | None:
        found = result["queueing"]["flows"][flow][key]
        return None if found is None else found / unit

    return value


def _rate_ratio(result: Result) -> float | None:
    """Return the first flow's rate behind the queue under test over the last flow's."""
    first, last = (result["queueing"]["flows"][flow]["rate_bps"] for _, flow in PLACES)
    return float(first / last) if last else None


def _loss_share(result: Result) -> float:
    lost = result["bottleneck_drops"]
    return float(100 * lost / max(1, result["wan"]["packets_1500"]))


def _of_side(prefix: str, side: str, of: Callable[[Result, str], Any]) -> dict[str, "Metric"]:
    """Return GtrcNET-1's figures of one side of the bottleneck."""

    def scaled(key: str, unit: float) -> Callable[[Result], float | None]:
        def value(result: Result) -> float | None:
            found = of(result, key)
            return None if found is None else found / unit

        return value

    queue, dynamic = "max(Q)", "max(Q) at its own rate,"
    previous = "max(Q) at the rate of the window before,"
    return {
        f"{prefix}_abw_mean": Metric(f"{side}: ABW mean, Mbit/s", scaled("abw_mean_bps", 1e6)),
        f"{prefix}_abw_max": Metric(f"{side}: ABW max", scaled("abw_max_bps", 1e6)),
        **{
            f"{prefix}_{short}_{which}": Metric(
                f"{side}: {title} {which}, KB", scaled(f"{key}_{which}_bytes", KIB), 2
            )
            for short, title, key in (
                ("queue", queue, "queue"),
                ("dynamic", dynamic, "dynamic_queue"),
                ("previous", previous, "previous_queue"),
            )
            for which in ("mean", "max")
        },
    }


METRICS: dict[str, Metric] = {
    "goodput": Metric(
        "goodput, Mbit/s", lambda r: None if _transfers(r) else r["goodput_bps"] / 1e6
    ),
    "steady": Metric("2nd half, Mbit/s", lambda r: _if_any(_steady(r), _sum_mbps)),
    "steady_paced": Metric(
        "2nd half, mean of paced flows, Mbit/s",
        lambda r: _if_any(_steady(r, _spaced), _mean_mbps),
        2,
    ),
    "steady_unpaced": Metric(
        "mean of unpaced flows",
        lambda r: _if_any(_steady(r, _unpaced), _mean_mbps),
        2,
    ),
    "lost": Metric("lost at the bottleneck", lambda r: r["bottleneck_drops"], 0),
    "lost_late": Metric("later than 0.5 s after the line fell", _lost_late, 0),
    "first_loss": Metric("first one lost by, s", _first_loss_s),
    "edge_lost": Metric("lost at the edge", lambda r: r["edge_drops"], 0),
    "resent": Metric("resent", lambda r: r["retransmits"], 0),
    "queue_max": Metric("VB queue max, bytes", lambda r: r["wan"]["queue_max_bytes"], 0),
    "queue_late": Metric("later than 1.5 s after the line fell, bytes", _queue_late, 0),
    "edge_stalls": Metric("stalls of the edge", _edge_stalls, 0),
    "edge_late": Metric("edge late, ms at most", _edge_late_ms, 2),
    "wire_bytes": Metric("bytes at the bottleneck", lambda r: r["wan"]["bytes"], 0),
    "bin_max": Metric("500 us bin max, Mbit/s", _bin("max"), of_first=True),
    "bin_p99": Metric("500 us bin p99, Mbit/s", _bin("p99"), of_first=True),
    "deviation": Metric(
        "deviation / mean of 100 ms windows, 2nd half", lambda r: r["wan"]["deviation"], 3
    ),
    "deviation_whole": Metric(
        "deviation / mean of 100 ms windows, whole run", lambda r: r["wan"]["deviation_whole"], 3
    ),
    "share": Metric(
        "smallest share / fair share, %", lambda r: _if_any(_steady(r), _smallest_share)
    ),
    "largest_share": Metric(
        "largest share / fair share, %", lambda r: _if_any(_steady(r), _largest_share)
    ),
    "jain": Metric("Jain's index", lambda r: _if_any(_steady(r), jain), 4),
    "jain_paced": Metric(
        "Jain's index of paced flows", lambda r: _if_any(_steady(r, _spaced), jain), 4
    ),
    "completion": Metric("last one done, s", _completion, 2),
    "completion_mean": Metric("mean time of a transfer, s", _completion_mean, 2),
    "completion_paced": Metric("last paced flow done, s", lambda r: _completion(r, _spaced), 2),
    "apart": Metric("first done before the last, %", _apart, 2),
    "done": Metric("done in time", lambda r: _if_any(_speeds(r), _count_done), 0),
    "jain_done": Metric("Jain's index of their speeds", lambda r: _if_any(_speeds(r), jain), 4),
    "rtt_min": Metric("RTT min, ms", lambda r: _rtt(r, "min", min)),
    "rtt_mean": Metric("RTT mean, ms", lambda r: _rtt(r, "mean", statistics.fmean)),
    "rtt_max": Metric("RTT max, ms", lambda r: _rtt(r, "max", max)),
    "rtt_steady": Metric("RTT max of the 2nd half, ms", _rtt_steady),
    "rtt_error": Metric(
        "switch's RTT off the kernel's, median %", lambda r: r["estimates"]["rtt_error_percent"]
    ),
    "in_flight_error": Metric(
        "in flight, median %", lambda r: r["estimates"]["in_flight_error_percent"]
    ),
    "used": Metric(
        "% of what is free",
        lambda r: 100 * r["goodput_bps"] / ideal_goodput_bps(r["free_bps"]),
    ),
    "losses": Metric("losses of all flows", lambda r: r["losing_together"]["losses"], 0),
    "together": Metric(
        "flows that lose within one RTT, % (mean over losses)",
        lambda r: r["losing_together"]["mean_percent"],
    ),
    "together_most": Metric(
        "flows that lose within one RTT, % at most", lambda r: r["losing_together"]["most_percent"]
    ),
    **_of_side("near", "sender", _near),
    **_of_side("far", "receiver", _far),
    "sojourn_median": Metric(
        "sojourn, median of the 2nd half, ms", _queue("wait_median_us", 1e3), 3
    ),
    "sojourn_p99": Metric("sojourn, p99 of the 2nd half, ms", _queue("wait_p99_us", 1e3), 3),
    **{
        f"{name}_sojourn_{short}": Metric(
            f"{name} flow: sojourn, {short}, ms", _of_flow(flow, f"wait_{short}_us", 1e3), 3
        )
        for name, flow in PLACES
        for short in ("median", "p99")
    },
    **{
        f"{name}_sojourn_max": Metric(
            f"{name} flow: longest sojourn, ms", _of_flow(flow, "wait_max_us", 1e3), 3
        )
        for name, flow in PLACES
    },
    **{
        f"{name}_rate": Metric(
            f"{name} flow: rate behind the queue, Mbit/s", _of_flow(flow, "rate_bps", 1e6), 2
        )
        for name, flow in PLACES
    },
    "rate_ratio": Metric("first flow's rate / last flow's", _rate_ratio, 2),
    "sojourn_max": Metric("longest sojourn, ms", _queue("wait_max_us", 1e3), 3),
    "queue_drops": Metric("dropped by the queue", _queue("drops"), 0),
    "queue_marks": Metric("marked CE", _queue("marks"), 0),
    "ce_marks": Metric("marked CE on the way", _queue("ce_marks"), 0),
    "loss_share": Metric("lost, %", _loss_share, 2),
    "window_mean": Metric("congestion window, mean, packets", _window_mean),
}


def shown(name: str, value: dict[str, float] | None, *, spread: bool = True) -> str:
    """Return a value as in the tables: the median, and the spread where there is one."""
    if value is None:
        return "-"
    digits = METRICS[name].digits
    text = f"{value['median']:,.{digits}f}"
    if spread and value["max"] > value["min"]:
        text += f" ({value['min']:,.{digits}f} to {value['max']:,.{digits}f})"
    return text


def medians_at_shared_seeds(of_cells: Sequence[Mapping[int, float]]) -> list[float]:
    """Return the median of each cell's figures, given by seed, over the seeds that all cells have.

    Where chance decides, the same seed loses the same packets on the wire. Medians over different
    seeds differ by more than the effect of a shaper. Cells that share no seed, because runs are
    missing, have the medians over their own.
    """
    shared = set.intersection(*map(set, of_cells)) if of_cells else set()
    return [
        statistics.median([value for seed, value in cell.items() if seed in shared or not shared])
        for cell in of_cells
    ]

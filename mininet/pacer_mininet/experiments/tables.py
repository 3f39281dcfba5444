"""An experiment's results: medians and spreads by cell, beside the published, and what they say."""

import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet.experiments import claims
from pacer_mininet.experiments.cache import Cache
from pacer_mininet.experiments.experiment import Cell, Experiment
from pacer_mininet.experiments.scenario import UNPACED
from pacer_mininet.experiments.shaping import missing_of
from pacer_mininet.traffic import ideal_goodput_bps

Result = dict[str, Any]
KIB = 1024


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    Attributes:
        title: of its column, with the unit.
        of: computes it; None where the run has none.
        digits: behind the point.
        of_first: whether the first run alone has it.

    """

    title: str
    of: Callable[[Result], float | None]
    digits: int = 1
    of_first: bool = False


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 where all are equal, 1/n where one has all."""
    squares = sum(value * value for value in values)
    total = sum(values)
    return float(total * total / (len(values) * squares)) if squares else 1.0


Chooses = Callable[[dict[str, Any]], bool]
"""Which of a run's flows a figure is of."""


def _any(_flow: dict[str, Any]) -> bool:
    return True


def _unpaced(flow: dict[str, Any]) -> bool:
    return bool(flow["shaper"] == UNPACED.name)


def _spaced(flow: dict[str, Any]) -> bool:
    return not _unpaced(flow)


def _transfers(result: Result) -> bool:
    """Return whether the flows end when they have sent what they were to."""
    return all(flow["transfer_bytes"] for flow in result["flows"])


def _steady(result: Result, chosen: Chooses = _any) -> list[float]:
    """Return each flow's goodput in the second half; of transfers, which may be over, nothing."""
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
    values = [flow["rtt_ms"][key] for flow in result["flows"] if flow["rtt_ms"]]
    return choose(values) if values else None


def _completion(result: Result, chosen: Chooses = _any) -> float | None:
    """Return the last flow's completion in s; None where one did not come to its end."""
    times = [flow["completion_ms"] for flow in filter(chosen, result["flows"])]
    return None if not times or None in times else max(times) / 1e3


def _rtt_steady(result: Result) -> float | None:
    """Return the first connection's longest smoothed RTT in the second half, in ms."""
    sender = result["series"]["sender"]
    samples = list(zip(sender["at_ms"], sender["rtt_us"], strict=True))
    late = [rtt_us for at_ms, rtt_us in samples if at_ms >= samples[-1][0] / 2]
    return max(late) / 1e3 if late else None


def _speeds(result: Result) -> list[float]:
    """Return what each transfer came to per ms until it was done: 0 of those that were not."""
    if not _transfers(result):
        return []
    done = ((flow["payload_bytes"], flow["completion_ms"]) for flow in result["flows"])
    return [payload / ms if ms else 0.0 for payload, ms in done]


def _count_done(speeds: list[float]) -> float:
    return sum(speed > 0 for speed in speeds)


def _smallest_share(values: list[float]) -> float:
    return 100.0 * min(values) * len(values) / max(1.0, sum(values))


def _edge_late_ms(result: Result) -> float | None:
    """Return how late an edge switch was with a packet, at most."""
    late = result["lateness_max_ns"]
    return max((ns / 1e6 for name, ns in late.items() if name.startswith("edge")), default=None)


def _edge_stalls(result: Result) -> float | None:
    """Return how often the machine kept an edge switch from its work; in the lab it never does."""
    told = [stalls for name, stalls in result["stalls"].items() if name.startswith("edge")]
    return sum(stalls["count"] for stalls in told) if None not in told else None


def _far(result: Result, key: str) -> float | None:
    return float(result["far"][key]) if "far" in result else None


def _kib(count_bytes: float | None) -> float | None:
    return None if count_bytes is None else count_bytes / KIB


def _loss_share(result: Result) -> float:
    lost = result["bottleneck_drops"]
    return float(100 * lost / max(1, result["wan"]["packets_1500"]))


METRICS: dict[str, Metric] = {
    "goodput": Metric(
        "goodput, Mbit/s", lambda r: None if _transfers(r) else r["goodput_bps"] / 1e6
    ),
    "steady": Metric("2nd half, Mbit/s", lambda r: _if_any(_steady(r), _sum_mbps)),
    "steady_paced": Metric(
        "2nd half, mean of those spaced, Mbit/s",
        lambda r: _if_any(_steady(r, _spaced), _mean_mbps),
        2,
    ),
    "steady_unpaced": Metric(
        "mean of those that are not",
        lambda r: _if_any(_steady(r, _unpaced), _mean_mbps),
        2,
    ),
    "lost": Metric("lost at the bottleneck", lambda r: r["bottleneck_drops"], 0),
    "edge_lost": Metric("lost at the edge", lambda r: r["edge_drops"], 0),
    "resent": Metric("resent", lambda r: r["retransmits"], 0),
    "queue_max": Metric("VB queue max, bytes", lambda r: r["wan"]["queue_max_bytes"], 0),
    "edge_stalls": Metric("edge stalled by the machine, times", _edge_stalls, 0),
    "edge_late": Metric("edge late, ms at most", _edge_late_ms, 2),
    "wire_bytes": Metric("bytes at the bottleneck", lambda r: r["wan"]["bytes"], 0),
    "bin_max": Metric(
        "500 us bin max, Mbit/s",
        lambda r: r["wan"]["bin_max_bps"] and r["wan"]["bin_max_bps"] / 1e6,
        of_first=True,
    ),
    "bin_p99": Metric(
        "500 us bin p99, Mbit/s",
        lambda r: r["wan"]["bin_p99_bps"] and r["wan"]["bin_p99_bps"] / 1e6,
        of_first=True,
    ),
    "deviation": Metric("deviation / mean of 100 ms windows", lambda r: r["wan"]["deviation"], 3),
    "share": Metric(
        "smallest share / fair share, %", lambda r: _if_any(_steady(r), _smallest_share)
    ),
    "jain": Metric("Jain's index", lambda r: _if_any(_steady(r), jain), 4),
    "jain_paced": Metric(
        "Jain's index of those spaced", lambda r: _if_any(_steady(r, _spaced), jain), 4
    ),
    "completion": Metric("last one done, s", _completion, 2),
    "completion_paced": Metric(
        "last of those spaced done, s", lambda r: _completion(r, _spaced), 2
    ),
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
    "near_abw_mean": Metric("sender: ABW mean, Mbit/s", lambda r: r["wan"]["abw_mean_bps"] / 1e6),
    "near_abw_max": Metric("sender: ABW max", lambda r: r["wan"]["abw_max_bps"] / 1e6),
    "near_queue_mean": Metric(
        "sender: max(Q) mean, KB", lambda r: r["wan"]["queue_mean_bytes"] / KIB, 2
    ),
    "near_queue_max": Metric(
        "sender: max(Q) max, KB", lambda r: r["wan"]["queue_max_bytes"] / KIB, 2
    ),
    "near_dynamic_mean": Metric(
        "sender: max(Q) at its own rate, mean, KB",
        lambda r: _kib(r["wan"]["dynamic_queue_mean_bytes"]),
        2,
    ),
    "near_dynamic_max": Metric(
        "sender: max(Q) at its own rate, max, KB",
        lambda r: _kib(r["wan"]["dynamic_queue_max_bytes"]),
        2,
    ),
    "far_abw_mean": Metric(
        "receiver: ABW mean, Mbit/s", lambda r: (_far(r, "abw_mean_bps") or 0) / 1e6
    ),
    "far_abw_max": Metric("receiver: ABW max", lambda r: (_far(r, "abw_max_bps") or 0) / 1e6),
    "far_queue_mean": Metric(
        "receiver: max(Q) mean, KB", lambda r: (_far(r, "queue_mean_bytes") or 0) / KIB, 2
    ),
    "far_queue_max": Metric(
        "receiver: max(Q) max, KB", lambda r: (_far(r, "queue_max_bytes") or 0) / KIB, 2
    ),
    "far_dynamic_mean": Metric(
        "receiver: max(Q) at its own rate, mean, KB",
        lambda r: _kib(_far(r, "dynamic_queue_mean_bytes")),
        2,
    ),
    "far_dynamic_max": Metric(
        "receiver: max(Q) at its own rate, max, KB",
        lambda r: _kib(_far(r, "dynamic_queue_max_bytes")),
        2,
    ),
    "loss_share": Metric("lost, %", _loss_share, 2),
}

NOT_MADE = "not made yet"


def row_of(cell: Cell, metrics: Sequence[str], cache: Cache) -> dict[str, Any]:
    """Return what stands in a cell: values by metric with median and spread, or why there are none.

    Also the runs' scenario and their command lines, so that each can be made again.
    """
    scenarios = cell.runs()
    results = [found for found in map(cache.load, scenarios) if found is not None]
    skipped = missing_of(cell.scenario)
    if skipped is None and len(results) < len(scenarios):
        skipped = NOT_MADE
    refused = [result["skipped"] for result in results if "skipped" in result]
    if refused:
        skipped = str(refused[0])
    row: dict[str, Any] = {
        "row": cell.row,
        "column": cell.column,
        "extra": cell.extra,
        "skipped": skipped,
        "seeds": [scenario.seed for scenario in scenarios],
        "published": dict(cell.published),
        "scenario": cell.scenario.to_json(),
        "values": {},
    }
    if skipped is None:
        row |= {key: results[0][key] for key in ("mode", "kernel", "commands")}
        row["values"] = {name: _spread(name, results) for name in metrics}
    return row


def _spread(name: str, results: Sequence[Result]) -> dict[str, float] | None:
    metric = METRICS[name]
    having = results[:1] if metric.of_first else results
    values = [value for value in map(metric.of, having) if value is not None]
    if len(values) < len(having):
        return None
    shown = [round(float(value), metric.digits + 2) for value in values]
    return {"median": statistics.median(shown), "min": min(shown), "max": max(shown)}


def collect(experiment: Experiment, cache: Cache) -> dict[str, Any]:
    """Return an experiment's results as they go to its JSON file."""
    rows = [row_of(cell, experiment.metrics, cache) for cell in experiment.cells]
    return {
        "name": experiment.name,
        "title": experiment.title,
        "reproduces": list(experiment.reproduces),
        "source": experiment.source,
        "quick": experiment.quick,
        "metrics": {name: METRICS[name].title for name in experiment.metrics},
        "rows": rows,
        "sentences": sentences(experiment, rows),
        # Scaled-down runs are no measure of what is promised.
        "claims": [] if experiment.quick else claims.check(experiment.name, rows),
    }


def results_of(experiment: Experiment, cache: Cache) -> list[tuple[Cell, Result]]:
    """Return the cells that have results, each with its first and the median of their goodput."""
    found = []
    for cell in experiment.cells:
        results = [one for one in map(cache.load, cell.runs()) if one and "skipped" not in one]
        if results:
            goodput_bps = statistics.median(one["goodput_bps"] for one in results)
            found.append((cell, {**results[0], "goodput_median_bps": goodput_bps}))
    return found


def to_json(found: dict[str, Any]) -> str:
    """Return an experiment's results as its JSON file has them: equal results, equal bytes."""
    return json.dumps(found, indent=1) + "\n"


def shown(name: str, value: dict[str, float] | None, *, spread: bool = True) -> str:
    """Return a value as the tables have it: the median, and the spread where there is one."""
    if value is None:
        return "-"
    digits = METRICS[name].digits
    text = f"{value['median']:,.{digits}f}"
    if spread and value["max"] > value["min"]:
        text += f" ({value['min']:,.{digits}f} to {value['max']:,.{digits}f})"
    return text


def plain(found: dict[str, Any]) -> str:
    """Return a table as plain text: a column for each of its cells, a line for each metric.

    The published figure stands in brackets behind the measured one.
    """
    rows = found["rows"]
    lines = [["", *(row["column"] for row in rows)]]
    for name, title in found["metrics"].items():
        cells = []
        for row in rows:
            paper = row["published"].get(name)
            beside = "" if paper is None else f" [{paper:g}]"
            cells.append(shown(name, row["values"].get(name)) + beside)
        lines.append([title, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    ]
    return "\n".join([texts[0], "-" * len(texts[0]), *texts[1:]])


# ---- what the data say ---------------------------------------------------------------------


def sentences(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, in plain sentences, where the figures differ from the published ones, and why."""
    made = [row for row in rows if row["skipped"] is None]
    said = _skipped(rows)
    if not made:
        return [*said, *experiment.differs]
    if experiment.quick:
        said.append(
            "These runs are scaled down (a fifth of the rate, half the RTT, a tenth of the FIFO, a "
            "few seconds): they show that it works, not how it compares."
        )
    else:
        said += _beside_published(of_the_papers(experiment, made))
    said += _pacing(experiment, of_the_papers(experiment, made))
    said += _dynamic_beside_static(made)
    if not experiment.reproduces:
        said += _past_the_papers(experiment, made)
    first = made[0]
    clock = "in virtual time" if first["mode"] == "lab" else "in real time"
    said.append(f"Made {clock} on Linux {first['kernel']}.")
    return said + list(experiment.differs)


def _skipped(rows: Sequence[dict[str, Any]]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["skipped"] is not None:
            reasons.setdefault(row["skipped"], []).append(f"{row['row']} {row['column']}")
    return [
        f"No figures for {', '.join(cells[:6])}{' and more' if len(cells) > 6 else ''}: "
        f"{reason.rstrip('.')}."
        for reason, cells in reasons.items()
    ]


def of_the_papers(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that do not only stand by; all of an experiment whose cells all do."""
    all_stand_by = all(cell.extra for cell in experiment.cells)
    return [row for row in rows if all_stand_by or not row["extra"]]


def _beside_published(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on the figures that are furthest from the published, and on the losses."""
    said = []
    for name, metric in METRICS.items():
        ratios = [
            (row["values"][name]["median"] / row["published"][name], row)
            for row in rows
            if name != "lost" and row["published"].get(name) and row["values"].get(name)
        ]
        if not ratios:
            continue
        near = [ratio for ratio, _ in ratios if 0.9 <= ratio <= 1.1]
        said.append(
            f"{metric.title}: {len(near)} of {len(ratios)} figures are within 10 % of the "
            "published."
        )
        lowest, below = min(ratios, key=_first)
        highest, above = max(ratios, key=_first)
        for side, is_far, row in (
            ("below", lowest < 0.9, below),
            ("above", highest > 1.1, above),
        ):
            if is_far:
                said.append(
                    f"Furthest {side}: {row['row']}, {row['column']}, "
                    f"{shown(name, row['values'][name], spread=False)} here and "
                    f"{row['published'][name]:.{metric.digits}f} there."
                )
    lossless = [row for row in rows if row["published"].get("lost") == 0]
    kept = [row for row in lossless if row["values"].get("lost", {}).get("median") == 0]
    if lossless:
        said.append(
            f"Of {len(lossless)} cells published without a loss, {len(kept)} have none here."
        )
    return said


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]


def _pacing(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return how paced stands to unpaced and to the line, from the same rows."""
    if not {"steady", "lost", "edge_lost"} <= set(experiment.metrics):
        return []
    said = []
    by_row: dict[str, dict[str, dict[str, Any]]] = {}
    for row in (row for row in rows if row["values"]["steady"] is not None):
        by_row.setdefault(row["row"], {})[row["column"]] = row["values"]
    paced = [values["paced"] for values in by_row.values() if "paced" in values]
    if paced:
        ideal = {
            cell.row: ideal_goodput_bps(cell.scenario.rate_bps) / 1e6 for cell in experiment.cells
        }
        shares = [
            values["paced"]["steady"]["median"] / ideal[title]
            for title, values in by_row.items()
            if "paced" in values
        ]
        lost = sum(values["lost"]["median"] for values in paced)
        at_edge = sum(values["edge_lost"]["median"] for values in paced)
        rows_said = "the row" if len(paced) == 1 else f"all {len(paced)} rows"
        said.append(
            f"Paced: {lost:,.0f} packets lost at the bottleneck in {rows_said}, {at_edge:,.0f} at "
            f"the edge, and at least "
            f"{100 * min(shares):.1f} % of what the bottleneck can carry in the second half."
        )
    for other in dict.fromkeys(column for values in by_row.values() for column in values):
        both = [v for v in by_row.values() if "paced" in v and other in v]
        if both and other != "paced":
            pairs = [(v["paced"]["steady"]["median"], v[other]["steady"]["median"]) for v in both]
            better = sum(ours > theirs for ours, theirs in pairs)
            equal = sum(ours == theirs for ours, theirs in pairs)
            same = f", the same in {equal}" if equal else ""
            said.append(
                f"Against {other}, paced has the higher goodput in the second half in {better} of "
                f"{len(both)} rows{same}; {other} lost "
                f"{sum(v[other]['lost']['median'] for v in both):,.0f} packets there."
            )
    return said


PUBLISHED_AGAINST_BEST_GAP = {"2 ms one way": "3 % less", "10 ms one way": "21 % less"}
"""What dynamic spacing came to in the published sweep; at the other delays it was the best."""


def _dynamic_beside_static(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, delay by delay, how dynamic spacing stands to the best of the fixed gaps."""
    said = []
    for title in {row["row"]: None for row in rows}:
        here = {
            row["column"]: row["values"]["goodput"]["median"]
            for row in rows
            if row["row"] == title and row["values"].get("goodput")
        }
        static = {column: value for column, value in here.items() if column.startswith("IPG ")}
        if static and "dynamic" in here:
            best = max(static, key=lambda column: static[column])
            percent = 100 * (here["dynamic"] / static[best] - 1)
            than = "more" if percent >= 0 else "less"
            said.append(
                f"{title}: dynamic {here['dynamic']:.1f} Mbit/s, the best fixed gap ({best}) "
                f"{static[best]:.1f}: {abs(percent):.0f} % {than} "
                f"(published: {PUBLISHED_AGAINST_BEST_GAP.get(title, 'more')})."
            )
    return said


_BEST = {
    **dict.fromkeys(("lost", "edge_lost", "completion", "completion_paced"), min),
    **dict.fromkeys(("jain", "jain_paced", "jain_done"), max),
}
"""By metric, whether the smallest or the largest is what one wants."""


NEVER_S = 1e9
"""Later than any run goes on."""


def _past_the_papers(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return which way of spacing does best and worst by loss, fairness and completion time."""
    said = []
    titles = list(dict.fromkeys(row["row"] for row in rows))
    flows = {(cell.row, cell.column): len(cell.scenario.flows) for cell in experiment.cells}
    for title, name in itertools.product(titles, experiment.metrics):
        if name not in _BEST:
            continue
        known: list[tuple[float, str]] = []
        for row in rows:
            value, done = row["values"][name], row["values"].get("done")
            if row["row"] != title:
                continue
            if value is not None:
                text = shown(name, value, spread=False)
                known.append((value["median"], f"{row['column']} ({text})"))
            elif name.startswith("completion") and done is not None:
                # Worse than any time, the more of them the worse.
                of = flows[row["row"], row["column"]]
                text = f"{row['column']} ({done['median']:.0f} of {of} done)"
                known.append((NEVER_S - done["median"], text))
        if len({value for value, _ in known}) < 2:
            continue
        best = _BEST[name](known, key=_first)[0]
        worst = (max if _BEST[name] is min else min)(known, key=_first)[0]
        ends = (
            " and ".join(text for value, text in known if value == end) for end in (best, worst)
        )
        said.append("{}, {}: best {}, worst {}.".format(title, METRICS[name].title, *ends))
    return said

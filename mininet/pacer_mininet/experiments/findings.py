"""The findings from a table's figures, in plain sentences."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.metrics import METRICS, medians_at_shared_seeds, shown
from pacer_mininet.experiments.scenario import from_json
from pacer_mininet.published import KIB
from pacer_mininet.traffic import ideal_goodput_bps


def sentences(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return plain sentences on losses, on pacing beside the others, and on differences."""
    made = [row for row in rows if row["skipped"] is None]
    said = _skipped(rows)
    if not made:
        return [*said, *experiment.differs]
    reproducing = of_the_papers(experiment, made)
    if experiment.quick:
        said.append(
            "These runs are scaled down (a fifth of the rate, half the RTT, a tenth of the FIFO, a "
            "few seconds). They show that everything works, and do not compare with the papers."
        )
    else:
        said += _lossless(reproducing)
    said += _pacing(experiment, reproducing)
    said += dynamic_beside_static(made)
    if "windows" in experiment.plots:
        said += dynamic_by_seed(made)
    said += _of_other_seeds(made)
    if "queue_max" in experiment.metrics and "near_dynamic_max" in experiment.metrics:
        said += predicted(made)
    if "together" in experiment.metrics:
        said += losing_together(made)
    if "used" in experiment.metrics:
        said += following(made)
    if "gaps-spread" in experiment.plots:
        said += _of_all_seeds(made)
    if not experiment.reproduces:
        said += best_and_worst(experiment, made)
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
    """Return the rows that are not `extra`, or all rows if every cell is."""
    all_extra = all(cell.extra for cell in experiment.cells)
    return [row for row in rows if all_extra or not row["extra"]]


def _lossless(rows: Sequence[dict[str, Any]]) -> list[str]:
    lossless = [row for row in rows if row["published"].get("lost") == 0]
    kept = [row for row in lossless if row["values"].get("lost", {}).get("median") == 0]
    if not lossless:
        return []
    doubtful = sum("lost" in row["doubts"] for row in lossless)
    of_these = f" ({doubtful} of them inferred, not legible)" if doubtful else ""
    return [
        f"Of {len(lossless)} cells published without a loss{of_these}, {len(kept)} have none here."
    ]


def compared(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return, for each published figure but losses, how many are near and which are furthest off.

    Near is within 10 % of the published figure. Each item is a row of a table, by column title.
    """
    made = [row for row in rows if row["skipped"] is None]
    found = []
    for name, metric in METRICS.items():
        ratios = [
            (row["values"][name]["median"] / row["published"][name], row)
            for row in of_the_papers(experiment, made)
            if name != "lost" and row["published"].get(name) and row["values"].get(name)
        ]
        if experiment.quick or not ratios:
            continue
        near = sum(0.9 <= ratio <= 1.1 for ratio, _ in ratios)
        lowest, below = min(ratios, key=_first)
        highest, above = max(ratios, key=_first)
        found.append(
            {
                "figure": metric.title,
                "within 10 % of the published": f"{near} of {len(ratios)}",
                "furthest below": _far_off(name, below) if lowest < 0.9 else "-",
                "furthest above": _far_off(name, above) if highest > 1.1 else "-",
            }
        )
    return found


def _far_off(name: str, row: dict[str, Any]) -> str:
    here = shown(name, row["values"][name], spread=False)
    there = f"{row['published'][name]:.{METRICS[name].digits}f}"
    return f"{row['row']}, {row['column']}: {here} [{there}]"


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]


def _pacing(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences that compare paced with the others and with the bottleneck's limit."""
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


def losing_together(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return how many flows lose within one round-trip time of each other, by column."""
    said = []
    for column in dict.fromkeys(row["column"] for row in rows):
        here = [row["values"] for row in rows if row["column"] == column]
        shares = [values["together"]["median"] for values in here if values["together"]]
        lost = sum(values["lost"]["median"] for values in here)
        if not shares:
            said.append(f"{column}: no flow loses anything, however many there are.")
            continue
        said.append(
            f"{column}: when a flow loses, {min(shares):.0f} to {max(shares):.0f} % of all flows "
            f"lose within one round-trip time ({lost:,.0f} packets in {len(here)} runs, of which "
            f"{len(here) - len(shares)} lose nothing)."
        )
    return said


def following(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, for each row, how a rate that follows did beside the others."""
    said = []
    for title in dict.fromkeys(row["row"] for row in rows):
        here = {row["column"]: row["values"] for row in rows if row["row"] == title}
        if "following" not in here:
            continue
        others = [
            f"{column} {values['lost']['median']:,.0f} and {values['used']['median']:.0f} %"
            for column, values in here.items()
            if column != "following"
        ]
        own = here["following"]
        said.append(
            f"{title}: following loses {own['lost']['median']:,.0f} packets and uses "
            f"{own['used']['median']:.0f} % of what is free; {', '.join(others)}."
        )
    return said


def _of_all_seeds(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return each column's largest, mean and smallest goodput of all seeds."""
    return [
        "{}: maximum {max:.1f}, average {mean:.1f}, minimum {min:.1f} Mbit/s.".format(
            row["column"], **row["values"]["goodput"]
        )
        for row in rows
    ]


PUBLISHED_AGAINST_BEST_GAP = {
    "2 ms one way": "3 % less",
    "10 ms one way": "21 % less",
    "25 ms one way": "nothing said of 25 ms itself",
}
"""Dynamic spacing in the published sweep. It was the best at delays greater than 25 ms."""


ABOVE_25_MS_RTT_NS = 100_000_000
"""The first delay of the sweep above 25 ms one way is 50 ms: a round trip of 100 ms."""

FIXED_GAP = "IPG "
"""Prefix of the titles of the columns with fixed gaps."""

COMPARED_GAP = f"{FIXED_GAP}4096"
"""The fixed gap whose runs stand beside those of `pspd` and `dynamic`, seed by seed."""


def at_shared_seeds(rows: Sequence[dict[str, Any]], column: str, metric: str) -> dict[str, float]:
    """Return medians of a metric by column, each over the seeds of fixed gaps and of `column`."""
    known = {row["column"]: row for row in rows if row["values"].get(metric)}
    compared = [row for name, row in known.items() if name == column or name.startswith(FIXED_GAP)]
    if column not in known:
        return {}
    figures = [
        dict(zip(row["seeds"], row["values"][metric]["each"], strict=True)) for row in compared
    ]
    medians = medians_at_shared_seeds(figures)
    return {row["column"]: value for row, value in zip(compared, medians, strict=True)}


def dynamic_beside_static(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, for each delay, a sentence on dynamic spacing beside the best fixed gap."""
    said = []
    for title in {row["row"]: None for row in rows}:
        for column in ("PSPD", "dynamic"):
            here = at_shared_seeds([row for row in rows if row["row"] == title], column, "goodput")
            static = {name: value for name, value in here.items() if name.startswith(FIXED_GAP)}
            # A row with a single gap has no best one.
            if len(static) < 2 or column not in here:
                continue
            best = max(static, key=lambda name: static[name])
            percent = 100 * (here[column] / static[best] - 1)
            than = "more" if percent >= 0 else "less"
            said.append(
                f"{title}: {column} {here[column]:.1f} Mbit/s, the best fixed gap ({best}) "
                f"{static[best]:.1f}: {abs(percent):.0f} % {than} "
                f"(published: {PUBLISHED_AGAINST_BEST_GAP.get(title, 'more')})."
            )
    return said


def by_seed(row: dict[str, Any] | None, other: dict[str, Any], metric: str) -> list[float]:
    """Return a row's figures in percent of another row's, for each seed that both have."""
    of, beside = (
        dict(zip(one["seeds"], one["values"][metric]["each"], strict=True))
        if one is not None and one["values"].get(metric)
        else {}
        for one in (row, other)
    )
    return [100 * value / beside[seed] for seed, value in of.items() if seed in beside]


def dynamic_by_seed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return how spacing by the window and a fixed gap compare over long paths, seed by seed."""
    long = {
        (row["row"], row["column"]): row
        for row in rows
        if not row["extra"] and from_json(row["scenario"]).rtt_ns >= ABOVE_25_MS_RTT_NS
    }
    said = []
    for spacing, metric in itertools.product(("PSPD", "dynamic"), ("goodput", "window_mean")):
        percents = [
            percent
            for (title, column), row in long.items()
            if column == COMPARED_GAP
            for percent in by_seed(long.get((title, spacing)), row, metric)
        ]
        if percents:
            said.append(
                f"{spacing} in % of {COMPARED_GAP}, {len(percents)} pairs of runs with the same "
                f"seed, above 25 ms one way: {METRICS[metric].title}: {min(percents):.1f} to "
                f"{max(percents):.1f}, median {statistics.median(percents):.1f}."
            )
    return said


def _of_other_seeds(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning where chance decides and cells beside fixed gaps have other seeds."""
    titles = {row["row"] for row in rows if row["column"].startswith(FIXED_GAP)}
    for title in titles:
        counts = {len(row["seeds"]) for row in rows if row["row"] == title}
        if len(counts - {1}) > 1:
            return [
                "The table has medians over all seeds of a cell. Cells with different numbers of "
                "seeds do not compare there, because chance makes more of a difference than "
                "spacing does. The sentences and claims on fixed gaps, and the plots by gap, are "
                "over the seeds that both have."
            ]
    return []


_BEST = {
    **dict.fromkeys(("lost", "edge_lost", "completion", "completion_paced"), min),
    **dict.fromkeys(("jain", "jain_paced", "jain_done"), max),
}
"""By metric, whether the smallest or the largest value is the best."""


def predicted(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return how often static and dynamic burstiness above the FIFO go with loss."""
    said = []
    for title, name, unit in (
        ("Static burstiness (at the bottleneck's rate)", "queue_max", 1),
        ("Dynamic burstiness (at the window's own rate)", "near_dynamic_max", KIB),
    ):
        above = {True: 0, False: 0}
        below = {True: 0, False: 0}
        for row in rows:
            queues, losses = row["values"].get(name), row["values"].get("lost")
            if queues is None or losses is None:
                continue
            fifo_bytes = from_json(row["scenario"]).fifo_bytes
            for queue, lost in zip(queues["each"], losses["each"], strict=True):
                counted = above if queue * unit > fifo_bytes else below
                counted[lost > 0] += 1
        said.append(
            f"{title}: above the FIFO in {sum(above.values())} runs, of which {above[True]} lose "
            f"packets; not above it in {sum(below.values())}, of which {below[True]} do."
        )
    return said


NEVER_S = 1e9
"""Later than the end of any run."""


def best_and_worst(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return which spacing is best and worst by loss, fairness and completion time."""
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
                # Unfinished transfers are worse than any time; fewer finished ones are worse. A
                # single seed without a time leaves the row without one.
                of = flows[row["row"], row["column"]]
                text = f"{row['column']} ({done['min']:.0f} of {of} done)"
                known.append((NEVER_S - done["min"], text))
        if len({value for value, _ in known}) < 2:
            continue
        best = _BEST[name](known, key=_first)[0]
        worst = (max if _BEST[name] is min else min)(known, key=_first)[0]
        ends = (
            " and ".join(text for value, text in known if value == end) for end in (best, worst)
        )
        said.append("{}, {}: best {}, worst {}.".format(title, METRICS[name].title, *ends))
    return said

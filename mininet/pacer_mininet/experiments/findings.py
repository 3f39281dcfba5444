"""What a table's figures say, in plain sentences."""

import itertools
from collections.abc import Sequence
from typing import Any

from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.metrics import METRICS, shown
from pacer_mininet.traffic import ideal_goodput_bps


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

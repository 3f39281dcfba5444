"""An experiment's table: medians and spreads by cell, beside the published figures."""

import statistics
from collections.abc import Sequence
from typing import Any

from pacer_mininet.experiments import claims
from pacer_mininet.experiments.conditions import beside_published
from pacer_mininet.experiments.experiment import Cell, Experiment
from pacer_mininet.experiments.findings import compared, sentences
from pacer_mininet.experiments.metrics import METRICS, Result, shown
from pacer_mininet.experiments.shaping import missing_of
from pacer_mininet.experiments.store import Store

NOT_MADE = "not made yet"


def row_of(cell: Cell, metrics: Sequence[str], store: Store) -> dict[str, Any]:
    """Return a cell's values, by metric with median and spread, or why there are none.

    The row also has the runs' scenario and command lines, so that each can be made again.
    """
    scenarios = cell.runs()
    results = [found for found in map(store.load, scenarios) if found is not None]
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
        "doubts": dict(cell.doubts),
        "scenario": cell.scenario.to_json(),
        "values": {},
    }
    if skipped is None:
        row |= {key: results[0][key] for key in ("mode", "kernel", "commands")}
        row["values"] = {name: _spread(name, results) for name in metrics}
    return row


def _spread(name: str, results: Sequence[Result]) -> dict[str, Any] | None:
    metric = METRICS[name]
    having = results[:1] if metric.of_first else results
    values = [value for value in map(metric.of, having) if value is not None]
    if len(values) < len(having):
        return None
    shown = [round(float(value), metric.digits + 2) for value in values]
    return {
        "median": statistics.median(shown),
        "mean": round(statistics.fmean(shown), metric.digits + 2),
        "min": min(shown),
        "max": max(shown),
        "each": shown,
    }


def in_common(
    experiment: Experiment, rows: Sequence[dict[str, Any]], said: Sequence[str]
) -> dict[str, Any]:
    """Return what the results of all experiments have; what others do not have is empty.

    Args:
        experiment: the experiment.
        rows: its rows, about which its claims are.
        said: its sentences.

    """
    return {
        "name": experiment.name,
        "title": experiment.title,
        "reproduces": list(experiment.reproduces),
        "source": experiment.source,
        "quick": experiment.quick,
        "metrics": {name: METRICS[name].title for name in experiment.metrics},
        "conditions": beside_published(experiment),
        "rows": [],
        "compared": [],
        "sentences": list(said),
        # Claims are about runs at full size.
        "claims": [] if experiment.quick else claims.check(experiment.name, rows),
    }


def collect(experiment: Experiment, store: Store) -> dict[str, Any]:
    """Return an experiment's results, as written to its JSON file."""
    rows = [row_of(cell, experiment.metrics, store) for cell in experiment.cells]
    return {
        **in_common(experiment, rows, sentences(experiment, rows)),
        "rows": rows,
        "compared": compared(experiment, rows),
    }


def results_of(experiment: Experiment, store: Store) -> list[tuple[Cell, Result]]:
    """Return the cells that have results, each with the first one.

    Beside it are the seeds that were made, with goodput and deviation of each, and the median
    goodput.
    """
    found = []
    for cell in experiment.cells:
        made = [(run.seed, store.load(run)) for run in cell.runs()]
        of_seeds = {seed: one for seed, one in made if one is not None and "skipped" not in one}
        results = list(of_seeds.values())
        if results:
            goodputs_bps = [one["goodput_bps"] for one in results]
            over_seeds = {
                "seeds": list(of_seeds),
                "goodputs_bps": goodputs_bps,
                "goodput_median_bps": statistics.median(goodputs_bps),
                "deviations": [one["wan"].get("deviation_whole", 0.0) for one in results],
            }
            found.append((cell, {**results[0], **over_seeds}))
    return found


def plain(found: dict[str, Any]) -> str:
    """Return a table as plain text: a block for each row, with a column for each of its cells.

    The published figure stands in brackets behind the measured one. Where there are several rows, a
    last table says which are furthest from the published ones.
    """
    if "virtual" in found:
        names = [name for name in found["virtual"][0] if name != "published"]
        lines = [[_beside(row, name) for name in names] for row in found["virtual"]]
        return _aligned([names, *lines])
    blocks = []
    titles = list(dict.fromkeys(row["row"] for row in found["rows"]))
    for title in titles:
        cells = [row for row in found["rows"] if row["row"] == title]
        lines = [[title if len(titles) > 1 else "", *(row["column"] for row in cells)]]
        for name, of in found["metrics"].items():
            # Not every figure is one of every row: a transfer has a time, not a goodput.
            if all(row["values"].get(name, 0) is None for row in cells):
                continue
            lines.append([of])
            for row in cells:
                beside = _published_beside(row, name)
                lines[-1].append(shown(name, row["values"].get(name)) + beside)
        blocks.append(_aligned(lines))
    if found["conditions"]:
        blocks.append(
            _aligned([list(found["conditions"][0]), *map(_values, found["conditions"])], left=True)
        )
    if found["compared"] and len(titles) > 1:
        blocks.append(_aligned([list(found["compared"][0]), *map(_values, found["compared"])]))
    return "\n\n".join(blocks)


def _published_beside(row: dict[str, Any], name: str) -> str:
    """Return the published figure in brackets, with its doubt; empty where none is published."""
    if name not in row["published"]:
        return ""
    doubt = f", {row['doubts'][name]}" if name in row["doubts"] else ""
    return f" [{row['published'][name]:g}{doubt}]"


def _values(row: dict[str, str]) -> list[str]:
    return list(row.values())


def _beside(row: dict[str, Any], name: str) -> str:
    published = row.get("published", {})
    return text_of(row[name]) + (f" [{text_of(published[name])}]" if name in published else "")


def text_of(value: object) -> str:
    """Return a value of a table of the switch alone as text."""
    if isinstance(value, float):
        return f"{value:,.6g}"
    return "-" if value is None else str(value)


def _aligned(lines: list[list[str]], *, left: bool = False) -> str:
    """Return lines of cells with aligned columns, the first line as a header.

    All columns but the first are aligned to the right; with `left`, to the left.
    """
    align = str.ljust if left else str.rjust
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join([line[0].ljust(widths[0]), *map(align, line[1:], widths[1:])]).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], "-" * len(texts[0]), *texts[1:]])

"""Takes the figures that claims are about (`claims`) from the rows of a table."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pacer_mininet.experiments.findings import FIXED_GAP, at_shared_seeds, by_seed
from pacer_mininet.experiments.scenario import Scenario, from_json
from pacer_mininet.traffic import MTU_FRAME_BYTES, ideal_goodput_bps

Row = dict[str, Any]
"""A row of a table, as `tables.row_of` returns it."""

LONG_RTT_NS = 50_000_000
"""25 ms one way: dynamic spacing is claimed to win on paths at least this long. The published claim
is of delays greater than 25 ms."""

LONGEST_RTT_NS = 200_000_000
"""The sweep's paths on which fixed gaps leave bursts that are shorter than a round trip by more
than the 100 ms of a window."""

Figures = list[float | None]
"""Figures of some rows; None where a run did not give the figure."""

Values = Callable[[Sequence[Row]], Figures]
"""Takes the figures that a claim is about."""


def _scenario(row: Row) -> Scenario:
    return from_json(row["scenario"])


def _figure(row: Row, metric: str, which: str) -> float | None:
    value = row["values"].get(metric)
    return None if value is None else float(value[which])


def figures(metric: str, which: str, *columns: str) -> Values:
    """Take a metric's smallest or largest value from all rows in some columns."""
    return lambda rows: [_figure(row, metric, which) for row in rows if row["column"] in columns]


def figures_per(
    metric: str, which: str, unit: Callable[[Scenario], float], *columns: str
) -> Values:
    """Take the same, divided by a quantity of each row's scenario."""

    def values(rows: Sequence[Row]) -> Figures:
        chosen = [row for row in rows if row["column"] in columns]
        found = [(_figure(row, metric, which), unit(_scenario(row))) for row in chosen]
        return [None if value is None else value / of for value, of in found]

    return values


def percent_of_limit(scenario: Scenario) -> float:
    """Return one percent of the goodput that the bottleneck can carry, in Mbit/s."""
    return ideal_goodput_bps(scenario.rate_bps) / 1e6 / 100


def percent_of_fifo(scenario: Scenario) -> float:
    """Return one percent of the bottleneck's FIFO, in bytes."""
    return scenario.fifo_bytes / 100


def rtt_ms(scenario: Scenario) -> float:
    """Return the path's round-trip time in ms."""
    return scenario.rtt_ns / 1e6


def frame_ms(scenario: Scenario) -> float:
    """Return the time of a largest frame at the bottleneck in ms."""
    return MTU_FRAME_BYTES * 8_000 / scenario.rate_bps


def without_extra(of: Values) -> Values:
    """Take the same from the rows that are not `extra`."""
    return lambda rows: of([row for row in rows if not row["extra"]])


def over_long_paths(of: Values, rtt_ns: int = LONG_RTT_NS) -> Values:
    """Take the same from the paths on which dynamic spacing is claimed to win."""
    return lambda rows: of([row for row in rows if _scenario(row).rtt_ns >= rtt_ns])


def in_row(title: str, of: Values) -> Values:
    """Take the same from the cells of one row."""
    return lambda rows: of([row for row in rows if row["row"] == title])


def but_row(title: str, of: Values) -> Values:
    """Take the same without the cells of one row."""
    return lambda rows: of([row for row in rows if row["row"] != title])


def difference(column: str, other: str, *metrics: str, which: str = "median") -> Values:
    """Take one column less another: medians of the metrics' sum, row by row.

    With `which`, another figure of the seeds: `min`, `mean` or `max`.
    """

    def found_in(rows: Sequence[Row]) -> Figures:
        by_place = {(row["row"], row["column"]): row for row in rows}
        found: Figures = []
        for title in dict.fromkeys(row["row"] for row in rows):
            pair = [by_place.get((title, name)) for name in (column, other)]
            values = [_figure(row, one, which) for row in pair if row for one in metrics]
            known = [value for value in values if value is not None]
            half = len(metrics)
            whole = len(known) == 2 * half
            found.append(sum(known[:half]) - sum(known[half:]) if whole else None)
        return found

    return found_in


def distance(column: str, other: str, *metrics: str) -> Values:
    """Take the distance between two columns: medians of the metrics' sum, row by row."""
    less = difference(column, other, *metrics)
    return lambda rows: [None if value is None else abs(value) for value in less(rows)]


def off_published(metric: str, column: str) -> Values:
    """Take how far one column's medians are from the published figures, in %."""

    def values(rows: Sequence[Row]) -> Figures:
        found: Figures = []
        for row in rows:
            if row["column"] == column:
                value, published = _figure(row, metric, "median"), row["published"][metric]
                found.append(None if value is None else 100 * abs(value / published - 1))
        return found

    return values


def of_each_gap(rows: Sequence[Row]) -> Figures:
    """Take dynamic's goodput in percent of each fixed gap's: the median over pairs of a seed.

    Runs of the same seed lose the same packets on the wire. Medians of either are of other packets.
    """
    found: Figures = []
    for title in dict.fromkeys(row["row"] for row in rows):
        here = {row["column"]: row for row in rows if row["row"] == title}
        for name in here:
            if name.startswith(FIXED_GAP):
                pairs = by_seed(here.get("dynamic"), here[name], "goodput")
                found.append(statistics.median(pairs) if pairs else None)
    return found


def above_fixed_gaps(column: str) -> Values:
    """Take a column's deviation less each fixed gap's, over the seeds that both have."""

    def values(rows: Sequence[Row]) -> Figures:
        found: Figures = []
        for title in dict.fromkeys(row["row"] for row in rows):
            here = {row["column"]: row for row in rows if row["row"] == title}
            for name in here:
                if name.startswith(FIXED_GAP):
                    pair = [here[one] for one in (column, name) if one in here]
                    medians = at_shared_seeds(pair, column, "deviation")
                    both = len(medians) == len(pair) == 2
                    found.append(medians[column] - medians[name] if both else None)
        return found

    return values


def percent_of(column: str, other: str, metric: str, which: str) -> Values:
    """Take one column's figure in % of another one's, row by row, for the worst pair of seeds.

    With `which` = "max", the largest in % of the smallest; with "min", the smallest in % of the
    largest.
    """
    opposite = {"max": "min", "min": "max"}[which]

    def values(rows: Sequence[Row]) -> Figures:
        by_place = {(row["row"], row["column"]): row for row in rows}
        found: Figures = []
        for title in dict.fromkeys(row["row"] for row in rows):
            pair = [by_place.get((title, name)) for name in (column, other)]
            if None in pair:
                continue
            value, of = (
                _figure(row, metric, extreme)
                for row, extreme in zip(pair, (which, opposite), strict=True)
                if row is not None
            )
            found.append(None if value is None or not of else 100 * value / of)
        return found

    return values


def mistaken(rows: Sequence[Row]) -> Figures:
    """Count the runs where the virtual bottleneck's queue exceeds the FIFO, or loss, is alone.

    That queue counts the frame on the line, and a FIFO does not: within a frame either may be.
    """
    wrong = 0
    for row in rows:
        queues, losses = (row["values"].get(metric) for metric in ("queue_max", "lost"))
        if queues is None or losses is None:
            return [None]
        for queue, lost in zip(queues["each"], losses["each"], strict=True):
            above_bytes = queue - _scenario(row).fifo_bytes
            wrong += above_bytes <= 0 if lost > 0 else above_bytes > MTU_FRAME_BYTES
    return [float(wrong)]


def column_of(title: str, **chosen: str) -> Values:
    """Take a column of a table of the switch alone, from the rows with the chosen values."""
    return lambda rows: [
        float(row[title])
        for row in rows
        if all(row[other] == value for other, value in chosen.items())
    ]


def off_target(rows: Sequence[Row]) -> Figures:
    """Take how far the mean rates are from their targets, in ppm."""
    return [abs(float(row["mean off target, ppm"])) for row in rows]


def in_phase(rows: Sequence[Row]) -> Figures:
    """Take the queues of N flows in phase, divided by N."""
    return [float(row["in phase"]) / row["flows"] for row in rows]


def random_above_interleaved(rows: Sequence[Row]) -> Figures:
    """Take the queues in random phase less those of the same flows in slots, in packets."""
    return [float(row["random phase"]) - row["slots at the edge"] for row in rows]


EDGE_INTERLEAVES = ("one line as fast", "slots at the edge", "one class")
"""Arrangements of experiment `aggregation` in which the edge orders the packets of all flows."""


def in_slots(rows: Sequence[Row]) -> Figures:
    """Take the queues of flows that the edge interleaves, in packets."""
    return [float(row[title]) for row in rows for title in EDGE_INTERLEAVES]


def off_fluid_share(
    column: str,
    fluid_percent: float,
    metrics: tuple[str, str] = ("steady_paced", "steady_unpaced"),
) -> Values:
    """Take how far the first metric's part of both is from a fluid share, in points of %."""

    def values(rows: Sequence[Row]) -> Figures:
        found: Figures = []
        for row in (row for row in rows if row["column"] == column):
            part, rest = (_figure(row, metric, "median") for metric in metrics)
            if part is None or rest is None:
                found.append(None)
            else:
                found.append(abs(100 * part / (part + rest) - fluid_percent))
        return found

    return values


def distance_in_frames(column: str, other: str, metric: str) -> Values:
    """Take the distance between medians in ms in two columns, in frames of the row's bottleneck."""

    def values(rows: Sequence[Row]) -> Figures:
        frames_ms = {row["row"]: frame_ms(_scenario(row)) for row in rows}
        apart = distance(column, other, metric)(rows)
        return [
            None if value is None else value / of
            for value, of in zip(apart, frames_ms.values(), strict=True)
        ]

    return values

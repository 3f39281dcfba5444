"""What the project promises of its experiments, each promise checked against the tables' figures.

A claim is about one experiment. Its value is the worst that any of the cells it speaks of has,
over all seeds, so that a good median hides nothing; only where chance decides single runs (packets
lost on the wire) medians are compared, and the claim says so.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet.experiments.scenario import Scenario, from_json
from pacer_mininet.traffic import ideal_goodput_bps

Row = dict[str, Any]
"""A row of a table, as `tables.row_of` makes it."""

MTU_FRAME_BYTES = 1518
MIN_FRAME_WIRE_BYTES = 84
"""A shortest frame with preamble and inter-frame gap."""


Values = Callable[[Sequence[Row]], list[float | None]]
"""Takes figures of rows; None where a run did not give the figure."""

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "at most": operator.le,
    "at least": operator.ge,
    "more than": operator.gt,
    "less than": operator.lt,
}


@dataclass(frozen=True)
class Claim:
    """A promise.

    Attributes:
        experiment: the name of the one that shows it.
        text: what is promised of, in words, with the unit.
        values: of the rows that it speaks of.
        bound: one of "at most", "at least", "more than", "less than".
        limit: of each value.
        digits: of the value, behind the point.
        realtime_limit: of each value of runs on a machine's own kernel, where it is another one.

    """

    experiment: str
    text: str
    values: Values
    bound: str
    limit: float
    digits: int = 0
    realtime_limit: float | None = None

    def limit_of(self, rows: Sequence[Row]) -> float:
        """Return the limit of figures of some rows, all made by the same clock."""
        if self.realtime_limit is not None and any(row.get("mode") == "realtime" for row in rows):
            return self.realtime_limit
        return self.limit

    def worst(self, values: Sequence[float]) -> float:
        """Return the value that comes nearest to breaking the claim, or breaks it most."""
        return max(values) if self.bound in ("at most", "less than") else min(values)

    def holds(self, value: float, limit: float) -> bool:
        """Return whether a value keeps it."""
        return _HOLDS[self.bound](value, limit)


def _scenario(row: Row) -> Scenario:
    return from_json(row["scenario"])


def _figure(row: Row, metric: str, which: str) -> float | None:
    value = row["values"].get(metric)
    return None if value is None else float(value[which])


def _of(metric: str, which: str, *columns: str) -> Values:
    """Return what takes a metric's smallest or largest value of all rows in some columns."""

    def values(rows: Sequence[Row]) -> list[float | None]:
        return [_figure(row, metric, which) for row in rows if row["column"] in columns]

    return values


def _reproduced(of: Values) -> Values:
    """Return what takes the same of the rows that do not only stand by."""
    return lambda rows: of([row for row in rows if not row["extra"]])


def _over_long_paths(of: Values) -> Values:
    """Return what takes the same of the paths where dynamic spacing is to win."""
    return lambda rows: of([row for row in rows if _scenario(row).rtt_ns >= LONG_RTT_NS])


def _share_of_limit(*columns: str) -> Values:
    """Return what takes the goodput in the second half, in % of what the bottleneck carries."""

    def values(rows: Sequence[Row]) -> list[float | None]:
        found: list[float | None] = []
        for row in rows:
            if row["column"] in columns:
                steady = _figure(row, "steady", "min")
                ideal = ideal_goodput_bps(_scenario(row).rate_bps) / 1e6
                found.append(None if steady is None else 100 * steady / ideal)
        return found

    return values


def _rtt_over_path(*columns: str) -> Values:
    """Return what takes the longest RTT of the second half over the empty path's."""

    def values(rows: Sequence[Row]) -> list[float | None]:
        found: list[float | None] = []
        for row in rows:
            if row["column"] in columns:
                longest_ms = _figure(row, "rtt_steady", "max")
                path_ms = _scenario(row).rtt_ns / 1e6
                found.append(None if longest_ms is None else longest_ms / path_ms)
        return found

    return values


LONG_RTT_NS = 50_000_000
"""25 ms one way: from there on dynamic spacing is to win."""


def _dynamic_against_unpaced(*metrics: str) -> Values:
    """Return what takes dynamic less unpaced, medians of the metrics' sum, row by row."""

    def values(rows: Sequence[Row]) -> list[float | None]:
        by_place = {(row["row"], row["column"]): row for row in rows}
        found: list[float | None] = []
        for (title, column), row in by_place.items():
            other = by_place.get((title, "unpaced"))
            if column == "dynamic" and other:
                medians = [
                    (_figure(row, metric, "median"), _figure(other, metric, "median"))
                    for metric in metrics
                ]
                known = [a - b for a, b in medians if a is not None and b is not None]
                found.append(sum(known) if len(known) == len(metrics) else None)
        return found

    return values


def _between(metric: str, column: str, other: str) -> Values:
    """Return what takes how far a metric is apart in two columns, row by row."""

    def values(rows: Sequence[Row]) -> list[float | None]:
        found: list[float | None] = []
        for title in {row["row"]: None for row in rows}:
            pair = [
                _figure(row, metric, "median")
                for name in (column, other)
                for row in rows
                if (row["row"], row["column"]) == (title, name)
            ]
            known = [value for value in pair if value is not None]
            found.append(abs(known[0] - known[1]) if len(known) == 2 else None)
        return found

    return values


def _kept_short(column: str) -> tuple[Claim, ...]:
    """Return what is claimed of a way to keep large buffers from filling the pacer's queue."""
    return (
        Claim("backlog", f"{column}: packets lost", _of("lost", "max", column), "at most", 0),
        Claim(
            "backlog",
            f"{column}: packets lost at the edge",
            _of("edge_lost", "max", column),
            "at most",
            0,
        ),
        Claim(
            "backlog",
            f"{column}: second half, % of the limit",
            _share_of_limit(column),
            "at least",
            98,
            digits=2,
        ),
        Claim(
            "backlog",
            f"{column}: longest RTT of the second half over the path's",
            _rtt_over_path(column),
            "at most",
            1.1,
            digits=3,
        ),
    )


def _wins(experiment: str, of: str = "") -> tuple[Claim, ...]:
    """Return what is claimed of dynamic spacing over long paths."""
    return (
        Claim(
            experiment,
            f"dynamic, 25 ms one way and more: {of}goodput less unpaced's, Mbit/s",
            _reproduced(_over_long_paths(_dynamic_against_unpaced("goodput"))),
            "more than",
            0,
            digits=1,
        ),
        Claim(
            experiment,
            f"dynamic, 25 ms one way and more: {of}packets lost, at the edge, too, less unpaced's",
            _reproduced(_over_long_paths(_dynamic_against_unpaced("lost", "edge_lost"))),
            "less than",
            0,
        ),
    )


def _estimates(experiment: str) -> tuple[Claim, ...]:
    """Return what is claimed of what the switch sees of a flow that it follows."""
    return (
        Claim(
            experiment,
            "dynamic, 25 ms one way and more: the switch's RTT off the kernel's, median, %",
            _over_long_paths(_of("rtt_error", "max", "dynamic")),
            "at most",
            5,
            digits=2,
        ),
        Claim(
            experiment,
            "dynamic, 25 ms one way and more: bytes in flight off the kernel's, median, %",
            _over_long_paths(_of("in_flight_error", "max", "dynamic")),
            "at most",
            5,
            digits=2,
        ),
    )


CLAIMS = (
    Claim("table5", "paced: packets lost", _reproduced(_of("lost", "max", "paced")), "at most", 0),
    Claim(
        "table5",
        "paced: packets lost at the edge",
        _reproduced(_of("edge_lost", "max", "paced")),
        "at most",
        0,
    ),
    Claim(
        "table5",
        "paced: second half, % of the limit",
        _reproduced(_share_of_limit("paced")),
        "at least",
        99,
        digits=2,
    ),
    Claim(
        "table5",
        "paced: queue of the virtual bottleneck, bytes",
        _reproduced(_of("queue_max", "max", "paced")),
        "at most",
        MTU_FRAME_BYTES,
        realtime_limit=2 * MTU_FRAME_BYTES,
    ),
    Claim(
        "fig9",
        "paced: the smaller of two flows, % of a fair share (97.5: within 5 % of each other)",
        _of("share", "min", "paced"),
        "at least",
        97.5,
        digits=2,
    ),
    Claim(
        "burstiness",
        "paced, at the sender: max(Q), KB (one frame; in real time two)",
        _of("near_queue_max", "max", "paced"),
        "at most",
        round(MTU_FRAME_BYTES / 1024, 3),
        digits=3,
        realtime_limit=round(2 * MTU_FRAME_BYTES / 1024, 3),
    ),
    Claim(
        "gaps",
        "PAUSE frames less accounted gaps: queue of the virtual bottleneck, bytes (shortest frame)",
        _between("queue_max", "paced", "paced, PAUSE frames"),
        "at most",
        MIN_FRAME_WIRE_BYTES,
    ),
    Claim(
        "gaps",
        "PAUSE frames less accounted gaps: bytes through the bottleneck (one packet at the end)",
        _between("wire_bytes", "paced", "paced, PAUSE frames"),
        "at most",
        MTU_FRAME_BYTES,
    ),
    *_kept_short("paced, clamp"),
    *_kept_short("paced, ECN"),
    *_wins("delays", of="FIFO 256 KB, "),
    *_wins("slides", of="FIFO 1 MB, "),
    *_wins("ipg", of="medians of nine seeds, "),
    *_estimates("delays"),
    *_estimates("ipg"),
)


def check(experiment: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each claim about an experiment, with its worst value and whether that keeps it.

    Where figures that it speaks of are missing both are None: what was not made might have been
    the worst.
    """
    return [_checked(claim, rows) for claim in CLAIMS if claim.experiment == experiment]


KNOWN_BROKEN = ("paced, ECN: second half, % of the limit",)
"""What is known not to hold (see docs/experiments.md), by the claim's text."""


def broken(checked: Sequence[dict[str, Any]]) -> list[str]:
    """Return, as sentences, the claims that do not hold, without those known not to."""
    known = tuple(f"{text}: " for text in KNOWN_BROKEN)
    found = [one for one in checked if one["holds"] is False]
    return [sentence(one) for one in found if not one["claim"].startswith(known)]


ANSWERS = {True: "yes", False: "NO", None: "not known"}


def sentence(checked: dict[str, Any]) -> str:
    """Return a claim as `check` has it, in a line."""
    worst = "" if checked["worst"] is None else f" (worst: {checked['worst']:,})"
    return f"{checked['claim']}: {ANSWERS[checked['holds']]}{worst}"


def _checked(claim: Claim, rows: Sequence[Row]) -> dict[str, Any]:
    values = claim.values(rows)
    known = [value for value in values if value is not None]
    worst = claim.worst(known) if known and len(known) == len(values) else None
    limit = claim.limit_of(rows)
    return {
        "claim": f"{claim.text}: {claim.bound} {limit:g}",
        "worst": None if worst is None else round(worst, claim.digits),
        "holds": None if worst is None else claim.holds(worst, limit),
    }

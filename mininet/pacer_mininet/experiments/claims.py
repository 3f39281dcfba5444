"""The project's claims about its experiments, checked against the tables' figures.

A claim is about one experiment. Its value is the worst one of all cells that it is about, over all
seeds, so that a good median hides nothing. Medians are compared only where chance decides single
runs (packets lost on the wire); the claim's text then says so.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet.experiments.findings import FIXED_GAP, at_shared_seeds
from pacer_mininet.experiments.scenario import Scenario, from_json
from pacer_mininet.traffic import MTU_FRAME_BYTES, ideal_goodput_bps

Row = dict[str, Any]
"""A row of a table, as `tables.row_of` returns it."""

MIN_FRAME_WIRE_BYTES = 84
"""A shortest frame with preamble and inter-frame gap."""

LONG_RTT_NS = 50_000_000
"""25 ms one way: dynamic spacing is claimed to win on paths at least this long. The published claim
is of delays greater than 25 ms."""

ABOVE_25_MS_RTT_NS, LONGEST_RTT_NS = 100_000_000, 200_000_000
"""The sweep's paths longer than 25 ms one way, and those on which fixed gaps leave bursts that are
shorter than a round trip by more than the 100 ms of a window."""

Figures = list[float | None]
"""Figures of some rows; None where a run did not give the figure."""

Values = Callable[[Sequence[Row]], Figures]
"""Takes the figures that a claim is about."""

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "at most": operator.le,
    "at least": operator.ge,
    "more than": operator.gt,
    "less than": operator.lt,
}


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        experiment: name of the experiment that shows it.
        text: its subject in words, with the unit.
        values: takes the figures from the rows.
        bound: one of "at most", "at least", "more than", "less than".
        limit: the limit of each value.
        digits: the number of decimals of the value.
        realtime_limit: the limit for runs on this machine's kernel, if it differs.

    """

    experiment: str
    text: str
    values: Values
    bound: str
    limit: float
    digits: int = 0
    realtime_limit: float | None = None

    def limit_of(self, rows: Sequence[Row]) -> float:
        """Return the limit for rows that were all made by the same clock."""
        if self.realtime_limit is not None and any(row.get("mode") == "realtime" for row in rows):
            return self.realtime_limit
        return self.limit

    def worst(self, values: Sequence[float]) -> float:
        """Return the value that is closest to breaking the claim, or breaks it most."""
        return max(values) if self.bound in ("at most", "less than") else min(values)

    def holds(self, value: float, limit: float) -> bool:
        """Return whether the claim holds for a value."""
        return _HOLDS[self.bound](value, limit)


def _scenario(row: Row) -> Scenario:
    return from_json(row["scenario"])


def _figure(row: Row, metric: str, which: str) -> float | None:
    value = row["values"].get(metric)
    return None if value is None else float(value[which])


def _of(metric: str, which: str, *columns: str) -> Values:
    """Take a metric's smallest or largest value from all rows in some columns."""
    return lambda rows: [_figure(row, metric, which) for row in rows if row["column"] in columns]


def _per(metric: str, which: str, unit: Callable[[Scenario], float], *columns: str) -> Values:
    """Take the same, divided by a quantity of each row's scenario."""

    def values(rows: Sequence[Row]) -> Figures:
        chosen = [row for row in rows if row["column"] in columns]
        found = [(_figure(row, metric, which), unit(_scenario(row))) for row in chosen]
        return [None if value is None else value / of for value, of in found]

    return values


def _percent_of_limit(scenario: Scenario) -> float:
    """Return one percent of the goodput that the bottleneck can carry, in Mbit/s."""
    return ideal_goodput_bps(scenario.rate_bps) / 1e6 / 100


def _rtt_ms(scenario: Scenario) -> float:
    return scenario.rtt_ns / 1e6


def _without_extra(of: Values) -> Values:
    """Take the same from the rows that are not `extra`."""
    return lambda rows: of([row for row in rows if not row["extra"]])


def _over_long_paths(of: Values, rtt_ns: int = LONG_RTT_NS) -> Values:
    """Take the same from the paths on which dynamic spacing is claimed to win."""
    return lambda rows: of([row for row in rows if _scenario(row).rtt_ns >= rtt_ns])


def _in_row(title: str, of: Values) -> Values:
    """Take the same from the cells of one row."""
    return lambda rows: of([row for row in rows if row["row"] == title])


def _but_row(title: str, of: Values) -> Values:
    """Take the same without the cells of one row."""
    return lambda rows: of([row for row in rows if row["row"] != title])


def _less(column: str, other: str, *metrics: str, which: str = "median") -> Values:
    """Take one column less another: medians of the metrics' sum, row by row.

    With `which`, another figure of the seeds: `min`, `mean` or `max`.
    """

    def values(rows: Sequence[Row]) -> Figures:
        by_place = {(row["row"], row["column"]): row for row in rows}
        found: Figures = []
        for title in dict.fromkeys(row["row"] for row in rows):
            pair = [by_place.get((title, name)) for name in (column, other)]
            figures = [_figure(row, one, which) for row in pair if row for one in metrics]
            known = [value for value in figures if value is not None]
            half = len(metrics)
            whole = len(known) == 2 * half
            found.append(sum(known[:half]) - sum(known[half:]) if whole else None)
        return found

    return values


def _apart(column: str, other: str, metric: str) -> Values:
    """Take the distance between a metric's medians in two columns, row by row."""
    less = _less(column, other, metric)
    return lambda rows: [None if value is None else abs(value) for value in less(rows)]


def _off_published(metric: str, column: str) -> Values:
    """Take how far one column's medians are from the published figures, in %."""

    def values(rows: Sequence[Row]) -> Figures:
        found: Figures = []
        for row in rows:
            if row["column"] == column:
                value, published = _figure(row, metric, "median"), row["published"][metric]
                found.append(None if value is None else 100 * abs(value / published - 1))
        return found

    return values


def _of_best_gap(rows: Sequence[Row]) -> Figures:
    """Take dynamic's goodput in percent of the best fixed gap's, over the same seeds."""
    found: Figures = []
    for title in dict.fromkeys(row["row"] for row in rows):
        here = at_shared_seeds([row for row in rows if row["row"] == title], "dynamic", "goodput")
        gaps = [value for name, value in here.items() if name.startswith(FIXED_GAP)]
        found.append(100 * here["dynamic"] / max(gaps) if gaps and "dynamic" in here else None)
    return found


def _above_fixed_gaps(rows: Sequence[Row]) -> Figures:
    """Take dynamic's deviation less each fixed gap's, over the seeds that both have."""
    found: Figures = []
    for title in dict.fromkeys(row["row"] for row in rows):
        here = {row["column"]: row for row in rows if row["row"] == title}
        for name in here:
            if name.startswith(FIXED_GAP):
                pair = [here[one] for one in ("dynamic", name) if one in here]
                medians = at_shared_seeds(pair, "dynamic", "deviation")
                both = len(medians) == len(pair) == 2
                found.append(medians["dynamic"] - medians[name] if both else None)
    return found


def _percent_of(column: str, other: str, metric: str) -> Values:
    """Take one column's largest figure in % of the smallest in another one, row by row."""

    def values(rows: Sequence[Row]) -> Figures:
        by_place = {(row["row"], row["column"]): row for row in rows}
        found: Figures = []
        for title in dict.fromkeys(row["row"] for row in rows):
            pair = [by_place.get((title, name)) for name in (column, other)]
            if None in pair:
                continue
            most, least = (
                _figure(row, metric, which)
                for row, which in zip(pair, ("max", "min"), strict=True)
                if row is not None
            )
            found.append(None if most is None or not least else 100 * most / least)
        return found

    return values


def _mistaken(rows: Sequence[Row]) -> Figures:
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


def _claims(
    experiment: str, *rows: tuple[str, Values, str, float, int], extra: bool = True
) -> tuple[Claim, ...]:
    """Return claims on one experiment from rows of Claim's fields; without `extra` rows if so."""
    return tuple(
        Claim(experiment, text, values if extra else _without_extra(values), bound, limit, digits)
        for text, values, bound, limit, digits in rows
    )


def _kept_short(column: str) -> tuple[Claim, ...]:
    """Return the claims on a way to keep large buffers from filling the pacer's queue."""
    steady = _per("steady", "min", _percent_of_limit, column)
    rtt = _per("rtt_steady", "max", _rtt_ms, column)
    longest = "longest RTT of the second half, as a multiple of the path's"
    return _claims(
        "backlog",
        (f"{column}: packets lost", _of("lost", "max", column), "at most", 0, 0),
        (f"{column}: packets lost at the edge", _of("edge_lost", "max", column), "at most", 0, 0),
        (f"{column}: second half, % of the limit", steady, "at least", 98, 2),
        (f"{column}: {longest}", rtt, "at most", 1.1, 3),
    )


LONG_DYNAMIC = "dynamic, 25 ms one way and more"


def _wins(experiment: str, of: str = "") -> tuple[Claim, ...]:
    """Return the claims on dynamic spacing over long paths."""
    goodput, lost = (
        _over_long_paths(_less("dynamic", "unpaced", *metrics))
        for metrics in (("goodput",), ("lost", "edge_lost"))
    )
    return _claims(
        experiment,
        (f"{LONG_DYNAMIC}: {of}goodput above unpaced's, Mbit/s", goodput, "more than", 0, 1),
        (f"{LONG_DYNAMIC}: {of}packets lost in all, minus unpaced's", lost, "less than", 0, 0),
        extra=False,
    )


def _estimates(experiment: str) -> tuple[Claim, ...]:
    """Return the claims on the switch's estimates for a flow that it follows."""
    text = LONG_DYNAMIC + ": the switch's {} off the kernel's, median, %"
    rtt, in_flight = (
        _over_long_paths(_of(metric, "max", "dynamic"))
        for metric in ("rtt_error", "in_flight_error")
    )
    return _claims(
        experiment,
        (text.format("RTT"), rtt, "at most", 5, 2),
        (text.format("bytes in flight"), in_flight, "at most", 5, 2),
    )


def _in_phase(rows: Sequence[Row]) -> Figures:
    """Take the queues of N flows in phase, divided by N."""
    return [float(row["in phase"]) / row["flows"] for row in rows]


def _random_above_interleaved(rows: Sequence[Row]) -> Figures:
    """Take the queues in random phase less those of the same flows in slots, in packets."""
    return [float(row["random phase"]) - row["interleaved by the edge"] for row in rows]


EDGE_INTERLEAVES = ("slots by flow", "interleaved by the edge", "one class")
"""Arrangements of experiment `aggregation` in which the edge orders the packets of all flows."""


def _in_slots(rows: Sequence[Row]) -> Figures:
    """Take the queues of flows that the edge interleaves, in packets."""
    return [float(row[title]) for row in rows for title in EDGE_INTERLEAVES]


def _slots_by_port(rows: Sequence[Row]) -> Figures:
    """Take the queues of flows that begin in slots, in packets."""
    return [float(row["slots by port"]) for row in rows]


def _frames_apart(column: str, other: str, metric: str) -> Values:
    """Take the distance between medians in ms in two columns, in frames of the row's bottleneck."""

    def values(rows: Sequence[Row]) -> Figures:
        rates = {row["row"]: _scenario(row).rate_bps for row in rows}
        frames_ms = [MTU_FRAME_BYTES * 8_000 / rate_bps for rate_bps in rates.values()]
        apart = _apart(column, other, metric)(rows)
        return [
            None if value is None else value / frame_ms
            for value, frame_ms in zip(apart, frames_ms, strict=True)
        ]

    return values


def _as_the_kernel(name: str) -> tuple[Claim, ...]:
    """Return the claims that a discipline of the switch carries as much as the kernel's."""
    goodput = _percent_of(f"{name}, switch", f"{name}, kernel", "goodput")
    text = f"{name}: goodput in % of the kernel's"
    return _claims("aqm", (text, goodput, "at least", 98, 2), (text, goodput, "at most", 102, 2))


PAUSE_FRAMES = "PAUSE frames and accounted gaps: difference of the"

CLAIMS = (
    *_claims(
        "table5",
        ("paced: packets lost", _of("lost", "max", "paced"), "at most", 0, 0),
        ("paced: packets lost at the edge", _of("edge_lost", "max", "paced"), "at most", 0, 0),
        (
            "paced: second half, % of the limit",
            _per("steady", "min", _percent_of_limit, "paced"),
            *("at least", 99, 2),
        ),
        extra=False,
    ),
    Claim(
        "table5",
        "paced: queue of the virtual bottleneck, bytes",
        _without_extra(_of("queue_max", "max", "paced")),
        *("at most", MTU_FRAME_BYTES),
        realtime_limit=2 * MTU_FRAME_BYTES,
    ),
    Claim(
        "fig9",
        "paced: the smaller of two flows, % of a fair share (97.5: within 5 % of each other)",
        _of("share", "min", "paced"),
        *("at least", 97.5, 2),
    ),
    *_claims(
        "fig9",
        ("paced: packets lost", _of("lost", "max", "paced"), "at most", 0, 0),
    ),
    *_claims(
        "burstiness",
        (
            "tick-driven TBF, HZ 100, at the sender: max(Q), KB (published: 58.8; a tick has 48.8)",
            *(_of("near_queue_max", "min", "tick-driven TBF, HZ 100"), "at least", 48.8, 1),
        ),
    ),
    Claim(
        "burstiness",
        "paced, at the sender: max(Q), KB (one frame; in real time two)",
        _of("near_queue_max", "max", "paced"),
        *("at most", round(MTU_FRAME_BYTES / 1024, 3), 3),
        realtime_limit=round(2 * MTU_FRAME_BYTES / 1024, 3),
    ),
    *_claims(
        "burst-loss",
        (
            "static max(Q) at the bottleneck's rate above the FIFO, and loss: runs with one alone",
            *(_mistaken, "at most", 0, 0),
        ),
    ),
    *_claims(
        "gaps",
        (
            f"{PAUSE_FRAMES} virtual bottleneck's queues, bytes (one shortest frame)",
            _apart("paced", "paced, PAUSE frames", "queue_max"),
            *("at most", MIN_FRAME_WIRE_BYTES, 0),
        ),
        (
            f"{PAUSE_FRAMES} bytes through the bottleneck (one packet at the end)",
            _apart("paced", "paced, PAUSE frames", "wire_bytes"),
            *("at most", MTU_FRAME_BYTES, 0),
        ),
    ),
    *_kept_short("paced, clamp"),
    *_kept_short("paced, ECN"),
    *_claims(
        "slides",
        (
            "PSPD under the talk's conditions: packets lost (published: 285)",
            _in_row("1MB", _of("lost", "min", "PSPD")),
            *("more than", 0, 0),
        ),
        ("dynamic: packets lost", _of("lost", "max", "dynamic"), "at most", 0, 0),
        extra=False,
    ),
    *_claims(
        "table5",
        (
            "tick-driven TBF, FIFO 64 KB: packets lost (published: 402)",
            _in_row("64KB", _of("lost", "min", "tick-driven TBF")),
            *("more than", 0, 0),
        ),
    ),
    *_claims(
        "clustered",
        *(
            (
                f"{column}: goodput above unpaced's, Mbit/s",
                _less(column, "unpaced", "goodput"),
                *("more than", 0, 1),
            )
            for column in ("clustered", "clustered, 12.5 us")
        ),
    ),
    *_claims(
        "ipg-rates",
        (
            "fixed gaps: second half off the published goodput (941 and 567 Mbit/s), %",
            *(_off_published("steady", "IPG"), "at most", 1, 2),
        ),
    ),
    *_claims(
        "bwc2002",
        (
            "unpaced: the largest stream, % of a fair share (published: unequal)",
            *(_of("largest_share", "min", "unpaced"), "at least", 200, 1),
        ),
        (
            "paced: the smallest stream, % of a fair share",
            *(_of("share", "min", "paced"), "at least", 99, 2),
        ),
    ),
    *_claims(
        "fast-ethernet",
        (
            "senders on Fast Ethernet: deviation / mean above that of gigabit senders",
            *(_less("Fast Ethernet", "gigabit", "deviation"), "less than", 0, 3),
        ),
    ),
    *_claims(
        "ipg-tuning",
        *(
            (
                f"gap of 1023 bytes: {title} of the seeds above that with 8 bytes, Mbit/s",
                _less("IPG 1023", "IPG 8", "goodput", which=which),
                *(bound, limit, 1),
            )
            for title, which, bound, limit in (
                ("maximum", "max", "more than", 0),
                ("average", "mean", "more than", 0),
                ("minimum", "min", "at most", 0.5),
            )
        ),
    ),
    *_claims(
        "ackclock",
        (
            "unpaced, FIFO of the published size: packets lost",
            _in_row("FIFO 3.125 MB", _of("lost", "max", "unpaced")),
            *("at most", 0, 0),
        ),
        (
            "unpaced, FIFO of three fifths of it: packets lost",
            _in_row("FIFO 1.875 MB", _of("lost", "min", "unpaced")),
            *("more than", 0, 0),
        ),
        ("paced: packets lost", _of("lost", "max", "paced"), "at most", 0, 0),
    ),
    *_claims(
        "synchronised",
        (
            "PSPD, 2 to 32 flows: flows that lose within one RTT, % of all, above unpaced's",
            *(_but_row("64 flows", _less("PSPD", "unpaced", "together")), "more than", 20, 1),
        ),
        (
            "PSPD, in slots: flows that lose within one RTT, % of all, above unpaced's",
            *(_less("PSPD, in slots", "unpaced", "together"), "more than", 10, 1),
        ),
        ("one class: packets lost", _of("lost", "max", "one class"), "at most", 0, 0),
        (
            "one class: packets lost at the edge",
            *(_of("edge_lost", "max", "one class"), "at most", 0, 0),
        ),
    ),
    *_claims(
        "following",
        (
            "following, others come one by one: packets lost",
            *(_in_row("one by one", _of("lost", "max", "following")), "at most", 0, 0),
        ),
        *(
            (
                f"following: packets lost, minus those of {column}",
                *(_less("following", column, "lost"), "less than", 0, 0),
            )
            for column in ("paced, 200M", "dynamic")
        ),
        (
            "following: % of what others leave free",
            *(_of("used", "min", "following"), "at least", 88, 1),
        ),
    ),
    *_as_the_kernel("CoDel"),
    *_as_the_kernel("FQ-CoDel"),
    *_as_the_kernel("PIE"),
    *_claims(
        "aqm",
        *(
            (
                f"CoDel: {title} off the kernel's, in frames",
                *(_frames_apart("CoDel, switch", "CoDel, kernel", metric), "at most", 1.01, 2),
            )
            for title, metric in (
                ("median of the sojourn", "sojourn_median"),
                ("p99 of the sojourn", "sojourn_p99"),
            )
        ),
        (
            "DualPI2: median of the classic sojourn, ms",
            *(_of("sojourn_median", "max", "DualPI2, switch"), "at most", 16, 2),
        ),
    ),
    *_claims(
        "l4s",
        (
            "DualPI2: p99 of the sojourn with ECT(1), ms",
            *(_of("first_sojourn_p99", "max", "DualPI2"), "at most", 1, 2),
        ),
    ),
    Claim(
        "aggregation",
        "flows that the edge interleaves, by its line, in slots or as one class: queue, packets",
        *(_in_slots, "at most", 1, 2),
    ),
    Claim(
        "aggregation",
        "slots by port: queue, packets",
        *(_slots_by_port, "at most", 1, 2),
    ),
    Claim(
        "aggregation",
        "N flows in phase: queue, packets a flow (one is also the most)",
        *(_in_phase, "at least", 1, 2),
    ),
    Claim(
        "aggregation",
        "random phase: longest queue above that of the same flows in slots, packets",
        *(_random_above_interleaved, "more than", 0, 2),
    ),
    *_claims(
        "cooperative",
        *(
            claim
            for column in ("shared", "shared, windows")
            for claim in (
                (
                    f"{column}: first stream done before the last one, % of its time",
                    _of("apart", "max", column),
                    *("at most", 2, 2),
                ),
                (
                    f"{column}: last stream done, % of unpaced's time",
                    _percent_of(column, "unpaced", "completion"),
                    *("at most", 80, 1),
                ),
                (
                    f"{column}: packets lost at the bottleneck",
                    _of("lost", "max", column),
                    *("at most", 0, 0),
                ),
            )
        ),
        (
            "shared, windows: packets lost at the edge",
            _of("edge_lost", "max", "shared, windows"),
            *("at most", 0, 0),
        ),
    ),
    *_wins("delays", of="FIFO 256 KB, "),
    *_wins("slides", of="FIFO 1 MB, "),
    *_wins("ipg", of="medians of nine seeds, "),
    *_claims(
        "ipg",
        (
            "dynamic, above 25 ms one way: goodput, % of the best fixed gap's with the same seeds",
            *(_over_long_paths(_of_best_gap, ABOVE_25_MS_RTT_NS), "at least", 97, 1),
        ),
        (
            "dynamic, 100 ms one way and more: deviation / mean above each fixed gap's, same seeds",
            *(_over_long_paths(_above_fixed_gaps, LONGEST_RTT_NS), "less than", 0, 3),
        ),
    ),
    *_estimates("delays"),
    *_estimates("ipg"),
)


def check(experiment: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each claim about an experiment, with its worst value and whether it holds.

    The value is None where figures are missing: a missing one could be the worst. Then a claim is
    open (None) while runs are missing, and does not hold once all runs are made. A transfer that
    did not end has no time, for instance.
    """
    return [_checked(claim, rows) for claim in CLAIMS if claim.experiment == experiment]


KNOWN_BROKEN = ("paced, ECN: second half, % of the limit",)
"""Claims that are known not to hold (see docs/experiments.md), by their texts."""


def broken(checked: Sequence[dict[str, Any]]) -> list[str]:
    """Return, as sentences, the claims that do not hold, without those known not to."""
    known = tuple(f"{text}: " for text in KNOWN_BROKEN)
    found = [one for one in checked if one["holds"] is False]
    return [sentence(one) for one in found if not one["claim"].startswith(known)]


ANSWERS = {True: "yes", False: "NO", None: "not known"}


def sentence(checked: dict[str, Any]) -> str:
    """Return a checked claim as a line of text."""
    worst = "" if checked["worst"] is None else f" (worst: {checked['worst']:,})"
    return f"{checked['claim']}: {ANSWERS[checked['holds']]}{worst}"


def _checked(claim: Claim, rows: Sequence[Row]) -> dict[str, Any]:
    values = claim.values(rows)
    known = [value for value in values if value is not None]
    worst = claim.worst(known) if known and len(known) == len(values) else None
    limit = claim.limit_of(rows)
    holds: bool | None
    if worst is not None:
        holds = claim.holds(worst, limit)
    else:
        all_made = rows and not any(row.get("skipped") for row in rows)
        holds = False if all_made else None
    return {
        "claim": f"{claim.text}: {claim.bound} {limit:g}",
        "worst": None if worst is None else round(worst, claim.digits),
        "holds": holds,
    }

"""The project's claims about its experiments, checked against the tables' figures.

A claim is about one experiment. Its value is the worst one of all cells that it is about, over all
seeds, so that a good median hides nothing. Medians are compared only where chance decides single
runs (packets lost on the wire); the claim's text then says so. `claim_values` takes the figures.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_mininet.experiments.aqm import ECN_ROW, FLOWS, LONG_ROW, SHORT, THAT_MARK
from pacer_mininet.experiments.claim_values import (
    LONGEST_RTT_NS,
    Row,
    Values,
    above_fixed_gaps,
    but_row,
    column_of,
    difference,
    distance,
    distance_in_frames,
    figures,
    figures_per,
    frame_ms,
    in_phase,
    in_row,
    in_slots,
    mistaken,
    of_each_gap,
    off_fluid_share,
    off_published,
    off_target,
    over_long_paths,
    percent_of,
    percent_of_fifo,
    percent_of_limit,
    random_above_interleaved,
    rtt_ms,
    without_extra,
)
from pacer_mininet.experiments.findings import ABOVE_25_MS_RTT_NS
from pacer_mininet.experiments.following import LINE_AT_ONCE, LINE_STEP_BY_STEP
from pacer_mininet.experiments.l4s import DUALPI2
from pacer_mininet.experiments.schedulers import SCHEDULERS
from pacer_mininet.experiments.tutorials import (
    BELOW_ITS_WEIGHT,
    BY_PROGRAM,
    BY_WEIGHT,
    DROP_TAIL,
    IN_LINUX,
    LINE_BPS,
    MARK_FROM_PACKETS,
    ROUND_FRAMES,
    STREAMS,
    STRICT,
    UDP_BPS,
    UDP_WEIGHT_PERCENT,
)
from pacer_mininet.published import FIG_1_PACKETS_OF_A_TICK, KIB
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES

MIN_FRAME_WIRE_BYTES = 84
"""A shortest frame with preamble and inter-frame gap."""

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "at most": operator.le,
    "at least": operator.ge,
    "more than": operator.gt,
    "less than": operator.lt,
}


@dataclass(frozen=True)
class Claim:
    """One claim about an experiment.

    Attributes:
        text: its subject in words, with the unit.
        values: takes the figures from the rows.
        bound: one of "at most", "at least", "more than", "less than".
        limit: the limit of each value.
        digits: the number of decimals of the value.
        realtime_limit: the limit for runs on this machine's kernel, if it differs.

    """

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


def _none_lost(column: str) -> Claim:
    return Claim(f"{column}: packets lost", figures("lost", "max", column), "at most", 0)


def _none_lost_at_edge(column: str) -> Claim:
    lost = figures("edge_lost", "max", column)
    return Claim(f"{column}: packets lost at the edge", lost, "at most", 0)


def _without_extra(*claims: Claim) -> tuple[Claim, ...]:
    """Return claims on the rows that are not `extra`."""
    return tuple(dataclasses.replace(one, values=without_extra(one.values)) for one in claims)


def _as_published() -> tuple[Claim, ...]:
    """Return the claims on what all published pictures of BIC over 500 Mbit/s, 200 ms show."""
    return (
        Claim("unpaced: packets lost", figures("lost", "min", "unpaced"), "more than", 0),
        Claim(
            "paced: goodput above unpaced's, Mbit/s",
            difference("paced", "unpaced", "goodput"),
            *("more than", 0, 1),
        ),
    )


LONG_DYNAMIC = "dynamic, 25 ms one way and more"


def _wins(of: str) -> tuple[Claim, ...]:
    """Return the claims on dynamic spacing over long paths."""
    goodput, lost = (
        over_long_paths(difference("dynamic", "unpaced", *metrics))
        for metrics in (("goodput",), ("lost", "edge_lost"))
    )
    return _without_extra(
        Claim(
            f"{LONG_DYNAMIC}: {of}goodput above unpaced's, Mbit/s", goodput, *("more than", 0, 1)
        ),
        Claim(f"{LONG_DYNAMIC}: {of}packets lost in all, minus unpaced's", lost, "less than", 0),
    )


def _estimates() -> tuple[Claim, ...]:
    """Return the claims on the switch's estimates for a flow that it follows."""
    text = LONG_DYNAMIC + ": the switch's {} off the kernel's, median, %"
    rtt, in_flight = (
        over_long_paths(figures(metric, "max", "dynamic"))
        for metric in ("rtt_error", "in_flight_error")
    )
    return (
        Claim(text.format("RTT"), rtt, "at most", 5, 2),
        Claim(text.format("bytes in flight"), in_flight, "at most", 5, 2),
    )


def _kept_short(column: str) -> tuple[Claim, ...]:
    """Return the claims on a way to keep large buffers from filling the pacer's queue."""
    steady = figures_per("steady", "min", percent_of_limit, column)
    rtt = figures_per("rtt_steady", "max", rtt_ms, column)
    longest = "longest RTT of the second half, as a multiple of the path's"
    return (
        _none_lost(column),
        _none_lost_at_edge(column),
        Claim(f"{column}: second half, % of the limit", steady, "at least", 98, 2),
        Claim(f"{column}: {longest}", rtt, "at most", 1.1, 3),
    )


def _shares(column: str) -> tuple[Claim, ...]:
    """Return the claims on streams that share a rate."""
    return (
        Claim(
            f"{column}: time from the end of the first stream to that of the last, % of the latter",
            figures("apart", "max", column),
            *("at most", 2, 2),
        ),
        Claim(
            f"{column}: last stream done, % of unpaced's time",
            percent_of(column, "unpaced", "completion", "max"),
            *("at most", 80, 1),
        ),
        Claim(
            f"{column}: packets lost at the bottleneck",
            figures("lost", "max", column),
            *("at most", 0),
        ),
    )


def _as_the_kernel(name: str) -> tuple[Claim, ...]:
    """Return the claims that a discipline of the switch carries as much as the kernel's."""
    least, most = (
        percent_of(f"{name}, switch", f"{name}, kernel", "goodput", which)
        for which in ("min", "max")
    )
    if name == "PIE":
        # The kernel's PIE spreads its drops, and loses 2 packets there in place of 18.
        least, most = (but_row(LONG_ROW, values) for values in (least, most))
    text = f"{name}: goodput in % of the kernel's"
    return Claim(text, least, "at least", 98, 2), Claim(text, most, "at most", 102, 2)


CUBIC_REDUCTION = 0.3
"""The part of its window by which CUBIC answers a drop or a mark (RFC 9438, section 4.6)."""


def _close_to_the_kernel(name: str, target_ms: float, signals: int, why: str) -> tuple[Claim, ...]:
    """Return the claims on sojourns, drops and marks beside the kernel's, on the short path.

    A flow that reduces its window at another time moves the queue by its reduction, so the sojourns
    may differ by that of one flow. The flows fill the path and a queue at the target.

    Args:
        name: the discipline.
        target_ms: its target.
        signals: how many drops and marks there may be more or less.
        why: the reason for that number.

    """
    reduction_ms = CUBIC_REDUCTION * (SHORT["rtt_ns"] / MS + target_ms) / FLOWS
    switch, kernel = (f"{name}, {at}" for at in ("switch", "kernel"))
    return (
        *(
            Claim(
                f"{name}, short path: {title} of the sojourn off the kernel's, ms (one flow's "
                "reduction)",
                but_row(LONG_ROW, distance(switch, kernel, metric)),
                *("at most", round(reduction_ms, 3), 3),
            )
            for title, metric in (("median", "sojourn_median"), ("p99", "sojourn_p99"))
        ),
        Claim(
            f"{name}, short path: drops and marks off the kernel's ({why})",
            but_row(LONG_ROW, distance(switch, kernel, "queue_drops", "queue_marks")),
            *("at most", signals),
        ),
    )


def _follows(
    when: str, row: str, lost: str = "lost", queue: str = "queue_max"
) -> tuple[Claim, ...]:
    """Return the claims that a rate which follows loses nothing and keeps max(Q) under the FIFO."""
    packets = figures(lost, "max", "following")
    percent = figures_per(queue, "max", percent_of_fifo, "following")
    of_fifo = f"following, {when}: max(Q), % of the FIFO"
    return (
        Claim(f"following, {when}: packets lost", in_row(row, packets), "at most", 0),
        Claim(of_fifo, in_row(row, percent), "at most", 100, 1),
    )


RATE_ERROR_MAX_PPM = 10
"""The bound of `tests/accuracy` for classes that do not contend for the port. A tenth of what
Ethernet allows a line's own clock (100 ppm, IEEE 802.3)."""

PAUSE_FRAMES = "PAUSE frames and accounted gaps: difference of the"


def _of_udp(row: str) -> tuple[Claim, ...]:
    """Return the claims on UDP's part of the line."""
    offered = 100 * UDP_BPS[row] / LINE_BPS
    shares = {STRICT: offered} | dict.fromkeys(BY_WEIGHT, min(offered, UDP_WEIGHT_PERCENT))
    return tuple(
        Claim(
            f"{column}, {row}: UDP's part of the line off its share of {percent:g} %",
            in_row(row, off_fluid_share(column, percent, ("first_rate", "last_rate"))),
            *("at most", 1, 2),
        )
        for column, percent in shares.items()
    )


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "targets": (
        Claim("mean off the target rate, ppm", off_target, "at most", RATE_ERROR_MAX_PPM, 3),
    ),
    "fig1": (
        Claim(
            "timer-driven, HZ 1000: most packets back to back (published: "
            f"{FIG_1_PACKETS_OF_A_TICK})",
            column_of("most back to back", pacing="timer-driven"),
            *("at least", FIG_1_PACKETS_OF_A_TICK),
        ),
        Claim(
            "ideal: most packets back to back",
            column_of("most back to back", pacing="ideal"),
            *("at most", 1),
        ),
    ),
    "table5": (
        *_without_extra(
            _none_lost("paced"),
            _none_lost_at_edge("paced"),
            Claim(
                "paced: second half, % of the limit",
                figures_per("steady", "min", percent_of_limit, "paced"),
                *("at least", 99, 2),
            ),
            Claim(
                "paced: queue of the virtual bottleneck, bytes",
                figures("queue_max", "max", "paced"),
                *("at most", MTU_FRAME_BYTES),
                realtime_limit=2 * MTU_FRAME_BYTES,
            ),
        ),
        *_without_extra(*_as_published()),
        Claim(
            "tick-driven TBF, rate without FCS, FIFO 64 KB: packets lost (published: 402)",
            in_row("64KB", figures("lost", "min", "tick-driven TBF")),
            *("more than", 0),
        ),
    ),
    "slides": (
        *_without_extra(
            Claim(
                "PSPD under the talk's conditions: packets lost (published: 285)",
                in_row("1MB", figures("lost", "min", "PSPD")),
                *("more than", 0),
            ),
            _none_lost("dynamic"),
            Claim(
                "paced: packets lost (published: 0)",
                figures("lost", "max", "paced"),
                *("at most", 0),
            ),
            Claim(
                "paced: goodput above PSPD's, Mbit/s (published: 433 and 315)",
                in_row("1MB", difference("paced", "PSPD", "goodput")),
                *("more than", 0, 1),
            ),
            Claim(
                "PSPD under the talk's conditions: packets lost, minus unpaced's (published: "
                "285 and 1,455)",
                in_row("1MB", difference("PSPD", "unpaced", "lost")),
                *("less than", 0),
            ),
        ),
        *_wins("FIFO 1 MB, "),
    ),
    "ackclock": (
        Claim(
            "unpaced, FIFO of the published size: packets lost",
            in_row("FIFO 3.125 MB", figures("lost", "max", "unpaced")),
            *("at most", 0),
        ),
        Claim(
            "unpaced, FIFO of three fifths of it: packets lost",
            in_row("FIFO 1.875 MB", figures("lost", "min", "unpaced")),
            *("more than", 0),
        ),
        _none_lost("paced"),
    ),
    "delays": (*_wins("FIFO 256 KB, "), *_estimates()),
    "fig2": _as_published(),
    "fig8": _as_published(),
    "fig9": (
        *_as_published(),
        Claim(
            "paced: the smaller of two flows, % of a fair share (97.5: within 5 % of each other)",
            figures("share", "min", "paced"),
            *("at least", 97.5, 2),
        ),
        _none_lost("paced"),
    ),
    "pfldnet": (
        # The quoted figures have this in common over all FIFOs. FAST's are left out: its
        # substitutes do not reproduce it.
        Claim(
            "Scalable, paced: goodput above unpaced's, Mbit/s (published: 217 to 316, not checked)",
            difference("scalable, paced", "scalable, unpaced", "goodput"),
            *("more than", 0, 1),
        ),
        Claim(
            "Scalable, paced: packets lost, minus unpaced's (published: fewer, not checked)",
            difference("scalable, paced", "scalable, unpaced", "lost"),
            *("less than", 0),
        ),
    ),
    "burstiness": (
        Claim(
            "tick-driven TBF, HZ 100, at the sender: max(Q), KB (published: 58.8; a tick has 48.8)",
            figures("near_queue_max", "min", "tick-driven TBF, HZ 100"),
            *("at least", 48.8, 1),
        ),
        Claim(
            "paced, at the sender: max(Q), KB (one frame; in real time two)",
            figures("near_queue_max", "max", "paced"),
            *("at most", round(MTU_FRAME_BYTES / KIB, 3), 3),
            realtime_limit=round(2 * MTU_FRAME_BYTES / KIB, 3),
        ),
    ),
    "burst-loss": (
        Claim(
            "runs that lose packets though static max(Q) fits the FIFO, or lose none though it "
            "does not",
            mistaken,
            *("at most", 0),
        ),
    ),
    "ipg-rates": (
        Claim(
            "fixed gaps: second half off the published goodput (941 and 567 Mbit/s), %",
            off_published("steady", "IPG"),
            *("at most", 1, 2),
        ),
    ),
    "ipg-tuning": tuple(
        Claim(
            f"gap of 1023 bytes: {title} of the seeds, minus that of the 8-byte gap, Mbit/s",
            difference("IPG 1023", "IPG 8", "goodput", which=which),
            *(bound, limit, 1),
        )
        for title, which, bound, limit in (
            ("maximum", "max", "more than", 0),
            ("average", "mean", "more than", 0),
            ("minimum", "min", "at most", 0.5),
        )
    ),
    "ipg": (
        *_wins("medians of nine seeds, "),
        Claim(
            "dynamic, above 25 ms one way: goodput, % of each fixed gap's with the same seed, "
            "median over the seeds (published: best)",
            without_extra(over_long_paths(of_each_gap, ABOVE_25_MS_RTT_NS)),
            *("at least", 97, 1),
        ),
        *(
            Claim(
                f"{column}, 100 ms one way and more: deviation / mean in the second half, minus "
                "each fixed gap's with the same seeds",
                without_extra(over_long_paths(above_fixed_gaps(column), LONGEST_RTT_NS)),
                *("less than", 0, 3),
            )
            for column in ("dynamic", "PSPD")
        ),
        *_estimates(),
    ),
    "clustered": tuple(
        Claim(
            f"{column}: goodput above unpaced's, Mbit/s",
            difference(column, "unpaced", "goodput"),
            *("more than", 0, 1),
        )
        for column in ("clustered", "clustered, 12.5 us")
    ),
    "parallel": (_none_lost("paced"),),
    "bwc2002": (
        Claim(
            "unpaced: the largest stream, % of a fair share (published: unequal)",
            figures("largest_share", "min", "unpaced"),
            *("at least", 200, 1),
        ),
        Claim(
            "paced: the smallest stream, % of a fair share",
            figures("share", "min", "paced"),
            *("at least", 99, 2),
        ),
    ),
    "fast-ethernet": (
        Claim(
            "senders on Fast Ethernet: deviation / mean in the second half, minus that of gigabit "
            "senders",
            difference("Fast Ethernet", "gigabit", "deviation"),
            *("less than", 0, 3),
        ),
    ),
    "cooperative": (
        *_shares("shared"),
        *_shares("shared, windows"),
        _none_lost_at_edge("shared, windows"),
    ),
    "gaps": (
        Claim(
            f"{PAUSE_FRAMES} virtual bottleneck's queues, bytes (one shortest frame)",
            distance("paced", "paced, PAUSE frames", "queue_max"),
            *("at most", MIN_FRAME_WIRE_BYTES),
        ),
        Claim(
            f"{PAUSE_FRAMES} bytes through the bottleneck (one packet at the end)",
            distance("paced", "paced, PAUSE frames", "wire_bytes"),
            *("at most", MTU_FRAME_BYTES),
        ),
    ),
    "backlog": (*_kept_short("paced, clamp"), *_kept_short("paced, ECN")),
    "synchronised": (
        Claim(
            "PSPD, 2 to 32 flows: flows that lose within one RTT, % of all, above unpaced's",
            but_row("64 flows", difference("PSPD", "unpaced", "together")),
            *("more than", 20, 1),
        ),
        Claim(
            "PSPD, in slots, 2 to 32 flows: flows that lose within one RTT, % of all, above "
            "unpaced's",
            but_row("64 flows", difference("PSPD, in slots", "unpaced", "together")),
            *("more than", 10, 1),
        ),
        _none_lost("one class"),
        _none_lost_at_edge("one class"),
    ),
    "aggregation": (
        Claim(
            "flows that the edge interleaves, on one line, in slots or as one class: queue, "
            "packets",
            in_slots,
            *("at most", 1, 2),
        ),
        Claim(
            "flows begun a slot apart: queue, packets",
            column_of("begun a slot apart"),
            *("at most", 1, 2),
        ),
        Claim(
            "N flows in phase: queue in packets, divided by N (at most 1)",
            in_phase,
            *("at least", 1, 2),
        ),
        Claim(
            "random phase: longest queue above that of the same flows in slots, packets",
            random_above_interleaved,
            *("more than", 0, 2),
        ),
    ),
    "following": (
        *_follows("others come one by one", "one by one"),
        *_follows(LINE_STEP_BY_STEP, LINE_STEP_BY_STEP),
        *_follows(
            f"{LINE_AT_ONCE}, later than 0.5 s (max(Q): 1.5 s) after it",
            *(LINE_AT_ONCE, "lost_late", "queue_late"),
        ),
        *(
            Claim(
                f"following: packets lost, minus those of {column}",
                difference("following", column, "lost"),
                *("less than", 0),
            )
            for column in ("paced, 200M", "dynamic", "unpaced, BBR")
        ),
        Claim(
            "following: % of what is free",
            figures("used", "min", "following"),
            *("at least", 88, 1),
        ),
    ),
    "aqm": (
        *_as_the_kernel("CoDel"),
        *_as_the_kernel("FQ-CoDel"),
        *_as_the_kernel("PIE"),
        *_close_to_the_kernel("FQ-CoDel", 5, FLOWS, "one of each flow"),
        *_close_to_the_kernel("PIE", 15, 2 * FLOWS, "by chance; two of each flow"),
        Claim(
            "the switch's disciplines, with ECN: packets dropped",
            in_row(
                ECN_ROW, figures("queue_drops", "max", *(f"{name}, switch" for name in THAT_MARK))
            ),
            *("at most", 0),
        ),
        *(
            Claim(
                f"CoDel: {title} off the kernel's, in frames",
                distance_in_frames("CoDel, switch", "CoDel, kernel", metric),
                *("at most", 1.01, 2),
            )
            for title, metric in (
                ("median of the sojourn", "sojourn_median"),
                ("p99 of the sojourn", "sojourn_p99"),
            )
        ),
        Claim(
            "DualPI2: median of the classic sojourn, ms",
            figures("sojourn_median", "max", "DualPI2, switch"),
            *("at most", 16, 2),
        ),
    ),
    "l4s": (
        Claim(
            "DualPI2: p99 of the sojourn with ECT(1), ms",
            figures("first_sojourn_p99", "max", "DualPI2"),
            *("at most", 1, 2),
        ),
    ),
    "l4s-shares": (
        Claim(
            "DualPI2: rates of DCTCP and a classic flow, ratio off that of RFC 9332, %",
            off_published("rate_ratio", DUALPI2),
            *("at most", 15, 1),
        ),
        Claim(
            "DualPI2: median of the sojourn with ECT(1), ms",
            figures("first_sojourn_median", "max", DUALPI2),
            *("at most", 1, 2),
        ),
        Claim(
            "FQ-CoDel: ratio off 1, %",
            off_published("rate_ratio", "FQ-CoDel"),
            *("at most", 10, 1),
        ),
    ),
    "schedulers": tuple(
        Claim(
            f"{column}: the class's part of the goodput off its fluid share of {percent:.1f} %",
            off_fluid_share(column, percent),
            *("at most", 1, 2),
        )
        for column, (_, percent) in SCHEDULERS.items()
    ),
    "qos": (
        *(one for row in UDP_BPS for one in _of_udp(row)),
        Claim(
            f"{STRICT}: longest sojourn of EF, in frames",
            figures_per("first_sojourn_max", "max", frame_ms, STRICT),
            *("at most", 1, 2),
        ),
        *(
            Claim(
                f"{column}, {BELOW_ITS_WEIGHT}: longest sojourn of EF, in frames",
                in_row(BELOW_ITS_WEIGHT, figures_per("first_sojourn_max", "max", frame_ms, column)),
                *("at most", ROUND_FRAMES, 2),
            )
            for column in BY_WEIGHT
        ),
    ),
    "ecn": (
        Claim(
            f"{BY_PROGRAM}: packets dropped",
            figures("queue_drops", "max", BY_PROGRAM),
            *("at most", 0),
        ),
        Claim(
            f"DCTCP, {BY_PROGRAM}: second half, % of the limit",
            in_row("DCTCP", figures_per("steady", "min", percent_of_limit, BY_PROGRAM)),
            *("at least", 99, 1),
        ),
        Claim(
            f"DCTCP, {BY_PROGRAM}: p99 of the sojourn, in frames (K + N, and the one on the line)",
            in_row("DCTCP", figures_per("sojourn_p99", "max", frame_ms, BY_PROGRAM)),
            *("at most", MARK_FROM_PACKETS + STREAMS + 1, 1),
        ),
        *(
            Claim(
                f"{BY_PROGRAM}: {title} of the sojourn off Linux's, in frames",
                distance_in_frames(BY_PROGRAM, IN_LINUX, metric),
                *("at most", 1.5, 2),
            )
            for title, metric in (("median", "sojourn_median"), ("p99", "sojourn_p99"))
        ),
        Claim(
            f"{BY_PROGRAM}: p99 of the sojourn less that of {DROP_TAIL}, ms",
            but_row("DCTCP", difference(BY_PROGRAM, DROP_TAIL, "sojourn_p99")),
            *("less than", 0, 1),
        ),
    ),
}
"""The claims on each experiment, in the catalogue's order."""


def check(experiment: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each claim about an experiment, with its worst value and whether it holds.

    The value is None where figures are missing: a missing one could be the worst. Then a claim is
    open (None) while runs are missing, and does not hold once all runs are made. A transfer that
    did not end has no time, for instance.
    """
    return [_checked(claim, rows) for claim in CLAIMS.get(experiment, ())]


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

"""docs/papers.md: its rows, and which figures of the experiments' tables are in them.

`FIGURES` gives the figures of a row in the order in which its cells "published" and "ours" have
them. Our figures are compared with the tables at the end of a pass, the published ones by
`tests/lfn/test_papers.py`. Numbers between them may be others, such as conditions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pacer_mininet import paths
from pacer_mininet.experiments.following import LINE_AT_ONCE, LINE_STEP_BY_STEP

PAGE = paths.REPO / "docs" / "papers.md"
COLUMNS = (
    *("what", "page", "in the code", "shown by"),
    *("published", "ours", "why they differ", "status"),
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")

Row = dict[str, str]
"""A row of the page, by column."""


def rows() -> list[Row]:
    """Return the rows of all tables with COLUMNS; ValueError for one with other columns."""
    found = []
    here = False
    for line in PAGE.read_text().splitlines():
        cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
        if not line.startswith("|"):
            here = False
        elif cells == COLUMNS:
            here = True
        elif here and not line.startswith("|---"):
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


def numbers(text: str) -> list[str]:
    """Return the numbers of a cell, without their commas."""
    return [number.replace(",", "") for number in _NUMBER.findall(text)]


class Figure(NamedTuple):
    """A figure of a table: row and column of its cell, the metric, and which of its seeds' values.

    In a table of the switch alone, the metric is the title of a column.
    """

    row: str
    column: str
    metric: str
    which: str = "median"


Figures = tuple[Figure, ...]


def _cells(row: str, columns: Iterable[str], *metrics: str, which: str = "median") -> Figures:
    """Return the metrics of the first column, of the second one, and so on."""
    return tuple(Figure(row, column, metric, which) for column in columns for metric in metrics)


def _accuracy(table: str, per_packets: int, target_mbps: int) -> Figures:
    of = (f"{name}, Mbit/s" for name in ("min", "max", "mean"))
    return _cells(f"{table}, {per_packets}, {target_mbps}", [""], *of, "burst, MTU")


def _spread(row: str, column: str, metric: str) -> Figures:
    return tuple(Figure(row, column, metric, which) for which in ("max", "mean", "min"))


_CBR = "40 Mbit/s CBR"
_TICKS = "tick-driven TBF, HZ 100"
_TABLE_5 = ("unpaced", "tick-driven TBF", "paced")
_TALK = ("unpaced", "PSPD", "dynamic", "paced")
_PFLDNET = (
    *("scalable, unpaced", "scalable, paced"),
    *("vegas for FAST, unpaced", "vegas for FAST, paced", "bbr for FAST, unpaced"),
)
_FAR_IPG = "596 Mbit/s, 200 ms"
_NODES, _MANY_NODES = "4 nodes x 4 streams", "24 nodes x 2 streams"
_FOLLOWING = ("following", "paced, 200M", "dynamic", "fq, 200M", "unpaced, BBR")
_LINE = ("following", "paced, 200M", "dynamic", "unpaced, BBR")
_GOODPUT_LOST = ("goodput", "lost")

FIGURES: dict[str, dict[str, Figures]] = {
    "tables2-4": {
        **{f"Table 2: {mbps} M": _accuracy("2", 1, mbps) for mbps in (10, 500, 930)},
        "Table 4, n = 1: 20 M of five rates": _accuracy("4", 1, 20),
        **{
            f"Table 4, n = {per_packets}: {mbps} M": _accuracy("4", per_packets, mbps)
            for per_packets, first in ((1, 50), (2, 20))
            for mbps in (20, 50, 100, 300, 500)
            if mbps >= first
        },
    },
    "table5": {
        "Table 5, 16 KB: unpaced / TBF / PSPacer, goodput and lost": _cells(
            "16KB", _TABLE_5, *_GOODPUT_LOST
        ),
        "Table 5, 64 KB": _cells("64KB", _TABLE_5, *_GOODPUT_LOST),
        "Table 5, 256 KB": _cells("256KB", _TABLE_5, *_GOODPUT_LOST),
        "Table 5, 1024 KB": _cells("1MB", _TABLE_5, *_GOODPUT_LOST),
        "Table 5, 4096 KB": _cells("4MB", _TABLE_5, *_GOODPUT_LOST),
    },
    "fig9": {
        "Fig. 9: 2-to-2, FIFO 32 KB": (
            *_cells("32KB", ["paced"], "goodput", "steady", "share", "lost"),
            *_cells("32KB", ["unpaced"], *_GOODPUT_LOST),
        ),
    },
    "slides": {
        "no pacing: TCP by iperf / Ethernet by GtrcNET-1 / lost": _cells(
            "1MB", ["unpaced"], "goodput", "near_abw_mean", "lost"
        ),
        "PSPD, dynamic": _cells("1MB", ["PSPD", "dynamic"], "goodput", "near_abw_mean", "lost"),
        "PSPS, static at 500 M": _cells("1MB", ["paced"], "goodput", "near_abw_mean", "lost"),
        "round-trip times of 0 and 50 ms": (
            *_cells("1MB, 0 ms", _TALK, *_GOODPUT_LOST),
            *_cells("1MB, 50 ms", _TALK, *_GOODPUT_LOST),
        ),
    },
    "pfldnet": {
        "64 KB: Scalable unpaced / paced, FAST unpaced / paced; MB/s (Mbit/s), lost": _cells(
            "64KB", _PFLDNET, *_GOODPUT_LOST
        ),
        **{f"{kb} KB": _cells(f"{kb}KB", _PFLDNET, *_GOODPUT_LOST) for kb in (128, 256, 512)},
    },
    "burstiness": {
        "TBF at the sender: ABW mean / max, max(Q) mean / max in KB": _cells(
            *(_CBR, [_TICKS, "TBF"]),
            *("near_abw_mean", "near_abw_max", "near_queue_mean", "near_queue_max"),
        ),
        "PSPacer at the sender": _cells(
            *(_CBR, ["paced"]),
            *("near_abw_mean", "near_abw_max", "near_queue_mean", "near_queue_max"),
        ),
        **{
            f"{name} at the receiver; lost": _cells(
                *(_CBR, [column], "far_abw_mean", "far_abw_max"),
                *("far_queue_mean", "far_queue_max", "loss_share"),
            )
            for name, column in (("TBF", _TICKS), ("PSPacer", "paced"))
        },
    },
    "ipg-rates": {
        "a TCP stream on gigabit Ethernet": (
            *_cells("12 bytes", ["IPG"], "steady"),
            *_cells("1023 bytes", ["IPG"], "steady"),
        ),
    },
    "ipg-tuning": {
        "tuning at 596 M, 200 ms: 1023 bytes raise maximum and average, 512 and more the maximum "
        "only, the minimum never": (
            *_spread(_FAR_IPG, "IPG 1023", "goodput"),
            *_spread(_FAR_IPG, "IPG 512", "goodput"),
            *_spread(_FAR_IPG, "IPG 256", "goodput"),
            *_spread(_FAR_IPG, "IPG 8", "goodput"),
        ),
    },
    "clustered": {
        "Clustered Packet Spacing: only while RTT / cwnd > threshold (1 ms) in the first slow "
        "start": _cells(_FAR_IPG, ["clustered", "unpaced", "clustered, 12.5 us"], *_GOODPUT_LOST),
    },
    "parallel": {
        "parallel streams: 16 nodes x 4 streams": (
            *_cells(_NODES, ["paced"], "goodput", "steady", "lost", "jain"),
            *_cells(_NODES, ["unpaced"], "goodput", "lost", "jain"),
        ),
    },
    "bwc2002": {
        "before: 24 x 2 streams, 550 M, 91 %, unequal": _cells(
            _MANY_NODES, ["unpaced", "paced"], "goodput"
        ),
    },
    "fast-ethernet": {
        "Fast Ethernet senders steadier than gigabit ones": _cells(
            _MANY_NODES, ["Fast Ethernet", "gigabit"], "deviation", "goodput", "lost", "jain"
        ),
    },
    "following": {
        "a rate that follows burstiness downstream": (
            *_cells("one by one", _FOLLOWING, "lost", "used"),
            *_cells("at once", _FOLLOWING, "lost", "used"),
            *_cells(LINE_STEP_BY_STEP, _LINE, "lost", "used"),
            *_cells(LINE_AT_ONCE, _LINE, "lost", "used"),
        ),
    },
    "l4s": {
        "L4S beside classic traffic": _cells(
            *("UDP with ECT(1) beside 4 CUBIC", ["DualPI2"]),
            *("first_sojourn_median", "first_sojourn_p99"),
        ),
    },
    "l4s-shares": {
        "L4S beside classic traffic": (
            *_cells("DCTCP beside CUBIC, 25 ms", ["DualPI2"], "rate_ratio"),
            *_cells("DCTCP beside CUBIC, 10 ms", ["DualPI2"], "rate_ratio"),
            *_cells("DCTCP beside Reno, 25 ms", ["DualPI2"], "rate_ratio"),
        ),
    },
}
"""The figures of rows, by experiment and by the row's cell "what"."""


def first_missing(values: Iterable[float], text: str) -> float | None:
    """Return the first value that a text has not, rounded as there, behind those before it."""
    there = iter(numbers(text))
    for value in values:
        if not any(_rounded(value, number) == float(number) for number in there):
            return value
    return None


def _rounded(value: float, like: str) -> float:
    return float(f"{value:.{len(like.partition('.')[2])}f}")


def stale(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, as sentences, the rows whose figures are not those of the experiments' tables.

    A row of which runs are missing, or are scaled down, is not compared.
    """
    page = {row["what"]: row["ours"] for row in rows()}
    said = []
    for table in tables:
        if table["quick"]:
            continue
        values = _values(table)
        for what, figures in FIGURES.get(table["name"], {}).items():
            known = [values[figure] for figure in figures if figure in values]
            missing = first_missing(known, page.get(what, ""))
            if len(known) == len(figures) and missing is not None:
                name = table["name"]
                said.append(f"docs/papers.md, {what!r}: {missing:g} of {name} is not in its place")
    return said


def _values(table: Mapping[str, Any]) -> dict[Figure, float]:
    """Return the figures of a table of runs, or of Tables 2 to 4."""
    return {
        Figure(row["row"], row["column"], metric, which): value[which]
        for row in table["rows"]
        for metric, value in row["values"].items()
        if value is not None
        for which in ("median", "min", "mean", "max")
    } | {
        Figure(f"{row['table']}, {row['per n packets']}, {row['target, Mbit/s']:g}", "", metric): of
        for row in table.get("virtual", ())
        if "per n packets" in row
        for metric, of in row.items()
    }

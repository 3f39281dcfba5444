"""The benchmark's results as Markdown tables, for people and for docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def thousands(name: str) -> Callable[[Row], str]:
    """A number in thousands."""
    return lambda row: f"{row[name] / 1000:.0f}"


def ratio(name: str) -> Callable[[Row], str]:
    """A number of order one."""
    return lambda row: f"{row[name]:.2f}"


def us(name: str) -> Callable[[Row], str]:
    """A time in us."""
    return lambda row: f"{row[name]:,.1f}"


def text(name: str) -> Callable[[Row], str]:
    """The unchanged value; empty without one."""
    return lambda row: str(row.get(name, ""))


def polling(row: Row) -> str:
    """The switch's own account of how closely it polled."""
    if "polling" not in row:
        return ""
    seen = row["polling"]
    return (
        f"{seen['interval_max_ns'] / 1e3:.0f} us; {seen['stalls']}, at most "
        f"{seen['stall_max_ns'] / 1e3:.0f} us"
    )


FORWARDING: Sequence[Column] = (
    ("target", text("target")),
    ("program", text("program")),
    ("bytes", text("frame_bytes")),
    ("kpps", thousands("pps")),
    ("of bare", ratio("of_bare")),
    ("k per CPU s", thousands("packets_per_cpu_second")),
    ("of bare", ratio("of_bare_per_cpu_second")),
)

GAPS: Sequence[Column] = (
    ("shaper", text("shaper")),
    ("rate, Mbit/s", lambda row: f"{row['rate_bps'] / 1e6:.0f}"),
    ("mean", lambda row: f"{row['mean_rate_bps'] / 1e6:.2f}"),
    ("error p50, us", us("p50_us")),
    ("p99", us("p99_us")),
    ("p99.9", us("p999_us")),
    ("max", us("max_us")),
    ("in a row", text("back_to_back_max_unstalled")),
    ("behind stalls, too", text("back_to_back_max")),
    ("CPU", lambda row: f"{row['cpu_share']:.0%}" if "cpu_share" in row else ""),
    ("between polls; stalls", polling),
)

BUSY: Sequence[Column] = (
    ("shaper", text("shaper")),
    ("rate, Mbit/s", lambda row: f"{row['rate_bps'] / 1e6:.0f}"),
    ("mean", lambda row: f"{row['mean_rate_bps'] / 1e6:.2f}"),
    ("of the rate", lambda row: f"{row['mean_rate_bps'] / row['rate_bps']:.3f}"),
    ("virtual-bottleneck queue, bytes", lambda row: f"{row['queue_max_bytes']:,.0f}"),
    ("error p50, us", us("p50_us")),
    ("p99", us("p99_us")),
)

TRAINS: Sequence[Column] = (
    ("rate, Mbit/s", lambda row: f"{row['rate_bps'] / 1e6:.0f}"),
    ("error p99 without trains, us", us("without_p99_us")),
    ("beside trains", us("beside_p99_us")),
    ("ratio", ratio("ratio")),
    ("rate beside them, Mbit/s", lambda row: f"{row['mean_rate_bps'] / 1e6:.2f}"),
    ("trains, Gbit/s", lambda row: f"{row['trains_bps'] / 1e9:.2f}"),
    ("earliest frame, us before its time", us("early_us")),
)

STAGES: Sequence[Column] = (
    ("program", text("program")),
    ("one thread, us of a packet", ratio("one_us")),
    ("three: receiving", ratio("receive_us")),
    ("program", ratio("program_us")),
    ("sending", ratio("send_us")),
    ("calculated, with a processor each: kpps", thousands("calculated_pps")),
    ("of one thread", ratio("calculated_ratio")),
)

LATENCY: Sequence[Column] = (
    ("target", text("target")),
    ("program", text("program")),
    ("latency p50, us", us("p50_us")),
    ("p99", us("p99_us")),
    ("max", us("max_us")),
)

IDLE: Sequence[Column] = (
    ("target", text("target")),
    ("ports, no traffic", text("ports")),
    ("CPU", lambda row: f"{row['cpu_share']:.2%}"),
    ("over, s", lambda row: f"{row['seconds']:.0f}"),
)

EDGES: Sequence[Column] = (
    ("rate, Mbit/s", lambda row: f"{row['rate_bps'] / 1e6:.0f}"),
    ("edge", text("edge")),
    ("goodput, 2nd half, % of what fits", lambda row: f"{row['of_ideal'] * 100:.1f}"),
    ("held, at most", text("held_max")),
    ("lost in the edge", text("edge_lost")),
    ("of them counted", text("edge_counted")),
    ("lost at the bottleneck", text("bottleneck_lost")),
    ("gap, us", us("gap_us")),
    ("error p50, us", us("gap_error_p50_us")),
    ("p99", us("gap_error_p99_us")),
)

TCP: Sequence[Column] = (
    ("between the hosts", text("row")),
    ("Gbit/s", lambda row: f"{row['bps'] / 1e9:.2f}"),
    (
        "least to most",
        lambda row: f"{min(row['readings_bps']) / 1e9:.2f} to {max(row['readings_bps']) / 1e9:.2f}",
    ),
    ("of the rate", lambda row: f"{row['bps'] / row['rate_bps']:.2f}" if row["rate_bps"] else ""),
)

FLOOD: Sequence[Column] = (
    ("flooded", text("flooded")),
    ("error p99 without, us", us("without_p99_us")),
    ("with", us("with_p99_us")),
    ("ratio", ratio("ratio")),
    ("rate with, Mbit/s", lambda row: f"{row['mean_rate_bps'] / 1e6:.2f}"),
    ("changes", text("changes")),
    ("refused", text("refused")),
    ("p99, ms", lambda row: f"{row['change_p99_ms']:.1f}"),
    ("max, ms", lambda row: f"{row['change_max_ms']:.1f}"),
    ("refused calls and connections", text("strangers_refused")),
)

COLUMNS: dict[str, Sequence[Column]] = {
    "forwarding": FORWARDING,
    "gaps": GAPS,
    "spin": (("spin, us", text("spin_us")), *GAPS),
    "busy": BUSY,
    "trains": TRAINS,
    "stages": STAGES,
    "latency": LATENCY,
    "idle": IDLE,
    "edges": EDGES,
    "flood": FLOOD,
    "tcp": TCP,
}


def markdown(part: str, rows: Sequence[Row]) -> str:
    """The rows of a part of the benchmark as a table, a line each."""
    columns = COLUMNS[part]
    lines = [[title for title, _ in columns], ["---"] * len(columns)]
    lines += [[show(row) for _, show in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

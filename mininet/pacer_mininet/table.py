"""The demo's table: what was measured, beside what was published."""

from typing import Any

from pacer_mininet.published import published
from pacer_mininet.units import format_duration, format_rate, format_size

TITLES = {
    "unpaced": "unpaced",
    "tbf": "Linux TBF at the sender",
    "paced": "paced by pacer.p4",
    "ovs-meter": "Open vSwitch's meter",
    "ovs-paced": "paced by Open vSwitch",
}

GOODPUT_SHARE_OF_LINE = (1448, 1518)
"""Payload of a full frame (MTU 1500, TCP timestamps) over its layer-2 bytes with FCS."""

COLUMNS = (
    "",
    "goodput",
    "2nd half",
    "lost: bottleneck",
    "lost: edge",
    "resent",
    "RTT min / mean / max",
    "500 µs bin max / p99",
    "VB queue max",
    "published: goodput",
    "published: lost",
)


def ideal_goodput_bps(rate_bps: int) -> int:
    """Return the TCP payload that a rate (layer 2 with FCS) can carry: 476.9 of 500 Mbit/s."""
    payload, frame = GOODPUT_SHARE_OF_LINE
    return rate_bps * payload // frame


def mbps(rate_bps: float) -> str:
    """Return `476.9` from 476,943,346."""
    return f"{rate_bps / 1e6:.1f}"


def row(run: dict[str, Any]) -> list[str]:
    """Return the cells of a run, in the order of COLUMNS."""
    rtt = run["rtt_ms"]
    paper = published(run["fifo_bytes"], run["rate_bps"], round(run["rtt_ms_path"] * 1e6))
    row_of_paper = paper.get(run["name"]) if paper else None
    return [
        TITLES[run["name"]],
        mbps(run["goodput_bps"]),
        mbps(run["goodput_second_half_bps"]),
        f"{run['bottleneck_drops']:,}",
        f"{run['edge_drops']:,}",
        f"{run['retransmits']:,}",
        f"{rtt['min']:.1f} / {rtt['mean']:.1f} / {rtt['max']:.1f}",
        f"{mbps(run['bin_max_bps'])} / {mbps(run['bin_p99_bps'])}",
        f"{run['vb_max_bytes']:,}",
        f"{row_of_paper.goodput_mbps:g}" if row_of_paper else "-",
        f"{row_of_paper.lost_packets:,}" if row_of_paper else "-",
    ]


def heading(runs: list[dict[str, Any]]) -> str:
    """Return one line that says what path, what sender and where this was."""
    first = runs[0]
    controls = sorted({run["congestion_control"] for run in runs})
    where = (
        f"virtual time, Linux {first['kernel']}"
        if first["mode"] == "lab"
        else f"real time, Linux {first['kernel']}"
    )
    rtt = format_duration(round(first["rtt_ms_path"] * 1e6))
    return (
        f"{format_rate(first['rate_bps'])}, RTT {rtt}, FIFO {format_size(first['fifo_bytes'])}, "
        f"TCP {'/'.join(controls)}, {first['seconds']} s, {where}"
    )


def lateness(run: dict[str, Any]) -> str:
    """Return, by switch, how late departures were at most and what the machine took."""
    texts = []
    for switch, late_ns in run["lateness_max_ns"].items():
        text = f"{switch} {late_ns / 1e6:.2f} ms"
        stalls = run["stalls"].get(switch)
        if stalls is not None:
            text += f" ({stalls['count']} times, {stalls['total_ns'] / 1e6:.1f} ms)"
        texts.append(text)
    return ", ".join(texts)


def notes(runs: list[dict[str, Any]]) -> list[str]:
    """Return the sentences that belong under the table."""
    first = runs[0]
    ideal = mbps(ideal_goodput_bps(first["rate_bps"]))
    lines = [
        f"Goodput in Mbit/s, the receiver's; {ideal} is all that the bottleneck can carry. (What "
        "iperf's sender reports would include what still sits in its buffer and in the pacer.) "
        "RTT in ms. "
        "VB queue: bytes in front of a virtual bottleneck of the same rate, the packet that "
        "arrives included (one MTU is 1518).",
        "Published: Takano et al., IPSJ Vol. 47 SIG 7 (ACS 14), Table 5.",
    ]
    if first.get("mode") == "realtime":
        lines.append(
            "Departures late by at most (and how often the machine stalled the switch for 100 us "
            "and more, for how long in all): "
            + "; ".join(f"{TITLES[run['name']]}: {lateness(run)}" for run in runs)
            + "."
        )
    # Only a run nobody chose a congestion control for may use another one: see congestion.py.
    missing = {run["congestion_control_asked"] for run in runs} - {
        run["congestion_control"] for run in runs
    }
    if missing:
        lines.append(
            f"This machine's kernel has no {', '.join(sorted(missing))}, which is the default: "
            f"the runs used {first['congestion_control']}. (The lab's kernel has it.)"
        )
    tbf = next((run["shaper"] for run in runs if run["name"] == "tbf"), None)
    if tbf is not None:
        lines.append(
            f"TBF at h1: rate {tbf['rate_bps']:,} bit/s (it counts frames without FCS, so this "
            f"is the bottleneck's rate for full frames), burst {tbf['burst_bytes']:,} bytes, "
            f"limit {tbf['limit_bytes']:,} bytes."
        )
    return lines


def plain(runs: list[dict[str, Any]]) -> str:
    """Return the table as plain text: one column per run, as it fits 80 characters."""
    rows = [row(run) for run in runs]
    first_width = max(map(len, COLUMNS))
    widths = [max(map(len, cells)) for cells in rows]
    lines = []
    for number, label in enumerate(COLUMNS):
        cells = [cells[number].rjust(width) for cells, width in zip(rows, widths, strict=True)]
        lines.append("  ".join([label.ljust(first_width), *cells]).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)

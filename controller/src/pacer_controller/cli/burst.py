"""`pacer burst`: burstiness, of a switch that measures or of a capture file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from pacer_controller import rates
from pacer_controller.burst import advice, capture
from pacer_controller.burst.flows import Flow, flow_of
from pacer_controller.burst.measure import DEFAULT_WINDOW_NS, Meter
from pacer_controller.cli import render
from pacer_controller.cli.connection import UsageError, path
from pacer_controller.cli.session import Session
from pacer_controller.cli.words import read_rate, read_size, read_time_ns
from pacer_controller.fields import FCS_BYTES

DEFAULT_WINDOW = f"{DEFAULT_WINDOW_NS // 10**6}ms"
MAX_FLOWS = 10_000
MIN_WINDOW_NS, MAX_WINDOW_NS = 1_000_000, 10_000_000_000

OTHER = "other packets"
"""Packets that are not IP, and flows beyond MAX_FLOWS."""


_SUFFIXES = (".pcap", ".pcapng", ".cap")


def is_file(source: str) -> bool:
    """Whether the source is a file, and not the name of a switch."""
    return "/" in source or source.endswith(_SUFFIXES) or Path(source).is_file()


def _need_file(source: str) -> None:
    if not Path(source).exists():
        raise UsageError(f"{source}: no such file")


def of_file(source: str, bottleneck: str | None, window: str, per_flow: bool) -> dict[str, Any]:
    """Return the burstiness of a capture file, as a whole or flow by flow.

    Raises:
        UsageError: the file or an option cannot be used.

    """
    _need_file(source)
    if bottleneck is None:
        raise UsageError("a file needs the rate of the virtual bottleneck: --vb 40Mbit")
    try:
        rate_bps = rates.parse_rate(read_rate(bottleneck))
        window_ns = read_time_ns(window)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not MIN_WINDOW_NS <= window_ns <= MAX_WINDOW_NS:
        raise UsageError(f"--window {window}: want 1ms to 10s")
    rate_q24 = rates.draining_bytes_per_ns_q24(rate_bps)
    meters: dict[str, Meter] = {}
    for flow, packet in _packets(source, per_flow):
        meter = meters.setdefault(flow, Meter(rate_q24, window_ns))
        meter.add(packet.at_ns, packet.length + FCS_BYTES)
    flows = [
        {"flow": flow if per_flow else None, **meter.measured().as_dict()}
        for flow, meter in meters.items()
    ]
    return {"file": source, "bottleneck_bps": rate_bps, "window_ns": window_ns, "measured": flows}


def advise(source: str, bottleneck: str | None, fifo: str | None, per_flow: bool) -> dict[str, Any]:
    """Return the smallest FIFO at a rate, or the lowest rate with a FIFO, that lose nothing.

    Raises:
        UsageError: the file or an option cannot be used, or there is no advice.

    """
    _need_file(source)
    if (bottleneck is None) == (fifo is None):
        raise UsageError("--advise needs either a rate, --vb 500Mbit, or a FIFO, --fifo 64KB")
    try:
        rate_bps = None if bottleneck is None else rates.parse_rate(read_rate(bottleneck))
        fifo_bytes = None if fifo is None else read_size(fifo)
    except ValueError as error:
        raise UsageError(str(error)) from None
    flows: dict[str, advice.Packets] = {}
    for count, (flow, packet) in enumerate(_packets(source, per_flow)):
        if count == advice.PACKETS_MAX:
            raise UsageError(f"{source}: more than {count} packets; give a shorter capture")
        flows.setdefault(flow, advice.Packets()).add(packet.at_ns, packet.length + FCS_BYTES)
    if not flows:
        raise UsageError(f"{source}: no whole packet in it")
    advised: list[dict[str, Any]] = []
    for flow, packets in flows.items():
        try:
            if rate_bps is not None:
                found = advice.fifo_for(packets, rate_bps)
            else:
                found = advice.rate_for(packets, fifo_bytes or 0)
        except advice.NoAdviceError as error:
            advised.append({"flow": flow if per_flow else None, "why_not": str(error)})
        else:
            advised.append({"flow": flow if per_flow else None, **asdict(found)})
    if not per_flow and advised and "why_not" in advised[0]:
        raise UsageError(f"{source}: {advised[0]['why_not']}")
    return {"file": source, "advised": advised}


def advice_table(source: str, advised: Sequence[Mapping[str, Any]]) -> Table:
    """Return advice as a table, a line for each flow."""
    shown = Table(box=box.SIMPLE)
    shown.add_column("")
    for title in ("rate", "FIFO", "this capture needs", "chance of loss"):
        shown.add_column(title, justify="right")
    for one in advised:
        name = str(one["flow"] or Path(source).name)
        if "why_not" in one:
            shown.add_row(name, "-", "-", "-", one["why_not"])
            continue
        chance = one["chance"]
        shown.add_row(
            # As they may be typed, since a rounded rate may lose packets.
            *(name, rates.format_rate(one["rate_bps"]), render.exact_size(one["fifo_bytes"])),
            *(render.size(one["needed_bytes"]), "unknown" if chance is None else f"{chance:.2%}"),
        )
    return shown


def _packets(source: str, per_flow: bool) -> Iterator[tuple[str, capture.Packet]]:
    """Give packets, each with its measurement.

    Raises:
        UsageError: the file cannot be used.

    """
    known: dict[Flow, str] = {}
    try:
        for packet in capture.read(Path(source)):
            if not per_flow:
                yield "", packet
                continue
            flow = flow_of(packet.data)
            if flow is None or (flow not in known and len(known) >= MAX_FLOWS):
                yield OTHER, packet
            else:
                yield known.setdefault(flow, str(flow)), packet
    except (OSError, capture.CaptureError) as error:
        raise UsageError(str(error)) from None


def of_switch(
    session: Session, switch: str, port: int | None, flow: str | None
) -> list[dict[str, Any]]:
    """Return the burstiness that a switch measured: of a port, of a flow, or of all there are."""
    target = path("switches", switch, "burstiness")
    if port is not None or flow is not None:
        query = {"port": port} if port is not None else {"flow": str(flow)}
        return [session.connection.get(target, query)]
    view = session.connection.get(path("switches", switch))
    if not view.get("wire") and not view.get("measured"):
        raise UsageError(
            f"switch {switch!r} measures nothing: want one with program gtrcnet and its wire, as "
            "in: pacer switch add wan address HOST:PORT program gtrcnet wire 1:2 bottleneck 40mbit"
        )
    pairs = [str(pair).split(":") for pair in view.get("wire") or ()]
    ports = sorted(int(number) for pair in pairs for number in pair)
    answers = [session.connection.get(target, {"port": number}) for number in ports]
    flows = view.get("measured") or {}
    return answers + [session.connection.get(target, {"flow": name}) for name in flows]


def table(rows: Sequence[tuple[str, Mapping[str, int]]]) -> Table:
    """Return summaries as a table, a line for each thing that was measured."""
    shown = Table(box=box.SIMPLE)
    shown.add_column("")
    for title in ("windows", "ABW mean", "ABW max", "max(Q) mean", "max(Q) max"):
        shown.add_column(title, justify="right")
    for title in ("dynamic: mean", "max", "previous window: mean", "max"):
        shown.add_column(title, justify="right")
    for name, summary in rows:
        unknown = " ?" if summary["dynamic_unknown_windows"] else ""
        shown.add_row(
            *(name, render.count(summary["windows"])),
            *(render.rate(summary["abw_mean_bps"]), render.rate(summary["abw_max_bps"])),
            *(render.size(summary["vb_mean_bytes"]), render.size(summary["vb_max_bytes"])),
            render.size(summary["dynamic_vb_mean_bytes"]),
            render.size(summary["dynamic_vb_max_bytes"]) + unknown,
            render.size(summary["previous_window_vb_mean_bytes"]),
            render.size(summary["previous_window_vb_max_bytes"]),
        )
    return shown


def _show_advice(session: Session, source: str, found: dict[str, Any]) -> None:
    if session.as_json:
        session.print_json(found)
    else:
        render.console().print(advice_table(source, found["advised"]))


@click.command(name="burst")
@click.argument("source", metavar="SWITCH|FILE")
@click.option("--port", type=click.IntRange(0, 3), help="Switch: only this port.")
@click.option("--flow", metavar="NAME", help="Switch: only this measured flow.")
@click.option(
    "--vb", "bottleneck", metavar="RATE", help="A file needs it: rate of the virtual bottleneck."
)
@click.option(
    *("--window", "window"),
    metavar="TIME",
    help=f"File: the window T (1ms to 10s, default {DEFAULT_WINDOW}).",
)
@click.option("--per-flow", is_flag=True, help="File: each flow (5-tuple) on its own.")
@click.option(
    *("--advise", "wants_advice"),
    is_flag=True,
    help="File: the smallest FIFO at the rate --vb, or the lowest rate with --fifo, without loss.",
)
@click.option("--fifo", metavar="SIZE", help="With --advise: the bottleneck's FIFO.")
@click.pass_obj
def burst(
    session: Session,
    source: str,
    port: int | None,
    flow: str | None,
    bottleneck: str | None,
    window: str | None,
    per_flow: bool,
    wants_advice: bool,
    fifo: str | None,
) -> None:
    """Show burstiness: the queue in front of a virtual bottleneck, and bandwidth, per window.

    Of a switch that runs gtrcnet, or of a capture file (pcap, pcapng): the same computation.
    Q counts the packet that arrives. Dynamic: the bottleneck has the average rate of the same
    window. Previous window: it has that of the window before.
    """
    if is_file(source) and (port is not None or flow is not None):
        raise UsageError("--port and --flow are of switches; of a file: --per-flow")
    if wants_advice or fifo is not None:
        if not wants_advice or not is_file(source) or window is not None:
            raise UsageError("--fifo needs --advise; --advise takes a capture file and no --window")
        _show_advice(session, source, advise(source, bottleneck, fifo, per_flow))
        return
    if is_file(source):
        found = of_file(source, bottleneck, window or DEFAULT_WINDOW, per_flow)
        rows = [
            (str(one["flow"] or Path(source).name), one["summary"]) for one in found["measured"]
        ]
    else:
        if bottleneck is not None or window is not None or per_flow:
            raise UsageError("--vb, --window and --per-flow are of files; a switch has its own")
        answers = of_switch(session, source, port, flow)
        found = {"switch": source, "measured": answers}
        rows = [
            (f"flow {one['flow']}" if one["flow"] else f"port {one['port']}", one["summary"])
            for one in answers
        ]
    if session.as_json:
        session.print_json(found)
    else:
        render.console().print(table(rows))

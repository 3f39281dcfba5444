"""The demo's runs: their flows, their paths, and the captions of their tables.

First, independent senders share a bottleneck; then a single flow has it alone.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pacer_mininet import congestion
from pacer_mininet.experiments.catalogue import with_control_for_bic
from pacer_mininet.experiments.experiment import Cell, Experiment, one_flow
from pacer_mininet.experiments.scenario import (
    BMV2_PACED,
    FQ,
    ONE_CLASS,
    OVS_METERED,
    OVS_PACED,
    PACED,
    TBF,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
)
from pacer_mininet.experiments.takano import PUBLISHED_AS, TICK_DRIVEN_TBF
from pacer_mininet.published import KIB, table_5, table_5_doubts
from pacer_mininet.published import RATE_BPS as PAPERS_RATE_BPS
from pacer_mininet.settings import SOCKET_BUFFER_BYTES
from pacer_mininet.traffic import MTU_FRAME_BYTES
from pacer_mininet.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

RUNS = {"unpaced": UNPACED, "tick-tbf": TICK_DRIVEN_TBF, "tbf": TBF, "paced": PACED}
"""The shaper of a single flow, by the name of the run."""

OVS_RUNS = {"ovs-meter": OVS_METERED, "ovs-paced": OVS_PACED}
BMV2_RUNS = {"bmv2-paced": BMV2_PACED}
EDGE_RUNS = {"pacing_switch": RUNS, "ovs": RUNS | OVS_RUNS, "bmv2": RUNS | BMV2_RUNS}
SINGLE_RUNS = RUNS | OVS_RUNS | BMV2_RUNS

BMV2_RATE_BPS = 5_000_000
BMV2_FIFO_BYTES = 16 * KIB
"""The path that stock BMv2 is shown on. The FIFO is not scaled like the rate: it would not hold a
frame."""

SHARED_BY = {
    "unpaced": UNPACED,
    "TBF in each": TBF,
    "fq in each": FQ,
    "one class at the edge": ONE_CLASS,
}
"""The shaper of several senders, by the title of the column. A sender that knows of no other one
shapes to the bottleneck's rate."""

SHARED_FIFO_BYTES = 32 * KIB
"""The FIFO of IPSJ Fig. 9."""

FIFO_BYTES = 64 * KIB
SECONDS, TWO_SECONDS, TEN_SECONDS = 5, 4, 5
REALTIME_SECONDS = 20
TEN = 10
TRANSFER_BYTES = 10_000_000
BETWEEN_STARTS_MS = 200

SHARED_METRICS = (
    *("goodput", "lost", "edge_lost", "queue_max", "rtt_max"),
    *("done", "completion_mean", "completion"),
)
METRICS = (
    *("goodput", "steady", "lost", "edge_lost", "resent"),
    *("rtt_min", "rtt_mean", "rtt_max", "bin_max", "bin_p99", "queue_max"),
)
REALTIME_METRICS = ("edge_late", "edge_stalls")

SHARED_DIFFERS = (
    "TBF and `fq` in a sender have the bottleneck's rate, which is right for a sender that is "
    "alone. A sender does not know of the others. A fixed share for each would leave the rest of "
    "the bottleneck idle while the others are silent. The switch at the edge sees all packets: one "
    "class spaces them, whoever sends.",
    "The class holds the packets that do not fit into the bottleneck. That is what the longer RTT "
    "is, and it ends with the transfers.",
)
DIFFERS = (
    "The published runs were made some twenty years ago, with the Linux of that time and a "
    "hardware link emulator. Goodput over the whole run includes slow start, in which the path is "
    "not full. Compare the second half.",
    "Unpaced, slow start doubles the window every round trip and sends the new part at the speed "
    "of the sender's line. The FIFO overflows while the window is still a small part of what the "
    "path holds. From there the congestion control needs many round trips to grow again. The "
    "number of lost packets depends on the TCP: today's starts with ten segments, and detects and "
    "repairs losses in other ways.",
    "The published TBF was woken by the tick of the system clock, and sent all packets that the "
    "time since the last tick allowed: tick-driven TBF, HZ 1000. Its rate is 500 Mbit/s without "
    "FCS, as TBF counts frames, which is 0.26 % more than the bottleneck carries. That is an "
    "assumption, and the losses follow from it: at the bottleneck's rate on the line it loses "
    "nothing. Today a high-resolution timer wakes TBF for each packet, so its bursts are at most "
    "the ten packets of its bucket.",
)
LAB_DIFFERS = (
    "The lab's clock stands still while programs compute, so no timer jitters and no process is "
    "late, for TBF and for the pacer. A run with REALTIME=1 shows the cost of TBF on a real "
    "machine. The same run gives the same numbers, to the bit, on every machine."
)
BMV2_DIFFERS = (
    "Stock BMv2 holds a packet by recirculating it, and at most 48 at a time, so the path is "
    "scaled down to a rate that it can carry. The bottleneck's rate, the sender's line and the TCP "
    "window are smaller by the same factor, and the RTT is the same. docs/bmv2.md says how far "
    "BMv2 gets."
)
REALTIME_DIFFERS = "This was measured in real time, so the next run differs a little."


def scaled_down(path: Scenario) -> Scenario:
    """Return a path whose line and window are scaled by the ratio of its rate to the papers' rate.

    For stock BMv2. The RTT stays.
    """
    share = Fraction(path.rate_bps, PAPERS_RATE_BPS)
    return dataclasses.replace(
        path,
        edge_rate_bps=round(path.edge_rate_bps * share),
        socket_buffer_bytes=max(MTU_FRAME_BYTES, round(SOCKET_BUFFER_BYTES * share)),
    )


def _path(options: argparse.Namespace, seconds: int, fifo_bytes: int) -> dict[str, Any]:
    """Return the arguments of a scenario that are its path, by the options or these defaults."""
    asked = options.seconds or (REALTIME_SECONDS if options.realtime else seconds)
    if not str(asked).isdecimal():
        raise ValueError(f"seconds {asked!r} is not a whole number")
    return {
        "seconds": int(asked),
        "rate_bps": parse_rate(options.rate),
        "rtt_ns": parse_duration(options.rtt),
        "fifo_bytes": parse_size(options.fifo) if options.fifo else fifo_bytes,
    }


def _said(path: Mapping[str, Any]) -> str:
    rate, rtt = format_rate(path["rate_bps"]), format_duration(path["rtt_ns"])
    return f"{rate}, RTT {rtt}, FIFO {format_size(path['fifo_bytes'])}"


def _two(shaper: Shaper, control: str) -> tuple[Flow, ...]:
    """Return the flows of IPSJ Fig. 9's two senders, to one receiver here."""
    return tuple(Flow(shaper, sender=number, congestion_control=control) for number in (1, 2))


def _ten(shaper: Shaper, control: str) -> tuple[Flow, ...]:
    """Return ten senders, each of which starts later than the one before, and ends."""
    return tuple(
        Flow(
            shaper,
            sender=number + 1,
            congestion_control=control,
            start_ms=number * BETWEEN_STARTS_MS,
            payload_bytes=TRANSFER_BYTES,
        )
        for number in range(TEN)
    )


SHARED = {
    "two": ("two senders", _two, TWO_SECONDS),
    "ten": ("ten senders that come and go", _ten, TEN_SECONDS),
}
"""Rows of the table of several senders, by the name of the runs: title, flows, duration."""


def shared_path(options: argparse.Namespace, names: Sequence[str]) -> Experiment:
    """Return the runs in which senders that do not know of each other share the bottleneck."""
    control = congestion.asked_for(options.cc)
    cells: list[Cell] = []
    for name in names:
        row, flows_of, seconds = SHARED[name]
        path = _path(options, seconds, SHARED_FIFO_BYTES)
        cells += [
            # One seed is enough for a demo.
            Cell(row, column, Scenario(flows_of(shaper, control), **path), extra=True)
            for column, shaper in SHARED_BY.items()
        ]
    return Experiment(
        name="shared",
        title=f"Senders that do not know of each other, TCP {control.upper()}: {_said(path)}",
        metrics=SHARED_METRICS,
        cells=tuple(cells),
        source="Published: two senders in IPSJ Fig. 9, a picture",
        plots=("senders",),
        differs=SHARED_DIFFERS,
    )


def single_flow(options: argparse.Namespace, names: Sequence[str]) -> Experiment:
    """Return the runs of a flow that has the bottleneck alone."""
    path = _path(options, SECONDS, FIFO_BYTES)
    control = congestion.asked_for(options.cc)
    on_bmv2 = options.edge == "bmv2"
    cells = []
    for name in names:
        shaper = SINGLE_RUNS[name]
        scenario = Scenario(one_flow(shaper, control), bins=True, **path)
        if on_bmv2:
            scenario = scaled_down(scenario)
        place = path["fifo_bytes"], PUBLISHED_AS.get(shaper.name, shaper.name)
        published = table_5(*place, scenario.rate_bps, scenario.rtt_ns)
        doubts = table_5_doubts(*place) if published else {}
        cells.append(Cell(_said(path), shaper.name, scenario, published, doubts=doubts))
    paper = any(cell.published for cell in cells)
    factor = f"1/{PAPERS_RATE_BPS / path['rate_bps']:g}"
    scale = f" (scaled: {factor} of the papers' rates and window)" if on_bmv2 else ""
    return Experiment(
        name="single",
        title=f"A single flow, TCP {control.upper()}: {_said(path)}{scale}",
        metrics=METRICS,
        cells=tuple(cells),
        source="Published: Takano et al., IPSJ Vol. 47 SIG 7 (ACS 14), Table 5" if paper else "",
        reproduces=("IPSJ Table 5",) if paper else (),
        plots=("bandwidth-queue",),
        differs=(BMV2_DIFFERS, *DIFFERS) if on_bmv2 else DIFFERS,
    )


def experiments_of(options: argparse.Namespace) -> list[Experiment]:
    """Return the demo as experiments; ValueError naming the option at fault.

    In real time the default is the single flow: eleven hosts need a machine of their own.
    """
    default = [*([] if options.realtime else SHARED), *EDGE_RUNS[options.edge]]
    names = options.runs.split(",") if options.runs else default
    for name in names:
        if name not in SHARED | SINGLE_RUNS:
            raise ValueError(f"run {name!r} is not one of {', '.join(SHARED | SINGLE_RUNS)}")
        if name in BMV2_RUNS and options.edge != "bmv2":
            raise ValueError(f"run {name!r} needs --edge bmv2")
    shared = [name for name in names if name in SHARED]
    single = [name for name in names if name in SINGLE_RUNS]
    made = [shared_path(options, shared)] if shared else []
    made += [single_flow(options, single)] if single else []
    for scenario in (cell.scenario for one in made for cell in one.cells):
        if scenario.rate_bps > scenario.edge_rate_bps:
            line = format_rate(scenario.edge_rate_bps)
            raise ValueError(f"rate {options.rate} is above the sender's {line}")
    return made


def for_kernel(experiment: Experiment, choice: str, *, realtime: bool) -> Experiment:
    """Return the experiment with the congestion control and the notes for the runs' kernel.

    Raises:
        CongestionControlError: the kernel lacks the one that was chosen.

    """
    available = congestion.of_this_kernel(choice) if realtime else congestion.of_the_lab()
    control = congestion.choose(choice, available, lab=not realtime)
    if control != congestion.asked_for(choice):
        experiment = with_control_for_bic(experiment, control)
    metrics = (*experiment.metrics, *REALTIME_METRICS) if realtime else experiment.metrics
    differs = (*experiment.differs, REALTIME_DIFFERS if realtime else LAB_DIFFERS)
    return dataclasses.replace(experiment, metrics=metrics, differs=differs)

"""The demo's command: three runs, a table, a picture, a report. See `../../demo.py`."""

import argparse
import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from pacer_mininet import congestion, paths
from pacer_mininet.experiments import jobs, page, plots, program, tables, versions
from pacer_mininet.experiments.catalogue import with_control_for_bic
from pacer_mininet.experiments.experiment import Cell, Experiment, one_flow
from pacer_mininet.experiments.progress import RunsDisplay
from pacer_mininet.experiments.results import results_directory, write_json
from pacer_mininet.experiments.scenario import (
    BMV2_PACED,
    OVS_METERED,
    OVS_PACED,
    PACED,
    TBF,
    UNPACED,
    Scenario,
)
from pacer_mininet.experiments.store import FOLDER, Store
from pacer_mininet.hosts import SOCKET_BUFFER_BYTES
from pacer_mininet.published import RATE_BPS as PAPERS_RATE_BPS
from pacer_mininet.published import table_5, table_5_doubts
from pacer_mininet.runs import LabUnavailableError, check_lab, need_root
from pacer_mininet.traffic import MTU_FRAME_BYTES
from pacer_mininet.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

RESULTS = paths.REPO / "results" / "demo"

RUNS = {"unpaced": UNPACED, "tbf": TBF, "paced": PACED}
OVS_RUNS = {"ovs-meter": OVS_METERED, "ovs-paced": OVS_PACED}
BMV2_RUNS = {"bmv2-paced": BMV2_PACED}
EDGE_RUNS = {"pacing_switch": RUNS, "ovs": RUNS | OVS_RUNS, "bmv2": RUNS | BMV2_RUNS}
ALL_RUNS = RUNS | OVS_RUNS | BMV2_RUNS

BMV2_RATE_BPS = 5_000_000
BMV2_FIFO_BYTES = 16 * 1024
"""The path that stock BMv2 is shown on. The FIFO is not scaled like the rate: it would not hold a
frame."""

METRICS = (
    *("goodput", "steady", "lost", "edge_lost", "resent"),
    *("rtt_min", "rtt_mean", "rtt_max", "bin_max", "bin_p99", "queue_max"),
)
REALTIME_METRICS = ("edge_late", "edge_stalls")

DIFFERS = (
    "The published runs were made some twenty years ago, with the Linux of that time and a "
    "hardware link emulator. Goodput over the whole run includes slow start, in which the path is "
    "not full. Compare the second half.",
    "Unpaced, slow start doubles the window every round trip and sends the new part at the speed "
    "of the sender's line. The FIFO overflows while the window is still a small part of what the "
    "path holds. From there the congestion control needs many round trips to grow again. The "
    "number of lost packets depends on the TCP: today's starts with ten segments, and detects and "
    "repairs losses in other ways.",
    "Today's TBF differs, too. The tick of the system clock used to wake it, and it sent all "
    "packets that had arrived since the last tick. Now a high-resolution timer wakes it for each "
    "packet, so its bursts are at most the ten packets of its bucket.",
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


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line; their defaults come from the environment."""
    environment = os.environ
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--fifo", default=environment.get("FIFO"))
    parser.add_argument(
        "--cc",
        default=congestion.UNCHOSEN,
        help="congestion control (default: bic; cubic where this machine's kernel lacks bic)",
    )
    parser.add_argument("--seconds", default=environment.get("SECONDS") or "20")
    parser.add_argument("--rate", default=environment.get("RATE"))
    parser.add_argument("--rtt", default=environment.get("RTT") or "200ms")
    program.add_flag(parser, "realtime", "on this machine's kernel instead of in the lab")
    parser.add_argument(
        "--edge",
        choices=tuple(EDGE_RUNS),
        default=environment.get("EDGE") or "pacing_switch",
        help="ovs: two more runs, with Open vSwitch as the edge switch (needs `make ovs`); bmv2: "
        "one more run, with stock BMv2 (needs simple_switch_grpc), in real time on a slower path",
    )
    parser.add_argument("--runs", help=f"some of {', '.join(ALL_RUNS)}, separated by commas")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    on_bmv2 = options.edge == "bmv2"
    options.fifo = options.fifo or (format_size(BMV2_FIFO_BYTES) if on_bmv2 else "64KB")
    options.rate = options.rate or format_rate(BMV2_RATE_BPS if on_bmv2 else PAPERS_RATE_BPS)
    # The lab's clock stands still while programs compute, and BMv2 computes all the time: it
    # recirculates the packets that it holds.
    options.realtime = options.realtime or on_bmv2
    return options


def scaled_down(path: Scenario, rate_bps: int) -> Scenario:
    """Return the papers' path with all its rates and its window smaller, for stock BMv2.

    The RTT stays.
    """
    share = Fraction(rate_bps, PAPERS_RATE_BPS)
    return dataclasses.replace(
        path,
        rate_bps=rate_bps,
        edge_rate_bps=round(path.edge_rate_bps * share),
        socket_buffer_bytes=max(MTU_FRAME_BYTES, round(SOCKET_BUFFER_BYTES * share)),
    )


def experiment_of(options: argparse.Namespace) -> Experiment:
    """Return the demo as an experiment; ValueError naming the option at fault."""
    names = options.runs.split(",") if options.runs else list(EDGE_RUNS[options.edge])
    for name in names:
        if name not in ALL_RUNS:
            raise ValueError(f"run {name!r} is not one of {', '.join(ALL_RUNS)}")
        if name in BMV2_RUNS and options.edge != "bmv2":
            raise ValueError(f"run {name!r} needs --edge bmv2")
    if not str(options.seconds).isdecimal():
        raise ValueError(f"seconds {options.seconds!r} is not a whole number")
    rate_bps, rtt_ns = parse_rate(options.rate), parse_duration(options.rtt)
    fifo_bytes = parse_size(options.fifo)
    control = congestion.asked_for(options.cc)
    row = f"{format_rate(rate_bps)}, RTT {format_duration(rtt_ns)}, FIFO {format_size(fifo_bytes)}"
    cells = []
    for name in names:
        path = Scenario(
            one_flow(ALL_RUNS[name], control),
            seconds=int(options.seconds),
            rate_bps=rate_bps,
            rtt_ns=rtt_ns,
            fifo_bytes=fifo_bytes,
            bins=True,
        )
        if options.edge == "bmv2":
            path = scaled_down(path, rate_bps)
        if rate_bps > path.edge_rate_bps:
            line = format_rate(path.edge_rate_bps)
            raise ValueError(f"rate {options.rate} is above the sender's {line}")
        shaper = path.flows[0].shaper.name
        published = table_5(fifo_bytes, shaper, rate_bps, rtt_ns)
        doubts = table_5_doubts(fifo_bytes, shaper) if published else {}
        cells.append(Cell(row, shaper, path, published, doubts=doubts))
    paper = any(cell.published for cell in cells)
    on_bmv2 = options.edge == "bmv2"
    factor = f"1/{PAPERS_RATE_BPS / rate_bps:g}"
    scale = f" (scaled: {factor} of the papers' rates and window)" if on_bmv2 else ""
    return Experiment(
        name="demo",
        title=f"TCP {control.upper()} on a long fat network: {row}{scale}",
        metrics=METRICS,
        cells=tuple(cells),
        source="Published: Takano et al., IPSJ Vol. 47 SIG 7 (ACS 14), Table 5" if paper else "",
        reproduces=("IPSJ Table 5",) if paper else (),
        plots=("bandwidth-queue",),
        differs=(BMV2_DIFFERS, *DIFFERS) if on_bmv2 else DIFFERS,
    )


def for_kernel(experiment: Experiment, choice: str, *, realtime: bool) -> Experiment:
    """Return the experiment with the congestion control and the notes for the runs' kernel.

    Raises:
        CongestionControlError: the kernel lacks the one that was chosen.

    """
    available = congestion.of_this_kernel(choice) if realtime else congestion.of_the_lab()
    control = congestion.choose(choice, available, lab=not realtime)
    if control != congestion.asked_for(choice):
        experiment = with_control_for_bic(experiment, control)
    metrics = (*METRICS, *REALTIME_METRICS) if realtime else METRICS
    differs = (*experiment.differs, REALTIME_DIFFERS if realtime else LAB_DIFFERS)
    return dataclasses.replace(experiment, metrics=metrics, differs=differs)


def make(experiment: Experiment, results: Path, *, realtime: bool) -> dict[str, str]:
    """Make all runs, print the table, write all files; return why runs failed, by name."""
    # A demo makes its runs anew each time.
    shutil.rmtree(results / FOLDER, ignore_errors=True)
    store = Store(results / FOLDER, versions.of_this_checkout(realtime=realtime))
    to_make = [
        dataclasses.replace(job, name=job.scenario.flows[0].shaper.name)
        for job in jobs.jobs_of([experiment])
    ]
    with RunsDisplay(to_make, "s" if realtime else "virtual s") as display:
        failed = jobs.make(to_make, store, display, realtime=realtime)
    found = tables.collect(experiment, store)
    write_json(results / "summary.json", found)
    drawn = plots.draw(experiment, tables.results_of(experiment, store))
    for _, content in drawn:
        (results / "bandwidth.png").write_bytes(content)
    page.write([found], {"demo": drawn}, results / "report.html", title=experiment.title)
    print(f"\n{experiment.title}\n\n{tables.plain(found)}")
    return failed


def _command(options: argparse.Namespace) -> int:
    experiment = experiment_of(options)
    program.need_parts()
    if options.edge == "bmv2":
        paths.need_bmv2()
    realtime = options.realtime
    if not realtime:
        try:
            check_lab()
        except LabUnavailableError as error:
            print(f"demo: no virtual-time lab here: {error}", file=sys.stderr)
            print("demo: measuring on this machine's kernel, in real time", file=sys.stderr)
            realtime = True
    if realtime:
        need_root()
    experiment = for_kernel(experiment, options.cc, realtime=realtime)
    began = time.monotonic()
    with results_directory(options.results):
        failed = make(experiment, options.results, realtime=realtime)
    program.report_failed("demo", failed)
    print(f"\n{time.monotonic() - began:.0f} s; results in {options.results}:")
    print("  summary.json  bandwidth.png  report.html")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the demo; return the exit status."""
    options = options_of(arguments)
    command = functools.partial(_command, options)
    return program.run("demo", command, "the runs have been ended")

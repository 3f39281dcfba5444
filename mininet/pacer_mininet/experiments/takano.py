"""The experiments of PSPacer's authors: the IPSJ paper, talk, home page, PFLDnet, GtrcNET-1.

Takano et al., IPSJ Transactions on Advanced Computing Systems, Vol. 47, SIG 7 (ACS 14); PFLDnet
2005; "realtime burstiness". iperf over 500 Mbit/s, drop-tail.
"""

import functools

from pacer_mininet.experiments.experiment import Cell, Experiment, beside, one_flow
from pacer_mininet.experiments.scenario import (
    FQ,
    PACED,
    TBF,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
    buffer_for,
)
from pacer_mininet.published import TABLE_5, table_5
from pacer_mininet.units import format_size

KIB, MIB = 1 << 10, 1 << 20
MS = 1_000_000
IPSJ = "Takano et al., IPSJ Vol. 47 SIG 7 (ACS 14)"

# Long enough for slow start (two seconds where packets are paced) and a steady state. The talk ran
# for a minute and PFLDnet for five; here a pass over all experiments must take less than an hour.
SECONDS = 16
LONG_SECONDS = 24
FAR_SECONDS = 12

LONG_DELAYS_MS = (25, 50, 100, 150)
"""One way: the delays of the IPG sweep at which dynamic spacing is claimed to win."""

DELAYS_FIFO_BYTES = 256 * KIB
"""Much less than the path holds at each of them, so that losses matter."""

SSTHRESH_OF_THEN = 100
"""Packets: where the first slow start ended by default in the BIC of early Linux 2.6."""

TODAYS = ("cubic", "reno", "bbr")
"""Congestion controls of today, measured beside the papers'."""

DYNAMIC = Shaper("dynamic", "class", (("mode", "dynamic"), ("rate", None)))

SHORTER = (
    "The published run lasted longer (the talk's one minute, PFLDnet's five). Slow start and the "
    "first losses weigh more here."
)
SENDERS_OF_THEN = (
    "The senders run today's Linux. It starts with ten segments and recovers from losses in other "
    "ways, and high-resolution timers wake TBF for each packet instead of the system's tick."
)


def tables_2_to_4() -> Experiment:
    """Accuracy: the departure times themselves."""
    return Experiment(
        name="tables2-4",
        title="Accuracy of the gaps: one rate, a hundred flows, five rates at once",
        reproduces=("IPSJ Table 2", "IPSJ Table 3", "IPSJ Table 4"),
        source=IPSJ,
        metrics=(),
        virtual=True,
        differs=(
            "Gaps here are departure times in nanoseconds, not real frames, so they are not "
            "rounded to a shortest frame. A hundred flows of 10 Mbit/s with preambles and "
            "inter-frame gaps need more than a 1 Gbit/s line.",
        ),
    )


def figure_3() -> Experiment:
    """Two classes on one port."""
    return Experiment(
        name="fig3",
        title="Two classes, 500 and 250 Mbit/s, on a 1 Gbit/s port: clocks",
        reproduces=("IPSJ Fig. 3",),
        source=IPSJ,
        metrics=(),
        virtual=True,
        plots=("clocks",),
    )


PICTURED = (1024 * KIB, 4096 * KIB)
"""FIFO sizes of Table 5 that also have a published figure of the bandwidth in 500 us."""


def _path_of_table_5(fifo_bytes: int, shaper: Shaper) -> Scenario:
    return Scenario(
        one_flow(shaper),
        seconds=SECONDS,
        fifo_bytes=fifo_bytes,
        bins=fifo_bytes in PICTURED and shaper is not TBF,
    )


def table_five() -> Experiment:
    """Five FIFO sizes."""
    cells = [
        Cell(
            format_size(fifo_bytes),
            shaper.name,
            _path_of_table_5(fifo_bytes, shaper),
            table_5(fifo_bytes, shaper.name),
        )
        for fifo_bytes in TABLE_5
        for shaper in (UNPACED, TBF, PACED, FQ)
    ]
    for control in TODAYS:
        cells += beside(
            *(f"64KB, {control}", (UNPACED, PACED, FQ)),
            functools.partial(one_flow, congestion_control=control),
            extra=True,
            seconds=SECONDS,
            fifo_bytes=64 * KIB,
        )
    return Experiment(
        name="table5",
        title="iperf over 500 Mbit/s, 200 ms: goodput and losses by FIFO size",
        reproduces=("IPSJ Table 5",),
        source=IPSJ,
        metrics=("goodput", "steady", "lost", "edge_lost", "queue_max"),
        cells=tuple(cells),
        plots=("comparison",),
        differs=(
            "Goodput here is that of all 16 seconds, and slow start takes two to three of them. "
            "The published 474 of 476.9 Mbit/s leave no room for slow start, so those runs were "
            "longer. Compare the second half with them.",
            SENDERS_OF_THEN,
        ),
    )


def slides() -> Experiment:
    """Return the talk's static and dynamic pacing."""
    published = {
        "unpaced": {"goodput": 206.8, "lost": 1455},
        "dynamic": {"goodput": 321.7, "lost": 285},
        "paced": {"goodput": 447.7, "lost": 0},
    }
    cells = beside(
        *("1MB", (UNPACED, DYNAMIC, PACED, FQ), one_flow, published),
        seconds=LONG_SECONDS,
        rtt_ns=100 * MS,
        fifo_bytes=MIB,
        bins=True,
    )
    cells += beside(
        *("1MB", (TBF,), one_flow), seconds=LONG_SECONDS, rtt_ns=100 * MS, fifo_bytes=MIB
    )
    cells += beside(
        *("1MB, slow start as then", (UNPACED, DYNAMIC), one_flow, published),
        seconds=SECONDS,
        rtt_ns=100 * MS,
        fifo_bytes=MIB,
        first_ssthresh_packets=SSTHRESH_OF_THEN,
        extra=True,
    )
    for control in TODAYS:
        cells += beside(
            f"1MB, {control}",
            (UNPACED, DYNAMIC),
            functools.partial(one_flow, congestion_control=control),
            extra=True,
            seconds=FAR_SECONDS,
            rtt_ns=100 * MS,
            fifo_bytes=MIB,
        )
    return Experiment(
        name="slides",
        title="No pacing, PSPD (dynamic) and PSPS (static), 100 ms, FIFO 1 MB",
        reproduces=("talk noPSP/PSPD/PSPS",),
        source="PSPacer talk, BIC TCP, one minute",
        metrics=("goodput", "steady", "lost", "edge_lost"),
        cells=cells,
        plots=("bandwidth-100ms", "window", "comparison"),
        differs=(SENDERS_OF_THEN, SHORTER),
    )


def delays() -> Experiment:
    """Dynamic spacing over long delays; packets are lost in the FIFO only."""

    def over(delay_ms: int, fifo_bytes: int, title: str) -> tuple[Cell, ...]:
        return beside(
            *(title, (UNPACED, DYNAMIC, FQ), one_flow),
            seconds=FAR_SECONDS,
            rtt_ns=2 * delay_ms * MS,
            fifo_bytes=fifo_bytes,
            socket_buffer_bytes=buffer_for(2 * delay_ms * MS),
            extra=fifo_bytes != DELAYS_FIFO_BYTES,
        )

    cells = [
        cell
        for delay_ms in LONG_DELAYS_MS
        for cell in over(delay_ms, DELAYS_FIFO_BYTES, f"{delay_ms} ms one way")
    ]
    shortest_ms = LONG_DELAYS_MS[0]
    cells += over(shortest_ms, MIB, f"{shortest_ms} ms one way, FIFO 1 MB")
    return Experiment(
        name="delays",
        title="Dynamic spacing over long delays, FIFO 256 KB, no loss on the wire",
        metrics=(
            "goodput",
            "steady",
            "lost",
            "edge_lost",
            "loss_share",
            "rtt_error",
            "in_flight_error",
        ),
        cells=tuple(cells),
        plots=("sweep",),
        differs=(
            "At 25 ms one way a FIFO of 1 MB holds a third of what the path holds. Unpaced, it "
            "overflows but never runs empty, so spacing can win only fewer losses. fq loses "
            "nothing and gets the same goodput there. Dynamic spacing stays just below the "
            "narrowest link's rate.",
        ),
    )


def _cells_at(fifo_bytes: int) -> tuple[Cell, ...]:
    """Return the runs of Table 5 that a figure shows; Table 5 shares them."""
    row = format_size(fifo_bytes)
    return tuple(
        Cell(row, shaper.name, _path_of_table_5(fifo_bytes, shaper))
        for shaper in (UNPACED, PACED, FQ)
    )


def figure_2() -> Experiment:
    """Return the picture of PSPacer's home page."""
    return Experiment(
        name="fig2",
        title="Bandwidth at 500 us and 200 ms, 500 Mbit/s, 200 ms, FIFO 4 MB",
        reproduces=("home page Fig. 2.1/2.2",),
        source="PSPacer's home page",
        metrics=("goodput", "lost", "edge_lost", "bin_max"),
        cells=_cells_at(4096 * KIB),
        plots=("bandwidth",),
        differs=(SENDERS_OF_THEN,),
    )


def figure_8() -> Experiment:
    """Slow start."""
    return Experiment(
        name="fig8",
        title="Slow start, 1-to-1, 500 Mbit/s, 200 ms, FIFO 1 MB",
        reproduces=("IPSJ Fig. 8",),
        source=IPSJ,
        metrics=("goodput", "lost", "edge_lost", "bin_max"),
        cells=_cells_at(1024 * KIB),
        plots=("slow-start", "window"),
        differs=(SENDERS_OF_THEN,),
    )


def figure_9() -> Experiment:
    """Two senders, two receivers."""
    cells = []
    for shaper in (UNPACED, PACED, FQ, TBF):
        flows = tuple(
            Flow(shaper=shaper.at(1, 2), sender=number, receiver=number) for number in (1, 2)
        )
        scenario = Scenario(flows, seconds=SECONDS, fifo_bytes=32 * KIB)
        cells.append(Cell("32KB", shaper.name, scenario))
    return Experiment(
        name="fig9",
        title="2-to-2: two senders share 500 Mbit/s, 200 ms, FIFO 32 KB",
        reproduces=("IPSJ Fig. 9",),
        source=IPSJ,
        metrics=("goodput", "steady", "lost", "edge_lost", "share", "jain"),
        cells=tuple(cells),
        plots=("flows",),
        differs=(
            "Both senders start at the same time, and their paths have the same RTT.",
            SENDERS_OF_THEN,
        ),
    )


_PFLDNET = {
    64: ((17.3, 3071), (56.8, 41), (12.9, 1699), (54.7, 0)),
    128: ((19.9, 2403), (55.8, 791), (20.4, 1328), (54.7, 0)),
    256: ((23.0, 1526), (57.1, 0), (21.0, 1231), (54.7, 0)),
    512: ((29.9, 2946), (57.0, 374), (57.1, 0), (54.7, 0)),
}
"""By FIFO size in KB: Scalable unpaced and paced, FAST unpaced and paced; MB/s, tail drops."""


def pfldnet() -> Experiment:
    """Scalable TCP, and two substitutes for FAST."""
    columns = (
        ("scalable", UNPACED, 0),
        ("scalable", PACED, 1),
        ("scalable", FQ, None),
        ("vegas", UNPACED, 2),
        ("vegas", PACED, 3),
        ("bbr", UNPACED, 2),
    )
    cells = []
    for fifo_kib, paper in _PFLDNET.items():
        for control, shaper, place in columns:
            published = {}
            if place is not None:
                mbyte_per_s, drops = paper[place]
                published = {"goodput": mbyte_per_s * 8, "lost": float(drops)}
            title = control if control == "scalable" else f"{control} for FAST"
            scenario = Scenario(
                one_flow(shaper, control), seconds=FAR_SECONDS, fifo_bytes=fifo_kib * KIB
            )
            place_of_cell = (f"{fifo_kib}KB", f"{title}, {shaper.name}")
            # The substitutes are for orientation.
            cells.append(Cell(*place_of_cell, scenario, published, extra=control != "scalable"))
    return Experiment(
        name="pfldnet",
        title="Scalable TCP, and Vegas and BBR in FAST's place, by FIFO size",
        reproduces=("PFLDnet 2005",),
        source="Takano et al., PFLDnet 2005, five minutes (MB/s there, Mbit/s here)",
        metrics=("goodput", "steady", "lost", "edge_lost"),
        cells=tuple(cells),
        plots=("comparison",),
        differs=(
            "No Linux kernel has FAST TCP. Vegas (delay-based, like FAST) and BBR replace it. "
            "Their figures stand beside FAST's for orientation and do not reproduce it.",
            SHORTER,
        ),
    )


def _constant_rate(shaper: Shaper) -> tuple[Flow, ...]:
    """Return 40 Mbit/s of UDP, spaced at as much of a 100 Mbit/s bottleneck."""
    return (Flow(shaper=shaper.at(2, 5), udp_bps=40_000_000),)


def burstiness() -> Experiment:
    """40 Mbit/s of UDP, measured before and behind the access bottleneck."""
    metrics = (
        *("near_abw_mean", "near_abw_max", "near_queue_mean", "near_queue_max"),
        *("far_abw_mean", "far_abw_max", "far_queue_mean", "far_queue_max", "loss_share"),
    )
    figures = {
        "TBF": (39.4, 39.5, 46.9, 58.8, 25.7, 39.4, 4.43, 24.6, 34.8),
        "paced": (39.9, 39.9, 0.0, 0.0, 37.9, 48.0, 3.27, 88.1, 5.0),
    }
    published = {name: dict(zip(metrics, row, strict=True)) for name, row in figures.items()}
    cells = beside(
        *("40 Mbit/s CBR", (UNPACED, TBF, PACED, FQ), _constant_rate, published),
        seconds=LONG_SECONDS,
        rate_bps=100_000_000,
        rtt_ns=20 * MS,
        vb_rate_bps=40_000_000,
        far=True,
    )
    return Experiment(
        name="burstiness",
        title="Burstiness of 40 Mbit/s UDP at the sender and at the receiver",
        reproduces=("GtrcNET-1 burstiness",),
        source="Takano et al., realtime burstiness, one minute",
        metrics=(
            *metrics,
            *("near_dynamic_mean", "near_dynamic_max", "far_dynamic_mean", "far_dynamic_max"),
            "edge_stalls",
        ),
        cells=cells,
        differs=(
            "The published packets crossed the Internet with other traffic, which caused losses "
            "and queues on the way to the receiver. Here the path has no other traffic.",
            "max(Q) here includes the packet that arrives (1.48 KB for one frame). At its own rate "
            "means dynamic burstiness: the virtual bottleneck drains at the average rate of the "
            "100 ms before. At the receiver, the first window starts with the path's delay, so its "
            "average is too low. The queue that builds up in the next window then stays while the "
            "rate does.",
            "The UDP sender is spaced by its own clock, and timers of one nanosecond wake today's "
            "TBF for each packet, so little is left to shape. The system's tick woke the "
            "published TBF, which released 59 KB at once. fq sends two packets at a time (its "
            "quantum).",
        ),
    )


def gap_frames() -> Experiment:
    """Accounted gaps, and gaps filled with PAUSE frames, as in PSPacer."""
    cells = tuple(
        Cell(
            "500 Mbit/s, 20 ms",
            title,
            Scenario(one_flow(shaper), seconds=4, rtt_ns=20 * MS, gaps=gaps),
            extra=True,
        )
        for title, shaper, gaps in (
            (PACED.name, PACED, "accounted"),
            ("paced, PAUSE frames", PACED, "pause-frames"),
            (UNPACED.name, UNPACED, "accounted"),
            (FQ.name, FQ, "accounted"),
        )
    )
    return Experiment(
        name="gaps",
        title="The same paced flow with accounted gaps and with PAUSE frames in them",
        metrics=("goodput", "steady", "lost", "edge_lost", "queue_max", "wire_bytes"),
        cells=cells,
        differs=(
            "The bottleneck's input port drops PAUSE frames, as every switch does. They do not "
            "count as lost.",
            "The vectors (`tests/vectors/pause-frames`) show packet by packet that departures "
            "differ by less than one shortest frame. This experiment shows the effect on a path.",
        ),
    )


ECN_THRESHOLD_BYTES = 1_200_000
"""Queue at which the pacer marks: 20 ms at 500 Mbit/s, a tenth of the RTT, less a burst."""


def backlog() -> Experiment:
    """Senders with large buffers, and two ways to keep them from filling the pacer."""
    ecn = Shaper(
        *("paced, ECN", "class", (("mode", "static"), ("ecn_threshold_bytes", ECN_THRESHOLD_BYTES)))
    )
    clamp = Shaper("paced, clamp", "class", (("mode", "static"), ("window_margin_bytes", 150_000)))
    cells = tuple(
        Cell(
            "64MB buffers",
            shaper.name,
            Scenario(
                one_flow(shaper),
                seconds=SECONDS,
                fifo_bytes=64 * KIB,
                socket_buffer_bytes=64 * MIB,
                ecn=shaper is ecn,
            ),
        )
        for shaper in (UNPACED, ecn, clamp, PACED, FQ)
    )
    return Experiment(
        name="backlog",
        title="64 MB socket buffers: the pacer's queue without and with ECN or a window clamp",
        metrics=("goodput", "steady", "lost", "edge_lost", "rtt_mean", "rtt_max", "rtt_steady"),
        cells=cells,
        plots=("rtt", "window"),
        differs=(
            f"Marking starts at {ECN_THRESHOLD_BYTES:,} bytes in the pacer's queue, a tenth of "
            "what the path holds.",
            "Marks alone cannot give a short queue and full rate. BIC shrinks its window by a "
            "fifth at a mark, so the bottleneck stays busy only if a quarter of what the path "
            "holds was queued (RTT 250 ms). The pacer also marks the bursts of slow start, which "
            "it holds on purpose. So the first mark comes at less than half of what the path "
            "holds, and from there BIC grows by 32 packets per round trip while more than 5,000 "
            "are missing. The clamp gives both.",
            "Paced with neither, the sender fills the class's queue at the edge (32 MB by "
            "default), and packets are lost there.",
        ),
    )

"""The experiments of PSPacer's authors: the IPSJ paper, talk, home page, PFLDnet, GtrcNET-1.

Takano et al., IPSJ Transactions on Advanced Computing Systems, Vol. 47, SIG 7 (ACS 14); PFLDnet
2005, whose text was not at hand; "realtime burstiness". iperf over 500 Mbit/s, drop-tail.
"""

import dataclasses
import functools

from pacer_mininet.experiments.experiment import (
    FAR_SECONDS,
    LONG_SECONDS,
    SECONDS,
    Cell,
    Experiment,
    beside,
    one_flow,
)
from pacer_mininet.experiments.scenario import (
    DYNAMIC,
    FQ,
    PACED,
    PSPD,
    TBF,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
)
from pacer_mininet.published import KIB, MIB, TABLE_5, table_5, table_5_doubts
from pacer_mininet.traffic import FCS_BYTES, GOODPUT_SHARE_OF_LINE, MS, MTU_FRAME_BYTES
from pacer_mininet.units import format_size

IPSJ = "Takano et al., IPSJ Vol. 47 SIG 7 (ACS 14)"

MINUTE_SECONDS = 60
"""The published runs of the talk and of the burstiness table. Other durations are not legible."""

ACK_CLOCKING_SECONDS = 4

LINUX_2_6_SSTHRESH = 100
"""Packets: where the first slow start ended by default in the BIC module of Linux 2.6
(`initial_ssthresh`). BIC in Linux 2.6.11, which made Table 5 and Figs. 2, 8 and 9, had no such
setting: it was part of `tcp_input.c`, with `tcp_bic_low_window` and `tcp_bic_beta` as sysctls."""

TODAYS = ("cubic", "reno", "bbr")
"""Congestion controls of today, measured beside the papers'."""

TBF_HZ = 1000
"""The tick of IPSJ Fig. 1(b)."""

COUNTED_WITHOUT_FCS = (MTU_FRAME_BYTES, MTU_FRAME_BYTES - FCS_BYTES)
"""TBF counts frames without FCS, so a rate of 500 Mbit/s is 501.3 on the line."""

TICK_DRIVEN_TBF = Shaper(
    *("tick-driven TBF", "class", (("mode", "timer"), ("tick_hz", TBF_HZ))),
    share=COUNTED_WITHOUT_FCS,
)
"""A token bucket that the system's tick wakes, rate / HZ bytes at once, set to the bottleneck's
rate."""

TBF_OF_HZ_100 = dataclasses.replace(
    TICK_DRIVEN_TBF, name="tick-driven TBF, HZ 100", settings=(("mode", "timer"), ("tick_hz", 100))
)
"""The same with the tick of the burstiness table: 40 Mbit/s / 100 are 50 KB, and 46.9 are published
as the mean queue. The tick itself is not said."""

PUBLISHED_AS = {TICK_DRIVEN_TBF.name: "TBF", TBF.name: "TBF of today"}
"""Names in published tables, where they differ: the published TBF is not today's."""

S1_PATH = {
    "bottleneck": "500 Mbit/s",
    "RTT": "200 ms",
    "traffic": "BIC, Linux 2.6.11",
    "connections": "1",
    "first slow start ends at": "not said; the first loss in BIC of Linux 2.6.11",
}
"""Published conditions of Table 5 and of Figs. 2, 8 and 9."""

PUBLISHED_SENDERS = (
    "The senders run today's Linux. It starts with ten segments and recovers from losses in other "
    "ways, and high-resolution timers wake TBF for each packet instead of the system's tick."
)


def tables_2_to_4() -> Experiment:
    """Accuracy: the departure times themselves."""
    return Experiment(
        name="tables2-4",
        title="Accuracy of the gaps: one rate, many flows of one rate, five rates at once",
        reproduces=("IPSJ Table 2", "IPSJ Table 3", "IPSJ Table 4"),
        source=IPSJ,
        metrics=(),
        virtual=True,
        differs=(
            "Gaps here are departure times in nanoseconds, not real frames, so they are not "
            "rounded to a shortest frame.",
            "How many flows Table 3 had is not legible. A hundred are of the paper's abstract, and "
            "with preambles and inter-frame gaps a hundred flows of 10 Mbit/s need more than a "
            "1 Gbit/s line, so the published 9.91 Mbit/s were of fewer.",
            "The published mean is that of the bandwidths of n packets, which short gaps raise. "
            "The target is compared with all bytes over all time.",
            "The published mean of 50 Mbit/s per packet, 33.1, is suspect in our transcript: its "
            "neighbours suggest 53.1.",
        ),
    )


def targets() -> Experiment:
    """Measured against target rate, over the published range."""
    return Experiment(
        name="targets",
        title="Measured against target rate, 8 kbit/s to 930 Mbit/s",
        reproduces=("talk target sweep",),
        source="PSPacer talk",
        metrics=(),
        virtual=True,
        plots=("targets",),
        differs=(
            "The published figure is a picture, from which no values could be read. Its ends are "
            "8 kbit/s and 930 Mbit/s; the points between them are our choice.",
        ),
    )


def figure_1() -> Experiment:
    """Ideal and timer-driven pacing."""
    return Experiment(
        name="fig1",
        title="Ideal and timer-driven pacing: 500 Mbit/s on a 1 Gbit/s port, HZ 1000",
        reproduces=("IPSJ Fig. 1",),
        source=IPSJ,
        metrics=(),
        virtual=True,
        plots=("ticks",),
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


def path_of_table_5(fifo_bytes: int, shaper: Shaper) -> Scenario:
    """Return a run of Table 5."""
    return Scenario(
        one_flow(shaper),
        seconds=SECONDS,
        fifo_bytes=fifo_bytes,
        bins=fifo_bytes in PICTURED and shaper not in (TBF, TICK_DRIVEN_TBF),
    )


def table_five() -> Experiment:
    """Five FIFO sizes."""
    cells = [
        Cell(
            format_size(fifo_bytes),
            shaper.name,
            path_of_table_5(fifo_bytes, shaper),
            table_5(fifo_bytes, PUBLISHED_AS.get(shaper.name, shaper.name)),
            doubts=table_5_doubts(fifo_bytes, shaper.name),
        )
        for fifo_bytes in TABLE_5
        for shaper in (UNPACED, TICK_DRIVEN_TBF, TBF, PACED, FQ)
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
        conditions={**S1_PATH, "FIFO": "16 KB to 4096 KB"},
        differs=(
            "Goodput here is that of all 16 seconds, and slow start takes two to three of them. "
            "How long the published runs were is not legible; 474 of 476.9 Mbit/s leave no room "
            "for slow start, so they were longer. Compare the second half with them.",
            "PSPacer's zero losses are legible for 16 KB alone. The others are inferred.",
            "Tick-driven TBF releases by ticks of HZ 1000, as in Fig. 1, and counts no FCS. That "
            "its rate was set to the bottleneck's is an assumption: it then sends 0.26 % too "
            "much, and fills the FIFO. At the bottleneck's rate on the line, the bursts of a tick "
            "need 33 KB, and nothing is lost at 64 KB. Today's TBF is set to the rate on the line.",
            "Linux's TBF loses tokens that are too few for a packet at a tick, 0.7 % of this rate, "
            "and sends at once a packet that comes between ticks. Mode `timer` does neither. So "
            "the cause of the losses published for 64 KB is not known.",
            "With a FIFO of 64 KB the published TBF has less goodput than no pacing. Here it has "
            "more, because slow start without pacing loses sooner, and 16 s end in the recovery.",
            PUBLISHED_SENDERS,
        ),
    )


def slides() -> Experiment:
    """Return the talk's static and dynamic pacing."""
    # By iperf (TCP), and by GtrcNET-1 (Ethernet).
    published = {
        "unpaced": {"goodput": 200.0, "near_abw_mean": 206.8, "lost": 1455},
        "PSPD": {"goodput": 315.0, "near_abw_mean": 321.7, "lost": 285},
        "paced": {"goodput": 433.0, "near_abw_mean": 447.7, "lost": 0},
    }
    cells = beside(
        *("1MB", (UNPACED, PSPD, DYNAMIC, PACED, FQ), one_flow, published),
        seconds=MINUTE_SECONDS,
        rtt_ns=100 * MS,
        fifo_bytes=MIB,
        first_ssthresh_packets=LINUX_2_6_SSTHRESH,
        bins=True,
    )
    cells += beside(
        *("1MB, today's slow start", (UNPACED, PSPD, DYNAMIC, PACED, FQ, TBF), one_flow),
        seconds=LONG_SECONDS,
        rtt_ns=100 * MS,
        fifo_bytes=MIB,
    )
    for rtt_ms in (0, 50):
        cells += beside(
            f"1MB, {rtt_ms} ms",
            (UNPACED, PSPD, DYNAMIC, PACED),
            one_flow,
            extra=True,
            seconds=MINUTE_SECONDS,
            rtt_ns=rtt_ms * MS,
            fifo_bytes=MIB,
            first_ssthresh_packets=LINUX_2_6_SSTHRESH,
        )
    for control in TODAYS:
        cells += beside(
            f"1MB, {control}",
            (UNPACED, PSPD, DYNAMIC),
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
        metrics=("goodput", "near_abw_mean", "steady", "lost", "edge_lost"),
        cells=cells,
        plots=("bandwidth-100ms", "window", "after-loss", "comparison"),
        conditions={
            "bottleneck": "500 Mbit/s",
            "RTT": "100 ms",
            "FIFO": "1 MB",
            "duration": "one minute",
            "traffic": "BIC",
            "connections": "1",
            "first slow start ends at": "not said; 100 packets by default in BIC of Linux 2.6",
            "socket buffers": "12.5 MB",
        },
        differs=(
            "PSPD is cwnd x packet size / RTT, where a window counts as at least ten segments "
            "until the flow retransmits. `dynamic` adds a headroom of 120 % (doubled in slow "
            "start), a first flight that is not spaced, that least window at all times, and the "
            "path's rate as a limit. None of these is in the documents.",
            "The published order of goodput (no pacing, PSPD, PSPS) does not hold here: `pspd` has "
            "less goodput than no pacing, because today's BIC keeps its window after a loss. It "
            "loses fewer packets.",
            "Today's slow start ends at the first loss, and those runs last 24 s.",
            "The talk's setup has round trips of 0, 50 and 100 ms, and figures for 100 ms only.",
            PUBLISHED_SENDERS,
        ),
    )


ACK_CLOCKING_BYTES = 3_125_000
"""The published buffer: half of what 500 Mbit/s x 100 ms hold."""

ACK_CLOCKED_WINDOW_BYTES = (
    2 * ACK_CLOCKING_BYTES * GOODPUT_SHARE_OF_LINE[0] // GOODPUT_SHARE_OF_LINE[1]
)
"""The payload of the path's bandwidth-delay product."""


def ack_clocking() -> Experiment:
    """Slow start up to the bandwidth-delay product, and its need for buffer at the bottleneck."""
    cells = [
        cell
        for fifo_bytes in (ACK_CLOCKING_BYTES, ACK_CLOCKING_BYTES * 3 // 5)
        for cell in beside(
            *(f"FIFO {fifo_bytes / 1e6:g} MB", (UNPACED, PACED, FQ), one_flow),
            seconds=ACK_CLOCKING_SECONDS,
            rtt_ns=100 * MS,
            fifo_bytes=fifo_bytes,
            socket_buffer_bytes=ACK_CLOCKED_WINDOW_BYTES,
        )
    ]
    return Experiment(
        name="ackclock",
        title="ACK clocking: the buffer that slow start needs, 500 Mbit/s, 100 ms",
        reproduces=("talk ACK clocking, 3.125 MB",),
        source="PSPacer talk",
        metrics=("goodput", "steady", "lost", "edge_lost", "queue_max"),
        cells=tuple(cells),
        conditions={"bottleneck": "500 Mbit/s", "RTT": "100 ms", "FIFO": "3.125 MB"},
        differs=(
            "Published is the arithmetic. In slow start each acknowledgement releases two packets, "
            "so the sender sends at twice the bottleneck's rate, and half of a round trip's "
            "packets wait: 3.125 MB of the 6.25 MB that the path holds.",
            "The window is limited to what the path holds, 4,117 packets. Slow start doubles from "
            "ten, so its last step here is from 2,560 packets and less than a doubling. All of "
            "3.125 MB are needed where it is a whole one.",
        ),
    )


def _cells_at(fifo_bytes: int) -> tuple[Cell, ...]:
    """Return the runs of Table 5 that a figure shows; Table 5 shares them."""
    row = format_size(fifo_bytes)
    return tuple(
        Cell(row, shaper.name, path_of_table_5(fifo_bytes, shaper))
        for shaper in (UNPACED, PACED, FQ)
    )


FIG_2_1_FIRST_LOSS_S = 3.0
"""About when the first packets are lost in Fig. 2.1, as the home page's text says."""


def figure_2() -> Experiment:
    """Return the picture of PSPacer's home page."""
    unpaced, *others = _cells_at(4096 * KIB)
    unpaced = dataclasses.replace(unpaced, published={"first_loss": FIG_2_1_FIRST_LOSS_S})
    return Experiment(
        name="fig2",
        title="Bandwidth at 500 us and 200 ms, and recovery after a loss, FIFO 4 MB",
        reproduces=("home page Fig. 2.1/2.2", "home page Fig. 2.3"),
        source="PSPacer's home page",
        metrics=("goodput", "lost", "first_loss", "edge_lost", "bin_max"),
        cells=(unpaced, *others),
        plots=("bandwidth", "after-loss"),
        conditions={**S1_PATH, "FIFO": "4 MB"},
        differs=(PUBLISHED_SENDERS,),
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
        conditions={**S1_PATH, "FIFO": "1 MB"},
        differs=(PUBLISHED_SENDERS,),
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
        conditions={
            **S1_PATH,
            "FIFO": "32 KB",
            "connections": "2, from two senders to two receivers",
        },
        differs=(
            "Both senders start at the same time, and their paths have the same RTT.",
            PUBLISHED_SENDERS,
        ),
    )


# The paper was not at hand. The figures are quoted at second hand and could not be checked.
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
        source="Takano et al., PFLDnet 2005, at second hand (MB/s there, Mbit/s here)",
        metrics=("goodput", "steady", "lost", "edge_lost"),
        cells=tuple(cells),
        plots=("comparison",),
        conditions={
            "bottleneck": "500 Mbit/s",
            "RTT": "200 ms",
            "FIFO": "64 KB to 512 KB",
            "duration": "five minutes (paper not seen)",
            "traffic": "Scalable, FAST",
        },
        differs=(
            "No Linux kernel has FAST TCP. Vegas (delay-based, like FAST) and BBR replace it. "
            "Their figures stand beside FAST's for orientation and do not reproduce it.",
            "The paper was not at hand, so its figures could not be checked. Its runs are said to "
            "have lasted five minutes. Slow start and the first losses weigh more here.",
        ),
    )


def _constant_rate(shaper: Shaper) -> tuple[Flow, ...]:
    """Return 40 Mbit/s of UDP, spaced at as much of a 100 Mbit/s bottleneck (FTTH)."""
    line, counted = shaper.share
    return (Flow(shaper=shaper.at(2 * line, 5 * counted), udp_bps=40_000_000),)


def burstiness() -> Experiment:
    """40 Mbit/s of UDP, measured before and behind the access bottleneck."""
    metrics = (
        *("near_abw_mean", "near_abw_max", "near_queue_mean", "near_queue_max"),
        *("far_abw_mean", "far_abw_max", "far_queue_mean", "far_queue_max", "loss_share"),
    )
    figures = {
        TBF_OF_HZ_100.name: (39.4, 39.5, 46.9, 58.8, 25.7, 39.4, 4.43, 24.6, 34.8),
        "paced": (39.9, 39.9, 0.0, 0.0, 37.9, 48.0, 3.27, 88.1, 5.0),
    }
    published = {name: dict(zip(metrics, row, strict=True)) for name, row in figures.items()}
    cells = beside(
        *("40 Mbit/s CBR", (UNPACED, TBF_OF_HZ_100, TBF, PACED, FQ), _constant_rate, published),
        seconds=MINUTE_SECONDS,
        rate_bps=100_000_000,
        rtt_ns=6 * MS,
        vb_rate_bps=40_000_000,
        far=True,
    )
    cells += beside(
        *("40 Mbit/s CBR, 20 ms", (UNPACED, TBF_OF_HZ_100, TBF, PACED, FQ), _constant_rate),
        extra=True,
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
            *("near_previous_max", "far_previous_max"),
            "edge_stalls",
        ),
        cells=cells,
        conditions={
            "bottleneck": "100 Mbit/s, 60 km of FTTH",
            "RTT": "6.0 ms",
            "duration": "one minute",
            "traffic": "UDP, 40 Mbit/s",
        },
        differs=(
            "The published packets crossed 60 km of fibre to a home (FTTH, 100 Mbit/s, RTT 6.0 ms) "
            "and were lost and queued on the way to the receiver. Here the path has the same rate "
            "and RTT, and no other traffic. The size of its FIFO, 64 KB, is an assumption.",
            "max(Q) here includes the packet that arrives (1.48 KB for one frame). At its own rate "
            "means dynamic burstiness: the virtual bottleneck drains at the average rate of the "
            "same 100 ms. A window in which packets begin or end to arrive shows a queue, because "
            "its average is below the rate. The rate of the window before is this project's "
            "variant; the queue that builds up behind such a window stays while the rate does.",
            "The UDP sender is spaced by its own clock, and timers of one nanosecond wake today's "
            "TBF for each packet, so little is left to shape. The system's tick woke the "
            "published TBF, which released 59 KB at most at once. Its HZ is not said; with 100 a "
            "tick has 50 KB. fq sends two packets at a time (its quantum).",
        ),
    )

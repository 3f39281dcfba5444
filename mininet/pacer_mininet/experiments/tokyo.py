"""The experiments of the University of Tokyo's Data Reservoir: IPG and packet spacing."""

import dataclasses

from pacer_mininet.experiments.experiment import (
    CHANCE_SEEDS,
    FAR_SECONDS,
    SECONDS,
    WIRE_SEEDS,
    Cell,
    Experiment,
    beside,
    many_flows,
    one_flow,
)
from pacer_mininet.experiments.scenario import (
    DYNAMIC,
    FQ,
    PACED,
    PSPD,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
    buffer_for,
)
from pacer_mininet.experiments.takano import PUBLISHED_SENDERS
from pacer_mininet.published import KIB, MIB
from pacer_mininet.settings import SOCKET_BUFFER_BYTES
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES

SOURCE = "Data Reservoir, University of Tokyo"
DELAYS_MS = (2, 10, 25, 50, 100, 150)
"""One way."""

GAPS_BYTES = tuple(8 << doublings for doublings in range(12))
"""The published gaps of the sweep: 8 to 16,384 bytes."""

STEADY_GAP_BYTES = 1024
"""Gaps from here on lose nothing in the FIFO, so only the wire decides how a flow continues."""
STEADINESS_DELAY_MS = 100
"""From here on `dynamic` is compared with each gap in steadiness."""

TUNING_GAPS_BYTES = (8, 256, 512, 1023)
TUNING_SEEDS = (1, 2, 3, 4, 5)
TUNING_LOSS_PPM = 100

EDGE_BPS = 1_000_000_000
PREAMBLE_BYTES = 8
LOSS_PPM = 1000
SWEEP_BPS = 600_000_000
TUNING_BPS = 596_000_000

BWC_BPS = 600_000_000
"""550 Mbit/s were 91 % of the link."""

BWC_NODES = 24
INTER_FRAME_GAP_BYTES = 12
BWC_BUFFER_BYTES = 2_500_000
"""Eight times the bandwidth-delay product of a stream's share: it can use bandwidth of others."""

NODES_RTT_MS = (335, 326, 292, 335)
"""Four nodes with the RTTs of the published three paths."""

NODE_STREAMS = 4
NODE_GAP_BYTES = 8 * MTU_FRAME_BYTES - PREAMBLE_BYTES - MTU_FRAME_BYTES
"""The gap behind each full frame for an eighth of the edge's line, a quarter of the bottleneck."""


def ipg(gap_bytes: int) -> Shaper:
    """Return a fixed gap between packets, in bytes of the edge's 1 Gbit/s line."""
    settings = (("mode", "ipg"), ("rate", EDGE_BPS), ("gap_bytes", gap_bytes))
    return Shaper(f"IPG {gap_bytes}", "class", settings)


CLUSTERED = Shaper(
    "clustered", "class", (("mode", "clustered"), ("threshold_ns", 1_000_000), ("rate", None))
)
"""Clustered Packet Spacing as published, which ends at a packet a millisecond."""

LARGER_CLUSTERS = Shaper(
    *("clustered, 12.5 us", "class"),
    (("mode", "clustered"), ("threshold_ns", 12_500), ("rate", None)),
)
"""The same until a millisecond has the 80 packets of the largest cluster."""

SPACED_IN_SLOW_START = Shaper("slow-start", "class", (("mode", "slow-start"), ("rate", None)))
"""Each packet has its own departure time, at the pace of `dynamic`."""


def _reno(shaper: Shaper) -> tuple[Flow, ...]:
    return one_flow(shaper, "reno")


def ipg_sweep() -> Experiment:
    """Six delays, one in a thousand packets lost on the wire."""
    small = tuple(ipg(gap) for gap in GAPS_BYTES if gap < STEADY_GAP_BYTES)
    large = tuple(ipg(gap) for gap in GAPS_BYTES if gap >= STEADY_GAP_BYTES)
    cells = tuple(
        dataclasses.replace(cell, seeds=WIRE_SEEDS)
        if delay_ms >= STEADINESS_DELAY_MS and shaper in large
        else cell
        for delay_ms in DELAYS_MS
        for shaper in (UNPACED, PSPD, DYNAMIC, FQ, *small, *large)
        for cell in beside(
            *(f"{delay_ms} ms one way", (shaper,), _reno),
            seconds=FAR_SECONDS,
            rate_bps=SWEEP_BPS,
            rtt_ns=2 * delay_ms * MS,
            socket_buffer_bytes=buffer_for(2 * delay_ms * MS, SWEEP_BPS),
            loss_ppm=LOSS_PPM,
            # Nothing is claimed of dynamic spacing over shorter paths.
            extra=delay_ms < 25,
        )
    )
    cells += tuple(
        dataclasses.replace(cell, seeds=CHANCE_SEEDS)
        for cell in beside(
            "100 ms one way, 500 Mbit/s",
            (UNPACED, DYNAMIC, FQ, ipg(4096)),
            _reno,
            seconds=FAR_SECONDS,
            rtt_ns=200 * MS,
            loss_ppm=LOSS_PPM,
            extra=True,
        )
    )
    return Experiment(
        name="ipg",
        title="Static and dynamic IPG over six delays, loss 0.001 on the wire",
        reproduces=("Tokyo IPG sweep",),
        source=SOURCE,
        metrics=(
            *("goodput", "lost", "edge_lost", "loss_share", "deviation_whole", "deviation"),
            *("window_mean", "rtt_error", "in_flight_error"),
        ),
        cells=cells,
        plots=("gaps-goodput", "gaps-deviation", "windows"),
        conditions={
            "bottleneck": "600 Mbit/s",
            "RTT": "4 to 300 ms (2 to 150 ms one way)",
            "loss on the wire": "0.001, more as the buffer fills; a simulation",
        },
        differs=(
            "The published sweep is a simulation and gives shares: dynamic IPG is the best where "
            "the delay is greater than 25 ms, 3 % behind the best static one at 2 ms and 21 % at "
            "10 ms, and steadier than the default and static ones.",
            "The published dynamic IPG is RTT / cwnd - size / BW, which is `pspd` here. `dynamic` "
            "adds headroom, a least window, and the path's rate as a limit. Both are compared "
            "with each gap; the claims on goodput are about `dynamic`. `pspd` has no headroom, so "
            "its packets wait at the edge for more of a round trip: above 25 ms its windows are "
            "larger than those of a gap that loses nothing in the FIFO, and its goodput is 2 to "
            "6 % less in the median of the pairs.",
            "Its loss grew as its buffer filled. Here one in a thousand packets is lost on the "
            "wire at all times. That its TCP was Reno, the FIFO of 64 KB and the 12 s of a run are "
            "assumptions.",
            "With one packet in a thousand lost, Reno can send 39 segments per RTT (Mathis et al., "
            "1997), 9 Mbit/s at 25 ms one way, however they are spaced. The rest comes from slow "
            "start, which ends with the first packet lost on the wire or in the FIFO. Too little "
            "spacing (unpaced, gaps of 8 and 512 bytes) overflows the FIFO in slow start. Dynamic "
            "spacing and the larger gaps do not.",
            "With the same seed the wire loses the same packets, so runs compare pair by pair. "
            "Over all seeds they do not: one lost packet decides how a run continues, and goodput "
            "differs by a factor of three. In the median of the pairs, dynamic spacing has about "
            "1 % less goodput than a gap that loses nothing in the FIFO, because packets that are "
            "spread over a round trip wait in the pacer.",
            "Dynamic spacing is steadier from 100 ms one way on, where a burst with a fixed gap "
            "leaves windows of 100 ms empty.",
            "Estimates of a round trip of 4 ms (2 ms one way) are further off the kernel's than "
            "those of longer ones, because the kernel smooths over eight samples and the switch "
            "over two.",
        ),
    )


def ipg_rates() -> Experiment:
    """Two gaps with published goodput, 941 and 567 Mbit/s."""
    cells = []
    for gap_bytes, published in ((12, 941.0), (1023, 567.0)):
        # A full frame's share of the line with this gap behind it.
        fq = FQ.at(MTU_FRAME_BYTES, PREAMBLE_BYTES + MTU_FRAME_BYTES + gap_bytes)
        for title, shaper in (("IPG", ipg(gap_bytes)), ("fq at that rate", fq)):
            scenario = Scenario(
                one_flow(shaper), seconds=4, rate_bps=EDGE_BPS, rtt_ns=2 * MS, fifo_bytes=256 * KIB
            )
            cells.append(Cell(f"{gap_bytes} bytes", title, scenario, {"steady": published}))
    return Experiment(
        name="ipg-rates",
        title="A TCP stream with a fixed gap on a 1 Gbit/s line",
        reproduces=("Tokyo IPG tuning",),
        source=SOURCE,
        metrics=("steady", "lost", "edge_lost"),
        cells=tuple(cells),
        conditions={"bottleneck": "1 Gbit/s Ethernet", "connections": "1"},
    )


def ipg_tuning() -> Experiment:
    """Four gaps on a long path: maximum, average and minimum of several runs."""
    cells = tuple(
        dataclasses.replace(cell, seeds=TUNING_SEEDS)
        for cell in beside(
            *("596 Mbit/s, 200 ms", (UNPACED, *map(ipg, TUNING_GAPS_BYTES), FQ), _reno),
            seconds=FAR_SECONDS,
            rate_bps=TUNING_BPS,
            fifo_bytes=MIB,
            socket_buffer_bytes=buffer_for(200 * MS, TUNING_BPS),
            loss_ppm=TUNING_LOSS_PPM,
        )
    )
    return Experiment(
        name="ipg-tuning",
        title="IPG tuning at 596 Mbit/s, 200 ms: maximum, average and minimum over gaps",
        reproduces=("Tokyo IPG tuning at 596 Mbit/s",),
        source=SOURCE,
        metrics=("goodput", "lost", "edge_lost"),
        cells=cells,
        plots=("gaps-spread",),
        conditions={"bottleneck": "596 Mbit/s", "RTT": "200 ms"},
        differs=(
            "Published as a picture: a gap of 1023 bytes raises maximum and average, 512 bytes and "
            "more the maximum only, and the minimum never rises. The slides do not say how their "
            "runs differed.",
            "Here five seeds lose 100 packets in a million on the wire, each at other times. That "
            "loss, Reno, the FIFO of 1 MB and the 12 s are assumptions.",
            "With a gap of 1023 bytes full frames make 595.5 Mbit/s, just under the bottleneck, so "
            "no packet is lost in its FIFO.",
        ),
    )


def bandwidth_challenge() -> Experiment:
    """Two streams from each of 24 nodes, as at the Bandwidth Challenge of 2002."""

    def streams(shaper: Shaper) -> tuple[Flow, ...]:
        # Two flows for each node, so that each stream is measured.
        return tuple(
            Flow(shaper=shaper.at(1, 2 * BWC_NODES), sender=number, congestion_control="reno")
            for number in range(1, BWC_NODES + 1)
            for _ in range(2)
        )

    cells = beside(
        *("24 nodes x 2 streams", (UNPACED, PACED, FQ), streams),
        {"unpaced": {"goodput": 550.0}},
        seconds=FAR_SECONDS,
        rate_bps=BWC_BPS,
        fifo_bytes=256 * KIB,
        socket_buffer_bytes=BWC_BUFFER_BYTES,
    )
    return Experiment(
        name="bwc2002",
        title="Bandwidth Challenge 2002: 24 nodes x 2 streams, and how unequal they are",
        reproduces=("Tokyo 24 x 2 streams",),
        source=f"{SOURCE}: 550 Mbit/s, 91 %, with unequal streams",
        metrics=("goodput", "steady", "lost", "edge_lost", "share", "largest_share", "jain"),
        cells=cells,
        plots=("flows",),
        conditions={"bottleneck": "550 Mbit/s are 91 %", "connections": "48 from 24 nodes"},
        differs=(
            "Published are the sum (550 Mbit/s, 91 %) and that the streams were unequal; how much "
            "is a picture. The link of 600 Mbit/s follows from the two figures. RTT (200 ms), "
            "FIFO (256 KB), Reno and the 12 s are assumptions. Unpaced, Reno recovers from the "
            "losses of slow start for most of these.",
        ),
    )


def fast_ethernet() -> Experiment:
    """Senders with lines of 100 Mbit/s and of 1 Gbit/s."""

    def line(name: str, rate_bps: int) -> Shaper:
        # The shortest gap at a line's rate is that line.
        settings = (("mode", "ipg"), ("rate", rate_bps), ("gap_bytes", INTER_FRAME_GAP_BYTES))
        return Shaper(name, "class", settings)

    def nodes(shaper: Shaper) -> tuple[Flow, ...]:
        return tuple(
            dataclasses.replace(flow, congestion_control="reno")
            for flow in many_flows(shaper, BWC_NODES, streams=2)
        )

    cells = beside(
        "24 nodes x 2 streams",
        (line("gigabit", 1_000_000_000), line("Fast Ethernet", 100_000_000), UNPACED, FQ),
        nodes,
        seconds=FAR_SECONDS,
        rate_bps=BWC_BPS,
        edge_rate_bps=10_000_000_000,
        fifo_bytes=256 * KIB,
        socket_buffer_bytes=BWC_BUFFER_BYTES,
    )
    return Experiment(
        name="fast-ethernet",
        title="Senders on Fast Ethernet and on gigabit Ethernet through one bottleneck",
        reproduces=("Tokyo Fast Ethernet against gigabit",),
        source=SOURCE,
        metrics=("goodput", "lost", "edge_lost", "share", "jain", "deviation_whole", "deviation"),
        cells=cells,
        plots=("flows",),
        conditions={"connections": "not known"},
        differs=(
            "Published as a picture: Fast Ethernet senders are steadier than gigabit ones. A "
            "sender's line is a class at the edge whose packets have the shortest gap, 12 bytes, "
            "at the line's rate. The path is that of `bwc2002`, an assumption here.",
            "Reno recovers from the losses of slow start for all of the 12 s. One stream of the "
            "Fast Ethernet senders escapes them and has its line to itself; the others are as "
            "slow as those of gigabit senders. That one stream makes the sum steadier, and the "
            "shares unequal.",
        ),
    )


def clustered() -> Experiment:
    """Spacing in slow start only."""
    cells = beside(
        "596 Mbit/s, 200 ms",
        (UNPACED, CLUSTERED, LARGER_CLUSTERS, SPACED_IN_SLOW_START, PACED, FQ),
        _reno,
        seconds=SECONDS,
        rate_bps=TUNING_BPS,
        socket_buffer_bytes=buffer_for(200 * MS, TUNING_BPS),
        bins=True,
    )
    return Experiment(
        name="clustered",
        title="Clustered Packet Spacing: paced only in the first slow start",
        reproduces=("Tokyo Clustered Packet Spacing",),
        source=SOURCE,
        metrics=("goodput", "steady", "lost", "edge_lost"),
        cells=cells,
        plots=("slow-start",),
        conditions={"connections": "not known"},
        differs=(
            "The path is that of IPG tuning, 596 Mbit/s and 200 ms; the slides on Clustered Packet "
            "Spacing name none. Reno and the FIFO of 64 KB are assumptions.",
            "With the published threshold, pacing ends before the FIFO overflows. The first burst "
            "after that has a larger window than the one that overflows it without pacing, so more "
            "packets are lost, and a larger window is left.",
            "Published: a timer of 1 ms sends 200 small bursts a round trip, of at most 80 packets "
            "each, while RTT / cwnd is above 1 ms. With that threshold a flow is left alone before "
            "a cluster has two packets; at 12.5 us clusters grow to 80. In mode `slow-start` each "
            "packet has its own departure time, with a headroom of 120 % (doubled in slow start), "
            "and at most the path's rate as the switch estimates it.",
            PUBLISHED_SENDERS,
        ),
    )


def parallel() -> Experiment:
    """Parallel streams: 16 nodes of 4 there, 4 nodes of 4 here."""
    nearest_ms = min(NODES_RTT_MS)
    # The windows of four streams may arrive together.
    room = ("limit_bytes", NODE_STREAMS * SOCKET_BUFFER_BYTES)
    gap, paced = (
        dataclasses.replace(shaper, settings=(*shaper.settings, room))
        for shaper in (ipg(NODE_GAP_BYTES), PACED)
    )
    cells = beside(
        *("4 nodes x 4 streams", (UNPACED, gap, paced, FQ)),
        lambda shaper: many_flows(shaper, len(NODES_RTT_MS), streams=NODE_STREAMS),
        seconds=FAR_SECONDS,
        rtt_ns=nearest_ms * MS,
        extra_rtt_ns=tuple((rtt_ms - nearest_ms) * MS for rtt_ms in NODES_RTT_MS),
        fifo_bytes=256 * KIB,
        bins=True,
    )
    return Experiment(
        name="parallel",
        title="Parallel streams: 16 nodes x 4 there, 4 nodes x 4 here, RTT 292 to 335 ms",
        reproduces=("Tokyo parallel streams",),
        source=f"{SOURCE}: 5.42 Gbit/s with 64 streams over three paths of 8.2 Gbit/s in sum",
        metrics=("goodput", "steady", "lost", "edge_lost", "jain"),
        cells=cells,
        plots=("bandwidth",),
        conditions={
            "bottleneck": "2 x OC-48; OC-48 for 3 x GbE; GbE: 8.2 Gbit/s in sum",
            "RTT": "335, 326, 292 ms",
            "connections": "64 from 16 nodes",
        },
        differs=(
            "One bottleneck of 500 Mbit/s replaces three paths, so rates do not compare: 2 x OC-48 "
            "(RTT 335 ms), OC-48 that carries 3 x GbE (326 ms), and GbE (292 ms), 8.2 Gbit/s in "
            "sum. The gap gives each node a quarter of the bottleneck.",
        ),
    )

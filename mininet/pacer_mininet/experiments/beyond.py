"""Experiments without a published counterpart: delays, gaps, backlog, fairness, large networks."""

import dataclasses
from collections.abc import Iterable

from pacer_mininet.experiments.experiment import (
    FAR_SECONDS,
    SECONDS,
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
from pacer_mininet.published import KIB, MIB
from pacer_mininet.traffic import MS

LONG_DELAYS_MS = (25, 50, 100, 150)
"""One way: the delays of the IPG sweep at which dynamic spacing is claimed to win."""

DELAYS_FIFO_BYTES = 256 * KIB
"""Much less than the path holds at each of them, so that losses matter."""

HUNDRED_BUFFER_BYTES = 1_250_000
"""Socket buffers of each of a hundred senders: ten times the bandwidth-delay product of its share.
A hundred of the talk's buffers do not fit into a lab's memory."""

TEN_GIGABIT_BUFFER_BYTES = 260_000_000
"""A little more than the path holds."""

FLOWS = 10
TRANSFER_BYTES = 10_000_000
SMALL_TRANSFER_BYTES = 1_000_000
LARGE_TRANSFER_BYTES = 500_000_000

METRICS = (
    *("goodput", "steady", "lost", "edge_lost", "jain"),
    *("done", "completion", "jain_done"),
)


def transfers(cells: Iterable[Cell], row: str, payload_bytes: int) -> tuple[Cell, ...]:
    """Return the same cells with flows that end after `payload_bytes`."""
    made = []
    for cell in cells:
        flows = tuple(
            dataclasses.replace(flow, payload_bytes=payload_bytes) for flow in cell.scenario.flows
        )
        scenario = dataclasses.replace(cell.scenario, flows=flows, bins=False)
        made.append(dataclasses.replace(cell, row=row, scenario=scenario, extra=True))
    return tuple(made)


def ten_gigabit() -> Experiment:
    """10 Gbit/s, 200 ms."""
    # Slow start doubles up to the path's BDP, and half of it waits in the pacer's queue.
    room = ("limit_bytes", TEN_GIGABIT_BUFFER_BYTES)
    roomy = dataclasses.replace(PACED, settings=(*PACED.settings, room))
    cells = beside(
        *("10 Gbit/s, 200 ms", (UNPACED, roomy, FQ), one_flow),
        # Slow start takes three of them.
        seconds=5,
        rate_bps=10_000_000_000,
        edge_rate_bps=40_000_000_000,
        fifo_bytes=MIB,
        socket_buffer_bytes=TEN_GIGABIT_BUFFER_BYTES,
        bins=True,
    )
    return Experiment(
        name="tengigabit",
        title="10 Gbit/s at 200 ms: slow start into a bottleneck twenty times as fast",
        metrics=("goodput", "steady", "lost", "edge_lost", "bin_max", "done", "completion"),
        cells=(*cells, *transfers(cells, "one transfer of 500 MB", LARGE_TRANSFER_BYTES)),
        plots=("bandwidth",),
        differs=(
            "There is one flow, so fairness is not measured.",
            "Slow start takes three of the five seconds, so the second half includes its end.",
        ),
    )


def hundred_senders() -> Experiment:
    """Many hosts through one edge."""
    cells = beside(
        *("100 senders", (UNPACED, PACED, FQ), lambda shaper: many_flows(shaper, 100)),
        seconds=8,
        socket_buffer_bytes=HUNDRED_BUFFER_BYTES,
    )
    return Experiment(
        name="senders100",
        title="100 senders through one edge, 5 Mbit/s each",
        metrics=METRICS,
        cells=(*cells, *transfers(cells, "100 transfers of 1 MB", SMALL_TRANSFER_BYTES)),
        differs=(
            "All flows start at the same time, so a hundred first packets meet in a FIFO that "
            "holds 43.",
        ),
    )


def mixed_rtts() -> Experiment:
    """Senders with equal shares and different RTTs."""
    extra = tuple(n * 20 * MS for n in range(FLOWS))
    cells = beside(
        *("RTT 20 to 200 ms", (UNPACED, PACED, FQ), lambda shaper: many_flows(shaper, FLOWS)),
        seconds=FAR_SECONDS,
        rtt_ns=20 * MS,
        extra_rtt_ns=extra,
    )
    return Experiment(
        name="mixedrtt",
        title="Ten senders, RTT 20 to 200 ms, one bottleneck",
        metrics=METRICS,
        cells=(*cells, *transfers(cells, "10 transfers of 10 MB", TRANSFER_BYTES)),
        plots=("flows",),
    )


def one_percent() -> Experiment:
    """One unpaced flow among ninety-nine paced ones."""
    cells = []
    for shaper in (PACED, FQ):
        for unpaced in (0, 1):
            flows = list(many_flows(shaper, 100))
            for number in range(unpaced):
                flows[number] = dataclasses.replace(flows[number], shaper=UNPACED)
            scenario = Scenario(tuple(flows), seconds=8, socket_buffer_bytes=HUNDRED_BUFFER_BYTES)
            title = f"{shaper.name}, {unpaced} % unpaced"
            cells.append(Cell("100 senders", title, scenario, extra=shaper is FQ))
    return Experiment(
        name="onepercent",
        title="1 % of the flows unpaced, and their effect on the others",
        metrics=(
            "steady_paced",
            "steady_unpaced",
            "lost",
            "edge_lost",
            "jain_paced",
            "done",
            "completion_paced",
        ),
        cells=(*cells, *transfers(cells, "100 transfers of 1 MB", SMALL_TRANSFER_BYTES)),
    )


def one_of_two_edges() -> Experiment:
    """Senders behind two edges, of which none, one or both pace."""
    cells = []
    for title, shaper, where in (
        ("edges that pace: none", UNPACED, ()),
        ("edges that pace: one of two", PACED, (0,)),
        ("edges that pace: both", PACED, (0, 1)),
        ("fq behind one of two", FQ, (0,)),
        ("fq behind both", FQ, (0, 1)),
    ):
        flows = tuple(
            Flow(
                shaper=(shaper if number % 2 in where else UNPACED).at(1, FLOWS),
                sender=number + 1,
                payload_bytes=TRANSFER_BYTES,
            )
            for number in range(FLOWS)
        )
        scenario = Scenario(flows, seconds=FAR_SECONDS, edges=2)
        cells.append(Cell("10 transfers of 10 MB", title, scenario, extra=shaper is FQ))
    return Experiment(
        name="twoedges",
        title="Pacing at none, one and both of two edges",
        metrics=("lost", "edge_lost", "done", "completion", "jain_done"),
        cells=tuple(cells),
        plots=("flows",),
    )


def delays() -> Experiment:
    """Dynamic spacing over long delays; packets are lost in the FIFO only."""

    def over(delay_ms: int, fifo_bytes: int, title: str) -> tuple[Cell, ...]:
        return beside(
            *(title, (UNPACED, PSPD, DYNAMIC, FQ), one_flow),
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
            "PSPD follows the window a round trip later, so a part of the window waits at the "
            "edge, and its rate grows slowly. On the longer paths it is still below the path's "
            "rate when the run ends, so nothing is lost. At 25 ms one way it reaches the path's "
            "rate with a window that is much larger than what path and FIFO hold, and loses "
            "thousands of packets at once.",
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

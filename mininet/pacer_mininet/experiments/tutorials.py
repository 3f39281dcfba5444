"""The exercises `qos` and `ecn` of the P4 tutorials, in front of a line with real queues.

qos.p4 is the program of both: DSCP by protocol, egress queue by DSCP, and ECN marks by depth.
"""

from typing import Any

from pacer_mininet.experiments.experiment import SAME_SEEDS, Cell, Experiment
from pacer_mininet.experiments.scenario import Flow, Queueing, Scenario
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES

PROGRAM = "qos"
LINE_BPS = 100_000_000
RTT_NS = 20 * MS
PATH_BYTES = LINE_BPS * RTT_NS // 8 // 1_000_000_000
"""What the path holds without a queue: the bandwidth-delay product."""

PATH: dict[str, Any] = {"rate_bps": LINE_BPS, "rtt_ns": RTT_NS, "seconds": 4}
STREAMS = 4

# ---- qos ----

BELOW_ITS_WEIGHT = "UDP of 10 Mbit/s beside 4 CUBIC"
ABOVE_ITS_WEIGHT = "UDP of 60 Mbit/s beside 4 CUBIC"
UDP_BPS = {BELOW_ITS_WEIGHT: 10_000_000, ABOVE_ITS_WEIGHT: 60_000_000}
"""By row. UDP is in queue 1 (EF), and does not slow down; TCP is in queue 0 (AF11)."""

STRICT = "strict"
BY_WEIGHT = {"drr 3:1": "drr:3:1", "wfq 3:1": "wfq:3:1"}
QUEUES: dict[str, str | None] = {"no queues": None, STRICT: "strict", **BY_WEIGHT}
"""The scheduler by column; the weight of queue 0, TCP's, is the first."""

UDP_WEIGHT_PERCENT = 25
"""UDP's share by weight."""

ROUND_FRAMES = 4
"""A round of the weights."""


def qos() -> Experiment:
    """UDP beside TCP through one FIFO, and through two queues."""
    cells = []
    for row, udp_bps in UDP_BPS.items():
        # Each has an edge of its own, so that TCP's bursts do not disturb UDP before the queue.
        flows = (
            Flow(udp_bps=udp_bps, burst_frames=1),
            Flow(sender=2, congestion_control="cubic", streams=STREAMS),
        )
        for column, scheduler in QUEUES.items():
            queues = () if scheduler is None else (("queues", 2), ("scheduler", scheduler))
            scenario = Scenario(
                flows,
                edges=2,
                fifo_bytes=PATH_BYTES,
                queueing=Queueing("switch", egress_queues=queues, program=PROGRAM),
                **PATH,
            )
            cells.append(Cell(row, column, scenario, seeds=SAME_SEEDS))
    return Experiment(
        name="qos",
        title="The tutorials' qos: DSCP by protocol, queue by DSCP; 100 Mbit/s, 20 ms",
        metrics=(
            *("first_rate", "last_rate", "steady"),
            *("first_sojourn_median", "first_sojourn_p99", "first_sojourn_max"),
            *("last_sojourn_median", "last_sojourn_p99", "queue_drops"),
        ),
        cells=tuple(cells),
        differs=(
            "The tutorial has no figures, and its switch no queues: it sets the DSCP alone. The "
            "first flow is UDP with EF (RFC 3246), the last one four connections of TCP with AF11.",
            "In strict order, a packet of EF waits for the frame on the line at most, and TCP has "
            "what UDP leaves. By weight, UDP has a quarter of the line or its rate, whichever is "
            "less; below its quarter, it waits for a round of four frames at most.",
            "The line counts layer 2 with FCS, and so do the rates behind the queue; 95.4 of its "
            "100 Mbit/s are payload of TCP. The port's FIFO, and each queue, holds 250 KB, the "
            "bandwidth-delay product.",
        ),
    )


# ---- ecn ----

MARK_FROM_PACKETS = 24
"""MARK_FROM_PACKETS of qos.p4: K of DCTCP, which is above a seventh of the path's 165 packets."""

LARGE_BYTES = 10_000 * MTU_FRAME_BYTES
"""More than all windows."""

_MARK_FROM_BYTES = MARK_FROM_PACKETS * MTU_FRAME_BYTES
_MARK_FROM_US = _MARK_FROM_BYTES * 8 * 1_000_000 // LINE_BPS

CONTROLS = {"Reno": "reno", "CUBIC": "cubic", "DCTCP": "dctcp"}
"""By row."""

BY_PROGRAM = "threshold, P4"
IN_LINUX = "threshold, Linux"
DROP_TAIL = "drop-tail"

MARKING: dict[str, tuple[Queueing, int]] = {
    DROP_TAIL: (Queueing("switch"), PATH_BYTES),
    BY_PROGRAM: (Queueing("switch", egress_queues=(("queues", 1),), program=PROGRAM), LARGE_BYTES),
    # CoDel's target is so long that it has no effect.
    IN_LINUX: (
        Queueing(
            "kernel", discipline=f"codel target 10s interval 10s ce_threshold {_MARK_FROM_US}us"
        ),
        LARGE_BYTES,
    ),
    "RED": (
        Queueing(
            "switch",
            egress_queues=(
                ("queues", 1),
                ("aqm", f"red:{_MARK_FROM_BYTES}:{3 * _MARK_FROM_BYTES}:0.1:ecn"),
            ),
        ),
        LARGE_BYTES,
    ),
}
"""By column: the queue, and its depth in bytes."""


def ecn() -> Experiment:
    """TCP that answers marks, through queues that mark and one that drops."""
    cells = [
        Cell(
            row,
            column,
            Scenario(
                (Flow(congestion_control=control, streams=STREAMS),),
                fifo_bytes=depth_bytes,
                queueing=queueing,
                ecn=True,
                **PATH,
            ),
            seeds=SAME_SEEDS,
        )
        for row, control in CONTROLS.items()
        for column, (queueing, depth_bytes) in MARKING.items()
        # Without marks DCTCP is Reno.
        if (row, column) != ("DCTCP", DROP_TAIL)
    ]
    return Experiment(
        name="ecn",
        title="The tutorials' ecn: marks from a depth on; 4 connections, 100 Mbit/s, 20 ms",
        metrics=(
            *("steady", "sojourn_median", "sojourn_p99", "sojourn_max"),
            *("queue_drops", "ce_marks"),
        ),
        cells=tuple(cells),
        plots=("sojourns",),
        differs=(
            "The tutorial has no figures. qos.p4 marks a packet that found 24 packets or more in "
            "its queue (enq_qdepth). DCTCP's paper has K > C x RTT / 7 for a busy line, which is "
            "23.5 packets here, and a queue of at most K + N packets with N connections.",
            "Reno and CUBIC answer a mark as a lost packet (RFC 3168): they halve the window, or "
            "take 0.7 of it. K + N packets are not enough to keep the line busy then. Drop-tail "
            "has room for the bandwidth-delay product, 250 KB.",
            "Linux's threshold is CoDel's ce_threshold alone, at 24 frames' time, in units of "
            "1,024 ns. The senders answer each mark, so the runs differ after the first other one.",
            "RED marks by the average depth, from 24 frames on, and drops from 72 on. That average "
            "follows the depth with a weight of 1/512 of each packet.",
        ),
    )

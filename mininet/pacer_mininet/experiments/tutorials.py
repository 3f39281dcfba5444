"""The exercise `qos` of the P4 tutorials, in front of a line with real queues: qos.p4."""

from typing import Any

from pacer_mininet.experiments.experiment import SAME_SEEDS, Cell, Experiment
from pacer_mininet.experiments.scenario import Flow, Queueing, Scenario
from pacer_mininet.experiments.takano import MS

PROGRAM = "qos"
LINE_BPS = 100_000_000
RTT_NS = 20 * MS
PATH_BYTES = LINE_BPS * RTT_NS // 8 // 1_000_000_000
"""What the path holds without a queue: the bandwidth-delay product."""

PATH: dict[str, Any] = {"rate_bps": LINE_BPS, "rtt_ns": RTT_NS, "seconds": 4}
STREAMS = 4

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

"""Active queue management of the switch's egress queues, beside that of a Linux router."""

from collections.abc import Iterable
from typing import Any

from pacer_mininet.experiments.experiment import Cell, Experiment
from pacer_mininet.experiments.scenario import Flow, Queueing, Scenario
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES

FIFO_BYTES = 10_000 * MTU_FRAME_BYTES
"""More than the window of any flow here."""

DISCIPLINES: dict[str, tuple[str | None, str | None]] = {
    "CoDel": ("codel:5ms:100ms:ecn", "codel ecn"),
    "FQ-CoDel": ("fq_codel", "fq_codel"),
    "PIE": ("pie:15ms:ecn", "pie ecn"),
    "DualPI2": ("dualpi2", None),
    "CAKE": (None, "cake unlimited"),
}
"""The switch's `aqm`, and the kernel's queueing discipline; None: it has none."""

THAT_MARK = ("CoDel", "FQ-CoDel", "PIE", "DualPI2")
"""The disciplines of the switch, all of which mark with ECN."""

SHORT: dict[str, Any] = {"rate_bps": 100_000_000, "rtt_ns": 20 * MS, "seconds": 6}
"""Slow start is over within a second."""

FLOWS = 4
SHORT_ROW = f"100 Mbit/s, 20 ms, {FLOWS} flows"
ECN_ROW = f"{SHORT_ROW}, ECN"

LONG: dict[str, Any] = {"rtt_ns": 200 * MS, "seconds": 5}
LONG_ROW = "500 Mbit/s, 200 ms, 1 flow"


def queues_of(name: str) -> list[Queueing]:
    """Return a discipline at the switch, and in the kernel if that has it."""
    management, discipline = DISCIPLINES[name]
    found = []
    if management is not None:
        found.append(Queueing("switch", egress_queues=(("queues", 1), ("aqm", management))))
    if discipline is not None:
        found.append(Queueing("kernel", discipline=discipline))
    return found


def _cells(row: str, names: Iterable[str], flows: int, **path: Any) -> list[Cell]:
    """Return a row with each discipline where it is to be had."""
    cells = []
    for name in names:
        for queueing in queues_of(name):
            scenario = Scenario(
                (Flow(congestion_control="cubic", streams=flows),),
                fifo_bytes=FIFO_BYTES,
                queueing=queueing,
                **path,
            )
            cells.append(Cell(row, f"{name}, {queueing.at}", scenario, seeds=(1,)))
    return cells


def aqm() -> Experiment:
    """CUBIC through one queue with each discipline, at the switch and in the kernel."""
    cells = [
        *_cells(SHORT_ROW, ("CoDel", "FQ-CoDel", "PIE"), FLOWS, **SHORT),
        *_cells(ECN_ROW, THAT_MARK, FLOWS, ecn=True, **SHORT),
        *_cells(LONG_ROW, DISCIPLINES, 1, **LONG),
    ]
    return Experiment(
        name="aqm",
        title="Active queue management: the switch's egress queue beside Linux's",
        metrics=(
            "goodput",
            "sojourn_median",
            "sojourn_p99",
            "sojourn_max",
            "queue_drops",
            "queue_marks",
        ),
        cells=tuple(cells),
        plots=("sojourns",),
        differs=(
            "There are no published figures: the kernel's own disciplines stand beside. The Linux "
            "router forwards IP, and its HTB has the rate of the switch's line.",
            "A packet's sojourn is the time between the wire before the queue and the wire behind "
            "it, measured outside the queue.",
            "The kernel's CoDel counts time in units of 1,024 ns, and takes its square root by one "
            "Newton step from that of the count before. When it drops again with a smaller count, "
            "the next drop comes sooner than RFC 8289 has it.",
            "The kernel's PIE runs on the timer's ticks: 15 ms become 20 ms. It also spreads its "
            "drops (RFC 8033, 5.4), which the switch leaves out.",
            "Each FQ-CoDel has a hash of its own, which decides the order of the flows.",
            "Linux 6.1 has no DualPI2, and the switch no CAKE. CUBIC is in DualPI2's classic "
            "queue, whose target is 15 ms. CAKE's own shaper is off: HTB has the rate.",
        ),
    )

"""Does burstiness predict loss? Bursts and FIFO sizes (Takano et al.: "is not clear")."""

from pacer_mininet.experiments.experiment import Cell, Experiment
from pacer_mininet.experiments.scenario import FQ, PACED, TBF, UNPACED, Flow, Scenario
from pacer_mininet.experiments.takano import TICK_DRIVEN_TBF, path_of_table_5
from pacer_mininet.published import KIB
from pacer_mininet.traffic import MS
from pacer_mininet.units import format_size

FIFOS = (16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB)

BURSTS = (1_600, 512, 128, 32, 8)
"""Frames sent at once: queues of 1.2 MB to 7 KB in front of 500 Mbit/s."""

MEAN_BPS = 100_000_000
"""Of each burst size; so the burst period is 194 ms to 1 ms."""

BURST_SECONDS = 3


def _bursts(fifo_bytes: int, frames: int) -> Scenario:
    flow = Flow(udp_bps=MEAN_BPS, burst_frames=frames)
    return Scenario((flow,), seconds=BURST_SECONDS, rtt_ns=20 * MS, fifo_bytes=fifo_bytes)


def burst_loss() -> Experiment:
    """Bursts of one size, and Table 5's TCP, in front of four FIFOs."""
    cells = []
    for fifo_bytes in FIFOS:
        row = format_size(fifo_bytes)
        cells += [
            Cell(row, f"bursts of {frames}", _bursts(fifo_bytes, frames)) for frames in BURSTS
        ]
        cells += [
            Cell(row, f"TCP, {shaper.name}", path_of_table_5(fifo_bytes, shaper))
            for shaper in (UNPACED, TICK_DRIVEN_TBF, TBF, PACED, FQ)
        ]
    return Experiment(
        name="burst-loss",
        title="Does burstiness predict loss? Bursts and TCP, by FIFO size, 500 Mbit/s",
        metrics=("queue_max", "near_dynamic_max", "lost", "edge_lost"),
        cells=tuple(cells),
        differs=(
            "The virtual bottleneck has the bottleneck's rate and sees the same packets, without "
            "losing any. Its queue counts the packet that arrives and the one on the line; the "
            "FIFO counts those that wait. So a queue above the FIFO by less than a frame may go "
            "with or without loss.",
            "Dynamic burstiness has the window's own average rate. It says how unevenly packets "
            "come within a window, whatever the bottleneck carries: the slow start of a paced flow "
            "reads high, too, and loses nothing.",
            "The TCP runs are Table 5's. Where they are measured in 500 us, dynamic burstiness is "
            "not read.",
        ),
    )

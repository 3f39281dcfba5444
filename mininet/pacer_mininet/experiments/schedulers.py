"""A paced class and unpaced traffic on one line, under each scheduler of the edge's port."""

from pacer_mininet.experiments.experiment import SAME_SEEDS, Cell, Experiment
from pacer_mininet.experiments.scenario import FQ, PACED, UNPACED, Flow, Scenario, Shaper
from pacer_mininet.traffic import MS, MTU_FRAME_BYTES, MTU_WIRE_BYTES
from pacer_mininet.units import format_rate

LINE_BPS = 100_000_000
CLASS_SHARE = (3, 5)
"""The class's rate, as a fraction of the line's."""

STREAMS = 4
SOCKET_BUFFER_BYTES = 1_000_000
"""The windows of all streams fill the line however long they wait, and fit into the edge's FIFO."""

SECONDS = 8

LEAST_BPS = 30_000_000
"""The class's minimum rate where others go first."""

_LAYER_2_BPS = LINE_BPS * MTU_FRAME_BYTES // MTU_WIRE_BYTES


def _percent(rate_bps: int) -> float:
    """Return a rate in % of what the line carries; both in layer-2 bytes."""
    return 100 * rate_bps / _LAYER_2_BPS


_OWN_RATE = _percent(LINE_BPS * CLASS_SHARE[0] // CLASS_SHARE[1])

SCHEDULERS: dict[str, tuple[str | None, float]] = {
    "no scheduler": (None, _OWN_RATE),
    "wfq 1:1": ("wfq{paced+q0}", 50),
    "drr 1:1": ("drr{paced+q0}", 50),
    "wfq 1:3": ("wfq{paced:1+q0:3}", 25),
    "wfq 3:1": ("wfq{paced:3+q0:1}", _OWN_RATE),
    "unpaced first": ("strict{q0+paced}", 0),
    "unpaced first, class at least 30": (
        f"strict{{q0+drr{{paced}}:min={format_rate(LEAST_BPS)}}}",
        _percent(LEAST_BPS),
    ),
}
"""The scheduler of the edge's port, and the class's fluid share in % of what the line carries."""


def _cell(title: str, shaper: Shaper, tree: str | None) -> Cell:
    flows = (
        Flow(shaper.at(*CLASS_SHARE), congestion_control="cubic"),
        Flow(UNPACED, sender=2, congestion_control="cubic", streams=STREAMS),
    )
    scenario = Scenario(
        flows,
        seconds=SECONDS,
        rate_bps=LINE_BPS,
        edge_rate_bps=LINE_BPS,
        rtt_ns=20 * MS,
        socket_buffer_bytes=SOCKET_BUFFER_BYTES,
        edge_queues=() if tree is None else (("queues", 1), ("scheduler", tree)),
    )
    row = "60 Mbit/s beside 4 CUBIC, 100 Mbit/s, 20 ms"
    return Cell(row, title, scenario, seeds=SAME_SEEDS)


def schedulers() -> Experiment:
    """One spaced connection beside four unpaced ones, on a line that both together fill."""
    cells = (
        *(_cell(title, PACED, tree) for title, (tree, _) in SCHEDULERS.items()),
        _cell("fq at the sender", FQ, None),
    )
    return Experiment(
        name="schedulers",
        title="Schedulers: a paced class beside unpaced traffic on one line",
        metrics=("steady_paced", "steady_unpaced", "lost", "edge_lost", "edge_late"),
        cells=cells,
        differs=(
            "There are no published figures. The fluid share says what each gets: the class its "
            "share of the line or its rate, whichever is less, and the others the rest.",
            "The line counts preamble and gap between frames, so 98.7 of its 100 Mbit/s are "
            "frames, and 94.1 are payload.",
        ),
    )

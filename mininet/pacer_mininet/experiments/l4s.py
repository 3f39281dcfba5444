"""L4S beside classic traffic, in a queue that tells them apart (RFC 9332) and in others."""

from typing import Any

from pacer_mininet.experiments.aqm import FIFO_BYTES, FLOWS, SHORT, queues_of
from pacer_mininet.experiments.experiment import SAME_SEEDS, Cell, Experiment
from pacer_mininet.experiments.scenario import Flow, Scenario
from pacer_mininet.traffic import MS

DUALPI2 = "DualPI2"
QUEUES = (DUALPI2, "CoDel", "FQ-CoDel")

LOW_LATENCY_BPS = 10_000_000
ECT_1 = 1

_WAITS = (
    *("first_sojourn_median", "first_sojourn_p99"),
    *("last_sojourn_median", "last_sojourn_p99"),
)


def l4s() -> Experiment:
    """UDP that does not slow down beside classic traffic."""
    flows = (
        Flow(udp_bps=LOW_LATENCY_BPS, tos=ECT_1),
        Flow(congestion_control="cubic", streams=FLOWS),
    )
    cells = [
        Cell(
            "UDP with ECT(1) beside 4 CUBIC",
            name,
            Scenario(flows, fifo_bytes=FIFO_BYTES, queueing=queues_of(name)[0], ecn=True, **SHORT),
            seeds=SAME_SEEDS,
        )
        for name in QUEUES
    ]
    return Experiment(
        name="l4s",
        title="L4S beside classic traffic: 100 Mbit/s, 20 ms, ECN",
        metrics=("goodput", *_WAITS, "queue_drops", "queue_marks"),
        cells=tuple(cells),
        differs=(
            "RFC 9332 gives no figures of its own. It expects packets of the low latency queue to "
            "wait for about a millisecond.",
            "The first flow is UDP of 10 Mbit/s with ECT(1), which does not slow down. The second "
            "one is four connections of CUBIC; the goodput is theirs.",
        ),
    )


# ---- shares ----

AFTER_MARK = {"CUBIC": 0.7, "Reno": 0.5}
"""The part of its window that a classic congestion control keeps after a mark."""

EQUAL_RTT_NS = 25 * MS
"""The path for which RFC 9332 chooses its coupling factor: a flow of each kind has half of it."""

SHARES = (
    ("CUBIC", EQUAL_RTT_NS, QUEUES),
    ("Reno", EQUAL_RTT_NS, (DUALPI2,)),
    *(("CUBIC", rtt_ns, (DUALPI2,)) for rtt_ns in (10 * MS, 50 * MS)),
)
"""The classic congestion control and the path's RTT of each row, and its columns."""

SHARED_LINE: dict[str, Any] = {"rate_bps": 40_000_000, "seconds": 20}
"""A classic flow that has half of the line is marked about once a second."""

TARGET_NS = 15 * MS
"""The target of DualPI2's classic queue."""


def expected_ratio(after_mark: float, rtt_ns: int) -> float:
    """Return the rate of an L4S flow over that of a classic flow, by RFC 9332, appendix C.2.

    It is equation (10), with a coupling factor of 2. The classic flow's mean RTT is that of
    equation (8); that of the L4S flow is the path's, since its queue is short.
    """
    classic_rtt_ns = (1 + after_mark) / 2 * (rtt_ns + TARGET_NS)
    return classic_rtt_ns / (1.22 * rtt_ns)


def l4s_shares() -> Experiment:
    """Share a line between a scalable flow with ECT(1) and a classic one."""
    cells = []
    for classic, rtt_ns, queues in SHARES:
        flows = (
            Flow(congestion_control="dctcp"),
            Flow(sender=2, congestion_control=classic.lower()),
        )
        # A fair queue gives each flow the same.
        ratio = round(expected_ratio(AFTER_MARK[classic], rtt_ns), 2)
        expected = {DUALPI2: ratio, "FQ-CoDel": 1.0}
        for name in queues:
            scenario = Scenario(
                flows,
                rtt_ns=rtt_ns,
                fifo_bytes=FIFO_BYTES,
                queueing=queues_of(name)[0],
                ecn=True,
                l4s_senders=(1,),
                **SHARED_LINE,
            )
            published = {"rate_ratio": expected[name]} if name in expected else {}
            row = f"DCTCP beside {classic}, {rtt_ns // MS} ms"
            cells.append(Cell(row, name, scenario, published, seeds=SAME_SEEDS))
    return Experiment(
        name="l4s-shares",
        title="Shares of an L4S flow and a classic one: 40 Mbit/s, ECN",
        metrics=("rate_ratio", "first_rate", "last_rate", *_WAITS, "queue_drops", "queue_marks"),
        cells=tuple(cells),
        source="RFC 9332, equations (8) and (10)",
        differs=(
            "The first flow is DCTCP, whose packets get ECT(1) on the sender's wire (l4s.p4), as "
            "no congestion control of Linux 6.1 sends it. The last flow has ECT(0). Rates are "
            "layer 2 with FCS behind the queue, in the second half of the run.",
            "RFC 9332 expects the ratio by equation (10), which takes DCTCP's rate from the "
            "probability of a mark and nothing else. It makes that of Reno 1 at 25 ms.",
            "A fair queue, FQ-CoDel, has a ratio of 1. There is no expectation for one queue that "
            "marks both alike.",
        ),
    )

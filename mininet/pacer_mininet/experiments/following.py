"""A path whose free rate changes: a class that follows the queue downstream, beside the others."""

import dataclasses

from pacer_mininet.experiments.experiment import Cell, Experiment
from pacer_mininet.experiments.scenario import (
    DYNAMIC,
    FQ,
    PACED,
    UDP_FRAME_BYTES,
    UDP_PAYLOAD_BYTES,
    UNPACED,
    Flow,
    Scenario,
    Shaper,
)
from pacer_mininet.published import KIB
from pacer_mininet.traffic import MS

RATE_BPS = 200_000_000
RTT_NS = 100 * MS
FIFO_BYTES = 512 * KIB
SECONDS = 30
COME_MS, GO_MS = 8_000, 20_000
"""Start and end of the other flows."""

OTHERS = 10
OTHERS_BPS = 80_000_000
"""All of them together."""

LINE_STEP_BY_STEP = "the line falls, step by step"
LINE_AT_ONCE = "the line falls, at once"
BESIDE_LINE = ("following", "unpaced, BBR", "paced, 200M", "dynamic")
"""Columns of the rows in which the line's rate changes."""

FOLLOWING = dataclasses.replace(PACED, name="following", follows_queue=True)


def _other(rate_bps: int, start_ms: int) -> Flow:
    """Return UDP from another host, which neither paces nor gives way."""
    sent_bytes = rate_bps * (GO_MS - start_ms) // 8_000
    return Flow(
        sender=2,
        udp_bps=rate_bps,
        start_ms=start_ms,
        payload_bytes=sent_bytes * UDP_PAYLOAD_BYTES // UDP_FRAME_BYTES,
    )


def _one_by_one() -> tuple[Flow, ...]:
    """Return others of which one more comes each second."""
    each_bps = OTHERS_BPS // OTHERS
    return tuple(_other(each_bps, COME_MS + 1000 * number) for number in range(OTHERS))


def _at_once() -> tuple[Flow, ...]:
    return (_other(OTHERS_BPS, COME_MS),)


def _steps(count: int) -> tuple[tuple[int, int], ...]:
    """Return the rates of a line that loses what others would take, in steps a second apart."""
    falls = (
        (COME_MS + 1000 * number, RATE_BPS - OTHERS_BPS * (number + 1) // count)
        for number in range(count)
    )
    return (*falls, (GO_MS, RATE_BPS))


def following() -> Experiment:
    """One TCP flow on a path that has two fifths less for it for a while."""
    # Scaled down, only the first three are made.
    shapers: dict[str, tuple[Shaper, str]] = {
        "following": (FOLLOWING.at(4, 5), "bic"),
        "unpaced": (UNPACED, "bic"),
        "unpaced, BBR": (UNPACED, "bbr"),
        "fq, 200M": (FQ, "bic"),
        "paced, 200M": (PACED, "bic"),
        "paced, 120M": (PACED.at(3, 5), "bic"),
        "dynamic": (DYNAMIC, "bic"),
    }
    paths = {
        "one by one": (_one_by_one(), ()),
        "at once": (_at_once(), ()),
        LINE_STEP_BY_STEP: ((), _steps(OTHERS)),
        LINE_AT_ONCE: ((), _steps(1)),
    }
    cells = [
        Cell(
            row,
            column,
            Scenario(
                (Flow(shaper=shaper, congestion_control=control), *others),
                seconds=SECONDS,
                rate_bps=RATE_BPS,
                rtt_ns=RTT_NS,
                fifo_bytes=FIFO_BYTES,
                # Twice the bandwidth-delay product.
                socket_buffer_bytes=2 * RATE_BPS * RTT_NS // 8_000_000_000,
                rate_steps=steps,
            ),
            seeds=(1,),
        )
        for row, (others, steps) in paths.items()
        for column, (shaper, control) in shapers.items()
        if not steps or column in BESIDE_LINE
    ]
    return Experiment(
        name="following",
        title="A rate that follows: others take, or the line loses, 80 of 200 Mbit/s from 8 s to "
        "20 s, FIFO 512 KB",
        metrics=(
            *("goodput", "used", "lost", "lost_late", "edge_lost", "queue_max", "queue_late"),
        ),
        cells=tuple(cells),
        plots=("first-flow",),
        differs=(
            "In the rows `one by one` and `at once` the path's line rate stays the same. Others "
            "leave more or less of it, so gtrcnet's virtual bottleneck, which has that line rate, "
            "sees the queue.",
            "Others are UDP, which does not give way: ten of 8 Mbit/s that come a second apart, or "
            "one of 80 Mbit/s. Their losses count, too.",
            "In the other rows nobody else sends, and the line's rate changes: it falls in ten "
            "steps of 8 Mbit/s a second apart, or in one of 80 Mbit/s. The rate of the virtual "
            "bottleneck changes with it.",
            "80 Mbit/s less at once fill the FIFO before anybody can know: they take 52 ms for "
            "512 KB, and the controller reads the queue every 50 ms. Then the packets that the "
            "class holds still leave at the former rate. So some are lost, but none later than "
            "half a second after the line has fallen.",
        ),
    )

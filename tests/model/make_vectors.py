"""Writes the files in ``tests/vectors``: cases, and what the reference scheduler does with them.

    python3 make_vectors.py [--out DIR]                       the committed files, and those of
                                                              the further modes in DIR/modes
                                                              DIR/timer and DIR/slots,
                                                              of gap frames in DIR/pause-frames,
                                                              of burstiness in DIR/burstiness
    python3 make_vectors.py --random COUNT --seed N --out DIR as many random cases, elsewhere

The same call writes the same bytes, on every machine and Python version: random cases come
from a generator of our own. The format is described in ``tests/vectors/README.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from burstiness_cases import burstiness_cases, burstiness_vector_text
from flow_cases import flow_cases, flow_vector_text
from pacing_model import (
    FCS_BYTES,
    MIN_GAP_FRAME_BYTES,
    PREAMBLE_BYTES,
    Arrive,
    ClassConfig,
    Event,
    GapFrame,
    Packet,
    PortConfig,
    SetClass,
    Stall,
    run,
)
from sharing_cases import sharing_cases, sharing_vector_text
from vector_text import lines

T = TypeVar("T")

VECTORS_DIR = Path(__file__).resolve().parent.parent / "vectors"
MODES = "modes"
FLOWS = "flows"
"""Subdirectory of the cases that ask for more than every data plane has."""
SHARING = "sharing"
"""Subdirectory of the cases of mode shared."""
BURSTINESS = "burstiness"
"""Subdirectory of the cases of gtrcnet's measurements."""
TIMER = "timer"
"""Subdirectory of the cases of mode timer, in the format of the modes."""
SLOTS = "slots"
"""Subdirectory of the cases of classes in slots, in the format of the modes."""
PAUSE_FRAMES = "pause-frames"
"""Subdirectory of the cases in which PAUSE frames fill the gaps."""

GIGABIT = 1_000_000_000
MTU_BYTES = 1514
"""A full Ethernet frame without FCS."""
UNPACED = 0
YEAR_LATER_NS = (1 << 55) - 777
"""About 417 days of uptime."""


@dataclass(frozen=True)
class Case:
    """One vector file, before the expected results are computed."""

    name: str
    description: str
    port: PortConfig
    classes: list[ClassConfig]
    events: list[Event]


class Random:
    """xorshift64*: small and the same everywhere."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 0x9E3779B97F4A7C15 % (1 << 64) or 1

    def below(self, bound: int) -> int:
        """0 <= result < bound; the bias is of no matter here."""
        x = self.state
        x ^= x >> 12
        x ^= x << 25 & (1 << 64) - 1
        x ^= x >> 27
        self.state = x
        return (x * 0x2545F4914F6CDD1D % (1 << 64) >> 11) % bound

    def choice(self, items: Sequence[T]) -> T:
        """One of them."""
        return items[self.below(len(items))]


def port(
    rate_bps: int | None = GIGABIT,
    counts: Literal["layer2", "wire"] = "wire",
    fifo_bytes: int = 65536,
) -> PortConfig:
    """A gigabit Ethernet port with a FIFO of 64 KB, unless said otherwise."""
    return PortConfig(rate_bps, counts, fifo_bytes)


def static(
    class_id: int,
    rate_bps: int,
    limit_bytes: int = 1 << 20,
    allowance_ns: int | None = None,
) -> ClassConfig:
    """A paced class. Default allowance: one MTU's time at its rate, rounded up."""
    if allowance_ns is None:
        allowance_ns = -(-(MTU_BYTES + FCS_BYTES) * 8_000_000_000 // rate_bps)
    return ClassConfig(class_id, "static", rate_bps, limit_bytes, allowance_ns)


def ipg(
    class_id: int,
    gap_bytes: int,
    line_rate_bps: int = GIGABIT,
    limit_bytes: int = 1 << 20,
    ecn_threshold_bytes: int = 0,
) -> ClassConfig:
    """A class of fixed gaps, with an allowance of one MTU and its gap, rounded up."""
    taken_bytes = MTU_BYTES + FCS_BYTES + PREAMBLE_BYTES + gap_bytes
    allowance_ns = -(-taken_bytes * 8_000_000_000 // line_rate_bps)
    return ClassConfig(
        class_id, "ipg", line_rate_bps, limit_bytes, allowance_ns, gap_bytes, ecn_threshold_bytes
    )


def timer(
    class_id: int, rate_bps: int, ticks_per_second: int, limit_bytes: int = 1 << 20
) -> ClassConfig:
    """A class that is released by ticks; a tick has whole nanoseconds."""
    tick_ns = (1_000_000_000 + ticks_per_second // 2) // ticks_per_second
    config = replace(static(class_id, rate_bps, limit_bytes), mode="timer")
    return replace(config, tick_ns=tick_ns)


def in_slot(config: ClassConfig, cycle_ns: int, offset_ns: int) -> ClassConfig:
    """The class, but its packets leave so long behind each multiple of a cycle."""
    return replace(config, tick_ns=cycle_ns, offset_ns=offset_ns)


def marking(config: ClassConfig, ecn_threshold_bytes: int) -> ClassConfig:
    """The class, but it marks above a threshold."""
    return replace(config, ecn_threshold_bytes=ecn_threshold_bytes)


def unpaced(class_id: int = UNPACED) -> ClassConfig:
    """An unpaced class."""
    return ClassConfig(class_id, "unpaced")


class Trace:
    """Builds a list of events with packet ids 0, 1, 2, ..."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Event]] = []
        self._ids = 0

    def packet(
        self, at_ns: int, class_id: int, length_bytes: int = MTU_BYTES, ecn: int = 0
    ) -> None:
        """A packet arrives."""
        self._add(Arrive(at_ns, Packet(0, class_id, length_bytes, ecn)))

    def burst(
        self, at_ns: int, class_id: int, count: int, length_bytes: int = MTU_BYTES, ecn: int = 0
    ) -> None:
        """Many packets arrive at the same instant."""
        for _ in range(count):
            self.packet(at_ns, class_id, length_bytes, ecn)

    def set_class(self, at_ns: int, config: ClassConfig) -> None:
        """A class changes."""
        self._add(SetClass(at_ns, config))

    def stall(self, at_ns: int, until_ns: int) -> None:
        """The machine stalls."""
        self._add(Stall(at_ns, until_ns))

    def _add(self, event: Event) -> None:
        self._events.append((event.at_ns, len(self._events), event))

    def events(self) -> list[Event]:
        """By time, then in the order given; ids in that order."""
        events: list[Event] = []
        count = 0
        for _, _, event in sorted(self._events, key=lambda entry: entry[:2]):
            if isinstance(event, Arrive):
                event = replace(event, packet=replace(event.packet, id=count))
                count += 1
            events.append(event)
        return events


# ----- the cases -----


def single_class_cases() -> Iterator[Case]:
    """Table 2 of the IPSJ paper, one class alone, and rates whose byte time is a fraction."""
    rates = [
        ("8k", 8_000, 6),
        ("10m", 10_000_000, 60),
        ("500m", 500_000_000, 200),
        ("930m", 930_000_000, 200),
        ("980m", 980_000_000, 200),
        ("333333333", 333_333_333, 200),
        ("700m", 700_000_000, 200),
        ("7777777", 7_777_777, 60),
        ("123456789", 123_456_789, 200),
    ]
    for name, rate_bps, count in rates:
        trace = Trace()
        trace.burst(1_000, 1, count)
        yield Case(
            f"single-{name}",
            f"{count} packets of {MTU_BYTES} bytes at once, a class of {rate_bps} bit/s, 1 Gbit/s.",
            port(),
            [static(1, rate_bps)],
            trace.events(),
        )


def fast_line_cases() -> Iterator[Case]:
    """100 Gbit/s, where a byte takes a fraction of a nanosecond."""
    trace = Trace()
    for k in range(60):
        trace.packet(17 * k, 1, 60 + 13 * k)
        trace.packet(17 * k, 2, 1514)
        trace.packet(17 * k, UNPACED, 60)
    yield Case(
        "line-100g",
        "100 Gbit/s line: classes of 99,999,999,999 and 33,333,333,333 bit/s and unpaced packets.",
        port(100 * GIGABIT),
        [unpaced(), static(1, 99_999_999_999), static(2, 33_333_333_333)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(5, 1, 100, 60)
    yield Case(
        "line-none",
        "A port without line rate: only the class's rate spaces the packets.",
        port(None),
        [static(1, 100 * GIGABIT)],
        trace.events(),
    )


def contended_cases() -> Iterator[Case]:
    """Several classes on one port."""
    trace = Trace()
    trace.burst(0, 1, 6)
    trace.burst(0, 2, 3)
    yield Case(
        "fig3",
        "Fig. 3 of the IPSJ paper: classes of 500 and 250 Mbit/s on a port of 1 Gbit/s.",
        port(),
        [static(1, 500_000_000), static(2, 250_000_000)],
        trace.events(),
    )
    yield Case(
        "fig3-no-allowance",
        "As fig3, but with allowance 0: a packet delayed by the other class delays its successors.",
        port(),
        [
            static(1, 500_000_000, allowance_ns=0),
            static(2, 250_000_000, allowance_ns=0),
        ],
        trace.events(),
    )
    table4 = [20, 50, 100, 300, 500]
    classes = [static(k + 1, mbit * 1_000_000) for k, mbit in enumerate(table4)]
    trace = Trace()
    for k, mbit in enumerate(table4):
        trace.burst(1_000, k + 1, 4 * mbit // 10)
    yield Case(
        "table4",
        "Table 4: 20, 50, 100, 300 and 500 Mbit/s at once (970 of 1000), layer-2 counting.",
        port(counts="layer2"),
        classes,
        trace.events(),
    )
    trace = Trace()
    for k in range(100):
        trace.burst(1_000, k + 1, 3)
    yield Case(
        "table3-100-classes",
        "Table 3 at its widest: 100 classes of 10 Mbit/s; they saturate a line of 1 Gbit/s.",
        port(),
        [static(k + 1, 10_000_000) for k in range(100)],
        trace.events(),
    )
    trace = Trace()
    for k in range(150):
        trace.packet(1_000, 1 + k % 3)
    yield Case(
        "overbooked",
        "Three classes of 500 Mbit/s on 1 Gbit/s: the line is the limit, by departure time.",
        port(),
        [static(k, 500_000_000) for k in (1, 2, 3)],
        trace.events(),
    )


def unpaced_cases() -> Iterator[Case]:
    """Mode 0."""
    trace = Trace()
    trace.burst(0, 1, 60)
    trace.burst(0, UNPACED, 40)
    for k in range(40):
        trace.packet(700 + 12_000 * k, UNPACED, 60 + 31 * k)
    yield Case(
        "unpaced-fills-gaps",
        "A class of 500 Mbit/s; unpaced packets use what it leaves of 1 Gbit/s.",
        port(),
        [unpaced(), static(1, 500_000_000)],
        trace.events(),
    )
    trace = Trace()
    for k in range(120):
        trace.packet(9_000 * k + k * k % 7, UNPACED, 1514 if k % 3 else 200)
    trace.packet(9_000 * 60, UNPACED, 8_188)
    yield Case(
        "fifo-drops",
        "A bottleneck: 500 Mbit/s, FIFO of 8 KB (8192 bytes), unpaced packets only, overloaded.",
        port(500_000_000, "layer2", 8_192),
        [unpaced()],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, UNPACED, 9, 1020)
    trace.packet(0, UNPACED, 60)
    trace.packet(1_023, UNPACED, 1020)
    trace.packet(1_024, UNPACED, 1020)
    trace.packet(1_024, UNPACED, 14)
    yield Case(
        "fifo-exact",
        "Frames of 1024 bytes, a FIFO of 8192, 1 byte per ns: full to the byte; a start at an "
        "instant makes room for an arrival at it.",
        port(8 * GIGABIT, "layer2", 8_192),
        [unpaced()],
        trace.events(),
    )
    trace = Trace()
    for k in range(60):
        trace.packet(20_000 * k, 5)
        trace.packet(20_000 * k, 9, 500)
    yield Case(
        "unpaced-classes",
        "Classes of mode unpaced other than class 0 share the FIFO.",
        port(),
        [unpaced(5), unpaced(9)],
        trace.events(),
    )


def limit_cases() -> Iterator[Case]:
    """Class limits."""
    trace = Trace()
    trace.burst(1_000, 1, 30)
    for k in range(40):
        trace.packet(50_000 + 60_000 * k, 1, 1000 if k % 2 else 1514)
    yield Case(
        "class-limit",
        "A class of 100 Mbit/s may hold 15,180 bytes; a dropped packet takes no time of it.",
        port(),
        [static(1, 100_000_000, limit_bytes=15_180)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 3, 1020)
    trace.packet(1_023, 1, 60)
    trace.packet(1_024, 1, 60)
    trace.packet(1_024, 1, 957)
    trace.packet(1_024, 1, 956)
    trace.packet(1_024, 1, 14)
    yield Case(
        "class-limit-exact",
        "Limit 2048, frames of 1024 bytes, 1 byte per ns: the first starts before the second "
        "arrives; full to the byte; a start at an instant makes room for an arrival at it.",
        port(None),
        [static(1, 8 * GIGABIT, limit_bytes=2_048)],
        trace.events(),
    )
    trace = Trace()
    trace.packet(10, 1, 60)
    trace.packet(20, 1, 61)
    yield Case(
        "class-limit-small",
        "A limit of one small frame: 64 bytes fit, 65 do not, even on an idle port.",
        port(),
        [static(1, 100_000_000, limit_bytes=64)],
        trace.events(),
    )


def change_cases() -> Iterator[Case]:
    """Configuration changes at run time."""
    trace = Trace()
    trace.burst(0, 1, 10)
    trace.set_class(30_000, static(1, 100_000_000))
    trace.burst(30_000, 1, 10)
    trace.set_class(40_000, static(1, 900_000_000))
    trace.burst(40_000, 1, 10)
    trace.set_class(2_000_000, static(1, 7_777_777))
    trace.burst(2_000_000, 1, 5)
    yield Case(
        "rate-change",
        "500, 100, 900, 7.777777 Mbit/s while backlogged: a rate applies to the next packet.",
        port(),
        [static(1, 500_000_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 20)
    trace.set_class(5_000, static(1, 500_000_000, limit_bytes=7_000))
    trace.burst(5_000, 1, 3)
    trace.burst(400_000, 1, 8)
    trace.set_class(410_000, static(1, 500_000_000, limit_bytes=30_000))
    trace.burst(410_000, 1, 8)
    yield Case(
        "limit-change",
        "The limit shrinks below the backlog and grows again: nothing that waits is dropped.",
        port(),
        [static(1, 500_000_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 10)
    trace.set_class(20_000, unpaced(1))
    trace.burst(20_000, 1, 5)
    trace.set_class(90_000, static(1, 250_000_000))
    trace.burst(90_000, 1, 5)
    yield Case(
        "mode-change",
        "Static, unpaced, static: those that wait keep their departure times, the clock stays.",
        port(),
        [static(1, 500_000_000)],
        trace.events(),
    )


def idle_cases() -> Iterator[Case]:
    """No credit for silence; late clocks; odd lengths; simultaneous arrivals."""
    trace = Trace()
    for at_ns in (0, 1_000_000, 1_000_000_000, 3_600_000_000_000):
        trace.burst(at_ns, 1, 5)
    yield Case(
        "idle-no-credit",
        "Bursts of 5 after ever longer silence (to an hour): each is spaced like the first.",
        port(),
        [static(1, 500_000_000)],
        trace.events(),
    )
    trace = Trace()
    for k in range(80):
        trace.packet(k * 24_287, 1)
        trace.packet(k * 24_289, 2)
    yield Case(
        "idle-by-a-nanosecond",
        "Arrivals 1 ns closer (class 1) and 1 ns wider (class 2) than 500 Mbit/s; no line rate.",
        port(None),
        [static(1, 500_000_000), static(2, 500_000_000)],
        trace.events(),
    )
    trace = Trace()
    for k in range(6):
        for class_id in (1, 2, 3, UNPACED):
            trace.packet(YEAR_LATER_NS + k, class_id, 1514 - k)
    yield Case(
        "late-clock",
        "Arrivals around 2^55 ns (417 days): 333,333,333 bit/s, 8 kbit/s, 99,999,999,999 bit/s.",
        port(10 * GIGABIT),
        [
            unpaced(),
            static(1, 333_333_333),
            static(2, 8_000),
            static(3, 99_999_999_999),
        ],
        trace.events(),
    )
    trace = Trace()
    for k, length_bytes in enumerate(
        [14, 60, 61, 64, 1514, 1518, 4096, 9014, 9018, 16_000, 65_535]
    ):
        trace.packet(100 * k, 1, length_bytes)
        trace.packet(100 * k, UNPACED, length_bytes)
        trace.packet(100 * k, 2, 60)
    yield Case(
        "lengths",
        "From 14 to 65,535 bytes: no padding is added; jumbo frames between small ones.",
        port(fifo_bytes=1 << 20),
        [unpaced(), static(1, 400_000_000), static(2, 10_000_000)],
        trace.events(),
    )
    trace = Trace()
    for k in range(10):
        for class_id in (3, UNPACED, 1, 2, UNPACED, 3):
            trace.packet(60_000 * k, class_id, 700)
    yield Case(
        "simultaneous",
        "Six arrivals at the same instant, ten times: the given order counts, and so does the "
        "free port: an unpaced packet that finds it free starts before a later paced arrival.",
        port(),
        [
            unpaced(),
            static(1, 200_000_000),
            static(2, 200_000_000),
            static(3, 200_000_000),
        ],
        trace.events(),
    )


def stall_cases() -> Iterator[Case]:
    """The machine stalls; lost time is made up within the allowance only."""
    frame_ns = 24_288
    for name, allowance_ns in [
        ("0", 0),
        ("1ns", 1),
        ("half-mtu", frame_ns // 2),
        ("1mtu", frame_ns),
        ("10mtu", 10 * frame_ns),
    ]:
        trace = Trace()
        trace.burst(0, 1, 80)
        trace.stall(100_001, 400_000)
        trace.stall(900_000, 900_500)
        trace.stall(1_000_000, 1_024_287)
        yield Case(
            f"stall-allowance-{name}",
            f"500 Mbit/s, stalls of 300 us, 500 ns and 24,287 ns, allowance {allowance_ns} ns.",
            port(),
            [static(1, 500_000_000, allowance_ns=allowance_ns)],
            trace.events(),
        )
    trace = Trace()
    trace.burst(0, 1, 40)
    trace.burst(0, 2, 20)
    trace.burst(0, 3, 60)
    trace.stall(50_000, 350_000)
    trace.burst(120_000, 4, 10)
    trace.stall(300_000, 360_000)
    yield Case(
        "stall-several-classes",
        "Four classes behind two overlapping stalls: afterwards by departure time; odd rates.",
        port(),
        [
            static(1, 333_333_333),
            static(2, 123_456_789, allowance_ns=0),
            static(3, 77_777_777, allowance_ns=1_000_000),
            static(4, 250_000_000),
        ],
        trace.events(),
    )
    trace = Trace()
    for k in range(200):
        trace.packet(20_000 * k, UNPACED)
    trace.stall(1_000_000, 3_000_000)
    yield Case(
        "stall-fifo-only",
        "Unpaced packets only: a stall changes nothing, starts are taken up in retrospect.",
        port(500_000_000, "layer2", 16_384),
        [unpaced()],
        trace.events(),
    )
    trace = Trace()
    for k in range(30):
        trace.packet(40_000 * k, 1)
        trace.packet(40_000 * k + 1, UNPACED)
        trace.packet(40_000 * k + 2, UNPACED)
    trace.stall(200_000, 500_000)
    trace.stall(820_000, 825_000)
    yield Case(
        "stall-fifo-behind-paced",
        "An unpaced packet does not overtake an eligible paced one because of a stall: it waits, "
        "and the FIFO fills.",
        port(fifo_bytes=16_384),
        [unpaced(), static(1, 300_000_000)],
        trace.events(),
    )


def random_case(name: str, seed: int) -> Case:
    """Anything, as a generator sees it: few classes, odd numbers, bursts, changes, stalls."""
    random = Random(seed)
    line = random.choice([None, GIGABIT, 10 * GIGABIT, 100 * GIGABIT, 500_000_000, 333_333_333])
    rates = [
        8_000_000,
        10_000_000,
        99_999_999,
        333_333_333,
        500_000_000,
        930_000_000,
        99_999_999_999,
    ]
    base_ns = random.choice([0, 5, YEAR_LATER_NS])

    def config(class_id: int) -> ClassConfig:
        if random.below(4) == 0:
            return unpaced(class_id)
        allowance_ns = random.choice([None, 0, 1, 1_000, 1_000_000])
        limit_bytes = random.choice([1_000, 5_000, 1 << 20, 1 << 20])
        return static(class_id, random.choice(rates), limit_bytes, allowance_ns)

    classes = [unpaced()] + [config(k) for k in range(1, 2 + random.below(5))]
    counts: list[Literal["layer2", "wire"]] = ["layer2", "wire"]
    trace = Trace()
    now_ns = base_ns
    for _ in range(80):
        now_ns += random.choice([0, 0, 1, 7, random.below(3_000), random.below(50_000)])
        class_id = random.below(len(classes))
        kind = random.below(30)
        if kind == 0:
            trace.set_class(now_ns, config(max(class_id, 1)))
        elif kind == 1:
            trace.stall(now_ns, now_ns + random.choice([1, 500, 30_000, 1_000_000]))
        else:
            length_bytes = random.choice([14, 60, 61, 777, 1514, 9014])
            trace.burst(now_ns, class_id, 1 + random.below(3), length_bytes)
    return Case(
        name,
        f"Random case, seed {seed}.",
        PortConfig(line, random.choice(counts), random.choice([2_000, 16_384, 1 << 20])),
        classes,
        trace.events(),
    )


def ipg_cases() -> Iterator[Case]:
    """Fixed inter-packet gaps."""
    for gap_bytes, line_rate_bps in (
        (8, GIGABIT),
        (12, GIGABIT),
        (1_023, GIGABIT),
        (1_024, 333_333_333),
        (65_535, 10 * GIGABIT),
    ):
        trace = Trace()
        trace.burst(1_000, 1, 20)
        for k, length_bytes in enumerate([60, 61, 1514, 9014, 14]):
            trace.packet(2_000_000 + k, 1, length_bytes)
        yield Case(
            f"ipg-{gap_bytes}",
            f"A gap of {gap_bytes} bytes between packets of all sizes, on {line_rate_bps} bit/s.",
            port(line_rate_bps),
            [ipg(1, gap_bytes, line_rate_bps)],
            trace.events(),
        )
    trace = Trace()
    trace.burst(0, 1, 20)
    trace.burst(0, 2, 10, 700)
    trace.burst(0, UNPACED, 20, 1000)
    trace.set_class(50_000, ipg(1, 1_500))
    trace.burst(50_000, 1, 5)
    trace.set_class(90_000, static(1, 500_000_000))
    trace.burst(90_000, 1, 5)
    trace.set_class(120_000, ipg(1, 13))
    trace.burst(120_000, 1, 5)
    yield Case(
        "ipg-change",
        "Gaps of 100, 1500 bytes, static, and 13 bytes while packets wait, beside a class of 100 "
        "Mbit/s and unpaced packets.",
        port(),
        [unpaced(), ipg(1, 100), static(2, 100_000_000)],
        trace.events(),
    )


def ecn_cases() -> Iterator[Case]:
    """Marks above a threshold of the class's queue."""
    trace = Trace()
    for k in range(24):
        trace.packet(1_000, 1, 1020, k % 4)
    trace.burst(24_000, 1, 2, 1020, 1)
    yield Case(
        "ecn-exact",
        "Threshold 8192, frames of 1024 bytes, 1 byte per ns: full to the byte is not above; of "
        "four packets two are ECN-capable and one comes marked.",
        port(None),
        [marking(static(1, 8 * GIGABIT), 8_192)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 30, MTU_BYTES, 2)
    trace.burst(0, 2, 30, MTU_BYTES, 1)
    trace.burst(0, UNPACED, 30, MTU_BYTES, 2)
    trace.set_class(100_000, marking(static(1, 300_000_000, limit_bytes=40_000), 20_000))
    trace.burst(100_000, 1, 10, MTU_BYTES, 2)
    trace.set_class(200_000, static(1, 300_000_000))
    trace.burst(200_000, 1, 3, MTU_BYTES, 2)
    yield Case(
        "ecn-change",
        "Marking switched on with a limit, and off; a class of fixed gaps marks from its second "
        "packet on; unpaced packets are never marked.",
        port(fifo_bytes=1 << 20),
        [unpaced(), static(1, 300_000_000), ipg(2, 2_000, ecn_threshold_bytes=1_522)],
        trace.events(),
    )


def filled(config: PortConfig, longest_bytes: int = MTU_BYTES) -> PortConfig:
    """The port with PAUSE frames of up to `longest_bytes` in its gaps."""
    return replace(config, gap_frame_max_bytes=longest_bytes)


def pause_frame_cases() -> Iterator[Case]:
    """PAUSE frames in the gaps: the files in ``tests/vectors/pause-frames``."""
    yield from _gap_frame_sizes()
    yield from _gap_frames_among_classes()
    yield from _gap_frames_at_random()


def _gap_frame_sizes() -> Iterator[Case]:
    for rate_bps, longest_bytes, text in (
        (500_000_000, MTU_BYTES, "a gap is one frame of the packets' size"),
        (700_000_000, MTU_BYTES, "a gap is one frame, rounded up to a byte"),
        (120_000_000, MTU_BYTES, "a gap is several frames of equal size"),
        (500_000_000, MIN_GAP_FRAME_BYTES, "a gap is as many of the shortest frames as fit in"),
        (930_000_000, MTU_BYTES, "gaps are hardly longer than the shortest frame"),
        (960_000_000, MTU_BYTES, "gaps are shorter than any frame: what is too long comes off"),
    ):
        trace = Trace()
        trace.burst(1_000, 1, 30)
        yield Case(
            f"single-{rate_bps // 1_000_000}m-{longest_bytes}",
            f"One class of {rate_bps} bit/s, frames of up to {longest_bytes} bytes: {text}.",
            filled(port(), longest_bytes),
            [static(1, rate_bps)],
            trace.events(),
        )
    trace = Trace()
    trace.burst(0, 1, 20)
    yield Case(
        "no-allowance",
        "A class of 960 Mbit/s without allowance: what a gap frame makes it wait is no stall, and "
        "it keeps its rate.",
        filled(port()),
        [static(1, 960_000_000, allowance_ns=0)],
        trace.events(),
    )


def _gap_frames_among_classes() -> Iterator[Case]:
    trace = Trace()
    trace.burst(0, 1, 10)
    trace.burst(0, 2, 5)
    yield Case(
        "fig3",
        "Fig. 3: classes of 500 and 250 Mbit/s; gap frames where neither may send.",
        filled(port()),
        [static(1, 500_000_000), static(2, 250_000_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 40, 1000)
    trace.burst(0, 2, 20)
    trace.burst(0, 3, 10, 200)
    trace.burst(300_000, 3, 10, 1500)
    yield Case(
        "layer2",
        "A line that counts layer-2 bytes with FCS: so do its gap frames, of up to 600 bytes.",
        filled(port(500_000_000, "layer2"), 600),
        [static(1, 200_000_000), static(2, 123_456_789), static(3, 7_777_777)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 10)
    trace.burst(0, UNPACED, 3, 700)
    trace.packet(50_001, UNPACED, 60)
    trace.packet(120_000, UNPACED)
    trace.burst(140_000, UNPACED, 2, 100)
    yield Case(
        "unpaced",
        "Unpaced packets take the place of gap frames; one that comes during a gap frame waits.",
        filled(port()),
        [unpaced(), static(1, 200_000_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 10)
    trace.packet(30_000, 2)
    trace.packet(30_001, 3, 60)
    trace.packet(55_000, 2)
    trace.packet(500_000, 2)
    trace.packet(2_000_000, 2)
    trace.packet(2_000_001, 1)
    trace.packet(2_000_500, 1)
    yield Case(
        "arrivals",
        "Packets of other classes come during a gap frame and wait for its end, whether they have "
        "an allowance or not. Nothing is sent while nothing waits.",
        filled(port()),
        [static(1, 100_000_000), static(2, 300_000_000, allowance_ns=0), static(3, 1_000_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 30)
    trace.burst(0, 2, 10)
    trace.set_class(60_000, static(1, 900_000_000))
    trace.burst(60_000, 1, 10)
    trace.stall(100_000, 180_500)
    trace.stall(330_000, 340_001)
    yield Case(
        "stalls",
        "The machine stalls: no gap frames, then the rest of the gap is filled.",
        filled(port(), 300),
        [static(1, 400_000_000), static(2, 100_000_000, allowance_ns=0)],
        trace.events(),
    )


def _gap_frames_at_random() -> Iterator[Case]:
    for seed in range(1, 7):
        case = random_case(f"random-{seed}", 100 + seed)
        line_rate_bps = case.port.line_rate_bps or 100_000_000
        classes = [replace(c, rate_bps=max(c.rate_bps, line_rate_bps // 50)) for c in case.classes]
        events = [
            replace(
                e, config=replace(e.config, rate_bps=max(e.config.rate_bps, line_rate_bps // 50))
            )
            if isinstance(e, SetClass)
            else e
            for e in case.events
        ]
        base = replace(case.port, line_rate_bps=line_rate_bps)
        longest_bytes = (MTU_BYTES, MIN_GAP_FRAME_BYTES, 100)[seed % 3]
        yield replace(case, port=filled(base, longest_bytes), classes=classes, events=events)


def timer_cases() -> Iterator[Case]:
    """Release by a timer: the files in ``tests/vectors/timer``."""
    trace = Trace()
    trace.burst(1, 1, 88)
    yield Case(
        "timer-fig1",
        "Fig. 1(b) of the IPSJ paper: 500 Mbit/s at HZ 1000 on 1 Gbit/s, up to 42 packets a tick.",
        port(),
        [timer(1, 500_000_000, 1_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 20)
    trace.burst(0, 2, 4, 1000)
    trace.burst(0, 3, 3, 60)
    yield Case(
        "timer-rates",
        "Classes of 10 Mbit/s at HZ 100, 1,234,567 bit/s at HZ 7 (a tick is a fraction of a "
        "nanosecond longer than it counts), and 8 kbit/s at HZ 10000, a byte a tick.",
        port(None),
        [timer(1, 10_000_000, 100), timer(2, 1_234_567, 7), timer(3, 8_000, 10_000)],
        trace.events(),
    )
    trace = Trace()
    for at_ns in (999_999, 1_000_000, 1_000_001, 1_999_999, 2_000_000, 9_500_000):
        trace.packet(at_ns, 1, 996)
    # An idle class has one tick's tokens, and no more.
    trace.burst(20_000_001, 1, 3, 996)
    trace.packet(YEAR_LATER_NS, 1, 996)
    trace.burst(YEAR_LATER_NS, 1, 2, 997)
    yield Case(
        "timer-idle",
        "A packet of 1,000 bytes and a tick's tokens are the same: arrivals around ticks, after "
        "an idle time, and late in the life of a switch.",
        port(None),
        [timer(1, 8_000_000, 1_000)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 6)
    trace.set_class(500_000, timer(1, 20_000_000, 250))
    trace.burst(500_000, 1, 12)
    trace.set_class(3_000_000, static(1, 100_000_000))
    trace.burst(3_000_000, 1, 3)
    trace.set_class(3_100_000, timer(1, 40_000_000, 1_000))
    trace.burst(3_100_000, 1, 5)
    trace.burst(3_100_000, UNPACED, 3)
    yield Case(
        "timer-change",
        "Tick and rate change while packets wait, to mode static and back; unpaced packets beside.",
        port(100_000_000),
        [unpaced(), timer(1, 10_000_000, 1_000)],
        trace.events(),
    )


def slot_cases() -> Iterator[Case]:
    """Classes in slots of a cycle: the files in ``tests/vectors/slots``."""
    slot_ns, slots = 24_288, 4
    cycle_ns = slots * slot_ns
    trace = Trace()
    for number in range(1, slots + 1):
        trace.burst(1_000, number, 5)
    # Idle, then all come at once, late in a cycle; and one comes at its slot, one just behind it.
    for number in range(1, slots + 1):
        trace.burst(100 * cycle_ns - 1, number, 3)
    trace.packet(200 * cycle_ns + slot_ns, 1)
    trace.packet(200 * cycle_ns + 2 * slot_ns + 1, 2)
    yield Case(
        "slots-interleaved",
        "Four classes of 125 Mbit/s that begin together; a slot is a packet's time at 500 Mbit/s.",
        port(500_000_000, "layer2"),
        [in_slot(static(k, 125_000_000), cycle_ns, k * slot_ns) for k in range(1, slots + 1)],
        trace.events(),
    )
    trace = Trace()
    trace.burst(5, 1, 12, 100)
    trace.burst(5, 2, 30, 100)
    trace.burst(5, 3, 6)
    trace.packet(YEAR_LATER_NS, 3, 996)
    trace.burst(YEAR_LATER_NS, 1, 3, 997)
    yield Case(
        "slots-sizes",
        "Small packets leave together, as many as a cycle has tokens for; a class of a low rate "
        "leaves out cycles; rates whose packets take fractions of a nanosecond; late in the life "
        "of a switch.",
        port(None),
        [
            in_slot(static(1, 31_234_567), 97_152, 24_288),
            in_slot(static(2, 125_000_000), 97_152, 48_577),
            in_slot(static(3, 12_345_678), 97_152, 97_152),
        ],
        trace.events(),
    )
    trace = Trace()
    trace.burst(0, 1, 6)
    trace.set_class(500_000, in_slot(static(1, 20_000_000), 1_000_000, 300_000))
    trace.burst(500_000, 1, 8)
    trace.set_class(3_000_000, in_slot(static(1, 20_000_000), 1_000_000, 200_000))
    trace.burst(3_000_000, 1, 3)
    trace.set_class(3_100_000, static(1, 40_000_000))
    trace.burst(3_100_000, 1, 5)
    trace.burst(3_100_000, UNPACED, 3)
    yield Case(
        "slots-change",
        "A class gets a slot, another one, and none again while packets wait.",
        port(100_000_000),
        [unpaced(), static(1, 10_000_000)],
        trace.events(),
    )


def mode_cases() -> list[Case]:
    """Features of the P4 program alone: the files in ``tests/vectors/modes``."""
    return [*ipg_cases(), *ecn_cases()]


def all_cases() -> list[Case]:
    """Every committed case of the contract that all data planes share."""
    return [
        *single_class_cases(),
        *fast_line_cases(),
        *contended_cases(),
        *unpaced_cases(),
        *limit_cases(),
        *change_cases(),
        *idle_cases(),
        *stall_cases(),
        *(random_case(f"random-{seed:02}", seed) for seed in range(1, 21)),
    ]


# ----- files -----

Json = dict[str, object]


def class_json(config: ClassConfig, modes: bool) -> Json:
    """A class, in classes and in set_class events."""
    paced = config.mode != "unpaced"
    fields: Json = {
        "class": config.class_id,
        "mode": config.mode,
        "rate_bps": config.rate_bps if paced else 0,
        "time_per_byte_q24": config.time_per_byte_q24 if paced else 0,
        "limit_bytes": config.limit_bytes,
        "allowance_ns": config.allowance_ns,
    }
    if modes:
        fields["gap_bytes"] = config.gap_bytes
        fields["ecn_threshold_bytes"] = config.ecn_threshold_bytes
    if config.mode == "timer":
        fields["tick_ns"] = config.tick_ns
    elif config.tick_ns:
        fields["cycle_ns"] = config.tick_ns
        fields["offset_ns"] = config.offset_ns
    return fields


def event_json(event: Event, modes: bool) -> Json:
    """An event."""
    match event:
        case Arrive(at_ns, packet):
            fields: Json = {
                "id": packet.id,
                "class": packet.class_id,
                "length_bytes": packet.length_bytes,
            }
            if modes:
                fields["ecn"] = packet.ecn
            return {"at_ns": at_ns, "packet": fields}
        case SetClass(at_ns, config):
            return {"at_ns": at_ns, "set_class": class_json(config, modes)}
        case Stall(at_ns, until_ns):
            return {"at_ns": at_ns, "stall_until_ns": until_ns}


def vector_text(case: Case, modes: bool = False) -> str:
    """The whole file: one line per class, event and result; `modes`: with the further fields."""
    result = run(case.port, case.classes, case.events)
    expected: list[Json] = []
    for d in result.departures:
        left: Json = {"id": d.packet.id, "departure_ns": d.departure_ns, "start_ns": d.start_ns}
        if modes:
            left["ecn"] = d.ecn
        expected.append(left)
    expected += [{"id": drop.packet.id, "drop": drop.cause} for drop in result.drops]
    port_json: Json = {
        "line_rate_bps": case.port.line_rate_bps or 0,
        "counts": case.port.counts,
        "line_time_per_byte_q24": case.port.line_time_per_byte_q24,
        "fifo_bytes": case.port.fifo_bytes,
    }
    gap_frames = ""
    if case.port.gap_frame_max_bytes is not None:
        port_json["gap_frame_max_bytes"] = case.port.gap_frame_max_bytes
        gap_frames = f',\n"gap_frames": {json.dumps(gap_frame_rows(result.gap_frames))}'

    return (
        "{\n"
        f'"name": {json.dumps(case.name)},\n'
        f'"description": {json.dumps(case.description)},\n'
        f'"port": {json.dumps(port_json)},\n'
        f'"classes": {lines([class_json(config, modes) for config in case.classes])},\n'
        f'"events": {lines([event_json(event, modes) for event in case.events])},\n'
        f'"expected": {lines(expected)}{gap_frames}\n'
        "}\n"
    )


def gap_frame_rows(frames: list[GapFrame]) -> list[list[int]]:
    """Gap frames as [start in ns, length in bytes], in order of transmission."""
    return [[frame.start_ns, frame.length_bytes] for frame in frames]


def write(out: Path, cases: list[Case], modes: bool) -> None:
    """Writes cases, and removes what else was there."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.json"):
        old.unlink()
    for case in cases:
        (out / f"{case.name}.json").write_text(vector_text(case, modes), encoding="utf-8")
    print(f"{len(cases)} files in {out}")


def write_flows(out: Path) -> None:
    """Writes the cases of TCP flows, and removes what else was there."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.json"):
        old.unlink()
    for case in flow_cases():
        (out / f"{case.name}.json").write_text(flow_vector_text(case), encoding="utf-8")


def write_sharing(out: Path) -> None:
    """Writes the cases of mode shared, and removes what else was there."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.json"):
        old.unlink()
    for case in sharing_cases():
        (out / f"{case.name}.json").write_text(sharing_vector_text(case), encoding="utf-8")


def write_burstiness(out: Path) -> None:
    """Writes the cases of burstiness, and removes what else was there."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.json"):
        old.unlink()
    for case in burstiness_cases():
        text = burstiness_vector_text(case)
        (out / f"{case.name}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write the test vectors.")
    parser.add_argument("--out", type=Path, default=VECTORS_DIR, help="directory to write to")
    parser.add_argument("--random", type=int, metavar="COUNT", help="only COUNT random cases")
    parser.add_argument("--seed", type=int, default=1000, help="of the first random case")
    args = parser.parse_args()
    if args.random is None:
        cases = all_cases()
    elif args.out.resolve() == VECTORS_DIR:
        parser.error("--random needs an --out of its own")
    else:
        seeds = range(args.seed, args.seed + args.random)
        cases = [random_case(f"random-{seed}", seed) for seed in seeds]
    write(args.out, cases, modes=False)
    if args.random is None:
        write(args.out / MODES, mode_cases(), modes=True)
        write(args.out / TIMER, list(timer_cases()), modes=True)
        write(args.out / SLOTS, list(slot_cases()), modes=True)
        write(args.out / PAUSE_FRAMES, list(pause_frame_cases()), modes=False)
        write_flows(args.out / FLOWS)
        write_sharing(args.out / SHARING)
        write_burstiness(args.out / BURSTINESS)


if __name__ == "__main__":
    main()

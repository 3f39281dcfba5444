"""The vectors of burstiness: trains of packets, and the measurements of each 100 ms of them."""

from __future__ import annotations

import json
import random
from dataclasses import astuple, dataclass

from burstiness_model import Packet, burstiness
from vector_text import lines

MS = 1_000_000
WINDOW_NS = 100 * MS
FRAME_BYTES = 1518
FRAME_NS = 12_304
"""A full frame on a line of 1 Gbit/s."""
Q24 = 1 << 24


@dataclass(frozen=True)
class Train:
    """Packets at equal distances."""

    first_ns: int
    packets: int
    gap_ns: int
    length_bytes: int = FRAME_BYTES


@dataclass(frozen=True)
class BurstinessCase:
    """Trains that do not overlap, in order of time, and a virtual bottleneck's rate."""

    name: str
    description: str
    trains: list[Train]
    bottleneck_bps: int = 500_000_000

    @property
    def bytes_per_ns_q24(self) -> int:
        """The bottleneck's rate as the P4 program has it, rounded up."""
        return -(-self.bottleneck_bps * Q24 // 8_000_000_000)

    def packets(self) -> list[Packet]:
        """All packets, in order of time."""
        return [
            (train.first_ns + n * train.gap_ns, train.length_bytes)
            for train in self.trains
            for n in range(train.packets)
        ]


def _bursts_and_idle() -> list[Train]:
    """Bursts of 1,600 frames every 200 ms, which fill a fifth of every second window."""
    return [Train(1_000 + n * 200 * MS, 1_600, FRAME_NS) for n in range(5)]


def _across_windows() -> list[Train]:
    """The same, each burst later in its window; some lie across two windows."""
    return [Train(40 * MS + n * 211 * MS, 1_600, FRAME_NS) for n in range(6)]


def _trickle() -> list[Train]:
    """A burst, and after it so few packets that they take long to take those of the burst."""
    burst = Train(3 * MS, 3_000, FRAME_NS)
    return [burst, *(Train(120 * MS + n * 9 * MS, 1, 0, 64 + n) for n in range(60))]


def _constant() -> list[Train]:
    """40 Mbit/s from the middle of a window on."""
    return [Train(1_050 * MS, 4_000, FRAME_BYTES * 200)]


def _edges() -> list[Train]:
    """Packets of one instant, at the first and the last nanosecond of windows, and a year later."""
    late_ns = 3_650 * 86_400 * 10**9 // WINDOW_NS * WINDOW_NS
    begins = (0, 100 * MS, 200 * MS - 1, 200 * MS, 500 * MS - 1, 600 * MS - 1, 600 * MS)
    times = [*begins, late_ns - 1, late_ns, late_ns + WINDOW_NS - 1]
    return [Train(at_ns, 1 + n % 3, 0, 64 + 97 * n) for n, at_ns in enumerate(times)]


def _random(seed: int) -> list[Train]:
    draw = random.Random(seed)
    trains: list[Train] = []
    at_ns = draw.randrange(10**9)
    while len(trains) < 60:
        train = Train(
            at_ns,
            draw.choice([1, 2, 10, draw.randrange(1, 120)]),
            draw.choice([0, 672, FRAME_NS, draw.randrange(1, 400_000)]),
            draw.randrange(64, 9_000),
        )
        trains.append(train)
        pause_ns = draw.choice([1, 50_000, 3 * MS, draw.randrange(60 * MS), 350 * MS])
        at_ns += (train.packets - 1) * train.gap_ns + pause_ns
    return trains


def burstiness_cases() -> list[BurstinessCase]:
    """Every case."""
    plain = [
        ("bursts-and-idle", "1,600 frames every 200 ms", _bursts_and_idle(), 500_000_000),
        ("across-windows", "bursts that lie across two windows", _across_windows(), 500_000_000),
        ("trickle", "a burst, then few packets", _trickle(), 500_000_000),
        ("constant", "a constant rate from the middle of a window on", _constant(), 40_000_000),
        ("edges", "packets at the edges of windows", _edges(), 8_000),
    ]
    cases = [BurstinessCase(*fields) for fields in plain]
    rates = (40_000_000, 333_333_333, 1_000_000_000)
    return cases + [
        BurstinessCase(f"random-{seed:02}", f"seed {seed}", _random(seed), rates[seed % 3])
        for seed in range(1, 5)
    ]


def burstiness_vector_text(case: BurstinessCase) -> str:
    """The whole file: a line for each train and for each window."""
    trains = [[t.first_ns, t.packets, t.gap_ns, t.length_bytes] for t in case.trains]
    windows = [
        list(astuple(window))
        for window in burstiness(case.packets(), WINDOW_NS, case.bytes_per_ns_q24)
    ]

    return (
        "{\n"
        f'"name": {json.dumps(case.name)},\n'
        f'"description": {json.dumps(case.description)},\n'
        f'"window_ns": {WINDOW_NS},\n'
        f'"bottleneck_bps": {case.bottleneck_bps},\n'
        f'"bytes_per_ns_q24": {case.bytes_per_ns_q24},\n'
        f'"trains": {lines(trains)},\n'
        f'"windows": {lines(windows)}\n'
        "}\n"
    )

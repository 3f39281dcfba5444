"""Bandwidth as GtrcNET-1 measured it: bins of 500 us, windows of 100 ms, and burstiness.

The controller reads the numbers from gtrcnet.p4's registers (see p4src/gtrcnet.p4). Bytes are
layer 2 with FCS. Bins without a packet are not stored and count as zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BIN_NS = 500_000
WINDOW_NS = 100_000_000
NS_PER_S = 1_000_000_000
MS = 1_000_000
"""A millisecond, in ns."""

MTU_FRAME_BYTES = 1518
FCS_BYTES = 4
MTU_WIRE_BYTES = MTU_FRAME_BYTES + 20
"""A largest frame with preamble and inter-frame gap."""

GOODPUT_SHARE_OF_LINE = (1448, MTU_FRAME_BYTES)
"""Payload of a full frame (MTU 1500, TCP timestamps) over its layer-2 bytes with FCS."""


@dataclass
class Bandwidth:
    """The packets that arrived at one port of the measuring switch, by bin and window number.

    Bin n is the time from n * 500 us to (n + 1) * 500 us of the switch's clock.
    """

    bin_bytes: dict[int, int] = field(default_factory=dict)
    window_bytes: dict[int, int] = field(default_factory=dict)
    window_vb_max_bytes: dict[int, int] = field(default_factory=dict)
    window_dynamic_max_bytes: dict[int, int | None] = field(default_factory=dict)
    """Dynamic burstiness: the virtual bottleneck has the window's own average rate. None: the
    switch does not know it yet. Not always read."""
    window_previous_max_bytes: dict[int, int] = field(default_factory=dict)
    """The same with the rate of the window before. Not always read."""

    @property
    def _cells(self) -> tuple[dict[int, Any], ...]:
        return (
            self.bin_bytes,
            self.window_bytes,
            self.window_vb_max_bytes,
            self.window_dynamic_max_bytes,
            self.window_previous_max_bytes,
        )

    def add(self, newer: "Bandwidth") -> None:
        """Add a later reading; it replaces cells that both have, because they only grow."""
        for known, more in zip(self._cells, newer._cells, strict=True):
            known.update(more)

    def since(self, start_ns: int) -> "Bandwidth":
        """Return the part from the bin and the window that contain `start_ns` on."""
        starts = (start_ns // BIN_NS, *[start_ns // WINDOW_NS] * 4)
        return Bandwidth(
            *(
                {n: value for n, value in cells.items() if n >= first}
                for cells, first in zip(self._cells, starts, strict=True)
            )
        )

    @property
    def total_bytes(self) -> int:
        """All bytes that arrived."""
        return sum(self.bin_bytes.values())


def series(counts: Mapping[int, int], first: int, length: int) -> list[int]:
    """Return `length` consecutive cells from number `first` on, empty ones as 0."""
    return [counts.get(first + offset, 0) for offset in range(length)]


def bits_per_second(count_bytes: int, duration_ns: int) -> int:
    """Return bit/s, rounded to the nearest."""
    return (count_bytes * 8 * NS_PER_S + duration_ns // 2) // duration_ns


def percentile(values: list[int], percent: int) -> int:
    """Return the smallest value that at least `percent` % of the values do not exceed."""
    if not values:
        return 0
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]


def regroup(bins: list[int], size: int) -> list[int]:
    """Return the sums of each `size` neighbouring bins, without an incomplete last group."""
    return [sum(bins[at : at + size]) for at in range(0, len(bins) - size + 1, size)]


def ideal_goodput_bps(rate_bps: int) -> int:
    """Return the TCP payload that fits a rate (layer 2 with FCS): 476.9 of 500 Mbit/s."""
    payload, frame = GOODPUT_SHARE_OF_LINE
    return rate_bps * payload // frame

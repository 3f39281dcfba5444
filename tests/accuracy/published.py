"""Tables 2, 3 and 4 of the PSPacer paper (IPSJ Vol. 47, SIG 7, ACS 14), in bit/s."""

from __future__ import annotations

from dataclasses import dataclass

K, M = 1_000, 1_000_000

SUSPECT = "mean: as transcribed; probably 53.1"


@dataclass(frozen=True)
class Published:
    """One row: bandwidth per `per_packets` packets, and the largest burst."""

    table: str
    target_bps: int
    min_bps: float
    max_bps: float
    mean_bps: float
    burst_mtu: int
    per_packets: int = 1
    doubt: str = ""
    """The reason why a figure of the row is doubtful; empty: it is not."""


PUBLISHED = [
    Published("2", 8 * K, 7.96 * K, 7.96 * K, 7.96 * K, 1),
    Published("2", 10 * M, 9.95 * M, 9.95 * M, 9.95 * M, 1),
    Published("2", 500 * M, 495 * M, 500 * M, 498 * M, 2),
    Published("2", 930 * M, 918 * M, 931 * M, 926 * M, 2),
    # Of how many flows is not legible. "100 flows" is the abstract's.
    Published("3", 10 * M, 9.89 * M, 9.92 * M, 9.91 * M, 1),
    Published("4", 20 * M, 14.4 * M, 30.3 * M, 20.5 * M, 2),
    Published("4", 50 * M, 30.0 * M, 98.4 * M, 33.1 * M, 2, doubt=SUSPECT),
    Published("4", 100 * M, 61.9 * M, 246 * M, 103 * M, 2),
    Published("4", 300 * M, 168 * M, 494 * M, 332 * M, 2),
    Published("4", 500 * M, 345 * M, 990 * M, 506 * M, 2),
    Published("4", 20 * M, 16.6 * M, 24.1 * M, 19.9 * M, 2, 2),
    Published("4", 50 * M, 39.8 * M, 74.2 * M, 49.9 * M, 2, 2),
    Published("4", 100 * M, 68.0 * M, 143 * M, 100 * M, 2, 2),
    Published("4", 300 * M, 205 * M, 493 * M, 304 * M, 2, 2),
    Published("4", 500 * M, 405 * M, 658 * M, 500 * M, 2, 2),
]


def published(table: str, target_bps: int, per_packets: int) -> Published | None:
    """The published row, if there is one."""
    for row in PUBLISHED:
        if (row.table, row.target_bps, row.per_packets) == (table, target_bps, per_packets):
            return row
    return None

"""The published figures that the demo stands beside.

Takano et al., IPSJ Transactions on Advanced Computing Systems, Vol. 47, SIG 7 (ACS 14), Table 5:
iperf, BIC TCP, a 500 Mbit/s path with an RTT of 200 ms and a drop-tail FIFO.
"""

from typing import NamedTuple

KIB = 1024


class PublishedRun(NamedTuple):
    """One cell pair of Table 5: goodput in Mbit/s, packets lost at the router."""

    goodput_mbps: float
    lost_packets: int


TABLE_5: dict[int, dict[str, PublishedRun]] = {
    16 * KIB: {
        "unpaced": PublishedRun(29.4, 219),
        "tbf": PublishedRun(26.9, 131),
        "paced": PublishedRun(474, 0),
    },
    64 * KIB: {
        "unpaced": PublishedRun(210, 257),
        "tbf": PublishedRun(191, 402),
        "paced": PublishedRun(474, 0),
    },
    256 * KIB: {
        "unpaced": PublishedRun(223, 394),
        "tbf": PublishedRun(379, 261),
        "paced": PublishedRun(473, 0),
    },
    1024 * KIB: {
        "unpaced": PublishedRun(256, 1196),
        "tbf": PublishedRun(419, 12),
        "paced": PublishedRun(474, 0),
    },
    4096 * KIB: {
        "unpaced": PublishedRun(459, 1283),
        "tbf": PublishedRun(471, 0),
        "paced": PublishedRun(474, 0),
    },
}
"""By FIFO size in bytes, then by run name."""

RATE_BPS = 500_000_000
RTT_NS = 200_000_000


def published(fifo_bytes: int, rate_bps: int, rtt_ns: int) -> dict[str, PublishedRun] | None:
    """Return the published row for this path, or None where the paper has none."""
    if (rate_bps, rtt_ns) != (RATE_BPS, RTT_NS):
        return None
    return TABLE_5.get(fifo_bytes)

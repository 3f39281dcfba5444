"""The published figures of Fig. 1 and Table 5.

Takano et al., IPSJ Transactions on Advanced Computing Systems, Vol. 47, SIG 7 (ACS 14). Table 5:
iperf, BIC TCP, a 500 Mbit/s path with an RTT of 200 ms and a drop-tail FIFO. How long a run lasted
is not legible.
"""

KIB, MIB = 1 << 10, 1 << 20
"""Bytes of a KB and of an MB in the papers."""

FIG_1_PACKETS_OF_A_TICK = 42
"""Packets of 1518 bytes that a timer of HZ 1000 lets go at once, at 500 Mbit/s."""

RATE_BPS = 500_000_000
RTT_NS = 200_000_000

TABLE_5: dict[int, dict[str, tuple[float, int]]] = {
    16 * KIB: {"unpaced": (29.4, 219), "TBF": (26.9, 131), "paced": (474, 0)},
    64 * KIB: {"unpaced": (210, 257), "TBF": (191, 402), "paced": (474, 0)},
    256 * KIB: {"unpaced": (223, 394), "TBF": (379, 261), "paced": (473, 0)},
    1024 * KIB: {"unpaced": (256, 1196), "TBF": (419, 12), "paced": (474, 0)},
    4096 * KIB: {"unpaced": (459, 1283), "TBF": (471, 0), "paced": (474, 0)},
}
"""Goodput in Mbit/s and packets lost at the router, by FIFO size in bytes and shaper."""

LEGIBLE_ZERO_FIFO_BYTES = 16 * KIB
"""The row in which PSPacer's zero losses are legible; the other four are inferred."""

INFERRED = "inferred"


def table_5(
    fifo_bytes: int, shaper: str, rate_bps: int = RATE_BPS, rtt_ns: int = RTT_NS
) -> dict[str, float]:
    """Return the published figures of a run by metric; empty where the paper has none."""
    published = TABLE_5.get(fifo_bytes, {}).get(shaper)
    if published is None or (rate_bps, rtt_ns) != (RATE_BPS, RTT_NS):
        return {}
    return dict(zip(("goodput", "lost"), published, strict=True))


def table_5_doubts(fifo_bytes: int, shaper: str) -> dict[str, str]:
    """Return which published figures of a run are doubtful, by metric."""
    inferred = shaper == "paced" and fifo_bytes != LEGIBLE_ZERO_FIFO_BYTES
    return {"lost": INFERRED} if inferred else {}

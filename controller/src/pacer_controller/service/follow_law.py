"""The rate of a class that follows the queue of a bottleneck downstream, reading by reading.

The queue Q is that of gtrcnet's virtual bottleneck, which drains at the path's rate and loses
nothing. Between two readings it grows by what arrives less what the path carries. So while it is
not empty, its growth says by how much the class's rate is wrong, whatever takes the rest of the
path:

- Q above a quarter of the FIFO: the rate becomes lower by the growth, and by as much more as drains
  Q in DRAIN_NS.
- Q below an eighth of it again, and still draining: the rate becomes higher by what drains.
- The longest Q of a whole window was below a quarter: the path may have become faster. The rate
  becomes higher by what would fill another quarter in PROBE_NS, if the packets come at about the
  class's rate. Where that fills a queue, the next attempt comes later; where it does not, sooner.

After a change, readings are left out for SETTLE_NS: the packets that were on their way had the
former rate.
"""

from pacer_controller.southbound import VirtualQueue

WINDOW_NS = 100_000_000
"""Of gtrcnet."""

SETTLE_NS = 40_000_000
"""The distance between class and bottleneck, and the time of one change."""

DRAIN_NS = 500_000_000
PROBE_NS = 200_000_000
PATIENCE_MOST_NS = 1_600_000_000
PROBES_TO_HURRY = 2
"""After as many attempts without a queue, the next one comes sooner."""

STEP_BPS = 1_000
"""Rates are multiples of it."""

_BITS_NS = 8_000_000_000


class Law:
    """Decides the rate of one class.

    Args:
        fifo_bytes: the queue is to stay under it.
        least_bps: lowest rate.
        most_bps: highest rate.

    """

    def __init__(self, fifo_bytes: int, least_bps: int, most_bps: int) -> None:
        self._fifo_bytes = fifo_bytes
        self._least_bps = least_bps
        self._most_bps = most_bps
        self._before: VirtualQueue | None = None
        self._changed_ns: int | None = None
        self._patience_ns = PROBE_NS
        self._probes = 0
        """Attempts to go faster since the last queue."""
        self._draining = False

    def next_rate(self, seen: VirtualQueue, rate_bps: int, classes: int = 1) -> int | None:
        """Return the class's next rate, or None if it stays `rate_bps`.

        Of `classes` that follow the same queue, each takes an equal part of a change.
        """
        before, self._before = self._before, seen
        if before is None or seen.at_ns < before.at_ns:
            # The first reading, or the switch has begun anew.
            self._changed_ns = seen.at_ns
            return None
        changed_ns = self._changed_ns if self._changed_ns is not None else seen.at_ns
        if before.at_ns < changed_ns + SETTLE_NS or seen.at_ns == before.at_ns:
            return None
        growth_bps = (
            (seen.queue_bytes - before.queue_bytes) * _BITS_NS // (seen.at_ns - before.at_ns)
        )
        wanted_bps = self._wanted(seen, rate_bps, growth_bps, seen.at_ns - changed_ns)
        if wanted_bps is None:
            return None
        wanted_bps = rate_bps + (wanted_bps - rate_bps) // classes
        bounded_bps = max(self._least_bps, min(wanted_bps, self._most_bps))
        bounded_bps = max(bounded_bps // STEP_BPS * STEP_BPS, self._least_bps)
        if bounded_bps == rate_bps:
            return None
        self._changed_ns = seen.at_ns
        return bounded_bps

    def _wanted(
        self, seen: VirtualQueue, rate_bps: int, growth_bps: int, since_ns: int
    ) -> int | None:
        if seen.queue_bytes > self._fifo_bytes // 4:
            drain_bps = seen.queue_bytes * _BITS_NS // DRAIN_NS
            if growth_bps + drain_bps <= 0:
                return None
            if not self._draining and self._probes:
                self._patience_ns = min(2 * self._patience_ns, PATIENCE_MOST_NS)
            self._draining, self._probes = True, 0
            return rate_bps - growth_bps - drain_bps
        if seen.queue_bytes > self._fifo_bytes // 8:
            return None
        if self._draining:
            # While the queue drains, the path carries more than arrives: what it drains is free.
            self._draining = False
            return rate_bps - min(growth_bps, 0)
        if since_ns < self._patience_ns or not self._may_probe(seen, rate_bps):
            return None
        self._probes += 1
        if self._probes > PROBES_TO_HURRY:
            self._patience_ns = PROBE_NS
        return rate_bps + self._fifo_bytes // 4 * _BITS_NS // PROBE_NS

    def _may_probe(self, seen: VirtualQueue, rate_bps: int) -> bool:
        """Return whether a whole window shows the present rate, in use and without a queue."""
        whole = self._changed_ns is not None and seen.window_start_ns >= self._changed_ns
        carried_bps = seen.window_bytes * _BITS_NS // WINDOW_NS
        in_use = carried_bps * 8 >= rate_bps * 7
        return whole and in_use and seen.window_max_bytes <= self._fifo_bytes // 4

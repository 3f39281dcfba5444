"""The rate of a class that follows the queue of a bottleneck downstream, reading by reading.

Q is the queue of gtrcnet's virtual bottleneck, which drains at the path's rate and loses nothing.
Between two readings it grows by the difference of arrival rate and path's rate. So while it is not
empty, its growth is the error of the class's rate, even if other traffic uses a part of the path:

- Q is above a quarter of the FIFO: the rate falls by the growth, and by the rate that drains Q in
  DRAIN_NS.
- Q has fallen below an eighth of the FIFO and still drains: the rate rises by the rate at which Q
  drains.
- The longest Q of a whole window was below a quarter, so the path may have become faster. The rate
  rises by the rate that fills another quarter in PROBE_NS, if the packets arrive at about the
  class's rate. If this fills the queue, the next attempt comes later, otherwise sooner.

Readings within SETTLE_NS after a change are ignored, because packets already under way had the
former rate.
"""

from pacer_controller.southbound import VirtualQueue

WINDOW_NS = 100_000_000
"""Length of gtrcnet's windows."""

SETTLE_NS = 40_000_000
"""Longest delay between class and bottleneck, plus the time that a change takes."""

DRAIN_NS = 500_000_000
PROBE_NS = 200_000_000
PATIENCE_MOST_NS = 1_600_000_000
PROBES_TO_HURRY = 2
"""Attempts without a queue after which the next one comes sooner."""

STEP_BPS = 1_000
"""Unit of rates: each rate is a multiple of it."""

_BITS_NS = 8_000_000_000


class Law:
    """Decides the rate of one class.

    Args:
        fifo_bytes: the size of the FIFO that the queue should stay under.
        least_bps: the lowest rate.
        most_bps: the highest rate.

    """

    def __init__(self, fifo_bytes: int, least_bps: int, most_bps: int) -> None:
        self._fifo_bytes = fifo_bytes
        self._least_bps = least_bps
        self._most_bps = most_bps
        self._before: VirtualQueue | None = None
        self._changed_ns: int | None = None
        self._patience_ns = PROBE_NS
        self._probes = 0
        """The number of attempts at a higher rate since the last queue."""
        self._draining = False

    def next_rate(self, seen: VirtualQueue, rate_bps: int, classes: int = 1) -> int | None:
        """Return the class's next rate, or None if it stays `rate_bps`.

        Each of the `classes` that follow the same queue takes an equal part of a change.
        """
        before, self._before = self._before, seen
        if before is None or seen.at_ns < before.at_ns:
            # This is the first reading, or the switch has restarted.
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
            # While the queue drains, the path carries more than arrives; that rate is available.
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

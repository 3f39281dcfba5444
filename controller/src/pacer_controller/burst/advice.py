"""Advice from a capture: the smallest drop-tail FIFO, or the lowest rate, that loses nothing.

The FIFO that the packets of a capture need is computed exactly. Other packets of the same traffic
need a little more or less. So the longest twentieth of the queues of all busy periods (from one
empty queue to the next) is taken to have an exponential tail, and the advised FIFO is the size that
the traffic exceeds with probability e^-5 (0.7 %) in as long again as the capture. It is at least
1.25 and at most 1.4 times the size that the capture needs. It leaves room for one more frame, as
long as that makes it at most 1.5 times the size needed. `chance` is the remaining probability of a
loss.
"""

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pacer_controller import rates

MIN_OF_NEEDED, MAX_OF_NEEDED = 1.25, 1.4
"""Smallest and largest advised FIFO, as multiples of the FIFO that the capture needs."""

EXPECTED_LOSSES = math.exp(-5)
"""Busy periods above the advised FIFO that are expected in as long again."""

TAIL_SHARE = 0.05
MIN_TAIL, MAX_TAIL = 20, 1000
"""Smallest and largest number of busy periods, those with the longest queues, in the tail."""

ROUNDING = 1e-5
"""Largest relative error of the rate of packets that are spaced at a rate."""

MEAN_DIGITS = 3
"""Significant digits of a mean rate in a message."""

PACKETS_MAX = 1 << 27
"""Most packets that advice is computed from: 2 GiB of times and lengths."""

NS_PER_S = 1_000_000_000
MAX_RATE_BPS = 1_000_000_000_000
RATE_STEP = 1.002
"""A rate is advised to within this factor."""
RATE_DIGITS = 4
"""Significant digits of an advised rate, so that it is short to type."""


class NoAdviceError(ValueError):
    """There is no advice; the text says why."""


@dataclass(frozen=True)
class Advice:
    """A rate and a FIFO that fit a traffic.

    Attributes:
        rate_bps: the rate of the bottleneck, in layer-2 bytes with FCS.
        fifo_bytes: the advised FIFO, in bytes of waiting frames with FCS.
        needed_bytes: the smallest FIFO with which the capture's own packets lose nothing.
        chance: the probability that such traffic loses a packet in as long again; None: the capture
            is too short.

    """

    rate_bps: int
    fifo_bytes: int
    needed_bytes: int
    chance: float | None


class Packets:
    """Times and lengths of the packets of a traffic."""

    def __init__(self) -> None:
        self._times_ns, self._lengths = array("q"), array("L")

    def add(self, at_ns: int, frame_bytes: int) -> None:
        """Add a packet, `frame_bytes` with FCS; one earlier than the last counts as of its time."""
        if self._times_ns:
            at_ns = max(at_ns, self._times_ns[-1])
        self._times_ns.append(at_ns)
        self._lengths.append(frame_bytes)

    @property
    def longest(self) -> int:
        """The longest frame."""
        return max(self._lengths, default=0)

    def mean_bps(self) -> float:
        """Return the mean rate from the first packet to the last, which is not counted."""
        if len(self._times_ns) < 2 or self._times_ns[-1] == self._times_ns[0]:
            return 0.0
        elapsed_ns = self._times_ns[-1] - self._times_ns[0]
        return (sum(self._lengths) - self._lengths[-1]) * 8 * NS_PER_S / elapsed_ns

    def overloads(self, rate_bps: int) -> bool:
        """Whether the packets seem to come faster than a rate for ever.

        Their mean rate lacks the time after the last burst, so periodic bursts have too high a mean
        in a short capture. But their queue empties again and again: it does not, for the longer
        half of the capture, where packets come too fast.
        """
        if self.mean_bps() <= rate_bps * (1 + ROUNDING):
            return False
        time_per_byte_q24 = rates.time_per_byte_q24(rate_bps)
        begun_ns = free_q24 = 0
        for at_ns, length in zip(self._times_ns, self._lengths, strict=True):
            at_q24 = at_ns << rates.FRACTION_BITS
            if free_q24 <= at_q24:
                begun_ns, free_q24 = at_ns, at_q24
            free_q24 += length * time_per_byte_q24
        first_ns, last_ns = self._times_ns[0], self._times_ns[-1]
        return 2 * (last_ns - begun_ns) > last_ns - first_ns

    def peaks(self, rate_bps: int) -> Counter[int]:
        """Return how many busy periods reach a number of bytes at their peak.

        The bottleneck is a port of this project's switch: a frame leaves the FIFO when its
        transmission starts, and one that finds the FIFO empty and the line free takes room as well.
        """
        return peaks(zip(self._times_ns, self._lengths, strict=True), rate_bps)


def peaks(packets: Iterable[tuple[int, int]], rate_bps: int) -> Counter[int]:
    """Return `Packets.peaks` of times and lengths in order of time."""
    time_per_byte_q24 = rates.time_per_byte_q24(rate_bps)
    found: Counter[int] = Counter()
    waiting: deque[tuple[int, int]] = deque()
    free_q24 = waiting_bytes = peak = 0
    for at_ns, length in packets:
        at_q24 = at_ns << rates.FRACTION_BITS
        # A frame whose transmission starts at this nanosecond has left.
        while waiting and waiting[0][0] <= at_q24:
            waiting_bytes -= waiting.popleft()[1]
        if free_q24 <= at_q24:
            found[peak] += 1
            peak, free_q24 = 0, at_q24
        waiting_bytes += length
        waiting.append((free_q24, length))
        peak = max(peak, waiting_bytes)
        free_q24 += length * time_per_byte_q24
    found[peak] += 1
    del found[0]
    return found


def fifo_for(packets: Packets, rate_bps: int) -> Advice:
    """Advise a FIFO for a bottleneck of this rate.

    Raises:
        NoAdviceError: no FIFO is large enough, or there are too few packets.

    """
    mean_bps = packets.mean_bps()
    if not mean_bps:
        raise NoAdviceError("too few packets")
    if packets.overloads(rate_bps):
        whole_bps = round(mean_bps)
        mean = rates.format_rate(round(whole_bps, MEAN_DIGITS - len(str(whole_bps))))
        raise NoAdviceError(
            f"packets come at {mean} in the mean, and the queue does not empty: in time no FIFO is "
            "large enough, or the capture is too short"
        )
    return _advice(packets.peaks(rate_bps), rate_bps, packets.longest)


def rate_for(packets: Packets, fifo_bytes: int) -> Advice:
    """Advise a rate of a bottleneck with this FIFO, about the lowest.

    At a lower rate the advised FIFO is larger, but for small steps where busy periods merge.

    Raises:
        NoAdviceError: the FIFO is too small at any rate, or there are too few packets.

    """
    mean_bps = packets.mean_bps()
    if not mean_bps:
        raise NoAdviceError("too few packets")

    def fitting(rate_bps: float) -> Advice | None:
        unit_bps = 10 ** max(0, len(str(int(rate_bps))) - RATE_DIGITS)
        whole_bps = math.ceil(rate_bps / unit_bps) * unit_bps
        if packets.overloads(whole_bps):
            return None
        found = _advice(packets.peaks(whole_bps), whole_bps, packets.longest)
        return found if found.fifo_bytes <= fifo_bytes else None

    # Of two bursts, the mean rate has the time of one.
    below, above = mean_bps / 2, mean_bps
    while (best := fitting(above)) is None:
        if above > MAX_RATE_BPS:
            raise NoAdviceError(f"a FIFO of {fifo_bytes} bytes is too small at any rate")
        below, above = above, 2 * above
    while above > below * RATE_STEP:
        between = math.sqrt(above * below)
        if (tried := fitting(between)) is None:
            below = between
        else:
            above, best = between, tried
    return best


def _advice(found: Mapping[int, int], rate_bps: int, longest_frame: int) -> Advice:
    needed = max(found)
    expected = _tail(found)
    fifo: float = needed * MAX_OF_NEEDED
    chance = None
    if expected is not None:
        threshold, excess, count = expected
        wanted = threshold + excess * math.log(count / EXPECTED_LOSSES)
        fifo = max(needed * MIN_OF_NEEDED, min(wanted, fifo))
    fifo = max(fifo, min(needed + longest_frame, needed * 1.5))
    if expected is not None:
        chance = 0.0
        if excess:
            chance = -math.expm1(-count * math.exp(-(fifo - threshold) / excess))
    return Advice(rate_bps, math.floor(fifo), needed, chance)


def _tail(found: Mapping[int, int]) -> tuple[int, float, int] | None:
    """Return a threshold, the mean excess of the peaks above it, and how many they are.

    None with too few busy periods.
    """
    total = sum(found.values())
    count = int(min(max(total * TAIL_SHARE, MIN_TAIL), MAX_TAIL))
    if total <= count:
        return None
    left, above = count, 0
    for peak in sorted(found, reverse=True):
        if found[peak] > left:
            return peak, (above - peak * (count - left)) / count, count
        above += peak * found[peak]
        left -= found[peak]
    return None

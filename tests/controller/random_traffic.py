"""Captures of random traffic, each from two seeds: one of the traffic, one of the capture.

The traffic's seed draws the rates, sizes and times of a traffic; the capture's seed draws the
packets in it. All packets pass a line of 1 Gbit/s before they are captured.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MS = 1e6
MTU_FRAME_BYTES = 1518
LINE_NS_PER_BYTE = 8.0
LINE_OVERHEAD_BYTES = 20

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Capture:
    """Times in ns and lengths in bytes with FCS, in order of time."""

    times_ns: Integers
    lengths: Integers

    def mean_bps(self) -> float:
        """Return the mean rate from the first packet to the last."""
        elapsed_ns = self.times_ns[-1] - self.times_ns[0]
        return float(self.lengths.sum() * 8e9 / elapsed_ns)

    def needed_bytes(self, rate_bps: int) -> int:
        """Return the least FIFO that loses nothing, by other means than `pacer burst`."""
        line_ns = self.lengths * 8e9 / rate_bps
        before = np.concatenate([[0.0], np.cumsum(line_ns)[:-1]])
        # Each transmission starts after all those before it, from some packet on without a pause.
        starts = before + np.maximum.accumulate(self.times_ns - before)
        numbers = np.arange(len(starts))
        # Rounding errors are far below the ns to which times are rounded up.
        starts_ns = np.ceil(starts - 1e-3)
        left = np.minimum(np.searchsorted(starts_ns, self.times_ns, side="right"), numbers)
        total = np.concatenate([[0], np.cumsum(self.lengths)])
        return int((total[numbers + 1] - total[left]).max())


def _through_line(times: Floats, lengths: Integers) -> Capture:
    order = np.argsort(times, kind="stable")
    times, lengths = times[order], lengths[order]
    line_ns = (lengths + LINE_OVERHEAD_BYTES) * LINE_NS_PER_BYTE
    before = np.concatenate([[0.0], np.cumsum(line_ns)[:-1]])
    starts = before + np.maximum.accumulate(times - before)
    return Capture(np.floor(starts).astype(np.int64), lengths)


def _full_frames(times: Floats) -> Capture:
    return _through_line(times, np.full(len(times), MTU_FRAME_BYTES))


def _bursts(traffic: np.random.Generator, chance: np.random.Generator, seconds: int) -> Capture:
    """Bursts of a random number of full frames, at times that jitter."""
    period_ns, jitter = traffic.uniform(4, 20) * MS, traffic.uniform(0, 0.4)
    least = int(traffic.integers(20, 200))
    most = int(least * traffic.uniform(1.2, 2.5))
    count = int(seconds * 1000 * MS / period_ns)
    begins = (np.arange(count) + chance.random(count) * jitter) * period_ns
    return _full_frames(np.repeat(begins, chance.integers(least, most + 1, count)))


def _jitter(traffic: np.random.Generator, chance: np.random.Generator, seconds: int) -> Capture:
    """Full frames at a constant rate, each late by up to some distances."""
    distance_ns = MTU_FRAME_BYTES * 8e9 / traffic.uniform(50e6, 300e6)
    jitter_ns = traffic.uniform(2, 12) * distance_ns
    count = int(seconds * 1000 * MS / distance_ns)
    return _full_frames(np.arange(count) * distance_ns + chance.random(count) * jitter_ns)


def _windows(traffic: np.random.Generator, chance: np.random.Generator, seconds: int) -> Capture:
    """One to three flows that send a window at once each round trip.

    A window grows by a frame each time, and is halved at a random size.
    """
    times = []
    for _ in range(int(traffic.integers(1, 4))):
        rtt_ns, most = traffic.uniform(10, 80) * MS, int(traffic.integers(40, 300))
        at_ns = chance.random() * rtt_ns
        window, halved_at = most // 2, most * chance.uniform(0.8, 1)
        while at_ns < seconds * 1000 * MS:
            times.append(np.full(window, at_ns))
            at_ns += rtt_ns * (1 + 0.02 * chance.random())
            window += 1
            if window > halved_at:
                window, halved_at = window // 2, most * chance.uniform(0.8, 1)
    return _full_frames(np.concatenate(times))


def _poisson(traffic: np.random.Generator, chance: np.random.Generator, seconds: int) -> Capture:
    """Frames at random times, of one size or of many."""
    rate_bps, mixed = traffic.uniform(100e6, 300e6), bool(traffic.integers(0, 2))
    count = int(seconds * rate_bps / 8000)
    times = np.cumsum(chance.exponential(1.0, count))
    lengths = np.full(count, MTU_FRAME_BYTES)
    if mixed:
        others = np.where(
            chance.random(count) < 0.5, chance.integers(64, MTU_FRAME_BYTES, count), 64
        )
        lengths = np.where(chance.random(count) < 0.6, lengths, others)
    return _through_line(times * (lengths.mean() * 8e9 / rate_bps), lengths)


KINDS: dict[str, Callable[[np.random.Generator, np.random.Generator, int], Capture]] = {
    "bursts": _bursts,
    "jitter": _jitter,
    "windows": _windows,
    "poisson": _poisson,
}


@dataclass(frozen=True)
class Traffic:
    """A traffic that captures are made of."""

    kind: str
    seed: int
    seconds: int = 20

    def capture(self, seed: int) -> Capture:
        """Make the capture with a seed."""
        traffic, chance = np.random.default_rng(self.seed), np.random.default_rng([self.seed, seed])
        return KINDS[self.kind](traffic, chance, self.seconds)

    def bottleneck_bps(self, capture: Capture) -> int:
        """Return a rate of which the traffic fills 30 to 70 %, and not above the line's."""
        load = np.random.default_rng([self.seed]).uniform(0.3, 0.7)
        return min(int(capture.mean_bps() / load), 950_000_000)

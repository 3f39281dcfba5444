"""Burstiness, computed as gtrcnet.p4 does: the same integers, packet by packet.

Burstiness is the queue Q in front of a virtual bottleneck (VB) of rate BWvb: with each packet
`Q <- max(0, Q - BWvb * dt) + length`, the packet itself included (p4src/include/burstiness.p4).
Static burstiness has a given BWvb; dynamic burstiness takes the average bandwidth of the window
before, and a window after an empty one counts as 0. Lengths are layer-2 bytes with FCS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FRACTION_BITS = 24
SILENCE_NS = 1 << 36
"""After a longer silence a queue is empty, as in the program: 68.7 s."""

DEFAULT_WINDOW_NS = 100_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Window:
    """A window with packets: number n is the time from n * T to (n + 1) * T."""

    number: int
    bytes: int
    vb_max_bytes: int
    """Longest queue in front of the given bottleneck."""

    dynamic_max_bytes: int
    """Longest queue in front of one of the rate of the window before."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one port or flow; windows without packets are left out.

    `last_ns` is when the last packet came, on the clock of the windows; None without packets.
    """

    window_ns: int
    windows: Sequence[Window]
    last_ns: int | None = None

    def summary(self) -> dict[str, int]:
        """Return mean and maximum over all windows from the first to the last, empty ones as 0."""
        length = self.windows[-1].number - self.windows[0].number + 1 if self.windows else 0

        def mean(total: int) -> int:
            return total // length if length else 0

        counts = [window.bytes for window in self.windows]
        static = [window.vb_max_bytes for window in self.windows]
        dynamic = [window.dynamic_max_bytes for window in self.windows]
        return {
            "windows": length,
            "abw_mean_bps": mean(self.rate_bps(sum(counts))),
            "abw_max_bps": self.rate_bps(max(counts, default=0)),
            "vb_mean_bytes": mean(sum(static)),
            "vb_max_bytes": max(static, default=0),
            "dynamic_vb_mean_bytes": mean(sum(dynamic)),
            "dynamic_vb_max_bytes": max(dynamic, default=0),
        }

    def rate_bps(self, count_bytes: int) -> int:
        """Return the bit/s of bytes in one window, rounded down."""
        return count_bytes * 8 * NS_PER_S // self.window_ns

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: columns by time, and the summary."""
        return {
            "window_ns": self.window_ns,
            "last_ns": self.last_ns,
            "summary": self.summary(),
            "windows": {
                "start_ns": [window.number * self.window_ns for window in self.windows],
                "bytes": [window.bytes for window in self.windows],
                "abw_bps": [self.rate_bps(window.bytes) for window in self.windows],
                "vb_max_bytes": [window.vb_max_bytes for window in self.windows],
                "dynamic_vb_max_bytes": [window.dynamic_max_bytes for window in self.windows],
            },
        }


class Meter:
    """Measures one port or flow.

    Args:
        bytes_per_ns_q24: rate of the virtual bottleneck, in 2^-24 bytes per ns
            (`rates.draining_bytes_per_ns_q24`).
        window_ns: T; gtrcnet.p4 has 100 ms.

    """

    def __init__(self, bytes_per_ns_q24: int, window_ns: int = DEFAULT_WINDOW_NS) -> None:
        self._rate_q24 = bytes_per_ns_q24
        self._window_ns = window_ns
        self._windows: list[Window] = []
        self._last_ns = 0
        self._queue_q24 = 0
        # Bytes times T, and bytes per T: no division, hence no rounding.
        self._dynamic = 0
        self._bytes_per_window = 0
        self._dynamic_max = 0

    def add(self, at_ns: int, frame_bytes: int) -> None:
        """Count a packet, `frame_bytes` with FCS.

        Times of one port do not run backwards; of a capture of several interfaces they may: such a
        packet counts as one of the same instant as the packet before it.
        """
        at_ns = max(at_ns, self._last_ns)
        elapsed_ns = at_ns - self._last_ns
        drained = elapsed_ns * self._rate_q24
        if elapsed_ns >= SILENCE_NS or drained >= self._queue_q24:
            self._queue_q24 = 0
        else:
            self._queue_q24 -= drained
        self._queue_q24 += frame_bytes << FRACTION_BITS
        number = at_ns // self._window_ns
        if not self._windows or self._windows[-1].number != number:
            elapsed_ns = self._begin_window(number, at_ns, elapsed_ns)
        if self._bytes_per_window:
            self._drain(elapsed_ns)
            self._dynamic += frame_bytes * self._window_ns
        self._dynamic_max = max(self._dynamic_max, self._dynamic)
        self._last_ns = at_ns
        window = self._windows[-1]
        self._windows[-1] = Window(
            number,
            window.bytes + frame_bytes,
            max(window.vb_max_bytes, self._queue_q24 >> FRACTION_BITS),
            self._dynamic_max // self._window_ns,
        )

    def _begin_window(self, number: int, at_ns: int, elapsed_ns: int) -> int:
        """Go on to the window; return the time that its own rate has to drain."""
        before = self._windows[-1] if self._windows else None
        if before is None or before.number + 1 != number:
            self._dynamic = self._bytes_per_window = 0
        else:
            if elapsed_ns:
                began_ns = number * self._window_ns
                self._drain(began_ns - self._last_ns)
                elapsed_ns = at_ns - began_ns
            self._bytes_per_window = before.bytes
        self._windows.append(Window(number, 0, 0, 0))
        self._dynamic_max = 0
        return elapsed_ns

    def _drain(self, elapsed_ns: int) -> None:
        self._dynamic = max(0, self._dynamic - elapsed_ns * self._bytes_per_window)

    def measured(self) -> Measured:
        """Return the measurements so far."""
        last_ns = self._last_ns if self._windows else None
        return Measured(self._window_ns, list(self._windows), last_ns)

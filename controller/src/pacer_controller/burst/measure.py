"""Burstiness, computed as gtrcnet.p4 does: the same integers, packet by packet.

Burstiness is the queue Q in front of a virtual bottleneck (VB) of rate BWvb: with each packet
`Q <- max(0, Q - BWvb * dt) + length`, the packet itself included (p4src/include/burstiness.p4).

- Static burstiness has a given BWvb.
- Dynamic burstiness, after Takano et al., takes the average bandwidth of the same window. Each
  window starts with an empty queue.
- Previous-window burstiness takes the average bandwidth of the window before. Its queue goes on
  from window to window, and a window after an empty one counts as 0.

Lengths are layer-2 bytes with FCS.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

FRACTION_BITS = 24
SILENCE_NS = 1 << 36
"""After a longer silence a queue is empty, as in the program: 68.7 s."""

KEPT_PACKETS_MAX = 1 << 24
"""Packets of a window that are kept: 100 Gbit/s of the smallest frames for 100 ms."""

DEFAULT_WINDOW_NS = 100_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Window:
    """A window with packets: number n is the time from n * T to (n + 1) * T."""

    number: int
    bytes: int
    vb_max_bytes: int
    """Longest queue in front of the given bottleneck."""

    dynamic_max_bytes: int | None
    """Longest queue in front of one of the window's own rate; None where it is not known."""

    previous_max_bytes: int
    """Longest queue in front of one of the rate of the window before."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one port or flow; windows without packets are left out.

    `last_ns` is the arrival time of the last packet, on the clock of the windows; None without
    packets.
    """

    window_ns: int
    windows: Sequence[Window]
    last_ns: int | None = None

    def summary(self) -> dict[str, int]:
        """Return mean and maximum over all windows from the first to the last, empty ones as 0.

        Those of dynamic burstiness leave out the windows where it is not known.
        """
        length = self.windows[-1].number - self.windows[0].number + 1 if self.windows else 0

        def mean(total: int, of: int = length) -> int:
            return total // of if of else 0

        counts = [window.bytes for window in self.windows]
        static = [window.vb_max_bytes for window in self.windows]
        dynamic = [
            window.dynamic_max_bytes
            for window in self.windows
            if window.dynamic_max_bytes is not None
        ]
        previous = [window.previous_max_bytes for window in self.windows]
        unknown = len(self.windows) - len(dynamic)
        return {
            "windows": length,
            "abw_mean_bps": mean(self.rate_bps(sum(counts))),
            "abw_max_bps": self.rate_bps(max(counts, default=0)),
            "vb_mean_bytes": mean(sum(static)),
            "vb_max_bytes": max(static, default=0),
            "dynamic_vb_mean_bytes": mean(sum(dynamic), length - unknown),
            "dynamic_vb_max_bytes": max(dynamic, default=0),
            "dynamic_unknown_windows": unknown,
            "previous_window_vb_mean_bytes": mean(sum(previous)),
            "previous_window_vb_max_bytes": max(previous, default=0),
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
                "previous_window_vb_max_bytes": [
                    window.previous_max_bytes for window in self.windows
                ],
            },
        }


@dataclass
class DynamicQueue:
    """The queue of dynamic burstiness, in bytes times T: no division, hence no rounding.

    Attributes:
        window_ns: the length T of a window.
        queue: the queue after the last packet.
        last_ns: the arrival time of the last packet.
        window: the window of the last packet.

    """

    window_ns: int
    queue: int = 0
    last_ns: int = 0
    window: int = -1

    def take(self, at_ns: int, frame_bytes: int, bytes_per_window: int) -> int:
        """Add a packet of a past window; return the queue after it.

        Args:
            at_ns: the arrival time; times do not run backwards.
            frame_bytes: the length of the packet.
            bytes_per_window: the bytes of all packets of its window.

        """
        window = at_ns // self.window_ns
        drained = (at_ns - self.last_ns) * bytes_per_window
        left = self.queue - drained if window == self.window else 0
        self.queue = max(0, left) + frame_bytes * self.window_ns
        self.last_ns, self.window = at_ns, window
        return self.queue


class Meter:
    """Measures one port or flow.

    It keeps the packets of the last window, since a window's rate is known only at its end. Dynamic
    burstiness of a window with more than `KEPT_PACKETS_MAX` packets is not known.

    Args:
        bytes_per_ns_q24: rate of the virtual bottleneck, in 2^-24 bytes per ns
            (`rates.draining_bytes_per_ns_q24`).
        window_ns: T; gtrcnet.p4 has 100 ms.

    """

    def __init__(self, bytes_per_ns_q24: int, window_ns: int = DEFAULT_WINDOW_NS) -> None:
        self._rate_q24 = bytes_per_ns_q24
        self._window_ns = window_ns
        self._windows: list[Window] = []
        # Arrival time and length of each packet of the last window.
        self._kept_ns, self._kept_bytes = array("Q"), array("L")
        self._all_kept = True
        self._last_ns = 0
        self._queue_q24 = 0
        # As in DynamicQueue.
        self._previous = 0
        self._bytes_per_window = 0
        self._previous_max = 0

    def add(self, at_ns: int, frame_bytes: int) -> None:
        """Count a packet, `frame_bytes` with FCS.

        Times of one port do not run backwards, but those of a capture of several interfaces may. An
        earlier packet counts as if it came at the same time as the packet before it.
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
            self._previous += frame_bytes * self._window_ns
        self._previous_max = max(self._previous_max, self._previous)
        self._last_ns = at_ns
        self._all_kept &= len(self._kept_ns) < KEPT_PACKETS_MAX
        if self._all_kept:
            self._kept_ns.append(at_ns)
            self._kept_bytes.append(frame_bytes)
        window = self._windows[-1]
        self._windows[-1] = Window(
            number,
            window.bytes + frame_bytes,
            max(window.vb_max_bytes, self._queue_q24 >> FRACTION_BITS),
            None,
            self._previous_max // self._window_ns,
        )

    def _begin_window(self, number: int, at_ns: int, elapsed_ns: int) -> int:
        """Go on to the window; return the time that the rate before it has to drain."""
        self._windows[-1:] = self._last_window()
        del self._kept_ns[:], self._kept_bytes[:]
        self._all_kept = True
        before = self._windows[-1] if self._windows else None
        if before is None or before.number + 1 != number:
            self._previous = self._bytes_per_window = 0
        else:
            if elapsed_ns:
                began_ns = number * self._window_ns
                self._drain(began_ns - self._last_ns)
                elapsed_ns = at_ns - began_ns
            self._bytes_per_window = before.bytes
        self._windows.append(Window(number, 0, 0, None, 0))
        self._previous_max = 0
        return elapsed_ns

    def _drain(self, elapsed_ns: int) -> None:
        self._previous = max(0, self._previous - elapsed_ns * self._bytes_per_window)

    def _last_window(self) -> list[Window]:
        """Return the last window as if it were over; empty without packets."""
        if not self._windows:
            return []
        last = self._windows[-1]
        if not self._all_kept:
            return [last]
        dynamic = DynamicQueue(self._window_ns)
        kept = zip(self._kept_ns, self._kept_bytes, strict=True)
        longest = max(dynamic.take(at_ns, length, last.bytes) for at_ns, length in kept)
        return [replace(last, dynamic_max_bytes=longest // self._window_ns)]

    def measured(self) -> Measured:
        """Return the measurements so far; the last window counts as over."""
        last_ns = self._last_ns if self._windows else None
        return Measured(self._window_ns, [*self._windows[:-1], *self._last_window()], last_ns)

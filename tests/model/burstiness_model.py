"""Reference model of burstiness: each window by itself, from the list of all packets.

It computes with fractions and looks ahead freely, as a data plane cannot. Burstiness, after Takano
et al., is the queue in front of a virtual bottleneck: with each packet,
`Q <- max(0, Q - BWvb * dt) + length`.

Static: BWvb is given. Dynamic: BWvb is the average bandwidth of the same window, and the queue is
empty where the window begins. Previous-window: BWvb is the average bandwidth of the window before,
the queue goes on from window to window, and a window after an empty one counts as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

SILENCE_NS = 1 << 36
"""After a longer silence the queue of static burstiness is empty."""

Packet = tuple[int, int]
"""Time in nanoseconds and length in bytes, FCS included."""


@dataclass(frozen=True)
class Window:
    """A window with packets; the queues are rounded down to bytes."""

    number: int
    bytes: int
    static_max_bytes: int
    dynamic_max_bytes: int
    previous_max_bytes: int


def burstiness(packets: Sequence[Packet], window_ns: int, bytes_per_ns_q24: int) -> list[Window]:
    """The windows of packets in order of time."""
    by_window: dict[int, list[Packet]] = {}
    for at_ns, length in packets:
        by_window.setdefault(at_ns // window_ns, []).append((at_ns, length))
    rates = {
        number: Fraction(sum(length for _, length in within), window_ns)
        for number, within in by_window.items()
    }
    static = _static_queues(packets, Fraction(bytes_per_ns_q24, 1 << 24))
    previous = _previous_window_queues(packets, window_ns, rates)
    windows = []
    for number, within in by_window.items():
        queues = _queues(within, rates[number])
        here = range(len(within))
        windows.append(
            Window(
                number,
                sum(length for _, length in within),
                int(max(static.pop(0) for _ in here)),
                int(max(queues)),
                int(max(previous.pop(0) for _ in here)),
            )
        )
    return windows


def _queues(packets: Sequence[Packet], rate: Fraction) -> list[Fraction]:
    """The queue behind each packet, in front of a bottleneck of this rate."""
    queue, last_ns = Fraction(0), 0
    found = []
    for at_ns, length in packets:
        queue = max(Fraction(0), queue - rate * (at_ns - last_ns)) + length
        last_ns = at_ns
        found.append(queue)
    return found


def _static_queues(packets: Sequence[Packet], rate: Fraction) -> list[Fraction]:
    """The same; a long silence empties the queue."""
    parts: list[list[Packet]] = []
    for packet in packets:
        if not parts or packet[0] - parts[-1][-1][0] >= SILENCE_NS:
            parts.append([])
        parts[-1].append(packet)
    return [queue for part in parts for queue in _queues(part, rate)]


def _previous_window_queues(
    packets: Sequence[Packet], window_ns: int, rates: dict[int, Fraction]
) -> list[Fraction]:
    """The queue behind each packet, where each window drains at the rate of the one before."""
    queue, last_ns = Fraction(0), 0
    found = []
    for at_ns, length in packets:
        number = at_ns // window_ns
        if number - 1 not in rates:
            queue = Fraction(0)
        else:
            queue = max(Fraction(0), queue - _drained(last_ns, at_ns, window_ns, rates)) + length
        last_ns = at_ns
        found.append(queue)
    return found


def _drained(since_ns: int, until_ns: int, window_ns: int, rates: dict[int, Fraction]) -> Fraction:
    """Bytes that a bottleneck of each window's former rate lets go."""
    total = Fraction(0)
    for number in range(since_ns // window_ns, until_ns // window_ns + 1):
        inside_ns = min(until_ns, (number + 1) * window_ns) - max(since_ns, number * window_ns)
        total += rates.get(number - 1, Fraction(0)) * inside_ns
    return total

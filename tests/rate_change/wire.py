"""The frames on the wire at the receiver, with the kernel's stamps, and figures from them.

The capture is a packet socket in the receiver's network namespace. Stamps are the kernel's, taken
when the frame arrives, so it does not matter when the frames are fetched.
"""

from __future__ import annotations

import socket
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pacer_mininet.namespaces import in_namespace_of

NS_PER_S = 1_000_000_000
FCS_BYTES = 4
WINDOW_NS = 100_000_000
GAP_TOLERANCE_NS = 1
"""Departures are whole nanoseconds, rounded up from exact ones: a gap can be 1 ns off."""

_ETH_P_IP = 0x0800
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_BUFFER_BYTES = 64 << 20
_FRAME_BYTES_MAX = 2048
_STAMP = struct.Struct("=qq")
_STATISTICS = struct.Struct("=II")


class WireError(RuntimeError):
    """The capture is not complete; the text names the missing part."""


@dataclass(frozen=True)
class Seen:
    """A frame on the wire: stamp in ns (CLOCK_REALTIME), layer-2 bytes with FCS."""

    at_ns: int
    frame_bytes: int


class Wire:
    """Captures the IPv4 frames that arrive at an interface in the namespace of process `pid`.

    Raises OSError when the namespace cannot be entered (it needs root).
    """

    def __init__(self, pid: int, interface: str) -> None:
        self.frames: list[Seen] = []
        self.total_bytes = 0
        self._socket = in_namespace_of(pid, lambda: _capture_of(interface))

    def fetch(self) -> None:
        """Take the arrivals since the last call into `frames`."""
        control_bytes = socket.CMSG_SPACE(_STAMP.size)
        while True:
            try:
                frame, control, _, address = self._socket.recvmsg(_FRAME_BYTES_MAX, control_bytes)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING:  # type: ignore[attr-defined, unused-ignore]
                continue
            seconds, nanoseconds = _STAMP.unpack(control[0][2])
            self.total_bytes += len(frame) + FCS_BYTES
            self.frames.append(Seen(seconds * NS_PER_S + nanoseconds, len(frame) + FCS_BYTES))

    def close(self) -> None:
        """End the capture; WireError if the kernel had no room for a frame of it."""
        self.fetch()
        data = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        self._socket.close()
        _, lost = _STATISTICS.unpack(data)
        if lost:
            raise WireError(f"the capture at the receiver missed {lost} frames")


def _capture_of(interface: str) -> socket.socket:
    # Protocol 0 at first: nothing of another interface gets in before `bind`.
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    capture.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    capture.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    capture.setblocking(False)
    capture.bind((interface, _ETH_P_IP))
    return capture


def rates_bps(frames: Sequence[Seen], from_ns: int, until_ns: int) -> list[int]:
    """Return the rate in every whole 100 ms from `from_ns` on, in bit/s of frames with FCS."""
    stamps = [seen.at_ns for seen in frames]
    rates = []
    for start_ns in range(from_ns, until_ns - WINDOW_NS + 1, WINDOW_NS):
        first, last = bisect_left(stamps, start_ns), bisect_left(stamps, start_ns + WINDOW_NS)
        total = sum(seen.frame_bytes for seen in frames[first:last])
        rates.append(total * 8 * NS_PER_S // WINDOW_NS)
    return rates


def settled_ns(frames: Sequence[Seen], rate_bps: int, from_ns: int, until_ns: int) -> int | None:
    """Return when the last gap that is not the rate's ends: from then on every gap is exact.

    Looks at the gaps that end from `from_ns` to `until_ns`; None if the last one is wrong. A gap
    is right when it is the time of the frame before it at `rate_bps`, to 1 ns.
    """
    stamps = [seen.at_ns for seen in frames]
    first, last = bisect_left(stamps, from_ns), bisect_left(stamps, until_ns)
    settled = from_ns
    for at in range(max(first, 1), last):
        before, seen = frames[at - 1], frames[at]
        gap_ns = seen.at_ns - before.at_ns
        wanted_ns = before.frame_bytes * 8 * NS_PER_S / rate_bps
        if abs(gap_ns - wanted_ns) > GAP_TOLERANCE_NS:
            settled = seen.at_ns
    return settled if last - first > 1 and settled < frames[last - 1].at_ns else None

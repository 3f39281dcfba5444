"""gtrcnet.p4: a wire that measures, against an exact recomputation.

Stock BMv2 does not serve registers over P4Runtime: there the tests assert that refusal, and
that the wire forwards all the same.
"""

from __future__ import annotations

from harness import DROP_NO_ROUTE, FCS_BYTES, FRACTION_BITS, GtrcnetTest, udp_frame
from p4runtime_client import P4RuntimeError

BINS, WINDOWS = 65536, 4096
BIN_NS, WINDOW_NS = 500_000, 100_000_000
SILENCE_NS = 1 << 36
PORTS, SLOTS = 4, 32


class WireForwardsBothWays(GtrcnetTest):
    """Every packet that comes in at one end leaves at the other, in order."""

    def runTest(self) -> None:
        there = [udp_frame(frame_bytes=size, number=size) for size in (64, 1518, 700)]
        there.append(b"\xff" * 14)  # not IP, not even a sensible Ethernet header
        back = [udp_frame(source=2, destination=1, frame_bytes=900, vlan=4)]
        self.send(1, *there)
        self.send(2, *back)
        self.comes(2, *there)
        self.comes(1, *back)
        self.nothing_comes()


class UnwiredPortDrops(GtrcnetTest):
    """A port that is wired to nothing drops and counts."""

    def runTest(self) -> None:
        frame = udp_frame()
        self.send(3, frame)
        self.nothing_comes()
        self.counted("GtrcnetIngress.drops", DROP_NO_ROUTE, 1, [frame])


class MeasurementTest(GtrcnetTest):
    """The base of the measuring tests."""

    def refuses_registers(self) -> None:
        """On bmv2: registers are unimplemented over P4Runtime."""
        with self.assertRaises(P4RuntimeError) as caught:
            self.register("bin_bytes", 0)
        self.assertEqual(caught.exception.code.name, "UNIMPLEMENTED")

    def register(self, name: str, index: int) -> int:
        """One cell."""
        return self.switch.register(f"GtrcnetIngress.{name}", index)


class MeasuresExactly(MeasurementTest):
    """Packet by packet, every register agrees with integers recomputed here.

    The switch tells when it saw each packet (`vb_last_ns`); bins, windows and the virtual
    bottleneck's queue follow from those times and the lengths alone.
    """

    # A bottleneck of 0.001 bytes per ns (8 Mbit/s): the queue drains between packets, seldom
    # to nothing.
    bytes_per_ns_q24 = (1 << FRACTION_BITS) // 1000

    def runTest(self) -> None:
        self.switch.insert(self.monitor(1, self.bytes_per_ns_q24))
        frames = [udp_frame(frame_bytes=64 + 83 * n, number=n) for n in range(16)]
        if self.on_bmv2:
            self.send(1, *frames)
            self.comes(2, *frames)
            self.refuses_registers()
            return
        bins: dict[int, int] = {}
        windows: dict[int, int] = {}
        window_highest: dict[int, int] = {}
        queue_q24 = last_ns = highest_bytes = 0
        for frame in frames:
            self.send(1, frame)
            self.comes(2, frame)
            now_ns = self.register("vb_last_ns", 1)
            self.assertGreater(now_ns, last_ns)
            frame_bytes = len(frame) + FCS_BYTES
            elapsed_ns = now_ns - last_ns
            drained_q24 = elapsed_ns * self.bytes_per_ns_q24
            if elapsed_ns >= SILENCE_NS:
                drained_q24 = queue_q24
            queue_q24 = max(0, queue_q24 - drained_q24) + (frame_bytes << FRACTION_BITS)
            last_ns = now_ns
            queue_bytes = queue_q24 >> FRACTION_BITS
            highest_bytes = max(highest_bytes, queue_bytes)
            self.assertEqual(self.register("vb_now_q24", 1), queue_q24)
            self.assertEqual(self.register("vb_max_bytes", 1), highest_bytes)
            number = now_ns // BIN_NS
            bins[number] = bins.get(number, 0) + frame_bytes
            number = now_ns // WINDOW_NS
            windows[number] = windows.get(number, 0) + frame_bytes
            window_highest[number] = max(window_highest.get(number, 0), queue_bytes)
        for number, total in bins.items():
            cell = BINS + number % BINS
            self.assertEqual(self.register("bin_id", cell), number)
            self.assertEqual(self.register("bin_bytes", cell), total)
        for number, total in windows.items():
            cell = WINDOWS + number % WINDOWS
            self.assertEqual(self.register("window_id", cell), number)
            self.assertEqual(self.register("window_bytes", cell), total)
            self.assertEqual(self.register("window_vb_max_bytes", cell), window_highest[number])


class DynamicBurstinessIsThatOfTheSameWindow(MeasurementTest):
    """The longest queue in front of each window's own average bandwidth.

    The program knows that bandwidth when the window is over, and takes two earlier packets with
    each that arrives.
    """

    windows = 5

    def runTest(self) -> None:
        self.switch.insert(self.monitor(1, 1 << 20))
        if self.on_bmv2:
            frame = udp_frame()
            self.send(1, frame)
            self.comes(2, frame)
            self.refuses_registers()
            return
        arrivals: list[tuple[int, int]] = []
        windows: dict[int, list[tuple[int, int]]] = {}
        while len(windows) < self.windows:
            number = len(arrivals)
            frame = udp_frame(frame_bytes=64 + 83 * (number % 16), number=number)
            self.send(1, frame)
            self.comes(2, frame)
            arrival = self.register("vb_last_ns", 1), len(frame) + FCS_BYTES
            arrivals.append(arrival)
            windows.setdefault(arrival[0] // WINDOW_NS, []).append(arrival)
        self.assertEqual(self.register("kept_count", 1), len(arrivals))
        self.assertEqual(self.register("kept_overflow", 1), 0)
        # The first packet of the last window is here, so the packets before it can be taken.
        taken = self.register("taken_count", 1)
        first_left = arrivals[taken][0] // WINDOW_NS
        final = [number for number in windows if number < first_left]
        self.assertGreater(len(final), 0)
        for number in final:
            own_bytes = sum(frame_bytes for _, frame_bytes in windows[number])
            queue = highest = 0
            last_ns = windows[number][0][0]
            for at_ns, frame_bytes in windows[number]:
                queue = max(0, queue - (at_ns - last_ns) * own_bytes) + frame_bytes * WINDOW_NS
                highest, last_ns = max(highest, queue), at_ns
            cell = WINDOWS + number % WINDOWS
            self.assertEqual(self.register("window_dynamic_max", cell), highest)


class BurstIsAllAccountedFor(MeasurementTest):
    """Nothing is counted twice or missed: bins and windows sum to the sent bytes."""

    def runTest(self) -> None:
        # BMv2's queue before its egress holds 64 packets and drops the rest in silence.
        self.burst = 40 if self.on_bmv2 else 400
        self.switch.insert(self.monitor(1, 1 << 20), self.monitor(2, 1 << 20))
        there = [udp_frame(frame_bytes=64 + n, number=n) for n in range(self.burst)]
        back = [udp_frame(frame_bytes=1000, number=n) for n in range(self.burst // 8)]
        self.send(1, *there)
        self.send(2, *back)
        self.comes(2, *there)
        self.comes(1, *back)
        if self.on_bmv2:
            self.refuses_registers()
            return
        totals = {
            port: sum(len(frame) + FCS_BYTES for frame in frames)
            for port, frames in ((0, []), (1, there), (2, back), (3, []))
        }
        arrays = (("bin_bytes", BINS, PORTS), ("window_bytes", WINDOWS, SLOTS))
        for name, ring, slots in arrays:
            cells = self.switch.registers(f"GtrcnetIngress.{name}")
            self.assertEqual(len(cells), slots * ring)
            # No flow is measured.
            self.assertEqual(sum(cells.values()), sum(totals.values()), name)
            for port, total in totals.items():
                own = (cells[index] for index in range(port * ring, (port + 1) * ring))
                self.assertEqual(sum(own), total, f"{name} of port {port}")


class UnmonitoredPortIsNotMeasured(MeasurementTest):
    """Only the ports in the monitor table are measured."""

    def runTest(self) -> None:
        frame = udp_frame()
        self.send(1, frame)
        self.comes(2, frame)
        if self.on_bmv2:
            self.refuses_registers()
            return
        self.assertEqual(self.register("vb_last_ns", 1), 0)
        self.assertEqual(self.register("vb_max_bytes", 1), 0)

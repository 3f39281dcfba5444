"""Pacing: spacing, limits, rate changes, priorities, order between classes.

Times are the kernel's at the far end. Strict assertions are those that cannot be broken by a slow
machine: a packet may be late, never early, so arrivals are compared with the time before the
first packet was sent, and lower bounds are exact. Where a class has to stay busy, or an order
has to come out, only a stall of more than a second in the middle of a burst could break it; where
that would take too long a test is attempted again. (In virtual time, tests/virtual has the exact
departures.)
"""

from __future__ import annotations

import itertools
import time

from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from harness import (
    COMES_SECONDS,
    DROP_CLASS_LIMIT,
    FCS_BYTES,
    FRACTION_BITS,
    Arrival,
    PacerTest,
    gap_ns,
    number_of,
    time_per_byte_q24,
    udp6_frame,
    udp_frame,
)
from p4runtime_client import P4RuntimeError

NS_PER_MS = 1_000_000

# BMv2 counts microseconds: an arrival is taken for up to 1 us earlier than it was.
BMV2_TICK_NS = 1_000
# Clocks of kernel and switch may be slewed against each other by 500 ppm (adjtimex).
SLEW = 0.999


class PacingTest(PacerTest):
    """The base of the pacing tests."""

    def never_early(self, came: list[Arrival], began_ns: int, due_ns: list[float]) -> None:
        """No packet came before its due time, counted from before the first was sent."""
        tick_ns = BMV2_TICK_NS if self.on_bmv2 else 0
        for place, (arrival, due) in enumerate(zip(came, due_ns, strict=True)):
            self.assertGreaterEqual(
                arrival.received_ns - began_ns, due * SLEW - tick_ns, f"packet {place} early"
            )

    def starts_with(self, frame: bytes) -> None:
        """Sends one packet through an idle class and sees it arrive.

        From here on, and for one packet's time, everything sent to the class is held. That time
        has to be long, a second at least: it is how long the machine may stall.
        """
        self.send(1, frame)
        self.comes(2, frame)

    def until_accepted(self, class_id: int, packets: int) -> None:
        """Waits until the class has accepted this number of packets: a Write overtakes packets
        that are on their way to the pipeline.
        """
        limit = time.monotonic() + COMES_SECONDS
        while self.switch.counter("PacerIngress.class_accepted", class_id).packets < packets:
            self.assertLess(time.monotonic(), limit, f"class {class_id}: {packets} packets")


class PacketsAreSpaced(PacingTest):
    """20 packets sent at once leave a class of 8 Mbit/s a millisecond apart, in order."""

    rate_bps = 8_000_000

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 7), self.paced(7, self.rate_bps))
        frames = [udp_frame(frame_bytes=1000, number=n) for n in range(20)]
        began_ns = self.send(1, *frames)
        came = self.comes(2, *frames)
        gap = gap_ns(frames[0], self.rate_bps)
        self.never_early(came, began_ns, [n * gap for n in range(20)])
        self.nothing_comes()
        self.accepted(7, frames)


class MixedSizesAreSpaced(PacingTest):
    """The gap after a packet is its own size's; IPv6 and VLAN packets share the class."""

    rate_bps = 4_000_000

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 8), self.paced(8, self.rate_bps))
        frames = []
        for number, size in enumerate((1500, 64, 900, 1500, 128)):
            frames += [
                udp_frame(frame_bytes=size, number=number),
                udp6_frame(frame_bytes=max(size, 100), number=number),
                udp_frame(frame_bytes=max(size, 68), number=number, vlan=3),
            ]
        began_ns = self.send(1, *frames)
        came = self.comes(2, *frames)
        due_ns = [0.0]
        for frame in frames[:-1]:
            due_ns.append(due_ns[-1] + gap_ns(frame, self.rate_bps))
        self.never_early(came, began_ns, due_ns)


class FastClassKeepsOrder(PacingTest):
    """Order holds, and nothing is lost or early, where packets are due faster than any poll."""

    rate_bps = 60_000_000
    # BMv2 holds packets by recirculation, through a queue of 64.
    packets = 40

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 19), self.paced(19, self.rate_bps))
        frames = [
            # Large ones first: they hold up the small ones, which are 8.5 us apart.
            udp_frame(frame_bytes=1500 if n < 4 else 64, number=n)
            for n in range(self.packets)
        ]
        due_ns = [0.0]
        for frame in frames[:-1]:
            due_ns.append(due_ns[-1] + gap_ns(frame, self.rate_bps))
        for _ in range(5):
            began_ns = self.send(1, *frames)
            self.never_early(self.comes(2, *frames), began_ns, due_ns)


class IdleClassKeepsNoCredit(PacingTest):
    """After a pause longer than a packet's time the next burst is spaced from its start."""

    rate_bps = 800_000

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 9), self.paced(9, self.rate_bps))
        frames = [udp_frame(frame_bytes=500, number=n) for n in range(4)]
        gap = gap_ns(frames[0], self.rate_bps)
        for _ in range(2):
            began_ns = self.send(1, *frames)
            came = self.comes(2, *frames)
            self.never_early(came, began_ns, [n * gap for n in range(4)])
            # Three packets' time of silence: the stimulus, not a wait for the switch.
            time.sleep(3 * gap / 1e9)


class FullClassDrops(PacingTest):
    """A class holds as many bytes as its limit says; the rest is dropped and counted.

    A packet that has left no longer counts: one packet goes first and is seen to arrive, so
    that all of the burst is held. BMv2 learns of a held packet only when it has come to the
    egress pipeline, which a burst outruns: there the packets are sent 40 ms apart, all within the
    first packet's time of a second and a half.
    """

    rate_bps = 8_000
    limit_frames = 4
    too_many = 3

    def runTest(self) -> None:
        frames = [udp_frame(frame_bytes=500, number=n) for n in range(1, 8)]
        limit_bytes = self.limit_frames * 500
        self.install(self.flow({"dst_port": 2000}, 10), self.paced(10, self.rate_bps, limit_bytes))
        first = udp_frame(frame_bytes=1500, number=0)
        self.starts_with(first)
        if self.on_bmv2:
            for frame in frames:
                self.send(1, frame)
                time.sleep(0.040)  # the stimulus
        else:
            self.send(1, *frames)
        # The switch has processed the whole burst long before its first packet arrives here.
        self.comes(2, frames[0])
        lost = frames[self.limit_frames :]
        self.assertEqual(len(lost), self.too_many)
        self.counted("PacerIngress.class_limit_drops", 10, len(lost), lost)
        self.dropped(DROP_CLASS_LIMIT, lost)
        self.accepted(10, [first, *frames[: self.limit_frames]])
        # Queued packets of the class keep their order and are not dropped.
        self.comes(2, *frames[1 : self.limit_frames])
        self.nothing_comes()


class LimitSmallerThanAPacket(PacingTest):
    """A class whose limit no packet fits drops them all; the edge is exact."""

    def runTest(self) -> None:
        frame = udp_frame(frame_bytes=250)
        self.install(
            self.flow({"dst_port": 2000}, 11),
            self.flow({"dst_port": 2001}, 12),
            self.paced(11, 8_000_000, 249),
            self.paced(12, 8_000_000, 250),
        )
        fits = udp_frame(frame_bytes=250, dst_port=2001)
        self.send(1, frame, fits)
        self.comes(2, fits)
        self.nothing_comes()
        self.counted("PacerIngress.class_limit_drops", 11, 1, [frame])
        self.counted("PacerIngress.class_limit_drops", 12, 0, [])


class RateChangeWhileBacklogged(PacingTest):
    """A new rate applies to the next packet: held packets keep their departure times."""

    frame_bytes = 500
    attempts = 10

    def rate_of_gap(self, gap_ms: int) -> int:
        """The rate at which such frames are so far apart."""
        return self.frame_bytes * 8 * 1000 // gap_ms

    def attempt(self, class_id: int) -> bool:
        """Changes a class's rate twice under its packets; whether they came early enough, too."""
        dst_port = 2000 + class_id

        def frames(first: int, count: int) -> list[bytes]:
            return [
                udp_frame(frame_bytes=self.frame_bytes, number=first + n, dst_port=dst_port)
                for n in range(count)
            ]

        self.install(
            self.flow({"dst_port": dst_port}, class_id), self.paced(class_id, self.rate_of_gap(40))
        )
        began_ns = self.send(1, *frames(0, 5))
        self.until_accepted(class_id, 5)
        self.switch.modify(self.paced(class_id, self.rate_of_gap(160)))
        self.send(1, *frames(5, 2))
        self.until_accepted(class_id, 7)
        self.switch.modify(self.paced(class_id, self.rate_of_gap(2)))
        self.send(1, *frames(7, 4))
        came = self.comes(2, *frames(0, 11))
        # Packet 4 was accepted at 40 ms, 5 and 6 at 160 ms, the rest at 2 ms.
        due_ms = [0, 40, 80, 120, 160, 200, 360, 520, 522, 524, 526]
        self.never_early(came, began_ns, [ms * NS_PER_MS for ms in due_ms])
        # At the old rates they would have taken 120 ms (three at 40 ms) or 480 ms; at 160 ms the
        # packets 1 to 5 would have come at 160 to 800 ms.
        return (
            came[10].received_ns - came[7].received_ns < 100 * NS_PER_MS
            and came[5].received_ns - began_ns < 350 * NS_PER_MS
        )

    def runTest(self) -> None:
        # A machine that stalls makes packets late now and then; a switch that lets a change of
        # rate touch held packets does so each time.
        self.assertTrue(any(self.attempt(60 + n) for n in range(self.attempts)), "late each time")


class UnpacedFillsGaps(PacingTest):
    """While a slow class is backlogged, unpaced packets pass through its gaps at once."""

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 14), self.paced(14, 8_000))
        paced = [udp_frame(frame_bytes=1500, number=n) for n in range(2)]
        unpaced = [udp_frame(frame_bytes=1500, number=100 + n, dst_port=9) for n in range(10)]
        self.send(1, *paced)
        # 1.5 s between the class's packets: all the others are through before its second.
        self.send(1, *unpaced)
        self.comes(2, paced[0], *unpaced, paced[1])
        self.accepted(0, unpaced)


class UnpacedClassWithEntry(PacingTest):
    """A class set back to unpaced, or deleted, no longer holds new packets."""

    rate_bps = 1_000

    def runTest(self) -> None:
        # A packet of the class takes 12 s: longer than any stall.
        self.install(self.flow({"dst_port": 2000}, 15), self.paced(15, self.rate_bps))
        frames = [udp_frame(frame_bytes=1500, number=n) for n in range(4)]
        self.starts_with(frames[0])
        self.switch.modify(
            self.switch.entry("PacerIngress.classes", {"class_id": 15}, "PacerIngress.unpaced")
        )
        began_ns = self.send(1, *frames[1:3])
        came = self.comes(2, *frames[1:3])
        self.assertLess(came[1].received_ns - began_ns, gap_ns(frames[0], self.rate_bps))
        self.switch.delete(self.paced(15, self.rate_bps))
        self.send(1, frames[3])
        self.comes(2, frames[3])
        self.accepted(15, frames)


class TwoClassesInterleave(PacingTest):
    """Figure 3 of the PSPacer paper, scaled down: rates 2:1 share a port two to one.

    Packets of the faster class are due at 0, 400, 800, ... ms. The slower one's first is small:
    the others are due at 200, 1000, ... ms, and every order is 200 ms clear of the next. The
    allowance is generous, so that a stall makes packets late but does not change their order;
    only one between the sending of the first two could.
    """

    def runTest(self) -> None:
        self.install(
            self.flow({"dst_port": 2000}, 20),
            self.flow({"dst_port": 2001}, 21),
            self.paced(20, 10_000, allowance_ns=10**10),
            self.paced(21, 5_000, allowance_ns=10**10),
        )
        fast = [udp_frame(frame_bytes=500, number=n) for n in range(6)]
        slow = [
            udp_frame(frame_bytes=500 if n else 125, number=100 + n, dst_port=2001)
            for n in range(4)
        ]
        self.send(1, fast[0], slow[0], *fast[1:], *slow[1:])
        came = self.arrivals(2, 10)
        order = "".join("s" if Ether(a.frame)[UDP].dport == 2001 else "f" for a in came)
        self.assertEqual(order, "fssffsffsf")
        for sent in (fast, slow):
            of_class = [a.frame for a in came if a.frame in sent]
            self.assertEqual([number_of(f) for f in of_class], [number_of(f) for f in sent])


class ManyClassesKeepTheirOwnPace(PacingTest):
    """Ten classes at once: each one's packets are spaced by its own rate, none is lost."""

    def runTest(self) -> None:
        rates_bps = {30 + n: 400_000 * (n + 1) for n in range(10)}
        for class_id, rate_bps in rates_bps.items():
            self.install(
                self.flow({"dst_port": 3000 + class_id}, class_id), self.paced(class_id, rate_bps)
            )
        frames = [
            udp_frame(frame_bytes=500, number=number, dst_port=3000 + class_id)
            for number in range(5)
            for class_id in rates_bps
        ]
        began_ns = self.send(1, *frames)
        came = self.arrivals(2, len(frames))
        for class_id, rate_bps in rates_bps.items():
            own = [a for a in came if Ether(a.frame)[UDP].dport == 3000 + class_id]
            self.assertEqual([number_of(a.frame) for a in own], list(range(5)))
            gap = gap_ns(frames[0], rate_bps)
            self.never_early(own, began_ns, [n * gap for n in range(5)])
        self.nothing_comes()


class FloodedPacketIsPaced(PacingTest):
    """A flooded packet of a paced class leaves every other port once, not before its time."""

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 40), self.paced(40, 400_000))
        frames = [udp_frame(frame_bytes=500, number=n, destination=9) for n in range(4)]
        began_ns = self.send(1, *frames)
        gap = gap_ns(frames[0], 400_000)
        for port in (2, 3):
            came = self.comes(port, *frames)
            self.never_early(came, began_ns, [n * gap for n in range(4)])
        self.nothing_comes()
        self.accepted(40, frames)


class PacketsLeaveAtTicks(PacingTest):
    """Mode timer: ten ticks a second, at each of which four packets leave together.

    Spaced, they would be 25 ms apart and those of a tick 75 ms, since a class makes up nothing. A
    machine that stalls sets the packets of a tick apart, so one tick is enough, in three attempts.
    """

    rate_bps = 320_000
    tick_ns = 100 * NS_PER_MS
    together = 4

    def runTest(self) -> None:
        settings = {
            "time_per_byte_q24": time_per_byte_q24(self.rate_bps),
            "tick_ns": self.tick_ns,
            "ticks_per_ns_q64": (1 << 64) // self.tick_ns,
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 0,
        }
        self.install(self.flow({"dst_port": 2000}, 23), self.mode(23, "paced_timer", settings))
        frames = [udp_frame(frame_bytes=1000, number=n) for n in range(3 * self.together)]
        due_ns = [float(n // self.together * self.tick_ns) for n in range(len(frames))]
        for _ in range(3):
            began_ns = self.send(1, *frames)
            came = self.comes(2, *frames)
            self.never_early(came, began_ns, due_ns)
            groups = [came[n : n + self.together] for n in range(0, len(came), self.together)]
            apart_ns = min(group[-1].received_ns - group[0].received_ns for group in groups)
            if apart_ns < self.tick_ns // self.together:
                return
        self.fail(f"{apart_ns} ns between packets of a tick at the third attempt")


class ClassesLeaveInSlots(PacingTest):
    """Two classes in the two slots of a cycle of 200 ms: they take turns, a slot apart.

    The packets of both are sent at once. A machine that stalls sets packets together that should be
    a slot apart, so there are three attempts.
    """

    slot_ns = 100 * NS_PER_MS
    slots = 2

    def runTest(self) -> None:
        cycle_ns = self.slots * self.slot_ns
        frames = [
            [udp_frame(frame_bytes=1000, number=n, dst_port=2000 + k) for n in range(4)]
            for k in range(self.slots)
        ]
        for k in range(self.slots):
            settings = {
                # A packet takes a cycle.
                "time_per_byte_q24": (cycle_ns << FRACTION_BITS) // (len(frames[k][0]) + FCS_BYTES),
                "limit_bytes": 1 << 24,
                "allowance_ns": 0,
                "ecn_threshold_bytes": 0,
                "bytes_per_ns_q24": 0,
                "window_margin_bytes": 0,
                "cycle_ns": cycle_ns,
                "cycles_per_ns_q64": (1 << 64) // cycle_ns,
                "offset_ns": (k + 1) * self.slot_ns,
            }
            self.install(
                self.flow({"dst_port": 2000 + k}, 24 + k),
                self.mode(24 + k, "paced_static_in_slot", settings),
            )
        for _ in range(3):
            self.send(1, *frames[0], *frames[1])
            came = self.arrivals(2, 8)
            self.assertEqual(sorted(one.frame for one in came), sorted(frames[0] + frames[1]))
            of_first = [one.frame in frames[0] for one in came]
            apart_ns = [b.received_ns - a.received_ns for a, b in itertools.pairwise(came)]
            turns = all(a != b for a, b in itertools.pairwise(of_first))
            # A packet on time, behind one that is late, comes after less than a slot.
            if turns and all(self.slot_ns / 2 < ns < self.slot_ns * 3 / 2 for ns in apart_ns):
                return
        self.fail(f"classes {of_first}, {apart_ns} ns apart, at the third attempt")


class GapsAreFixed(PacingTest):
    """Mode ipg: the same gap behind packets of all sizes, in bytes of the line."""

    line_rate_bps = 10_000_000
    gap_bytes = 1200

    def runTest(self) -> None:
        settings = {
            "time_per_byte_q24": time_per_byte_q24(self.line_rate_bps),
            "gap_bytes": self.gap_bytes,
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 0,
        }
        self.install(self.flow({"dst_port": 2000}, 22), self.mode(22, "paced_ipg", settings))
        sizes = [1500, 64, 64, 900, 1500, 128] * 3
        frames = [udp_frame(frame_bytes=size, number=n) for n, size in enumerate(sizes)]
        began_ns = self.send(1, *frames)
        due_ns = [0.0]
        for frame in frames[:-1]:
            taken_bytes = len(frame) + FCS_BYTES + 8 + self.gap_bytes
            due_ns.append(due_ns[-1] + taken_bytes * 8e9 / self.line_rate_bps)
        self.never_early(self.comes(2, *frames), began_ns, due_ns)
        self.accepted(22, frames)


class LongQueueMarks(PacingTest):
    """Packets that find the class's queue above its threshold are marked CE, if capable of ECN.

    The first is seen to arrive, so the burst waits: two frames are not above the threshold, the
    third is. On BMv2, where a held packet is known only once it has come to egress, they are
    sent 40 ms apart, all within the first packet's time of a second and a half.
    """

    def runTest(self) -> None:
        settings = {
            "time_per_byte_q24": time_per_byte_q24(8_000),
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 256,
            "bytes_per_ns_q24": 0,
            "window_margin_bytes": 0,
        }
        for version, frame in (("IPv4", udp_frame), ("IPv6", udp6_frame)):
            with self.subTest(version):
                class_id = 23 if version == "IPv4" else 24
                dst_port = 2000 + class_id
                self.install(
                    self.flow({"dst_port": dst_port}, class_id),
                    self.mode(class_id, "paced_static_controlled", settings),
                )
                self.starts_with(frame(frame_bytes=1500, number=0, dst_port=dst_port))
                came, left = (
                    [
                        frame(frame_bytes=128, number=1 + n, ecn=ecn, dscp=9, dst_port=dst_port)
                        for n, ecn in enumerate(codepoints)
                    ]
                    for codepoints in ((1, 2, 1, 2, 0, 3), (1, 2, 3, 3, 0, 3))
                )
                for each in [[one] for one in came] if self.on_bmv2 else [came]:
                    self.send(1, *each)
                    if self.on_bmv2:
                        time.sleep(0.040)  # the stimulus
                self.comes(2, *left)
                self.counted("PacerIngress.class_ce_marks", class_id, 2, came[2:4])


class ClassClockIsExact(PacingTest):
    """The class clock in its registers moves by exactly a packet's cost, fraction included.

    Stock BMv2 does not serve registers over P4Runtime: there the refusal is asserted.
    """

    # 7 kbit/s does not divide: the fraction has something to carry.
    rate_bps = 7_000

    def clock_q24(self) -> int:
        """The clock of class 50 in 2^-24 ns."""
        whole_ns = self.switch.register("PacerIngress.clock_ns", 50)
        fraction = self.switch.register("PacerIngress.clock_frac", 50)
        return whole_ns << FRACTION_BITS | fraction

    def runTest(self) -> None:
        if self.on_bmv2:
            with self.assertRaises(P4RuntimeError) as caught:
                self.clock_q24()
            self.assertEqual(caught.exception.code.name, "UNIMPLEMENTED")
            return
        self.assertEqual(self.clock_q24(), 0, "a new pipeline's clocks are zero")
        self.install(self.flow({"dst_port": 2000}, 50), self.paced(50, self.rate_bps))
        frames = [udp_frame(frame_bytes=100 + 37 * n if n else 1500, number=n) for n in range(4)]
        self.starts_with(frames[0])
        sent = 1
        # From now on the clock is ahead of time (the first takes 1.7 s): D = C exactly.
        for frame in frames[1:]:
            before = self.clock_q24()
            self.send(1, frame)
            cost = (len(frame) + FCS_BYTES) * time_per_byte_q24(self.rate_bps)
            sent += 1
            self.until_accepted(50, sent)
            self.assertEqual(self.clock_q24() - before, cost)
        self.comes(2, *frames[1:])
        for index in (0, 49, 51):
            self.assertEqual(self.switch.register("PacerIngress.clock_ns", index), 0)

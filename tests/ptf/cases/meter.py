"""Per-flow two-rate three-colour markers, and the effects of the colours.

Rates are a byte per second and bursts are a few frames, so that only the bursts matter: no
machine is slow enough for the rates to add a frame's worth of tokens during a test.
"""

from __future__ import annotations

from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from harness import DROP_METER_RED, PacerTest, udp6_frame, udp_frame
from p4runtime_client import Rates

FRAME_BYTES = 204
PACKET_BYTES = FRAME_BYTES - 4
YELLOW, RED = 12, 14


def bursts_of(green: int, yellow: int) -> Rates:
    """A marker that makes some frames green, then some yellow, and the rest red.

    RFC 2698: a green frame takes tokens of both buckets, a yellow one of the second, a red one
    none. Half a frame more than needed keeps clear of the edge.
    """
    half = PACKET_BYTES // 2
    return Rates(
        cir=1,
        cburst=green * PACKET_BYTES + half,
        pir=1,
        pburst=(green + yellow) * PACKET_BYTES + half,
    )


def with_checksum_less(by: int, frame: bytes) -> bytes:
    """The frame with another IPv4 checksum (in one's complement, as these are)."""
    checksum = (int.from_bytes(frame[24:26], "big") + (~by & 0xFFFF) - 1) % 0xFFFF + 1
    return frame[:24] + checksum.to_bytes(2, "big") + frame[26:]


class ColoursMarkDscp(PacerTest):
    """Green passes unchanged; yellow and red get their DSCP, and the IPv4 checksum is right."""

    def runTest(self) -> None:
        flow = self.flow(
            {"dst_port": 2000}, 3, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(3, 2)
        )
        self.install(flow)
        frames = [udp_frame(frame_bytes=FRAME_BYTES, number=n, dscp=10) for n in range(7)]
        self.send(1, *frames)
        marks = (10, 10, 10, YELLOW, YELLOW, RED, RED)
        expected = [
            # Scapy computes the right checksum for the DSCP that should have been written.
            udp_frame(frame_bytes=FRAME_BYTES, number=n, dscp=dscp)
            for n, dscp in enumerate(marks)
        ]
        self.comes(2, *expected)
        self.accepted(3, frames)
        self.counted("PacerIngress.class_red_drops", 3, 0, [])
        self.assertEqual(self.hits(flow), 7)


class ColoursMarkIpv6(PacerTest):
    """The DSCP of IPv6 is marked too; the ECN bits and the flow label stay."""

    def runTest(self) -> None:
        self.install(
            self.flow({"dscp": 10}, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(1, 1))
        )
        frames = [udp6_frame(frame_bytes=FRAME_BYTES, number=n, dscp=10) for n in range(3)]
        self.send(1, *frames)
        self.comes(
            2,
            *(
                udp6_frame(frame_bytes=FRAME_BYTES, number=n, dscp=dscp)
                for n, dscp in enumerate((10, YELLOW, RED))
            ),
        )


class EcnSurvivesMarking(PacerTest):
    """Marking changes six bits: a congestion mark is not the meter's to clear."""

    def runTest(self) -> None:
        self.install(self.flow({}, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(0, 1)))
        congested = Ether(udp_frame(frame_bytes=FRAME_BYTES))
        congested[IP].tos = 3
        del congested[IP].chksum
        self.send(1, bytes(congested))
        (came,) = self.arrivals(2, 1)
        self.assertEqual(Ether(came.frame)[IP].tos, YELLOW << 2 | 3)


class OptionsAreMarkedToo(PacerTest):
    """A header with options is marked as any other, and its checksum holds."""

    def runTest(self) -> None:
        self.install(self.flow({}, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(0, 0)))
        frame = udp_frame(frame_bytes=FRAME_BYTES, options=[IPOption_Router_Alert()])
        self.send(1, frame)
        marked = udp_frame(frame_bytes=FRAME_BYTES, dscp=RED, options=[IPOption_Router_Alert()])
        self.comes(2, marked)


class WrongChecksumStaysWrong(PacerTest):
    """An edge switch is transparent: a checksum is as wrong after a mark as before it."""

    def runTest(self) -> None:
        wrong_by = 0x1234
        self.install(self.flow({}, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(1, 1)))
        self.send(1, *[with_checksum_less(wrong_by, udp_frame(frame_bytes=FRAME_BYTES))] * 2)
        self.comes(
            2,
            with_checksum_less(wrong_by, udp_frame(frame_bytes=FRAME_BYTES)),
            with_checksum_less(wrong_by, udp_frame(frame_bytes=FRAME_BYTES, dscp=YELLOW)),
        )


class RedIsDropped(PacerTest):
    """Red packets are dropped and counted, per class and by cause; the others pass unmarked."""

    def runTest(self) -> None:
        flow = self.flow({"dst_port": 2000}, 4, drop_red=1, rates=bursts_of(2, 3))
        self.install(flow)
        frames = [udp_frame(frame_bytes=FRAME_BYTES, number=n) for n in range(9)]
        self.send(1, *frames)
        self.comes(2, *frames[:5])
        self.nothing_comes()
        red = frames[5:]
        self.counted("PacerIngress.class_red_drops", 4, len(red), red)
        self.dropped(DROP_METER_RED, red)
        self.accepted(4, frames[:5])
        self.assertEqual(self.hits(flow), len(frames), "a flow counts what it matches")


class YellowMarkedRedDropped(PacerTest):
    """Both at once: yellow carries its mark, red is gone."""

    def runTest(self) -> None:
        self.install(
            self.flow({}, drop_red=1, yellow_dscp=YELLOW, red_dscp=RED, rates=bursts_of(1, 1))
        )
        frames = [udp_frame(frame_bytes=FRAME_BYTES, number=n) for n in range(3)]
        self.send(1, *frames)
        self.comes(2, frames[0], udp_frame(frame_bytes=FRAME_BYTES, number=1, dscp=YELLOW))
        self.nothing_comes()
        self.dropped(DROP_METER_RED, frames[2:])


class FlowsMeterApart(PacerTest):
    """Each flow has its own buckets; one without rates is green for ever."""

    def runTest(self) -> None:
        tight = self.flow({"dst_port": 2000}, drop_red=1, rates=bursts_of(1, 0))
        loose = self.flow({"dst_port": 2001}, drop_red=1, rates=bursts_of(3, 0))
        free = self.flow({"dst_port": 2002}, drop_red=1)
        self.install(tight, loose, free)
        ports = (2000, 2001, 2002)
        frames = [
            udp_frame(frame_bytes=FRAME_BYTES, number=number, dst_port=port)
            for number in range(4)
            for port in ports
        ]
        self.send(1, *frames)
        allowed = dict(zip(ports, (1, 3, 4), strict=True))
        kept = []
        for frame in frames:
            port = Ether(frame)[UDP].dport
            if allowed[port] > 0:
                allowed[port] -= 1
                kept.append(frame)
        self.comes(2, *kept)
        self.nothing_comes()


class MeterReadAndReset(PacerTest):
    """A meter's rates read back as written; writing them again fills its buckets."""

    def runTest(self) -> None:
        rates = bursts_of(2, 0)
        flow = self.flow({"dst_port": 2000}, drop_red=1, rates=rates)
        self.install(flow)
        self.assertEqual(self.switch.direct_meter(flow), rates)
        frames = [udp_frame(frame_bytes=FRAME_BYTES, number=n) for n in range(3)]
        self.send(1, *frames)
        self.comes(2, *frames[:2])
        self.nothing_comes(2)
        self.switch.modify(self.flow({"dst_port": 2000}, drop_red=1, rates=bursts_of(3, 0)))
        self.assertEqual(self.switch.direct_meter(flow), bursts_of(3, 0))
        self.send(1, *frames)
        self.comes(2, *frames)


class MeterMeetsPacket(PacerTest):
    """Packets of all kinds are metered: the IPv6 and the IPv4 packets of one flow entry."""

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, drop_red=1, rates=bursts_of(2, 0)))
        four = udp_frame(frame_bytes=FRAME_BYTES)
        six = udp6_frame(frame_bytes=FRAME_BYTES)
        self.assertIn(IPv6, Ether(six))
        self.send(1, four, six, four, six)
        self.comes(2, four, six)
        self.nothing_comes()
        self.dropped(DROP_METER_RED, [four, six])

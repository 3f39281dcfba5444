"""Layer-2 forwarding: known stations, flooding, pruning, learning."""

from __future__ import annotations

from scapy.layers.l2 import ARP, Ether

from harness import (
    ABSENT_SECONDS,
    COMES_SECONDS,
    DROP_SAME_PORT,
    REASON_UNKNOWN_SOURCE,
    PacerTest,
    mac_of,
    udp_frame,
)


class KnownStation(PacerTest):
    """A packet to a known station leaves by its port alone, unchanged, in either direction."""

    def runTest(self) -> None:
        there, back = udp_frame(), udp_frame(source=2, destination=1)
        self.send(1, there)
        self.comes(2, there)
        self.send(2, back)
        self.comes(1, back)
        self.nothing_comes()
        self.assertIsNone(self.switch.packet_in(ABSENT_SECONDS), "a known source is not reported")
        self.accepted(0, [there, back])


class UnknownStationIsFlooded(PacerTest):
    """A packet to an unknown address leaves by every other port, and no controller gets it."""

    def runTest(self) -> None:
        frame = udp_frame(destination=9)
        for port, others in ((1, (2, 3)), (3, (1, 2))):
            flooded = udp_frame(source=port, destination=9)
            self.send(port, flooded)
            for other in others:
                self.comes(other, flooded)
            self.nothing_comes()
        self.assertIsNone(self.switch.packet_in(ABSENT_SECONDS))
        # A packet that is flooded is one packet for its class.
        self.accepted(0, [frame, frame])


class BroadcastIsFlooded(PacerTest):
    """ARP requests reach everyone else."""

    def runTest(self) -> None:
        request = ARP(hwsrc=mac_of(2), psrc="10.0.0.2", pdst="10.0.0.1")
        frame = bytes(Ether(src=mac_of(2), dst="ff:ff:ff:ff:ff:ff") / request)
        self.send(2, frame)
        self.comes(1, frame)
        self.comes(3, frame)
        self.nothing_comes()


class UnknownSourceIsReported(PacerTest):
    """A new source reaches the controller with port and reason, until it is made known."""

    def runTest(self) -> None:
        frame = udp_frame(source=0x77, destination=9)
        self.send(1, frame)
        self.assertEqual(
            self.switch.packet_in(COMES_SECONDS),
            (frame, {"ingress_port": 1, "reason": REASON_UNKNOWN_SOURCE}),
        )
        self.comes(2, frame)
        self.comes(3, frame)
        self.nothing_comes()
        self.install(self.source(mac_of(0x77), 1))
        self.send(1, frame)
        self.comes(2, frame)
        self.comes(3, frame)
        self.assertIsNone(self.switch.packet_in(ABSENT_SECONDS), "known now")
        # The same station behind another port is news again.
        self.send(3, frame)
        self.assertEqual(
            self.switch.packet_in(COMES_SECONDS),
            (frame, {"ingress_port": 3, "reason": REASON_UNKNOWN_SOURCE}),
        )


class UnknownSourceToKnownStation(PacerTest):
    """The station gets its packet once, though the controller gets a copy too."""

    def runTest(self) -> None:
        frame = udp_frame(source=0x77, destination=2)
        self.send(1, frame)
        self.comes(2, frame)
        self.nothing_comes(2)
        self.assertEqual(
            self.switch.packet_in(COMES_SECONDS),
            (frame, {"ingress_port": 1, "reason": REASON_UNKNOWN_SOURCE}),
        )


class StationOnItsOwnPort(PacerTest):
    """A packet to a station behind the port it came from is dropped and counted."""

    def runTest(self) -> None:
        frame = udp_frame(destination=1)
        self.send(1, frame)
        self.nothing_comes()
        self.dropped(DROP_SAME_PORT, [frame])
        self.accepted(0, [])


class StationMovesAndGoes(PacerTest):
    """A modified entry forwards to the new port; a deleted one leaves flooding."""

    def runTest(self) -> None:
        frame = udp_frame()
        self.switch.modify(self.station(mac_of(2), 3))
        self.send(1, frame)
        self.comes(3, frame)
        self.nothing_comes()
        self.switch.delete(self.switch.entry("PacerIngress.forward", {"dst_mac": 0x020000000002}))
        self.send(1, frame)
        self.comes(2, frame)
        self.comes(3, frame)
        self.nothing_comes()

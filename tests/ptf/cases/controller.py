"""The controller's channel: packets in and out, the primary role, counters and groups."""

from __future__ import annotations

from finsy.proto import p4r

from harness import (
    ABSENT_SECONDS,
    COMES_SECONDS,
    CPU_PORT,
    DEVICE_ID,
    FLOOD_GROUP,
    REASON_UNKNOWN_SOURCE,
    PacerTest,
    mac_of,
    udp6_frame,
    udp_frame,
)
from p4runtime_client import Client, Count, P4RuntimeError

GRPC_NOT_FOUND = 5
GRPC_ALREADY_EXISTS = 6


class PacketOutToPort(PacerTest):
    """A packet with an egress port leaves by it unchanged, past all tables."""

    def runTest(self) -> None:
        # To a station behind port 2, yet sent out of port 3; and a flow that would hold it.
        self.install(self.flow({}, 5), self.paced(5, 8_000, limit_bytes=0))
        frame = udp_frame(destination=2)
        self.switch.packet_out(frame, egress_port=3, pad=0)
        self.comes(3, frame)
        self.nothing_comes()
        self.accepted(5, [])


class PacketOutThroughTables(PacerTest):
    """Egress port 0: forwarded, classified and counted as if received on the CPU port."""

    def runTest(self) -> None:
        flow = self.flow({"ingress_port": CPU_PORT}, 6)
        self.install(flow)
        known, unknown = udp_frame(source=0x55), udp6_frame(source=0x55, destination=9)
        self.switch.packet_out(known, egress_port=0, pad=0)
        self.comes(2, known)
        self.nothing_comes()
        self.switch.packet_out(unknown, egress_port=0, pad=0)
        for port in (1, 2, 3):
            self.comes(port, unknown)
        self.nothing_comes()
        self.assertEqual(self.hits(flow), 2)
        # Counters count frames as they came in at the CPU port: behind a 2-byte header.
        self.accepted(6, [bytes(2) + known, bytes(2) + unknown])
        self.assertIsNone(
            self.switch.packet_in(ABSENT_SECONDS), "the controller is not told of itself"
        )


class PacketInHeader(PacerTest):
    """Each packet in names its own port and reason, in order, whole up to the MTU."""

    def runTest(self) -> None:
        for port, size in ((1, 64), (2, 1518), (3, 600)):
            frame = udp_frame(source=0x60 + port, destination=9, frame_bytes=size)
            self.send(port, frame)
            self.assertEqual(
                self.switch.packet_in(COMES_SECONDS),
                (frame, {"ingress_port": port, "reason": REASON_UNKNOWN_SOURCE}),
            )


class SecondController(PacerTest):
    """Of two controllers the one with the higher election id writes and gets the packets."""

    def runTest(self) -> None:
        other = Client(self.address, DEVICE_ID, self.program)
        self.addCleanup(other.close)
        self.assertEqual(other.become_primary(), 0, "the highest election id is primary")
        # The first controller is notified that it is no longer primary.
        told = self.switch.arbitrations.get(timeout=COMES_SECONDS)
        self.assertEqual(told.status.code, GRPC_ALREADY_EXISTS)
        self.assertEqual(told.election_id, other.election_id)
        with self.assertRaises(P4RuntimeError) as caught:
            self.switch.insert(self.station(mac_of(0x44), 3))
        self.assertEqual(caught.exception.code.name, "PERMISSION_DENIED")
        self.assertEqual(len(self.switch.entries("PacerIngress.forward")), 3, "a backup reads")
        other.insert(self.station(mac_of(0x44), 3))
        frame = udp_frame(source=0x66)
        self.send(1, frame)
        self.comes(2, frame)
        self.assertIsNotNone(other.packet_in(COMES_SECONDS))
        self.assertIsNone(self.switch.packet_in(ABSENT_SECONDS))
        other.close()
        told = self.switch.arbitrations.get(timeout=COMES_SECONDS)
        if self.on_bmv2:
            # An older rule: the remaining controller with the highest id is primary.
            self.assertEqual(told.status.code, 0)
        else:
            # Only an id at least as high as the highest seen may be primary.
            self.assertEqual(told.status.code, GRPC_NOT_FOUND)
            self.switch.election_id = other.election_id
            self.assertEqual(self.switch.become_primary(), 0)
        self.switch.delete(self.station(mac_of(0x44), 3))


class ReadBack(PacerTest):
    """Table entries read back as they were written."""

    def runTest(self) -> None:
        flow = self.flow({"src_addr": (0xFFFF << 32, 0xFFFFFFFF << 32), "dst_port": 80}, 3)
        self.install(flow, self.paced(3, 500_000_000, 65536, 24288))
        (read,) = self.switch.entries("PacerIngress.flows")
        self.assertEqual(read.action, flow.table_entry.action)
        self.assertEqual(
            {f.field_id: f.ternary for f in read.match},
            {f.field_id: f.ternary for f in flow.table_entry.match},
        )
        self.assertEqual(read.priority, flow.table_entry.priority)
        (read,) = self.switch.entries("PacerIngress.classes")
        self.assertEqual(read.action, self.paced(3, 500_000_000, 65536, 24288).table_entry.action)
        self.assertEqual(len(self.switch.entries("PacerIngress.sources")), 3)


class CountersAreSetAndRead(PacerTest):
    """Counters count packets and bytes, can be set, and go on from there."""

    def runTest(self) -> None:
        frame = udp_frame(frame_bytes=404)
        self.send(1, frame, frame)
        self.comes(2, frame, frame)
        self.assertEqual(self.switch.counter("PacerIngress.class_accepted", 0), Count(2, 800))
        cell = p4r.Entity()
        cell.counter_entry.counter_id = self.program.counter_id("PacerIngress.class_accepted")
        cell.counter_entry.index.index = 0
        cell.counter_entry.data.packet_count = 0
        cell.counter_entry.data.byte_count = 0
        self.switch.modify(cell)
        self.assertEqual(self.switch.counter("PacerIngress.class_accepted", 0), Count(0, 0))
        self.send(1, frame)
        self.comes(2, frame)
        self.assertEqual(self.switch.counter("PacerIngress.class_accepted", 0), Count(1, 400))


class FloodGroupChanges(PacerTest):
    """A multicast group's new members are the next packet's."""

    def runTest(self) -> None:
        frame = udp_frame(destination=9)
        self.switch.modify(Client.multicast_group(FLOOD_GROUP, [1, 3]))
        self.send(1, frame)
        self.comes(3, frame)
        self.nothing_comes()


class PushStartsAfresh(PacerTest):
    """Pushing the program again empties tables and zeroes counters."""

    def runTest(self) -> None:
        frame = udp_frame()
        self.send(1, frame)
        self.comes(2, frame)
        self.push_again()
        for table in ("flows", "classes", "forward", "sources"):
            self.assertEqual(self.switch.entries(f"PacerIngress.{table}"), [])
        self.assertEqual(self.switch.counter("PacerIngress.class_accepted", 0), Count(0, 0))
        self.install(self.station(mac_of(2), 2), self.source(mac_of(1), 1))
        self.send(1, frame)
        self.comes(2, frame)

"""Telling flows: 5-tuple, IPv6, VLAN, DSCP, priorities, and packets that hide their ports."""

from __future__ import annotations

from scapy.layers.inet import IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from harness import (
    DROP_PARSER_ERROR,
    PacerTest,
    as_int,
    mac_of,
    pad,
    udp6_frame,
    udp_frame,
)

UDP_NUMBER, TCP_NUMBER = 17, 6
IPV4_MAPPED = 0xFFFF << 32
TEN_1 = IPV4_MAPPED | 0x0A000001
TEN_2 = IPV4_MAPPED | 0x0A000002
ALL_ADDRESS_BITS = (1 << 128) - 1
DOC_1 = 0x20010DB8 << 96 | 1
DOC_2 = 0x20010DB8 << 96 | 2


class Ipv4FiveTuple(PacerTest):
    """All five fields of a flow must agree."""

    def runTest(self) -> None:
        flow = self.flow(
            {
                "src_addr": TEN_1,
                "dst_addr": TEN_2,
                "protocol": UDP_NUMBER,
                "src_port": 1000,
                "dst_port": 2000,
            }
        )
        self.install(flow)
        ether = Ether(src=mac_of(1), dst=mac_of(2))
        tcp = pad(ether / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1000, dport=2000), 104)
        self.matches(
            flow,
            {
                "the flow": (udp_frame(), True),
                "other source": (udp_frame(ip_src="10.0.0.3"), False),
                "other destination": (udp_frame(ip_dst="10.0.0.3"), False),
                "other protocol": (tcp, False),
                "other source port": (udp_frame(src_port=1001), False),
                "other destination port": (udp_frame(dst_port=2001), False),
            },
        )


class TcpPorts(PacerTest):
    """A TCP packet's ports are seen, and it comes out unchanged with its options."""

    def runTest(self) -> None:
        flow = self.flow({"protocol": TCP_NUMBER, "dst_port": 5001})
        self.install(flow)
        ether = Ether(src=mac_of(1), dst=mac_of(2))
        options = [("MSS", 1460), ("WScale", 7)]
        syn = TCP(sport=40000, dport=5001, flags="S", options=options)
        other = TCP(sport=40000, dport=5002, flags="S", options=options)
        self.matches(
            flow,
            {
                "IPv4": (bytes(ether / IP(dst="10.0.0.2", src="10.0.0.1") / syn), True),
                "IPv6": (bytes(ether / IPv6(dst="2001:db8::2", src="2001:db8::1") / syn), True),
                "port": (bytes(ether / IP(dst="10.0.0.2", src="10.0.0.1") / other), False),
            },
        )


class Ipv6FiveTuple(PacerTest):
    """Flows of IPv6, by whole addresses and by prefix."""

    def runTest(self) -> None:
        flow = self.flow(
            {"src_addr": DOC_1, "dst_addr": DOC_2, "protocol": UDP_NUMBER, "dst_port": 2000}
        )
        prefix = self.flow({"src_addr": (0xFD00 << 112, 0xFF00 << 112)}, priority=5)
        self.install(flow, prefix)
        self.matches(
            flow,
            {
                "the flow": (udp6_frame(), True),
                "other source": (udp6_frame(ip_src="2001:db8::3"), False),
                "other destination": (udp6_frame(ip_dst="2001:db8:0:1::2"), False),
                "other port": (udp6_frame(dst_port=2001), False),
                "the same ports in IPv4": (udp_frame(), False),
            },
        )
        self.matches(
            prefix,
            {
                "in the prefix": (udp6_frame(ip_src="fd12::1"), True),
                "outside": (udp6_frame(ip_src="fe80::1"), False),
            },
        )


class VlanTag(PacerTest):
    """A flow in a VLAN; 0 is no VLAN; the tag leaves as it came."""

    def runTest(self) -> None:
        tagged = self.flow({"vlan_id": 42, "dst_port": 2000}, priority=20)
        untagged = self.flow({"vlan_id": 0, "dst_port": 2000}, priority=10)
        self.install(tagged, untagged)
        self.matches(
            tagged,
            {
                "VLAN 42": (udp_frame(vlan=42), True),
                "VLAN 42, IPv6": (udp6_frame(vlan=42), True),
                "VLAN 43": (udp_frame(vlan=43), False),
                "no VLAN": (udp_frame(), False),
            },
        )
        self.matches(
            untagged,
            {
                "no VLAN": (udp_frame(), True),
                # Priority tag: VLAN identifier 0 says that the frame is in no VLAN.
                "priority tag": (udp_frame(vlan=0), True),
                "VLAN 42": (udp_frame(vlan=42), False),
            },
        )


class Dscp(PacerTest):
    """Flows by DSCP, IPv4 and IPv6; the ECN bits are no part of it."""

    def runTest(self) -> None:
        flow = self.flow({"dscp": 46})
        self.install(flow)
        marked = udp_frame(dscp=46)
        # ECT(0): the two bits beside the DSCP.
        ether = Ether(src=mac_of(1), dst=mac_of(2))
        capable = pad(
            ether / IP(src="10.0.0.1", dst="10.0.0.2", tos=46 << 2 | 2) / UDP(dport=2000), 104
        )
        self.matches(
            flow,
            {
                "IPv4": (marked, True),
                "IPv4, ECN-capable": (capable, True),
                "IPv6": (udp6_frame(dscp=46), True),
                "IPv4, other": (udp_frame(dscp=45), False),
                "IPv6, other": (udp6_frame(dscp=0), False),
            },
        )


class IngressPortAndEtherType(PacerTest):
    """Flows by ingress port and by EtherType."""

    def runTest(self) -> None:
        port = self.flow({"ingress_port": 3, "ether_type": 0x0800}, priority=20)
        arp = self.flow({"ether_type": 0x0806})
        self.install(port, arp)
        frame = udp_frame(source=3)
        self.send(3, frame)
        self.comes(2, frame)
        self.assertEqual(self.hits(port), 1)
        request = bytes(
            Ether(src=mac_of(1), dst=mac_of(2))
            / ARP(hwsrc=mac_of(1), psrc="10.0.0.1", pdst="10.0.0.2")
        )
        self.matches(port, {"port 1": (udp_frame(), False), "ARP": (request, False)})
        self.assertEqual(self.hits(arp), 1)
        tagged = bytes(
            Ether(src=mac_of(1), dst=mac_of(2))
            / Dot1Q(vlan=7)
            / ARP(hwsrc=mac_of(1), psrc="10.0.0.1", pdst="10.0.0.2")
        )
        self.matches(arp, {"ARP in a VLAN": (tagged, True)})


class TernaryPriorities(PacerTest):
    """Of overlapping flows the highest priority wins, in whatever order they were installed."""

    def runTest(self) -> None:
        net = self.flow({"src_addr": (TEN_1 & ~0xFF, ALL_ADDRESS_BITS ^ 0xFF)}, 1, priority=10)
        host = self.flow({"src_addr": TEN_1}, 2, priority=30)
        port = self.flow({"dst_port": 2000}, 3, priority=20)
        everything = self.flow({}, 4, priority=1)
        self.install(net, host, port, everything)
        self.matches(host, {"host over port over net": (udp_frame(), True)})
        self.matches(port, {"port over net": (udp_frame(ip_src="10.0.0.9"), True)})
        self.matches(net, {"net": (udp_frame(ip_src="10.0.0.9", dst_port=3), True)})
        self.matches(everything, {"the rest": (udp_frame(ip_src="10.1.0.9", dst_port=3), True)})
        for class_id in (1, 2, 3, 4):
            self.accepted(class_id, [udp_frame()])
        # Packets that the best entry leaves fall to the next best.
        self.switch.delete(host)
        self.matches(port, {"port, without host": (udp_frame(), True)})


class FragmentsAndOptions(PacerTest):
    """Ports are read only where they are: not in later fragments, not behind options."""

    def runTest(self) -> None:
        flow = self.flow({"protocol": UDP_NUMBER, "dst_port": 2000}, priority=20)
        portless = self.flow({"protocol": UDP_NUMBER, "src_port": 0, "dst_port": 0})
        self.install(flow, portless)
        first = udp_frame(flags="MF")
        later = udp_frame(frag=3)
        options = udp_frame(frame_bytes=108, options=[IPOption_Router_Alert()])
        self.matches(
            flow,
            {
                "first fragment": (first, True),
                "later fragment": (later, False),
                "options": (options, False),
            },
        )
        self.assertEqual(self.hits(portless), 2, "later fragment and options")


class TruncatedFrames(PacerTest):
    """A frame that ends inside a header is dropped and counted; whole ones go on.

    A frame that ends inside a VLAN tag or an Ethernet header never gets to a switch here: the
    kernel takes neither for a frame.
    """

    def runTest(self) -> None:
        ipv4, ipv6 = udp_frame(), udp6_frame()
        tcp = bytes(
            Ether(src=mac_of(1), dst=mac_of(2)) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP()
        )
        cut = [
            ipv4[:33],  # one byte short of an IPv4 header
            ipv6[:53],  # one byte short of an IPv6 header
            ipv4[:41],  # in the UDP header
            tcp[:53],  # in the TCP header
            udp_frame(vlan=5)[:30],  # in the IPv4 header behind a VLAN tag
        ]
        self.send(1, *cut)
        whole = udp_frame(number=7)
        self.send(1, whole)
        self.comes(2, whole)
        self.nothing_comes()
        self.dropped(DROP_PARSER_ERROR, cut)
        self.accepted(0, [whole])


class ShortestWholeFrames(PacerTest):
    """A frame that ends exactly at the end of a header is whole."""

    def runTest(self) -> None:
        ether = Ether(src=mac_of(1), dst=mac_of(2))
        for frame in (
            bytes(ether)[:12] + b"\x88\xb5",  # local experimental EtherType, no payload
            udp_frame()[:42],
            udp6_frame()[:62],
        ):
            self.send(1, frame)
            self.comes(2, frame)
        self.dropped(DROP_PARSER_ERROR, [])


class ClassBeyondTheLast(PacerTest):
    """A flow to a class that cannot exist is in class 0; the last class that can is itself."""

    def runTest(self) -> None:
        beyond = self.flow({"dst_port": 2000}, self.class_count)
        far_beyond = self.flow({"dst_port": 2001}, 0xFFFFFFFF)
        last = self.flow({"dst_port": 2002}, self.class_count - 1)
        self.install(beyond, far_beyond, last)
        frames = [udp_frame(dst_port=port) for port in (2000, 2001, 2002)]
        self.send(1, *frames)
        self.comes(2, *frames)
        self.accepted(0, frames[:2])
        self.accepted(self.class_count - 1, frames[2:])


class FlowModifiedAndDeleted(PacerTest):
    """A flow's class changes for the next packet; a deleted flow's packets are class 0."""

    def runTest(self) -> None:
        flow = self.flow({"dst_port": 2000}, 5)
        self.install(flow)
        frame = udp_frame()
        self.send(1, frame)
        self.comes(2, frame)
        self.switch.modify(self.flow({"dst_port": 2000}, 6))
        self.send(1, frame)
        self.comes(2, frame)
        self.switch.delete(flow)
        self.send(1, frame)
        self.comes(2, frame)
        for class_id in (0, 5, 6):
            self.accepted(class_id, [frame])


class StationAddressesAreNoFlowFields(PacerTest):
    """One flow entry serves every station of its addresses."""

    def runTest(self) -> None:
        flow = self.flow({"src_addr": TEN_1})
        self.install(flow, self.station(mac_of(0x22), 2), self.source(mac_of(0x11), 1))
        self.assertNotEqual(as_int(mac_of(0x22)), as_int(mac_of(2)))
        self.matches(
            flow,
            {
                "one pair": (udp_frame(), True),
                "another": (udp_frame(source=0x11, destination=0x22), True),
            },
        )

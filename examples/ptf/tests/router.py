"""A PTF test of a router: a packet to 10.0.2.0/24 leaves by port 2, with new addresses."""

from typing import Any

import ptf
from ptf.base_tests import BaseTest
from ptf.testutils import send_packet, simple_udp_packet, verify_no_other_packets, verify_packet


class RouteTest(BaseTest):
    """Sends one packet that has a route, and one that has none."""

    def setUp(self) -> None:
        """Take the ports that run.py gave to PTF."""
        super().setUp()
        self.dataplane: Any = ptf.dataplane_instance
        self.dataplane.flush()

    def runTest(self) -> None:
        """Run the test."""
        routed = {"ip_src": "10.0.1.2", "ip_dst": "10.0.2.2"}
        send_packet(self, 1, simple_udp_packet(ip_ttl=64, **routed))
        expected = simple_udp_packet(
            eth_src="02:00:00:00:01:02", eth_dst="02:00:00:00:00:02", ip_ttl=63, **routed
        )
        verify_packet(self, expected, 2)
        send_packet(self, 1, simple_udp_packet(ip_dst="10.9.9.9"))
        verify_no_other_packets(self)

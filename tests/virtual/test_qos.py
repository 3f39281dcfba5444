"""qos.p4: the DSCP by protocol, the egress queue by DSCP, and marks by the depth of the queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from ip_frames import CE, ECT_0, ECT_1, NOT_ECT, frame, tcp, udp
from pacing_switch import TimedFrame
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from virtual_switch import Port, VirtualRun, run

EF, AF11 = 46, 10
MARK_FROM_PACKETS = 24
PACKETS = 30


def sent_by_port_2(frames: list[bytes], folder: Path) -> list[bytes]:
    """What port 2, a line with two queues, sends of frames that come to port 1 at once."""
    what = VirtualRun(
        ports=[Port(1), Port(2, "rate=8mbit,queues=2")],
        arrivals={1: [TimedFrame(1_000 + place, one) for place, one in enumerate(frames)]},
        program="qos",
    )
    return [timed.frame for timed in run(what, folder)[2]]


def test_udp_goes_first_and_each_protocol_has_its_dscp(tmp_path: Path) -> None:
    """The first frame has the line; its DSCP is overwritten, its ECN field is not."""
    arrivals = [frame(tcp(), 0, dscp=EF, ecn=ECT_0), frame(tcp(), 1), frame(udp(), 2)]
    assert sent_by_port_2(arrivals, tmp_path) == [
        frame(tcp(), 0, AF11, ECT_0),
        frame(udp(), 2, EF),
        frame(tcp(), 1, AF11),
    ]


def test_other_protocols_keep_their_dscp_which_chooses_the_queue(tmp_path: Path) -> None:
    other = Raw(bytes(100))
    arrivals = [frame(tcp(), 0), frame(other, 1), frame(other, 2, EF)]
    assert sent_by_port_2(arrivals, tmp_path) == [
        frame(tcp(), 0, AF11),
        frame(other, 2, EF),
        frame(other, 1),
    ]


@pytest.mark.parametrize(("came", "left"), [(NOT_ECT, NOT_ECT), (ECT_1, CE), (ECT_0, CE), (CE, CE)])
def test_packets_that_find_a_long_queue_are_marked(came: int, left: int, tmp_path: Path) -> None:
    """The first one is on the line, so the one with number 25 is the first to find 24."""
    arrivals = [frame(tcp(), number, ecn=came) for number in range(PACKETS)]
    assert sent_by_port_2(arrivals, tmp_path) == [
        frame(tcp(), number, AF11, left if number > MARK_FROM_PACKETS else came)
        for number in range(PACKETS)
    ]


def test_it_is_a_wire_both_ways_for_frames_of_any_protocol(tmp_path: Path) -> None:
    arp = bytes(Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff") / ARP())
    for came, left in ((1, 2), (2, 1)):
        folder = tmp_path / str(came)
        folder.mkdir()
        what = VirtualRun(
            ports=[Port(1), Port(2), Port(3)],
            arrivals={came: [TimedFrame(1_000, arp)], 3: [TimedFrame(2_000, arp)]},
            program="qos",
        )
        sent = run(what, folder)
        assert {port: len(frames) for port, frames in sent.items() if frames} == {left: 1}
        assert sent[left][0].frame == arp

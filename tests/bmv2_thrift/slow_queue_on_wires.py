"""A slow egress queue in real time, set over Thrift; not a test. It needs a network namespace.

The scenario of BMv2's test_queueing.cpp: one packet, then packets that come at once while their
queue sends a few in a second. It depends on `queues_on_wires` for frames and sockets. In BMv2 the
packet before, which leaves without a limit, lets the first of the others wait; here it comes when
the rate is set. The queue has room for those packets and no more, so that one more is dropped; one
of a higher priority does not wait for them.

Prints one JSON object: what egress wrote into the frames of the queue, in the order in which they
left, the priorities of all in this order, the rate, and the packets that each queue dropped. The
frames are those of the switch's capture: egress writes over the Ethernet type, and a receiving
kernel takes what looks like a VLAN tag out of a frame.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from pacing_switch import read_capture
from queues_on_wires import drops_of, frame, running_switch
from stubs import connected

PACKETS = 16
RATE_PPS = 2
SLOW, HIGH = 1, 6
# Of the program: behind the priority.
FIELDS = ("enq_qdepth", "deq_qdepth", "enq_timestamp", "deq_timedelta")
_FIELDS = struct.Struct(">4I")


def fields_of(sent: bytes) -> dict[str, int]:
    """What egress wrote into a frame."""
    return dict(zip(FIELDS, _FIELDS.unpack_from(sent, 1), strict=True))


def main() -> None:
    """Send the packet before, the others, one too many, and one of a higher priority."""
    folder = Path(sys.argv[1])
    stats = folder / "stats.json"
    with running_switch(stats, "--pcap", str(folder)) as (port, near, far):
        with connected(port) as clients:
            clients.simple_switch.set_all_egress_queue_rates(RATE_PPS)
            clients.simple_switch.set_egress_priority_queue_depth(1, SLOW, PACKETS)
        near.send(frame(SLOW))
        far.recv(2048)
        for priority in (*(SLOW,) * (PACKETS + 1), HIGH):
            near.send(frame(priority))
        for _ in range(PACKETS + 1):
            far.recv(2048)
    sent = [timed.frame for timed in read_capture(folder / "s1_out.pcap")]
    told = {
        "slow": [fields_of(each) for each in sent if each[0] == SLOW],
        "order": [each[0] for each in sent],
        "rate_pps": RATE_PPS,
        "drops": drops_of(stats),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()

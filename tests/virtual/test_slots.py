"""Slots in virtual time: packets of flows that begin together do not meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from flow_model import FlowClass, FlowPacer, Segment
from pacer_entries import (
    all_to,
    class_entry,
    class_in_slot,
    flow,
    flow_by_ether_type,
    frame,
    packet_id,
    slots_of_flows,
    station,
)
from pacing_switch import TimedFrame
from tcp_traffic import STATIONS, frame_of
from virtual_switch import Port, VirtualRun, run

SLOTS, SLOT_NS = 8, 121_440
"""A full frame's time at 100 Mbit/s."""
CYCLE_NS = SLOTS * SLOT_NS
RTT_NS = 20_000_000
PAYLOAD_BYTES = 1_448
SERVER = ("10.0.0.2", 5001)


def test_classes_that_begin_together_leave_one_slot_apart(tmp_path: Path) -> None:
    classes = range(1, SLOTS + 1)
    entries = [
        entry
        for k in classes
        for entry in (
            class_in_slot(k, 100_000_000 // SLOTS, CYCLE_NS, k * SLOT_NS),
            flow_by_ether_type(k),
        )
    ]
    # The last class comes first.
    arrivals = [TimedFrame(1, frame(k, k, 1514)) for k in reversed(classes) for _ in range(10)]
    what = VirtualRun(
        ports=[Port(1), Port(2)],
        arrivals={1: arrivals},
        runtime={"table_entries": entries, "multicast_group_entries": all_to(2)},
    )
    left = run(what, tmp_path)[2]
    assert [packet_id(timed.frame) for timed in left] == [*classes] * 10
    assert [timed.at_ns for timed in left] == [k * SLOT_NS for k in range(1, 10 * SLOTS + 1)]


def _segments(flows: int) -> list[Segment]:
    """Flows of which each opens, and sends a window of ten segments 20 times, all at once."""
    found = []
    for number in range(flows):
        client = ("10.0.0.1", 40_000 + number)
        found.append(Segment(1_000, client, SERVER, 0, flags="S", length_bytes=74))
        answer = (1_000 + RTT_NS, SERVER, client, 0, 0, 1, "S", 74)
        found.append(Segment(*answer))
        for trip in range(1, 21):
            at_ns = trip * RTT_NS + 2_000 + number
            for k in range(10):
                sequence = 1 + (10 * (trip - 1) + k) * PAYLOAD_BYTES
                found.append(Segment(at_ns, client, SERVER, sequence, PAYLOAD_BYTES, 1, "", 1514))
            end = 1 + 10 * trip * PAYLOAD_BYTES
            found.append(Segment(at_ns + RTT_NS - 1_000, SERVER, client, 1, 0, end, "", 66))
    return sorted(found, key=lambda segment: segment.at_ns)


@pytest.mark.parametrize("flows", [3, SLOTS, SLOTS + 2])
def test_flows_get_slots_in_turn(flows: int, tmp_path: Path) -> None:
    params = {"limit_bytes": 1 << 30, "allowance_ns": 1_000_000, "ecn_threshold_bytes": 0}
    params |= slots_of_flows(SLOTS, SLOT_NS)
    entries = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries += [
        class_entry(1, "paced_pspd_in_slots", params),
        flow({"ingress_port": [1, 0x1FF]}, 1),
    ]
    pacer = FlowPacer(FlowClass(pspd=True, slots=SLOTS, slot_ns=SLOT_NS))
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    expected = []
    for segment in _segments(flows):
        came = 2 if segment.sender == SERVER else 1
        sent = frame_of(segment, came, 5_000)
        arrivals[came].append(TimedFrame(segment.at_ns, sent))
        if came == 1:
            expected.append((pacer.send(segment), sent))
        else:
            pacer.acknowledge(segment)
    ports = [Port(1), Port(2, "fifo=1gb")]
    left = run(VirtualRun(ports, arrivals, {"table_entries": entries}), tmp_path)[2]
    assert sorted((timed.at_ns, timed.frame) for timed in left) == sorted(expected)

    slots = [left_ns % CYCLE_NS // SLOT_NS for left_ns, sent in expected if len(sent) > 1_000]
    assert all(left_ns % SLOT_NS == 0 for left_ns, sent in expected if len(sent) > 1_000)
    # Slot 8 begins at the multiples of the cycle.
    assert sorted(set(slots)) == sorted({(n % SLOTS + 1) % SLOTS for n in range(flows)})
    most = max(map(slots.count, set(slots)))
    assert most == 200 * -(-flows // SLOTS)

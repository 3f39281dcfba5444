"""The pacing contract's vectors through the whole switch: packet in to packet out.

Parser, P4 program, traffic manager and capture files take part; start times must agree with
the reference model to the nanosecond, drops packet by packet. A stall is something that
happens to a driver in real time; in virtual time there is none, so vectors with stalls run
without them, against the model's results for the same events without stalls. (With their stalls
they are tests of the traffic-manager crate.) Where PAUSE frames fill the gaps, each must be there
at its nanosecond, in its length.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pacing_model as model
import pytest
from flow_model import Segment
from pacer_entries import (
    all_to,
    class_entry,
    flow,
    flow_by_dscp,
    flow_by_ether_type,
    frame,
    ip_frame,
    packet_id,
    slots_of_flows,
    station,
)
from pacing_switch import TimedFrame
from tcp_traffic import STATIONS, frame_of
from virtual_switch import REPOSITORY, Port, VirtualRun, gap_frames_of, run, statistics

ALL_VECTORS = sorted((REPOSITORY / "tests" / "vectors").rglob("*.json"))
FLOW_VECTORS = [path for path in ALL_VECTORS if path.parent.name == "flows"]
OTHERS = ("flows", "sharing", "burstiness", "queues", "switch-buffer")
VECTORS = [path for path in ALL_VECTORS if path.parent.name not in OTHERS]
# Class 0 of a vector is "unpaced": the port's FIFO, and the program's default class.
FIRST_PORT, SECOND_PORT = 1, 2
PACE = ("time_per_byte_q24", "limit_bytes", "allowance_ns")
PARAMETERS = {
    "unpaced": (),
    "paced_static": PACE,
    "paced_ipg": (*PACE, "gap_bytes", "ecn_threshold_bytes"),
    "paced_timer": (*PACE, "tick_ns", "ecn_threshold_bytes"),
    "paced_static_in_slot": (*PACE, "cycle_ns", "offset_ns", "ecn_threshold_bytes"),
}

FLOW_PACE = (
    "inverse_headroom_q16",
    "time_per_byte_q24",
    "bytes_per_ns_q24",
    "window_margin_bytes",
)
FLOW_ACTIONS = {
    "pspd": ("paced_pspd", ()),
    "clustered": ("paced_clustered", ("release_below_ns",)),
    "dynamic": ("paced_dynamic", FLOW_PACE),
    "slow-start": ("paced_slow_start", (*FLOW_PACE, "release_below_ns")),
}


def _class_entry(settings: dict[str, Any], operation: str, at_ns: int) -> dict[str, object]:
    mode = settings["mode"]
    action = "unpaced" if mode == "unpaced" else f"paced_{mode}"
    if "cycle_ns" in settings:
        action = "paced_static_in_slot"
    params = {name: settings[name] for name in PARAMETERS[action]}
    if mode == "timer":
        params["ticks_per_ns_q64"] = (1 << 64) // settings["tick_ns"]
    if action == "paced_static_in_slot":
        params["cycles_per_ns_q64"] = (1 << 64) // settings["cycle_ns"]
        params |= {"bytes_per_ns_q24": 0, "window_margin_bytes": 0}
    if action == "paced_static" and settings.get("ecn_threshold_bytes"):
        action = "paced_static_controlled"
        params["ecn_threshold_bytes"] = settings["ecn_threshold_bytes"]
        params |= {"bytes_per_ns_q24": 0, "window_margin_bytes": 0}
    return class_entry(settings["class"], action, params, operation=operation, at_ns=at_ns)


def _frame(packet: dict[str, Any]) -> bytes:
    if "ecn" in packet:
        return ip_frame(packet["id"], packet["class"], packet["length_bytes"], packet["ecn"])
    return frame(packet["id"], packet["class"], packet["length_bytes"])


def _applies_ns(vector: dict[str, Any], at: int) -> int:
    """Return the time to apply the class change that is event number `at`.

    At one instant the switch applies entries before it takes arrivals. A change that the vector
    puts after an arrival of the same instant applies a nanosecond later, which is the same.
    """
    at_ns: int = vector["events"][at]["at_ns"]
    same = [
        place
        for place, event in enumerate(vector["events"])
        if "packet" in event and event["at_ns"] == at_ns
    ]
    if not any(place < at for place in same):
        return at_ns
    if any(place > at for place in same):
        pytest.skip("a class changes between two arrivals of one nanosecond")
    return at_ns + 1


def _run_of(vector: dict[str, Any]) -> VirtualRun:
    entries: list[dict[str, object]] = []
    known = set()
    for settings in vector["classes"]:
        entries.append(_class_entry(settings, "insert", 0))
        known.add(settings["class"])
    arrivals = []
    classes = set(known)
    for at, event in enumerate(vector["events"]):
        if "packet" in event:
            packet = event["packet"]
            classes.add(packet["class"])
            arrivals.append(TimedFrame(event["at_ns"], _frame(packet)))
        else:
            settings = event["set_class"]
            operation = "modify" if settings["class"] in known else "insert"
            known.add(settings["class"])
            entries.append(_class_entry(settings, operation, _applies_ns(vector, at)))
    entries += [flow_by_ether_type(class_id) for class_id in sorted(classes)]
    entries += [flow_by_dscp(class_id) for class_id in sorted(classes) if 0 < class_id < 64]
    port = vector["port"]
    rate = f"rate={port['line_rate_bps']}," if port["line_rate_bps"] else ""
    longest_bytes = port.get("gap_frame_max_bytes")
    gaps = f",gaps=pause-frames:{longest_bytes}" if longest_bytes else ""
    return VirtualRun(
        ports=[
            Port(FIRST_PORT),
            Port(SECOND_PORT, f"{rate}counts={port['counts']},fifo={port['fifo_bytes']}{gaps}"),
        ],
        arrivals={FIRST_PORT: arrivals},
        runtime={"table_entries": entries, "multicast_group_entries": all_to(SECOND_PORT)},
    )


def _without_stalls(vector: dict[str, Any]) -> dict[str, Any]:
    """The unchanged vector, or its stall-free variant with the model's results for that."""
    events = [event for event in vector["events"] if "stall_until_ns" not in event]
    if len(events) == len(vector["events"]):
        return vector
    port = vector["port"]
    result = model.run(
        model.PortConfig(
            port["line_rate_bps"] or None,
            port["counts"],
            port["fifo_bytes"],
            port.get("gap_frame_max_bytes"),
        ),
        [_model_class(settings) for settings in vector["classes"]],
        [_model_event(event) for event in events],
    )
    expected: list[dict[str, Any]] = [
        {"id": departure.packet.id, "start_ns": departure.start_ns}
        for departure in result.departures
    ]
    expected += [{"id": drop.packet.id, "drop": drop.cause} for drop in result.drops]
    gap_frames = [[frame.start_ns, frame.length_bytes] for frame in result.gap_frames]
    return vector | {"events": events, "expected": expected, "gap_frames": gap_frames}


def _model_class(settings: dict[str, Any]) -> model.ClassConfig:
    return model.ClassConfig(
        settings["class"],
        settings["mode"],
        settings["rate_bps"],
        settings["limit_bytes"],
        settings["allowance_ns"],
    )


def _model_event(event: dict[str, Any]) -> model.Event:
    if "packet" in event:
        packet = event["packet"]
        return model.Arrive(
            event["at_ns"], model.Packet(packet["id"], packet["class"], packet["length_bytes"])
        )
    return model.SetClass(event["at_ns"], _model_class(event["set_class"]))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vector_through_the_switch(path: Path, tmp_path: Path) -> None:
    vector = _without_stalls(json.loads(path.read_text()))
    gap_frames, sent = gap_frames_of(run(_run_of(vector), tmp_path)[SECOND_PORT])

    rows = [[timed.at_ns, len(timed.frame)] for timed in gap_frames]
    assert rows == vector.get("gap_frames", [])
    expected = {row["id"]: row["start_ns"] for row in vector["expected"] if "start_ns" in row}
    assert {packet_id(timed.frame): timed.at_ns for timed in sent} == expected
    # Order, too: packets that start at the same nanosecond leave in the vector's order.
    order = [row["id"] for row in vector["expected"] if "start_ns" in row]
    assert [packet_id(timed.frame) for timed in sent] == order

    packets = {e["packet"]["id"]: e["packet"] for e in vector["events"] if "packet" in e}
    for row in vector["expected"]:
        if "ecn" in row:  # the packet has changed in its ECN field only, checksum included
            packets[row["id"]]["ecn"] = row["ecn"]
    for timed in sent:
        assert timed.frame == _frame(packets[packet_id(timed.frame)])

    drops = [row["drop"] for row in vector["expected"] if "drop" in row]
    seen: dict[str, Any] = statistics(tmp_path)
    port = next(port for port in seen["ports"] if port["port"] == SECOND_PORT)
    assert port["drops"].get("fifo-full", 0) == drops.count("fifo-full")
    assert port["gap_frames"] == len(gap_frames)
    assert port["gap_bytes"] == sum(len(timed.frame) for timed in gap_frames)


CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 5001)


def _segment_frame(row: dict[str, Any], window: int) -> bytes:
    """A segment of a flow's vector, with that window."""
    from_client = row["from"] == "client"
    ends = (CLIENT, SERVER) if from_client else (SERVER, CLIENT)
    opens = row["syn"] and from_client
    segment = Segment(
        row["at_ns"],
        *ends,
        row["sequence"],
        row["payload_bytes"],
        None if opens else row["acknowledgement"],
        "S" if row["syn"] else "",
    )
    return frame_of(segment, FIRST_PORT if from_client else SECOND_PORT, window)


@pytest.mark.parametrize("path", FLOW_VECTORS, ids=lambda path: path.stem)
def test_vector_of_a_flow_through_the_switch(path: Path, tmp_path: Path) -> None:
    vector = json.loads(path.read_text())
    settings = vector["class"]
    action, names = FLOW_ACTIONS[settings["mode"]]
    # Departures are rounded up; the allowance covers the sum of the rounding.
    params = {"limit_bytes": 1 << 30, "allowance_ns": 1_000_000, "ecn_threshold_bytes": 0}
    params |= {name: settings[name] for name in names}
    if "slots" in settings:
        action = f"{action}_in_slots"
        params |= slots_of_flows(settings["slots"], settings["slot_ns"])
    entries = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries += [class_entry(1, action, params), flow({"ingress_port": [FIRST_PORT, 0x1FF]}, 1)]
    arrivals: dict[int, list[TimedFrame]] = {FIRST_PORT: [], SECOND_PORT: []}
    expected: dict[int, list[tuple[int, bytes]]] = {FIRST_PORT: [], SECOND_PORT: []}
    for values in vector["segments"]:
        row = dict(zip(vector["columns"], values, strict=True))
        came, leaves = (FIRST_PORT, SECOND_PORT)[:: 1 if row["from"] == "client" else -1]
        timed = TimedFrame(row["at_ns"], _segment_frame(row, row["window"]))
        assert len(timed.frame) == row["length_bytes"]
        arrivals[came].append(timed)
        left = (row["leaves_ns"], _segment_frame(row, row["leaves_window"]))
        expected[leaves].append(left)
    ports = [Port(FIRST_PORT), Port(SECOND_PORT, "fifo=1gb")]
    sent = run(VirtualRun(ports, arrivals, {"table_entries": entries}), tmp_path)
    for port in ports:
        left_there = [(timed.at_ns, timed.frame) for timed in sent[port.number]]
        assert sorted(left_there) == sorted(expected[port.number])

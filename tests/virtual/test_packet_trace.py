"""Packet traces: what happened to each packet, as JSON and as text, beside what left the switch."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pacer_entries import all_to, flow_by_ether_type, frame, ip_frame, paced_class, station
from pacing_switch import ProcessError, TimedFrame
from virtual_switch import COMPILED, REPOSITORY, Port, VirtualRun, binary, run

CONFORMANCE = REPOSITORY / "tests" / "conformance"

RATE_BPS = 100_000_000
CLASS = 5
FRAME_BYTES = 1_000
PORTS = (Port(1), Port(2), Port(3))
PACED = VirtualRun(
    ports=PORTS,
    arrivals={1: [TimedFrame(1_000, frame(n, CLASS, FRAME_BYTES)) for n in range(3)]},
    runtime={
        "table_entries": [paced_class(CLASS, RATE_BPS), flow_by_ether_type(CLASS)],
        "multicast_group_entries": all_to(2),
    },
)


def traced(what: VirtualRun, folder: Path) -> tuple[dict[int, list[TimedFrame]], list[Any]]:
    """What each port sent, and the traces."""
    file = folder / "traces.json"
    options = (*what.options, "--packet-trace", str(file))
    sent = run(VirtualRun(what.ports, what.arrivals, what.runtime, what.program, options), folder)
    return sent, [json.loads(line) for line in file.read_text().splitlines()]


def log_of(what: VirtualRun, folder: Path) -> str:
    """The log of a run, with the steps of packets."""
    run(what, folder)
    command = [str(binary()), "--virtual", "--cpu-port", "510", "--log-level", "trace"]
    for port in what.ports:
        settings = port.settings and f",{port.settings}"
        command += ["-i", f"{port.number}@{folder}/p{port.number}{settings}"]
    command += ["--runtime-json", str(folder / "runtime.json")]
    command.append(str(COMPILED / f"{what.program}.json"))
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def events(tree: Any, kind: str) -> list[Any]:
    """The events of a kind in a branch, in order."""
    return [event[kind] for event in tree["events"] if kind in event]


def leaves(tree: Any) -> list[Any]:
    """The branches that end without a fork."""
    if "fork" not in tree:
        return [tree]
    return [leaf for branch in tree["fork"]["branches"] for leaf in leaves(branch)]


def test_a_paced_packet_shows_its_class_its_wait_and_its_departure(tmp_path: Path) -> None:
    sent, traces = traced(PACED, tmp_path)
    assert [trace["input"].get("packet_id", 0) for trace in traces] == [0, 1, 2]
    gaps = []
    for departed, trace in zip(sent[2], traces, strict=True):
        assert trace["input"]["ingress_port"] == 1
        assert trace["input"]["arrival_ns"] == 1_000
        assert trace["input"]["packet_size"] == FRAME_BYTES
        (leaf,) = leaves(trace["root"])
        assert leaf["transmit"]["egress_port"] == 2
        assert leaf["transmit"]["packet_size"] == FRAME_BYTES
        assert leaf["transmit"]["delivery_ns"] == departed.at_ns
        (hold,) = events(trace["root"], "hold")
        assert hold["class_id"] == CLASS
        (queued,) = events(leaf, "enqueue")
        assert queued["hold"]["departure_ns"] == hold["departure_ns"]
        (start,) = events(leaf, "dequeue")
        assert start["start_ns"] >= hold["departure_ns"]
        gaps.append(start.get("gap_ns"))
    # The port has no line rate, so a frame ends when it starts.
    first, second, third = (departed.at_ns for departed in sent[2])
    assert gaps == [None, second - first, third - second]


def test_the_gap_begins_at_the_end_of_the_frame_before(tmp_path: Path) -> None:
    """A frame takes 100 us of the line, so the second one follows the first without a gap."""
    what = VirtualRun(
        ports=(Port(1), Port(2, "rate=8mbit")),
        arrivals={1: [TimedFrame(at_ns, frame(1, 0, 76)) for at_ns in (0, 1_000, 250_000)]},
        runtime={"multicast_group_entries": all_to(2)},
    )
    _, traces = traced(what, tmp_path)
    starts = [
        start
        for trace in traces
        for leaf in leaves(trace["root"])
        for start in events(leaf, "dequeue")
        if start["port"] == 2
    ]
    assert [start.get("start_ns", 0) for start in starts] == [0, 100_000, 250_000]
    assert [start.get("gap_ns") for start in starts] == [None, 0, 50_000]
    words = "Port 2 starts the packet at 250000 ns, after 0 ns in its queue; gap of 50000 ns"
    assert words in log_of(what, tmp_path)


def test_tables_show_keys_entries_and_actions(tmp_path: Path) -> None:
    _, traces = traced(PACED, tmp_path)
    root = traces[0]["root"]
    lookups = {one["table"]: one for one in events(root, "table_lookup")}
    flows = lookups["PacerIngress.flows"]
    assert flows["hit"]
    assert flows["priority"] == 1
    assert flows["handle"] == 0
    assert {"name": "ether_type", "value": "0x9005"} in flows["key"]
    assert {"name": "ether_type", "value": "0x9005&&&0xffff"} in flows["matches"]
    assert not lookups["PacerIngress.forward"].get("hit")
    actions = {one["name"]: one for one in events(root, "action")}
    assert {"name": "class_id", "value": "0x00000005"} in actions["PacerIngress.classify"]["args"]
    assert events(root, "parser_state")[0]["name"] == "start"
    (ethernet,) = events(root, "extract")
    assert ethernet["header"] == "ethernet"
    assert {"name": "ether_type", "value": "0x9005"} in ethernet["fields"]


def test_conditions_and_primitives_quote_the_program(tmp_path: Path) -> None:
    _, traces = traced(PACED, tmp_path)
    (leaf,) = leaves(traces[0]["root"])
    shown = traces[0]["root"]["events"] + leaf["events"]
    conditions = [one["condition"] for one in shown if "condition" in one]
    assert {
        "filename": "pacer.p4",
        "line": 120,
        "source_fragment": "standard_metadata.parser_error != error.NoError",
    } in [condition.get("source_info") for condition in conditions]
    kinds = [next(iter(event)) for event in shown]
    action = next(
        place
        for place, event in enumerate(shown)
        if event.get("action", {}).get("name") == "PacerIngress.classify"
    )
    # The action's five assignments follow it, in the program's order.
    assert kinds[action : action + 6] == ["action", *["primitive"] * 5]
    primitives = [event["primitive"] for event in shown[action + 1 : action + 6]]
    assert {primitive["op"] for primitive in primitives} == {"assign"}
    places = [primitive["source_info"] for primitive in primitives]
    assert {place["filename"] for place in places} == {"include/classifier.p4"}
    lines = [place["line"] for place in places]
    assert lines == list(range(lines[0], lines[0] + 5))


def test_the_colour_of_a_direct_meter_is_shown(tmp_path: Path) -> None:
    """The entry's meter is not configured, so packets are green."""
    _, traces = traced(PACED, tmp_path)
    shown = events(traces[0]["root"], "direct_meter")
    assert shown == [{"meter": "PacerIngress.flow_meter", "colour": 0}]


def test_the_chosen_member_is_shown(tmp_path: Path) -> None:
    """In `selector`, the second byte is the hash, and member N sends to port N."""
    what = VirtualRun(
        ports=(Port(0), *PORTS),
        arrivals={0: [TimedFrame(1_000 * n, bytes([1 + n // 5, n]) + bytes(58)) for n in range(6)]},
        runtime=json.loads((CONFORMANCE / "programs/selector.runtime.json").read_text()),
        program=str(CONFORMANCE / "compiled/selector"),
    )
    _, traces = traced(what, tmp_path)
    *of_group, named = [one for trace in traces for one in events(trace["root"], "chosen_member")]
    of_profile = {"action_profile": "I.choice"}
    assert of_group == [of_profile | {"member_id": n, "group_id": 7} for n in (1, 2, 2, 3, 1)]
    assert named == of_profile | {"member_id": 3}


def test_depths_are_those_that_the_program_sees(tmp_path: Path) -> None:
    """`priorities` writes what egress sees into a frame; its first byte was the priority."""
    arrivals = [
        TimedFrame(1_000_000 + 1_000 * number, bytes([priority]) + bytes(58) + bytes([number]))
        for number, priority in enumerate((0, 0, 7, 3, 7))
    ]
    what = VirtualRun(
        ports=[Port(1, "rate=8mbit"), Port(2)],
        arrivals={2: arrivals},
        program=str(CONFORMANCE / "compiled/priorities"),
        options=("--priority-queues", "8"),
    )
    sent, traces = traced(what, tmp_path)
    of_packet = {trace["input"].get("packet_id", 0): trace["root"] for trace in traces}
    assert len(sent[1]) == len(arrivals)
    for timed in sent[1]:
        root = of_packet[timed.frame[59]]
        (queued,) = events(root, "enqueue")
        shown = (queued.get("qid", 0), queued.get("enq_qdepth", 0))
        assert shown == struct.unpack_from(">BI", timed.frame)
        # 60 bytes and FCS each.
        assert queued.get("backlog_bytes", 0) == 64 * queued.get("enq_qdepth", 0)


def test_a_paced_packet_shows_what_its_class_holds(tmp_path: Path) -> None:
    _, traces = traced(PACED, tmp_path)
    waiting = [
        queued.get("backlog_bytes", 0)
        for trace in traces
        for leaf in leaves(trace["root"])
        for queued in events(leaf, "enqueue")
    ]
    # The first leaves at once, and the second waits when the third comes.
    assert waiting == [0, 0, FRAME_BYTES + 4]


def test_a_mark_by_active_queue_management_is_shown(tmp_path: Path) -> None:
    arrivals = [
        TimedFrame(1_000_000 + 400_000 * number, ip_frame(2 * number, 0, 514, ecn=2))
        for number in range(200)
    ]
    what = VirtualRun(
        ports=[Port(1, "rate=8mbit,queues=1,fifo=16MB,aqm=codel:5ms:20ms:ecn"), Port(2)],
        arrivals={2: arrivals},
        program=str(CONFORMANCE / "compiled/queue_depth"),
    )
    sent, traces = traced(what, tmp_path)
    marked = [timed.frame[15] & 3 == 3 for timed in sent[1]]
    assert any(marked)
    assert not all(marked)
    assert [bool(events(trace["root"], "ecn_mark")) for trace in traces] == marked


QUEUES = VirtualRun(
    ports=[Port(1, "rate=8mbit,queues=16"), Port(2)],
    # The second packet comes while the first one is on the line, and the third one while it waits.
    # Each chooses queue 9 and reads it; the last one reads queue 16.
    arrivals={
        2: [
            TimedFrame(1_000 * number, bytes([0x80, 9, 0, 1, queue]) + bytes(55))
            for number, queue in enumerate([9, 9, 9, 16])
        ]
    },
    program=str(REPOSITORY / "switch/crates/v1model/tests/programs/queues"),
)


def test_reads_and_choices_of_queues_are_shown(tmp_path: Path) -> None:
    sent, traces = traced(QUEUES, tmp_path)
    kinds = {"read_queue", "choose_queue"}
    seen = [
        [event for event in trace["root"]["events"] if kinds & event.keys()] for trace in traces
    ]
    there = {"port": 1, "queue": 9, "exists": True}
    waits = {"packets": 1, "bytes": 64, "sojourn_ns": 1_000}
    choice = {"choose_queue": {"queue": 9}}
    # Ingress reads twice, for the depth and for the sojourn, and so does egress.
    readings = [there, there, there | waits, {"port": 1, "queue": 16}]
    for of_packet, reading in zip(seen, readings, strict=True):
        assert of_packet[:3] == [{"read_queue": reading}] * 2 + [choice]
        assert [next(iter(event)) for event in of_packet[3:]] == ["read_queue"] * 2
    names = [one["op"] for one in events(traces[0]["root"], "primitive")]
    assert "_EgressQueues_depth" in names
    (enqueued,) = events(traces[0]["root"], "enqueue")
    assert enqueued["qid"] == 9
    # The program writes what it reads into the frame.
    assert [struct.unpack_from(">IIQ", timed.frame, 5) for timed in sent[1]] == [
        (0, 0, 0),
        (0, 0, 0),
        (64, 1, 1_000),
        (0, 0, 0),
    ]


def test_the_log_names_reads_and_choices_of_queues(tmp_path: Path) -> None:
    logged = log_of(QUEUES, tmp_path)
    for words in (
        "[2.0] Read queue 9 of port 1: 1 packets, 64 bytes, 1000 ns at its head",
        "[3.0] There is no queue 16 of port 1",
        "[3.0] Choosing queue 9",
    ):
        assert words in logged, words


def test_the_log_names_entries_by_their_handles(tmp_path: Path) -> None:
    """The first entry of a table has handle 0, as in `simple_switch`, and the second one 1."""
    stations = [*station("02:00:00:00:00:00", 1), *station("02:00:00:00:00:02", 2)]
    logged = log_of(VirtualRun(PORTS, PACED.arrivals, {"table_entries": stations}), tmp_path)
    assert "[0.0] Table 'PacerIngress.forward': hit with handle 1" in logged


def test_a_flooded_packet_has_a_branch_for_each_port(tmp_path: Path) -> None:
    replicas = [{"egress_port": port.number, "instance": 1} for port in PORTS]
    what = VirtualRun(
        ports=PORTS,
        arrivals={1: [TimedFrame(0, frame(1, 0, 100))]},
        runtime={
            "multicast_group_entries": [
                {"multicast_group_id": group, "replicas": replicas} for group in (1, 2)
            ]
        },
    )
    sent, (trace,) = traced(what, tmp_path)
    fork = trace["root"]["fork"]
    assert fork["reason"] == "MULTICAST"
    ends = leaves(trace["root"])
    assert {end["transmit"]["egress_port"] for end in ends if "transmit" in end} == {2, 3}
    assert [end["drop"]["cause"] for end in ends if "drop" in end] == ["pruned"]
    assert {port for port, frames in sent.items() if frames} == {2, 3}


def test_a_dropped_packet_says_why(tmp_path: Path) -> None:
    limit = paced_class(CLASS, RATE_BPS, limit_bytes=FRAME_BYTES)
    what = VirtualRun(
        PORTS,
        PACED.arrivals,
        {**PACED.runtime, "table_entries": [limit, flow_by_ether_type(CLASS)]},
    )
    _, traces = traced(what, tmp_path)
    for trace in traces:
        assert trace["root"]["drop"] == {"port": 1, "cause": "ingress-drop"}
        assert events(trace["root"], "mark_to_drop")


def test_the_switch_does_the_same_with_and_without_traces(tmp_path: Path) -> None:
    arrivals = {
        1: [TimedFrame(700 * n, frame(n, CLASS + n % 2, 60 + 31 * (n % 40))) for n in range(300)]
    }
    what = VirtualRun(PORTS, arrivals, PACED.runtime)
    (tmp_path / "plain").mkdir()
    (tmp_path / "traced").mkdir()
    plain = run(what, tmp_path / "plain")
    sent, traces = traced(what, tmp_path / "traced")
    assert sent == plain
    assert len(traces) == len(arrivals[1])
    counted = [(tmp_path / folder / "stats.json").read_text() for folder in ("plain", "traced")]
    # Interfaces have the names of the folders.
    assert counted[0].replace("/plain/", "/") == counted[1].replace("/traced/", "/")


def test_the_log_has_the_words_of_simple_switch(tmp_path: Path) -> None:
    stations = [*station("02:00:00:00:00:00", 1), *station("02:00:00:00:00:02", 2)]
    what = VirtualRun(PORTS, PACED.arrivals, {"table_entries": stations})
    logged = log_of(what, tmp_path)
    for words in (
        "[0.0] Processing packet received on port 1",
        "[0.0] Parser 'parser': start",
        "[0.0] Parser 'parser' entering state 'start'",
        "[0.0] Extracting header 'ethernet'",
        "[0.0] Pipeline 'ingress': start",
        "[0.0] Applying table 'PacerIngress.flows'",
        "[0.0] Table 'PacerIngress.flows': miss",
        '[0.0] pacer.p4(120) Condition "standard_metadata.parser_error != error.NoError" (node_2)'
        " is false",
        "[0.0] include/forwarding.p4(29) Primitive standard_metadata.egress_spec = port",
        "[0.0] Egress port is 2; queued at 1000 ns in queue 0, behind 0 packets; 0 bytes wait",
        "[0.0] Port 2 starts the packet at 1000 ns, after 0 ns in its queue; first packet of"
        " the port",
    ):
        assert words in logged, words
    # Of the compiler to machine code, nothing.
    assert "cranelift" not in logged
    assert "regalloc" not in logged


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    options = ("--packet-trace", str(tmp_path / "none" / "traces.json"))
    what = VirtualRun(PORTS, PACED.arrivals, PACED.runtime, options=options)
    with pytest.raises(ProcessError) as refused:
        run(what, tmp_path)
    assert f"cannot create {tmp_path}/none/traces.json" in str(refused.value)


def test_a_run_whose_traces_find_no_room_fails_and_names_the_file(tmp_path: Path) -> None:
    options = ("--packet-trace", "/dev/full")
    what = VirtualRun(PORTS, PACED.arrivals, PACED.runtime, options=options)
    with pytest.raises(ProcessError, match="cannot write /dev/full: No space left on device"):
        run(what, tmp_path)

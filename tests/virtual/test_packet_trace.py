"""Packet traces: what happened to each packet, as JSON and as text, beside what left the switch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pacer_entries import all_to, flow_by_ether_type, frame, paced_class, station
from pacing_switch import ProcessError, TimedFrame
from virtual_switch import COMPILED, Port, VirtualRun, binary, run

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


def test_tables_show_keys_entries_and_actions(tmp_path: Path) -> None:
    _, traces = traced(PACED, tmp_path)
    root = traces[0]["root"]
    lookups = {one["table"]: one for one in events(root, "table_lookup")}
    flows = lookups["PacerIngress.flows"]
    assert flows["hit"]
    assert flows["priority"] == 1
    assert {"name": "ether_type", "value": "0x9005"} in flows["key"]
    assert {"name": "ether_type", "value": "0x9005&&&0xffff"} in flows["matches"]
    assert not lookups["PacerIngress.forward"].get("hit")
    actions = {one["name"]: one for one in events(root, "action")}
    assert {"name": "class_id", "value": "0x00000005"} in actions["PacerIngress.classify"]["args"]
    assert events(root, "parser_state")[0]["name"] == "start"
    (ethernet,) = events(root, "extract")
    assert ethernet["header"] == "ethernet"
    assert {"name": "ether_type", "value": "0x9005"} in ethernet["fields"]


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
    run(
        VirtualRun(
            PORTS, PACED.arrivals, {"table_entries": station("02:00:00:00:00:02", 2)}, "pacer"
        ),
        tmp_path,
    )
    command = [str(binary()), "--virtual", "--cpu-port", "510", "--log-level", "trace"]
    for port in PORTS:
        command += ["-i", f"{port.number}@{tmp_path}/p{port.number}"]
    command += ["--runtime-json", str(tmp_path / "runtime.json"), str(COMPILED / "pacer.json")]
    logged = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    for words in (
        "[0.0] Processing packet received on port 1",
        "[0.0] Parser 'parser': start",
        "[0.0] Parser 'parser' entering state 'start'",
        "[0.0] Extracting header 'ethernet'",
        "[0.0] Pipeline 'ingress': start",
        "[0.0] Applying table 'PacerIngress.flows'",
        "[0.0] Table 'PacerIngress.flows': miss",
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

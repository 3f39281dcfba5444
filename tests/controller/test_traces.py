"""Traces of packets: dry runs and packets as they come in, of a real switch, and filters."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pacing_switch import TimedFrame, write_capture

from controller_harness import TARGET, Controller, Network, eventually
from pacer_controller import packet_filter
from pacer_controller.cli.main import main as pacer
from pacer_controller.cli.trace import tree
from pacer_controller.problems import Problem
from pacer_controller.service import tracing
from rest_client import Client, problem

DRY_RUN = "/v1/switches/s1/dry-run"
TRACES = "/v1/switches/s1/traces"
CLASS = "/v1/switches/s1/classes/video"
FLOW = "/v1/switches/s1/flows/web"
BROADCAST = bytes(6 * [0xFF])
STATION = bytes.fromhex("020000000001")

own = pytest.mark.skipif(TARGET != "pacing_switch", reason="only pacing_switch traces packets")


def udp(port: int, destination: bytes = BROADCAST) -> bytes:
    """Return a UDP packet from 10.0.0.1 to 10.0.1.1 (checksums of no interest here)."""
    ipv4 = bytes.fromhex("4500001c00004000401100000a0000010a000101")
    ports = (40000).to_bytes(2, "big") + port.to_bytes(2, "big")
    frame = destination + STATION + b"\x08\x00" + ipv4 + ports + bytes.fromhex("00080000")
    return frame.ljust(60, b"\0")


def found(trace: Any, member: str) -> list[Any]:
    """Return all members of this name in a trace, in order."""
    if isinstance(trace, list):
        return [one for item in trace for one in found(item, member)]
    if not isinstance(trace, dict):
        return []
    here = [trace[member]] if member in trace else []
    return here + [one for value in trace.values() for one in found(value, member)]


def pace(controller: Controller) -> None:
    assert controller.put(CLASS, {"rate": "1Mbit"}).status_code == 201
    match = {"protocol": "udp", "dst_port": 5001}
    assert controller.put(FLOW, {"match": match, "class": "video"}).status_code == 201


@own
def test_a_dry_run_shows_the_class_and_changes_nothing(controller: Controller) -> None:
    pace(controller)
    before = controller.get("/v1/switches/s1/stats")
    for _ in range(3):
        answer = controller.http.post(DRY_RUN, json={"port": 1, "frame": udp(5001).hex()})
        assert answer.status_code == 200, answer.text
        trace = answer.json()["trace"]
        assert trace["input"]["ingress_port"] == 1
        assert trace["input"]["packet_size"] == 60
        hits = {one["table"] for one in found(trace, "table_lookup") if one.get("hit")}
        assert {"PacerIngress.flows", "PacerIngress.classes"} <= hits
        assert {one["class_id"] for one in found(trace, "hold")} == {1}
        # Broadcast: to the other ports, and to the controller.
        assert sorted(one["egress_port"] for one in found(trace, "transmit")) == [2, 3]
    after = controller.get("/v1/switches/s1/stats")
    for was, port in zip(before["ports"], after["ports"], strict=True):
        for counter in ("rx_packets", "tx_packets", "queued_packets", "drops"):
            assert port["statistics"][counter] == was["statistics"][counter]
    for was, one in zip(before["classes"], after["classes"], strict=True):
        for counter in ("accepted", "limit_dropped", "backlog_bytes", "owed_ns"):
            assert one[counter] == was[counter]


@own
def test_packets_of_a_filter_are_traced_as_they_come(
    controller: Controller, network: Network
) -> None:
    pace(controller)
    events: list[tuple[str, Any]] = []
    opened = threading.Event()

    def watch() -> None:
        query: dict[str, str | int] = {"match": "udp dport 5001", "count": 2, "port": 1}
        with controller.http.stream("GET", TRACES, params=query) as stream:
            kind = ""
            for line in stream.iter_lines():
                opened.set()
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    events.append((kind, json.loads(value)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert opened.wait(10)

        def all_traced() -> bool:
            # The stream is open a little before the switch watches.
            for port, number in ((1, 5001), (1, 5002), (2, 5001)):
                network.send(port, udp(number))
            return not thread.is_alive()

        eventually(all_traced, "two packets are traced")
    finally:
        thread.join(10)
    assert [kind for kind, _ in events] == ["trace", "trace"]
    for _, event in events:
        trace = event["trace"]
        assert trace["input"]["ingress_port"] == 1
        (udp_header, *_) = [one for one in found(trace, "extract") if "udp" in one["header"]]
        values = {one["name"]: one["value"] for one in udp_header["fields"]}
        assert int(values["dst_port"], 16) == 5001


@own
def test_pacer_shows_a_dry_run_as_a_tree(
    controller: Controller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pace(controller)
    file = tmp_path / "one.pcap"
    write_capture(file, [TimedFrame(0, udp(9)), TimedFrame(1, udp(5001))])
    command = ["--url", str(controller.http.base_url), "trace", "s1"]
    assert pacer([*command, "--packet", str(file), "--number", "2"]) == 0
    shown = capsys.readouterr().out
    assert "60 bytes at port 1" in shown
    assert "PacerIngress.classes: hit" in shown
    assert "= class_id; ... (include/classifier.p4:19)" in shown
    assert "meter PacerIngress.flow_meter = green" in shown
    assert "hold in class 1 until" in shown
    assert "class 1 of port 2 at" in shown
    assert "leaves by port 2: 60 bytes" in shown
    scapy = "Ether(dst='ff:ff:ff:ff:ff:ff')/IP()/UDP(dport=5001)/('x' * 100)"
    assert pacer([*command, "--scapy", scapy, "--port", "3"]) == 0
    assert "142 bytes at port 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            {"condition": {"name": "node_2", "source_info": {"source_fragment": "x == 1"}}},
            "node_2 x == 1 (:0): false",
        ),
        ({"primitive": {"op": "assign"}}, "assign"),
        (
            {"chosen_member": {"action_profile": "ecmp", "member_id": 3, "group_id": 7}},
            "chooses member 3 of group 7 (ecmp)",
        ),
        (
            {"chosen_member": {"action_profile": "ecmp", "one_shot_index": 1}},
            "chooses action 1 of the entry's one-shot set (ecmp)",
        ),
        ({"direct_meter": {"meter": "flow", "colour": 2}}, "meter flow = red"),
        (
            {"dequeue": {"port": 2, "start_ns": 900}},
            "leaves the queue of port 2 at 900 ns",
        ),
        (
            {"dequeue": {"port": 2, "start_ns": 900, "gap_ns": 80}},
            "leaves the queue of port 2 at 900 ns, after a gap of 80 ns",
        ),
        (
            {"read_queue": {"port": 2, "queue": 9}},
            "reads queue 9 of port 2, which does not exist",
        ),
        (
            {"read_queue": {"port": 2, "exists": True, "packets": 3, "bytes": 192}},
            "reads queue 0 of port 2: 3 packets, 192 bytes, 0 ns at its head",
        ),
        ({"choose_queue": {"queue": 40}}, "choose queue 40"),
        ({"ecn_mark": {}}, "the queue marks it: congestion experienced (CE)"),
        (
            {"enqueue": {"port": 2, "at_ns": 5, "qid": 1, "enq_qdepth": 3, "backlog_bytes": 192}},
            "queue 1 of port 2 at 5 ns, behind 3 packets; 192 bytes wait",
        ),
    ],
)
def test_events_have_words(event: dict[str, Any], words: str) -> None:
    shown = tree({"root": {"events": [event]}})
    assert [str(child.label) for child in shown.children] == [words]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--packet", "none.pcap"], "cannot read none.pcap: No such file"),
        (["--number", "2"], "give --packet FILE"),
        (["--packet", "{file}", "--count", "2"], "--count is for packets that come in"),
        (["--packet", "{file}", "--number", "5"], "no packet 5; it has 1"),
        (["--scapy", "Ether("], "Ether("),
        (["--scapy", "1", "--packet", "x"], "give one"),
        (["--scapy", "Ether()", "--match", "tcp"], "--match is for packets that come in"),
    ],
)
def test_pacer_refuses_wrong_packets_by_name(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.pcap"
    write_capture(file, [TimedFrame(0, udp(9))])
    given = [word.replace("{file}", str(file)) for word in words]
    assert pacer(["trace", "s1", *given]) == 2
    assert reason in capsys.readouterr().err


@own
def test_wrong_requests_are_refused_by_name(controller: Controller) -> None:
    answer = controller.http.post(DRY_RUN, json={"port": 77, "frame": udp(1).hex()})
    assert answer.status_code == 409
    assert "no port 77" in answer.json()["detail"]
    answer = controller.http.post(DRY_RUN, json={"port": 1, "frame": "0102x"})
    assert answer.status_code == 422
    answer = controller.http.get(TRACES, params={"match": "tcp and"})
    assert answer.status_code == 422
    assert "syntax error" in json.dumps(answer.json())


def test_a_switch_that_is_away_does_not_trace(client: Client) -> None:
    answer = client.call("POST", DRY_RUN, {"port": 1, "frame": "00" * 60})
    assert problem(answer, 409)["type"].endswith("switch-does-not-trace")


def test_filters_are_compiled() -> None:
    short = packet_filter.compile_filter("tcp dport 80")
    assert short == packet_filter.compile_filter("tcp dst port 80")
    assert len(short) > 5
    accept_all = packet_filter.compile_filter("")
    assert len(accept_all) == 1


@pytest.mark.parametrize("text", ["tcp dst prt 80", "ip host 1.2.3.4.5.6", "a\0b", "x" * 1001])
def test_texts_that_are_no_filters_are_refused(text: str) -> None:
    with pytest.raises(packet_filter.FilterError):
        packet_filter.compile_filter(text)


def test_names_that_are_looked_up_for_long_hold_no_other_threads() -> None:
    going_on = threading.Event()

    def hanging(_: str) -> Any:
        going_on.wait()

    async def work() -> None:
        # More than the default executor of any loop has threads.
        asked = [asyncio.ensure_future(tracing.compiled("host name")) for _ in range(64)]
        await asyncio.sleep(0)
        assert await asyncio.to_thread(lambda: 6 * 7) == 42
        for one in asked:
            with pytest.raises(Problem, match="give addresses instead"):
                await one

    with (
        mock.patch.object(packet_filter, "compile_filter", hanging),
        mock.patch.object(tracing, "COMPILE_S", 0.5),
    ):
        try:
            asyncio.run(work())
        finally:
            going_on.set()

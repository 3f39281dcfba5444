"""Mode shared: one rate for all active flows, to the nanosecond, and its benefits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from flow_model import Segment
from flow_runs import departures
from pacer_entries import class_entry, flow, station
from pacing_model import FCS_BYTES
from pacing_switch import TimedFrame
from sharing_cases import (
    FRAME_BYTES,
    MS,
    SERVER,
    Loop,
    Passed,
    Stream,
    client,
    shared_class,
)
from sharing_model import EPOCH_NS, SharedClass, SharedPacer
from tcp_traffic import STATIONS, frame_of
from virtual_switch import REPOSITORY, Port, VirtualRun, run

VECTORS = sorted((REPOSITORY / "tests" / "vectors" / "sharing").glob("*.json"))
CLASS = 5
RATE_BPS = 100_000_000
CONFIG = shared_class(RATE_BPS)
Left = dict[int, list[tuple[int, bytes]]]


def left(config: dict[str, int], arrivals: dict[int, list[TimedFrame]], folder: Path) -> Left:
    """The frames that left by each port; those that come in by port 1 are of the class."""
    params = {"limit_bytes": 1 << 30, "allowance_ns": 1_000_000, "ecn_threshold_bytes": 0}
    entries = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries.append(class_entry(CLASS, "paced_shared", params | config))
    entries.append(flow({"ingress_port": [1, 0x1FF]}, CLASS))
    ports = [Port(1), Port(2, "fifo=1gb")]
    sent = run(VirtualRun(ports, arrivals, {"table_entries": entries}), folder)
    return {n: sorted((timed.at_ns, timed.frame) for timed in sent[n]) for n in sent}


def check(passed: Iterable[Passed], config: SharedClass, folder: Path) -> None:
    """The program's departures, and windows, are the model's."""
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    expected: Left = {1: [], 2: []}
    for one in passed:
        port = 1 if one.segment.receiver == SERVER else 2
        frame = frame_of(one.segment, port, one.window)
        assert len(frame) == one.segment.length_bytes
        arrivals[port].append(TimedFrame(one.segment.at_ns, frame))
        after = frame_of(one.segment, port, one.leaves_window)
        expected[3 - port].append((one.leaves_ns, after))
    found = left(asdict(config), arrivals, folder)
    assert found == {port: sorted(frames) for port, frames in expected.items()}


def segment_of(row: dict[str, Any]) -> Segment:
    """A segment of a vector."""
    ends = (client(row["stream"]), SERVER)
    if row["from"] == "server":
        ends = (ends[1], ends[0])
    acknowledgement = None if row["flags"] == "S" and row["from"] == "client" else 0
    segment = Segment(
        *(row["at_ns"], *ends, row["sequence"], row["payload_bytes"]),
        acknowledgement=None if acknowledgement is None else row["acknowledgement"],
        flags=row["flags"],
    )
    port = 1 if row["from"] == "client" else 2
    return replace(segment, length_bytes=len(frame_of(segment, port)))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vector(path: Path, tmp_path: Path) -> None:
    vector = json.loads(path.read_text())
    passed = []
    for values in vector["segments"]:
        row = dict(zip(vector["columns"], values, strict=True))
        passed.append(
            Passed(
                row["stream"],
                segment_of(row),
                *(row["leaves_ns"], row["window"], row["leaves_window"]),
            )
        )
    check(passed, SharedClass(**vector["class"]), tmp_path)


CASES = {
    "alone": [Stream(300, 20)],
    "equal": [Stream(200, 20) for _ in range(8)],
    "one-later": [*(Stream(400, 30) for _ in range(3)), Stream(400, 30, begin_ns=60 * MS)],
    "many-later": [Stream(400, 40, begin_ns=1_000 + 30 * MS * n) for n in range(12)],
    "small-windows": [Stream(200, 30), Stream(200, 30), Stream(60, 2), Stream(60, 1)],
    "long-paths": [Stream(700, 400, rtt_ns=(50 + 40 * n) * MS) for n in range(4)],
    "silent-for-seconds": [
        *(Stream(2_000, 60) for _ in range(2)),
        Stream(400, 30, pauses_at=100),
        Stream(200, 30, begin_ns=2_500 * MS),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_departures(case: str, tmp_path: Path) -> None:
    check(Loop(SharedPacer(CONFIG), CASES[case]).run(), CONFIG, tmp_path)


def sent_by(streams: list[Stream]) -> list[Passed]:
    """The segments that the streams send, with their departures."""
    passed = Loop(SharedPacer(CONFIG), streams).run()
    return [one for one in passed if one.segment.receiver == SERVER]


def ends_ns(sent: Iterable[Passed]) -> list[int]:
    """The departure of the last data of each stream."""
    data = (one for one in sent if one.segment.payload_bytes)
    return sorted({one.stream: one.leaves_ns for one in data}.values())


def longest_queue_bytes(sent: Iterable[Passed]) -> float:
    """The longest queue at a bottleneck of the class's rate."""
    queue_bytes, longest_bytes, before_ns = 0.0, 0.0, 0
    for at_ns, length_bytes in sorted((one.leaves_ns, one.segment.length_bytes) for one in sent):
        queue_bytes = max(0.0, queue_bytes - (at_ns - before_ns) * RATE_BPS / 8e9)
        queue_bytes += length_bytes + FCS_BYTES
        longest_bytes, before_ns = max(longest_bytes, queue_bytes), at_ns
    return longest_bytes


LATE = [Stream(400, 40, begin_ns=1_000 + (n == 7) * 300 * MS) for n in range(48)]


@pytest.mark.parametrize("streams", [*CASES.values(), LATE], ids=[*CASES, "48"])
def test_a_bottleneck_of_the_rate_queues_a_frame_of_each_flow(streams: list[Stream]) -> None:
    """And one that is cut short by a flow that has twice the rate."""
    queue_bytes = longest_queue_bytes(sent_by(streams))
    assert queue_bytes <= (len(streams) + 1) * FRAME_BYTES


def test_a_late_stream_catches_up() -> None:
    """It begins after an eighth of the time, has as much to send, and all end within 2 %."""
    sent = sent_by(LATE)
    ends = ends_ns(sent)
    assert ends[-1] - ends[0] <= 0.02 * ends[-1]
    bits = sum(8 * (one.segment.length_bytes + FCS_BYTES) for one in sent)
    assert bits / ends[-1] >= 0.98 * RATE_BPS / 1e9


def test_what_a_stream_leaves_goes_to_the_others() -> None:
    """One has half as much to send; the others end as if it had never been there but for that."""
    streams = [Stream(1_000, 60), *(Stream(2_000, 60) for _ in range(3))]
    ends = ends_ns(sent_by(streams))
    whole_ns = (1_000 + 3 * 2_000) * FRAME_BYTES * 8e9 / RATE_BPS
    assert ends[-1] <= 1.05 * whole_ns


def test_a_packet_does_not_wait_longer_than_an_epoch(tmp_path: Path) -> None:
    """Such a packet is dropped, since its flow might no longer be counted when it left."""
    slow = shared_class(1_000_000)
    syn = Segment(1, client(0), SERVER, 0, 0, None, "S")
    burst = [Segment(30 * MS + k, client(0), SERVER, 1 + k * 1_448, 1_448, 1) for k in range(200)]
    found, expected = departures(slow, [(1, one) for one in [syn, *burst]], tmp_path)
    assert found == expected
    assert len(found) < 100
    assert max(at_ns for at_ns, _ in found) - 30 * MS - len(burst) <= EPOCH_NS

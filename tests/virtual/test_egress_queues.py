"""Egress queues in virtual time: priorities, queue metadata, the settings of `-i`, ECN marks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from ip_frames import ipv4_header, ones_sum
from pacing_switch import ProcessError, TimedFrame
from virtual_switch import REPOSITORY, Port, VirtualRun, run, statistics

PROGRAM = REPOSITORY / "tests" / "conformance" / "compiled" / "priorities"

PLAIN = REPOSITORY / "tests" / "conformance" / "compiled" / "queue_depth"
"""Overwrites the first 8 bytes of a frame."""

FRAME_NS = 84_000
"""A frame of 60 bytes at 8 Mbit/s, preamble and gap included."""


@dataclass(frozen=True)
class Left:
    """A packet that left: its number and time, and what egress saw."""

    number: int
    at_ns: int
    priority: int
    enq_qdepth: int
    deq_qdepth: int
    enq_us: int
    waited_us: int


def left(sent: Iterable[TimedFrame]) -> list[Left]:
    """What the program wrote into the frames that a port sent."""
    layout = struct.Struct(">BIIII")
    return [Left(timed.frame[59], timed.at_ns, *layout.unpack_from(timed.frame)) for timed in sent]


def frames(priorities: Sequence[int], at_ns: int = 1_000_000) -> list[TimedFrame]:
    """Frames that come a microsecond apart."""
    return [
        TimedFrame(at_ns + 1_000 * number, bytes([priority]) + bytes(58) + bytes([number]))
        for number, priority in enumerate(priorities)
    ]


def run_queues(
    folder: Path,
    settings: str,
    arrivals: Sequence[TimedFrame],
    options: Sequence[str] = (),
    program: Path = PROGRAM,
) -> list[Left]:
    """The frames of port 1, a line of 8 Mbit/s with these settings."""
    what = VirtualRun(
        ports=[Port(1, f"rate=8mbit{settings}"), Port(2)],
        arrivals={2: arrivals},
        program=str(program),
        options=options,
    )
    return left(run(what, folder)[1])


def queues_of_port_1(folder: Path) -> list[dict[str, object]]:
    """The queues in the statistics of a run."""
    ports = statistics(folder)["ports"]
    assert isinstance(ports, list)
    queues: list[dict[str, object]] = ports[0]["queues"]
    return queues


def test_priority_queues_as_in_simple_switch(tmp_path: Path) -> None:
    """The highest first; depths and times are those of the packet's queue."""
    arrivals = frames([0, 0, 7, 3, 7])
    sent = run_queues(tmp_path, "", arrivals, ["--priority-queues", "8"])
    assert [packet.number for packet in sent] == [0, 2, 4, 3, 1]
    assert [(packet.enq_qdepth, packet.deq_qdepth) for packet in sent] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (0, 0),
        (0, 0),
    ]
    for place, packet in enumerate(sent):
        assert packet.at_ns == 1_000_000 + place * FRAME_NS
        assert packet.enq_us == 1_000 + packet.number
        assert packet.waited_us == packet.at_ns // 1_000 - packet.enq_us
    queues = queues_of_port_1(tmp_path)
    assert [queue["tx_packets"] for queue in queues] == [2, 0, 0, 1, 0, 0, 0, 2]
    assert queues[0]["sojourn_max_ns"] == 4 * FRAME_NS - 1_000


def test_the_low_priority_gets_nothing_while_the_high_one_fills_the_line(tmp_path: Path) -> None:
    """As p4-learning's `multiqueueing` expects. Either flow alone fills the line."""
    first_ns = 1_000_000
    low = [TimedFrame(first_ns + number * FRAME_NS, bytes(60)) for number in range(600)]
    high = [TimedFrame(timed.at_ns + 1_000, b"\x07" + bytes(59)) for timed in low[200:400]]
    arrivals = sorted(low + high, key=lambda timed: timed.at_ns)
    sent = run_queues(tmp_path, ",fifo=6400", arrivals, ["--priority-queues", "8"])
    # The frame of the low priority that came first is on the line when the high one begins.
    runs = [
        (priority, len(list(of))) for priority, of in groupby(packet.priority for packet in sent)
    ]
    assert runs == [(0, 201), (7, 200), (0, 299)]
    queues = queues_of_port_1(tmp_path)
    assert queues[0]["drops"] == {"queue-full": 100}
    assert queues[7]["sojourn_max_ns"] == FRAME_NS - 1_000


def test_without_queues_priorities_have_no_effect(tmp_path: Path) -> None:
    sent = run_queues(tmp_path, "", frames([0, 1, 7, 3]))
    assert [packet.number for packet in sent] == [0, 1, 2, 3]


def test_qid_is_the_number_of_the_queue(tmp_path: Path) -> None:
    """A v1model.p4 with the alias `queueing_metadata.qid` gives a field that name."""
    text = PROGRAM.with_suffix(".json").read_text()
    other = tmp_path / "qid"
    alias = "queueing_metadata.deq_timedelta"
    assert text.count(alias) == 1
    other.with_suffix(".json").write_text(text.replace(alias, "queueing_metadata.qid"))
    sent = run_queues(tmp_path, ",queues=8", frames([5, 0, 7]), program=other)
    assert [(packet.priority, packet.waited_us) for packet in sent] == [(5, 5), (7, 7), (0, 0)]


def test_a_queue_that_the_port_does_not_have(tmp_path: Path) -> None:
    """simple_switch drops such packets, too."""
    sent = run_queues(tmp_path, ",queues=2", frames([1, 2, 0, 7]), ["--priority-queues", "8"])
    assert [packet.priority for packet in sent] == [1, 0]
    ports = statistics(tmp_path)["ports"]
    assert isinstance(ports, list)
    assert ports[0]["drops"] == {"no-such-queue": 2}


def test_depths_are_those_of_the_queue(tmp_path: Path) -> None:
    settings = ",queues=2,fifo=64KB,q0.packets=2,q1.fifo=64"
    sent = run_queues(tmp_path, settings, frames([0, 0, 0, 0, 1, 1]))
    assert [packet.number for packet in sent] == [0, 4, 1, 2]
    assert [queue["drops"] for queue in queues_of_port_1(tmp_path)] == [{"queue-full": 1}] * 2


def test_ports_share_the_buffer_of_the_switch(tmp_path: Path) -> None:
    """Of four frames, one queue holds two; the statistics have the drops and the buffer."""
    options = ["--switch-buffer", "256"]
    sent = run_queues(tmp_path, ",queues=2,buffer=switch", frames([0, 0, 0, 0, 0, 1]), options)
    # The first leaves at once; two of queue 0 and one of queue 1 wait.
    assert [packet.number for packet in sent] == [0, 5, 1, 2]
    counted = statistics(tmp_path)
    assert counted["buffer"] == {"size_bytes": 256, "backlog_max_bytes": 3 * 64}
    ports = counted["ports"]
    assert isinstance(ports, list)
    assert ports[0]["drops"] == {"switch-buffer": 2}


@pytest.mark.parametrize(
    ("scheduler", "order"),
    [("strict", "0111110000"), ("drr:1:1", "0111110000"), ("wfq:1:1", "0101010101")],
)
def test_schedulers(tmp_path: Path, scheduler: str, order: str) -> None:
    """A quantum of DRR is a full-sized frame, so it sends all of these at once."""
    arrivals = frames([0, 1] * 5)
    sent = run_queues(tmp_path, f",queues=2,scheduler={scheduler}", arrivals)
    assert "".join(str(packet.priority) for packet in sent) == order


def test_a_queue_keeps_its_rate(tmp_path: Path) -> None:
    """64 bytes at 1 Mbit/s take 512 us; the other queue uses the time."""
    arrivals = frames([1, 1, 1, 0, 0])
    sent = run_queues(tmp_path, ",queues=2,q1.rate=1mbit,q1.burst=0", arrivals)
    times = [packet.at_ns - 1_000_000 for packet in sent if packet.priority == 1]
    assert times == [0, 512_000, 1_024_000]
    assert [packet.number for packet in sent] == [0, 3, 4, 1, 2]


def ip_frames(
    dscp: int, ecn: int, count: int, gap_ns: int, source_port: int = 1
) -> list[TimedFrame]:
    """Frames of 514 bytes with headers of IPv4 and UDP."""
    header = ipv4_header(dscp << 2 | ecn, total_bytes=500, protocol=17)
    ports = struct.pack(">HH", source_port, 2)
    frame = bytes(12) + b"\x08\x00" + header + ports + bytes(476)
    return [TimedFrame(1_000_000 + number * gap_ns, frame) for number in range(count)]


@dataclass(frozen=True)
class Congestion:
    """The fate of 400 frames that come faster than the line takes them."""

    sent: int
    marked: int
    dropped: int


def congest(folder: Path, aqm: str, dscp: int = 0, ecn: int = 2) -> Congestion:
    """Sends them through one queue; checks that their checksums are correct."""
    # A frame takes 538 us of the line.
    arrivals = ip_frames(dscp, ecn, 400, 400_000)
    what = VirtualRun(
        ports=[Port(1, f"rate=8mbit,queues=1,fifo=16MB,aqm={aqm}"), Port(2)],
        arrivals={2: arrivals},
        program=str(PLAIN),
    )
    sent = [timed.frame for timed in run(what, folder)[1]]
    assert all(ones_sum(frame[14:34]) == 0xFFFF for frame in sent)
    marked = sum(frame[15] & 3 == 3 for frame in sent)
    [queue] = queues_of_port_1(folder)
    assert queue["marked_packets"] == marked
    drops = queue["drops"]
    assert isinstance(drops, dict)
    assert set(drops) <= {"aqm"}
    dropped = drops.get("aqm", 0)
    assert len(sent) + dropped == len(arrivals)
    return Congestion(len(sent), marked, dropped)


@pytest.mark.parametrize("aqm", ["codel:5ms:20ms", "red:5KB:20KB:0.5", "pie:5ms"])
def test_congestion_is_signalled(tmp_path: Path, aqm: str) -> None:
    """By drops, or with ECN by marks; of packets that are not ECN-capable by drops again."""
    folders = [tmp_path / name for name in ("drops", "marks", "incapable")]
    for folder in folders:
        folder.mkdir()
    drops = congest(folders[0], aqm)
    assert drops.dropped > 0
    assert drops.marked == 0
    marks = congest(folders[1], f"{aqm}:ecn")
    assert marks.marked > 0
    incapable = congest(folders[2], f"{aqm}:ecn", ecn=0)
    assert incapable == drops


def test_codel_keeps_the_sojourn_near_its_target(tmp_path: Path) -> None:
    """Without it the last packet waits 55 ms."""
    plain, codel = tmp_path / "plain", tmp_path / "codel"
    for folder, aqm in ((plain, "none"), (codel, "codel:1ms:10ms")):
        folder.mkdir()
        congest(folder, aqm)
    longest = [queues_of_port_1(folder)[0]["sojourn_max_ns"] for folder in (plain, codel)]
    assert longest[0] == 399 * 138_000
    assert isinstance(longest[1], int)
    assert longest[1] < 20_000_000


def test_a_sparse_flow_does_not_wait_for_a_heavy_one(tmp_path: Path) -> None:
    """With FQ-CoDel a flow that has no queue waits for the frame on the line only."""
    heavy = ip_frames(0, 0, 400, 400_000)
    # It begins later: at the same time both flows would be new.
    sparse = ip_frames(0, 0, 15, 10_100_000, source_port=9)[1:]
    arrivals = sorted(heavy + sparse, key=lambda timed: timed.at_ns)
    waits = {}
    for aqm in ("codel", "fq_codel"):
        folder = tmp_path / aqm
        folder.mkdir()
        what = VirtualRun(
            ports=[Port(1, f"rate=8mbit,queues=1,fifo=16MB,aqm={aqm}"), Port(2)],
            arrivals={2: arrivals},
            program=str(PLAIN),
        )
        left_at = [timed.at_ns for timed in run(what, folder)[1] if timed.frame[34:36] == b"\0\x09"]
        assert len(left_at) == len(sparse)
        pairs = zip(left_at, sparse, strict=True)
        waits[aqm] = max(at_ns - timed.at_ns for at_ns, timed in pairs)
    assert waits["fq_codel"] <= 538_000
    assert waits["codel"] > 20 * waits["fq_codel"]


def test_a_flood_leaves_room_for_a_sparse_flow(tmp_path: Path) -> None:
    """At the depth of the queue, FQ-CoDel drops from the longest flow: RFC 8290, section 5.2.3."""
    heavy = ip_frames(0, 0, 4_000, 20_000)
    sparse = ip_frames(0, 0, 20, 4_000_000, source_port=9)[1:]
    arrivals = sorted(heavy + sparse, key=lambda timed: timed.at_ns)
    what = VirtualRun(
        ports=[Port(1, "rate=8mbit,queues=1,fifo=16KB,aqm=fq_codel"), Port(2)],
        arrivals={2: arrivals},
        program=str(PLAIN),
    )
    sent = [timed.frame[34:36] for timed in run(what, tmp_path)[1]]
    assert sent.count(b"\0\x09") == len(sparse)
    [queue] = queues_of_port_1(tmp_path)
    assert queue["drops"] == {"aqm": len(arrivals) - len(sent)}


def test_wred_drops_red_packets_first(tmp_path: Path) -> None:
    """AF11, AF12 and AF13 are green, yellow and red."""
    profiles = "wred:20KB:60KB:0.1/10KB:40KB:0.1/5KB:20KB:0.1"
    dropped = []
    for dscp in (10, 12, 14):
        folder = tmp_path / str(dscp)
        folder.mkdir()
        dropped.append(congest(folder, profiles, dscp).dropped)
    assert dropped[0] < dropped[1] < dropped[2]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (",queues=65", "'65' is not 1 to 64 queues"),
        (",queues=2,scheduler=wfq:1:0", "queue 1: weight 0 is not between 1 and 65536"),
        (",queues=2,scheduler=drr:1", "1 weights for 2 queues"),
        (",queues=2,q2.rate=1mbit", "q2: the port has queues 0 to 1"),
        (",queues=2,q1.rate=200gbit", "q1: rate 200gbit is above the port's line rate"),
        (",queues=2,queues=3", "queues is given twice"),
        (",queues=2,q01.rate=1mbit", "'q01': write q1"),
        (",queues=2,q1.packets=4294967297", "depth of 4294967297 packets is above 4294967296"),
        (",scheduler=strict", "scheduler: needs queues=N"),
        (",queues=2,aqm=cake", "'cake' is not codel"),
        (",queues=2,q1.aqm=red:9KB:3KB:1", "q1.aqm: .*MIN of 9216 bytes is not below MAX of 3072"),
        (",queues=2,aqm=codel:2ms:1ms", "target 2000000 ns is above the interval of 1000000"),
    ],
)
def test_settings_that_do_not_add_up(tmp_path: Path, settings: str, error: str) -> None:
    with pytest.raises(ProcessError, match=error):
        run_queues(tmp_path, settings, frames([0]))

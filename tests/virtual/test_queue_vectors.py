"""The vectors of egress queues through the whole switch: packet in to packet out.

Parser, P4 program, traffic manager and capture files take part, and the settings are those of the
option `-i`. Packets must leave in the order of the vector and at its nanosecond, with its marks,
and egress must see its queue depths. Drops are compared packet by packet, and by cause.

`queue_vectors.p4` sends each packet by a port, and holds it or chooses its queue, as the packet
itself says. A case with settings that `-i` lacks gets those of `-i` in their place, and its packets
leave as the model then says. The traffic manager's own test has the committed file.
"""

from __future__ import annotations

import functools
import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aqm_model import FqCodelConfig, RedConfig
from ip_frames import ipv4_header, ipv6_header
from make_queue_vectors import (
    AQMS,
    KINDS,
    QueueCase,
    queue_cases,
    queue_vector_text,
    random_case,
    random_switch_case,
    switch_vector_text,
)
from pacing_switch import TimedFrame
from queueing_model import AqmConfig, QueueConfig
from virtual_switch import REPOSITORY, Port, VirtualRun, run, statistics

PROGRAM = str(REPOSITORY / "tests/virtual/programs/compiled/pacing_switch/queue_vectors")

IN = 9

SEEN = struct.Struct(">III")
"""Egress writes the packets in the queue when the packet came and when it had left; the port."""

WANTED = struct.Struct(">IBBQQI")
"""The packet's number and queue, and its class, departure, cost and allowance."""
WANTED_AT = 34
NOT_HELD = 255

ASSURED = (10, 12, 14)
"""The DSCP of each colour: AF11, AF12, AF13."""

FLOWS = 1_024
FRAME_BYTES = 1_518
FQ_LIMIT_PACKETS = 10_240
RED_WEIGHT_SHIFT = 9
RED_RATE_BPS = 1_000_000_000
"""By which RED counts idle time on a port without a line rate."""

RANDOM_PACKETS = 300
RANDOM_SEEDS = range(100, 105)


def _red_frame_ns(line_rate_bps: int | None) -> int:
    """The unit of RED's idle time: a frame's time, at the line's rate."""
    return FRAME_BYTES * 8 * 1_000_000_000 // (line_rate_bps or RED_RATE_BPS)


def _with_words(case: QueueCase) -> QueueCase:
    """The case with settings that `-i` can give in place of those that it cannot."""

    def aqm(of: AqmConfig | None) -> AqmConfig | None:
        match of:
            case FqCodelConfig():
                codel = replace(of.codel, ecn=True)
                return FqCodelConfig(codel, FLOWS, FRAME_BYTES, FQ_LIMIT_PACKETS)
            case RedConfig():
                frame_ns = _red_frame_ns(case.line_rate_bps)
                return replace(of, weight_shift=RED_WEIGHT_SHIFT, packet_ns=frame_ns)
        return of

    def queue(of: QueueConfig) -> QueueConfig:
        return replace(of, rate_pps=None, aqm=aqm(of.aqm))

    return replace(case, queues=[queue(one) for one in case.queues])


def _vector(case: QueueCase) -> dict[str, Any]:
    """The case's file, with settings that `-i` can give."""
    vector: dict[str, Any] = json.loads(queue_vector_text(_with_words(case)))
    return vector


def _with_buffers() -> list[dict[str, Any]]:
    """Ports that share the buffer of the switch, in random cases."""
    cases = (random_switch_case(f"shared-{seed}", seed, RANDOM_PACKETS) for seed in RANDOM_SEEDS)
    with_words = (replace(case, ports=[_with_words(port) for port in case.ports]) for case in cases)
    return [json.loads(switch_vector_text(case)) for case in with_words]


CASES = list(queue_cases())
VECTORS = [_vector(case) for case in CASES]
"""The committed cases. `tests/model/test_queueing_model.py` compares them with the files."""

WITH_OTHER_SETTINGS = {
    "fqcodel-37": "FQ-CoDel with 4 flows, a quantum of 300 bytes and a limit of 20 packets",
    "fqcodel-689": "FQ-CoDel with a quantum of 1,514 bytes",
    "mixed-1": "RED with an average of another weight, by frames of another time",
    "paced-16": "FQ-CoDel with a quantum of 1,514 bytes and a limit of 20 packets",
    "paced-19": "a rate in packets",
    "paced-50": "a rate in packets",
    "red-37": "RED with an average of another weight, by frames of another time",
}
"""The cases that are not replayed as they are committed: the settings that `-i` lacks."""


def _rates(of: dict[str, Any]) -> dict[str, str]:
    """The rates of a queue or of a node, as settings."""
    words = {}
    if of["rate_bps"] is not None:
        words = {"rate": f"{of['rate_bps']}bit", "burst": str(of["burst_bytes"])}
    if of["min_rate_bps"] is not None:
        words["min"] = f"{of['min_rate_bps']}bit"
    return words


def _node(of: dict[str, Any]) -> str:
    """A node of a tree. The children of `strict` have no weights."""
    children = []
    for weight, below in of["children"]:
        leaf = below if below == "paced" else f"q{below}"
        child = _node(below) if isinstance(below, dict) else leaf
        children.append(child if of["discipline"] == "strict" else f"{child}:{weight}")
    words = [f"{of['discipline']}{{{'+'.join(children)}}}"]
    return ":".join(words + [f"{name}={value}" for name, value in _rates(of).items()])


def _scheduler(vector: dict[str, Any]) -> str:
    if vector["scheduler"] == "tree":
        return _node(vector["tree"])
    return ":".join([vector["scheduler"], *map(str, vector["weights"])])


def _aqm(aqm: dict[str, dict[str, Any]]) -> str:
    [(name, of)] = aqm.items()
    if name == "fqcodel":
        return f"fq_codel:{of['codel']['target_ns']}ns:{of['codel']['interval_ns']}ns"
    if name == "red":
        profiles = "/".join(f"{least}:{most}:{ppm / 1e6}" for least, most, ppm in of["profiles"])
        return ":".join([f"wred:{profiles}", *(["ecn"] if of["ecn"] else [])])
    times = [f"{of[key]}ns" for key in ("target_ns", "interval_ns") if key in of]
    return ":".join([name, *times, *(["ecn"] if of.get("ecn") else [])])


def _queue(queue: dict[str, Any]) -> dict[str, str]:
    """The settings of a queue."""
    words = {"fifo": str(queue["depth_bytes"])} | _rates(queue)
    if queue["depth_packets"] is not None:
        words["packets"] = str(queue["depth_packets"])
    if queue["buffer_share_ppm"] is not None:
        words["share"] = str(queue["buffer_share_ppm"] / 1_000_000)
    if queue["aqm"] is not None:
        words["aqm"] = _aqm(queue["aqm"])
    return words


def _settings(vector: dict[str, Any]) -> str:
    """The port, as the option `-i` has it."""
    words = {
        "counts": vector["counts"],
        "queues": str(len(vector["queues"])),
        "scheduler": _scheduler(vector),
    }
    if vector["line_rate_bps"]:
        words["rate"] = f"{vector['line_rate_bps']}bit"
    if vector["buffer_bytes"] is not None:
        words["buffer"] = str(vector["buffer_bytes"])
    if vector.get("switch_buffer"):
        words["buffer"] = "switch"
    for number, queue in enumerate(vector["queues"]):
        words |= {f"q{number}.{name}": value for name, value in _queue(queue).items()}
    return ",".join(f"{name}={value}" for name, value in words.items())


@functools.cache
def _sources() -> dict[int, int]:
    """An IPv4 source for each flow of FQ-CoDel, by FNV-1a of addresses and protocol."""
    found: dict[int, int] = {}
    source = 0x0A00_0000
    while len(found) < FLOWS:
        source += 1
        header = ipv4_header(source=source)
        hashed = 0xCBF2_9CE4_8422_2325
        for byte in header[12:20] + header[9:10]:
            hashed = (hashed ^ byte) * 0x100_0000_01B3 % (1 << 64)
        found.setdefault((hashed ^ hashed >> 32) % FLOWS, source)
    return found


def _frames(vector: dict[str, Any], port: int) -> list[bytes]:
    """The vector's packets, for this port. Every other one is IPv6, if no queue reads flows."""
    held = {number: tuple(hold) for number, *hold in vector.get("holds", ())}
    reads_flows = any("fqcodel" in (queue["aqm"] or {}) for queue in vector["queues"])
    frames = []
    for number, (_, queue, length_bytes, ecn, colour, flow) in enumerate(vector["packets"]):
        tos = ASSURED[colour] << 2 | ecn
        if reads_flows:
            ip = b"\x08\x00" + ipv4_header(tos, source=_sources()[flow % FLOWS])
        elif number % 2:
            ip = b"\x86\xdd" + ipv6_header(tos)
        else:
            ip = b"\x08\x00" + ipv4_header(tos)
        frame = bytearray(SEEN.pack(0, 0, port)) + ip
        frame += bytes(length_bytes - len(frame))
        hold = held.get(number, (NOT_HELD, 0, 0, 0))
        WANTED.pack_into(frame, WANTED_AT, number, queue, *hold)
        frames.append(bytes(frame))
    return frames


def _replay(vectors: Sequence[dict[str, Any]], folder: Path, options: Sequence[str] = ()) -> None:
    """Sends the packets of a vector for each port through the switch, and compares what leaves."""
    arrivals = [
        TimedFrame(packet[0], frame)
        for port, vector in enumerate(vectors, start=1)
        for packet, frame in zip(vector["packets"], _frames(vector, port), strict=True)
    ]
    ports = [Port(port, _settings(vector)) for port, vector in enumerate(vectors, start=1)]
    what = VirtualRun(
        ports=[*ports, Port(IN)],
        # At the same instant, packets for the first port come first.
        arrivals={IN: sorted(arrivals, key=lambda timed: timed.at_ns)},
        program=PROGRAM,
        options=options,
    )
    sent = run(what, folder)
    found = statistics(folder)["ports"]
    assert isinstance(found, list)
    for port, vector in enumerate(vectors, start=1):
        _compare(vector, port, sent[port])
        drops = Counter(cause for _, cause in vector["drops"])
        assert found[port - 1]["drops"] == drops, vector["name"]


def _compare(vector: dict[str, Any], port: int, sent: Sequence[TimedFrame]) -> None:
    packets = vector["packets"]
    left = []
    for timed in sent:
        number, *_ = WANTED.unpack_from(timed.frame, WANTED_AT)
        left.append([number, timed.at_ns, *SEEN.unpack_from(timed.frame)[:2]])
    assert left == [start[:4] for start in vector["starts"]], vector["name"]

    marked = {number for number, *_, mark in vector["starts"] if mark}
    with_marks = [
        [*of[:3], 3 if number in marked else of[3], *of[4:]] for number, of in enumerate(packets)
    ]
    expected = _frames({**vector, "packets": with_marks}, port)
    for timed, (number, *_) in zip(sent, left, strict=True):
        assert timed.frame[SEEN.size :] == expected[number][SEEN.size :], (vector["name"], number)

    dropped = {number for number, _ in vector["drops"]}
    assert dropped == set(range(len(packets))) - {number for number, *_ in left}


def test_vectors_have_each_scheduler_held_packets_and_marks() -> None:
    schedulers = {vector["scheduler"] for vector in VECTORS}
    assert schedulers == {"strict", "drr", "wfq", "tree"}
    assert sum("holds" in vector for vector in VECTORS) >= 2
    marked = [any(start[4] for start in vector["starts"]) for vector in VECTORS]
    assert marked.count(True) >= 2


def test_all_other_vectors_are_replayed_as_committed() -> None:
    changed = {case.name for case in CASES if _with_words(case) != case}
    assert changed == set(WITH_OTHER_SETTINGS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector_through_the_switch(vector: dict[str, Any], tmp_path: Path) -> None:
    _replay([vector], tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_random_vectors_through_the_switch(kind: str, tmp_path: Path) -> None:
    cases = (random_case(f"{kind}-{seed}", kind, seed, RANDOM_PACKETS) for seed in RANDOM_SEEDS)
    vectors = [_vector(case) for case in cases]
    if kind in AQMS:
        assert any(mark for vector in vectors for *_, mark in vector["starts"])
    for vector in vectors:
        _replay([vector], tmp_path)


def test_ports_that_share_the_buffer_of_the_switch(tmp_path: Path) -> None:
    vectors = _with_buffers()
    causes = {cause for of in vectors for port in of["ports"] for _, cause in port["drops"]}
    assert "switch-buffer" in causes
    for of in vectors:
        _replay(of["ports"], tmp_path, ["--switch-buffer", str(of["switch_buffer_bytes"])])

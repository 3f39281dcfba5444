"""The vectors of egress queues through the whole switch: packet in to packet out.

Parser, P4 program, traffic manager and capture files take part, and the settings are those of the
option `-i`. Packets must leave in the order of the vector and at its nanosecond, with its marks,
and egress must see its queue depths. Drops are compared packet by packet, and by cause.

Two programs write what egress sees into the first bytes of a packet. `priorities` chooses the
queue, but overwrites an IP header with its ECN field; `queue_depth` leaves that, but chooses no
queue. Vectors that need both, held packets, or settings that `-i` lacks are for the traffic
manager's own test.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from make_queue_vectors import QUEUES_DIR, queue_vector_text, random_case
from pacer_entries import ip_frame
from pacing_switch import TimedFrame
from virtual_switch import REPOSITORY, Port, VirtualRun, run, statistics


@dataclass(frozen=True)
class Program:
    """A compiled program."""

    name: str
    writes: struct.Struct
    """The packets in the queue when the packet came and when it had left, among other bytes."""

    @property
    def path(self) -> str:
        """The file, without its ending."""
        return str(REPOSITORY / "tests" / "conformance" / "compiled" / self.name)


PRIORITIES = Program("priorities", struct.Struct(">xII8x"))
QUEUE_DEPTH = Program("queue_depth", struct.Struct(">II"))
QUEUES_MAX = 8
"""As many priorities are there."""

OUT, IN = 1, 2
NUMBER_AT = 56
NUMBER = struct.Struct(">I")

SCHEDULERS = ("strict", "drr", "wfq", "tree")
AQMS = ("codel", "pie", "dualpi2")
RANDOM_CASES, RANDOM_PACKETS = 5, 300
RANDOM_SEEDS = range(100, 200)


def _program(vector: dict[str, Any]) -> Program | None:
    """The program that can give the packets what the vector says of them."""
    has_words = all(
        queue["rate_pps"] is None and (queue["aqm"] is None or set(queue["aqm"]) <= set(AQMS))
        for queue in vector["queues"]
    )
    if "holds" in vector or not has_words:
        return None
    used = {queue for _, queue, *_ in vector["packets"]}
    if all(ecn == 0 for _, _, _, ecn, *_ in vector["packets"]):
        return PRIORITIES if max(used) < QUEUES_MAX else None
    return QUEUE_DEPTH if used == {0} else None


def _committed() -> list[dict[str, Any]]:
    vectors = (json.loads(path.read_text()) for path in sorted(QUEUES_DIR.glob("*.json")))
    return [vector for vector in vectors if _program(vector)]


VECTORS = _committed()


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
        child = _node(below) if isinstance(below, dict) else f"q{below}"
        children.append(child if of["discipline"] == "strict" else f"{child}:{weight}")
    words = [f"{of['discipline']}{{{'+'.join(children)}}}"]
    return ":".join(words + [f"{name}={value}" for name, value in _rates(of).items()])


def _scheduler(vector: dict[str, Any]) -> str:
    if vector["scheduler"] == "tree":
        return _node(vector["tree"])
    return ":".join([vector["scheduler"], *map(str, vector["weights"])])


def _aqm(aqm: dict[str, dict[str, Any]]) -> str:
    [(name, of)] = aqm.items()
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
    for number, queue in enumerate(vector["queues"]):
        words |= {f"q{number}.{name}": value for name, value in _queue(queue).items()}
    return ",".join(f"{name}={value}" for name, value in words.items())


def _frame(number: int, queue: int, length_bytes: int, ecn: int) -> bytes:
    """An IP packet with its queue in the first byte, and its number behind the headers."""
    frame = bytearray(ip_frame(number, 0, length_bytes, ecn))
    frame[0] = queue
    NUMBER.pack_into(frame, NUMBER_AT, number)
    return bytes(frame)


def _replay(vector: dict[str, Any], folder: Path) -> None:
    """Sends the packets of a vector through the switch, and compares what comes out."""
    packets = [packet[:4] for packet in vector["packets"]]
    program = _program(vector)
    assert program is not None
    arrivals = [
        TimedFrame(at_ns, _frame(number, *rest)) for number, (at_ns, *rest) in enumerate(packets)
    ]
    what = VirtualRun(
        ports=[Port(OUT, _settings(vector)), Port(IN)],
        arrivals={IN: arrivals},
        program=program.path,
    )
    sent = run(what, folder)[OUT]
    left = []
    for timed in sent:
        [number] = NUMBER.unpack_from(timed.frame, NUMBER_AT)
        left.append([number, timed.at_ns, *program.writes.unpack_from(timed.frame)])
    assert left == [start[:4] for start in vector["starts"]], vector["name"]

    behind = program.writes.size
    for timed, (number, _, _, _, marked) in zip(sent, vector["starts"], strict=True):
        came = arrivals[number].frame
        if marked:
            _, queue, length_bytes, _ = packets[number]
            came = _frame(number, queue, length_bytes, 3)
        assert timed.frame[behind:] == came[behind:], (vector["name"], number)

    dropped = {number for number, _ in vector["drops"]}
    assert dropped == set(range(len(packets))) - {number for number, *_ in left}
    ports = statistics(folder)["ports"]
    assert isinstance(ports, list)
    assert ports[0]["drops"] == Counter(cause for _, cause in vector["drops"])


def test_each_scheduler_has_vectors() -> None:
    assert {vector["scheduler"] for vector in VECTORS} == set(SCHEDULERS)


def test_marks_are_in_vectors() -> None:
    marked = [any(start[4] for start in vector["starts"]) for vector in VECTORS]
    assert marked.count(True) >= 2


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector_through_the_switch(vector: dict[str, Any], tmp_path: Path) -> None:
    _replay(vector, tmp_path)


@pytest.mark.parametrize("kind", SCHEDULERS + AQMS)
def test_random_vectors_through_the_switch(kind: str, tmp_path: Path) -> None:
    cases = (random_case(f"{kind}-{seed}", kind, seed, RANDOM_PACKETS) for seed in RANDOM_SEEDS)
    vectors = (json.loads(queue_vector_text(case)) for case in cases)
    fitting = list(islice(filter(_program, vectors), RANDOM_CASES))
    assert len(fitting) == RANDOM_CASES
    for vector in fitting:
        _replay(vector, tmp_path)

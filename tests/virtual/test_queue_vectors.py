"""The vectors of egress queues through the whole switch: packet in to packet out.

Parser, P4 program, traffic manager and capture files take part, and the settings are those of the
option `-i`. Packets must leave in the order of the vector and at its nanosecond, and egress must
see its queue depths. Drops are compared packet by packet, and by cause.

The program `priorities` holds no packets, and overwrites the bytes where an IP header would have
its ECN field. So vectors that need either are for the traffic manager's own test.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from make_queue_vectors import QUEUES_DIR, queue_vector_text, random_case
from pacing_switch import TimedFrame
from virtual_switch import REPOSITORY, Port, VirtualRun, run, statistics

PROGRAM = REPOSITORY / "tests" / "conformance" / "compiled" / "priorities"
PRIORITIES = 8
"""Of `standard_metadata.priority`, which has 3 bits."""

OUT, IN = 1, 2
NUMBER_AT = 56
NUMBER = struct.Struct(">I")
SEEN_IN_EGRESS = struct.Struct(">BII")
"""The priority, and the packets in the queue when the packet came and when it had left."""

SCHEDULERS = ("strict", "drr", "wfq", "tree")
RANDOM_CASES, RANDOM_PACKETS = 10, 300
RANDOM_SEEDS = range(100, 200)


def _fits(vector: dict[str, Any]) -> bool:
    """Whether the program can give the packets what the vector says of them."""
    queues, packets = vector["queues"], vector["packets"]
    has_words = all(
        queue["rate_pps"] is None and (queue["aqm"] is None or "codel" in queue["aqm"])
        for queue in queues
    )
    plain = all(queue < PRIORITIES and ecn == 0 for _, queue, _, ecn, *_ in packets)
    return has_words and plain and "holds" not in vector


def _committed() -> list[dict[str, Any]]:
    vectors = (json.loads(path.read_text()) for path in sorted(QUEUES_DIR.glob("*.json")))
    return [vector for vector in vectors if _fits(vector)]


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


def _queue(queue: dict[str, Any]) -> dict[str, str]:
    """The settings of a queue."""
    words = {"fifo": str(queue["depth_bytes"])} | _rates(queue)
    if queue["depth_packets"] is not None:
        words["packets"] = str(queue["depth_packets"])
    if queue["buffer_share_ppm"] is not None:
        words["share"] = str(queue["buffer_share_ppm"] / 1_000_000)
    if queue["aqm"] is not None:
        codel = queue["aqm"]["codel"]
        words["aqm"] = f"codel:{codel['target_ns']}ns:{codel['interval_ns']}ns"
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


def _frame(number: int, queue: int, length_bytes: int) -> bytes:
    """A frame of `priorities`, with its number behind what the program writes."""
    head = bytes([queue]).ljust(NUMBER_AT, b"\0") + NUMBER.pack(number)
    return head.ljust(length_bytes, b"\0")


def _replay(vector: dict[str, Any], folder: Path) -> None:
    """Sends the packets of a vector through the switch, and compares what comes out."""
    packets = vector["packets"]
    arrivals = [
        TimedFrame(at_ns, _frame(number, queue, length_bytes))
        for number, (at_ns, queue, length_bytes, *_) in enumerate(packets)
    ]
    what = VirtualRun(
        ports=[Port(OUT, _settings(vector)), Port(IN)],
        arrivals={IN: arrivals},
        program=str(PROGRAM),
    )
    left = []
    for timed in run(what, folder)[OUT]:
        [number] = NUMBER.unpack_from(timed.frame, NUMBER_AT)
        queue, enq_qdepth, deq_qdepth = SEEN_IN_EGRESS.unpack_from(timed.frame)
        assert [queue, len(timed.frame)] == packets[number][1:3]
        left.append([number, timed.at_ns, enq_qdepth, deq_qdepth, False])
    assert left == vector["starts"], vector["name"]

    dropped = {number for number, _ in vector["drops"]}
    assert dropped == set(range(len(packets))) - {number for number, *_ in left}
    ports = statistics(folder)["ports"]
    assert isinstance(ports, list)
    assert ports[0]["drops"] == Counter(cause for _, cause in vector["drops"])


def test_each_scheduler_has_vectors() -> None:
    assert {vector["scheduler"] for vector in VECTORS} == set(SCHEDULERS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector_through_the_switch(vector: dict[str, Any], tmp_path: Path) -> None:
    _replay(vector, tmp_path)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_random_vectors_through_the_switch(scheduler: str, tmp_path: Path) -> None:
    cases = (
        random_case(f"{scheduler}-{seed}", scheduler, seed, RANDOM_PACKETS) for seed in RANDOM_SEEDS
    )
    vectors = (json.loads(queue_vector_text(case)) for case in cases)
    fitting = list(islice(filter(_fits, vectors), RANDOM_CASES))
    assert len(fitting) == RANDOM_CASES
    for vector in fitting:
        _replay(vector, tmp_path)

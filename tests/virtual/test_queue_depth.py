"""`enq_qdepth` and `deq_qdepth` of standard_metadata, on a port where packets wait."""

from __future__ import annotations

import struct
from pathlib import Path

from pacing_switch import TimedFrame
from virtual_switch import REPOSITORY, Port, VirtualRun, run

PROGRAM = REPOSITORY / "tests" / "conformance" / "compiled" / "queue_depth"


def test_a_program_sees_how_many_packets_wait(tmp_path: Path) -> None:
    """Five frames at once; each takes 84 us of the line, preamble and gap included."""
    arrivals = [TimedFrame(1_000 * (1 + k), bytes(59) + bytes([k])) for k in range(5)]
    sent = run(
        VirtualRun(
            ports=[Port(1, "rate=8mbit"), Port(2)],
            arrivals={2: arrivals},
            program=str(PROGRAM),
        ),
        tmp_path,
    )
    depths = [struct.unpack_from(">II", timed.frame) for timed in sent[1]]
    assert depths == [(0, 0), (0, 3), (1, 2), (2, 1), (3, 0)]

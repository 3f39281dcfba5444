"""l4s.p4: packets of the sender's side leave with ECT(1) in place of ECT(0)."""

from __future__ import annotations

from pathlib import Path

import pytest
from ip_frames import CE, ECT_0, ECT_1, NOT_ECT, frame, tcp, udp
from pacing_switch import TimedFrame
from virtual_switch import Port, VirtualRun, run

SENDER, NETWORK = 1, 2
DSCP = 10
EACH_ECN = (NOT_ECT, ECT_1, ECT_0, CE)


def frames_with(codepoints: tuple[int, ...]) -> list[bytes]:
    """Frames of TCP and UDP, numbered, with these values of the ECN field."""
    return [
        frame(udp() if number == 1 else tcp(), number, DSCP, ecn)
        for number, ecn in enumerate(codepoints)
    ]


@pytest.mark.parametrize(
    ("port", "left"),
    [(SENDER, (NOT_ECT, ECT_1, ECT_1, CE)), (NETWORK, EACH_ECN)],
    ids=["from the sender", "to the sender"],
)
def test_only_ect_0_of_the_sender_changes(port: int, left: tuple[int, ...], tmp_path: Path) -> None:
    """The header's checksum stays correct."""
    arrivals = enumerate(frames_with(EACH_ECN), start=1_000)
    what = VirtualRun(
        ports=[Port(SENDER), Port(NETWORK)],
        arrivals={port: [TimedFrame(at_ns, one) for at_ns, one in arrivals]},
        program="l4s",
    )
    sent = run(what, tmp_path)[NETWORK if port == SENDER else SENDER]
    assert [timed.frame for timed in sent] == frames_with(left)

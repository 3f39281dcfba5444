"""Mode clustered: Clustered Packet Spacing, with its timer of a millisecond and its clusters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from flow_model import FlowClass, Segment
from flow_runs import V4, departures, left_by_port, steady
from pacing_switch import TimedFrame
from tcp_traffic import frame_of

MS = 1_000_000
PAYLOAD_BYTES = 1_448


def clusters(
    rtt_ns: int, window: int, folder: Path, release_below_ns: int = 1, round_trips: int = 2
) -> list[int]:
    """The departures of the last round trip: the program's times, which are the model's.

    At a threshold of a nanosecond no flow is released.
    """
    config = FlowClass(release_below_ns=release_below_ns, pspd=True)
    traffic = steady([PAYLOAD_BYTES] * window, rtt_ns, round_trips=round_trips)
    left, expected = departures(config, traffic, folder)
    assert sorted(left) == sorted(expected)
    sent = [segment for port, segment in traffic if port == 1][-window:]
    at_ns = {frame: when_ns for when_ns, frame in left}
    return [at_ns[frame_of(segment, 1)] for segment in sent]


@pytest.mark.parametrize(("window", "most"), [(200, 1), (400, 2), (3_000, 15)])
def test_a_round_trip_of_200_ms_has_200_clusters(window: int, most: int, tmp_path: Path) -> None:
    """The divided RTT is up to 0.024 % too short: once or so a packet is a cluster sooner."""
    left_ns = clusters(200 * MS, window, tmp_path)
    sizes = Counter(left_ns)
    assert all(at_ns % MS == 0 for at_ns in sizes)
    assert 199 <= len(sizes) <= 201
    assert max(sizes.values()) <= most + 1
    assert sorted(sizes.values())[len(sizes) // 2] == most


def test_a_cluster_has_80_packets_at_most(tmp_path: Path) -> None:
    """160 a millisecond would be window / RTT."""
    left_ns = clusters(5 * MS, 800, tmp_path)
    sizes = [size for _, size in sorted(Counter(left_ns).items())]
    # The round trip begins and ends within a cluster.
    assert set(sizes[1:-1]) == {80}
    assert max(sizes) == 80


def test_a_flow_that_is_dense_enough_is_left_alone(tmp_path: Path) -> None:
    """RTT / window in packets of 1460 bytes is a millisecond: 51 segments of 1448 in 50 ms.

    Packets that were held before the last round trip have left by then.
    """
    spaced = clusters(50 * MS, 50, tmp_path, release_below_ns=MS, round_trips=5)
    assert len(set(spaced)) == 50
    released = clusters(50 * MS, 51, tmp_path, release_below_ns=MS, round_trips=5)
    assert released[-1] - released[0] == 50


def test_a_flow_that_is_left_alone_has_no_clusters_on_a_busy_line(tmp_path: Path) -> None:
    """Its packets wait for those that are held, and for no further tick.

    A packet each 20 us on a line that takes one in 12 us. The flow is dense enough after 400 of
    them, which takes as long as about 94 ms of the pace.
    """
    client, server = V4
    rtt_ns, spacing_ns, count = 20 * MS, 20_000, 20_000
    to_client = [TimedFrame(1 + rtt_ns, frame_of(Segment(1, server, client, 0, 0, 1, "S"), 2))]
    to_server = [TimedFrame(1, frame_of(Segment(1, client, server, 0, 0, None, "S"), 1))]
    for n in range(count):
        at_ns = 2 * rtt_ns + n * spacing_ns
        data = Segment(at_ns, client, server, 1 + n * PAYLOAD_BYTES, PAYLOAD_BYTES, 1)
        to_server.append(TimedFrame(at_ns, frame_of(data, 1)))
        answer = Segment(at_ns, server, client, 1, 0, 1 + (n + 1) * PAYLOAD_BYTES)
        to_client.append(TimedFrame(at_ns + rtt_ns, frame_of(answer, 2)))
    left = left_by_port(
        FlowClass(release_below_ns=50_000, pspd=True),
        {1: to_server, 2: to_client},
        tmp_path,
        line=",rate=1gbit,counts=layer2",
    )
    assert sum(timed.at_ns % MS == 0 for timed in left) >= 40
    assert left[-1_000:] == to_server[-1_000:]

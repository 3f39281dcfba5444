"""The losses of a run's flows that count as one, and the flows that lose together."""

from pacer_mininet.experiments.metrics import METRICS
from pacer_mininet.experiments.samples import SAMPLE_NS, Samples
from pacer_mininet.experiments.scenario import UDP_FRAME_BYTES, UDP_PAYLOAD_BYTES, Flow, Scenario
from pacer_mininet.experiments.shaping import port_of
from pacer_mininet.tcp_state import TcpSample


def sample_of(number: int, resent: int) -> TcpSample:
    return TcpSample(1, 40_000, port_of(number), 100, 100, 10, resent, 5, 0, 0, 0, 0, 0)


def samples_of(*resent: list[int], rtt_ns: int = SAMPLE_NS) -> Samples:
    """Return samples of flows with the number of packets that they had resent at each sample."""
    found = Samples(Scenario(tuple(Flow() for _ in resent), rtt_ns=rtt_ns))
    for number, counts in enumerate(resent):
        found.sent[port_of(number), 40_000] = [
            (at * SAMPLE_NS, sample_of(number, count)) for at, count in enumerate(counts)
        ]
    return found


def test_what_is_resent_within_a_round_trip_is_one_loss() -> None:
    found = samples_of([0, 1, 2, 9, 9, 9, 10, 10], [0] * 8)
    assert found.losses(0) == [1, 6]
    assert found.losses(1) == []
    assert samples_of([0, 1, 2, 9, 9, 9, 10, 10], rtt_ns=3 * SAMPLE_NS).losses(0) == [1]


def test_flows_lose_together_within_a_round_trip() -> None:
    """Of four: two at once, a third a round trip later, the last one long after."""
    found = samples_of(
        [0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]
    ).losing_together()
    assert found == {"losses": 4, "most_percent": 75.0, "mean_percent": 62.5}


def test_without_a_loss_nobody_loses_together() -> None:
    found = samples_of([0, 0]).losing_together()
    assert found == {"losses": 0, "most_percent": None, "mean_percent": None}
    assert METRICS["together"].of({"losing_together": found}) is None


def test_what_others_leave_free() -> None:
    """One takes 80 Mbit/s from 8 s to 20 s of 30 s, another one from 20 s to the end."""
    bps = 80_000_000
    sent = bps * 12 // 8 * UDP_PAYLOAD_BYTES // UDP_FRAME_BYTES
    others = (
        Flow(udp_bps=bps, start_ms=8_000, payload_bytes=sent),
        Flow(udp_bps=bps, start_ms=20_000),
    )
    path = Scenario((Flow(), *others), seconds=30, rate_bps=200_000_000)
    assert abs(path.free_bps - (200_000_000 - bps * 22 // 30)) < 10

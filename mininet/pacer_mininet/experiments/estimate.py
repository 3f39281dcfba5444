"""Estimates how long runs take in the lab, from the costs of a run and of a packet.

The lab's clock advances only when every process is idle, so a run takes as long as the work on its
packets. The costs were measured on one processor of a cloud machine (docs/experiments.md). On
another machine the estimate is off by the same factor for all runs.
"""

import math
from collections.abc import Iterable

from pacer_mininet.experiments.network import has_one_connection
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.traffic import GOODPUT_SHARE_OF_LINE

SETUP_S = 5.2
"""Boot, network, controller, reading counters and windows."""

BINS_S = 0.03
"""Reading a second's bins of 500 us."""

HOST_S = 0.3
"""Each further host."""

PACKET_S = 33e-6
"""A data packet and its share of an acknowledgement, for each switch that it passes."""

HANDED_OVER_PACKET_S = 14e-6
"""The same where the kernel sends an edge's packets at their departure times."""

PAYLOAD_BYTES, FRAME_BYTES = GOODPUT_SHARE_OF_LINE
FRAME_BITS = FRAME_BYTES * 8
UNPACED_SHARE = 0.5
"""The share of a bottleneck that unpaced flows are assumed to fill on average."""

MATHIS = 1.22
"""Segments in flight times the root of the loss rate (Mathis et al., 1997)."""


def run_s(scenario: Scenario) -> float:
    """Return the real seconds that a run takes on one processor."""
    spaced = any(flow.shaper.kind != "none" for flow in scenario.flows)
    bps = scenario.rate_bps * (1.0 if spaced else UNPACED_SHARE)
    if scenario.flows[0].udp_bps:
        bps = sum(flow.udp_bps for flow in scenario.flows)
    elif scenario.loss_ppm:
        in_flight = MATHIS / math.sqrt(scenario.loss_ppm / 1e6)
        bps = min(bps, in_flight * FRAME_BITS / (scenario.rtt_ns / 1e9))
    growing_s = _slow_start_s(scenario)
    full_s = max(0.3, scenario.seconds - growing_s)
    packets = bps / FRAME_BITS * full_s
    if all(flow.payload_bytes for flow in scenario.flows):
        to_send_bytes = sum(flow.payload_bytes for flow in scenario.flows)
        packets = min(packets, to_send_bytes / PAYLOAD_BYTES)
    switches = 2 + (scenario.edges > 1) + scenario.far + (scenario.receivers > 1)
    hosts = scenario.senders + scenario.receivers
    reading_s = BINS_S * scenario.seconds if scenario.bins else 0.0
    packet_s = HANDED_OVER_PACKET_S if has_one_connection(scenario) else PACKET_S
    return SETUP_S + HOST_S * hosts + reading_s + packets * switches * packet_s


def realtime_s(scenario: Scenario) -> float:
    """Return how long a run takes on this machine's kernel: its seconds, setup and end."""
    return SETUP_S + scenario.seconds + 2 * scenario.rtt_ns / 1e9


def _slow_start_s(scenario: Scenario) -> float:
    """Return about how long slow start takes from ten segments to the path's window."""
    window = scenario.rate_bps * scenario.rtt_ns / 1e9 / FRAME_BITS / len(scenario.flows)
    return max(0.0, math.log2(max(1.0, window / 10)) * scenario.rtt_ns / 1e9)


def whole_s(runs: Iterable[float], processors: int) -> float:
    """Return how long all runs take side by side, the longest first."""
    busy = [0.0] * max(1, processors)
    for seconds in sorted(runs, reverse=True):
        first = busy.index(min(busy))
        busy[first] += seconds
    return max(busy)

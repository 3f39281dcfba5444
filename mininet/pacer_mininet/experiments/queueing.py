"""A bottleneck's queue under test: an egress port of pacing_switch, or a Linux router in its place.

Both have the same wires around them, on which the times that packets wait are measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mininet.net import Mininet

from pacer_mininet.counters import drops_by_cause, statistics_of
from pacer_mininet.experiments.network import NODE
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.experiments.shaping import NotOfferedError, port_of, set_queues
from pacer_mininet.linux_router import BEFORE, BEHIND, Counted, LinuxRouter, RouterError
from pacer_mininet.rest import RestClient
from pacer_mininet.tap import Seen, Tap
from pacer_mininet.traffic import (
    FCS_BYTES,
    MTU_FRAME_BYTES,
    NS_PER_S,
    bits_per_second,
    percentile,
)

_LIMITS = {"bfifo": "bytes", "codel": "packets", "fq_codel": "packets", "pie": "packets"}
"""What the kernel's disciplines count in `limit`."""


def discipline_of(scenario: Scenario) -> str:
    """Return the kernel's discipline with room for the scenario's FIFO."""
    assert scenario.queueing is not None
    words = scenario.queueing.discipline
    counts = _LIMITS.get(words.split()[0])
    if counts is None:
        return words
    frames = scenario.fifo_bytes // MTU_FRAME_BYTES
    # The kernel counts without FCS.
    room = frames if counts == "packets" else frames * (MTU_FRAME_BYTES - FCS_BYTES)
    return f"{words} limit {room}"


class QueueUnderTest:
    """The queue of one run, and the wires around it."""

    def __init__(self, scenario: Scenario, net: Mininet, rest: RestClient) -> None:
        assert scenario.queueing is not None
        self.scenario = scenario
        self._node = net.get(NODE)
        self._rest = rest
        self._senders = [net.get(f"a{n}") for n in range(1, scenario.senders + 1)]
        self._receiver = net.get("b1")
        self._taps: list[Tap] = []
        self._before = Counted(0, 0)

    def join(self) -> None:
        """Make hosts reach each other through a router."""
        if isinstance(self._node, LinuxRouter):
            self._node.join(self._senders, [self._receiver])

    def start(self) -> None:
        """Set the queue up, and measure from now on.

        Timers of a discipline begin with it, so it is set up at the same instant of each run.
        """
        assert self.scenario.queueing is not None
        if isinstance(self._node, LinuxRouter):
            try:
                self._node.limit(self.scenario.rate_bps, discipline_of(self.scenario))
            except RouterError as error:
                raise NotOfferedError(str(error)) from None
        elif self.scenario.queueing.egress_queues:
            set_queues(self._rest, NODE, BEHIND, self.scenario.queueing.egress_queues)
        self._before = self.counted()
        seconds = self.scenario.seconds + 2 + 2 * self.scenario.rtt_ns // NS_PER_S
        # The senders' line may be twice as fast as the bottleneck.
        packets = 2 * seconds * self.scenario.rate_bps // (8 * MTU_FRAME_BYTES)
        wires = (self._node.intfs[BEFORE], self._receiver.defaultIntf())
        self._taps = [Tap(interface, packets) for interface in wires]

    def counted(self) -> Counted:
        """Return what the queue has dropped and marked so far."""
        if isinstance(self._node, LinuxRouter):
            return self._node.counted()
        found = statistics_of(self._rest, NODE)
        queues = [one for port in found["ports"] for one in port["statistics"].get("queues", ())]
        marks = sum(one["marked_packets"] for one in queues)
        return Counted(sum(drops_by_cause(found).values()), marks)

    def drops(self) -> int:
        """Return the packets dropped since the start."""
        return (self.counted() - self._before).drops

    def read(self, start_ns: int) -> dict[str, Any]:
        """Return drops, marks and the times that packets waited.

        `start_ns` is the run's start on the monotonic clock. Statistics of the times are of the
        second half of the run's seconds.

        """
        total = self.counted() - self._before
        end_ns = start_ns + self.scenario.rtt_ns * 3 // 2 + self.scenario.seconds * NS_PER_S
        half_ns = end_ns - self.scenario.seconds * NS_PER_S // 2
        waits = [
            one
            for one in waited(*(tap.read() for tap in self._taps))
            if start_ns <= one.left_ns < end_ns
        ]
        self.close()
        late = [one for one in waits if one.left_ns >= half_ns]
        return {
            "drops": total.drops,
            "marks": total.marks,
            "ce_marks": sum(one.marked for one in waits),
            "packets": len(waits),
            "wait_max_us": max(one.wait_ns for one in waits) / 1e3 if waits else None,
            **_of_waits([one.wait_ns for one in late]),
            "flows": [
                self._of_flow(port_of(number), waits, half_ns)
                for number in range(len(self.scenario.flows))
            ],
        }

    def _of_flow(self, port: int, waits: list["Wait"], half_ns: int) -> dict[str, float | None]:
        """Return the longest time that a flow's packets waited, and figures of the second half."""
        here = [one for one in waits if one.port == port]
        late = [one for one in here if one.left_ns >= half_ns]
        frames_bytes = sum(one.frame_bytes for one in late)
        return {
            "rate_bps": bits_per_second(frames_bytes, self.scenario.seconds * NS_PER_S // 2),
            "wait_max_us": max(one.wait_ns for one in here) / 1e3 if here else None,
            **_of_waits([one.wait_ns for one in late]),
        }

    def close(self) -> None:
        """Stop measuring."""
        for tap in self._taps:
            tap.close()
        self._taps = []


@dataclass(frozen=True)
class Wait:
    """A packet that has left: when, how long after it came, and to which port it goes.

    `frame_bytes` is its length, layer 2 with FCS, and `marked` whether it got a CE mark on its way.
    """

    left_ns: int
    wait_ns: int
    port: int
    frame_bytes: int = 0
    marked: bool = False


def waited(came: Iterable[Seen], left: Iterable[Seen]) -> list[Wait]:
    """Return the packets that came and left, in the order in which they left."""
    arrivals = {one.identity: one for one in came}
    found = ((one, arrivals[one.identity]) for one in left if one.identity in arrivals)
    return [
        Wait(
            left_ns=after.at_ns,
            wait_ns=after.at_ns - before.at_ns,
            port=after.port,
            frame_bytes=after.frame_bytes,
            marked=after.is_ce and not before.is_ce,
        )
        for after, before in found
    ]


def _of_waits(waits_ns: list[int]) -> dict[str, float | None]:
    """Return statistics of times, in us; None without any."""
    if not waits_ns:
        return {"wait_median_us": None, "wait_p99_us": None}
    return {
        "wait_median_us": percentile(waits_ns, 50) / 1e3,
        "wait_p99_us": percentile(waits_ns, 99) / 1e3,
    }

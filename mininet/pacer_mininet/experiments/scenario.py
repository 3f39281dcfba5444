"""Describes one run: the path, the flows across it, and how each flow's packets are spaced.

It is plain data, to and from JSON. Equal scenarios give equal results. Rates count layer-2 bytes
with FCS, sizes are in bytes, and times in ns unless a name has another unit.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pacer_mininet import congestion
from pacer_mininet.settings import GAPS, SOCKET_BUFFER_BYTES
from pacer_mininet.units import MIN_RATE_BPS

MAX_FLOWS = 128
MAX_SECONDS = 600
MAX_HOSTS = 200

CLASS_KINDS = ("class", "ovs-class", "bmv2-class")
"""Classes at the edge: of pacing_switch, of the patched Open vSwitch, and of stock BMv2."""

OVS_KINDS = ("ovs-class", "ovs-meter")
"""Kinds with Open vSwitch at the edge. Its meter drops packets above the rate."""

KINDS = ("none", "tbf", "fq", "class", *OVS_KINDS, "bmv2-class")
"""The kinds of shapers: none, TBF or fq in the sender's kernel, or the edge switch."""

FOLLOWING_MODES = ("pspd", "dynamic", "slow-start", "clustered")
"""Modes of a class in which the switch estimates each flow's round-trip time and window."""

QUEUE_PLACES = ("switch", "kernel")
"""Places of a queue under test: an egress port of pacing_switch, or a Linux router."""

UDP_PAYLOAD_BYTES = 1470
UDP_FRAME_BYTES = 14 + 20 + 8 + UDP_PAYLOAD_BYTES + 4
"""Ethernet, IPv4, UDP headers and FCS around a datagram's payload."""

LAB_SEED = 1
"""The seed that the lab starts with. Each run changes it to its own."""

RATE_BPS = 500_000_000
"""The papers' bottleneck."""


def buffer_for(rtt_ns: int, rate_bps: int = RATE_BPS) -> int:
    """Return the size of socket buffers that a path of this RTT and rate needs, in bytes.

    The talk's size, or the path's BDP where that is larger.
    """
    return max(SOCKET_BUFFER_BYTES, rate_bps * rtt_ns // 8 // 1_000_000_000)


@dataclass(frozen=True)
class Shaper:
    """The shaper of a flow, which spaces its packets.

    Attributes:
        name: its name in tables and titles.
        kind: one of KINDS.
        settings: for a class, its resource at the controller. Without `rate` it gets the
            shaper's rate; with the rate None it gets none.
        share: its rate as a fraction of the bottleneck's: (1, 2) is half.
        together: for a class, whether all flows with this shaper behind the same edge are in one
            class; otherwise each flow has a class of its own.
        follows_queue: for a class, whether its rate follows the queue at the bottleneck, from a
            tenth of the bottleneck's rate to all of it.

    """

    name: str
    kind: str = "none"
    settings: tuple[tuple[str, Any], ...] = ()
    share: tuple[int, int] = (1, 1)
    together: bool = False
    follows_queue: bool = False

    def rate_bps(self, bottleneck_bps: int) -> int:
        """Return its rate in bit/s."""
        return bottleneck_bps * self.share[0] // self.share[1]

    def at(self, numerator: int, denominator: int) -> "Shaper":
        """Return the same shaper at a fraction of the bottleneck's rate."""
        return dataclasses.replace(self, share=(numerator, denominator))

    def class_body(self, bottleneck_bps: int) -> dict[str, Any]:
        """Return the class's resource for the controller."""
        body = {"rate": self.rate_bps(bottleneck_bps), **dict(self.settings)}
        return {name: value for name, value in body.items() if value is not None}

    @property
    def follows(self) -> bool:
        """Whether the switch estimates each flow's round-trip time and bytes in flight."""
        return dict(self.settings).get("mode") in FOLLOWING_MODES

    @property
    def remembers_flows(self) -> bool:
        """Whether the switch keeps state of single flows, which outlives them."""
        settings = dict(self.settings)
        return self.follows or settings.get("mode") == "shared" or "window_margin_bytes" in settings


UNPACED = Shaper("unpaced")
TBF = Shaper("TBF", "tbf")
FQ = Shaper("fq", "fq")
PACED = Shaper("paced", "class", (("mode", "static"),))
ONE_CLASS = Shaper("one class at the edge", "class", (("mode", "static"),), together=True)
"""All senders in one class at the bottleneck's rate: the edge knows of them all."""

PSPD = Shaper("PSPD", "class", (("mode", "pspd"), ("rate", None)))
"""The talk's dynamic pacing: window / RTT, where a window counts as at least ten segments until the
flow retransmits."""

DYNAMIC = Shaper("dynamic", "class", (("mode", "dynamic"), ("rate", None)))
"""The same with headroom (doubled in slow start), an unspaced first flight, a window of at least
ten segments at all times, and the path's rate as a limit."""

OVS_METERED = Shaper("Open vSwitch's meter", "ovs-meter")
OVS_PACED = Shaper("paced by Open vSwitch", "ovs-class", (("limit_bytes", 32 << 20),))
"""Its limit is larger than the largest window, as is that of pacing_switch's FIFO."""
BMV2_PACED = Shaper("paced by BMv2", "bmv2-class", (("mode", "static"),))


@dataclass(frozen=True)
class Flow:
    """One sender's traffic to one receiver.

    Attributes:
        shaper: the shaper of its packets.
        sender: number of the sending host, from 1.
        receiver: number of the receiving host, from 1.
        congestion_control: TCP's congestion control.
        streams: the number of parallel connections.
        start_ms: its start, in ms after the run's start.
        udp_bps: UDP at this rate (layer 2 with FCS) instead of TCP; 0: TCP.
        burst_frames: the number of UDP datagrams that are sent at once; 0: one by one.
        payload_bytes: the bytes that it sends in all; 0: as many as it can until the run ends.
        tos: for UDP, the IPv4 header's DSCP and ECN: 1 is ECT(1).

    Raises ValueError for a tos of TCP.

    """

    shaper: Shaper = UNPACED
    sender: int = 1
    receiver: int = 1
    congestion_control: str = "bic"
    streams: int = 1
    start_ms: int = 0
    udp_bps: int = 0
    burst_frames: int = 0
    payload_bytes: int = 0
    tos: int = 0

    def __post_init__(self) -> None:
        if self.tos and not self.udp_bps:
            raise ValueError("TCP sets its ECN field itself: only UDP has a tos")


@dataclass(frozen=True)
class Queueing:
    """The bottleneck's queueing, where that is under test: in a node of its own.

    Attributes:
        at: one of QUEUE_PLACES.
        egress_queues: for a switch, those of its port at the controller, such as `queues` and
            `aqm`; empty: the port has its FIFO.
        discipline: for a kernel, the queueing discipline below HTB, such as `codel ecn`.
        program: for a switch, the P4 program, which passes packets from either wire to the other.

    """

    at: str
    egress_queues: tuple[tuple[str, Any], ...] = ()
    discipline: str = ""
    program: str = "gtrcnet"


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        flows: the traffic.
        seconds: the time for which it is measured.
        rate_bps: the bottleneck's rate.
        rtt_ns: the round-trip time of the empty path.
        fifo_bytes: the bottleneck's drop-tail queue.
        edge_rate_bps: line of each edge switch towards the bottleneck; counts whole frames.
        socket_buffer_bytes: largest TCP window of the hosts.
        vb_rate_bps: rate of the virtual bottleneck that measures; 0: the bottleneck's.
        extra_rtt_ns: added to the RTT of each sender, in order; empty: nothing.
        edges: number of edge switches; senders take turns between them.
        loss_ppm: packets per million that each sender's wire loses, at random.
        far: whether traffic behind the bottleneck is measured, too.
        bins: whether bandwidth is measured in 500 us. Reading the bins takes longer than the run.
        ecn: whether hosts use ECN.
        gaps: the gap mode of the edges' lines, one of settings.GAPS.
        first_ssthresh_packets: window at which a connection's first slow start ends at the
            latest; 0: no such limit, today's default.
        queueing: the queueing of a bottleneck in a node of its own; None: the measuring switch has
            the bottleneck's FIFO.
        edge_queues: the egress queues of each edge's port towards the bottleneck, as at the
            controller (`queues`, `scheduler`); empty: the port has its FIFO.
        rate_steps: changes of the bottleneck's rate towards the receivers: the time in ms since the
            run's start, and the rate from then on.
        l4s_senders: numbers of senders whose packets get ECT(1) in place of ECT(0), by l4s.p4 on
            their wires.
        seed: the seed of all random numbers; it also shifts the start of each flow by a few us.

    Raises ValueError for a value out of range.

    """

    flows: tuple[Flow, ...]
    seconds: int = 20
    rate_bps: int = RATE_BPS
    rtt_ns: int = 200_000_000
    fifo_bytes: int = 64 * 1024
    edge_rate_bps: int = 1_000_000_000
    socket_buffer_bytes: int = SOCKET_BUFFER_BYTES
    vb_rate_bps: int = 0
    extra_rtt_ns: tuple[int, ...] = field(default=())
    edges: int = 1
    loss_ppm: int = 0
    far: bool = False
    bins: bool = False
    ecn: bool = False
    gaps: str = "accounted"
    first_ssthresh_packets: int = 0
    queueing: Queueing | None = None
    edge_queues: tuple[tuple[str, Any], ...] = ()
    rate_steps: tuple[tuple[int, int], ...] = ()
    l4s_senders: tuple[int, ...] = ()
    seed: int = LAB_SEED

    def __post_init__(self) -> None:
        if not 1 <= len(self.flows) <= MAX_FLOWS:
            raise ValueError(f"{len(self.flows)} flows: 1 to {MAX_FLOWS}")
        if not 1 <= self.seconds <= MAX_SECONDS:
            raise ValueError(f"{self.seconds} s: 1 to {MAX_SECONDS}")
        if not self.rate_bps >= MIN_RATE_BPS:
            raise ValueError(f"rate {self.rate_bps} is below {MIN_RATE_BPS} bit/s")
        if self.gaps not in GAPS:
            raise ValueError(f"gaps {self.gaps!r} is not one of {', '.join(GAPS)}")
        if self.queueing is not None and self.queueing.at not in QUEUE_PLACES:
            raise ValueError(f"queue at {self.queueing.at!r}: not {' or '.join(QUEUE_PLACES)}")
        if self.queueing is not None and (self.far or self.receivers > 1):
            raise ValueError("a queue under test has one receiver right behind it")
        if not set(self.l4s_senders) <= {flow.sender for flow in self.flows}:
            raise ValueError(f"L4S senders {self.l4s_senders}: senders of flows")
        self._check_steps()
        self._check_edges()
        for flow in self.flows:
            if not (1 <= flow.sender <= MAX_HOSTS and 1 <= flow.receiver <= MAX_HOSTS):
                raise ValueError(f"host {flow.sender} or {flow.receiver}: 1 to {MAX_HOSTS}")
            if congestion.NAME.fullmatch(flow.congestion_control) is None:
                raise ValueError(
                    f"{flow.congestion_control!r} is not the name of a congestion control"
                )
            if flow.shaper.kind not in KINDS:
                raise ValueError(f"shaper {flow.shaper.kind!r} is not one of {', '.join(KINDS)}")

    def _check_steps(self) -> None:
        times_ms = [0, *(at_ms for at_ms, _ in self.rate_steps), self.seconds * 1000]
        if times_ms != sorted(set(times_ms)):
            raise ValueError(f"rate steps {self.rate_steps}: in order, within {self.seconds} s")
        if any(rate_bps < MIN_RATE_BPS for _, rate_bps in self.rate_steps):
            raise ValueError(f"rate steps {self.rate_steps}: from {MIN_RATE_BPS} bit/s on")
        if self.rate_steps and (self.queueing is not None or self.far or self.vb_rate_bps):
            raise ValueError("where rates step, wan has the bottleneck and alone measures it")

    def _check_edges(self) -> None:
        if not 1 <= self.edges <= 2:
            raise ValueError(f"{self.edges} edge switches: 1 or 2")
        if self.has_bmv2_edge and (self.edges > 1 or self.has_ovs_edge or any(self.extra_rtt_ns)):
            raise ValueError("BMv2 at the edge: one edge switch of this kind, without extra_rtt_ns")
        if self.edge_queues and (self.has_bmv2_edge or self.has_ovs_edge):
            raise ValueError("egress queues at the edge: those of pacing_switch")

    @property
    def senders(self) -> int:
        """Number of sending hosts."""
        return max(flow.sender for flow in self.flows)

    @property
    def receivers(self) -> int:
        """Number of receiving hosts."""
        return max(flow.receiver for flow in self.flows)

    @property
    def has_ovs_edge(self) -> bool:
        """Whether Open vSwitch is at the edge."""
        return any(flow.shaper.kind in OVS_KINDS for flow in self.flows)

    @property
    def has_bmv2_edge(self) -> bool:
        """Whether stock BMv2 is at the edge; its port to the bottleneck has no line rate."""
        return any(flow.shaper.kind == "bmv2-class" for flow in self.flows)

    @property
    def free_bps(self) -> int:
        """Mean rate that its UDP flows leave of the bottleneck's, over the whole run."""
        steps = [(0, self.rate_bps), *self.rate_steps, (self.seconds * 1000, 0)]
        line = sum(bps * (end - at) for (at, bps), (end, _) in itertools.pairwise(steps))
        taken = 0
        for flow in self.flows:
            if flow.udp_bps:
                whole = flow.udp_bps * (self.seconds * 1000 - flow.start_ms) // 1000
                sent = flow.payload_bytes * 8 * UDP_FRAME_BYTES // UDP_PAYLOAD_BYTES
                taken += min(whole, sent) if flow.payload_bytes else whole
        return line // (self.seconds * 1000) - taken // self.seconds

    @property
    def falls_ms(self) -> list[int]:
        """Times at which the bottleneck's rate falls, in ms since the run's start."""
        rates = itertools.pairwise([self.rate_bps, *(bps for _, bps in self.rate_steps)])
        falls = (bps < before for before, bps in rates)
        return [at_ms for (at_ms, _), fell in zip(self.rate_steps, falls, strict=True) if fell]

    @property
    def measuring_rate_bps(self) -> int:
        """Rate of the virtual bottleneck."""
        return self.vb_rate_bps or self.rate_bps

    def to_json(self) -> str:
        """Return the scenario as one line of JSON, the same for equal ones."""
        given = dataclasses.asdict(self)
        # Results of other runs keep their keys.
        if self.queueing is None:
            del given["queueing"]
        for name in ("edge_queues", "rate_steps", "l4s_senders"):
            if not given[name]:
                del given[name]
        for flow in given["flows"]:
            if not flow["tos"]:
                del flow["tos"]
        return json.dumps(given, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Scenario:
    """Return the scenario in a text of `to_json`; ValueError for any other text."""
    try:
        given = json.loads(text)
        flows = tuple(_flow(flow) for flow in given.pop("flows"))
        extra = tuple(given.pop("extra_rtt_ns"))
        queueing = _queueing(given.pop("queueing", None))
        at_edge = _settings(given.pop("edge_queues", ()))
        steps = tuple((at_ms, bps) for at_ms, bps in given.pop("rate_steps", ()))
        l4s = tuple(given.pop("l4s_senders", ()))
        return Scenario(
            flows=flows,
            extra_rtt_ns=extra,
            queueing=queueing,
            edge_queues=at_edge,
            rate_steps=steps,
            l4s_senders=l4s,
            **given,
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a scenario: {error}") from None


def _settings(given: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    """Return settings that JSON has as lists."""
    return tuple((name, value) for name, value in given)


def _queueing(given: Mapping[str, Any] | None) -> Queueing | None:
    if given is None:
        return None
    return Queueing(**{**given, "egress_queues": _settings(given["egress_queues"])})


def _flow(given: Mapping[str, Any]) -> Flow:
    values = dict(given)
    shaper = dict(values.pop("shaper"))
    shaper["settings"] = _settings(shaper["settings"])
    shaper["share"] = tuple(shaper["share"])
    return Flow(shaper=Shaper(**shaper), **values)

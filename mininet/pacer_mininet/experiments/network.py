"""Builds the network of a scenario: senders, one or two edges, the measuring bottleneck, receivers.

a1..an (--- l4s1..n) --- edge1 (--- join) --- wan (--- far) (--- out) --- b1..bm

l4s    l4s.p4, on the wires of the senders that the scenario names: gives their packets ECT(1).
edge   pacer.p4: paces the scenario's classes; the FIFO of its line holds any window. Stock BMv2 has
       neither lines nor FIFOs.
join   pacer.p4 without classes, if there are two edges.
wan    gtrcnet.p4: rate, FIFO and half the RTT each way.
far    gtrcnet.p4 without rate: measures traffic behind the bottleneck, if the scenario says so.
out    pacer.p4 without classes, if there is more than one receiver.
queue  behind wan, which then has no rate: the bottleneck's queue, if that is under test.
       gtrcnet.p4 or qos.p4, or a Linux router.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from mininet.net import Mininet
from mininet.topo import Topo

from pacer_mininet import paths
from pacer_mininet.bmv2_switch import BMv2PacerSwitch
from pacer_mininet.experiments.scenario import LAB_SEED, UNPACED, Scenario
from pacer_mininet.hosts import LfnHost
from pacer_mininet.lab import departures_here
from pacer_mininet.linux_router import BEFORE, LinuxRouter
from pacer_mininet.net import started
from pacer_mininet.ovs_switch import PacingOVSSwitch
from pacer_mininet.pacing_switch import PacingSwitch
from pacer_mininet.switches import NetworkSwitch
from pacer_mininet.topology import EDGE_FIFO
from pacer_mininet.units import format_rate

PAYLOAD_BYTES = 1448
"""Payload of a full TCP segment: MTU 1500, timestamps."""

RING_FRAMES = 4096
"""Default size of a receive ring."""

RINGS_FRAMES_MAX = 131_072
"""Largest size of all senders' rings together: a frame takes 2 KB of the lab's memory."""

WIRE_IN, WIRE_OUT = 1, 2
"""Ports of a measuring switch: towards senders, towards receivers."""

NODE = "queue"
"""Name of the node of a queue under test."""


def network_key(scenario: Scenario) -> Scenario:
    """Return the part of a scenario that decides its network: equal for scenarios that share one.

    A run must not depend on those before it. Random numbers start again with each run's own seed.
    A scenario whose edge remembers single flows shares its network with no other one, nor does one
    with another edge than pacing_switch, with a queue under test, which may draw random numbers, or
    with a bottleneck that ends at another rate.
    """
    other_edge = scenario.has_ovs_edge or scenario.has_bmv2_edge
    remembers = any(flow.shaper.remembers_flows for flow in scenario.flows)
    if other_edge or remembers or scenario.queueing or scenario.rate_steps:
        return scenario
    flows = tuple(dataclasses.replace(flow, shaper=UNPACED) for flow in scenario.flows)
    return dataclasses.replace(scenario, flows=flows, seed=LAB_SEED, bins=False)


def edge_of(scenario: Scenario, sender: int) -> int:
    """Return the number of a sender's edge switch."""
    return (sender - 1) % scenario.edges + 1


def port_to_bottleneck(scenario: Scenario, edge: int) -> int:
    """Return an edge's port towards the bottleneck: the first free one after its senders'."""
    return sum(edge_of(scenario, n) == edge for n in range(1, scenario.senders + 1)) + 1


def ring_frames(scenario: Scenario, sender: int) -> int:
    """Return the number of frames that an edge's receive ring must hold for a sender.

    The sender's link has no rate, so the windows of all its connections can arrive at the same
    time.
    """
    streams = sum(flow.streams for flow in scenario.flows if flow.sender == sender)
    windows = -(-streams * scenario.socket_buffer_bytes // PAYLOAD_BYTES)
    return max(RING_FRAMES, min(windows, RINGS_FRAMES_MAX // scenario.senders))


def has_one_connection(scenario: Scenario) -> bool:
    """Return whether the edge's port sends packets of one connection only, and no gap frames."""
    one = len(scenario.flows) == 1 and scenario.flows[0].streams == 1 and scenario.edges == 1
    return one and scenario.gaps == "accounted"


def edge_class(scenario: Scenario) -> type[NetworkSwitch]:
    """Return the class of a scenario's edge switches."""
    if scenario.has_bmv2_edge:
        return BMv2PacerSwitch
    return PacingOVSSwitch if scenario.has_ovs_edge else PacingSwitch


def departures_at_edge(scenario: Scenario) -> str:
    """Return which side sends an edge's frames at their departure times: `switch` or `kernel`.

    The kernel gets frames up to 400 us early. With a single connection no packet waits for another
    class's, so the departures are the same, and the edge needs half of the system calls.
    """
    return departures_here() if has_one_connection(scenario) else "switch"


def _compiled(program: str) -> str:
    """Return the path of a compiled program for pacing_switch."""
    return str(paths.COMPILED / "pacing_switch" / f"{program}.json")


class ScenarioTopo(Topo):  # type: ignore[misc] # mininet has no types
    """The network of one scenario."""

    def build(self, scenario: Scenario) -> None:
        """Build it."""
        departures = departures_at_edge(scenario)
        line = {"rate": format_rate(scenario.edge_rate_bps), "counts": "wire", "fifo": EDGE_FIFO}
        line |= {"gaps": scenario.gaps, "departures": departures}
        bottleneck = {
            "rate": format_rate(scenario.rate_bps),
            "counts": "layer2",
            "fifo": str(scenario.fifo_bytes),
            "delay": f"{scenario.rtt_ns // 2}ns",
            "departures": departures_here(),
        }
        measuring = {"program": "gtrcnet", "bottleneck": format_rate(scenario.measuring_rate_bps)}
        by_request = bool(scenario.rate_steps)
        wan = self.addSwitch("wan", spin="0ns", by_request=by_request, **measuring)
        edge_cls = edge_class(scenario)
        # BMv2's ports have no settings.
        plain = edge_cls is BMv2PacerSwitch
        edges = [self.addSwitch(f"edge{n}", cls=edge_cls) for n in range(1, scenario.edges + 1)]
        for number in range(1, scenario.senders + 1):
            extra_ns = scenario.extra_rtt_ns[number - 1] if scenario.extra_rtt_ns else 0
            host = self.addHost(f"a{number}", cls=LfnHost)
            # All of the extra delay is on the way back.
            back = {"departures": departures, "ring": ring_frames(scenario, number)}
            if extra_ns:
                back["delay"] = f"{extra_ns}ns"
            edge = edges[edge_of(scenario, number) - 1]
            if number in scenario.l4s_senders:
                host = self._with_ect_1(host, number, back["ring"])
            self.addLink(host, edge, params2={} if plain else back)
        before = edges[0]
        if len(edges) > 1:
            before = self.addSwitch("join", program="pacer", spin="0ns")
            for edge in edges:
                self.addLink(edge, before, params1=dict(line))
        to_wan = dict(line) if len(edges) == 1 else {"fifo": EDGE_FIFO}
        to_wan = {} if plain else to_wan
        if scenario.queueing is not None:
            bottleneck = {name: bottleneck[name] for name in ("delay", "departures")}
        self.addLink(before, wan, port2=WIRE_IN, params1=to_wan, params2=dict(bottleneck))
        last, port, settings = wan, WIRE_OUT, dict(bottleneck)
        if scenario.queueing is not None:
            last, settings = self._queue_under_test(wan, scenario, bottleneck)
        if scenario.far:
            far = self.addSwitch("far", spin="0ns", **measuring)
            self.addLink(wan, far, port1=WIRE_OUT, port2=WIRE_IN, params1=settings)
            last, settings = far, {}
        if scenario.receivers > 1:
            out = self.addSwitch("out", program="pacer", spin="0ns")
            self.addLink(last, out, port1=port, params1=settings)
            for number in range(1, scenario.receivers + 1):
                self.addLink(out, self.addHost(f"b{number}", cls=LfnHost))
        else:
            host = self.addHost("b1", cls=LfnHost)
            self.addLink(last, host, port1=port, params1=settings)

    def _with_ect_1(self, host: str, number: int, ring: object) -> str:
        """Add the switch on a sender's wire that gives its packets ECT(1); return it."""
        switch: str = self.addSwitch(f"l4s{number}", spin="0ns", program=_compiled("l4s"))
        self.addLink(host, switch, port2=WIRE_IN, params2={"ring": ring})
        return switch

    def _queue_under_test(
        self, wan: str, scenario: Scenario, wire: dict[str, str]
    ) -> tuple[str, dict[str, str]]:
        """Add the node of a queue under test; return it, and its settings towards the receiver."""
        assert scenario.queueing is not None
        if scenario.queueing.at == "kernel":
            router: str = self.addHost(NODE, cls=LinuxRouter)
            self.addLink(wan, router, port1=WIRE_OUT, port2=BEFORE, params1=dict(wire))
            return router, {}
        rate = format_rate(scenario.rate_bps)
        program = scenario.queueing.program
        if program not in PacingSwitch.programs:
            program = _compiled(program)
        switch: str = self.addSwitch(NODE, spin="0ns", program=program, bottleneck=rate)
        self.addLink(wan, switch, port1=WIRE_OUT, port2=WIRE_IN, params1=dict(wire))
        line = {"rate": rate, "counts": "layer2", "fifo": str(scenario.fifo_bytes)}
        return switch, line


@contextmanager
def network_of(scenario: Scenario) -> Iterator[Mininet]:
    """Build and start the network; its processes end with the block."""
    topo = ScenarioTopo(scenario)
    for host in topo.hosts():
        buffers = {"socket_buffer_bytes": scenario.socket_buffer_bytes}
        topo.setNodeInfo(host, {**topo.nodeInfo(host), **buffers})
    with started(topo) as net:
        yield net

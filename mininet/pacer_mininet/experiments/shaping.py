"""Sets up and removes the shapers of a scenario's flows; says which shapers are not offered."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mininet.net import Mininet

from pacer_mininet.experiments.network import WIRE_IN, edge_of, port_to_bottleneck
from pacer_mininet.experiments.scenario import CLASS_KINDS, Flow, Scenario, Shaper
from pacer_mininet.lab import in_lab
from pacer_mininet.rest import RestClient
from pacer_mininet.traffic import FCS_BYTES, MTU_FRAME_BYTES, NS_PER_S, ideal_goodput_bps
from pacer_mininet.units import MIN_RATE_BPS

FIRST_PORT = 5001
TBF_BURST_BYTES = 15_000
TBF_LIMIT_BYTES = 1_000_000
FRAME_KBIT = 13
"""The largest frame, rounded up."""


class NotOfferedError(RuntimeError):
    """The controller or the kernel lacks something that a run needs; the text says what."""


def port_of(number: int) -> int:
    """Return the TCP or UDP port of flow `number` of a scenario, from 0."""
    return FIRST_PORT + number


def class_of(scenario: Scenario, number: int) -> str:
    """Return the name of the class that paces flow `number`, from 0, at its edge."""
    flow = scenario.flows[number]
    if flow.shaper.together:
        edge = edge_of(scenario, flow.sender)
        number = next(
            first
            for first, one in enumerate(scenario.flows)
            if one.shaper == flow.shaper and edge_of(scenario, one.sender) == edge
        )
    return f"class{number}"


def kernel_rate_bps(rate_bps: int) -> int:
    """Return a rate as the kernel's queueing disciplines count it: without FCS."""
    return rate_bps * (MTU_FRAME_BYTES - FCS_BYTES) // MTU_FRAME_BYTES


def pacing_rate_bps(flow: Flow, bottleneck_bps: int) -> int:
    """Return the `SO_MAX_PACING_RATE` that gives each connection of a flow its share of a rate.

    TCP sets its packets' departure times and counts only payload (`tcp_update_skb_after_send` of
    Linux). fq spaces UDP's packets and counts frames.
    """
    rate_bps = flow.shaper.rate_bps(bottleneck_bps)
    counted_bps = kernel_rate_bps(rate_bps) if flow.udp_bps else ideal_goodput_bps(rate_bps)
    return counted_bps // flow.streams


@functools.cache
def _class_schema() -> dict[str, Any]:
    """Return the schema of a class in the controller's REST interface."""
    # Experiments are started where the controller's package is installed. Runs only use REST.
    from pacer_controller.schemas import ClassSpec

    return dict(ClassSpec.model_json_schema())


def missing(shaper: Shaper, schema: dict[str, Any] | None = None) -> str | None:
    """Return why the controller's interface does not offer a shaper, or None if it does.

    Args:
        shaper: the shaper.
        schema: JSON schema of a class; None: that of the installed controller.

    """
    if shaper.kind not in CLASS_KINDS:
        return None
    properties = (_class_schema() if schema is None else schema)["properties"]
    for name, value in shaper.settings:
        if name not in properties:
            return f"the controller's classes have no {name!r} yet"
        known = properties[name].get("enum")
        if known is not None and value not in known:
            shown = ", ".join(map(repr, known))
            return f"the controller's classes have no {name} {value!r} yet; they have {shown}"
    return None


def missing_of(scenario: Scenario) -> str | None:
    """Return why a scenario cannot run with this controller, or None if it can."""
    reasons = (missing(flow.shaper) for flow in scenario.flows)
    return next((reason for reason in reasons if reason is not None), None)


def end_slow_start(control: str, packets: int) -> None:
    """Make a congestion control end each connection's first slow start at `packets` packets.

    Raises:
        NotOfferedError: it has no such setting, or this is not the lab.

    """
    if not in_lab():
        raise NotOfferedError("the end of slow start is a setting of the whole machine")
    setting = Path("/sys/module") / f"tcp_{control}" / "parameters" / "initial_ssthresh"
    try:
        setting.write_text(f"{packets}\n")
    except OSError as error:
        raise NotOfferedError(f"{control} has no initial_ssthresh: {error.strerror}") from None


def realtime_allowance_ns(rate_bps: int) -> int:
    """Return the burst allowance of a class of this rate in real time: half a frame's time.

    By the class's clock, a burst is then at most one and a half frames. The other half of two
    frames is left to the kernel's and the scheduler's delays between that clock and the wire.
    """
    return MTU_FRAME_BYTES * 8 * NS_PER_S // rate_bps // 2


def set_queues(rest: RestClient, switch: str, port: int, queues: Iterable[tuple[str, Any]]) -> None:
    """Give a port of a pacing_switch egress queues.

    Raises:
        NotOfferedError: the controller refuses them.

    """
    body = {"egress_queues": dict(queues)}
    refused = rest.refusal("PUT", "switches", switch, "ports", str(port), body=body)
    if refused is not None:
        raise NotOfferedError(f"the controller refuses {body}: {refused}")


def shape(scenario: Scenario, net: Mininet, rest: RestClient) -> list[str]:
    """Set up all shapers of a scenario, and the queues of its edges; return the hosts' commands.

    Raises:
        NotOfferedError: the controller refuses a class or the queues.

    """
    if scenario.edge_queues:
        for edge in range(1, scenario.edges + 1):
            port = port_to_bottleneck(scenario, edge)
            set_queues(rest, f"edge{edge}", port, scenario.edge_queues)
    for number, flow in enumerate(scenario.flows):
        if flow.shaper.kind in CLASS_KINDS:
            _make_class(scenario, number, flow, rest)
        elif flow.shaper.kind == "ovs-meter":
            _make_meter(scenario, number, flow, rest)
    given = []
    for sender in range(1, scenario.senders + 1):
        flows = [flow for flow in scenario.flows if flow.sender == sender]
        given += _set_queueing(scenario, net.get(f"a{sender}"), flows)
    return given


def unshape(scenario: Scenario, net: Mininet, rest: RestClient) -> None:
    """Remove all shapers of a scenario that has its network to itself."""
    for edge in range(1, scenario.edges + 1):
        # A state without classes and flows.
        rest.put("switches", f"edge{edge}", "state", body={})
    for sender in range(1, scenario.senders + 1):
        host = net.get(f"a{sender}")
        device = host.defaultIntf().name
        if queueing_commands(scenario, device, [f for f in scenario.flows if f.sender == sender]):
            host.pexec("tc", "qdisc", "del", "dev", device, "root")


def _make_class(scenario: Scenario, number: int, flow: Flow, rest: RestClient) -> None:
    edge = edge_of(scenario, flow.sender)
    body = flow.shaper.class_body(scenario.rate_bps)
    body["port"] = port_to_bottleneck(scenario, edge)
    if flow.shaper.follows_queue:
        body["follow"] = {
            "switch": "wan",
            "port": WIRE_IN,
            "fifo_bytes": scenario.fifo_bytes,
            "least_rate": scenario.rate_bps // 10,
            # Scaled down, the first flow's share may be more than all.
            "most_rate": max(scenario.rate_bps, body["rate"]),
        }
    if "rate" in body and flow.shaper.kind == "class" and not in_lab():
        body["allowance_ns"] = realtime_allowance_ns(body["rate"])
    name = class_of(scenario, number)
    # The first of several flows in one class makes it.
    if name == f"class{number}":
        refused = rest.refusal("PUT", "switches", f"edge{edge}", "classes", name, body=body)
        if refused is not None:
            raise NotOfferedError(f"the controller refuses {body}: {refused}")
    _make_flow(scenario, number, flow, rest, {"class": name})


def meter_body(rate_bps: int) -> dict[str, int]:
    """Return the meter of Open vSwitch that passes a rate and drops packets above it."""
    # Meters count frames without FCS, in kbit/s.
    metered_bps = max(kernel_rate_bps(rate_bps) // 1000 * 1000, MIN_RATE_BPS)
    # A meter counts time in ms. A bucket of less than a ms never refills, and one smaller than a
    # frame passes nothing.
    burst_bytes = max(metered_bps // 1_000_000 + 1, FRAME_KBIT) * 125
    return {"cir": metered_bps, "cburst": burst_bytes, "pburst": burst_bytes}


def _make_meter(scenario: Scenario, number: int, flow: Flow, rest: RestClient) -> None:
    body = meter_body(flow.shaper.rate_bps(scenario.rate_bps))
    edge = edge_of(scenario, flow.sender)
    rest.put("switches", f"edge{edge}", "meters", f"meter{number}", body=body)
    _make_flow(scenario, number, flow, rest, {"meter": f"meter{number}"})


def _make_flow(
    scenario: Scenario, number: int, flow: Flow, rest: RestClient, target: dict[str, str]
) -> None:
    match = {"protocol": "udp" if flow.udp_bps else "tcp", "dst_port": port_of(number)}
    edge = edge_of(scenario, flow.sender)
    rest.put("switches", f"edge{edge}", "flows", f"flow{number}", body={"match": match, **target})


def queueing_commands(scenario: Scenario, device: str, flows: Sequence[Flow]) -> list[list[str]]:
    """Return the commands that set up a sender's interface for its flows.

    They add a queueing discipline where the kernel spaces packets, and netem where the wire loses
    packets.
    """
    commands = []
    parent = ["root"]
    if scenario.loss_ppm:
        # netem drops whole chunks of TCP: the kernel segments them after netem, even where the
        # interface's segmentation offload is off.
        commands.append(["ip", "link", "set", "dev", device, "gso_max_segs", "1"])
        percent = f"{scenario.loss_ppm / 10_000:.6f}%"
        words = ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "netem"]
        commands.append([*words, "loss", percent, "limit", "100000"])
        parent = ["parent", "1:1"]
    for shaper in sorted({flow.shaper for flow in flows}, key=lambda shaper: shaper.name):
        words = ["tc", "qdisc", "add", "dev", device, *parent, shaper.kind]
        if shaper.kind == "fq":
            # Room for a whole window of each flow; fq would drop the rest.
            commands.append([*words, "limit", "100000", "flow_limit", "100000"])
        elif shaper.kind == "tbf":
            rate_bps = kernel_rate_bps(shaper.rate_bps(scenario.rate_bps))
            words += ["rate", f"{rate_bps}bit", "burst", str(TBF_BURST_BYTES)]
            commands.append([*words, "limit", str(TBF_LIMIT_BYTES)])
    return commands


def _set_queueing(scenario: Scenario, host: Any, flows: list[Flow]) -> list[str]:
    """Set up a sender's interface for its flows; return the commands, each after its name."""
    commands = queueing_commands(scenario, host.defaultIntf().name, flows)
    for words in commands:
        out, err, status = host.pexec(*words)
        if status != 0:
            said = (err or out).strip().splitlines()
            raise NotOfferedError(f"{host.name}: `{' '.join(words)}` failed: {' '.join(said[:1])}")
    return [f"{host.name}: {' '.join(words)}" for words in commands]

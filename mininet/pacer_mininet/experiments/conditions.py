"""The conditions of an experiment's runs, beside the published ones."""

from collections.abc import Callable

from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.scenario import Flow, Scenario
from pacer_mininet.units import format_duration, format_rate, format_size

NOT_SAID = "not said, or not legible"
SHOWN = 6
"""Of a condition with more values, only the first and the last are shown."""


def _each(flows: tuple[Flow, ...], of: Callable[[Flow], str]) -> str:
    return ", ".join(dict.fromkeys(map(of, flows)))


def _traffic(flow: Flow) -> str:
    if flow.udp_bps:
        return f"UDP, {format_rate(flow.udp_bps)}"
    return flow.congestion_control.upper()


def _rtts(scenario: Scenario) -> str:
    extra_ns = scenario.extra_rtt_ns or (0,)
    return ", ".join(
        dict.fromkeys(format_duration(scenario.rtt_ns + each_ns) for each_ns in extra_ns)
    )


def _streams(scenario: Scenario) -> str:
    return str(sum(flow.streams for flow in scenario.flows))


CONDITIONS: dict[str, Callable[[Scenario], str]] = {
    "bottleneck": lambda scenario: format_rate(scenario.rate_bps),
    "RTT": _rtts,
    "FIFO": lambda scenario: format_size(scenario.fifo_bytes),
    "duration": lambda scenario: f"{scenario.seconds} s",
    "traffic": lambda scenario: _each(scenario.flows, _traffic),
    "connections": _streams,
    "first slow start ends at": lambda scenario: (
        f"{scenario.first_ssthresh_packets} packets"
        if scenario.first_ssthresh_packets
        else "the first loss"
    ),
    "socket buffers": lambda scenario: format_size(scenario.socket_buffer_bytes),
    "loss on the wire": lambda scenario: (
        f"{scenario.loss_ppm / 1e6:g}" if scenario.loss_ppm else "none"
    ),
}
"""The compared conditions, and the functions that read them from a run."""


def beside_published(experiment: Experiment) -> list[dict[str, str]]:
    """Return each condition as published and as here; nothing without a published counterpart.

    Those of runs for orientation (`extra`) are left out, unless there are no others.
    """
    if not experiment.conditions or experiment.quick:
        return []
    cells = [cell for cell in experiment.cells if not cell.extra] or list(experiment.cells)
    found = []
    for name, of in CONDITIONS.items():
        values = list(dict.fromkeys(of(cell.scenario) for cell in cells))
        here = ", ".join(values) if len(values) <= SHOWN else f"{values[0]} to {values[-1]}"
        published = experiment.conditions.get(name, NOT_SAID)
        found.append({"condition": name, "published": published, "here": here})
    return found

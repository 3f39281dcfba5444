"""The conditions of an experiment's runs, beside the published ones."""

from collections.abc import Callable

from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.scenario import Flow, Scenario
from pacer_mininet.published import KIB

NOT_SAID = "not said, or not legible"
SHOWN = 6
"""Of a condition with more values, only the first and the last are shown."""


ABBREVIATED = ("bbr", "bic", "cubic")


def _each(flows: tuple[Flow, ...], of: Callable[[Flow], str]) -> str:
    return ", ".join(dict.fromkeys(map(of, flows)))


def _rate(rate_bps: int) -> str:
    return f"{rate_bps / 1e9:g} Gbit/s" if rate_bps >= 1e9 else f"{rate_bps / 1e6:g} Mbit/s"


def _size(size_bytes: int) -> str:
    """Return a size as in the papers: FIFOs in units of 1,024, buffers in MB of 10^6."""
    for factor, unit in ((KIB * KIB, "MB"), (KIB, "KB")):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes / 1e6:.4g} MB"


def _traffic(flow: Flow) -> str:
    if flow.udp_bps:
        return f"UDP, {_rate(flow.udp_bps)}"
    control = flow.congestion_control
    return control.upper() if control in ABBREVIATED else control.capitalize()


def _rtts(scenario: Scenario) -> str:
    extra_ns = scenario.extra_rtt_ns or (0,)
    return ", ".join(
        dict.fromkeys(f"{(scenario.rtt_ns + each_ns) / 1e6:g} ms" for each_ns in extra_ns)
    )


def _streams(scenario: Scenario) -> str:
    return str(sum(flow.streams for flow in scenario.flows))


CONDITIONS: dict[str, Callable[[Scenario], str]] = {
    "bottleneck": lambda scenario: _rate(scenario.rate_bps),
    "RTT": _rtts,
    "FIFO": lambda scenario: _size(scenario.fifo_bytes),
    "duration": lambda scenario: f"{scenario.seconds} s",
    "traffic": lambda scenario: _each(scenario.flows, _traffic),
    "connections": _streams,
    "first slow start ends at": lambda scenario: (
        f"{scenario.first_ssthresh_packets} packets"
        if scenario.first_ssthresh_packets
        else "the first loss"
    ),
    "socket buffers": lambda scenario: _size(scenario.socket_buffer_bytes),
    "loss on the wire": lambda scenario: (
        f"{scenario.loss_ppm / 1e6:g}" if scenario.loss_ppm else "none"
    ),
}
"""The compared conditions, and the functions that read them from a run."""

OF_TCP = ("first slow start ends at", "socket buffers")
"""Conditions that an experiment with UDP alone does not have."""


def beside_published(experiment: Experiment) -> list[dict[str, str]]:
    """Return each condition as published and as here; nothing without a published counterpart.

    Those of runs for orientation (`extra`) are left out, unless there are no others.
    """
    if not experiment.conditions or experiment.quick:
        return []
    cells = [cell for cell in experiment.cells if not cell.extra] or list(experiment.cells)
    found = []
    tcp = any(not flow.udp_bps for cell in cells for flow in cell.scenario.flows)
    for name, of in CONDITIONS.items():
        if name in OF_TCP and not tcp:
            continue
        values = list(dict.fromkeys(of(cell.scenario) for cell in cells))
        here = ", ".join(values) if len(values) <= SHOWN else f"{values[0]} to {values[-1]}"
        published = experiment.conditions.get(name, NOT_SAID)
        found.append({"condition": name, "published": published, "here": here})
    return found

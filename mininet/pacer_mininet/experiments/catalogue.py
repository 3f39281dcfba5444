"""Lists all experiments by name, and the published tables and figures that they cover.

docs/papers.md has a row for every published table and figure, and says which are repeated in part.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from pacer_mininet import congestion
from pacer_mininet.experiments import (
    aqm,
    beyond,
    burst_loss,
    following,
    l4s,
    schedulers,
    streams,
    takano,
    together,
    tokyo,
    tutorials,
)
from pacer_mininet.experiments.experiment import Experiment

PUBLISHED = (
    "IPSJ Table 2",
    "IPSJ Table 3",
    "IPSJ Table 4",
    "IPSJ Table 5",
    "IPSJ Fig. 1",
    "IPSJ Fig. 3",
    "IPSJ Fig. 8",
    "IPSJ Fig. 9",
    "talk target sweep",
    "talk noPSP/PSPD/PSPS",
    "talk ACK clocking, 3.125 MB",
    "home page Fig. 2.1/2.2",
    "home page Fig. 2.3",
    "PFLDnet 2005",
    "GtrcNET-1 burstiness",
    "Tokyo IPG tuning",
    "Tokyo IPG tuning at 596 Mbit/s",
    "Tokyo IPG sweep",
    "Tokyo Clustered Packet Spacing",
    "Tokyo parallel streams",
    "Tokyo 24 x 2 streams",
    "Tokyo Fast Ethernet against gigabit",
)
"""The published tables and figures that have an experiment."""

_MAKERS: tuple[Callable[[], Experiment], ...] = (
    takano.tables_2_to_4,
    takano.targets,
    takano.figure_1,
    takano.table_five,
    takano.slides,
    takano.ack_clocking,
    beyond.delays,
    takano.figure_2,
    takano.figure_3,
    takano.figure_8,
    takano.figure_9,
    takano.pfldnet,
    takano.burstiness,
    burst_loss.burst_loss,
    tokyo.ipg_rates,
    tokyo.ipg_tuning,
    tokyo.ipg_sweep,
    tokyo.clustered,
    tokyo.parallel,
    tokyo.bandwidth_challenge,
    tokyo.fast_ethernet,
    streams.cooperative,
    beyond.gap_frames,
    beyond.backlog,
    beyond.ten_gigabit,
    beyond.hundred_senders,
    beyond.mixed_rtts,
    beyond.one_percent,
    beyond.one_of_two_edges,
    together.synchronised,
    together.aggregation,
    following.following,
    aqm.aqm,
    l4s.l4s,
    l4s.l4s_shares,
    schedulers.schedulers,
    tutorials.qos,
    tutorials.ecn,
)


def all_experiments(*, quick: bool = False) -> dict[str, Experiment]:
    """Return all experiments by name; with `quick`, scaled down."""
    made = [make() for make in _MAKERS]
    return {one.name: one.scaled_down() if quick else one for one in made}


def with_control_for_bic(experiment: Experiment, control: str) -> Experiment:
    """Return an experiment whose BIC flows use another congestion control, with a note on it.

    For this machine's kernel if it lacks BIC. The lab's kernel has it.
    """
    cells = []
    for cell in experiment.cells:
        flows = tuple(
            dataclasses.replace(flow, congestion_control=control)
            if flow.congestion_control == congestion.PREFERRED
            else flow
            for flow in cell.scenario.flows
        )
        scenario = dataclasses.replace(cell.scenario, flows=flows)
        cells.append(dataclasses.replace(cell, scenario=scenario))
    if tuple(cells) == experiment.cells:
        return experiment
    said = f"This machine's kernel has no BIC; {control.upper()} replaces it."
    return dataclasses.replace(experiment, cells=tuple(cells), differs=(said, *experiment.differs))


def for_this_kernel(experiment: Experiment) -> Experiment:
    """Return an experiment with another congestion control if this machine's kernel lacks BIC."""
    if congestion.PREFERRED in congestion.of_this_kernel(congestion.PREFERRED):
        return experiment
    return with_control_for_bic(experiment, congestion.FALLBACK)


def of_kernel(*, quick: bool, realtime: bool) -> dict[str, Experiment]:
    """Return all experiments by name, for the lab's kernel or, with `realtime`, for this one."""
    known = all_experiments(quick=quick)
    return {name: for_this_kernel(one) for name, one in known.items()} if realtime else known


def chosen(names: Iterable[str], known: Mapping[str, Experiment]) -> list[Experiment]:
    """Return those of the known experiments with these names, or all, in the catalogue's order.

    Raises ValueError for an unknown name.
    """
    wanted = set(names) or set(known)
    for name in sorted(wanted - set(known)):
        raise ValueError(f"no experiment {name!r}; there are {', '.join(known)}")
    return [one for name, one in known.items() if name in wanted]

"""Reads the switches' counters: statistics, drops by cause, bandwidth, lateness, stalls.

The controller returns those of a pacing_switch. An Open vSwitch node returns its own in the same
form.
"""

from collections.abc import Mapping
from typing import Any

from pacer_mininet.rest import RestClient
from pacer_mininet.traffic import BIN_NS, WINDOW_NS, Bandwidth


class ExperimentError(RuntimeError):
    """A run failed, or its result cannot be trusted; the text says why."""


def statistics_of(rest: RestClient, switch: str) -> dict[str, Any]:
    """Return a pacing_switch's counters, from the controller; ExperimentError if it has none."""
    statistics = rest.get("switches", switch, "stats")
    if not isinstance(statistics, dict) or statistics.get("now_ns") is None:
        raise ExperimentError(f"switch {switch} returns no statistics")
    return statistics


def program_drops(rest: RestClient, switch: str) -> dict[str, int]:
    """Return the packets that a switch's P4 program has dropped and counted, by cause."""
    drops = rest.get("switches", switch, "stats")["drops"] or {}
    return {cause: int(count["packets"]) for cause, count in drops.items()}


def drops_by_cause(statistics: dict[str, Any]) -> dict[str, int]:
    """Return the lost packets in a switch's statistics, by cause, summed over all ports.

    The copy of a flooded packet that is not sent back to its sender is no loss. Neither is a PAUSE
    frame that has filled its gap.
    """
    found: dict[str, int] = {}
    parts = [(statistics.get("traffic_manager") or {}).get("drops", {})]
    parts += [(port.get("statistics") or {}).get("drops", {}) for port in statistics["ports"]]
    for part in parts:
        for cause, packets in part.items():
            if cause not in ("pruned", "pause-frame"):
                found[cause] = found.get(cause, 0) + packets
    return dict(sorted(found.items()))


def bandwidth_of(answer: dict[str, Any]) -> Bandwidth:
    """Return the contents of the controller's `bandwidth` resource, by bin and window number.

    The resource `burstiness` has no bins, but two more queues.
    """
    bins, windows = answer["bins"], answer["windows"]
    numbers = [start_ns // WINDOW_NS for start_ns in windows["start_ns"]]
    return Bandwidth(
        {
            start_ns // BIN_NS: count
            for start_ns, count in zip(bins["start_ns"], bins["bytes"], strict=True)
        },
        dict(zip(numbers, windows["bytes"], strict=True)),
        dict(zip(numbers, windows["vb_max_bytes"], strict=True)),
        dict(zip(numbers, windows.get("dynamic_vb_max_bytes", ()), strict=False)),
        dict(zip(numbers, windows.get("previous_window_vb_max_bytes", ()), strict=False)),
    )


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return the counts between two readings, without zeros."""
    counts = {key: value - before.get(key, 0) for key, value in after.items()}
    return {key: value for key, value in counts.items() if value}


def stalls_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int] | None:
    """Return how often and for how long, in ns, the machine stalled a switch.

    None for a switch that does not count stalls.
    """
    earlier, later = (reading["traffic_manager"].get("polling") for reading in (before, after))
    if earlier is None or later is None:
        return None
    return {
        "count": later["stalls"] - earlier["stalls"],
        "total_ns": later["stalled_ns"] - earlier["stalled_ns"],
    }


def lateness_between(before: dict[str, Any], after: dict[str, Any]) -> int | None:
    """Return the greatest lateness, in ns, of the starts of transmission between two readings.

    It is exact if it is the greatest since the switch started, else the upper end of its bucket
    (bucket 0 counts packets on time, bucket i > 0 those 2^(i-1) to 2^i - 1 ns late). None for a
    switch that measures none.
    """
    if not after["ports"]:
        return None
    greatest_ns = 0
    earlier = {port["port"]: port["statistics"] for port in before["ports"]}
    for port in after["ports"]:
        lateness = port["statistics"]["lateness"]
        counts = zip(
            lateness["buckets"], earlier[port["port"]]["lateness"]["buckets"], strict=False
        )
        grown = [number for number, (now, then) in enumerate(counts) if now > then]
        if grown and grown[-1] > 0:
            greatest_ns = max(greatest_ns, min(lateness["max_ns"], (1 << grown[-1]) - 1))
    return greatest_ns


def check_no_stalls(stalls: Mapping[str, dict[str, int] | None]) -> None:
    """Check that no switch has stalled in the lab, where work takes no time.

    Args:
        stalls: those of a run by switch, as `stalls_between` returns them.

    Raises:
        ExperimentError: a switch has stalled: the run made so many system calls at one instant that
            the lab took them for a loop (lab/README.md, "spin-guard"). Its figures are not exact.

    """
    stalled = {name: found["count"] for name, found in stalls.items() if found and found["count"]}
    if stalled:
        found = ", ".join(f"{name} {count:,} times" for name, count in stalled.items())
        raise ExperimentError(
            f"stalls in the lab, where work takes no time: {found}. The run makes more system "
            "calls at one instant than the lab allows (tt_spin_after), so its figures are not "
            "exact; read less often, or of fewer flows"
        )

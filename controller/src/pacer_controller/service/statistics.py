"""Counters of a switch, put together with what they belong to, and rates from their growth."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from pacer_controller import entries
from pacer_controller.problems import Problem
from pacer_controller.rows import Key
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.managed import ManagedSwitch, Samples
from pacer_controller.service.views import pace_view, port_view
from pacer_controller.southbound import Count, Reading, SwitchUnreadableError

FCS_BYTES = 4
MIN_INTERVAL_NS = 150_000_000
"""Shortest time over which an achieved rate is computed."""

_COUNTERS = ("accepted", "limit_dropped", "red_dropped", "ce_marked")

RateOf = Callable[[str, int], int | None]


def unreadable(name: str, error: SwitchUnreadableError) -> Problem:
    """Return the 502 for a switch that does not answer."""
    return Problem(
        HTTPStatus.BAD_GATEWAY,
        "switch-unreadable",
        "The switch did not answer",
        f"switch {name!r}: {error}",
    )


async def statistics(found: ManagedSwitch, samples: Samples) -> dict[str, Any]:
    """Return counters and rates; nulls where the switch cannot say.

    Args:
        found: the switch.
        samples: what the last call with the same samples counted; rates are over the time since.

    """
    driver = found.driver
    owners = _class_owners(found)
    await driver.refresh_ports()
    try:
        reading = await driver.read(list(owners))
    except SwitchUnreadableError as error:
        raise unreadable(found.name, error) from None
    now_ns = reading.now_ns if reading.now_ns is not None else time.monotonic_ns()
    rate_of, interval_s = _rates(samples, now_ns, _rated_counts(reading))
    line_bps = max((port.line_rate_bps or 0 for port in driver.ports), default=0)
    paces = driver.capabilities.paces
    described = driver.describe()
    return {
        "switch": found.name,
        "state": driver.state.value,
        "now_ns": reading.now_ns,
        "interval_s": interval_s,
        "classes": [
            _class_statistics(owner, index, reading, rate_of, line_bps)
            for index, owner in (owners.items() if paces else ())
        ],
        "flows": _flow_statistics(found, reading.flows),
        "drops": {cause: asdict(count) for cause, count in reading.drops.items()}
        if reading.drops
        else None,
        "ports": _port_statistics(found, reading, rate_of),
        "virtual_bottleneck": reading.bottlenecks,
        "traffic_manager": reading.totals,
        "learning": described.get("learning"),
    }


def _class_owners(found: ManagedSwitch) -> dict[int, dict[str, Any]]:
    """Return who each class index belongs to, and its target."""
    owners = {entries.UNCLASSIFIED: _owner(None, None, ClassSpec(mode="unpaced"))}
    for name, record in sorted(found.desired.classes.items()):
        owners[record.index] = _owner(name, None, record.spec)
    for name, flow in sorted(found.desired.flows.items()):
        private = flow.spec.private_class()
        if private is not None and flow.private_index is not None:
            owners[flow.private_index] = _owner(None, name, private)
    return owners


def _owner(name: str | None, flow: str | None, spec: ClassSpec) -> dict[str, Any]:
    pace = pace_view(spec)
    return {"name": name, "flow": flow, **{key: pace[key] for key in ("mode", "rate", "rate_bps")}}


def _class_statistics(
    owner: Mapping[str, Any], index: int, reading: Reading, rate_of: RateOf, line_bps: int
) -> dict[str, Any]:
    known = reading.classes is not None
    state = (reading.classes or {}).get(index, {})
    owed_ns = state.get("owed_ns")
    return {
        **owner,
        "index": index,
        **{label: asdict(state.get(label) or Count()) if known else None for label in _COUNTERS},
        "achieved_bps": rate_of("class", index),
        "backlog_bytes": state.get("backlog_bytes"),
        "held_packets": state.get("held_packets"),
        "owed_ns": owed_ns,
        "rtt_ns": state.get("rtt_ns"),
        "in_flight_bytes": state.get("in_flight_bytes"),
        "gap_tokens_bytes": (
            owed_ns * line_bps // 8_000_000_000 if owed_ns is not None and line_bps else None
        ),
    }


def _flow_statistics(
    found: ManagedSwitch, counts: Mapping[Key, Count] | None
) -> list[dict[str, Any]]:
    matched: dict[str, Count] = {}
    if counts is not None:
        for key, name in found.flow_names().items():
            if key in counts:
                matched[name] = matched.get(name, Count()) + counts[key]
    return [
        {
            "name": name,
            "class": record.spec.class_name,
            "matched": asdict(matched[name]) if name in matched else None,
        }
        for name, record in sorted(found.desired.flows.items())
    ]


def _rated_counts(reading: Reading) -> dict[tuple[str, int], int]:
    """Return the byte counts whose growth is a rate: frames with FCS that left."""
    counts: dict[tuple[str, int], int] = {}
    for index, state in (reading.classes or {}).items():
        accepted = state.get("accepted")
        if accepted is not None:
            held = state.get("backlog_bytes") or 0
            counts["class", index] = accepted.bytes + FCS_BYTES * accepted.packets - held
    for number, port in (reading.ports or {}).items():
        for direction in ("rx", "tx"):
            frames = port[f"{direction}_packets"] * FCS_BYTES
            counts[direction, number] = port[f"{direction}_bytes"] + frames
    return counts


def _rates(
    samples: Samples, at_ns: int, counts: dict[tuple[str, int], int]
) -> tuple[RateOf, float | None]:
    """Return a function from count to bit/s since the last sample, and the interval in s."""
    if not counts:
        return (lambda kind, index: None), None
    before = samples.counts
    interval_ns = at_ns - samples.at_ns
    usable = samples.at_ns >= 0 and interval_ns > 0
    if samples.at_ns < 0 or interval_ns >= MIN_INTERVAL_NS or interval_ns < 0:
        samples.at_ns, samples.counts = at_ns, counts

    def rate_of(kind: str, index: int) -> int | None:
        key = (kind, index)
        if not usable or key not in before or key not in counts or counts[key] < before[key]:
            return None
        return (counts[key] - before[key]) * 8_000_000_000 // interval_ns

    return rate_of, interval_ns / 1e9 if usable else None


def _port_statistics(
    found: ManagedSwitch, reading: Reading, rate_of: RateOf
) -> list[dict[str, Any]]:
    result = []
    for info in found.driver.ports:
        tx_bps = rate_of("tx", info.port)
        utilisation = None
        if tx_bps is not None and info.line_rate_bps:
            utilisation = min(1.0, round(tx_bps / info.line_rate_bps, 6))
        result.append(
            {
                **port_view(found, info),
                "rx_bps": rate_of("rx", info.port),
                "tx_bps": tx_bps,
                "utilisation": utilisation,
                "statistics": (reading.ports or {}).get(info.port),
            }
        )
    return result

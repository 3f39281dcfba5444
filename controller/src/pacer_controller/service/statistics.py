"""The counters of a switch by resource, and rates from their growth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from pacer_controller import entries
from pacer_controller.fields import FCS_BYTES
from pacer_controller.problems import Problem
from pacer_controller.rows import Key
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.managed import ManagedSwitch, Samples
from pacer_controller.service.shortfall import Interval, below_rate
from pacer_controller.service.views import pace_view, port_view
from pacer_controller.southbound import Count, PortInfo, Reading, SwitchUnreadableError

MIN_INTERVAL_NS = 150_000_000
"""Shortest time over which an achieved rate is computed."""

_STATE = ("backlog_bytes", "held_packets", "owed_ns", "rtt_ns", "in_flight_bytes")
_COUNTERS = ("accepted", "limit_dropped", "red_dropped", "ce_marked")

LINE_OVERHEAD_BYTES = {"layer2": 4, "wire": 24}
"""Bytes that a port's line rate counts beside a frame's layer-2 bytes: the FCS, or also preamble,
start delimiter and inter-frame gap (`LineCounting` of traffic_manager.proto)."""

TARGET_MODES = ("static", "timer", "shared")
"""Modes in which a class's rate is its target."""


@dataclass(frozen=True)
class Growth:
    """The growth of counts since the last sample.

    Attributes:
        counts: the growth by kind and index; counts that are new or have fallen are left out.
        interval_ns: the time since the last sample; None without one.

    """

    counts: Mapping[tuple[str, int], int]
    interval_ns: int | None

    def rate_bps(self, kind: str, index: int) -> int | None:
        """Return the rate of a count of bytes, in bit/s; None if it is not known."""
        grown = self.counts.get((kind, index))
        if grown is None or self.interval_ns is None:
            return None
        return grown * 8_000_000_000 // self.interval_ns


def unreadable(name: str, error: SwitchUnreadableError) -> Problem:
    """Return the 502 for a switch that does not answer."""
    return Problem(
        HTTPStatus.BAD_GATEWAY,
        "switch-unreadable",
        "The switch did not answer",
        f"switch {name!r}: {error}",
    )


async def statistics(found: ManagedSwitch, samples: Samples, age_s: float = 0.0) -> dict[str, Any]:
    """Return counters and rates; a value that the switch does not report is null.

    Args:
        found: the switch.
        samples: the counts of the last call with the same object; rates are over the time since.
        age_s: the largest age of the counters, in seconds.

    """
    driver = found.driver
    try:
        sample = await found.sampler.read(age_s)
    except SwitchUnreadableError as error:
        raise unreadable(found.name, error) from None
    owners = _class_owners(found)
    reading = sample.reading
    growth = _growth(samples, sample.at_ns, _counts(reading, driver.ports))
    line_bps = max((port.line_rate_bps or 0 for port in driver.ports), default=0)
    paces = driver.capabilities.paces
    described = driver.describe()
    return {
        "switch": found.name,
        "state": found.state,
        "reachable": driver.reachable,
        "last_error": driver.last_error,
        "now_ns": reading.now_ns,
        "interval_s": None if growth.interval_ns is None else growth.interval_ns / 1e9,
        "classes": [
            _class_statistics(owner, index, reading, growth, line_bps)
            | {"below_rate": below_rate_of(owner, index, growth, driver.ports)}
            for index, owner in (owners.items() if paces else ())
        ],
        "flows": _flow_statistics(found, reading.flows),
        "drops": {cause: asdict(count) for cause, count in reading.drops.items()}
        if reading.drops
        else None,
        "ports": _port_statistics(found, reading, growth),
        "virtual_bottleneck": reading.bottlenecks,
        "traffic_manager": reading.totals,
        "learning": described.get("learning"),
    }


def _class_owners(found: ManagedSwitch) -> dict[int, dict[str, Any]]:
    """Return the owner of each class index, and its target."""
    owners = {entries.UNCLASSIFIED: _owner(None, None, ClassSpec(mode="unpaced"))}
    for name, record in sorted(found.stored("class").items()):
        owners[record.index] = _owner(name, None, record.spec)
    for name, flow in sorted(found.stored("flow").items()):
        private = flow.spec.private_class()
        if private is not None and flow.private_index is not None:
            owners[flow.private_index] = _owner(None, name, private)
    return owners


def _owner(name: str | None, flow: str | None, spec: ClassSpec) -> dict[str, Any]:
    pace = pace_view(spec)
    shown = {key: pace[key] for key in ("mode", "rate", "rate_bps")}
    return {"name": name, "flow": flow, **shown, "port": spec.port}


def _class_statistics(
    owner: Mapping[str, Any], index: int, reading: Reading, growth: Growth, line_bps: int
) -> dict[str, Any]:
    known = reading.classes is not None
    state = (reading.classes or {}).get(index, {})
    owed_ns = state.get("owed_ns")
    return {
        **owner,
        "index": index,
        **{label: asdict(state.get(label) or Count()) if known else None for label in _COUNTERS},
        "achieved_bps": growth.rate_bps("class", index),
        **{name: state.get(name) for name in _STATE},
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
        for name, record in sorted(found.stored("flow").items())
    ]


def below_rate_of(
    owner: Mapping[str, Any], index: int, growth: Growth, ports: Sequence[PortInfo]
) -> dict[str, Any] | None:
    """Return the reason why a class is below its rate; None: it is not, or this is not known.

    The packets of a class without a port may leave by any port, so the least busy line counts.
    """
    rate_bps, achieved_bps = owner["rate_bps"], growth.rate_bps("class", index)
    if owner["mode"] not in TARGET_MODES or rate_bps is None or achieved_bps is None:
        return None
    busy = [
        100 * sent_bps / info.line_rate_bps
        for info in ports
        if info.line_rate_bps and owner["port"] in (None, info.port)
        for sent_bps in [growth.rate_bps("line", info.port)]
        if sent_bps is not None
    ]
    seen = Interval(
        growth.interval_ns or 1,
        growth.counts.get(("stalled", 0), 0),
        growth.counts.get(("limit", index), 0),
        min(busy, default=None),
    )
    return below_rate(rate_bps, achieved_bps, seen)


def _counts(reading: Reading, ports: Sequence[PortInfo]) -> dict[tuple[str, int], int]:
    """Return counts: `class`, `rx`, `tx`, `line` in bytes, `limit` in packets, `stalled` in ns."""
    counts: dict[tuple[str, int], int] = {}
    for index, state in (reading.classes or {}).items():
        accepted, dropped = state.get("accepted"), state.get("limit_dropped")
        if accepted is not None:
            held = state.get("backlog_bytes") or 0
            counts["class", index] = accepted.bytes + FCS_BYTES * accepted.packets - held
        if dropped is not None:
            counts["limit", index] = dropped.packets
    overheads = {info.port: LINE_OVERHEAD_BYTES.get(info.counts or "") for info in ports}
    for number, port in (reading.ports or {}).items():
        for direction in ("rx", "tx"):
            frames = port[f"{direction}_packets"] * FCS_BYTES
            counts[direction, number] = port[f"{direction}_bytes"] + frames
        overhead = overheads.get(number)
        if overhead is not None:
            counts["line", number] = port["tx_bytes"] + overhead * port["tx_packets"]
    watched = (reading.totals or {}).get("polling")
    if watched is not None:
        counts["stalled", 0] = watched["stalled_ns"]
    return counts


def _growth(samples: Samples, at_ns: int, counts: dict[tuple[str, int], int]) -> Growth:
    """Return the growth of counts since the last sample; replace that if it is old enough."""
    if not counts:
        return Growth({}, None)
    before, interval_ns = samples.counts, at_ns - samples.at_ns
    usable = samples.at_ns >= 0 and interval_ns > 0
    if samples.at_ns < 0 or interval_ns >= MIN_INTERVAL_NS or interval_ns < 0:
        samples.at_ns, samples.counts = at_ns, counts
    if not usable:
        return Growth({}, None)
    grown = {
        key: now - before[key] for key, now in counts.items() if now >= before.get(key, now + 1)
    }
    return Growth(grown, interval_ns)


def _port_statistics(
    found: ManagedSwitch, reading: Reading, growth: Growth
) -> list[dict[str, Any]]:
    result = []
    for info in found.driver.ports:
        tx_bps = growth.rate_bps("tx", info.port)
        utilisation = None
        if tx_bps is not None and info.line_rate_bps:
            utilisation = min(1.0, round(tx_bps / info.line_rate_bps, 6))
        result.append(
            {
                **port_view(found, info),
                "rx_bps": growth.rate_bps("rx", info.port),
                "tx_bps": tx_bps,
                "utilisation": utilisation,
                "statistics": (reading.ports or {}).get(info.port),
            }
        )
    return result

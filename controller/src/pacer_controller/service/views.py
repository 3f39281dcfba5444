"""Resources as clients see them."""

from dataclasses import asdict
from typing import Any

from pacer_controller import entries, rates
from pacer_controller.records import ClassRecord, FlowRecord, MeterRecord, PortRecord, Record
from pacer_controller.rows import owner_of
from pacer_controller.schemas import ClassSpec, MeterSpec, stored
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.southbound import PortInfo


def switch_view(found: ManagedSwitch) -> dict[str, Any]:
    """Return the view of a switch."""
    driver = found.driver
    return {
        **found.settings,
        "name": found.name,
        "state": found.state,
        "controller": status.controller if (status := found.status()) is not None else None,
        "reachable": driver.reachable,
        "last_error": driver.last_error,
        "configured": found.configured,
        **driver.describe(),
        "ports": port_views(found),
        "classes": len(found.stored("class")),
        "flows": len(found.stored("flow")),
        "meters": len(found.stored("meter")),
        "failed": dict(found.failed),
        "counters": asdict(driver.counters),
        "revision": found.revision,
    }


def record_view(found: ManagedSwitch, kind: str, record: Record) -> dict[str, Any]:
    """Return a resource of any kind."""
    if isinstance(record, ClassRecord):
        return _class_view(found, record)
    if isinstance(record, FlowRecord):
        return _flow_view(found, record)
    if isinstance(record, MeterRecord):
        return _meter_view(found, record)
    info = next((p for p in found.driver.ports if p.port == int(record.name)), None)
    return port_view(found, info or PortInfo(int(record.name)), record)


def as_it_is(
    found: ManagedSwitch, kind: str, record: Record, view: dict[str, Any]
) -> dict[str, Any]:
    """Return a resource's view with its current state on the switch."""
    if isinstance(record, PortRecord):
        return record_view(found, kind, record)
    return view | _state(found, kind, record)


def pace_view(spec: ClassSpec) -> dict[str, Any]:
    """Return the pacing settings of a class, with defaults filled in."""
    given = spec.allowance_ns
    paced = spec.mode != "unpaced"
    return {
        "mode": spec.mode,
        "rate": rates.format_rate(spec.rate) if spec.rate is not None else None,
        "rate_bps": spec.rate,
        "limit_bytes": spec.limit_bytes,
        "allowance": ("fixed" if isinstance(given, int) else given or "auto") if paced else None,
        "allowance_ns": spec.allowed_ns if paced else None,
    }


def _state(found: ManagedSwitch, kind: str, record: Record) -> dict[str, Any]:
    state, reason = found.resource_state(owner_of(kind, record.name), record.revision)
    return {"state": state, "state_reason": reason, "revision": record.revision}


_PACE = {"mode", "rate", "limit_bytes", "allowance_ns"}
"""Settings of a class that `pace_view` shows."""


def _class_view(found: ManagedSwitch, record: ClassRecord) -> dict[str, Any]:
    follow = record.spec.follow
    return {
        "name": record.name,
        "index": record.index,
        **pace_view(record.spec),
        **record.spec.model_dump(exclude=_PACE),
        "follow": follow.model_dump(mode="json") if follow is not None else None,
        **_state(found, "class", record),
    }


def meter_fields(spec: MeterSpec) -> dict[str, Any]:
    """Return a meter's numbers, defaults filled in."""
    return {
        "cir": rates.format_rate(spec.cir),
        "cir_bps": spec.cir,
        "cburst": spec.cburst_bytes,
        "pir": rates.format_rate(spec.pir_bps),
        "pir_bps": spec.pir_bps,
        "pburst": spec.pburst_bytes,
        "drop_red": spec.drop_red,
        "yellow_dscp": spec.yellow_dscp,
        "red_dscp": spec.red_dscp,
    }


def _meter_view(found: ManagedSwitch, record: MeterRecord) -> dict[str, Any]:
    state = _state(found, "meter", record)
    return {"name": record.name, **meter_fields(record.spec), **state}


def _flow_view(found: ManagedSwitch, record: FlowRecord) -> dict[str, Any]:
    spec = record.spec
    private = spec.private_class()
    # Staged resources only when a PUT is answered that refers to them.
    meter = entries.meter_of(spec, found.desired.meters | found.stored("meter"))
    index = entries.UNCLASSIFIED if record.private_index is None else record.private_index
    if spec.class_name is not None:
        of = found.stored("class").get(spec.class_name)
        index = (of or found.desired.classes[spec.class_name]).index
    pace = pace_view(private) if private else dict.fromkeys(pace_view(ClassSpec(mode="unpaced")))
    return {
        "name": record.name,
        "match": spec.match.model_dump(mode="json", exclude_none=True),
        "priority": spec.priority,
        "class": spec.class_name,
        "class_index": index,
        **{name: value for name, value in pace.items() if name != "mode"},
        "meter": meter_fields(meter) if meter is not None else None,
        "meter_name": spec.meter_name,
        "set_dscp": spec.set_dscp,
        "entries": entries.entry_count(spec.match),
        **_state(found, "flow", record),
    }


def port_view(
    found: ManagedSwitch, info: PortInfo, record: PortRecord | None = None
) -> dict[str, Any]:
    """Return a port with its actual settings and the requested ones (by default the current)."""
    record = record or found.stored("port").get(str(info.port))
    state = {"state": "applied", "state_reason": None, "revision": None}
    if record is not None:
        state = _state(found, "port", record)
    rate = info.line_rate_bps
    return {
        **asdict(info),
        "line_rate": rates.format_rate(rate) if rate is not None else None,
        "desired": stored(record.spec) if record is not None else None,
        **state,
    }


def port_views(found: ManagedSwitch) -> list[dict[str, Any]]:
    """Return all ports: those the switch has and those something is asked for of."""
    known = {info.port: info for info in found.driver.ports}
    for name in found.stored("port"):
        known.setdefault(int(name), PortInfo(int(name)))
    return [port_view(found, info) for _, info in sorted(known.items())]

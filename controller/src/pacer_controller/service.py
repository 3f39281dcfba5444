"""What requests mean: checks against the whole state, storing, applying, reporting.

A change goes through four steps under the switch's lock: everything is checked; the new desired
state is stored; the switch gets the difference; the caller is told. A switch that is away gets
it when it comes back (`pending`). A switch that refuses has the stored change taken back, so
that desired state never holds what its switch cannot.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pacer_controller import entries, rates
from pacer_controller.config import SwitchConfig
from pacer_controller.p4rt import (
    Count,
    P4Switch,
    State,
    SwitchRefusedError,
    SwitchUnreadableError,
)
from pacer_controller.problems import FieldError, Problem, did_you_mean, invalid, not_found
from pacer_controller.schemas import ClassSpec, FlowSpec
from pacer_controller.store import ClassRecord, FlowRecord, Store
from pacer_controller.traffic_manager import PortInfo

_LOG = logging.getLogger(__name__)

FCS_BYTES = 4
MIN_INTERVAL_NS = 200_000_000
"""Shortest time over which an achieved rate is computed."""

BIN_NS = 500_000
BINS = 65536
WINDOW_NS = 100_000_000
WINDOWS = 4096
MEASURED_PORTS = 4
"""gtrcnet's rings; ports 0 to 3 are measured."""


@dataclass
class _Samples:
    """Byte counts at one time, to compute rates from; keys name what is counted."""

    at_ns: int = -1
    counts: dict[tuple[str, int], int] = field(default_factory=dict)


class ManagedSwitch:
    """A switch with its desired state and lock."""

    def __init__(
        self, config: SwitchConfig, compiled: Path, store: Store, reconcile_interval_s: float
    ) -> None:
        self.lock = asyncio.Lock()
        self.desired = store.desired(config.name)
        self.driver = P4Switch(
            config,
            compiled,
            lambda: entries.desired_rows(self.desired),
            self.lock,
            reconcile_interval_s,
        )
        self.samples = _Samples()
        self.flow_keys = {
            entries.flow_row(record.spec, 0, "").key: name
            for name, record in self.desired.flows.items()
        }

    def resource_state(self, owner: str) -> tuple[str, str | None]:
        """Return "applied", "pending" or "failed" for a resource, and why."""
        reason = self.driver.failed.get(owner)
        if reason is not None:
            return "failed", reason
        if self.driver.state is State.CONNECTED:
            return "applied", None
        return "pending", f"switch is {self.driver.state.value}"

    def rate_problem(self, name: str, rate_bps: int | None, port: int | None) -> FieldError | None:
        """Check a rate against the line rate of its port, or of the fastest rated port."""
        ports = {info.port: info for info in self.driver.ports}
        if port is not None and ports and port not in ports:
            return FieldError("port", f"the switch has no port {port}", _one_of(list(ports)))
        if rate_bps is None:
            return None
        rated = [p for p in ports.values() if p.line_rate_bps and port in (None, p.port)]
        if not rated:
            return None
        fastest = max(rated, key=lambda info: info.line_rate_bps or 0)
        line_bps = fastest.line_rate_bps or 0
        if rate_bps <= line_bps:
            return None
        line = rates.format_rate(line_bps)
        return FieldError(
            name,
            f"{rates.format_rate(rate_bps)} is above the line rate of port {fastest.port}, {line}",
            f"a rate of at most {line}",
        )

    def free_index(self) -> int | None:
        """Return the lowest unused class index; None when all are used."""
        capacity = self.driver.class_capacity
        if len(self.desired.used) >= capacity:
            return None
        # With n indices used, one of 1..n+1 is free.
        return next(i for i in range(1, capacity + 1) if i not in self.desired.used)


class Service:
    """All switches and what can be asked of them.

    Args:
        switches: which switches there are.
        compiled: directory of compiled programs.
        store: desired state; the caller closes it.
        reconcile_interval_s: how often each switch is read back for foreign changes; 0 never.

    Raises:
        ConfigError: a switch's program files are missing.

    """

    def __init__(
        self,
        switches: Sequence[SwitchConfig],
        compiled: Path,
        store: Store,
        reconcile_interval_s: float = 30.0,
    ) -> None:
        self._store = store
        self.switches = {
            config.name: ManagedSwitch(config, compiled, store, reconcile_interval_s)
            for config in switches
        }
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to connect to the switches; does not wait for them."""
        for name, switch in self.switches.items():
            self._tasks.append(asyncio.create_task(switch.driver.run(), name=f"switch {name}"))

    async def stop(self) -> None:
        """Disconnect from the switches, which keep forwarding."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                _LOG.error("a switch's task ended with %r", result)
        self._tasks.clear()

    # ---- switches ----

    def switch(self, name: str) -> ManagedSwitch:
        """Return a switch or raise the 404."""
        found = self.switches.get(name)
        if found is None:
            raise not_found("switch", name, self.switches)
        return found

    def _pacing(self, name: str) -> ManagedSwitch:
        found = self.switch(name)
        if not found.driver.paces:
            raise Problem(
                HTTPStatus.CONFLICT,
                "program-does-not-pace",
                "The switch's program has no classes and flows",
                f"switch {name!r} runs {found.driver.config.program}, which does not pace",
            )
        return found

    async def switch_views(self) -> list[dict[str, Any]]:
        """Return all switches, by name; they are asked at the same time."""
        return list(await asyncio.gather(*map(self.switch_view, sorted(self.switches))))

    async def switch_view(self, name: str) -> dict[str, Any]:
        """Return what there is to say about a switch, its ports as they are now."""
        found = self.switch(name)
        driver = found.driver
        ports = await driver.ports_now()
        config = driver.config
        return {
            "name": name,
            "address": config.address,
            "device_id": config.device_id,
            "target": config.target,
            "program": config.program,
            "state": driver.state.value,
            "last_error": driver.last_error,
            "ports": [port.as_dict() for port in ports],
            "cpu_port": config.cpu_port,
            "classes": len(found.desired.classes),
            "flows": len(found.desired.flows),
            "failed": dict(driver.failed),
            "counters": asdict(driver.counters),
            "learning": asdict(driver.learning.counters),
            "stations": len(driver.learning.ports),
        }

    # ---- classes ----

    def class_view(self, switch: str, name: str) -> dict[str, Any]:
        """Return a class or raise the 404."""
        found = self._pacing(switch)
        record = found.desired.classes.get(name)
        if record is None:
            raise not_found("class", name, found.desired.classes, f" on switch {switch!r}")
        return self._class_view(found, record)

    def class_views(self, switch: str) -> list[dict[str, Any]]:
        """Return all classes, by name."""
        found = self._pacing(switch)
        return [
            self._class_view(found, record) for _, record in sorted(found.desired.classes.items())
        ]

    def _class_view(self, found: ManagedSwitch, record: ClassRecord) -> dict[str, Any]:
        state, reason = found.resource_state(entries.class_owner(record.name))
        return {
            "name": record.name,
            "index": record.index,
            **_pace_view(record.spec),
            "port": record.spec.port,
            "state": state,
            "state_reason": reason,
        }

    async def put_class(
        self, switch: str, name: str, spec: ClassSpec
    ) -> tuple[dict[str, Any], bool]:
        """Create or replace a class; returns it and whether it is new."""
        found = self._pacing(switch)
        async with found.lock:
            old = found.desired.classes.get(name)
            errors = spec.problems()
            too_fast = found.rate_problem("rate", spec.rate, spec.port)
            if too_fast is not None:
                errors.append(too_fast)
            if errors:
                raise invalid(f"class {name!r} on switch {switch!r}", errors)
            index = old.index if old is not None else self._new_index(found, switch)
            record = ClassRecord(name, index, spec)
            if old != record:
                before = entries.by_key(entries.class_record_rows(old) if old else ())
                after = entries.by_key(entries.class_record_rows(record))
                self._store.write(switch, classes={name: record})
                await self._apply(
                    found,
                    before,
                    after,
                    fresh=() if old else (index,),
                    undo={"classes": {name: old}},
                )
            return self._class_view(found, record), old is None

    async def delete_class(self, switch: str, name: str) -> None:
        """Remove a class that no flow uses."""
        found = self._pacing(switch)
        async with found.lock:
            old = found.desired.classes.get(name)
            if old is None:
                raise not_found("class", name, found.desired.classes, f" on switch {switch!r}")
            users = sorted(n for n, f in found.desired.flows.items() if f.spec.class_name == name)
            if users:
                named = ", ".join(map(repr, users[:5]))
                more = f" and {len(users) - 5} more" if len(users) > 5 else ""
                raise Problem(
                    HTTPStatus.CONFLICT,
                    "class-in-use",
                    "Flows use the class",
                    f"class {name!r} on switch {switch!r} is used by {named}{more}; "
                    "delete these flows or give them another class first",
                )
            before = entries.by_key(entries.class_record_rows(old))
            self._store.write(switch, classes={name: None})
            await self._apply(found, before, {}, undo={"classes": {name: old}})

    def _new_index(self, found: ManagedSwitch, switch: str) -> int:
        index = found.free_index()
        if index is None:
            raise _full("classes", switch, found.driver.class_capacity)
        return index

    # ---- flows ----

    def flow_view(self, switch: str, name: str) -> dict[str, Any]:
        """Return a flow or raise the 404."""
        found = self._pacing(switch)
        record = found.desired.flows.get(name)
        if record is None:
            raise not_found("flow", name, found.desired.flows, f" on switch {switch!r}")
        return self._flow_view(found, record)

    def flow_views(self, switch: str) -> list[dict[str, Any]]:
        """Return all flows, by name."""
        found = self._pacing(switch)
        return [self._flow_view(found, record) for _, record in sorted(found.desired.flows.items())]

    def _flow_view(self, found: ManagedSwitch, record: FlowRecord) -> dict[str, Any]:
        spec = record.spec
        state, reason = found.resource_state(entries.flow_owner(record.name))
        private = spec.private_class()
        meter = None
        if spec.meter is not None:
            meter = {
                "cir": rates.format_rate(spec.meter.cir),
                "cburst": spec.meter.cburst_bytes,
                "pir": rates.format_rate(spec.meter.pir_bps),
                "pburst": spec.meter.pburst_bytes,
                "drop_red": spec.meter.drop_red,
                "yellow_dscp": spec.meter.yellow_dscp,
                "red_dscp": spec.meter.red_dscp,
            }
        index = entries.UNCLASSIFIED if record.private_index is None else record.private_index
        if spec.class_name is not None:
            index = found.desired.classes[spec.class_name].index
        pace = (
            _pace_view(private) if private else dict.fromkeys(_pace_view(ClassSpec(mode="unpaced")))
        )
        return {
            "name": record.name,
            "match": spec.match.model_dump(mode="json", exclude_none=True),
            "priority": spec.priority,
            "class": spec.class_name,
            "class_index": index,
            "rate": pace["rate"],
            "rate_bps": pace["rate_bps"],
            "limit_bytes": pace["limit_bytes"],
            "allowance_ns": pace["allowance_ns"],
            "meter": meter,
            "state": state,
            "state_reason": reason,
        }

    async def put_flow(self, switch: str, name: str, spec: FlowSpec) -> tuple[dict[str, Any], bool]:
        """Create or replace a flow; returns it and whether it is new."""
        found = self._pacing(switch)
        async with found.lock:
            old = found.desired.flows.get(name)
            resource = f"flow {name!r} on switch {switch!r}"
            errors = spec.problems() or self._flow_problems(found, spec)
            if errors:
                raise invalid(resource, errors)
            key = entries.flow_row(spec, 0, "").key
            other = found.flow_keys.get(key, name)
            if other != name:
                raise Problem(
                    HTTPStatus.CONFLICT,
                    "duplicate-match",
                    "Another flow has the same match and priority",
                    f"{resource} has the match and priority {spec.priority} of flow {other!r}; "
                    "give it another priority or delete the other",
                )
            if old is None and len(found.desired.flows) >= found.driver.flow_capacity:
                raise _full("flows", switch, found.driver.flow_capacity)
            private = old.private_index if old is not None else None
            fresh: tuple[int, ...] = ()
            if spec.rate is None:
                private = None
            elif private is None:
                private = self._new_index(found, switch)
                fresh = (private,)
            record = FlowRecord(name, private, spec)
            if old != record:
                before = self._flow_rows(found, old)
                after = self._flow_rows(found, record)
                self._store.write(switch, flows={name: record})
                await self._apply(found, before, after, fresh=fresh, undo={"flows": {name: old}})
                if old is not None:
                    found.flow_keys.pop(entries.flow_row(old.spec, 0, "").key, None)
                found.flow_keys[key] = name
            return self._flow_view(found, record), old is None

    def _flow_problems(self, found: ManagedSwitch, spec: FlowSpec) -> list[FieldError]:
        """Return what is wrong with a flow on this switch."""
        errors: list[FieldError] = []
        classes = found.desired.classes
        if spec.class_name is not None and spec.class_name not in classes:
            guess = did_you_mean(spec.class_name, classes)
            errors.append(
                FieldError(
                    "class",
                    f"no class {spec.class_name!r} on the switch{guess}",
                    "a class that exists: " + _one_of(sorted(classes)),
                )
            )
        too_fast = found.rate_problem("rate", spec.rate, None)
        if too_fast is not None:
            errors.append(too_fast)
        ports = [port.port for port in found.driver.ports]
        port = spec.match.ingress_port
        if port is not None and ports and port not in ports:
            errors.append(
                FieldError("match.ingress_port", f"the switch has no port {port}", _one_of(ports))
            )
        return errors

    def _flow_rows(self, found: ManagedSwitch, record: FlowRecord | None) -> entries.Rows:
        if record is None:
            return {}
        return entries.by_key(entries.flow_record_rows(record, found.desired.classes))

    async def delete_flow(self, switch: str, name: str) -> None:
        """Remove a flow, and its private class if it has one."""
        found = self._pacing(switch)
        async with found.lock:
            old = found.desired.flows.get(name)
            if old is None:
                raise not_found("flow", name, found.desired.flows, f" on switch {switch!r}")
            before = self._flow_rows(found, old)
            self._store.write(switch, flows={name: None})
            await self._apply(found, before, {}, undo={"flows": {name: old}})
            found.flow_keys.pop(entries.flow_row(old.spec, 0, "").key, None)

    async def _apply(
        self,
        found: ManagedSwitch,
        before: entries.Rows,
        after: entries.Rows,
        *,
        undo: dict[str, Any],
        fresh: Sequence[int] = (),
    ) -> None:
        """Bring a stored change to the switch; a refusal takes it back and is the client's 5xx."""
        try:
            await found.driver.apply(before, after, fresh=fresh)
        except SwitchRefusedError as error:
            self._store.write(found.driver.name, **undo)
            if any(refusal.table_full for refusal in error.refusals):
                raise Problem(
                    HTTPStatus.INSUFFICIENT_STORAGE,
                    "switch-full",
                    "A table of the switch is full",
                    f"switch {found.driver.name!r}: {error}; nothing was changed",
                ) from None
            raise Problem(
                HTTPStatus.BAD_GATEWAY,
                "switch-refused",
                "The switch refused the change",
                f"switch {found.driver.name!r}: {error}; nothing was changed",
            ) from None

    # ---- statistics ----

    async def statistics(self, name: str) -> dict[str, Any]:
        """Return counters and rates of a switch; nulls where the switch cannot say."""
        found = self.switch(name)
        driver = found.driver
        owners = self._class_owners(found)
        indices = list(owners)
        try:
            ports = await driver.ports_now()
            traffic = await driver.traffic_statistics(indices if driver.paces else [])
            counters = await driver.class_counters(indices)
            drops = await driver.drop_counters()
            flow_counts = await driver.flow_counters()
            clocks = await self._clocks(driver, indices, traffic)
        except SwitchUnreadableError as error:
            raise Problem(
                HTTPStatus.BAD_GATEWAY,
                "switch-unreadable",
                "The switch did not answer",
                f"switch {name!r}: {error}",
            ) from None
        now_ns = traffic["switch"]["now_ns"] if traffic else None
        rate_of, interval_s = _rates(
            found.samples,
            now_ns if now_ns is not None else time.monotonic_ns(),
            _rated_counts(counters, traffic),
        )
        line_bps = max((port.line_rate_bps or 0 for port in ports), default=0)
        classes = []
        for index, owner in owners.items() if driver.paces else ():
            state = (traffic or {"classes": {}})["classes"].get(index, {})
            owed_ns = clocks.get(index)
            classes.append(
                {
                    **owner,
                    "index": index,
                    **_counts(counters, index),
                    "achieved_bps": rate_of(("class", index)),
                    "backlog_bytes": state.get("backlog_bytes"),
                    "held_packets": state.get("held_packets"),
                    "owed_ns": owed_ns,
                    "gap_tokens_bytes": (
                        owed_ns * line_bps // 8_000_000_000
                        if owed_ns is not None and line_bps
                        else None
                    ),
                }
            )
        return {
            "switch": name,
            "state": driver.state.value,
            "now_ns": now_ns,
            "interval_s": interval_s,
            "classes": classes,
            "flows": self._flow_statistics(found, flow_counts),
            "drops": {cause: asdict(count) for cause, count in drops.items()} if drops else None,
            "ports": _port_statistics(ports, traffic, rate_of),
            "traffic_manager": traffic["switch"] if traffic else None,
            "learning": asdict(driver.learning.counters),
        }

    def _class_owners(self, found: ManagedSwitch) -> dict[int, dict[str, Any]]:
        """Return who each class index belongs to, and its target."""
        owners: dict[int, dict[str, Any]] = {
            entries.UNCLASSIFIED: _owner(None, None, ClassSpec(mode="unpaced"))
        }
        for name, record in sorted(found.desired.classes.items()):
            owners[record.index] = _owner(name, None, record.spec)
        for name, flow in sorted(found.desired.flows.items()):
            private = flow.spec.private_class()
            if private is not None and flow.private_index is not None:
                owners[flow.private_index] = _owner(None, name, private)
        return owners

    async def _clocks(
        self, driver: P4Switch, indices: Sequence[int], traffic: dict[str, Any] | None
    ) -> dict[int, int]:
        """Return how far each class's clock is ahead of now, in ns: the gap it still owes."""
        if traffic is None or not driver.paces:
            return {}
        clocks = await driver.registers("PacerIngress.clock_ns", indices)
        now_ns = traffic["switch"]["now_ns"]
        return {i: max(0, clock_ns - now_ns) for i, clock_ns in (clocks or {}).items()}

    def _flow_statistics(
        self, found: ManagedSwitch, counts: dict[entries.Key, Count] | None
    ) -> list[dict[str, Any]]:
        result = []
        for key, name in sorted(found.flow_keys.items(), key=lambda item: item[1]):
            record = found.desired.flows.get(name)
            count = counts.get(key) if counts is not None else None
            result.append(
                {
                    "name": name,
                    "class": record.spec.class_name if record else None,
                    "matched": asdict(count) if count else None,
                }
            )
        return result

    # ---- gtrcnet ----

    async def bandwidth(
        self, name: str, port: int, from_ns: int | None, to_ns: int | None
    ) -> dict[str, Any]:
        """Return what gtrcnet measured at a port, columns by time; empty bins are left out."""
        found = self.switch(name)
        driver = found.driver
        if not driver.measures:
            raise Problem(
                HTTPStatus.CONFLICT,
                "program-does-not-measure",
                "The switch's program does not measure bandwidth",
                f"switch {name!r} runs {driver.config.program}; only gtrcnet measures",
            )
        try:
            result = await self._bandwidth(driver, port, from_ns or 0, to_ns)
        except SwitchUnreadableError as error:
            raise Problem(
                HTTPStatus.BAD_GATEWAY,
                "switch-unreadable",
                "The switch did not answer",
                f"switch {name!r}: {error}",
            ) from None
        if result is None:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "switch-unreadable",
                "The switch's registers cannot be read now",
                f"switch {name!r} is {driver.state.value}, or its target does not read registers",
            )
        return {"switch": name, "port": port, **result}

    async def _bandwidth(
        self, driver: P4Switch, port: int, from_ns: int, to_ns: int | None
    ) -> dict[str, Any] | None:
        first = port * WINDOWS
        ids = await driver.registers("GtrcnetIngress.window_id", range(first, first + WINDOWS))
        if ids is None:
            return None
        # An unused cell reads id 0, as window 0 would; the byte count tells them apart.
        windows = {
            window: first + cell
            for cell in range(WINDOWS)
            if (window := ids[first + cell]) % WINDOWS == cell
            and (window + 1) * WINDOW_NS > from_ns
            and (to_ns is None or window * WINDOW_NS < to_ns)
        }
        cells = list(windows.values())
        window_bytes = await driver.registers("GtrcnetIngress.window_bytes", cells) or {}
        window_max = await driver.registers("GtrcnetIngress.window_vb_max_bytes", cells) or {}
        used = sorted(window for window, cell in windows.items() if window_bytes.get(cell))
        bins: list[int] = []
        if used:
            # The ring of bins is shorter than the ring of windows: older bins are overwritten.
            per_window = WINDOW_NS // BIN_NS
            oldest = (used[-1] + 1) * per_window - BINS
            bins = [
                number
                for window in used
                for number in range(window * per_window, (window + 1) * per_window)
                if number >= oldest
                and (number + 1) * BIN_NS > from_ns
                and (to_ns is None or number * BIN_NS < to_ns)
            ]
        bin_cells = [port * BINS + number % BINS for number in bins]
        bin_ids = await driver.registers("GtrcnetIngress.bin_id", bin_cells) or {}
        bin_bytes = await driver.registers("GtrcnetIngress.bin_bytes", bin_cells) or {}
        filled = [
            (number, bin_bytes[cell])
            for number, cell in zip(bins, bin_cells, strict=True)
            if bin_ids[cell] == number and bin_bytes[cell]
        ]
        virtual_max = await driver.registers("GtrcnetIngress.vb_max_bytes", [port]) or {}
        return {
            "bottleneck_bps": driver.config.bottleneck_bps,
            "bin_ns": BIN_NS,
            "window_ns": WINDOW_NS,
            "vb_max_bytes": virtual_max.get(port, 0),
            "bins": {
                "start_ns": [number * BIN_NS for number, _ in filled],
                "bytes": [count for _, count in filled],
            },
            "windows": {
                "start_ns": [window * WINDOW_NS for window in used],
                "bytes": [window_bytes[windows[window]] for window in used],
                "vb_max_bytes": [window_max[windows[window]] for window in used],
            },
        }


def _pace_view(spec: ClassSpec) -> dict[str, Any]:
    allowance_ns = spec.allowance_ns
    if allowance_ns is None and spec.rate is not None:
        allowance_ns = rates.default_allowance_ns(spec.rate)
    return {
        "mode": spec.mode,
        "rate": rates.format_rate(spec.rate) if spec.rate is not None else None,
        "rate_bps": spec.rate,
        "limit_bytes": spec.limit_bytes,
        "allowance_ns": allowance_ns,
    }


def _owner(name: str | None, flow: str | None, spec: ClassSpec) -> dict[str, Any]:
    return {
        "name": name,
        "flow": flow,
        "mode": spec.mode,
        "rate": rates.format_rate(spec.rate) if spec.rate is not None else None,
        "rate_bps": spec.rate,
    }


def _one_of(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:10]))
    return f"one of {shown}" + (", ..." if len(values) > 10 else "") if values else "none yet"


def _full(what: str, switch: str, capacity: int) -> Problem:
    return Problem(
        HTTPStatus.CONFLICT,
        "limit-reached",
        f"The switch holds no more {what}",
        f"switch {switch!r} holds {capacity} {what}, and all are in use",
    )


_COUNTER_NAMES = {
    "accepted": "PacerIngress.class_accepted",
    "limit_dropped": "PacerIngress.class_limit_drops",
    "red_dropped": "PacerIngress.class_red_drops",
}


def _counts(counters: dict[str, dict[int, Count]] | None, index: int) -> dict[str, Any]:
    if counters is None:
        return dict.fromkeys(_COUNTER_NAMES)
    return {
        label: asdict(counters[name].get(index, Count())) for label, name in _COUNTER_NAMES.items()
    }


def _rated_counts(
    counters: dict[str, dict[int, Count]] | None, traffic: dict[str, Any] | None
) -> dict[tuple[str, int], int]:
    """Return the byte counts whose growth is a rate: frames with FCS that left."""
    counts: dict[tuple[str, int], int] = {}
    for index, count in (counters or {}).get("PacerIngress.class_accepted", {}).items():
        held = (traffic or {"classes": {}})["classes"].get(index, {}).get("backlog_bytes", 0)
        counts["class", index] = count.bytes + FCS_BYTES * count.packets - held
    for port in (traffic or {"ports": []})["ports"]:
        for direction in ("rx", "tx"):
            frames = port[f"{direction}_packets"] * FCS_BYTES
            counts[direction, port["port"]] = port[f"{direction}_bytes"] + frames
    return counts


def _rates(
    samples: _Samples, at_ns: int, counts: dict[tuple[str, int], int]
) -> tuple[Any, float | None]:
    """Return a function from count to bit/s since the last sample, and the interval in s."""
    if not counts:
        return (lambda _: None), None
    before = samples.counts
    interval_ns = at_ns - samples.at_ns
    usable = samples.at_ns >= 0 and interval_ns > 0
    if samples.at_ns < 0 or interval_ns >= MIN_INTERVAL_NS or interval_ns < 0:
        samples.at_ns, samples.counts = at_ns, counts

    def rate_of(key: tuple[str, int]) -> int | None:
        if not usable or key not in before or key not in counts or counts[key] < before[key]:
            return None
        return (counts[key] - before[key]) * 8_000_000_000 // interval_ns

    return rate_of, interval_ns / 1e9 if usable else None


def _port_statistics(
    ports: Sequence[PortInfo], traffic: dict[str, Any] | None, rate_of: Any
) -> list[dict[str, Any]]:
    seen = {port["port"]: port for port in (traffic or {"ports": []})["ports"]}
    result = []
    for info in ports:
        measured = seen.get(info.port)
        result.append(
            {
                **info.as_dict(),
                "rx_bps": rate_of(("rx", info.port)),
                "tx_bps": rate_of(("tx", info.port)),
                "statistics": measured,
            }
        )
    return result

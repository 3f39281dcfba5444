"""One switch over P4Runtime: connection, pipeline, reconciling.

`P4Switch.run` keeps a connection until it is cancelled. It connects, becomes primary, pushes the
pipeline if the switch has another one, reads the switch back and writes the differences. Then it
serves until the connection breaks, and starts again. A request's change goes to the switch at once
(`apply`) or with the next reconcile; both compute the writes in the same way.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import finsy as fy

from pacer_controller import egress_queues, entries, learning, rates
from pacer_controller.burst.measure import Measured
from pacer_controller.config import SwitchConfig
from pacer_controller.egress_queues import QueueFeatures
from pacer_controller.p4rt import access, bandwidth, burstiness, errors
from pacer_controller.p4rt.connection import Connection
from pacer_controller.p4rt.schemas import schema
from pacer_controller.p4rt.stations import StationLearner
from pacer_controller.p4rt.tracing import SwitchTracing
from pacer_controller.records import Desired, Record
from pacer_controller.rows import CLASSES, PORTS, Change, Op, Row, Rows, by_key, carry_out, changes
from pacer_controller.rows import row as make_row
from pacer_controller.southbound import (
    Capabilities,
    DriverContext,
    Measuring,
    NotHeldError,
    PortInfo,
    Reading,
    Refusal,
    State,
    SwitchRefusedError,
    SwitchUnreadableError,
    Tracing,
    VirtualQueue,
)
from pacer_controller.switch_services import ServiceUnavailableError
from pacer_controller.traffic_manager import Primary

_LOG = logging.getLogger(__name__)

PORT_POLL_S = 5.0
RECONCILE_PASSES = 3
EVENT_ENTRIES = 20
"""Most entries that a drift event lists."""

GAP_MODES = ("accounted", "pause-frames")
LINE_SETTINGS = frozenset({"line_rate", "counts", "fifo_bytes", "delay_ns"})


class P4Switch:
    """One P4Runtime switch.

    Args:
        config: the configuration of the switch.
        compiled: the directory of compiled programs.
        context: the parts of the service that the driver uses.

    Raises:
        ConfigError: the program's files are missing.

    """

    def __init__(self, config: SwitchConfig, compiled: Path, context: DriverContext) -> None:
        json_path, p4info_path = config.files(compiled)
        self.config = config
        self._context = context
        self._connection = Connection(config, json_path, p4info_path, context, self._ready)
        self.counters = self._connection.counters
        self.ports: list[PortInfo] = [PortInfo(number) for number in config.ports]
        self.failed: dict[str, str] = {}
        self._resync = asyncio.Event()
        self.schema = schema(p4info_path, json_path)
        self._tables = {table.name: table.size for table in self.schema.tables}
        self._forwards = entries.FORWARD in self._tables and entries.SOURCES in self._tables
        self.capabilities = self._capabilities()
        capacity = min(self._tables.get(entries.FORWARD, 0), self._tables.get(entries.SOURCES, 0))
        self.learning = learning.Learning(capacity, pinned=config.stations)
        self._learner = StationLearner(
            config.name,
            self.learning,
            self._write_stations,
            lambda: self.state is State.CONNECTED,
            self._resync.set,
        )

    def _capabilities(self) -> Capabilities:
        paces = CLASSES in self._tables and entries.FLOWS in self._tables
        classes = 0
        if paces:
            cells = self.schema.counters["PacerIngress.class_accepted"].size
            # Class 0 is for packets that match no flow.
            classes = min(self._tables[CLASSES], cells) - 1
        actions = {action.name for action in self.schema.actions}
        own = self.config.target == "pacing_switch"
        return Capabilities(
            paces=paces,
            modes=frozenset(
                mode for mode, action in entries.MODE_ACTIONS.items() if action in actions
            ),
            ecn=entries.CONTROLLED_ACTION in actions,
            clamps_windows=entries.CONTROLLED_ACTION in actions,
            slots=actions.issuperset(entries.SLOT_ACTIONS.values()),
            measures=entries.MONITOR in self._tables,
            classes=classes,
            flow_entries=self._tables.get(entries.FLOWS, 0),
            line_settings=LINE_SETTINGS if own else frozenset(),
            gap_modes=GAP_MODES if own else GAP_MODES[:1],
            egress_queues=QueueFeatures() if own else None,
        )

    @property
    def state(self) -> State:
        """The state of the switch."""
        return self._connection.state

    @property
    def last_error(self) -> str | None:
        """The reason why the switch is not connected."""
        return self._connection.last_error

    @property
    def reachable(self) -> bool:
        """Whether the switch is connected, or no attempt to connect has been made yet."""
        return self._connection.switch is not None or self.last_error is None

    async def run(self) -> None:
        """Keep the switch connected and reconciled until cancelled."""
        await self._connection.run()

    @property
    def measuring(self) -> Measuring | None:
        """Return the switch itself when its program measures (`southbound.Driver.measuring`)."""
        return self if self.capabilities.measures else None

    @property
    def tracing(self) -> Tracing | None:
        """Return the traces of packets (`southbound.Driver.tracing`)."""
        traffic = self._connection.traffic
        return None if traffic is None else SwitchTracing(traffic.channel)

    def describe(self) -> dict[str, Any]:
        """Return the members that only P4Runtime switches have."""
        config = self.config
        return {
            "address": config.address,
            "device_id": config.device_id,
            "target": config.target,
            "program": config.program,
            "cpu_port": config.cpu_port,
            # A string, since a JSON number cannot hold 128 bits.
            "election_id": str(self._connection.bid) if self._connection.bid else None,
            "role": {State.CONNECTED: "primary", State.BACKUP: "backup"}.get(self.state),
            "learning": asdict(self.learning.counters),
            "stations": len(self.learning.ports),
        }

    def rows(self, record: Record, desired: Desired) -> list[Row]:
        """Return the entries of a resource."""
        return entries.record_rows(record, desired)

    async def _ready(self, switch: fy.Switch) -> None:
        """Serve while primary (or backup); finsy cancels this when the role changes."""
        self._connection.switch = switch
        self._connection.last_error = None
        await self._refresh_ports()
        self._connection.bid = switch.election_id
        if not switch.is_primary:
            if self._context.tenure.held:
                said = f"another controller is primary, with election id {switch.primary_id}"
                self._connection.note(said, loud=False)
            self._connection.set_state(State.BACKUP)
            return
        self._resync.clear()
        learn = None
        if self._forwards:
            learn = switch.create_task(self._learner.run(switch), name="learn")
        try:
            async with self._context.lock:
                await self._reconcile(switch)
                self._connection.set_state(State.CONNECTED)
            poll = switch.create_task(self._poll_ports(switch), name="ports")
            try:
                await self._keep_reconciled(switch)
            finally:
                poll.cancel()
        finally:
            if learn is not None:
                learn.cancel()
            self._connection.set_state(State.PENDING)

    async def _keep_reconciled(self, switch: fy.Switch) -> None:
        while True:
            timeout = self._context.reconcile_interval_s or None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._resync.wait(), timeout)
            self._resync.clear()
            async with self._context.permits.permit(), self._context.lock:
                await self._reconcile(switch)
                self._connection.set_state(State.CONNECTED)

    # ---- ports and multicast groups ----

    async def _refresh_ports(self) -> bool:
        """Ask the switch for its ports; return whether their numbers changed.

        If the configuration has numbers, the ports have those.
        """
        if self._connection.traffic is None:
            return False
        try:
            ports = await self._connection.traffic.ports()
        except ServiceUnavailableError as error:
            if error.unimplemented:
                if not self.ports:
                    self._connection.note(
                        "the switch cannot list its ports: give them as ports=1-4", True
                    )
                return False
            raise RuntimeError(f"ListPorts: {error}") from None
        if self.config.ports:
            listed = {port.port: port for port in ports}
            ports = [listed.get(number, PortInfo(number)) for number in self.config.ports]
        changed = [port.port for port in ports] != [port.port for port in self.ports]
        self.ports = ports
        return changed

    async def _poll_ports(self, switch: fy.Switch) -> None:
        while True:
            await asyncio.sleep(PORT_POLL_S)
            try:
                changed = await self._refresh_ports()
            except RuntimeError as error:
                # The P4Runtime stream shows whether the switch is gone.
                self._connection.note(str(error), loud=False)
                continue
            if changed:
                _LOG.info(
                    "switch %s: ports %s", self.config.name, [port.port for port in self.ports]
                )
                await self._write_groups(switch)

    async def _write_groups(self, switch: fy.Switch) -> None:
        """Set the members of the flooding groups to the ports.

        Every replica has instance 1. The program recognises a flooded packet by its instance, and
        does not send it back to the port it came from.
        """
        if not self._forwards:
            return
        ports = [port.port for port in self.ports]
        wanted = {
            entries.FLOOD_GROUP: ports,
            entries.FLOOD_AND_LEARN_GROUP: [*ports, self.config.cpu_port],
        }
        present: dict[int, list[tuple[int, int]]] = {}
        async for group in access.read(switch, [fy.P4MulticastGroupEntry()]):
            present[group.multicast_group_id] = sorted(map(_replica, group.replicas))
        updates = []
        for number, members in wanted.items():
            replicas = [(port, 1) for port in members]
            entry = fy.P4MulticastGroupEntry(number, replicas=replicas)
            if number not in present:
                updates.append(+entry)
            elif present[number] != sorted(replicas):
                updates.append(~entry)
        if updates:
            try:
                await switch.write(updates)
            except fy.P4ClientError as error:
                if errors.gone(error):
                    raise
                port = self.config.cpu_port
                raise RuntimeError(
                    f"{errors.describe(error)}; the switch's CPU port must be {port} "
                    f"(pacing_switch --cpu-port {port}), or give its number as cpu-port=N"
                ) from None

    # ---- reconciling ----

    async def _reconcile(self, switch: fy.Switch) -> None:
        """Read the switch back and write the differences; the caller holds the lock."""
        self.counters.reconciles += 1
        await self._write_groups(switch)
        refusals: list[Refusal] = []
        wanted = self._context.wanted()
        unfit = self._context.unfit()
        written = 0
        drifted = False
        for attempt in range(RECONCILE_PASSES):
            # No station may be learned between the reads of the two tables: it would be in only one
            # of them, which looks like a contradiction.
            async with self._learner.lock:
                current = await self._read_back(switch, wanted)
                stations = [row for row in current.values() if row.table in _LEARNED]
                mine = {key: row for key, row in current.items() if key[0] not in _LEARNED}
                pending = _without(changes(mine, self._rows_wanted(wanted)), unfit)
                pending += self.learning.adopt(stations, self._learner.now_s())
                if attempt == 0 and self._connection.held is not None:
                    drifted = self._report_drift(mine, self._connection.held)
                if not pending:
                    refusals = []
                    break
                written += len(pending)
                await access.reset_classes(switch, access.new_classes(pending))
                refusals = await self._write(switch, pending)
                if not refusals:
                    break
        self.counters.reconcile_writes += written
        self._connection.held = dict(self._rows_wanted(wanted))
        if drifted and not refusals:
            self._context.notify(
                "mended", f"switch {self.config.name} holds it again", {"writes": written}
            )
        refused = {refusal.row.owner: refusal.message for refusal in refusals}
        self._report_failed(refused, "refused")
        self._report_failed(unfit, "cannot have")
        self.failed = refused | dict(unfit)

    def _report_failed(self, failed: Mapping[str, str], verb: str) -> None:
        """Report each resource that the switch does not hold, once."""
        for owner, message in list(failed.items())[:10]:
            if owner not in self.failed:
                _LOG.error("switch %s: %s: %s", self.config.name, owner, message)
                data = {"resource": owner, "reason": message}
                self._context.notify(
                    "failed", f"switch {self.config.name} {verb} {owner}: {message}", data
                )

    def _report_drift(self, mine: Rows, held: Rows) -> bool:
        """Report others' changes since the last reconcile; return whether there are any."""
        foreign = [c for c in changes(mine, held) if c.row.owner not in self.failed]
        if not foreign:
            return False
        self.counters.drift_entries += len(foreign)
        message = f"switch {self.config.name}: {len(foreign)} entries changed by somebody else"
        _LOG.warning("%s, mending", message)
        listed = [
            {
                "owner": change.row.owner,
                "table": change.row.table,
                "found": _shown(mine.get(change.row.key)),
                "wanted": _shown(held.get(change.row.key)),
            }
            for change in foreign[:EVENT_ENTRIES]
        ]
        self._context.notify("drift", message, {"entries": listed, "count": len(foreign)})
        return True

    def _rows_wanted(self, wanted: Rows) -> Rows:
        """Return everything the switch should hold except the learned stations."""
        return wanted if self.capabilities.paces else wanted | self._wire_rows()

    async def _read_back(self, switch: fy.Switch, wanted: Rows) -> Rows:
        """Return the entries on the switch; of ports, only the managed settings."""
        names = [CLASSES, entries.FLOWS, entries.FORWARD, entries.SOURCES]
        names += [entries.WIRE, entries.MONITOR, entries.MEASURED_FLOWS]
        found: list[Row] = []
        for name in names:
            if name in self._tables:
                meters = name == entries.FLOWS
                found += await access.read_table(switch, self.schema, name, meters=meters)
        if not self.capabilities.paces:
            found += [row for row in wanted.values() if row.table not in (*names, PORTS)]
        settings = [row for row in wanted.values() if row.table == PORTS]
        if settings:
            await self._refresh_ports()
            found += [row for row in map(self._port_as_it_is, settings) if row is not None]
        return by_key(found)

    def _port_as_it_is(self, asked: Row) -> Row | None:
        """Return a port's row with the actual values of the requested settings; None: no port."""
        info = next((p for p in self.ports if ("port", p.port) in asked.match), None)
        if info is None:
            return None
        has = {
            **asdict(info),
            "line_rate_bps": info.line_rate_bps or 0,
            "egress_queues": egress_queues.text(info.egress_queues),
        }
        return replace(asked, params=tuple((name, has[name]) for name, _ in asked.params))

    def _wire_rows(self) -> Rows:
        """Return gtrcnet's entries, from the configuration."""
        rows: list[Row] = []
        rate_bps = self.config.bottleneck_bps
        for pair in self.config.wire:
            for port, other in (pair, pair[::-1]):
                key = {"ingress_port": port}
                owner = f"wire {pair[0]}:{pair[1]}"
                rows.append(make_row(entries.WIRE, key, "send_to", {"port": other}, owner=owner))
                if rate_bps is not None:
                    params = {"bytes_per_ns_q24": rates.draining_bytes_per_ns_q24(rate_bps)}
                    rows.append(make_row(entries.MONITOR, key, "measure", params, owner=owner))
        measured = self.config.measured
        for place, (name, spec) in enumerate(measured.items()):
            owner = f"measured flow {name!r}"
            rate_of_flow = self.bottleneck_bps(name)
            if rate_of_flow is None:
                raise ValueError(f"measured flow {name!r} has no bottleneck")
            # The first of several matching flows counts, so it gets the highest priority.
            priority = len(measured) - place
            slot = self.config.slot_of(name)
            rows += entries.measured_flow_rows(spec, slot, priority, rate_of_flow, owner)
        return by_key(rows)

    async def _write(self, switch: fy.Switch, pending: Sequence[Change]) -> list[Refusal]:
        """Write changes; return the refusals.

        Raises:
            fy.P4ClientError, RuntimeError: the connection is gone; it is unknown which changes were
                made.

        """
        of_tables, of_ports = access.split_ports(pending)
        tried = [await self._write_port(switch, change) for change in of_ports]
        refusals = [refusal for refusal in tried if refusal is not None]
        refusals += await access.write(switch, of_tables)
        self.counters.refused_writes += len(refusals)
        return refusals

    async def _write_port(self, switch: fy.Switch, change: Change) -> Refusal | None:
        if not self._context.tenure.held:
            raise NotHeldError(self.config.name)
        if change.op is Op.DELETE:
            # A setting that is no longer managed keeps its value.
            return None
        traffic = self._connection.traffic
        if traffic is None:
            raise RuntimeError("not connected")
        port = next(int(v) for n, v in change.row.match if n == "port" and isinstance(v, int))
        try:
            info = await traffic.set_port(port, dict(change.row.params), _primary(switch))
        except ServiceUnavailableError as error:
            if error.refused:
                return Refusal(change.row, str(error), table_full=False)
            raise RuntimeError(str(error)) from None
        self.ports = [info if known.port == port else known for known in self.ports]
        return None

    async def _write_stations(self, pending: Sequence[Change]) -> list[Refusal]:
        switch = self._connection.switch
        return [] if switch is None else await self._write(switch, pending)

    # ---- requests ----

    async def apply(self, before: Rows, after: Rows, *, fresh: Iterable[int] = ()) -> bool:
        """Write a change to the switch (`southbound.Driver.apply`)."""
        switch = self._connection.switch
        if self.state is not State.CONNECTED or switch is None:
            return False
        if any(entry.owner in self.failed for entry in (*before.values(), *after.values())):
            # The switch does not hold the entries of `before`: read it back.
            self._resync.set()
            return False
        pending = changes(before, after)
        if not pending:
            return True
        try:
            with access.connected():
                refusals = await self._write_or_undo(switch, before, pending, fresh)
        except (fy.P4ClientError, access.ConnectionClosedError, RuntimeError) as error:
            _LOG.warning("switch %s: write broken off: %s", self.config.name, error)
            self._connection.held = None
            self._connection.set_state(State.PENDING)
            self._resync.set()
            return False
        except BaseException:
            # Cancelled at an unknown point: the next reconcile reads the switch back.
            self._connection.held = None
            self._resync.set()
            raise
        if refusals:
            raise SwitchRefusedError(refusals)
        if self._connection.held is not None:
            carry_out(pending, self._connection.held)
        if self.failed and any(change.row.table == PORTS for change in pending):
            # A failed resource may fit the new line rate.
            self._resync.set()
        return True

    async def _write_or_undo(
        self, switch: fy.Switch, before: Rows, pending: Sequence[Change], fresh: Iterable[int]
    ) -> list[Refusal]:
        """Write all changes of `before`, or none if some are refused; return the refusals."""
        await access.reset_classes(switch, fresh)
        refusals = await self._write(switch, pending)
        if refusals:
            # Compute the undo in the same way, from the accepted entries to the former ones.
            taken = dict(before)
            lost = {refusal.row.key for refusal in refusals}
            carry_out((change for change in pending if change.row.key not in lost), taken)
            if await self._write(switch, changes(taken, before)):
                self._resync.set()
        return refusals

    def mend(self) -> None:
        """Reconcile the switch soon (`southbound.Driver.mend`)."""
        self._resync.set()

    # ---- reading ----

    def _online(self) -> fy.Switch | None:
        return None if self.state is State.PENDING else self._connection.switch

    async def registers(self, name: str, indices: Iterable[int]) -> dict[int, int] | None:
        """Return register cells by index; None when not connected or not readable."""
        switch = self._online()
        if switch is None:
            return None
        return await access.registers(switch, self.schema, name, indices)

    @property
    def bottleneck_ports(self) -> Collection[int]:
        """The ports with a virtual bottleneck (`southbound.Measuring.bottleneck_ports`)."""
        return self.config.wired_ports if self.config.bottleneck_bps is not None else ()

    @property
    def measured_flows(self) -> Collection[str]:
        """The names of the measured flows (`southbound.Measuring.measured_flows`)."""
        return self.config.measured

    def bottleneck_bps(self, of: int | str) -> int | None:
        """Return the rate of a virtual bottleneck (`southbound.Measuring.bottleneck_bps`)."""
        own = self.config.measured[of].bottleneck if isinstance(of, str) else None
        return own or self.config.bottleneck_bps

    async def bandwidth(
        self, port: int, from_ns: int = 0, to_ns: int | None = None
    ) -> dict[str, Any] | None:
        """Return the bandwidth of a port (`southbound.Measuring.bandwidth`)."""
        found = await bandwidth.read(self.registers, port, from_ns, to_ns)
        return found and {"bottleneck_bps": self.config.bottleneck_bps, **found}

    async def queue(self, port: int) -> VirtualQueue | None:
        """Return the queue of a virtual bottleneck (`southbound.Measuring.queue`)."""
        return await bandwidth.queue(self.registers, port)

    async def burstiness(
        self, of: int | str, from_ns: int = 0, to_ns: int | None = None
    ) -> Measured | None:
        """Return the burstiness of a port or flow (`southbound.Measuring.burstiness`)."""
        slot = self.config.slot_of(of) if isinstance(of, str) else of
        kept_cells = self.schema.registers["GtrcnetIngress.kept_ns"].size
        return await burstiness.read(self.registers, kept_cells, slot, from_ns, to_ns)

    async def read(self, classes: Sequence[int]) -> Reading:
        """Read counters (`southbound.Driver.read`)."""
        switch = self._online()
        if switch is None:
            return Reading()
        paces = self.capabilities.paces
        reading = Reading()
        traffic = await self._traffic_statistics(classes if paces else [])
        if traffic is not None:
            reading.now_ns = traffic["switch"]["now_ns"]
            reading.ports = {port["port"]: port for port in traffic["ports"]}
            reading.totals = traffic["switch"]
        if paces:
            await self._read_pacer(switch, classes, traffic, reading)
        elif self.capabilities.measures and reading.now_ns is not None:
            ports = self.config.wired_ports
            found = await bandwidth.bottlenecks(self.registers, ports, reading.now_ns)
            if found is not None:
                bps = self.config.bottleneck_bps
                reading.bottlenecks = [{**port, "bottleneck_bps": bps} for port in found]
        return reading

    async def _read_pacer(
        self,
        switch: fy.Switch,
        classes: Sequence[int],
        traffic: dict[str, Any] | None,
        reading: Reading,
    ) -> None:
        counters = await access.counters(switch, self.schema, classes)
        reading.drops, reading.flows = counters.drops, counters.flows
        clocks: dict[int, int] = {}
        if traffic is not None:
            clocks = await self.registers("PacerIngress.clock_ns", classes) or {}
        flows = await self._flows_seen(classes) if traffic is not None else {}
        states = traffic["classes"] if traffic is not None else {}
        now_ns = reading.now_ns or 0
        reading.classes = {
            index: {
                **{label: counts.get(index) for label, counts in counters.classes.items()},
                "backlog_bytes": states.get(index, {}).get("backlog_bytes"),
                "held_packets": states.get(index, {}).get("held_packets"),
                "owed_ns": max(0, clocks[index] - now_ns) if index in clocks else None,
                **{label: values.get(index) for label, values in flows.items()},
            }
            for index in classes
        }

    async def _flows_seen(self, classes: Iterable[int]) -> dict[str, dict[int, int]]:
        """Return the last state of flows by label and class, of classes that follow flows."""
        wanted = self._context.wanted()
        rows = {index: wanted.get((CLASSES, (("class_id", index),), 0)) for index in classes}
        following = [
            index
            for index, row in rows.items()
            if row is not None and row.action in entries.FOLLOWING_ACTIONS
        ]
        if not following:
            return {}
        return {
            label: await self.registers(register, following) or {}
            for label, register in access.CLASS_FLOWS.items()
        }

    async def _traffic_statistics(self, classes: Sequence[int]) -> dict[str, Any] | None:
        """Return the traffic manager's statistics; None when there is none to ask."""
        if self._connection.traffic is None:
            return None
        try:
            return await self._connection.traffic.statistics(classes)
        except ServiceUnavailableError as error:
            if error.unimplemented:
                return None
            raise SwitchUnreadableError(str(error)) from None

    async def refresh_ports(self) -> None:
        """Update `ports` from the switch (`southbound.Driver.refresh_ports`)."""
        if self._online() is not None:
            try:
                if await self._refresh_ports():
                    # The reconcile updates the flooding groups.
                    self._resync.set()
            except RuntimeError as error:
                self._connection.note(str(error), loud=False)
            else:
                return
        self.ports = [replace(port, up=None) for port in self.ports]


def _primary(switch: fy.Switch) -> Primary:
    return Primary(switch.device_id, switch.election_id, switch.role_name)


def _replica(replica: object) -> tuple[int, int]:
    if isinstance(replica, int):
        return (replica, 0)
    return (int(replica.port), int(replica.instance))  # type: ignore[attr-defined]


def _without(pending: Iterable[Change], owners: Mapping[str, str]) -> list[Change]:
    """Leave out changes of entries of some owners; the switch keeps their entries."""
    return [change for change in pending if change.row.owner not in owners]


_LEARNED = (entries.FORWARD, entries.SOURCES)


def _shown(entry: Row | None) -> dict[str, Any] | None:
    """Return an entry's action and parameters, for people."""
    return None if entry is None else {"action": entry.action, **dict(entry.params)}

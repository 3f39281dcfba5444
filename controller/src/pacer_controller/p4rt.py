"""One switch over P4Runtime: connection, pipeline, reconciling, learning, counters.

`P4Switch.run` keeps a connection for as long as it lives: connect, become primary, push the
pipeline if the switch has another one, read back what the switch holds and write the
differences, then serve until the connection breaks, and start again. Whether a request reaches
the switch at once (`apply`) or with the next reconcile, the same computation says what to write.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import finsy as fy
from finsy.proto import p4r

from pacer_controller import entries, learning, rates
from pacer_controller.config import SwitchConfig
from pacer_controller.entries import Change, Op, Row, Rows
from pacer_controller.traffic_manager import (
    PortInfo,
    TrafficManager,
    TrafficManagerUnavailableError,
)

_LOG = logging.getLogger(__name__)

WRITE_BATCH = 500
"""Updates in one WriteRequest: well under gRPC's 4 MB message limit."""

READ_BATCH = 1000
"""Entities in one ReadRequest."""

PACKET_QUEUE = 4096
"""Packets from unknown sources that wait for the controller; more are dropped by finsy, which
says so. A lost one costs nothing: the station's next packet comes up again."""

LEARN_BATCH = 64
"""Packets learned from with one WriteRequest."""

FIRST_ELECTION_ID = 10
"""Where bidding starts; each further controller of the same switch goes one lower."""

CONNECT_S = 30.0
"""Longest time from connecting to having the pipeline in place."""

PORT_POLL_S = 5.0
RECONCILE_PASSES = 3
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 1.0
RETRY_REFUSED_S = 5.0
"""Pause after a switch refused the pipeline or broke the protocol: trying at once helps nobody."""

_GONE = {
    fy.GRPCStatusCode.UNAVAILABLE,
    fy.GRPCStatusCode.DEADLINE_EXCEEDED,
    fy.GRPCStatusCode.CANCELLED,
    # Somebody else became primary while we wrote.
    fy.GRPCStatusCode.PERMISSION_DENIED,
}


class State(Enum):
    """How the switch is doing, for clients."""

    PENDING = "pending"
    """Not connected, or connected and not yet reconciled; what is asked is kept for later."""
    CONNECTED = "connected"
    """Holds the desired state."""
    BACKUP = "backup"
    """Another controller is primary; what is asked is kept for later."""


@dataclass(frozen=True)
class Refusal:
    """A write that the switch refused: which entry, why."""

    row: Row
    message: str
    table_full: bool


class SwitchRefusedError(Exception):
    """The switch refused one or more writes of a request."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{r.row.owner}: {r.message}" for r in refusals[:3]))
        self.refusals = refusals


@dataclass
class SwitchCounters:
    """What happened to one switch since the controller started."""

    connects: int = 0
    disconnects: int = 0
    reconciles: int = 0
    reconcile_writes: int = 0
    drift_entries: int = 0
    """Entries that a periodic reconcile found changed by somebody else, and mended."""
    refused_writes: int = 0


@dataclass(frozen=True)
class Count:
    """A P4 counter cell: packets and layer-2 bytes without FCS."""

    packets: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, data: fy.P4CounterData | None) -> "Count":
        """Return what was read; nothing read is zero."""
        return cls() if data is None else cls(data.packet_count, data.byte_count)


class _LastErrors(logging.Handler):
    """Remembers why finsy gave a switch up: it logs the exception and raises a cancellation."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL)
        self.by_switch: dict[str, BaseException] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception under the switch's name, from a task name "fy:NAME|..."."""
        if record.exc_info and record.exc_info[1] and record.args:
            task = str(record.args[0]) if isinstance(record.args, tuple) else ""
            name = task.removeprefix("fy:").partition("|")[0]
            self.by_switch[name] = record.exc_info[1]


_last_errors = _LastErrors()
logging.getLogger("finsy").addHandler(_last_errors)


class P4Switch:
    """One P4Runtime switch.

    Args:
        config: which switch.
        compiled: directory of compiled programs.
        wanted: returns the desired entries of `classes` and `flows` at the moment of the call.
        lock: held while desired state and switch must not move against each other.
        reconcile_interval_s: how often the switch is read back for foreign changes; 0 never.

    Raises:
        ConfigError: the program's files are missing.

    """

    def __init__(
        self,
        config: SwitchConfig,
        compiled: Path,
        wanted: Callable[[], Rows],
        lock: asyncio.Lock,
        reconcile_interval_s: float = 30.0,
    ) -> None:
        self.config = config
        self.counters = SwitchCounters()
        self.ports: list[PortInfo] = [PortInfo(number) for number in config.ports]
        self.last_error: str | None = None
        self.failed: dict[str, str] = {}
        self._wanted = wanted
        self._lock = lock
        self._interval_s = reconcile_interval_s
        self._json_path, self._p4info_path = config.files(compiled)
        self._state = State.PENDING
        self._switch: fy.Switch | None = None
        self._traffic: TrafficManager | None = None
        self._election_id = FIRST_ELECTION_ID
        self._resync = asyncio.Event()
        self._changed = asyncio.Event()
        self.schema = fy.P4Schema(self._p4info_path)
        tables = {table.name: table.size for table in self.schema.tables}
        self.paces = entries.CLASSES in tables and entries.FLOWS in tables
        self.measures = entries.MONITOR in tables
        self._forwards = entries.FORWARD in tables and entries.SOURCES in tables
        self.flow_capacity = tables.get(entries.FLOWS, 0)
        self.class_capacity = 0
        if self.paces:
            cells = self.schema.counters["PacerIngress.class_accepted"].size
            # Class 0 is what matches no flow.
            self.class_capacity = min(tables[entries.CLASSES], cells) - 1
        capacity = min(tables.get(entries.FORWARD, 0), tables.get(entries.SOURCES, 0))
        self.learning = learning.Learning(capacity, pinned=config.stations)

    @property
    def state(self) -> State:
        """How the switch is doing."""
        return self._state

    @property
    def name(self) -> str:
        """The switch's name."""
        return self.config.name

    def _set_state(self, state: State) -> None:
        if state is not self._state:
            _LOG.info("switch %s: %s", self.name, state.value)
            self._state = state
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait_for(self, state: State) -> None:
        """Wait until the switch is in that state."""
        while self._state is not state:
            await self._changed.wait()

    # ---- connection ----

    async def run(self) -> None:
        """Keep the switch connected and reconciled until cancelled."""
        task = asyncio.current_task()
        retry_s = RETRY_FIRST_S
        while True:
            _last_errors.by_switch.pop(self.name, None)
            began = time.monotonic()
            refused = False
            try:
                await self._session()
            except asyncio.CancelledError:
                if task is not None and task.cancelling():
                    raise
                # finsy cancels its own connecting task when a later step fails; unless the
                # switch just went away, it says why (below).
            except fy.P4ClientError as error:
                if not _election_id_taken(error):
                    refused = error.code not in _GONE
                    self._note(_describe(error), refused)
            except TimeoutError:
                refused = True
                self._note(f"no answer within {CONNECT_S:g} s", refused)
            except Exception as error:
                # Whatever happens to one connection, the next one is tried.
                refused = True
                self._note_unexpected(error)
            finally:
                self._set_state(State.PENDING)
                self._switch = None
                if self._traffic is not None:
                    await self._traffic.close()
                    self._traffic = None
            cause = _last_errors.by_switch.pop(self.name, None)
            if _election_id_taken(cause):
                # Another controller has it: stand behind that one, at once.
                lower = self._election_id - 1
                self._election_id = lower if lower > 0 else FIRST_ELECTION_ID
                refused = False
            elif cause is not None:
                refused = True
                self._note_unexpected(cause)
            if time.monotonic() - began > 2.0:
                retry_s = RETRY_FIRST_S
            await asyncio.sleep(RETRY_REFUSED_S if refused else retry_s)
            retry_s = min(retry_s * 2, RETRY_MOST_S)

    def _note(self, message: str, loud: bool) -> None:
        if loud or message != self.last_error:
            level = logging.ERROR if loud else logging.WARNING
            _LOG.log(level, "switch %s at %s: %s", self.name, self.config.address, message)
        self.last_error = message

    def _note_unexpected(self, error: BaseException) -> None:
        """Note what the switch said, or with its trace what went wrong here."""
        if isinstance(error, fy.P4ClientError):
            self._note(_describe(error), loud=True)
            return
        self._note(str(error) or type(error).__name__, loud=True)
        if not isinstance(error, (RuntimeError, OSError)):
            _LOG.error("switch %s: unexpected", self.name, exc_info=error)

    async def _session(self) -> None:
        """Connect once and stay until the connection breaks."""
        options = fy.SwitchOptions(
            p4info=self._p4info_path,
            p4blob=self._json_path,
            device_id=self.config.device_id,
            initial_election_id=self._election_id,
            ready_handler=self._ready,
        )
        switch = fy.Switch(self.name, self.config.address, options)
        down = asyncio.Event()
        switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, lambda _: down.set())
        self._traffic = TrafficManager(self.config.address)
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_S):
                await stack.enter_async_context(switch)
            self._switch = switch
            self._election_id = FIRST_ELECTION_ID
            self.counters.connects += 1
            try:
                await down.wait()
            finally:
                self.counters.disconnects += 1

    async def _ready(self, switch: fy.Switch) -> None:
        """Serve while primary (or backup); finsy cancels this when the role changes."""
        self._switch = switch
        self.last_error = None
        await self._refresh_ports()
        if not switch.is_primary:
            self._set_state(State.BACKUP)
            return
        self._resync.clear()
        learn = None
        if self._forwards:
            learn = switch.create_task(self._learn(switch), name="learn")
        try:
            async with self._lock:
                await self._reconcile(switch, drift=False)
                self._set_state(State.CONNECTED)
            poll = switch.create_task(self._poll_ports(switch), name="ports")
            try:
                await self._keep_reconciled(switch)
            finally:
                poll.cancel()
        finally:
            if learn is not None:
                learn.cancel()
            self._set_state(State.PENDING)

    async def _keep_reconciled(self, switch: fy.Switch) -> None:
        while True:
            timeout = self._interval_s if self._interval_s > 0 else None
            drift = False
            try:
                await asyncio.wait_for(self._resync.wait(), timeout)
            except TimeoutError:
                drift = True
            self._resync.clear()
            async with self._lock:
                await self._reconcile(switch, drift=drift)
                self._set_state(State.CONNECTED)

    # ---- ports and multicast groups ----

    async def _refresh_ports(self) -> bool:
        """Ask the switch for its ports; returns whether their numbers changed."""
        if self.config.ports or self._traffic is None:
            return False
        try:
            ports = await self._traffic.ports()
        except TrafficManagerUnavailableError as error:
            if error.unimplemented:
                if not self.ports:
                    self._note("the switch cannot list its ports: give them as ports=1-4", True)
                return False
            raise RuntimeError(f"ListPorts: {error}") from None
        changed = [port.port for port in ports] != [port.port for port in self.ports]
        self.ports = ports
        return changed

    async def ports_now(self) -> list[PortInfo]:
        """Return the ports as they are at this moment.

        Whether a port is up is only known from the switch: while it does not answer, `up` is None
        and the rest is what was known last.
        """
        if self._online() is not None:
            try:
                if await self._refresh_ports():
                    # The flooding groups follow.
                    self._resync.set()
            except RuntimeError as error:
                self._note(str(error), loud=False)
            else:
                return self.ports
        return [replace(port, up=None) for port in self.ports]

    async def _poll_ports(self, switch: fy.Switch) -> None:
        while True:
            await asyncio.sleep(PORT_POLL_S)
            try:
                changed = await self._refresh_ports()
            except RuntimeError as error:
                # Whether the switch is gone is for the P4Runtime stream to say.
                self._note(str(error), loud=False)
                continue
            if changed:
                _LOG.info("switch %s: ports %s", self.name, [port.port for port in self.ports])
                await self._write_groups(switch)

    async def _write_groups(self, switch: fy.Switch) -> None:
        """Make the flooding groups hold the ports.

        Every replica has instance 1: by its instance the program tells a flooded packet, which
        must not go back out of the port it came from.
        """
        if not self._forwards:
            return
        ports = [port.port for port in self.ports]
        wanted = {
            entries.FLOOD_GROUP: ports,
            entries.FLOOD_AND_LEARN_GROUP: [*ports, self.config.cpu_port],
        }
        present: dict[int, list[tuple[int, int]]] = {}
        async for group in _read(switch, [fy.P4MulticastGroupEntry()]):
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
            await switch.write(updates)

    # ---- reconciling ----

    async def _reconcile(self, switch: fy.Switch, *, drift: bool) -> None:
        """Read the switch back and write the differences; the caller holds the lock."""
        self.counters.reconciles += 1
        await self._write_groups(switch)
        refusals: list[Refusal] = []
        for _ in range(RECONCILE_PASSES):
            pending = await self._differences(switch)
            if not pending:
                refusals = []
                break
            if drift:
                self.counters.drift_entries += len(pending)
                _LOG.warning(
                    "switch %s: %d entries changed by somebody else, mending",
                    self.name,
                    len(pending),
                )
            self.counters.reconcile_writes += len(pending)
            await self._zero_counters(switch, _new_classes(pending))
            refusals = await self._write(switch, pending)
            if not refusals:
                break
        self.failed = {refusal.row.owner: refusal.message for refusal in refusals}
        for refusal in refusals[:10]:
            _LOG.error("switch %s: %s: %s", self.name, refusal.row.owner, refusal.message)

    async def _differences(self, switch: fy.Switch) -> list[Change]:
        """Return the writes that make the switch hold what it should."""
        if self.paces:
            current = entries.by_key(
                [
                    *await self._read_table(switch, entries.CLASSES),
                    *await self._read_table(switch, entries.FLOWS, meters=True),
                ]
            )
            pending = entries.changes(current, self._wanted())
            stations = [
                *await self._read_table(switch, entries.FORWARD),
                *await self._read_table(switch, entries.SOURCES),
            ]
            return [*pending, *self.learning.adopt(stations)]
        if self.measures:
            current = entries.by_key(
                [
                    *await self._read_table(switch, entries.WIRE),
                    *await self._read_table(switch, entries.MONITOR),
                ]
            )
            return entries.changes(current, self._wire_rows())
        return []

    def _wire_rows(self) -> Rows:
        """Return gtrcnet's entries, from the configuration."""
        rows: list[Row] = []
        rate_bps = self.config.bottleneck_bps
        for pair in self.config.wire:
            for port, other in (pair, pair[::-1]):
                key: dict[str, entries.MatchValue] = {"ingress_port": port}
                owner = f"wire {pair[0]}:{pair[1]}"
                rows.append(entries.row(entries.WIRE, key, "send_to", {"port": other}, owner=owner))
                if rate_bps is not None:
                    params = {"bytes_per_ns_q24": rates.bytes_per_ns_q24(rate_bps)}
                    rows.append(entries.row(entries.MONITOR, key, "measure", params, owner=owner))
        return entries.by_key(rows)

    async def _read_table(
        self, switch: fy.Switch, table: str, *, meters: bool = False
    ) -> list[Row]:
        query = fy.P4TableEntry(table)
        if meters:
            # Asking for a direct resource: set it in the query (P4Runtime 9.1.4).
            query.meter_config = fy.P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0)
        return [
            entries.from_finsy(entry, self.schema)
            async for entry in _read(switch, [query])
            if not entry.is_default_action
        ]

    async def _write(self, switch: fy.Switch, pending: Sequence[Change]) -> list[Refusal]:
        """Write changes in order; returns those refused.

        Raises:
            fy.P4ClientError: the connection is gone; what was written is not known.

        """
        refusals: list[Refusal] = []
        for start in range(0, len(pending), WRITE_BATCH):
            batch = pending[start : start + WRITE_BATCH]
            try:
                await switch.write([_update(change) for change in batch])
            except fy.P4ClientError as error:
                if error.code in _GONE:
                    raise
                refusals += _refusals(error, batch)
        self.counters.refused_writes += len(refusals)
        return refusals

    # ---- requests ----

    async def apply(self, before: Rows, after: Rows, *, fresh: Iterable[int] = ()) -> bool:
        """Bring one request's change to the switch; the caller holds the lock.

        Args:
            before: entries of the resources concerned, as they were.
            after: the same, as they shall be.
            fresh: classes that are new, whose counters start at zero.

        Returns:
            Whether the switch has it now; if not, the next reconcile brings it.

        Raises:
            SwitchRefusedError: the switch refused it; what it had taken is undone.

        """
        switch = self._switch
        if self._state is not State.CONNECTED or switch is None:
            return False
        if any(entry.owner in self.failed for entry in (*before.values(), *after.values())):
            # What the switch holds of it is not what `before` says: read it back.
            self._resync.set()
            return False
        pending = entries.changes(before, after)
        if not pending:
            return True
        try:
            await self._zero_counters(switch, fresh)
            refusals = await self._write(switch, pending)
            if refusals:
                # Undo by the same computation: from what was taken back to what was.
                taken = dict(before)
                lost = {refusal.row.key for refusal in refusals}
                for change in pending:
                    if change.row.key in lost:
                        continue
                    if change.op is Op.DELETE:
                        taken.pop(change.row.key, None)
                    else:
                        taken[change.row.key] = change.row
                if await self._write(switch, entries.changes(taken, before)):
                    self._resync.set()
        except (fy.P4ClientError, AssertionError, RuntimeError) as error:
            # The connection went; finsy asserts when it is closed in between.
            _LOG.warning("switch %s: write broken off: %s", self.name, error)
            self._set_state(State.PENDING)
            self._resync.set()
            return False
        if refusals:
            raise SwitchRefusedError(refusals)
        return True

    async def _zero_counters(self, switch: fy.Switch, classes: Iterable[int]) -> None:
        """Start a new class's counters at zero: its index may have served another before."""
        updates = [
            ~fy.P4CounterEntry(counter, index=index, data=fy.P4CounterData())
            for index in classes
            for counter in _CLASS_COUNTERS
        ]
        try:
            for start in range(0, len(updates), WRITE_BATCH):
                await switch.write(updates[start : start + WRITE_BATCH])
        except fy.P4ClientError as error:
            if error.code in _GONE:
                raise
            _LOG.warning("switch %s: counters not reset: %s", self.name, _describe(error))

    # ---- learning ----

    async def _learn(self, switch: fy.Switch) -> None:
        queue: asyncio.Queue[fy.P4PacketIn] = asyncio.Queue(PACKET_QUEUE)
        reader = switch.create_task(_fill(queue, switch), name="packets")
        try:
            while True:
                packets = [await queue.get()]
                while len(packets) < LEARN_BATCH and not queue.empty():
                    packets.append(queue.get_nowait())
                # Before the first reconcile it is not known what the switch knows.
                if self._state is State.CONNECTED:
                    await self._learn_from(switch, packets)
        finally:
            reader.cancel()

    async def _learn_from(self, switch: fy.Switch, packets: Sequence[fy.P4PacketIn]) -> None:
        full_before = self.learning.counters.table_full
        batch: list[Change] = []
        stations: dict[int, int] = {}
        for packet in packets:
            port = int(packet.metadata["ingress_port"])
            mac = int.from_bytes(packet.payload[6:12], "big")
            if mac in stations:
                # Moves within one batch wait for the next packet; repeats need nothing.
                self.learning.counters.repeated += 1
                continue
            changes = self.learning.packet(packet.payload, port)
            if changes:
                stations[mac] = port
                batch += changes
        refusals = await self._write(switch, batch) if batch else []
        refused = {_station_of(refusal.row): refusal for refusal in refusals}
        for mac, port in stations.items():
            refusal = refused.get(mac)
            if refusal is None:
                self.learning.learned(mac, port)
                _LOG.info("switch %s: %s is at port %d", self.name, learning.format_mac(mac), port)
                continue
            if refusal.table_full:
                self.learning.counters.table_full += 1
            else:
                self.learning.counters.failed += 1
                # Something the controller does not know of is in the tables: read them back.
                self._resync.set()
                _LOG.warning("switch %s: %s: %s", self.name, refusal.row.owner, refusal.message)
        full = self.learning.counters.table_full
        # A flood of addresses must not become a flood of lines.
        if full > full_before and (full_before == 0 or full // 1000 > full_before // 1000):
            _LOG.warning(
                "switch %s: station tables full (%d stations): %d packets not learned from",
                self.name,
                len(self.learning.ports),
                full,
            )

    # ---- reading ----

    def _online(self) -> fy.Switch | None:
        if self._state is State.PENDING:
            return None
        return self._switch

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (fy.P4ClientError, AssertionError) as error:
            text = _describe(error) if isinstance(error, fy.P4ClientError) else "connection closed"
            raise SwitchUnreadableError(text) from error

    async def class_counters(self, classes: Sequence[int]) -> dict[str, dict[int, Count]] | None:
        """Return the counters of classes, by name and class index; None when not connected."""
        switch = self._online()
        if switch is None or not self.paces:
            return None
        result: dict[str, dict[int, Count]] = {name: {} for name in _CLASS_COUNTERS}
        query = [fy.P4CounterEntry(name, index=i) for i in classes for name in _CLASS_COUNTERS]
        async for entry in self._read_all(switch, query):
            result[self._full_name(entry.counter_id)][entry.index] = Count.of(entry.data)
        return result

    async def drop_counters(self) -> dict[str, Count] | None:
        """Return the program's drops by cause; None when not connected."""
        switch = self._online()
        if switch is None or not self.paces:
            return None
        query = [fy.P4CounterEntry(_DROPS, index=index) for index in DROP_CAUSES]
        result = {}
        async for entry in self._read_all(switch, query):
            result[DROP_CAUSES[entry.index]] = Count.of(entry.data)
        return result

    async def flow_counters(self) -> dict[entries.Key, Count] | None:
        """Return the counters of flow entries, by entry; None when not connected."""
        switch = self._online()
        if switch is None or not self.paces:
            return None
        result: dict[entries.Key, Count] = {}
        query = fy.P4TableEntry(entries.FLOWS, counter_data=fy.P4CounterData())
        async for entry in self._read_all(switch, [query]):
            if not entry.is_default_action:
                result[entries.from_finsy(entry, self.schema).key] = Count.of(entry.counter_data)
        return result

    async def registers(self, name: str, indices: Iterable[int]) -> dict[int, int] | None:
        """Return register cells by index; None when not connected or not readable."""
        switch = self._online()
        if switch is None:
            return None
        number = self.schema.registers[name].id
        query = [
            p4r.Entity(
                register_entry=p4r.RegisterEntry(register_id=number, index=p4r.Index(index=i))
            )
            for i in indices
        ]
        result: dict[int, int] = {}
        try:
            async for entry in self._read_all(switch, query):
                result[entry.index] = int(entry.data)
        except SwitchUnreadableError as error:
            cause = error.__cause__
            if isinstance(cause, fy.P4ClientError) and _unimplemented(cause):
                return None
            raise
        return result

    async def _read_all(self, switch: fy.Switch, query: Sequence[object]) -> AsyncIterator[Any]:
        with self._reading():
            for start in range(0, len(query), READ_BATCH):
                async for entry in _read(switch, query[start : start + READ_BATCH]):
                    yield entry

    def _full_name(self, counter: str) -> str:
        return str(self.schema.counters[counter].name)

    async def traffic_statistics(self, classes: Sequence[int]) -> "dict[str, Any] | None":
        """Return the traffic manager's statistics; None when there is none to ask."""
        if self._traffic is None or self._online() is None:
            return None
        try:
            return await self._traffic.statistics(classes)
        except TrafficManagerUnavailableError as error:
            if error.unimplemented:
                return None
            raise SwitchUnreadableError(str(error)) from None


class SwitchUnreadableError(Exception):
    """The switch did not answer a question; the text says what it said instead."""


_CLASS_COUNTERS = (
    "PacerIngress.class_accepted",
    "PacerIngress.class_limit_drops",
    "PacerIngress.class_red_drops",
)

_DROPS = "PacerIngress.drops"

DROP_CAUSES = {
    1: "parser-error",
    2: "no-route",
    3: "class-limit",
    4: "meter-red",
    5: "hold-limit",
    6: "same-port",
}
"""Cells of the program's `drops` counter."""


async def _read(switch: fy.Switch, query: Sequence[Any]) -> AsyncIterator[Any]:
    """Read entities; finsy's own signature is one of coroutines, which it does not return."""
    answers: Any = switch.read(query)
    async for entity in answers:
        yield entity


async def _fill(queue: "asyncio.Queue[fy.P4PacketIn]", switch: fy.Switch) -> None:
    async for packet in switch.read_packets(queue_size=PACKET_QUEUE):
        await queue.put(packet)


def _replica(replica: object) -> tuple[int, int]:
    if isinstance(replica, int):
        return (replica, 0)
    return (int(replica.port), int(replica.instance))  # type: ignore[attr-defined]


def _update(change: Change) -> fy.P4TableEntry:
    if change.op is Op.DELETE:
        return -entries.identity_to_finsy(change.row)
    entry = entries.to_finsy(change.row)
    return +entry if change.op is Op.INSERT else ~entry


def _refusals(error: fy.P4ClientError, batch: Sequence[Change]) -> list[Refusal]:
    """Say which writes of a batch were refused; without details, all were."""
    full = fy.GRPCStatusCode.RESOURCE_EXHAUSTED
    if not error.details:
        return [Refusal(c.row, error.message, error.code == full) for c in batch]
    return [
        Refusal(
            batch[index].row,
            detail.message or detail.canonical_code.name,
            detail.canonical_code == full,
        )
        for index, detail in sorted(error.details.items())
        if index < len(batch)
    ]


def _election_id_taken(error: BaseException | None) -> bool:
    """Whether a switch refused because another live controller has the election id.

    Servers word it differently, and finsy knows the wording of two.
    """
    return (
        isinstance(error, fy.P4ClientError)
        and error.code == fy.GRPCStatusCode.INVALID_ARGUMENT
        and re.search(r"election.?id", error.message, re.IGNORECASE) is not None
    )


def _new_classes(pending: Iterable[Change]) -> list[int]:
    """Return the classes that changes bring into being."""
    return [
        int(value)
        for change in pending
        if change.op is Op.INSERT and change.row.table == entries.CLASSES
        for name, value in change.row.match
        if name == "class_id" and isinstance(value, int)
    ]


def _station_of(entry: Row) -> int:
    match = dict(entry.match)
    value = match.get("src_mac", match.get("dst_mac", 0))
    return value if isinstance(value, int) else value[0]


def _describe(error: fy.P4ClientError) -> str:
    if error.details:
        first = next(iter(error.details.values()))
        return f"{first.canonical_code.name}: {first.message}"
    return f"{error.code.name}: {error.message}"


def _unimplemented(error: fy.P4ClientError) -> bool:
    code = fy.GRPCStatusCode.UNIMPLEMENTED
    return error.code == code or any(d.canonical_code == code for d in error.details.values())

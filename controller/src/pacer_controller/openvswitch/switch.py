"""One bridge of Open vSwitch, configured over OpenFlow and OVSDB."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pacer_controller import egress_queues
from pacer_controller.config import OpenVSwitchConfig
from pacer_controller.openvswitch import flows, queues, refusals
from pacer_controller.openvswitch.openflow import (
    BATCH,
    OpenFlow,
    OpenFlowError,
    StaleRoleError,
)
from pacer_controller.openvswitch.ovsdb import (
    BridgePort,
    Database,
    OvsdbError,
    RefusedError,
    Snapshot,
    number,
)
from pacer_controller.records import Desired, Record
from pacer_controller.rows import (
    METERS,
    PORTS,
    QUEUES,
    Change,
    Row,
    Rows,
    by_key,
    carry_out,
    changes,
)
from pacer_controller.schemas import PAUSE_FRAMES
from pacer_controller.southbound import (
    Capabilities,
    Count,
    DriverContext,
    FenceError,
    Measuring,
    NotHeldError,
    PortInfo,
    Reading,
    Refusal,
    State,
    SwitchCounters,
    SwitchRefusedError,
    SwitchUnreadableError,
    Tracing,
    fence_of,
    generation_of,
)

_LOG = logging.getLogger(__name__)

QUEUES_MOST = 61_439
"""Most queues: linux-htb's classes have 16-bit numbers, and it needs some itself."""

FLOWS_MOST = 1_000_000

BIDS_MOST = 4
"""Most fencing numbers in a row; each is above the number that the bridge remembered."""

LOCK_POLL_S = 0.25
PROBE_S = 2.0
"""Period of probes of the database, which closes a connection after 5 s of silence."""

SETTLE_POLL_S = 0.05
"""Period at which the database is read until the switch has applied a write, in seconds."""

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 1.0

UNREACHED_S = 10.0
"""Time without an answer after which a bridge may go to another controller, in seconds."""

EVENT_ENTRIES = 20

_Result = TypeVar("_Result")


class OpenVSwitch:
    """One bridge.

    Args:
        config: the configuration of the bridge.
        context: the parts of the service that the driver uses.

    """

    def __init__(self, config: OpenVSwitchConfig, context: DriverContext) -> None:
        self.config = config
        self._context = context
        self.ports: list[PortInfo] = []
        self.last_error: str | None = None
        self.failed: dict[str, str] = {}
        self.counters = SwitchCounters()
        self.state = State.PENDING
        self.capabilities = _capabilities(config.qos_type)
        self._database = Database(
            config.ovsdb, config.bridge, config.name, lambda: context.tenure.held
        )
        # One thread: the database's connection is used by one call at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"ovsdb {config.name}")
        self._openflow: OpenFlow | None = None
        self._qos_type: str | None = None
        self._refused: dict[str, str] = {}
        self._refused_entries: dict[str, str] = {}
        self._unsettled = asyncio.Event()
        self._resync = asyncio.Event()
        self._held: Rows | None = None

    @property
    def reachable(self) -> bool:
        """Whether the bridge is connected, or no attempt to connect has been made yet."""
        return self._openflow is not None or self.last_error is None

    @property
    def measuring(self) -> Measuring | None:
        """None: Open vSwitch does not measure."""
        return None

    @property
    def tracing(self) -> Tracing | None:
        """None: Open vSwitch has its own command, `ovs-appctl ofproto/trace`."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return the members that only Open vSwitch has."""
        connection = self._openflow
        return {
            "dpid": f"{connection.datapath_id:016x}" if connection is not None else None,
            "program": "Open vSwitch",
            "qos_type_in_use": self._qos_type,
            "qos_refused": dict(self._refused),
        }

    def rows(self, record: Record, desired: Desired) -> list[Row]:
        """Return the entries of a resource."""
        return flows.record_rows(record, desired)

    def _set_state(self, state: State) -> None:
        if state is not self.state:
            name = self.config.name
            _LOG.info("switch %s: %s", name, state.value)
            data = {"from": self.state.value, "to": state.value, "reason": self.last_error}
            self.state = state
            self._context.notify("switch-state", f"switch {name} is {state.told}", data)

    async def _in_thread(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)

    # ---- connection ----

    async def run(self) -> None:
        """Keep the bridge connected and reconciled until cancelled."""
        retry_s = RETRY_FIRST_S
        failing_s: float | None = None
        """The time when the first attempt since the last connection began."""
        try:
            while True:
                changed = False
                began_s = time.monotonic()
                try:
                    changed = await self._session()
                except NotHeldError:
                    self.last_error = None
                    began_s = time.monotonic()
                except (OSError, OpenFlowError, OvsdbError, FenceError) as error:
                    text = str(error) or type(error).__name__
                    if text != self.last_error:
                        _LOG.warning("switch %s: %s", self.config.name, text)
                    self.last_error = text
                except Exception as error:
                    # The loop must try to connect again after any error.
                    self.last_error = str(error) or type(error).__name__
                    _LOG.exception("switch %s: unexpected", self.config.name)
                finally:
                    if self._openflow is not None:
                        # The bridge has answered up to now.
                        began_s, failing_s = time.monotonic(), None
                        retry_s = RETRY_FIRST_S
                        self.counters.disconnects += 1
                    self._openflow = None
                    self._held = None
                    self._qos_type = None
                    self._set_state(State.PENDING)
                if changed:
                    continue
                if time.monotonic() - (failing_s := failing_s or began_s) > UNREACHED_S:
                    self._context.tenure.reaches(False)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_MOST_S)
        finally:
            self._database.close()
            self._thread.shutdown(wait=False)

    async def _session(self) -> bool:
        """Connect once, and drive the bridge or stand by; return True when the turn came."""
        fence = await self._own()
        async with OpenFlow.connect(self.config.openflow) as connection:
            if fence is None:
                await self._stand_by(connection)
                return True
            await self._lead(connection, fence)
            self._note_connected(connection)
            await self._serve(connection)
        return False

    def _note_connected(self, connection: OpenFlow) -> None:
        self._openflow = connection
        self.counters.connects += 1
        self._context.tenure.reaches(True)

    async def _own(self) -> int | None:
        """Take the bridge, and return its fencing number; None if another controller drives it."""
        tenure = self._context.tenure
        if not tenure.held or not await self._lock():
            await self._in_thread(self._database.release)
            return None
        fence = await tenure.bid()
        for _ in range(BIDS_MOST):
            above = await self._in_thread(self._database.fence, fence)
            if not above:
                break
            fence = await tenure.bid(above)
        await self._choose_type()
        return fence

    async def _lock(self) -> bool:
        """Take the bridge's lock; return whether this controller has it."""
        steal = self._context.tenure.exclusive
        return await self._in_thread(partial(self._database.lock, steal=steal))

    async def _choose_type(self) -> None:
        """Choose the type of the queues, on which the bridge's capabilities depend.

        Raises:
            OvsdbError: the database does not answer, or has no such bridge.

        """
        best = await self._in_thread(self._database.qos_type)
        self._qos_type = best if self.config.qos_type == "auto" else self.config.qos_type
        self.capabilities = _capabilities(self._qos_type)

    async def _stand_by(self, connection: OpenFlow) -> None:
        """Only read the bridge until this controller may drive it.

        So a backup knows what the bridge is capable of, has its counters, and notices whether the
        bridge answers it, also after it has failed to drive it.

        Raises:
            OpenFlowError, OvsdbError: the bridge does not answer any longer.

        """
        async with self._context.permits.permit():
            await self._choose_type()
            self._note_connected(connection)
        interval_s = self._context.reconcile_interval_s or None
        self.last_error = None
        self._set_state(State.BACKUP)
        closed = asyncio.create_task(connection.closed.wait())
        probe = asyncio.create_task(self._probe(connection))
        turn = asyncio.create_task(self._turn())
        try:
            ends: set[asyncio.Task[Any]] = {closed, turn}
            while not any(end.done() for end in ends):
                await self.refresh_ports()
                await asyncio.wait(ends, timeout=interval_s, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise OpenFlowError("connection closed")
            turn.result()
        finally:
            for task in (closed, probe, turn):
                task.cancel()

    async def _turn(self) -> None:
        """Wait until this controller may drive the bridge.

        Raises:
            OvsdbError: the database does not answer.

        """
        tenure = self._context.tenure
        if not tenure.held:
            await tenure.becomes(True)
            return
        # Without a lease the bridge's lock decides.
        await asyncio.sleep(LOCK_POLL_S)
        while not await self._lock():
            await self._in_thread(self._database.release)
            await asyncio.sleep(LOCK_POLL_S)

    async def _lead(self, connection: OpenFlow, fence: int) -> None:
        """Become the bridge's master, so that former masters may no longer write."""
        for _ in range(BIDS_MOST):
            try:
                await connection.become_master(generation_of(fence))
            except StaleRoleError as error:
                fence = await self._context.tenure.bid(fence_of(error.generation, fence))
                await self._in_thread(self._database.fence, fence)
            else:
                return
        raise OpenFlowError("the bridge takes no generation id of this controller")

    async def _until_over(self, connection: OpenFlow) -> None:
        """Wait until the connection is closed, or this controller may no longer write."""
        ends = [
            asyncio.create_task(end)
            for end in (connection.closed.wait(), self._context.tenure.becomes(False))
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _probe(self, connection: OpenFlow) -> None:
        """Probe the database, to keep the connection that this controller's ownership needs."""
        with contextlib.suppress(OvsdbError, OpenFlowError):
            while True:
                await asyncio.sleep(PROBE_S)
                await connection.echo()
                await self._in_thread(self._database.probe)
        connection.closed.set()

    async def _settle(self) -> None:
        """Read the switch's refusals after it has applied the writes to the database."""
        while True:
            await self._unsettled.wait()
            await asyncio.sleep(SETTLE_POLL_S)
            await self.refresh_ports()
            self._find_failed()

    async def _serve(self, connection: OpenFlow) -> None:
        closed = asyncio.create_task(self._until_over(connection))
        probe = asyncio.create_task(self._probe(connection))
        settle = asyncio.create_task(self._settle())
        try:
            while not closed.done():
                self._resync.clear()
                async with self._context.permits.permit(), self._context.lock:
                    await self._reconcile(connection)
                    self.last_error = None
                    self._set_state(State.CONNECTED)
                timeout = self._context.reconcile_interval_s or None
                resync = asyncio.create_task(self._resync.wait())
                try:
                    await asyncio.wait(
                        {resync, closed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    resync.cancel()
            raise OpenFlowError("connection closed")
        finally:
            closed.cancel()
            probe.cancel()
            settle.cancel()

    # ---- reconciling ----

    async def _reconcile(self, connection: OpenFlow) -> None:
        """Read the bridge back and write the differences; the caller holds the lock."""
        self.counters.reconciles += 1
        wanted = self._context.wanted()
        written = await self._sync(wanted)
        known = self._held is not None
        foreign = [f"database: {one}" for one in written] if known else []
        current_flows, _ = await connection.read_flows()
        current = by_key([*current_flows, *await connection.read_meters()])
        if self._held is not None:
            held = _openflow_rows(self._held)
            foreign += [change.row.owner for change in changes(current, held)]
        pending = changes(current, _openflow_rows(wanted))
        refused = await self._write(connection, pending)
        self.counters.refused_writes += len(refused)
        self.counters.reconcile_writes += len(pending) + len(written)
        self._held = dict(wanted)
        if foreign:
            self._report_drift(foreign, len(pending) + len(written), mended=not refused)
        self._refused_entries = {refusal.row.owner: refusal.message for refusal in refused}
        self._find_failed()

    async def _write(self, connection: OpenFlow, pending: Sequence[Change]) -> list[Refusal]:
        """Write flows and meters while this controller may write; return the refusals.

        Raises:
            NotHeldError: it may not, or no longer; the changes before may have been made.
            OpenFlowError: the connection is gone.

        """
        refused: list[Refusal] = []
        for start in range(0, max(1, len(pending)), BATCH):
            # The answer to the batch before may have been late by any time.
            if not self._context.tenure.held:
                raise NotHeldError(self.config.name)
            if pending:
                refused += await connection.write(pending[start : start + BATCH])
        return refused

    def _find_failed(self) -> None:
        """Collect the resources that the switch does not have, and report new ones."""
        failed = dict(self._refused_entries)
        if self._refused:
            failed |= refusals.by_owner(self._refused, self.ports, self._context.wanted())
        failed |= self._context.unfit()
        for owner, reason in failed.items():
            if owner not in self.failed:
                message = f"switch {self.config.name} does not have {owner}: {reason}"
                self._context.notify("failed", message, {"resource": owner, "reason": reason})
        self.failed = failed

    def _report_drift(self, owners: Sequence[str], writes: int, *, mended: bool) -> None:
        self.counters.drift_entries += len(owners)
        name = self.config.name
        message = f"switch {name}: {len(owners)} entries changed by somebody else"
        _LOG.warning("%s, mending", message)
        listed = [{"owner": owner} for owner in owners[:EVENT_ENTRIES]]
        self._context.notify("drift", message, {"entries": listed, "count": len(owners)})
        if mended:
            self._context.notify("mended", f"switch {name} holds it again", {"writes": writes})

    async def _sync(self, wanted: Rows) -> list[str]:
        """Write the database's part of the desired state; return descriptions of the writes."""
        kind = self._qos_type or "linux-htb"
        await self.refresh_ports()
        # A class that is too fast for every port keeps its former settings.
        unfit = self._context.unfit()
        of_queues, of_ports = (_by_number(wanted, table) for table in (QUEUES, PORTS))
        kept = {queue for queue, row in of_queues.items() if row.owner in unfit}
        of_classes = {
            queue: flows.queue_settings(row, kind)
            for queue, row in of_queues.items()
            if queue not in kept
        }
        ports = {port: _port_settings(row) for port, row in of_ports.items()}
        # Egress queues that the bridge cannot have are left out; their port has failed.
        egress = {
            port: asked
            for port, row in of_ports.items()
            if row.owner not in unfit and (asked := _egress_queues(row)) is not None
        }
        for port, asked in egress.items():
            ports[port]["scheduler"] = queues.scheduler(asked)
        own = {port: queues.settings(asked) for port, asked in egress.items()}
        written = await self._in_thread(self._database.sync, kind, of_classes, ports, kept, own)
        await self.refresh_ports()
        return written

    # ---- requests ----

    async def apply(self, before: Rows, after: Rows, *, fresh: Iterable[int] = ()) -> bool:
        """Write a change to the bridge (`southbound.Driver.apply`)."""
        connection = self._openflow
        if self.state is not State.CONNECTED or connection is None or not self._context.tenure.held:
            return False
        try:
            if any(row.table in (QUEUES, PORTS) for row in (*before.values(), *after.values())):
                try:
                    await self._sync(self._context.wanted())
                except RefusedError as error:
                    row = next(iter((after or before).values()))
                    raise SwitchRefusedError([Refusal(row, str(error), table_full=False)]) from None
            pending = changes(_openflow_rows(before), _openflow_rows(after))
            refused = await self._write(connection, pending)
            if refused:
                self.counters.refused_writes += len(refused)
                # Reconcile after the refused changes have been undone.
                self._resync.set()
                raise SwitchRefusedError(refused)
        except (OSError, OpenFlowError, OvsdbError, NotHeldError) as error:
            _LOG.warning("switch %s: write broken off: %s", self.config.name, error)
            self._held = None
            self._set_state(State.PENDING)
            self._resync.set()
            return False
        if self._held is not None:
            carry_out(changes(before, after), self._held)
        if self.failed:
            # A failed resource may fit the new line rate.
            self._resync.set()
        return True

    def mend(self) -> None:
        """Reconcile the bridge soon (`southbound.Driver.mend`)."""
        self._resync.set()

    # ---- reading ----

    async def refresh_ports(self) -> None:
        """Ask the database for the bridge's ports (`southbound.Driver.refresh_ports`)."""
        if self._openflow is None:
            self.ports = [PortInfo(port.port, port.interface) for port in self.ports]
            return
        with contextlib.suppress(OvsdbError):
            snapshot: Snapshot = await self._in_thread(self._database.read)
            self.ports = [
                PortInfo(
                    port=port.ofport,
                    interface=port.name,
                    up=port.up,
                    line_rate_bps=number(port.qos_config["max-rate"])
                    if "max-rate" in port.qos_config
                    else port.link_bps,
                    counts=port.qos_config.get("counts"),
                    fifo_bytes=number(port.qos_config.get("limit")),
                    gap_mode=_gap_mode(port),
                    gap_frame_max_bytes=number(port.qos_config.get("gap-frame")),
                    egress_queues=queues.plain(port.qos_config, port.own_queues),
                )
                for port in snapshot.ports
            ]
            self._refused = snapshot.refused
            if snapshot.settled:
                self._unsettled.clear()
            else:
                self._unsettled.set()

    async def read(self, classes: Sequence[int]) -> Reading:
        """Read counters (`southbound.Driver.read`)."""
        connection = self._openflow
        if connection is None or self.state is State.PENDING:
            return Reading()
        try:
            _, flow_counts = await connection.read_flows()
            counters = await connection.queue_counters()
            ports = await connection.port_counters()
        except OpenFlowError as error:
            raise SwitchUnreadableError(str(error)) from None
        sums: dict[int, tuple[Count, Count]] = {}
        for (_, queue), (packets, size, lost) in counters.items():
            sent, dropped = sums.get(queue, (Count(), Count()))
            sums[queue] = (sent + Count(packets, size), dropped + Count(lost, 0))
        for port in self.ports:
            if port.egress_queues is not None and port.port in ports:
                count = port.egress_queues["queues"]
                ports[port.port]["queues"] = queues.statistics(port.port, count, counters)
        return Reading(
            classes={
                index: {"accepted": sums[index][0], "limit_dropped": sums[index][1]}
                for index in classes
                if index in sums
            },
            flows=flow_counts,
            ports=ports,
        )


def _capabilities(qos_type: str) -> Capabilities:
    """Return the capabilities of a bridge; of "auto", as yet undecided, those of both types."""
    pacer = qos_type == "pacer"
    settings = {"line_rate", "counts", "fifo_bytes"} if pacer else {"line_rate"}
    return Capabilities(
        paces=True,
        measures=False,
        classes=QUEUES_MOST,
        flow_entries=FLOWS_MOST,
        modes=frozenset({"static", "ipg", "unpaced"} if pacer else {"static", "unpaced"}),
        ecn=pacer,
        sets_dscp=True,
        line_settings=frozenset(settings),
        gap_modes=("accounted", PAUSE_FRAMES) if pacer else ("accounted",),
        egress_queues=queues.FEATURES if pacer else None,
        meter_per_entry=False,
        numbered_meters=True,
        meters_mark=False,
        max_priority=flows.MAX_PRIORITY,
    )


def _by_number(rows: Rows, table: str) -> dict[int, Row]:
    """Return the rows of a table of the database by the number of the queue or port."""
    return {int(row.match[0][1]): row for row in rows.values() if row.table == table}  # type: ignore[arg-type]


def _openflow_rows(rows: Rows) -> Rows:
    """Return the part of the desired entries that OpenFlow writes."""
    return {key: row for key, row in rows.items() if row.table in (flows.FLOWS, METERS)}


def _gap_mode(port: BridgePort) -> str | None:
    """Return a port's gap mode; None: its QoS is not of type `pacer`."""
    return port.qos_config.get("gaps", "accounted") if port.qos_type == "pacer" else None


_PORT_KEYS = {
    "line_rate_bps": "max-rate",
    "counts": "counts",
    "fifo_bytes": "limit",
    "gap_mode": "gaps",
    "gap_frame_max_bytes": "gap-frame",
}
_PORT_DEFAULTS = (("line_rate_bps", 0), ("gap_mode", "accounted"))
"""Settings whose values are a port's defaults; linux-htb does not know them."""


def _port_settings(row: Row) -> dict[str, str]:
    """Return a port's `other_config` of its QoS."""
    given = (setting for setting in row.params if setting not in _PORT_DEFAULTS)
    return {_PORT_KEYS[name]: str(value) for name, value in given if name in _PORT_KEYS}


def _egress_queues(row: Row) -> dict[str, Any] | None:
    """Return the egress queues that are asked for in a port's settings."""
    asked = dict(row.params).get("egress_queues")
    return None if asked is None else egress_queues.read(str(asked))

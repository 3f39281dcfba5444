"""The interface between the service and a switch; it is the same for all protocols."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from pacer_controller.burst.measure import Measured
from pacer_controller.egress_queues import QueueFeatures
from pacer_controller.permits import Permits
from pacer_controller.records import Desired, Record
from pacer_controller.rows import Key, Row, Rows
from pacer_controller.switch_tls import SwitchTls

Notify = Callable[[str, str, dict[str, Any]], None]
"""A callback for the events of a switch: kind of event, message, data."""


class FenceError(RuntimeError):
    """No fencing number is available; the text says why."""


class NotHeldError(FenceError):
    """Another controller has the right to write to the switch."""

    def __init__(self, switch: str) -> None:
        super().__init__(f"switch {switch}: another controller drives it")


class Tenure(Protocol):
    """The right to write to one switch."""

    @property
    def held(self) -> bool:
        """Whether this controller holds the right at this moment; ask right before each write."""

    @property
    def exclusive(self) -> bool:
        """Whether a lease gives the right, so that no other controller of the store has it."""

    async def bid(self, above: int = 0) -> int:
        """Return a new, unique fencing number of 128 bits: epoch and revision.

        Args:
            above: a number that the switch remembers; the store raises its epoch beyond it.

        Raises:
            NotHeldError: this controller may not write.
            FenceError: the store does not answer, or has no number above `above`.

        """

    def gave(self, fence: int) -> bool:
        """Whether the store has given this number to this controller, now or before its start."""

    async def becomes(self, held: bool) -> None:
        """Wait until this controller holds the right, or no longer holds it."""

    def reaches(self, reachable: bool) -> None:
        """Report whether the switch answers; if not, it goes to a controller that it answers."""


class Unfenced:
    """The right to write without a store: always held, with fencing numbers from 1."""

    held = True
    exclusive = False

    def __init__(self) -> None:
        self._last = 0

    async def bid(self, above: int = 0) -> int:
        """Return the next number (`Tenure.bid`)."""
        self._last = max(self._last, above) + 1
        return self._last

    def gave(self, fence: int) -> bool:
        """Whether this object has given the number (`Tenure.gave`)."""
        return 0 < fence <= self._last

    async def becomes(self, held: bool) -> None:
        """Return at once if `held`; otherwise wait for ever (`Tenure.becomes`)."""
        if not held:
            await asyncio.Event().wait()

    def reaches(self, reachable: bool) -> None:
        """Do nothing (`Tenure.reaches`)."""


_REVISION_BITS = 41
_EPOCHS = 1 << (64 - _REVISION_BITS)
"""The number of epochs that generation ids tell apart."""


def generation_of(fence: int) -> int:
    """Return the OpenFlow generation id (64 bits) of a fencing number.

    41 bits of revision are enough for 139 years of 500 writes/s. The low 23 bits of the epoch are
    the rest. A bridge compares ids by their distance modulo 2^64 (OpenFlow 1.3.5, 6.3.6), so that
    they may wrap around; an epoch can be so high because of the ids that P4Runtime switches
    remember. If ids are out of order after that, `fence_of` says what to bid.
    """
    epoch, revision = fence >> 64, fence & (2**64 - 1)
    return (epoch % _EPOCHS) << _REVISION_BITS | (revision & ((1 << _REVISION_BITS) - 1))


def fence_of(generation: int, fence: int) -> int:
    """Return the highest fencing number with an OpenFlow generation id, near another number.

    Args:
        generation: the generation id that a bridge remembers.
        fence: the number whose generation id the bridge has found to be older. The result has the
            lowest epoch that is not below this number's; the next epoch's ids are newer.

    """
    epoch, known = fence >> 64, generation >> _REVISION_BITS
    epoch += (known - epoch) % _EPOCHS
    revisions = 1 << _REVISION_BITS
    return epoch << 64 | ((1 << 64) - revisions) | (generation & (revisions - 1))


class State(Enum):
    """The state of a switch, for clients."""

    PENDING = "pending"
    """Not connected, or connected and not yet reconciled; changes are stored for later."""
    CONNECTED = "connected"
    """Connected and reconciled: the switch holds the desired state."""
    BACKUP = "backup"
    """Another controller drives the switch."""

    @property
    def told(self) -> str:
        """The word for this state in events."""
        return "disconnected" if self is State.PENDING else self.value


@dataclass(frozen=True)
class Refusal:
    """A write that the switch refused: the entry, and the reason."""

    row: Row
    message: str
    table_full: bool


class SwitchRefusedError(Exception):
    """The switch refused one or more writes of a request."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{r.row.owner}: {r.message}" for r in refusals[:3]))
        self.refusals = refusals


class SwitchUnreadableError(Exception):
    """The switch did not answer a request; the text is its error.

    Attributes:
        gone: True: the switch disconnected meanwhile. False: it answered with an error.

    """

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


@dataclass
class SwitchCounters:
    """Counters of one switch since the controller started."""

    connects: int = 0
    disconnects: int = 0
    reconciles: int = 0
    reconcile_writes: int = 0
    drift_entries: int = 0
    """Entries that differed at a periodic reconcile, which repaired them."""
    refused_writes: int = 0


@dataclass(frozen=True)
class Count:
    """Packets, and layer-2 bytes without FCS."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.packets + other.packets, self.bytes + other.bytes)


@dataclass(frozen=True)
class PortInfo:
    """A port of the switch.

    Attributes:
        port: port number.
        interface: network interface behind it; empty when unknown.
        up: whether it can carry frames; None when unknown.
        line_rate_bps: the line rate; None: the port takes any rate.
        counts: the bytes that take time on the line: "layer2" or "wire".
        fifo_bytes: size of the FIFO of unpaced packets.
        delay_ns: propagation delay.
        gap_mode: "accounted" or "pause-frames"; None when unknown.
        gap_frame_max_bytes: length of the longest PAUSE frame, without FCS; None: the port sends
            no PAUSE frames.
        egress_queues: the egress queues in the form of `egress_queues.plain`; None: the port has a
            FIFO, or the switch does not say.

    """

    port: int
    interface: str = ""
    up: bool | None = None
    line_rate_bps: int | None = None
    counts: str | None = None
    fifo_bytes: int | None = None
    delay_ns: int | None = None
    gap_mode: str | None = None
    gap_frame_max_bytes: int | None = None
    egress_queues: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a switch.

    Attributes:
        paces: whether it has classes and flows.
        measures: whether it measures bandwidth in bins.
        classes: the largest number of classes, including private ones.
        flow_entries: the largest number of entries of all flows together.
        modes: the modes of classes that it has.
        ecn: whether a class can mark packets by the length of its queue.
        clamps_windows: whether it can lower TCP's receive windows.
        slots: whether a class, or each flow of a class, can have a slot of a cycle.
        sets_dscp: whether a flow can set the DSCP of its packets.
        line_settings: the settings of ports that can be changed.
        gap_modes: the gap modes of ports.
        egress_queues: the features of the egress queues of ports; None: ports cannot have them.
        meter_per_entry: whether each entry of a flow has a meter, so that a flow of several
            entries cannot be metered as one.
        numbered_meters: whether a flow's meter needs a number of its own.
        meters_mark: whether meters can mark packets instead of dropping them.
        max_priority: highest priority of a flow; None: any.

    """

    paces: bool
    measures: bool
    classes: int = 0
    flow_entries: int = 0
    modes: frozenset[str] = frozenset({"static", "unpaced"})
    ecn: bool = False
    clamps_windows: bool = False
    slots: bool = False
    sets_dscp: bool = False
    line_settings: frozenset[str] = frozenset()
    gap_modes: tuple[str, ...] = ("accounted",)
    egress_queues: QueueFeatures | None = None
    meter_per_entry: bool = True
    numbered_meters: bool = False
    meters_mark: bool = True
    max_priority: int | None = None


@dataclass
class Reading:
    """The counters of a switch at one instant; None where the switch does not report them.

    Attributes:
        now_ns: the switch's clock.
        classes: per class index: `accepted`, `limit_dropped`, `red_dropped`, `ce_marked` (Count
            or None), `backlog_bytes`, `held_packets`, `owed_ns`; in modes that follow TCP flows
            also `rtt_ns` and `in_flight_bytes`, as last seen.
        flows: count by entry.
        drops: the program's drops by cause.
        ports: statistics by port number.
        totals: the statistics of the traffic manager as a whole.
        bottlenecks: gtrcnet's measured ports: `port`, `bottleneck_bps`, `vb_max_bytes`, `bytes`.

    """

    now_ns: int | None = None
    classes: Mapping[int, Mapping[str, Any]] | None = None
    flows: Mapping[Key, Count] | None = None
    drops: Mapping[str, Count] | None = None
    ports: Mapping[int, Mapping[str, Any]] | None = None
    totals: Mapping[str, Any] | None = None
    bottlenecks: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class DriverContext:
    """The parts of the service that a driver uses.

    Attributes:
        wanted: returns the desired entries at the time of the call.
        lock: the lock of the switch; its holder may change desired state or write to the switch.
        tenure: the right to write to the switch, and the source of fencing numbers.
        reconcile_interval_s: the period at which the switch is read back for foreign changes, in
            seconds; 0: never.
        notify: called with each event of the switch.
        unfit: returns the reason for each resource that the switch cannot hold, by owner of its
            entries; called at each reconcile, when the ports are known.
        tls: the certificates for connections to P4Runtime switches over TLS.
        permits: bounds the switches that are connected and reconciled at the same time.

    """

    wanted: Callable[[], Rows]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tenure: Tenure = field(default_factory=Unfenced)
    reconcile_interval_s: float = 30.0
    notify: Notify = field(default=lambda _kind, _message, _data: None)
    unfit: Callable[[], Mapping[str, str]] = dict
    tls: SwitchTls = field(default_factory=SwitchTls)
    permits: Permits = field(default_factory=Permits)


@dataclass(frozen=True)
class VirtualQueue:
    """The queue of a virtual bottleneck, as read at one instant.

    Attributes:
        at_ns: the arrival time of the last packet, by the measuring switch's clock.
        queue_bytes: the length of the queue at that time, including the packet.
        window_start_ns: the start of the last whole window of 100 ms before that time.
        window_bytes: the bytes that arrived in this window.
        window_max_bytes: the longest queue in this window.

    """

    at_ns: int
    queue_bytes: int
    window_start_ns: int
    window_bytes: int
    window_max_bytes: int


class Measuring(Protocol):
    """The readings of a switch whose program measures bandwidth and burstiness.

    Readings are None while the switch is not connected, or when its registers cannot be read.
    """

    @property
    def bottleneck_ports(self) -> Collection[int]:
        """The numbers of the wires' ports, if they have a virtual bottleneck."""

    @property
    def measured_flows(self) -> Collection[str]:
        """The names of the measured flows."""

    def bottleneck_bps(self, of: int | str) -> int | None:
        """Return the rate of the virtual bottleneck of a port (by number) or a measured flow."""

    async def bandwidth(
        self, port: int, from_ns: int = 0, to_ns: int | None = None
    ) -> dict[str, Any] | None:
        """Return the bandwidth of a port, columns by time.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """

    async def queue(self, port: int) -> VirtualQueue | None:
        """Return the queue of a port's virtual bottleneck now; None before the first packet.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """

    async def burstiness(
        self, of: int | str, from_ns: int = 0, to_ns: int | None = None
    ) -> Measured | None:
        """Return the burstiness of a port (by number) or of a measured flow.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """


class FilterInstruction(NamedTuple):
    """An instruction of the classic BSD Packet Filter (`struct sock_filter` of Linux)."""

    code: int
    jump_true: int
    jump_false: int
    k: int


class Tracing(Protocol):
    """The traces of packets of a switch, as `switch/proto/packet_trace.proto` has them in JSON."""

    async def dry_run(self, port: int, frame: bytes) -> dict[str, Any]:
        """Return the trace that a frame would have if it came in at a port now.

        Raises:
            SwitchUnreadableError: the switch did not answer.
            TracingRefusedError: the switch refused the request.

        """

    def watch(
        self, port: int | None, instructions: Sequence[FilterInstruction], count: int
    ) -> AsyncIterator[tuple[dict[str, Any], int]]:
        """Yield traces of packets that come in, each with the number of those skipped before it.

        Args:
            port: only packets that come in there.
            instructions: the filter that accepts the packets; empty: all packets.
            count: the number of traces.

        Raises:
            SwitchUnreadableError: the switch did not answer.
            TracingRefusedError: the switch refused the request.

        """


class TracingRefusedError(Exception):
    """The switch refused to trace; the text is its reason."""


class Driver(Protocol):
    """One switch; `run` keeps it connected and reconciled for as long as it lives."""

    ports: list[PortInfo]
    failed: dict[str, str]
    counters: SwitchCounters

    @property
    def state(self) -> State:
        """The state of the switch."""

    @property
    def last_error(self) -> str | None:
        """The reason why the switch is not connected."""

    @property
    def reachable(self) -> bool:
        """Whether the switch is connected, or no attempt to connect has been made yet."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the switch."""

    @property
    def measuring(self) -> Measuring | None:
        """The measurements of the switch; None: its program does not measure."""

    @property
    def tracing(self) -> Tracing | None:
        """The traces of packets; None: the switch does not trace, or is not connected."""

    def describe(self) -> dict[str, Any]:
        """Return the members that only this kind of switch has in its view."""

    def rows(self, record: Record, desired: Desired) -> list[Row]:
        """Return the entries of a resource."""

    async def run(self) -> None:
        """Keep the switch connected and reconciled until cancelled."""

    async def apply(self, before: Rows, after: Rows, *, fresh: Iterable[int] = ()) -> bool:
        """Write a change to the switch; the caller holds the lock.

        Args:
            before: the entries of the changed resources before the change.
            after: the entries of the same resources after it.
            fresh: the indices of new classes, whose counters and clocks start at zero.

        Returns:
            Whether the switch has the change now; if not, the next reconcile writes it.

        Raises:
            SwitchRefusedError: the switch refused the change; the writes made so far are undone.

        """

    def mend(self) -> None:
        """Reconcile the switch soon."""

    async def refresh_ports(self) -> None:
        """Update `ports` from the switch.

        Only the switch knows whether a port is up. While it does not answer, `up` is None and the
        other fields keep their last known values.
        """

    async def read(self, classes: Sequence[int]) -> Reading:
        """Read counters.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """

"""The interface between the service and a switch, whatever protocol the switch speaks."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from pacer_controller.burst.measure import Measured
from pacer_controller.records import Desired, Record
from pacer_controller.rows import Key, Row, Rows
from pacer_controller.switch_tls import SwitchTls

Notify = Callable[[str, str, dict[str, Any]], None]
"""Told what happens to a switch: kind of event, message, data."""


class FenceError(RuntimeError):
    """There is no fencing number to be had; the text says why."""


class NotHeldError(FenceError):
    """Another controller may write to the switch, and not this one."""

    def __init__(self, switch: str) -> None:
        super().__init__(f"switch {switch}: another controller drives it")


class Tenure(Protocol):
    """The right to write to one switch."""

    @property
    def held(self) -> bool:
        """Whether this controller has it at this moment; to be asked right before each write."""

    @property
    def exclusive(self) -> bool:
        """Whether a lease gives it: then no other controller of the store has it."""

    async def bid(self, above: int = 0) -> int:
        """Return a fencing number that nobody had before: 128 bits, epoch and revision.

        Args:
            above: one that the switch remembers; the store's epoch is raised beyond it.

        Raises:
            NotHeldError: this controller may not write.
            FenceError: the store does not answer, or has no number above `above`.

        """

    def gave(self, fence: int) -> bool:
        """Whether the store has given this number to this controller, now or before its start."""

    async def becomes(self, held: bool) -> None:
        """Wait until this controller has the right, or has it no longer."""

    def reaches(self, reachable: bool) -> None:
        """Say whether the switch answers; one that does not goes to a controller it answers."""


class Unfenced:
    """The right to write without a store: always held, and counted from 1."""

    held = True
    exclusive = False

    def __init__(self) -> None:
        self._last = 0

    async def bid(self, above: int = 0) -> int:
        """Return the next number (`Tenure.bid`)."""
        self._last = max(self._last, above) + 1
        return self._last

    def gave(self, fence: int) -> bool:
        """Whether it was given here (`Tenure.gave`)."""
        return 0 < fence <= self._last

    async def becomes(self, held: bool) -> None:
        """Wait for ever if it is not to be held (`Tenure.becomes`)."""
        if not held:
            await asyncio.Event().wait()

    def reaches(self, reachable: bool) -> None:
        """Do nothing (`Tenure.reaches`)."""


def generation_of(fence: int) -> int:
    """Return the OpenFlow generation id (64 bits) of a fencing number, in the same order.

    41 bits of revision are enough for 139 years of 500 writes/s; the epoch has 23 until 2038.
    """
    epoch, revision = fence >> 64, fence & (2**64 - 1)
    return ((epoch << 41) | (revision & (2**41 - 1))) & (2**64 - 1)


def fence_of(generation: int) -> int:
    """Return the highest fencing number with an OpenFlow generation id."""
    return (generation >> 41) << 64 | (2**64 - 2**41) | (generation & (2**41 - 1))


class State(Enum):
    """How the switch is doing, for clients."""

    PENDING = "pending"
    """Not connected, or connected and not yet reconciled; changes are stored for later."""
    CONNECTED = "connected"
    """Holds the desired state."""
    BACKUP = "backup"
    """Another controller drives the switch."""

    @property
    def told(self) -> str:
        """What the event says of a switch that has come to this state."""
        return "disconnected" if self is State.PENDING else self.value


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


class SwitchUnreadableError(Exception):
    """The switch did not answer a request; the text is its error.

    Attributes:
        gone: whether it went away meanwhile, rather than answer with an error.

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
    """Entries that a periodic reconcile found changed by somebody else, and mended."""
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
        line_rate_bps: None when the port takes any rate.
        counts: "layer2" or "wire": which bytes take time on the line.
        fifo_bytes: size of the FIFO of unpaced packets.
        delay_ns: propagation delay.
        gap_mode: "accounted" or "pause-frames"; None when unknown.
        gap_frame_max_bytes: longest of the PAUSE frames, without FCS; None where there are none.

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


@dataclass(frozen=True)
class Capabilities:
    """What a switch can do.

    Attributes:
        paces: whether it has classes and flows at all.
        measures: whether it measures bandwidth in bins.
        classes: most classes, private ones included.
        flow_entries: most entries that flows may need together.
        modes: modes of classes.
        ecn: whether a class can mark packets by the length of its queue.
        clamps_windows: whether it can lower TCP's receive windows.
        sets_dscp: whether a flow can set the DSCP of its packets.
        line_settings: settings of ports that can be changed.
        gap_modes: gap modes of ports.
        meter_per_entry: a flow that needs several entries would be metered once for each.
        numbered_meters: a flow's meter needs a number of its own.
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
    sets_dscp: bool = False
    line_settings: frozenset[str] = frozenset()
    gap_modes: tuple[str, ...] = ("accounted",)
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
        totals: of the whole switch.
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
    """What the service hands to a driver.

    Attributes:
        wanted: returns the desired entries at the moment of the call.
        lock: held while desired state and switch must not move against each other.
        tenure: whether this controller may write, and the fencing number that it bids.
        reconcile_interval_s: how often the switch is read back for foreign changes; 0 never.
        notify: called with each event of the switch.
        unfit: returns why some of what is desired cannot be on the switch, by owner of its
            entries; asked at each reconcile, when the ports are known.
        tls: certificates for connections to P4Runtime switches over TLS.

    """

    wanted: Callable[[], Rows]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tenure: Tenure = field(default_factory=Unfenced)
    reconcile_interval_s: float = 30.0
    notify: Notify = field(default=lambda _kind, _message, _data: None)
    unfit: Callable[[], Mapping[str, str]] = dict
    tls: SwitchTls = field(default_factory=SwitchTls)


@dataclass(frozen=True)
class VirtualQueue:
    """The queue of a virtual bottleneck, as read at one instant.

    Attributes:
        at_ns: when the last packet came, by the measuring switch's clock.
        queue_bytes: the queue then, this packet included.
        window_start_ns: of the last whole window of 100 ms before.
        window_bytes: that came in it.
        window_max_bytes: its longest queue.

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
    def measured_flows(self) -> Collection[str]:
        """Names of the flows that are measured on their own."""

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


class Driver(Protocol):
    """One switch; `run` keeps it connected and reconciled for as long as it lives."""

    ports: list[PortInfo]
    failed: dict[str, str]
    counters: SwitchCounters

    @property
    def state(self) -> State:
        """How the switch is doing."""

    @property
    def last_error(self) -> str | None:
        """Why the switch is not connected."""

    @property
    def reachable(self) -> bool:
        """Whether the switch is connected, or no attempt to connect has been made yet."""

    @property
    def capabilities(self) -> Capabilities:
        """What the switch can do."""

    @property
    def measuring(self) -> Measuring | None:
        """How to ask for measurements; None when the switch's program does not measure."""

    def describe(self) -> dict[str, Any]:
        """Return the members that only this kind of switch has in its view."""

    def rows(self, record: Record, desired: Desired) -> list[Row]:
        """Return the entries of a resource."""

    async def run(self) -> None:
        """Keep the switch connected and reconciled until cancelled."""

    async def apply(self, before: Rows, after: Rows, *, fresh: Iterable[int] = ()) -> bool:
        """Bring one request's change to the switch; the caller holds the lock.

        Args:
            before: entries of the resources concerned, as they were.
            after: the same, as they shall be.
            fresh: classes that are new, whose counters and clocks start at zero.

        Returns:
            Whether the switch has it now; if not, the next reconcile brings it.

        Raises:
            SwitchRefusedError: the switch refused it; what it had taken is undone.

        """

    def mend(self) -> None:
        """Read the switch back soon, and write what differs."""

    async def refresh_ports(self) -> None:
        """Ask the switch for its ports, so that `ports` is as they are at this moment.

        Whether a port is up is only known from the switch: while it does not answer, `up` is None
        and the rest is what was known last.
        """

    async def read(self, classes: Sequence[int]) -> Reading:
        """Read counters.

        Raises:
            SwitchUnreadableError: the switch did not answer.

        """

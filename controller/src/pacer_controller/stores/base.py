"""The interface of a store of desired state, for any kind of store.

A store keeps the resources of all switches, the settings of switches that requests made, and the
events. A write is one transaction. It names the revision of each switch that it was planned on
(`bases`). The store refuses it if one of them has changed, because another controller has written.
A revision is the number of a write, and revisions grow. Each resource carries the revision of the
write that put it; clients see it as the ETag.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pacer_controller.records import Desired, ResourceChange
from pacer_controller.southbound import FenceError, Tenure

EVENTS_KEPT = 10_000
EVENTS_SLACK = 1_000
"""Number of old events that are removed at a time."""

EPOCH_S = 256
"""The unit of a store's epoch: an epoch counts units of 256 s since 1970. So a store that is made
later has a higher epoch."""

EPOCH_MOST = 2**62
"""The highest epoch that a store bids. A switch that remembers a higher one must be restarted."""

Event = Mapping[str, Any]
"""Members `time`, `kind`, `switch`, `message`, `data`; `id` once it is stored."""

SwitchSettings = Mapping[str, tuple[Mapping[str, Any], int] | None]
"""Settings and revision by name. None: there is no such switch. Revision 0: the write's own."""

SWITCHES = ""
"""The name of the list of switches in `bases`."""


class StoreError(Exception):
    """The store cannot be used; the text names it and says why. Nothing was changed."""


class StaleError(StoreError):
    """Another controller has changed the state that the change was planned on; plan it again."""


class UncertainError(StoreError):
    """The store did not say whether it has made a change."""


@dataclass(frozen=True)
class Written:
    """The outcome of a write.

    Attributes:
        revision: the revision of everything that it put.
        bases: the new base of each switch that it changed, and of the list of switches.
        numbers: the numbers of its events, for the writer to publish; empty if the store's feed
            publishes them.
        behind: the switches that others have written to between the plan and the write; the feed
            tells of those writes first.
        stale: kind and name of each change that was not made, because another controller has
            changed the resource.

    """

    revision: int
    bases: Mapping[str, int] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    behind: Collection[str] = frozenset()
    stale: Collection[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Entry:
    """A write to one switch, or to the list of switches, in the form that the feed carries.

    Attributes:
        switch: the switch whose resources changed; SWITCHES: the list of switches changed.
        base: the revision of the newest write to it.
        changes: the changed resources; only `after` counts.
        switches: the settings of switches that requests made; None: the switch was removed.
        after_gap: whether the store has read everything anew. Then this may be several writes
            in one, the receiver's own among them.

    """

    switch: str
    base: int
    changes: Sequence[ResourceChange] = ()
    switches: SwitchSettings = field(default_factory=dict)
    after_gap: bool = False


@dataclass(frozen=True)
class Status:
    """The status of a switch, as the controller that drives it reports it.

    Attributes:
        controller: the name of that controller; empty: no controller drives the switch.
        state: one of `southbound.State`.
        failed: the reason for each resource that the switch does not hold, by owner of its entries.
        base: the revision up to which the switch holds the desired state.

    """

    controller: str
    state: str
    failed: Mapping[str, str] = field(default_factory=dict)
    base: int = 0


def epoch_above(above: int) -> int:
    """Return the epoch whose fencing numbers are all higher than one that a switch remembers.

    Raises:
        FenceError: no epoch up to EPOCH_MOST is high enough.

    """
    epoch = (above >> 64) + 1
    if epoch > EPOCH_MOST:
        raise FenceError(f"the switch remembers election id {above}: start it anew")
    return epoch


class Feed(Protocol):
    """A receiver of writes. The store calls it in order, on the event loop."""

    def entry(self, entry: Entry) -> None:
        """Receive a write, of this controller or of another one."""

    def events(self, events: Sequence[Event]) -> None:
        """Receive events with their numbers, oldest first."""


class Store(Protocol):
    """The desired state, the events, and the assignment of switches to controllers."""

    changes_most: int
    """Most changes of one write that goes at full speed."""

    @property
    def name(self) -> str:
        """The store's name in messages."""

    @property
    def shared(self) -> bool:
        """Whether other controllers may use it at the same time."""

    @property
    def controller(self) -> str | None:
        """The name of this controller in a store that others may use; None: nobody else may."""

    @property
    def broken(self) -> str | None:
        """The error after which the store refuses all writes until a restart; None: none."""

    @property
    def revision(self) -> int:
        """Revision of the newest write of resources or switches."""

    def base(self, switch: str) -> int:
        """Return the revision of the newest write to a switch, or to the list of switches."""

    def known(self) -> Collection[str]:
        """Return the names of switches that the store has resources of."""

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch; the caller keeps it up to date."""

    def forget(self, switch: str) -> None:
        """Drop the desired state of a deleted switch from memory."""

    def switches(self) -> dict[str, tuple[Mapping[str, Any], int]]:
        """Return settings and revision of the switches that requests made, by name."""

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events, at most EVENTS_KEPT of them, oldest first."""

    async def write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Event] = (),
        switches: SwitchSettings | None = None,
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Store changes and their events, all or nothing.

        Args:
            changes: the changes of resources. A record of revision 0 gets the write's revision.
            events: the events that the write stores with them.
            switches: the switches, of those that requests made, to put or remove.
            bases: the revision that the change was planned on, by switch.
            whole: True: the changes are made together, and depend on everything in `bases`.
                False: all changes are of one switch, change n has event n, and each is made on
                its own. It then depends on the resource that it changes, on the set of other
                resources, and on their references. `Written.stale` has the changes not made.

        Raises:
            StaleError: another controller has since written a resource that all changes depend on.
            UncertainError: the write may be stored; if it is, the feed tells of it.
            StoreError: the write is not stored.

        """

    async def take_back(
        self,
        changes: Sequence[ResourceChange],
        written: Written,
        events: Sequence[Event],
        switches: SwitchSettings | None = None,
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Undo a `write` of these changes and events; `switches` has the former settings.

        Raises:
            StaleError: another controller has since written a resource that the undoing depends on;
                the write stays.
            StoreError: the write could not be undone.

        """

    async def catch_up(self) -> None:
        """Wait until the feed has told of all writes acknowledged, by any controller, before.

        Raises:
            StoreError: the store does not answer.

        """

    async def probe(self) -> None:
        """Check that the store takes writes.

        Raises:
            StoreError: it does not take writes.

        """

    async def start(
        self,
        feed: Feed,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Start to tell the feed of writes, and to ask for the leases of switches.

        Args:
            feed: the receiver of writes.
            configured: the switches of this controller's own configuration.
            managed: returns all switches that this controller can drive.
            report: returns the status of a switch that this controller drives; its `controller`
                is not used.

        """

    async def stop(self) -> None:
        """Stop the tasks of `start`, and give up the leases."""

    async def close(self) -> None:
        """Close the store."""

    def tenure(self, switch: str) -> Tenure:
        """Return the right to write to a switch."""

    def status(self, switch: str) -> Status | None:
        """Return the status that a switch's controller reports; None: this controller drives it."""

    def describe(self) -> dict[str, Any]:
        """Return a description of the store and the assignment of switches, for clients."""

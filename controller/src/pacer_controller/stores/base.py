"""What the service asks of a store of desired state, whatever holds it.

A store keeps the resources of all switches, the settings of switches that requests made, and the
events. A write is one transaction. It names the revision of each switch that it was planned on
(`bases`), and is refused when one has moved: another controller has written. Revisions are numbers
of writes and grow; what a write puts carries its revision, and clients see that as ETag.
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
"""Unit of a store's epoch, in seconds since 1970: a store that is made later has a higher one."""

EPOCH_MOST = 2**62
"""Higher ones are not bid: who remembers such a number must forget it."""

Event = Mapping[str, Any]
"""Members `time`, `kind`, `switch`, `message`, `data`; `id` once it is stored."""

SwitchSettings = Mapping[str, tuple[Mapping[str, Any], int] | None]
"""Settings and revision by name; None: no such switch. Revision 0: that of the write."""

SWITCHES = ""
"""Stands in `bases` for the list of switches."""


class StoreError(Exception):
    """The store cannot be used; the text names it and says why. Nothing was changed."""


class StaleError(StoreError):
    """Another controller has written what the change was planned on; plan it again."""


class UncertainError(StoreError):
    """The store did not say whether it has made a change."""


@dataclass(frozen=True)
class Written:
    """The outcome of a write.

    Attributes:
        revision: of everything that it put.
        bases: the new base of each switch, and of the list of switches, that it changed.
        numbers: of its events, to be published by who wrote; empty when the store's feed does.
        behind: switches that others have written to before it, since it was planned: the feed
            tells of that first.
        stale: kind and name of what was not made, because another controller has changed it.

    """

    revision: int
    bases: Mapping[str, int] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    behind: Collection[str] = frozenset()
    stale: Collection[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Entry:
    """A write to one switch, or to the list of switches, as all controllers learn of it.

    Attributes:
        switch: whose resources changed; SWITCHES: the list of switches did.
        base: the revision of the newest write to it.
        changes: resources; only `after` counts.
        switches: settings of switches that requests made; None: removed.

    """

    switch: str
    base: int
    changes: Sequence[ResourceChange] = ()
    switches: SwitchSettings = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """What the controller that drives a switch says of it.

    Attributes:
        controller: which one; empty: none does.
        state: as in `southbound.State`.
        failed: what the switch does not hold, and why, by owner of its entries.
        base: the revision up to which the switch has been brought.

    """

    controller: str
    state: str
    failed: Mapping[str, str] = field(default_factory=dict)
    base: int = 0


def epoch_above(above: int) -> int:
    """Return the epoch whose fencing numbers are all higher than one that a switch remembers.

    Raises:
        FenceError: there is none.

    """
    epoch = (above >> 64) + 1
    if epoch > EPOCH_MOST:
        raise FenceError(f"the switch remembers election id {above}: start it anew")
    return epoch


class Feed(Protocol):
    """Who is told of writes; called in order, on the event loop, and never awaited."""

    def entry(self, entry: Entry) -> None:
        """Take a write; the writer's own ones come, too."""

    def events(self, events: Sequence[Event]) -> None:
        """Take events with their numbers, oldest first."""


class Store(Protocol):
    """Desired state, events, and who drives which switch."""

    changes_most: int
    """Most changes of one write that goes at full speed."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def shared(self) -> bool:
        """Whether other controllers may use it at the same time."""

    @property
    def revision(self) -> int:
        """Revision of the newest write of resources or switches."""

    def base(self, switch: str) -> int:
        """Return the revision of the newest write to a switch, or to the list of switches."""

    def known(self) -> Collection[str]:
        """Return the names of switches that the store has resources of."""

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch, which the caller goes on changing."""

    def forget(self, switch: str) -> None:
        """Drop the desired state of a switch from memory, once it has been deleted."""

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
        """Store changes and what is to be said about them, all or nothing.

        Args:
            changes: resources. A record of revision 0 gets the write's.
            events: what is to be said.
            switches: of those that requests made, change or remove.
            bases: the revision that the change was planned on, by switch.
            whole: whether the changes are made together, and depend on everything of `bases`. If
                not, they are of one switch, each with the event of the same place, and each is made
                on its own: it depends on the resource that it changes, on which others there are,
                and on what those refer to. Changes that are not made are in `Written.stale`.

        Raises:
            StaleError: another controller has written what all changes depend on since.
            UncertainError: it may be stored, and is seen on the feed if it is.
            StoreError: it is not stored.

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
        """Undo a `write` of these changes and events; `switches` is what was before.

        Raises:
            StaleError: another controller has written what it depends on since; it stays.
            StoreError: it could not be undone.

        """

    async def catch_up(self) -> None:
        """Wait until everything is told that any controller had acknowledged before the call.

        Raises:
            StoreError: the store does not answer.

        """

    async def probe(self) -> None:
        """Check that the store takes writes.

        Raises:
            StoreError: it does not.

        """

    async def start(
        self,
        feed: Feed,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Begin to tell of writes, and to ask for the leases of switches.

        Args:
            feed: who is told.
            configured: switches that this controller knows by its own configuration.
            managed: returns all switches that this controller can drive.
            report: returns how a switch is that this controller drives; names no controller.

        """

    async def stop(self) -> None:
        """End what `start` began, and give leases up."""

    async def close(self) -> None:
        """Close the store."""

    def tenure(self, switch: str) -> Tenure:
        """Return the right to write to a switch."""

    def status(self, switch: str) -> Status | None:
        """Return what the controller that drives a switch says; None: this one, or nobody."""

    def describe(self) -> dict[str, Any]:
        """Return what there is to say of the store and of who drives what, for clients."""

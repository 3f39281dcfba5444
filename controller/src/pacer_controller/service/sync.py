"""Applies the writes of other controllers in memory and on the switches of this controller.

The writes to a switch are applied in order, under the switch's lock; all that wait are applied
together. So a request's change is planned on the applied writes, and the store refuses it if it
depends on others. The feed also returns this controller's own writes; they are skipped, because
they are in memory already.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pacer_controller.config import ConfigError, switch_from
from pacer_controller.events import EventLog
from pacer_controller.problems import Problem
from pacer_controller.records import ResourceChange, index_of
from pacer_controller.rows import Key, Row
from pacer_controller.service.change import Staged
from pacer_controller.service.commit import locked
from pacer_controller.service.managed import ManagedSwitch
from pacer_controller.southbound import SwitchRefusedError
from pacer_controller.stores import (
    SWITCHES,
    Entry,
    Event,
    Store,
    StoreError,
    SwitchSettings,
)

_LOG = logging.getLogger(__name__)


BEFORE_S = 2.0
"""Longest wait for the feed to tell of others' writes before a write of this controller."""


class Synced(Protocol):
    """The part of the service that other controllers' writes concern."""

    store: Store
    events: EventLog
    lifecycle: asyncio.Lock
    switches: dict[str, ManagedSwitch]

    def holds(self, found: ManagedSwitch) -> bool:
        """Whether a switch is still the one with its name."""

    def manage(self, config: Any, *, configured: bool, revision: int) -> ManagedSwitch:
        """Make a switch with its driver, not yet connected."""

    def launch(self, managed: ManagedSwitch) -> None:
        """Start to connect to a switch."""

    async def halt(self, switches: Sequence[ManagedSwitch]) -> None:
        """Disconnect from some switches."""

    def base_of(self, switch: str) -> int:
        """Return the revision up to which a switch, or the list of switches, is known."""

    def note_base(self, switch: str, base: int) -> None:
        """Record the revision of the list of switches, or of a switch that is not managed."""


class Sync:
    """Applies the store's feed (`stores.base.Feed`).

    Args:
        service: the service that it keeps up to date.

    """

    def __init__(self, service: Synced) -> None:
        self._service = service
        self._lines: dict[str, deque[Entry]] = {}
        """The queued writes, by switch."""
        self._newest: dict[str, int] = {}
        """The revision of the newest write that the feed has told of, by switch."""
        self._told_to = 0
        """The revision up to which the feed has told of all writes since the start; 0: of none."""
        self._lost: set[str] = set()
        """The switches of which memory lacks a write, after an error, until the program ends."""
        self._taken = asyncio.Event()
        self._told = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def entry(self, entry: Entry) -> None:
        """Queue a write."""
        if self._stopped:
            return
        self._newest[entry.switch] = entry.base
        self._told_to = max(self._told_to, entry.base)
        self._told.set()
        self._told = asyncio.Event()
        line = self._lines.get(entry.switch)
        if line is None and entry.base <= self._service.base_of(entry.switch):
            # This controller's own write is already in memory.
            return
        if line is None:
            line = self._lines[entry.switch] = deque()
            work = self._serve(entry.switch, line)
            task = asyncio.create_task(work, name=f"sync {entry.switch or 'switches'}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        line.append(entry)

    async def caught_up(self, only: str | None = None) -> None:
        """Wait until all queued writes are in memory.

        Args:
            only: wait for the writes to this switch and to the list of switches only, since
                another switch that does not answer delays its own writes by seconds; None: for all.

        Raises:
            StoreError: some of them will never be.

        """
        told = [
            (switch, line, self._newest[switch])
            for switch, line in self._lines.items()
            if only is None or switch in (only, SWITCHES)
        ]
        while any(
            self._lines.get(switch) is line and self._service.base_of(switch) < base
            for switch, line, base in told
        ):
            await self._taken.wait()
        if self._stopped:
            raise StoreError("this controller ends, and no longer follows the others")
        lost = self._lost if only is None else self._lost & {only, SWITCHES}
        if lost:
            names = ", ".join(sorted(switch or "the list of switches" for switch in lost))
            raise StoreError(
                f"writes to {names} could not be taken from the store: start this controller anew"
            )

    def complete(self) -> int:
        """Return a revision up to which all writes since the start are in memory."""
        bases = ((base, self._service.base_of(switch)) for switch, base in self._newest.items())
        return min([self._told_to, *(known for newest, known in bases if known < newest)])

    def _wake(self) -> None:
        self._taken.set()
        self._taken = asyncio.Event()

    def events(self, events: Sequence[Event]) -> None:
        """Pass events to the event log."""
        self._service.events.follow(events)

    async def stop(self) -> None:
        """Stop the tasks that apply writes; memory is no longer current."""
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._wake()

    async def _serve(self, switch: str, line: deque[Entry]) -> None:
        """Apply the queued writes to a switch, until none waits."""
        try:
            while line:
                if switch == SWITCHES:
                    await self._take_settings(line)
                elif (found := self._service.switches.get(switch)) is not None:
                    async with found.lock:
                        if self._service.holds(found):
                            await self._take(found, line)
                else:
                    async with self._service.lifecycle:
                        if switch not in self._service.switches:
                            self._take_unmanaged(switch, line)
        except Exception:
            if self._service.base_of(switch) < self._newest[switch]:
                self._lost.add(switch)
            _LOG.exception("writes of other controllers to %s could not be taken", switch)
        finally:
            del self._lines[switch]
            self._wake()

    async def take_before(
        self, found: ManagedSwitch, revision: int
    ) -> Mapping[Key, Row | None] | None:
        """Apply others' writes to a switch before an own write; the caller holds its lock.

        Returns the former entries, for which the caller updates the switch. Returns None if the
        feed has not told of these writes in time, or has told of them and of the own write in one
        after a gap; they are then applied later, with the own write.
        """
        try:
            async with asyncio.timeout(BEFORE_S):
                while self._newest.get(found.name, 0) < revision:
                    await self._told.wait()
        except TimeoutError:
            return None
        line = self._lines.get(found.name, deque())
        if any(one.after_gap and one.base >= revision for one in line):
            return None
        changes, base = _joined(line, found.last_change, revision)
        staged = self._note(found, changes, base)
        return staged.before if staged is not None else {}

    async def _take(self, found: ManagedSwitch, line: deque[Entry]) -> None:
        """Apply others' writes in memory and on the switch; the caller holds its lock."""
        changes, base = _joined(line, found.last_change)
        if base == found.last_change:
            return
        staged = self._note(found, changes, base)
        self._wake()
        if staged is None:
            return
        before, after = staged.difference()
        try:
            await found.driver.apply(before, after, fresh=staged.fresh)
        except SwitchRefusedError as error:
            _LOG.error("switch %s refuses what another controller wrote: %s", found.name, error)
            found.driver.mend()
        found.brought_to = found.last_change

    def _note(
        self, found: ManagedSwitch, changes: Sequence[ResourceChange], base: int
    ) -> Staged | None:
        """Apply others' writes to a switch in memory; None: its entries cannot be made."""
        of = found.desired.resources
        staged = Staged(found)
        wanted: list[ResourceChange] = []
        same: list[ResourceChange] = []
        for one in changes:
            before = of[one.kind].get(one.name)
            if before == one.after:
                same.append(one)
            else:
                wanted.append(ResourceChange(one.switch, one.kind, one.name, before, one.after))
        fresh = [
            index
            for one in wanted
            if (index := index_of(one.after)) is not None and index != index_of(one.before)
        ]
        try:
            staged.add(wanted, fresh)
        except Problem as error:
            # The change fitted at its controller, but here the switch has another program or
            # smaller tables.
            _LOG.error("switch %s: %s", found.name, error.detail)
            for one in changes:
                found.desired.set(one.kind, one.name, one.after)
            found.moved_to(base)
            return None
        found.settle([*wanted, *same], base)
        return staged

    def _take_unmanaged(self, switch: str, line: deque[Entry]) -> None:
        """Apply others' writes to a switch that this controller does not manage."""
        changes, base = _joined(line, self._service.base_of(switch))
        desired = self._service.store.desired(switch)
        for change in changes:
            desired.set(change.kind, change.name, change.after)
        self._service.note_base(switch, base)

    async def _take_settings(self, line: deque[Entry]) -> None:
        """Add, change and remove switches as other controllers did."""
        service = self._service
        async with service.lifecycle:
            settings: dict[str, Any] = {}
            base = service.base_of(SWITCHES)
            while line:
                entry = line.popleft()
                if entry.base > base:
                    settings |= entry.switches
                    base = entry.base
            for name, (new, gone) in _moves(service, settings).items():
                async with locked([gone] if gone is not None else []):
                    if gone is not None:
                        await service.halt([gone])
                        service.note_base(name, gone.last_change)
                    if new is None:
                        service.switches.pop(name, None)
                        continue
                    config, revision = new
                    try:
                        made = service.manage(config, configured=False, revision=revision)
                    except ConfigError as error:
                        _LOG.error("switch %s of another controller is left out: %s", name, error)
                        service.switches.pop(name, None)
                        continue
                    service.switches[name] = made
                    service.launch(made)
            # A reader that has this revision has seen all of these switches.
            service.note_base(SWITCHES, base)
            self._wake()


def _joined(
    line: deque[Entry], base: int, own: int | None = None
) -> tuple[list[ResourceChange], int]:
    """Take the queued writes newer than a revision; return their changes and newest revision.

    Args:
        line: the queued writes.
        base: the revision.
        own: the revision of an own write; it and later writes are not taken.

    """
    changes: dict[tuple[str, str], ResourceChange] = {}
    newest = base
    while line and (own is None or line[0].base <= own):
        entry = line.popleft()
        # Several writes can have the same revision.
        if entry.base > base and entry.base != own:
            changes |= {(one.kind, one.name): one for one in entry.changes}
            newest = max(newest, entry.base)
    return list(changes.values()), newest


def _moves(
    service: Synced, settings: SwitchSettings
) -> Mapping[str, tuple[tuple[Any, int] | None, ManagedSwitch | None]]:
    """Return the new configuration and the old switch, by name, of switches that change."""
    moves: dict[str, tuple[tuple[Any, int] | None, ManagedSwitch | None]] = {}
    for name, one in settings.items():
        old = service.switches.get(name)
        if old is not None and old.configured:
            # A switch of the configuration takes precedence.
            continue
        if one is None:
            if old is not None:
                moves[name] = (None, old)
            continue
        try:
            config = switch_from(name, one[0])
        except ConfigError as error:
            _LOG.error("switch %s of another controller is left out: %s", name, error)
            continue
        if old is not None and old.settings == config.settings():
            old.revision = one[1]
            continue
        moves[name] = ((config, one[1]), old)
    return moves

"""Which of two controllers leads, and when that changes.

A controller that starts with a peer follows it if it leads; else, of two that do not lead, the one
with the newer state begins. Alone it begins to lead only if its state file says that nobody else
can have more: that its peer had been left behind when it last led.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pacer_controller.events import EventLog
from pacer_controller.problems import Problem
from pacer_controller.records import Entry
from pacer_controller.replication import wire
from pacer_controller.replication.feed import Feed, ceased_to_lead, cut_off, not_leading
from pacer_controller.replication.peer import (
    ASK_S,
    COPY_S,
    Peer,
    PeerAddress,
    PeerGoneError,
    PeerNotLeadingError,
    PeerRefusedError,
)
from pacer_controller.southbound import (
    FIRST_ELECTION_ID,
    Driver,
    Leadership,
    State,
    SwitchUnreadableError,
)
from pacer_controller.store import Store, StoreError

_LOG = logging.getLogger(__name__)

TAKE_OVER_S = 5.0
"""Longest time in which a follower may take over by itself, from when it sent the last request that
its leader answered: the leader waits for it from when that arrived (`feed.HOLD_S`), and then
acknowledges writes without it. So one that was stopped for a while knows that it is behind."""

RETRY_S = 0.1
WATCH_S = 1.0
"""How often a leader without a follower looks whether the other leads, too."""

WITNESS_S = 2.0
"""Longest wait for a switch to answer a leader whose follower is silent."""

ELECTION_IDS = 1024
"""Election ids of an epoch: further controllers of the same switch bid below."""

Rank = tuple[int, bool, int, int, str]


class LedSwitch(Protocol):
    """A switch of the service."""

    name: str

    @property
    def driver(self) -> Driver:
        """The driver."""


class Led(Protocol):
    """The service, as far as replication needs it."""

    store: Store
    events: EventLog
    leadership: Leadership

    @property
    def switches(self) -> Mapping[str, LedSwitch]:
        """The switches, by name."""

    async def rebuild(self, change: Callable[[], None]) -> None:
        """Disconnect from all switches, change the state file, and start with its content.

        Raises:
            StoreError: the file could not be changed; nothing has changed.

        """

    async def repeat(self, entries: Sequence[Entry]) -> None:
        """Make the changes that another controller made.

        Raises:
            StoreError: the state file could not be written.
            Problem: a change does not fit here.

        """


class Pair:
    """A controller and its peer.

    Args:
        service: what is led.
        address: where the peer is.

    """

    def __init__(self, service: Led, address: PeerAddress) -> None:
        self._service = service
        self._store = service.store
        self._address = address
        self._peer = Peer(address)
        self._name = secrets.token_hex(8)
        self.feed = Feed(service.store, self._may_go_alone)
        self.in_sync = False
        """As follower: whether everything that was acknowledged is here."""
        self.reason = "it has just started"
        """Why it does not lead."""
        self._leader_there = False
        self._contact_s = float("-inf")
        self._resync = False
        self._told = False
        self._forced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        service.leadership.take(_bid(service.store.epoch))

    @property
    def leads(self) -> bool:
        """Whether this controller takes writes."""
        return self.feed.open

    def _rank(self) -> Rank:
        """Which of two controllers should lead: the greater one."""
        store = self._store
        return (store.epoch, store.alone, store.sequence, store.revision, self._name)

    def status(self) -> dict[str, Any]:
        """Return what there is to say, for clients and for the peer."""
        epoch, alone, sequence, revision, name = self._rank()
        leader = self._address.url if self._leader_there and not self.leads else None
        following = self.leads and self.feed.live
        return {
            "role": "leader" if self.leads else "follower",
            "name": name,
            "peer": self._address.url,
            "leader": leader,
            "epoch": epoch,
            "sequence": sequence,
            "revision": revision,
            "alone": alone,
            "in_sync": self.feed.in_sync if self.leads else self.in_sync,
            "follower_sequence": self.feed.acknowledged if following else None,
            "reason": None if self.leads else self.reason,
        }

    # ---- writes ----

    def require_leading(self) -> None:
        """Raise the 503 unless this controller leads."""
        if not self.leads:
            raise not_leading(self._address.url if self._leader_there else None)

    async def answer(
        self, follower: str, epoch: int, after: int, *, leaving: bool
    ) -> dict[str, Any]:
        """Return the writes that come next for a follower; nothing for one that stops following.

        Raises:
            Problem: this controller does not lead.

        """
        self.require_leading()
        if leaving:
            self.feed.leave(follower)
            return {}
        return await self.feed.read(follower, epoch, after)

    async def replicated(self, sequence: int) -> None:
        """Wait until the follower has a write.

        Raises:
            Problem: this controller leads no longer.
            StoreError: the state file could not be written.

        """
        await self.feed.wait_for(sequence)

    async def _may_go_alone(self) -> None:
        """Raise the 503 if the follower may have taken over.

        A controller cut off from the switches, too, would not know: one of them must answer.
        """
        others = [f.name for f in self._service.switches.values() if self._other_is_primary(f)]
        if others or await self._outranked():
            raise ceased_to_lead()
        if self._service.switches and not self.feed.left and not await self._has_witness():
            raise cut_off()

    async def _has_witness(self) -> bool:
        """Whether a switch answers for which this controller is primary."""
        asked = [
            asyncio.create_task(_answers(found.driver), name=f"witness {found.name}")
            for found in self._service.switches.values()
            if found.driver.state is State.CONNECTED
        ]
        try:
            for answer in asyncio.as_completed(asked):
                if await answer:
                    return True
            return False
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    @staticmethod
    def _other_is_primary(found: LedSwitch) -> bool:
        return found.driver.state is State.BACKUP and not found.driver.elected

    # ---- life ----

    async def start(self) -> None:
        """Begin to find out who leads; until then this controller follows."""
        self._task = asyncio.create_task(self._run(), name="pair")

    async def stop(self) -> None:
        """End; a leader that waits for its follower need not wait any longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self.leads and self._leader_there:
            try:
                await self._peer.leave(self._name)
            except (PeerGoneError, PeerNotLeadingError, PeerRefusedError) as error:
                _LOG.info("the leader was not told that its follower stops: %s", error)
        self.feed.end()
        await self._peer.close()

    async def promote(self) -> None:
        """Lead, whatever the peer has: what it acknowledged and this one has not is lost."""
        while not self.leads:
            self._forced.set()
            await asyncio.sleep(RETRY_S)

    async def _run(self) -> None:
        while True:
            try:
                await (self._watch() if self.leads else self._follow())
            except Exception as error:
                # Whatever it was, the whole state is asked for anew.
                self._note(str(error) or type(error).__name__)
                if not isinstance(error, (StoreError, wire.WireError, Problem)):
                    _LOG.exception("replication: unexpected")
                self._resync = True
                self.in_sync = False
                await asyncio.sleep(WATCH_S)

    def _note(self, reason: str) -> None:
        """Say why this controller does not lead, once."""
        if reason != self.reason:
            _LOG.warning("follows: %s", reason)
        self.reason = reason

    # ---- leading ----

    async def _lead(self, why: str) -> None:
        await asyncio.to_thread(self._store.begin_epoch, self._store.epoch + 1)
        self._forced.clear()
        self._leader_there, self.in_sync, self._told = False, False, False
        self.feed.begin()
        epoch = self._store.epoch
        self._service.leadership.give(FIRST_ELECTION_ID + ELECTION_IDS * epoch)
        self._event(f"leads in epoch {epoch}: {why}")

    async def _watch(self) -> None:
        """Look after a follower that comes or goes, and for another that leads, too."""
        if self.feed.in_sync != self._told:
            self._told = self.feed.in_sync
            self._event(
                "the follower has everything"
                if self._told
                else "the follower is gone: it does not get what is acknowledged from now on"
            )
        if not self.feed.live and await self._outranked():
            await self._step_down()
            return
        await asyncio.sleep(WATCH_S if not self.feed.live else RETRY_S)

    async def _outranked(self) -> bool:
        """Whether the peer leads with a newer state."""
        try:
            said = await self._peer.status()
            return said["role"] == "leader" and _rank_of(said) > self._rank()
        except (PeerGoneError, PeerNotLeadingError, PeerRefusedError, KeyError):
            return False

    async def _step_down(self) -> None:
        self._service.leadership.take(_bid(self._store.epoch))
        self.feed.end()
        self._resync = True
        self._event("follows: the other controller has taken over")
        # Waiting requests have been answered by now, and what was not replicated is taken back.
        await self._service.rebuild(self._store.reload)

    def _event(self, message: str) -> None:
        _LOG.info("%s", message)
        data = {"epoch": self._store.epoch, "sequence": self._store.sequence}
        self._service.events.record("replication", None, f"the controller {message}", data)

    # ---- following ----

    async def _follow(self) -> None:
        """Ask for what is new once, and do what follows from the answer."""
        if self._forced.is_set():
            await self._lead("it was told to")
            return
        epoch = -1 if self._resync else self._store.epoch
        # Of a leader that is known, silence means something.
        timeout_s = ASK_S if self.in_sync else COPY_S
        sent_s = time.monotonic()
        try:
            said = await self._peer.feed(self._name, epoch, self._store.sequence, timeout_s)
        except PeerNotLeadingError:
            await self._without_leader(await self._newer_than_peer())
        except PeerGoneError as error:
            self._note(f"{self._address.url} does not answer: {error}")
            await self._without_leader("its peer had been left behind" * self._store.alone)
        except PeerRefusedError as error:
            self._lost()
            self._note(f"{self._address.url} refuses: {error}")
            await asyncio.sleep(WATCH_S)
        else:
            self._leader_there, self._contact_s = True, sent_s
            await self._take(said)

    def _lost(self) -> None:
        self._leader_there = False
        if self.in_sync and time.monotonic() - self._contact_s > TAKE_OVER_S:
            self.in_sync = False
            self._event("has lost its leader, which may have gone on without it")

    async def _without_leader(self, why: str) -> None:
        """Take over if this controller has everything, or for another reason; else try again."""
        self._lost()
        if self.in_sync and self._elected():
            await self._lead("the leader is gone, and the switch knows no other")
        elif why:
            await self._lead(why)
        else:
            await asyncio.sleep(RETRY_S)

    def _elected(self) -> bool:
        """Whether the switches have put nobody before this controller: one must say so."""
        switches = list(self._service.switches.values())
        return any(found.driver.elected for found in switches) and not any(
            self._other_is_primary(found) for found in switches
        )

    async def _newer_than_peer(self) -> str:
        """Return why this controller should lead rather than its peer, which does not either."""
        try:
            said = await self._peer.status()
            if said["role"] == "follower" and _rank_of(said) < self._rank():
                return "of two that did not lead it has the newer state"
        except (PeerGoneError, PeerNotLeadingError, PeerRefusedError, KeyError):
            pass
        self._note(f"{self._address.url} does not lead, but has the newer state")
        return ""

    async def _take(self, said: dict[str, Any]) -> None:
        """Take over what the leader said; asking again acknowledges it."""
        self._note(f"{self._address.url} leads")
        if "snapshot" in said:
            snapshot = wire.snapshot_from(said["snapshot"])
            self._service.leadership.take(_bid(snapshot.epoch))
            await self._service.rebuild(lambda: self._store.replace(snapshot))
            self._resync = False
        else:
            entries = [wire.entry_from(one) for one in said["entries"]]
            await self._repeat(entries)
        if said["in_sync"] and not self.in_sync:
            self._event(f"has everything that {self._address.url} has")
        self.in_sync = bool(said["in_sync"])

    async def _repeat(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        expected = range(self._store.sequence + 1, self._store.sequence + 1 + len(entries))
        if [entry.sequence for entry in entries] != list(expected):
            raise wire.WireError("the leader left out a write")
        await self._service.repeat(entries)


async def _answers(driver: Driver) -> bool:
    """Whether a switch answers, and still says that this controller is primary."""
    try:
        async with asyncio.timeout(WITNESS_S):
            await driver.read(())
    except (SwitchUnreadableError, TimeoutError):
        return False
    return driver.state is State.CONNECTED


def _bid(epoch: int) -> int:
    """Return the election id of who follows in an epoch: one below its leader's."""
    return FIRST_ELECTION_ID + ELECTION_IDS * epoch - 1


def _rank_of(said: dict[str, Any]) -> Rank:
    """Return the rank in a controller's own words.

    Raises:
        KeyError: it is not there.

    """
    return (
        int(said["epoch"]),
        bool(said["alone"]),
        int(said["sequence"]),
        int(said["revision"]),
        str(said["name"]),
    )

"""The assignment of switches to controllers in etcd: a lease per controller, a key per switch.

A controller may write to a switch while it owns the switch's key and its lease is valid by its own
clock. The lease is valid from the request of its last renewal, for its time to live less a margin
(`renewal`). So a controller that cannot reach etcd stops before etcd gives its switches to others.
The switch refuses a write that is still on its way then, because the successor's fencing number is
higher. The fencing number is the revision at which the key was put; the controller puts the key
again for each connection to the switch.

A switch leaves its controller only if the controller's lease ends, if the switch does not answer
it, or if another controller has far fewer switches (`assignment`).
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pacer_controller.southbound import FenceError, NotHeldError
from pacer_controller.stores.base import EPOCH_S, Status, epoch_above
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.assignment import Member, assign
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
from pacer_controller.stores.etcd.layout import read
from pacer_controller.stores.etcd.loop_thread import LoopThread
from pacer_controller.stores.etcd.renewal import Renewal

_LOG = logging.getLogger(__name__)

_Item = TypeVar("_Item")

Leased = tuple[str, str, Any, int]
"""What a key is about, the name in it, its value (`value_of`), and its revision."""

LEASE_S = 3
"""Time to live of a controller's lease."""

RETRY_S = 0.1
TICK_S = 1.0

SHARE_S = 0.05
"""Shortest time between two computations of the assignment, in seconds."""

BALANCE_S = 2.0
"""Time without a change of the controllers after which switches move for balance, in seconds."""

GATHER_S = 1.0
"""Time after a controller joins in which it takes GATHER_MOST switches at most, in seconds.

Controllers that start together thus share the switches before one of them has taken all.
"""

GATHER_MOST = 32

KEYS = 40
"""Most keys of switches in one transaction."""

TELL_S = 0.2
"""Shortest time between two reports of the statuses of switches."""


def lease_clock() -> float:
    """Return the time of a monotonic clock, in seconds; on Linux, that of a suspend counts, too.

    A lease ends in etcd while a controller's machine is suspended.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Leases:
    """The lease of this controller, and the leases of the others as far as etcd has told of them.

    Args:
        client: the client of the etcd cluster.
        renewing: another client of it, only for the renewal of the lease.
        prefix: the prefix of all keys.
        name: the name of this controller; unique.
        lease_s: the time to live of the lease, in seconds.
        clock: a monotonic clock that counts the time of a suspend, in seconds.

    """

    def __init__(
        self,
        client: EtcdClient,
        renewing: EtcdClient,
        prefix: str,
        name: str,
        lease_s: int = LEASE_S,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self.name = name
        self._lease_s = lease_s
        self._clock = clock
        self._renewal = Renewal(renewing, lease_s, clock, self._renewed)
        self._thread = LoopThread(self._renewal.keep, "lease")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._configured: frozenset[str] = frozenset()
        self._cannot: set[str] = set()
        self._managed: Callable[[], Sequence[str]] = tuple
        self._report: Callable[[str], Status] = lambda _: Status(name, "pending")
        self._stored: Callable[[], Sequence[str]] = tuple
        self.members: dict[str, Member] = {}
        self.holders: dict[str, str] = {}
        """The owner of each switch's key, by switch, according to etcd."""
        self._revisions: dict[str, int] = {}
        """The revision of each switch's key, by switch."""
        self.epoch: tuple[int, int] = (0, 0)
        """The store's epoch, and the revision of its key."""
        self._statuses: dict[str, Status] = {}
        self._lease = 0
        """The lease that the keys in `_mine` have."""
        self._own: dict[str, tuple[Any, int]] = {}
        """The values that this controller has put, with the revision, by key without the prefix."""
        self._moved: dict[str, int] = {}
        """The revision of the newest change of such a key, according to etcd."""
        self._joined_s = self._changed_s = float("-inf")
        """The time when this controller got its lease, and of the last change of controllers."""
        self._mine: dict[str, int] = {}
        """The switches whose key this controller owns, with the revision of the key."""
        self._left: dict[str, int] = {}
        """The revision at which this controller left a switch, by switch."""
        self._bidding: dict[str, asyncio.Lock] = {}
        self._tenures: dict[str, LeasedTenure] = {}
        self._stir = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # ---- life ----

    async def start(
        self,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        stored: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Start to hold a lease and to ask for switches.

        Args:
            configured: the switches of this controller's own configuration.
            managed: returns all switches that it can drive.
            stored: returns the switches that every controller knows.
            report: returns the status of a switch that this controller drives.

        """
        self._managed, self._stored, self._report = managed, stored, report
        self._configured = frozenset(configured)
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        work = {"expire": self._expire, "share": self._share, "tell": self._tell_all}
        self._tasks = [
            asyncio.create_task(one(), name=f"leases: {name}") for name, one in work.items()
        ]

    async def stop(self) -> None:
        """Give up the lease and all keys, so that others need not wait for the lease's end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._mine.clear()
        self._notify_all()
        await self._thread.stop()
        if self._renewal.term.lease:
            with contextlib.suppress(EtcdError):
                await self._client.revoke(self._renewal.term.lease)

    def tenure(self, switch: str) -> "LeasedTenure":
        """Return the right to write to a switch."""
        return self._tenures.setdefault(switch, LeasedTenure(self, switch))

    def held(self, switch: str) -> bool:
        """Whether this controller may write to a switch at this moment."""
        return switch in self._mine and self._valid()

    def _valid(self) -> bool:
        # The thread may have another lease already, without the keys in `_mine`.
        term = self._renewal.term
        return term.lease == self._lease and self._clock() < term.until_s

    def _notify(self, switch: str) -> None:
        tenure = self._tenures.get(switch)
        if tenure is not None:
            tenure.notify()

    def _notify_all(self) -> None:
        for tenure in self._tenures.values():
            tenure.notify()

    def _drop(self, switch: str) -> None:
        """Note that a switch's key is no longer this controller's."""
        self._mine.pop(switch, None)
        self._own.pop(f"status/{switch}", None)
        self._notify(switch)

    def stir(self) -> None:
        """Compute the assignment of switches again, after a change."""
        self._stir.set()

    # ---- the lease ----

    def _renewed(self) -> None:
        """Note a new term; called in the thread of the renewal."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                # The loop may be closed.
                self._loop.call_soon_threadsafe(self._take_term)

    def _take_term(self) -> None:
        """Begin again without a switch if there is another lease."""
        lease = self._renewal.term.lease
        if lease != self._lease:
            self._lease = lease
            self._mine.clear()
            self._own.clear()
            self._joined_s = self._clock()
            self.stir()
        self._notify_all()

    def _stands(self, key: str, value: Any) -> bool:
        """Whether a key has this value, as far as is known.

        A put that was not answered may be made at any later time: a member of etcd that was
        stopped, and goes on, makes the puts that have reached it. So the value stands only as long
        as etcd tells of no later change.
        """
        put, revision = self._own.get(key, (None, 0))
        return bool(put == value and self._moved.get(key, 0) <= revision)

    def _note_moved(self, what: str, name: str, revision: int) -> None:
        """Note that a key has changed, if it is one that this controller puts."""
        mine = name in self._mine if what == "status" else (what, name) == ("members", self.name)
        if mine:
            self._moved[f"{what}/{name}"] = revision

    async def _announce(self) -> None:
        """Put the key of this controller, unless it says already what it should."""
        cannot, lease, key = frozenset(self._cannot), self._lease, f"members/{self.name}"
        if self._stands(key, cannot):
            return
        value = {"configured": sorted(self._configured), "cannot": sorted(cannot)}
        put = etcd.put(self._prefix + key, json.dumps(value), lease)
        answer = await self._client.transact([], [put])
        if lease == self._lease:
            self._own[key] = cannot, answer.header.revision

    async def _expire(self) -> None:
        """Show that the loop goes on; notify the drivers when the lease is no longer valid."""
        valid = False
        while True:
            self._renewal.alive_s = now_s = self._clock()
            if valid and not self._valid():
                self._notify_all()
            valid = self._valid()
            left_s = self._renewal.term.until_s - now_s if valid else RETRY_S
            await asyncio.sleep(min(left_s, TICK_S))

    # ---- keys from etcd ----

    def put(self, what: str, name: str, kv: Any) -> None:
        """Record a key that was put.

        Raises:
            ValueError, KeyError, TypeError: its value is not understood; nothing is recorded.

        """
        self._record(what, name, value_of(what, kv), kv.mod_revision)

    def put_all(self, keys: Sequence[Leased], revision: int) -> None:
        """Record all keys, read at one revision, in place of what was known."""
        self.members.clear()
        self.holders.clear()
        self._revisions.clear()
        self._statuses.clear()
        # A key may have been deleted meanwhile.
        self._moved.clear()
        self._own.clear()
        for one in keys:
            self._record(*one)
        for switch, put in list(self._mine.items()):
            if put <= revision and self.holders.get(switch) != self.name:
                self._drop(switch)

    def _record(self, what: str, name: str, value: Any, revision: int) -> None:
        self._note_moved(what, name, revision)
        if what == "epoch":
            self.epoch = (value, revision)
        elif what == "members":
            if name not in self.members:
                self._changed_s = self._clock()
            self.members[name] = value
        elif what == "leases":
            if value == self.name and revision < self._left.get(name, 0):
                # This controller has left the switch since.
                return
            self.holders[name] = value
            self._revisions[name] = revision
        elif what == "status":
            self._statuses[name] = value
            return
        self.stir()

    def deleted(self, what: str, name: str, revision: int) -> None:
        """Record that a key was deleted at a revision."""
        self._note_moved(what, name, revision)
        if what == "members":
            self.members.pop(name, None)
            self._changed_s = self._clock()
        elif what == "leases":
            self.holders.pop(name, None)
            self._revisions.pop(name, None)
            # The deleted key may be the former owner's; this controller's own is then newer.
            if self._mine.get(name, revision) < revision:
                self._drop(name)
        elif what == "status":
            self._statuses.pop(name, None)
            return
        self.stir()

    # ---- the assignment of switches ----

    async def _share(self) -> None:
        """Take the switches that are assigned to this controller, and leave the others."""
        while True:
            self._stir.clear()
            try:
                if self._lease:
                    await self._announce()
                if self._lease and self.name in self.members:
                    await self._share_once()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s", error)
            except Exception:
                # The loop must go on after any error, so that switches are driven.
                _LOG.exception("switches could not be shared")
            # One computation is enough for many keys that change together.
            await asyncio.sleep(SHARE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._stir.wait()

    async def _share_once(self) -> None:
        stored = frozenset(self._stored())
        own = frozenset(self._managed())
        known = {*own, *stored}
        for member in self.members.values():
            known |= member.configured
        now_s = self._clock()
        balance = now_s - self._changed_s >= BALANCE_S
        # The watch may not have told of this controller's own keys yet.
        holders = {**self.holders, **dict.fromkeys(self._mine, self.name)}
        assigned = assign(self.members, known, stored, holders, balance=balance)
        # This controller can own a key that is not in `_mine`: a bid was under way when it left
        # the switch, or a put had no answer. It deletes such a key, since others wait for it.
        ours = {*self._mine, *(one for one, holder in self.holders.items() if holder == self.name)}
        lease = self._lease
        for some in _some(sorted(one for one in ours if assigned.get(one) != self.name)):
            await self._leave(some)
        # Wait until the owner of a switch leaves it, or the owner's lease ends.
        free = [
            switch
            for switch, chosen in assigned.items()
            if chosen == self.name
            and switch in own
            and switch not in self._mine
            and self.holders.get(switch, self.name) == self.name
        ]
        gathering = now_s - self._joined_s < GATHER_S
        room = max(0, GATHER_MOST - len(self._mine)) if gathering else len(free)
        for some in _some(free[:room]):
            if self._lease != lease:
                # It has ended meanwhile. A key that is put without a lease stays for ever.
                return
            await self._take(some)

    def _key(self, switch: str) -> str:
        return f"{self._prefix}leases/{switch}"

    async def _take(self, switches: Sequence[str]) -> None:
        """Ask for the keys of switches, except those that another controller has."""
        lease = self._lease
        asked = [
            etcd.nested([etcd.absent(key)], [etcd.put(key, self.name, lease)], [etcd.get(key)])
            for key in map(self._key, switches)
        ]
        answer = await self._client.transact([], asked)
        for switch, one in zip(switches, answer.responses, strict=True):
            said = one.response_txn
            revision = answer.header.revision
            if not said.succeeded:
                (kv,) = said.responses[0].response_range.kvs
                if kv.lease != lease:
                    continue
                # An earlier request, which had no answer, has put the key.
                revision = kv.mod_revision
            if lease == self._lease:
                self._mine[switch] = revision
                self._notify(switch)

    async def _leave(self, switches: Sequence[str]) -> None:
        """Give switches to others; the switches refuse the writes that are under way."""
        asked, lease = [], self._lease
        for switch in switches:
            key = self._key(switch)
            # Otherwise a leave that etcd makes late would delete a key that was put since.
            newest = max(self._mine.get(switch, 0), self._revisions.get(switch, 0))
            asked.append(
                etcd.nested(
                    [etcd.leased(key, lease), etcd.not_since(key, newest)],
                    [etcd.delete(key), etcd.delete(f"{self._prefix}status/{switch}")],
                    [etcd.get(key)],
                )
            )
            self._drop(switch)
        answer = await self._client.transact([], asked)
        for switch, one in zip(switches, answer.responses, strict=True):
            said = one.response_txn
            kvs: Sequence[Any] = () if said.succeeded else said.responses[0].response_range.kvs
            if kvs and kvs[0].lease == lease:
                # A bid that was under way has put the key. It is left at the next computation.
                self._record("leases", switch, self.name, kvs[0].mod_revision)
                continue
            self._left[switch] = answer.header.revision
            if self.holders.get(switch) == self.name:
                del self.holders[switch]

    async def bid(self, switch: str, above: int) -> int:
        """Return a fencing number for a switch (`southbound.Tenure.bid`).

        Raises:
            NotHeldError: the switch is not this controller's.
            FenceError: etcd does not answer.

        """
        async with self._bidding.setdefault(switch, asyncio.Lock()):
            try:
                if above >= self.epoch[0] << 64:
                    await self._raise_epoch(above)
                return self.epoch[0] << 64 | await self._renew_key(switch)
            except EtcdError as error:
                raise FenceError(str(error)) from None

    async def _renew_key(self, switch: str) -> int:
        """Put the key of a switch again, and return its revision, which is new."""
        revision, lease, key = self._mine.get(switch), self._lease, self._key(switch)
        if revision is None or not self.held(switch):
            raise NotHeldError(switch)
        answer = await self._client.transact(
            [etcd.unchanged(key, revision)],
            [etcd.put(key, self.name, lease)],
            [etcd.get(key)],
        )
        kvs: Sequence[Any] = ()
        if not answer.succeeded:
            kvs = answer.responses[0].response_range.kvs
        if not answer.succeeded and (not kvs or kvs[0].lease != lease):
            self._drop(switch)
            raise NotHeldError(switch)
        # An earlier put that had no answer counts, too: its revision has not been used.
        newest = answer.header.revision if answer.succeeded else kvs[0].mod_revision
        if switch not in self._mine:
            raise NotHeldError(switch)
        self._mine[switch] = newest
        return int(newest)

    async def _raise_epoch(self, above: int) -> None:
        """Raise the epoch, so that fencing numbers are higher than one that a switch remembers."""
        key = f"{self._prefix}epoch"
        answer = await self._client.range(key)
        kv = answer.kvs[0]
        self.epoch = (int(kv.value), kv.mod_revision)
        # The next revision of the current epoch may be high enough.
        if above < self.epoch[0] << 64 | answer.header.revision:
            return
        epoch = epoch_above(above)
        answer = await self._client.transact(
            [etcd.unchanged(key, kv.mod_revision)], [etcd.put(key, str(epoch))]
        )
        if not answer.succeeded:
            raise EtcdError("another controller has raised the epoch", certain=True)
        self.epoch = (epoch, answer.header.revision)

    async def ensure_epoch(self) -> None:
        """Give a new store its epoch.

        Raises:
            EtcdError: etcd does not answer.

        """
        key = f"{self._prefix}epoch"
        # Wall-clock time, so that a newer store bids higher than an older one.
        epoch = str(int(time.time()) // EPOCH_S)
        put = [etcd.put(key, epoch)]
        await self._client.transact([etcd.absent(key)], put, again_s=etcd.AGAIN_S)

    # ---- reports ----

    def reaches(self, switch: str, reachable: bool) -> None:
        """Note whether a switch answers this controller (`southbound.Tenure.reaches`)."""
        if reachable == (switch in self._cannot):
            (self._cannot.discard if reachable else self._cannot.add)(switch)
            self.stir()

    async def _tell_all(self) -> None:
        """Put the statuses of this controller's switches into etcd whenever they change."""
        while True:
            try:
                await self._tell_statuses()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s", error)
            except Exception:
                _LOG.exception("how switches are could not be told")
            await asyncio.sleep(TELL_S)

    async def _tell_statuses(self) -> None:
        """Put each status that has changed, provided that this controller still owns the key."""
        changed: list[tuple[str, Status, int]] = []
        for switch, held in list(self._mine.items()):
            status = replace(self._report(switch), controller=self.name)
            if self.held(switch) and not self._stands(f"status/{switch}", status):
                changed.append((switch, status, held))
        lease = self._lease
        for some in _some(changed):
            puts = [self._status_operation(switch, status, lease) for switch, status, _ in some]
            answer = await self._client.transact([], puts)
            for (switch, status, held), one in zip(some, answer.responses, strict=True):
                # The switch may have been left meanwhile.
                if one.response_txn.succeeded and self._mine.get(switch) == held:
                    self._own[f"status/{switch}"] = status, answer.header.revision

    def _status_operation(self, switch: str, status: Status, lease: int) -> Any:
        """Return the put of a status, if the switch's key still has this lease.

        The key's revision is not compared: a bid that was given up may have put it late.
        """
        value = {
            "controller": status.controller,
            "state": status.state,
            "failed": dict(list(status.failed.items())[:FAILED_TOLD]),
            "base": status.base,
        }
        key = f"{self._prefix}status/{switch}"
        mine = [etcd.leased(self._key(switch), lease)]
        return etcd.nested(mine, [etcd.put(key, json.dumps(value), lease)], [])

    def status(self, switch: str) -> Status | None:
        """Return the status that a switch's controller reports (`base.Store.status`)."""
        if switch in self._mine:
            return None
        told, holder = self._statuses.get(switch), self.holders.get(switch, "")
        if told is None or told.controller != holder:
            return Status(holder, "pending")
        return told


def value_of(what: str, kv: Any) -> Any:
    """Return the value of a key of `members`, `leases`, `status` or `epoch`.

    Raises:
        ValueError, KeyError, TypeError: it is not understood.

    """
    if what == "epoch":
        return int(kv.value)
    if what == "leases":
        return kv.value.decode()
    value = read(kv)
    if what == "status":
        return Status(**value)
    return Member(frozenset(value["configured"]), frozenset(value["cannot"]))


FAILED_TOLD = 100
"""Most resources missing on a switch that its status names."""


def _some(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Return items in parts of KEYS at most."""
    for start in range(0, len(items), KEYS):
        yield items[start : start + KEYS]


class LeasedTenure:
    """The right to write to one switch, while its key is this controller's (`southbound.Tenure`).

    Args:
        leases: the leases of the controller.
        switch: the name of the switch.

    """

    exclusive = True

    def __init__(self, leases: Leases, switch: str) -> None:
        self._leases = leases
        self._switch = switch
        self._changed = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether this controller holds the right at this moment (`southbound.Tenure.held`)."""
        return self._leases.held(self._switch)

    async def bid(self, above: int = 0) -> int:
        """Return a fencing number (`southbound.Tenure.bid`)."""
        return await self._leases.bid(self._switch, above)

    def gave(self, fence: int) -> bool:
        """Return False: leases do not need this question (`southbound.Tenure.gave`)."""
        return False

    async def becomes(self, held: bool) -> None:
        """Wait for a change (`southbound.Tenure.becomes`)."""
        while self.held is not held:
            await self._changed.wait()

    def reaches(self, reachable: bool) -> None:
        """Say whether the switch answers (`southbound.Tenure.reaches`)."""
        self._leases.reaches(self._switch, reachable)

    def notify(self) -> None:
        """Wake the tasks that wait in `becomes`."""
        self._changed.set()
        self._changed = asyncio.Event()

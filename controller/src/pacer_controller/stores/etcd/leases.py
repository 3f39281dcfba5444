"""The assignment of switches to controllers in etcd: a lease per controller, a key per switch.

A controller may write to a switch while it owns the switch's key and its lease is valid by its own
clock. The lease is valid from the request of its last renewal, for its time to live less a margin.
So a controller that cannot reach etcd stops before etcd gives its switches to others. The switch
refuses a write that is still on its way then, because the successor's fencing number is higher. The
fencing number is the revision at which the key was put; the controller puts the key again for each
connection to the switch.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pacer_controller.southbound import FenceError, NotHeldError
from pacer_controller.stores.base import EPOCH_S, Status, epoch_above
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.assignment import Member, assign
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError

_LOG = logging.getLogger(__name__)

LEASE_S = 3
"""Time to live of a controller's lease."""

MARGIN_S = 0.5
"""Time before the possible end of its lease at which a controller stops writing, in seconds.

It allows for calls that are under way, and for clocks whose rates differ by up to a sixth.
"""

RENEWALS = 4
"""Renewals in the time of a lease."""

RETRY_S = 0.1
TICK_S = 1.0
TELL_S = 0.2
"""Shortest time between two reports of the statuses of switches."""


class Leases:
    """The lease of this controller, and the leases of the others as far as etcd has told of them.

    Args:
        client: the client of the etcd cluster.
        prefix: the prefix of all keys.
        name: the name of this controller; unique.
        lease_s: the time to live of the lease, in seconds.
        clock: a monotonic clock, in seconds.

    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        name: str,
        lease_s: int = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self.name = name
        self._lease_s = lease_s
        self._clock = clock
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
        self._valid_until_s = float("-inf")
        self._mine: dict[str, int] = {}
        """The switches whose key this controller owns, with the revision of the key."""
        self._bidding: dict[str, asyncio.Lock] = {}
        self._tenures: dict[str, LeasedTenure] = {}
        self._stir = asyncio.Event()
        self._told: dict[str, Status] = {}
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
        work = {"keep": self._keep, "expire": self._expire, "share": self._share}
        work["tell"] = self._tell_all
        self._tasks = [
            asyncio.create_task(one(), name=f"leases: {name}") for name, one in work.items()
        ]

    async def stop(self) -> None:
        """Give up the lease and all keys, so that others need not wait for the lease's end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._valid_until_s = float("-inf")
        self._mine.clear()
        self._notify()
        if self._lease:
            with contextlib.suppress(EtcdError):
                await self._client.revoke(self._lease)

    def tenure(self, switch: str) -> "LeasedTenure":
        """Return the right to write to a switch."""
        return self._tenures.setdefault(switch, LeasedTenure(self, switch))

    def held(self, switch: str) -> bool:
        """Whether this controller may write to a switch at this moment."""
        return switch in self._mine and self._clock() < self._valid_until_s

    def _notify(self) -> None:
        for tenure in self._tenures.values():
            tenure.notify()

    def stir(self) -> None:
        """Compute the assignment of switches again, after a change."""
        self._stir.set()

    # ---- the lease ----

    async def _keep(self) -> None:
        """Hold a lease: renew it, and request a new one when it has ended."""
        while True:
            try:
                if not self._lease:
                    await self._begin()
                asked_s = self._clock()
                ttl_s = await self._client.keep_alive(self._lease, self._lease_s / RENEWALS)
                if ttl_s > 0:
                    self._valid_until_s = asked_s + ttl_s - MARGIN_S
                    self._notify()
                    await asyncio.sleep(self._lease_s / RENEWALS)
                    continue
                self._lose()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s", error)
            except Exception:
                # The loop must go on: without a lease this controller drives no switch.
                _LOG.exception("the lease could not be kept")
            await asyncio.sleep(RETRY_S)

    async def _begin(self) -> None:
        asked_s = self._clock()
        lease = await self._client.grant(self._lease_s)
        self._lease, self._valid_until_s = lease, asked_s + self._lease_s - MARGIN_S
        self._told.clear()
        await self._announce()
        self.stir()

    async def _announce(self) -> None:
        value = {"configured": sorted(self._configured), "cannot": sorted(self._cannot)}
        key = f"{self._prefix}members/{self.name}"
        await self._client.transact([], [etcd.put(key, json.dumps(value), self._lease)])

    def _lose(self) -> None:
        _LOG.warning("the lease of this controller has ended: others may drive its switches")
        self._lease, self._valid_until_s = 0, float("-inf")
        self._mine.clear()
        self._notify()

    async def _expire(self) -> None:
        """Notify the drivers when the lease is no longer valid by the clock."""
        while True:
            left_s = self._valid_until_s - self._clock()
            if left_s <= 0:
                self._notify()
                left_s = RETRY_S
            await asyncio.sleep(min(left_s, self._lease_s))

    # ---- keys from etcd ----

    def put(self, what: str, name: str, kv: Any) -> None:
        """Record a key that was put."""
        if what == "members":
            value = json.loads(kv.value)
            self.members[name] = Member(frozenset(value["configured"]), frozenset(value["cannot"]))
        elif what == "leases":
            self.holders[name] = kv.value.decode()
            self._revisions[name] = kv.mod_revision
        elif what == "status":
            value = json.loads(kv.value)
            self._statuses[name] = Status(**value)
            return
        self.stir()

    def deleted(self, what: str, name: str, revision: int) -> None:
        """Record that a key was deleted at a revision."""
        if what == "members":
            self.members.pop(name, None)
        elif what == "leases":
            self.holders.pop(name, None)
            self._revisions.pop(name, None)
            # The deleted key may be the former owner's; this controller's own is then newer.
            if self._mine.get(name, revision) < revision:
                del self._mine[name]
                self._notify()
        elif what == "status":
            self._statuses.pop(name, None)
            return
        self.stir()

    def clear(self) -> None:
        """Forget everything read from etcd, before it is read again."""
        self.members.clear()
        self.holders.clear()
        self._revisions.clear()
        self._statuses.clear()

    # ---- the assignment of switches ----

    async def _share(self) -> None:
        """Take the switches that are assigned to this controller, and leave the others."""
        while True:
            self._stir.clear()
            try:
                if self._lease and self.name in self.members:
                    await self._share_once()
                elif self._lease:
                    await self._announce()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s", error)
            except Exception:
                # The loop must go on after any error, so that switches are driven.
                _LOG.exception("switches could not be shared")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._stir.wait()

    async def _share_once(self) -> None:
        stored = frozenset(self._stored())
        own = frozenset(self._managed())
        known = {*own, *stored}
        for member in self.members.values():
            known |= member.configured
        assigned = assign(self.members, known, stored)
        # This controller can own a key that is not in `_mine`: a bid was under way when it left
        # the switch, or a put had no answer. It deletes such a key, since others wait for it.
        ours = {*self._mine, *(one for one, holder in self.holders.items() if holder == self.name)}
        for switch in sorted(one for one in ours if assigned.get(one) != self.name):
            await self._leave(switch)
        for switch, chosen in assigned.items():
            if chosen == self.name and switch in own and switch not in self._mine:
                await self._take(switch)

    def _key(self, switch: str) -> str:
        return f"{self._prefix}leases/{switch}"

    async def _take(self, switch: str) -> None:
        """Ask for the key of a switch, unless another controller has it."""
        if self.holders.get(switch, self.name) != self.name:
            # Wait until the owner leaves the switch or the owner's lease ends.
            return
        key, lease = self._key(switch), self._lease
        answer = await self._client.transact(
            [etcd.absent(key)], [etcd.put(key, self.name, lease)], [etcd.get(key)]
        )
        if answer.succeeded:
            revision = answer.header.revision
        else:
            (kv,) = answer.responses[0].response_range.kvs
            if kv.lease != lease:
                return
            # An earlier request, which had no answer, has put the key.
            revision = kv.mod_revision
        if lease == self._lease:
            self._mine[switch] = revision
            self._notify()

    async def _leave(self, switch: str) -> None:
        """Give a switch to another controller; the switch refuses writes that are under way."""
        self._mine.pop(switch, None)
        self._told.pop(switch, None)
        self._notify()
        key = self._key(switch)
        # The key's revision is not compared: a bid may have put the key meanwhile.
        await self._client.transact(
            [etcd.leased(key, self._lease)],
            [etcd.delete(key), etcd.delete(f"{self._prefix}status/{switch}")],
        )

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
            self._mine.pop(switch, None)
            self._notify()
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

    async def _tell_all(self) -> None:
        """Put the statuses of this controller's switches into etcd whenever they change."""
        announced = frozenset(self._cannot)
        while True:
            try:
                if announced != self._cannot and self._lease:
                    announced = frozenset(self._cannot)
                    await self._announce()
                await self._tell_statuses()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s", error)
            except Exception:
                _LOG.exception("how switches are could not be told")
            await asyncio.sleep(TELL_S)

    async def _tell_statuses(self) -> None:
        """Put each status that has changed, provided that this controller still owns the key."""
        changed: list[tuple[str, Status]] = []
        for switch in list(self._mine):
            status = replace(self._report(switch), controller=self.name)
            if self.held(switch) and self._told.get(switch) != status:
                changed.append((switch, status))
        for start in range(0, len(changed), STATUSES):
            some = changed[start : start + STATUSES]
            puts = [self._status_operation(switch, status) for switch, status in some]
            answer = await self._client.transact([], puts)
            for (switch, status), one in zip(some, answer.responses, strict=True):
                if one.response_txn.succeeded:
                    self._told[switch] = status

    def _status_operation(self, switch: str, status: Status) -> Any:
        value = {
            "controller": status.controller,
            "state": status.state,
            "failed": dict(list(status.failed.items())[:FAILED_TOLD]),
            "base": status.base,
        }
        key = f"{self._prefix}status/{switch}"
        mine = [etcd.unchanged(self._key(switch), self._mine.get(switch, 0))]
        return etcd.nested(mine, [etcd.put(key, json.dumps(value), self._lease)], [])

    def status(self, switch: str) -> Status | None:
        """Return the status that a switch's controller reports (`base.Store.status`)."""
        if switch in self._mine:
            return None
        told, holder = self._statuses.get(switch), self.holders.get(switch, "")
        if told is None or told.controller != holder:
            return Status(holder, "pending")
        return told


STATUSES = 32
"""Most statuses of one transaction."""

FAILED_TOLD = 100
"""Most resources missing on a switch that its status names."""


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

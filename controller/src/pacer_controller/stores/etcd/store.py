"""The store on etcd: reads from the copy in memory, and writes.

A write is one transaction. It compares `root` and the revisions that it was planned on, and puts
the changes and the heads of its sets. Most writes depend on little. A change of a resource's
settings depends on the resource and on the set's shape: the resources that exist, and their
references. A resource that is added or removed depends on the shape, too. So concurrent writes of
several controllers to a set succeed if they change different resources. Only a write that depends
on all of its sets compares heads.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from pacer_controller.records import Desired, ResourceChange
from pacer_controller.southbound import Tenure
from pacer_controller.stores.base import (
    EVENTS_KEPT,
    EVENTS_SLACK,
    SWITCHES,
    Event,
    Feed,
    StaleError,
    Status,
    StoreError,
    SwitchSettings,
    Written,
)
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd import thread_channel
from pacer_controller.stores.etcd.client import Access, EtcdClient, EtcdError
from pacer_controller.stores.etcd.commit import Commit
from pacer_controller.stores.etcd.generations import Generations
from pacer_controller.stores.etcd.group_commit import OPERATIONS, Transaction
from pacer_controller.stores.etcd.layout import SETTINGS, Plan
from pacer_controller.stores.etcd.leases import LEASE_S, Leases
from pacer_controller.stores.etcd.mirror import Mirror
from pacer_controller.stores.etcd.operations import Operations
from pacer_controller.stores.etcd.watch import Watch

_LOG = logging.getLogger(__name__)


class EtcdStore:
    """The desired state of all switches, and the events (`base.Store`); made by `open`.

    Args:
        access: the addresses and credentials of the cluster.
        prefix: the prefix of all keys; begins and ends with a slash.
        lease_s: the time to live of the controller's lease, in seconds.

    """

    shared = True
    broken = None
    """No error of etcd lasts until a restart (`base.Store.broken`)."""

    changes_most = 100

    def __init__(self, access: Access, prefix: str, lease_s: int = LEASE_S) -> None:
        self._client = EtcdClient(access)
        self._prefix = prefix
        self._endpoints = ",".join(access.endpoints)
        self.leases = Leases(
            self._client,
            EtcdClient(access, thread_channel.connect),
            prefix,
            secrets.token_hex(4),
            lease_s,
        )
        self.mirror = Mirror(self._client, prefix, self.leases)
        self.watch = Watch(self._client, self.mirror, self.name)
        self._operations = Operations(self.mirror, self.leases.name)
        self._commit = Commit(self._client, self.mirror, self.watch, self._operations, self.name)
        self.generations = Generations(
            self._client,
            self.mirror,
            self.watch,
            self._operations,
            self._commit,
            self.leases,
            self._in_background,
            self.name,
        )
        self._states: dict[str, Desired] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def controller(self) -> str:
        """The name of this controller (`base.Store.controller`)."""
        return self.leases.name

    @property
    def name(self) -> str:
        """The store's name in messages (`base.Store.name`)."""
        return f"etcd at {self._endpoints}{self._prefix.rstrip('/')}"

    @classmethod
    async def open(cls, access: Access, prefix: str, lease_s: int = LEASE_S) -> Self:
        """Connect, and read everything.

        Raises:
            StoreError: etcd does not answer, or its keys do not hold a controller's state.

        """
        store = cls(access, prefix, lease_s)
        try:
            await store.leases.ensure_epoch()
            await store.mirror.load()
        except (EtcdError, OSError, ValueError) as error:
            await store._client.close()
            raise StoreError(f"{store.name}: {error}") from None
        for name, one in store.mirror.sets.items():
            for (kind, of), (value, _) in one.values.items():
                if name != SWITCHES:
                    store.desired(name).set(kind, of, value)
        return store

    async def close(self) -> None:
        """Close the connections (`base.Store.close`)."""
        await self._client.close()

    async def start(
        self,
        feed: Feed,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Start to tell the feed of writes, and to ask for leases (`base.Store.start`)."""
        self.mirror.feed = feed
        self.watch.start()
        await self.leases.start(configured, managed, lambda: list(self.switches()), report)
        self._in_background(self.generations.sweep_all())

    async def stop(self) -> None:
        """Stop the tasks of `start` (`base.Store.stop`)."""
        await self.leases.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.watch.stop()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="etcd: background")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ---- the state in memory ----

    @property
    def revision(self) -> int:
        """Revision of the newest write (`base.Store.revision`)."""
        return max((one.base for one in self.mirror.sets.values()), default=0)

    def base(self, switch: str) -> int:
        """Return the revision of the newest write to a switch (`base.Store.base`)."""
        return self.mirror.set(switch).base

    def known(self) -> Collection[str]:
        """Return the names of the switches that have resources (`base.Store.known`)."""
        return [name for name in self.mirror.sets if name != SWITCHES]

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch (`base.Store.desired`)."""
        return self._states.setdefault(switch, Desired())

    def forget(self, switch: str) -> None:
        """Drop the desired state of a switch from memory (`base.Store.forget`)."""
        self._states.pop(switch, None)

    def switches(self) -> dict[str, tuple[Mapping[str, Any], int]]:
        """Return the switches that requests made (`base.Store.switches`)."""
        return {name: value for (_, name), value in self.mirror.set(SWITCHES).values.items()}

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events (`base.Store.events`)."""
        return list(self.mirror.events)

    # ---- writing ----

    async def write(
        self,
        changes: Sequence[ResourceChange],
        events: Sequence[Event] = (),
        switches: SwitchSettings | None = None,
        bases: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
    ) -> Written:
        """Store changes (`base.Store.write`); the feed has the events."""
        name = self._operations.new_name()
        if not changes and not switches:
            await self._write_events(name, events)
            return Written(self.revision)
        sets: dict[str, dict[tuple[str, str], tuple[Any, int] | None]] = {}
        for change in changes:
            after = change.after
            value = None if after is None else (after, after.revision)
            sets.setdefault(change.switch, {})[change.kind, change.name] = value
        for of, settings in (switches or {}).items():
            sets.setdefault(SWITCHES, {})[SETTINGS, of] = settings
        gone = frozenset(of for of, settings in (switches or {}).items() if settings is None)
        for of in gone:
            sets.setdefault(of, {})
        planned_on = {of: self.base(of) for of in sets} | dict(bases or {})
        shaped = {of for of in sets if whole} | {c.switch for c in changes if not c.keeps_shape}
        # The bandwidth left on a port depends on the rates of all classes that leave by it.
        whole = whole or any(change.kind == "port" for change in changes)
        plan = Plan(name, sets, gone, events, planned_on, shaped, whole)
        self._commit.check(plan)
        waiting = asyncio.get_running_loop().create_future()
        self.mirror.awaited[name] = waiting
        try:
            return await self._make(plan, waiting)
        finally:
            del self.mirror.awaited[name]

    async def _make(self, plan: Plan, waiting: "asyncio.Future[int]") -> Written:
        """Make a write.

        Raises:
            StoreError: see `write`.

        """
        if not self._operations.fit(plan):
            return await self.generations.make(replace(plan, whole=True), waiting)
        work = self._operations.together if plan.whole else self._operations.each
        made = await self._commit.make(plan, partial(work, plan), waiting)
        behind = set()
        for of, head in zip(plan.sets, made.heads, strict=True):
            one = self.mirror.set(of)
            if head <= max(self.mirror.seen, one.known):
                # All earlier writes of others are known, so the set is known up to this write.
                one.known = max(one.known, made.revision)
                one.head = max(one.head, made.revision)
                if of in plan.shaped:
                    one.shape = max(one.shape, made.revision)
            if head > plan.bases[of]:
                behind.add(of)
        self._trim_events()
        bases = dict.fromkeys(plan.sets, made.revision)
        return Written(made.revision, bases, (), frozenset(behind), made.stale)

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
        """Undo a `write` (`base.Store.take_back`), and add events, since others have seen it."""
        back = [change.reversed() for change in reversed(changes)]
        said = [
            {**one, "kind": "failed", "message": f"taken back: {one['message']}"}
            for one in reversed(events)
        ]
        try:
            made = await self.write(back, said, switches, bases, whole=whole)
            if made.stale:
                raise StaleError(f"{self.name}: another controller has changed it")
        except StoreError:
            # The write stays, or may stay. The caller has undone it in memory, so the feed tells
            # the current values again; the watch does not tell of an own generation. It tells them
            # once the caller has noted that it has undone the write: values that are not newer than
            # the caller's are passed over.
            for of in dict.fromkeys(change.switch for change in changes):
                values = self.mirror.set(of).values
                gone = dict.fromkeys((c.kind, c.name) for c in changes if c.switch == of)
                told = {of: {**gone, **values}}
                asyncio.get_running_loop().call_soon(self.mirror.tell, told)
            raise
        return made

    async def _write_events(self, name: str, events: Sequence[Event]) -> None:
        make = partial(self._operations.events, name, events)
        try:
            await self._commit.group.make(Transaction([], make, events=len(events)))
        except EtcdError as error:
            raise StoreError(f"{self.name}: {error}") from None
        self._trim_events()

    def _trim_events(self) -> None:
        """Start to remove the oldest events if there are too many."""
        if self.mirror.events_kept > EVENTS_KEPT + EVENTS_SLACK:
            self._in_background(self._trim())

    async def _trim(self) -> None:
        """Remove the oldest events.

        Their keys are named one by one: the times in them are those of several clocks, so that a
        range of keys can hold newer events, too.
        """
        mirror = self.mirror
        oldest: list[tuple[str, int]] = []
        while mirror.events_kept > EVENTS_KEPT:
            oldest.append(mirror.event_keys.popitem(last=False))
            mirror.events_kept -= oldest[-1][1]
        while oldest:
            some = [etcd.delete(self._prefix + key) for key, _ in oldest[:OPERATIONS]]
            try:
                await self._client.transact([], some)
            except EtcdError as error:
                _LOG.warning("%s: old events stay for now: %s", self.name, error)
                break
            del oldest[:OPERATIONS]
        for key, count in reversed(oldest):
            mirror.event_keys[key] = count
            mirror.event_keys.move_to_end(key, last=False)
            mirror.events_kept += count

    # ---- the rest ----

    async def catch_up(self) -> None:
        """Wait until the feed has told of all writes before the call (`base.Store.catch_up`)."""
        await self.watch.catch_up()

    async def probe(self) -> None:
        """Check that the cluster takes writes (`base.Store.probe`)."""
        try:
            # The put is not made, but etcd checks that there is room for it, and asks a majority.
            key = f"{self._prefix}none"
            await self._client.transact([etcd.absent(key)], [], [etcd.put(key, "")])
        except EtcdError as error:
            raise StoreError(f"{self.name}: {error}") from None

    def tenure(self, switch: str) -> Tenure:
        """Return the right to write to a switch (`base.Store.tenure`)."""
        return self.leases.tenure(switch)

    def status(self, switch: str) -> Status | None:
        """Return the status that a switch's controller reports (`base.Store.status`)."""
        return self.leases.status(switch)

    def describe(self) -> dict[str, Any]:
        """Return a description of the store (`base.Store.describe`)."""
        return {
            "kind": "etcd",
            "epoch": self.leases.epoch[0],
            "controller": self.controller,
            "controllers": sorted(self.leases.members),
            "driven": dict(sorted(self.leases.holders.items())),
        }

"""A store in etcd, shared by any number of controllers (`etcd_layout`: its keys).

A write is one transaction. It compares `root` and the revisions that it was planned on, and puts
the changes and the heads of its sets. Most writes depend on little. A change of a resource's
settings depends on the resource and on the set's shape: the resources that exist, and their
references. A resource that is added or removed depends on the shape, too. So concurrent writes of
several controllers to a set succeed if they change different resources. Only a write that depends
on all of its sets compares heads.

Concurrent writes are combined into one transaction of etcd (`group_commit`).

A write that is too large for one transaction is written as new generations of its sets. No
controller reads them before a transaction as above puts their names into `root`.

etcd may have made a write that it did not answer. A void write then moves head and shape, so that
the write cannot be made any longer, and the watch tells whether it was made before.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from aetcd import rpc

from pacer_controller.records import Desired, ResourceChange
from pacer_controller.southbound import Tenure
from pacer_controller.stores import etcd_client as etcd
from pacer_controller.stores.base import (
    EVENTS_KEPT,
    EVENTS_SLACK,
    SWITCHES,
    Entry,
    Event,
    Feed,
    StaleError,
    Status,
    StoreError,
    SwitchSettings,
    UncertainError,
    Written,
)
from pacer_controller.stores.etcd_client import Access, CompactedError, EtcdClient, EtcdError
from pacer_controller.stores.etcd_layout import (
    SETTINGS,
    ContentSet,
    Made,
    Plan,
    Values,
    decode,
    differences,
    encode,
    with_revision,
)
from pacer_controller.stores.group_commit import (
    BYTES,
    OPERATIONS,
    Answer,
    GroupCommit,
    Transaction,
)
from pacer_controller.stores.leases import LEASE_S, Leases

_LOG = logging.getLogger(__name__)

PAGE = 2_000
"""Most keys of one range request."""

FILLS = 4
"""Most transactions that fill a new generation at the same time."""

RESOLVE_S = 10.0
"""Longest time to find out whether a write was made, in seconds."""

SWEEP_AFTER_S = 10.0
"""Time from the start until generations left by other controllers are deleted, in seconds.

All controllers that run are known by then.
"""

WATCH_RETRY_S = 0.1

UNKNOWN = 1 << 63
"""Stands for an unknown revision: higher than any revision."""

EVENT_BITS = 10
"""Lower bits of an event's number, which count the events of one write."""

_LEASED = frozenset({"members", "leases", "status"})


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
        self._commits = GroupCommit(self._client)
        self._prefix = prefix
        self._endpoints = ",".join(access.endpoints)
        self.leases = Leases(self._client, prefix, secrets.token_hex(4), lease_s)
        self._counter = itertools.count(1)
        self._sets: dict[str, ContentSet] = {}
        self._root = 0
        self._states: dict[str, Desired] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._event_keys: deque[tuple[str, int]] = deque()
        self._events_kept = 0
        self._seen = 0
        """The newest revision up to which everything is known."""
        self._loads = 0
        """The number of times that everything was read; changes between two reads are unknown."""
        self._progress = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._asked: asyncio.Task[None] | None = None
        """The query for the newest write that is under way, and the next query."""
        self._awaited: dict[str, asyncio.Future[int]] = {}
        self._feed: Feed | None = None
        self._watching: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

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
            await store._load()
        except (EtcdError, OSError, ValueError, KeyError, TypeError) as error:
            await store._client.close()
            raise StoreError(f"{store.name}: {error}") from None
        for name, one in store._sets.items():
            for (kind, of), (value, _) in one.values.items():
                if name != SWITCHES:
                    store.desired(name).set(kind, of, value)
        return store

    async def close(self) -> None:
        """Close the connections (`base.Store.close`)."""
        await self._client.close()

    # ---- the state in memory ----

    @property
    def revision(self) -> int:
        """Revision of the newest write (`base.Store.revision`)."""
        return max((one.base for one in self._sets.values()), default=0)

    def _set(self, name: str) -> ContentSet:
        return self._sets.setdefault(name, ContentSet())

    def base(self, switch: str) -> int:
        """Return the revision of the newest write to a switch (`base.Store.base`)."""
        return self._set(switch).base

    def known(self) -> Collection[str]:
        """Return the names of the switches that have resources (`base.Store.known`)."""
        return [name for name in self._sets if name != SWITCHES]

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch (`base.Store.desired`)."""
        return self._states.setdefault(switch, Desired())

    def forget(self, switch: str) -> None:
        """Drop the desired state of a switch from memory (`base.Store.forget`)."""
        self._states.pop(switch, None)

    def switches(self) -> dict[str, tuple[Mapping[str, Any], int]]:
        """Return the switches that requests made (`base.Store.switches`)."""
        return {name: value for (_, name), value in self._set(SWITCHES).values.items()}

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events (`base.Store.events`)."""
        return list(self._events)

    # ---- reading ----

    async def _load(self) -> None:
        """Read everything at one revision.

        Raises:
            EtcdError: etcd does not answer.

        """
        kvs, revision = await self._range_all(self._prefix)
        self._loads += 1
        found: dict[str, Any] = {}
        for kv in kvs:
            found[kv.key.decode().removeprefix(self._prefix)] = kv
        root = found.pop("root", None)
        self._root = root.mod_revision if root is not None else 0
        self._sets = {
            name: ContentSet(generation=(number, of))
            for name, (number, of) in (json.loads(root.value) if root is not None else {}).items()
        }
        self.leases.clear()
        self._events.clear()
        self._event_keys.clear()
        self._events_kept = 0
        told: list[tuple[int, str, Any]] = []
        for key, kv in found.items():
            what, _, rest = key.partition("/")
            if what == "heads":
                self._take_head(rest, kv)
            elif what == "shapes":
                self._set(rest).shape = kv.mod_revision
            elif what == "data":
                self._take_value(rest, kv)
            elif what == "events":
                told.append((kv.mod_revision, key, kv))
            else:
                self._take_other(what, rest, kv)
        for _, key, kv in sorted(told, key=lambda one: one[0]):
            self._take_events(key, kv)
        self._seen = revision

    async def _range_all(self, prefix: str, revision: int = 0) -> tuple[list[Any], int]:
        """Return all keys with a prefix at one revision (0: the newest), and that revision."""
        kvs: list[Any] = []
        start, end = prefix, etcd.after(prefix)
        while True:
            answer = await self._client.range(start, end, limit=PAGE, revision=revision)
            revision = revision or answer.header.revision
            kvs += answer.kvs
            if not answer.more:
                return kvs, revision
            start = answer.kvs[-1].key.decode() + "\0"

    def _take_head(self, name: str, kv: Any) -> None:
        one = self._set(name)
        # The head of an own write may be newer: it is known before the watch tells of it.
        one.head = max(one.head, kv.mod_revision)
        waiting = self._awaited.get(kv.value.decode())
        if waiting is not None and not waiting.done():
            waiting.set_result(kv.mod_revision)

    def _take_value(self, rest: str, kv: Any) -> tuple[str, str, str] | None:
        """Record a value of a set; return set, kind and name.

        Returns:
            None if the value belongs to a generation that is not in `root` yet.

        """
        of, generation, kind, name = rest.split("/")
        one = self._set(of)
        if generation != one.generation[1]:
            return None
        one.values[kind, name] = decode(kind, name, kv)
        return of, kind, name

    def _take_events(self, key: str, kv: Any) -> list[dict[str, Any]]:
        first = (kv.mod_revision << EVENT_BITS) + int(key.partition("+")[2] or 0)
        events = [{"id": first + n, **one} for n, one in enumerate(json.loads(kv.value))]
        self._events.extend(events)
        self._event_keys.append((key, len(events)))
        self._events_kept += len(events)
        return events

    def _take_other(self, what: str, rest: str, kv: Any) -> None:
        if what == "epoch":
            self.leases.epoch = (int(kv.value), kv.mod_revision)
        elif what in _LEASED:
            self.leases.put(what, rest, kv)

    # ---- the watch ----

    async def start(
        self,
        feed: Feed,
        configured: Sequence[str],
        managed: Callable[[], Sequence[str]],
        report: Callable[[str], Status],
    ) -> None:
        """Start to tell the feed of writes, and to ask for leases (`base.Store.start`)."""
        self._feed = feed
        self._watching = asyncio.create_task(self._watch(), name="etcd")
        await self.leases.start(configured, managed, lambda: list(self.switches()), report)
        self._in_background(self._sweep_all())

    async def stop(self) -> None:
        """Stop the tasks of `start` (`base.Store.stop`)."""
        await self.leases.stop()
        asked = (self._watching, self._asking, self._asked)
        tasks = [*self._background, *(one for one in asked if one is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watching = None

    def _in_background(self, work: Any) -> None:
        task = asyncio.create_task(work, name="etcd: background")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _watch(self) -> None:
        """Follow the writes of all controllers without a gap, for ever."""
        while True:
            try:
                watching = self._client.watch(self._prefix, self._seen + 1)
                async with contextlib.aclosing(watching) as answers:
                    async for answer in answers:
                        await self._take(answer)
            except CompactedError:
                await self._catch_up()
            except (EtcdError, OSError) as error:
                _LOG.warning("%s: %s", self.name, error)
            except Exception:
                # The state in memory may differ from etcd's: read it again.
                _LOG.exception("%s: not understood", self.name)
                await self._catch_up()
            await asyncio.sleep(WATCH_RETRY_S)

    async def _catch_up(self) -> None:
        """Read everything after a gap, and tell the feed of the changes."""
        before = {name: dict(one.values) for name, one in self._sets.items()}
        last = self._events[-1]["id"] if self._events else 0
        try:
            await self._load()
        except (EtcdError, OSError, ValueError, KeyError, TypeError) as error:
            _LOG.error("%s: %s", self.name, error)
            return
        _LOG.warning("%s: read anew, after a gap", self.name)
        for name in {*before, *self._sets}:
            self._tell({name: differences(before.get(name, {}), self._set(name).values)})
        self._tell_events([one for one in self._events if one["id"] > last])
        self._advance(self._seen)

    def _advance(self, revision: int) -> None:
        self._seen = max(self._seen, revision)
        self._progress.set()
        self._progress = asyncio.Event()

    async def _take(self, answer: Any) -> None:
        """Process an answer of the watch, revision by revision."""
        for revision, events in itertools.groupby(answer.events, lambda e: e.kv.mod_revision):
            if revision > self._seen:
                await self._take_revision(revision, list(events))
        if answer.events:
            self._advance(answer.events[-1].kv.mod_revision)

    async def _take_revision(self, revision: int, events: Iterable[Any]) -> None:
        changed: dict[str, Values | dict[tuple[str, str], None]] = {}
        told: list[dict[str, Any]] = []
        for event in events:
            key = event.kv.key.decode().removeprefix(self._prefix)
            what, _, rest = key.partition("/")
            gone = event.type == rpc.Event.DELETE
            if what == "root" and not gone:
                for name in await self._take_root(event.kv):
                    changed[name] = {}
                # Only after the generations are read. Otherwise a write planned meanwhile would
                # compare the new `root`, but put into the generations of the old one.
                self._root = event.kv.mod_revision
            elif what == "heads" and not gone:
                self._take_head(rest, event.kv)
                changed.setdefault(rest, {})
            elif what == "shapes" and not gone:
                self._set(rest).shape = max(self._set(rest).shape, event.kv.mod_revision)
            elif what == "data":
                self._take_change(rest, event.kv, gone, changed)
            elif what == "events" and not gone:
                told += self._take_events(key, event.kv)
            elif what in _LEASED and gone:
                self.leases.deleted(what, rest, revision)
            elif not gone:
                self._take_other(what, rest, event.kv)
        self._tell(changed)
        self._tell_events(told)

    def _take_change(self, rest: str, kv: Any, gone: bool, changed: dict[str, Any]) -> None:
        of, generation, kind, name = rest.split("/")
        one = self._set(of)
        if generation != one.generation[1]:
            return
        if gone:
            one.values.pop((kind, name), None)
            changed.setdefault(of, {})[kind, name] = None
        else:
            self._take_value(rest, kv)
            changed.setdefault(of, {})[kind, name] = one.values[kind, name]

    async def _take_root(self, kv: Any) -> list[str]:
        """Read the sets that have new generations, tell the feed, and return their names."""
        flipped = []
        for name, (number, of) in json.loads(kv.value).items():
            one = self._set(name)
            if one.generation[1] == of:
                continue
            prefix = f"{self._prefix}data/{name}/{of}/"
            # This comes before any change in memory: if it fails, the watch repeats it.
            kvs, _ = await self._range_all(prefix, kv.mod_revision)
            before, one.values = one.values, {}
            one.generation = (number, of)
            for value in kvs:
                self._take_value(value.key.decode().removeprefix(f"{self._prefix}data/"), value)
            self._tell({name: differences(before, one.values)})
            flipped.append(name)
        return flipped

    def _tell(self, changed: Mapping[str, Mapping[tuple[str, str], Any]]) -> None:
        """Tell the feed of changes, by set."""
        if self._feed is None:
            return
        for name, values in changed.items():
            base = self._set(name).base
            if name == SWITCHES:
                settings = {of: value for (_, of), value in values.items()}
                self._feed.entry(Entry(SWITCHES, base, switches=settings))
                continue
            changes = [
                ResourceChange(name, kind, of, None, value[0] if value is not None else None)
                for (kind, of), value in values.items()
            ]
            self._feed.entry(Entry(name, base, changes))

    def _tell_events(self, events: Sequence[dict[str, Any]]) -> None:
        if events and self._feed is not None:
            self._feed.events(events)

    # ---- writing ----

    def _named(self) -> str:
        return f"{self.leases.name}-{next(self._counter)}"

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
        name = self._named()
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
        self._check(plan)
        waiting = asyncio.get_running_loop().create_future()
        self._awaited[name] = waiting
        try:
            return await self._make(plan, waiting)
        finally:
            del self._awaited[name]

    def _check(self, plan: Plan) -> None:
        """Check that, as far as is known, the state that a whole write depends on is unchanged.

        Raises:
            StaleError: another controller has changed it.

        """
        for of, base in plan.bases.items():
            one = self._set(of)
            if (one.base if plan.whole else max(one.shape, one.generation[0])) > base:
                raise StaleError(f"{self.name}: revision {base} is not the newest")

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
                values = self._set(of).values
                gone = dict.fromkeys((c.kind, c.name) for c in changes if c.switch == of)
                asyncio.get_running_loop().call_soon(self._tell, {of: {**gone, **values}})
            raise
        return made

    def _event_operation(self, name: str, events: Sequence[Event], before: int) -> list[Any]:
        """Return the operation that puts events after `before` others of the same revision."""
        if not events:
            return []
        # The wall-clock time decides only the order of removal.
        key = f"{self._prefix}events/{time.time_ns():020d}-{name}+{before}"
        return [etcd.put(key, json.dumps([dict(one) for one in events]))]

    async def _write_events(self, name: str, events: Sequence[Event]) -> None:
        make = partial(self._event_operation, name, events)
        try:
            await self._commits.make(Transaction([], make, events=len(events)))
        except EtcdError as error:
            raise StoreError(f"{self.name}: {error}") from None
        if self._events_kept > EVENTS_KEPT + EVENTS_SLACK:
            self._in_background(self._trim())

    async def _trim(self) -> None:
        """Remove the oldest events."""
        while self._events_kept > EVENTS_KEPT and len(self._event_keys) > 1:
            self._events_kept -= self._event_keys.popleft()[1]
        first, last = f"{self._prefix}events/", self._prefix + self._event_keys[0][0]
        with contextlib.suppress(EtcdError):
            await self._client.transact([], [etcd.delete(first, last)])

    async def _make(self, plan: Plan, waiting: "asyncio.Future[int]") -> Written:
        """Make a write.

        Raises:
            StoreError: see `write`.

        """
        count = sum(map(len, plan.sets.values())) + 2 * len(plan.sets) + 1
        # The count comes first, so that a commit of too many operations is not built.
        fits = count <= OPERATIONS
        if not fits or sum(one.ByteSize() for one in self._together(plan, 0)) > BYTES:
            return await self._make_generations(replace(plan, whole=True), waiting)
        work = self._together if plan.whole else self._each
        made = await self._commit(plan, partial(work, plan), waiting)
        behind = set()
        for of, head in zip(plan.sets, made.heads, strict=True):
            one = self._set(of)
            if head <= max(self._seen, one.known):
                # All earlier writes of others are known, so the set is known up to this write.
                one.known = max(one.known, made.revision)
                one.head = max(one.head, made.revision)
                if of in plan.shaped:
                    one.shape = max(one.shape, made.revision)
            if head > plan.bases[of]:
                behind.add(of)
        if self._events_kept > EVENTS_KEPT + EVENTS_SLACK:
            self._in_background(self._trim())
        bases = dict.fromkeys(plan.sets, made.revision)
        return Written(made.revision, bases, (), frozenset(behind), made.stale)

    def _together(self, plan: Plan, before: int) -> list[Any]:
        """Return the operations of a write that is made as a whole; those of the heads come first.

        Args:
            plan: the write.
            before: the number of events of the same revision that precede its own.

        """
        made = [*self._heads(plan.name, plan.sets), *self._shapes(plan.name, plan.shaped)]
        for of, values in plan.sets.items():
            if of in plan.gone:
                prefix = self._data(of)
                made.append(etcd.delete(prefix, etcd.after(prefix)))
                continue
            made += [self._operation(of, key, value) for key, value in values.items()]
        return [*made, *self._event_operation(plan.name, plan.events, before)]

    def _each(self, plan: Plan, before: int) -> list[Any]:
        """Return the operations of a write that makes each change on its own (`_together`)."""
        ((of, values),) = plan.sets.items()
        one, base = self._set(of), plan.bases[of]
        made = [*self._heads(plan.name, plan.sets), *self._shapes(plan.name, plan.shaped)]
        for number, (key, value) in enumerate(values.items()):
            # Compare with the newest known revision. If the resource has changed since the plan,
            # compare with revision 0, so that the change is not made.
            known = max(self._seen, one.known)
            if key in one.values and one.values[key][1] > base:
                known = 0
            compared = [etcd.not_since(f"{self._data(of)}{'/'.join(key)}", known)]
            said = plan.events[number : number + 1]
            done = self._event_operation(plan.name, said, before + number)
            made.append(etcd.nested(compared, [self._operation(of, key, value), *done], []))
        return made

    def _data(self, of: str) -> str:
        return f"{self._prefix}data/{of}/{self._set(of).generation[1]}/"

    def _operation(self, of: str, key: tuple[str, str], value: tuple[Any, int] | None) -> Any:
        where = self._data(of) + "/".join(key)
        return etcd.delete(where) if value is None else etcd.put(where, encode(*value))

    def _heads(self, name: str, sets: Iterable[str]) -> list[Any]:
        """Return the operations that move heads; their answers have the previous values."""
        return [etcd.put(f"{self._prefix}heads/{of}", name, former=True) for of in sets]

    def _shapes(self, name: str, sets: Iterable[str]) -> list[Any]:
        return [etcd.put(f"{self._prefix}shapes/{of}", name) for of in sets]

    def _comparisons(self, plan: Plan) -> list[Any]:
        """Return the comparisons of a write: of `root`, and of everything that it depends on."""
        compared = [etcd.unchanged(f"{self._prefix}root", self._root)]
        heads = f"{self._prefix}heads/"
        if plan.whole and len(plan.bases) < OPERATIONS:
            return compared + [
                etcd.unchanged(f"{heads}{of}", self._set(of).head) for of in plan.bases
            ]
        if plan.whole:
            # There are too many heads to compare: no head may be newer than the newest known one.
            newest = max(one.head for one in self._sets.values())
            return [*compared, etcd.not_since(heads, newest, etcd.after(heads))]
        # `_check` has found that the known shapes are those that the write was planned on.
        return compared + [
            etcd.not_since(f"{self._prefix}shapes/{of}", max(self._seen, self._set(of).known))
            for of in plan.sets
        ]

    async def _commit(
        self,
        plan: Plan,
        operations: Callable[[int], Sequence[Any]],
        waiting: "asyncio.Future[int]",
        also: Sequence[Any] = (),
    ) -> Made:
        """Make the transaction of a write, and return its outcome.

        Args:
            plan: the write.
            operations: returns the operations, from the state known at that time. Its argument is
                the number of events of the same revision that precede the write's own.
            waiting: done when the watch tells of the write.
            also: further comparisons.

        Raises:
            StaleError: the state that the write was planned on has changed.
            UncertainError: the write may have been made.
            StoreError: the write was not made.

        """
        changes = {f"heads/{of}" for of in plan.sets}
        asked = [etcd.get(f"{self._prefix}root")]
        while True:
            # Others may have written while this write filled a generation or waited for `root`.
            # So check again, and compare with the state that is known now.
            self._check(plan)
            root = self._root
            compared = [*self._comparisons(plan), *also]
            events = len(plan.events)
            try:
                answer = await self._commits.make(
                    Transaction(compared, operations, asked, changes, events)
                )
            except EtcdError as error:
                if error.certain:
                    raise StoreError(f"{self.name}: {error}") from None
                _LOG.warning("%s: asking what became of a write: %s", self.name, error)
                return await self._resolve(plan, waiting)
            if answer.succeeded:
                return self._made(plan, answer)
            newest = max(
                (kv.mod_revision for kv in answer.responses[0].response_range.kvs), default=0
            )
            if newest <= root:
                raise StaleError(f"{self.name}: another controller has written")
            # Other sets may have new generations; then this write can be made unchanged.
            await self._reach(newest)

    def _made(self, plan: Plan, answer: Answer) -> Made:
        """Return the outcome of a write from etcd's answer.

        Raises:
            StaleError: none of its changes was made.

        """
        former = answer.responses[: len(plan.sets)]
        # A write of generations has one head only, at another place; it compares the heads.
        heads = [one.response_put.prev_kv.mod_revision for one in former]
        stale: frozenset[tuple[str, str]] = frozenset()
        if not plan.whole:
            ((_, values),) = plan.sets.items()
            answers = answer.responses[-len(values) :]
            pairs = zip(values, answers, strict=True)
            stale = frozenset(key for key, one in pairs if not one.response_txn.succeeded)
            if len(stale) == len(values):
                raise StaleError(f"{self.name}: another controller has changed it")
        return Made(answer.revision, heads, stale)

    async def _resolve(self, plan: Plan, waiting: "asyncio.Future[int]") -> Made:
        """Find out whether a write was made, prevent it otherwise, and return its outcome.

        Raises:
            StaleError: the write was not made and will not be; plan it again.
            UncertainError: the outcome cannot be found out.

        """
        of, void, loads = next(iter(plan.sets)), self._named(), self._loads
        moved = [*self._heads(void, [of]), *self._shapes(void, [of])]
        end_s = time.monotonic() + RESOLVE_S
        while time.monotonic() < end_s:
            try:
                if waiting.done():
                    return await self._made_at(plan, waiting.result())
                kvs = (await self._client.range(f"{self._prefix}heads/{of}")).kvs
                if kvs and kvs[0].value.decode() == plan.name:
                    with contextlib.suppress(StoreError):
                        await self._reach(kvs[0].mod_revision)
                    return await self._made_at(plan, kvs[0].mod_revision)
                # The write cannot be made after this: head and shape have moved.
                answer = await self._client.transact([], moved)
                await self._reach(answer.header.revision)
            except EtcdError:
                await asyncio.sleep(WATCH_RETRY_S)
                continue
            except StaleError:
                raise
            except StoreError:
                break
            if not waiting.done() and self._loads != loads:
                break
            if not waiting.done():
                raise StaleError(f"{self.name}: a write was not made")
        raise UncertainError(f"{self.name}: does not answer: the change may have been made")

    async def _made_at(self, plan: Plan, revision: int) -> Made:
        """Return the outcome of a write that was made at a revision.

        Raises:
            EtcdError: etcd does not answer.
            StaleError: none of its changes was made.

        """
        # Whether others wrote just before is unknown. It is safe to assume that they did.
        heads = [UNKNOWN] * len(plan.sets)
        if plan.whole:
            return Made(revision, heads)
        ((of, values),) = plan.sets.items()
        asked = [etcd.get(self._data(of) + "/".join(key), revision) for key in values]
        answers = (await self._client.transact([], asked, again_s=etcd.AGAIN_S)).responses
        stale = set()
        for (key, value), one in zip(values.items(), answers, strict=True):
            found = [kv.mod_revision for kv in one.response_range.kvs]
            if found != ([] if value is None else [revision]):
                stale.add(key)
        if len(stale) == len(values):
            raise StaleError(f"{self.name}: another controller has changed it")
        return Made(revision, heads, frozenset(stale))

    # ---- large writes ----

    async def _make_generations(self, plan: Plan, waiting: "asyncio.Future[int]") -> Written:
        """Make a write as new generations of its sets.

        Raises:
            StoreError: see `write`.

        """
        # The copies must be complete, and only the watch brings the values of own writes.
        await self._reach(max(self._set(of).head for of in plan.sets))
        marker = f"{self._prefix}sweep/{plan.name}"
        prefixes: dict[str, str] = {of: f"{self._prefix}data/{of}/{plan.name}/" for of in plan.sets}
        former = [f"{self._prefix}data/{of}/{self._set(of).generation[1]}/" for of in plan.sets]
        try:
            mine = json.dumps({"member": self.leases.name, "prefixes": list(prefixes.values())})
            answer = await self._client.transact([], [etcd.put(marker, mine)])
            # The number is higher than any revision that a client has seen of these sets, and
            # unique.
            number = int(answer.header.revision)
            filled = await self._fill(plan, prefixes, number)
        except EtcdError as error:
            self._in_background(self._sweep(marker, list(prefixes.values())))
            raise StoreError(f"{self.name}: {error}") from None
        rest = json.dumps({"member": "", "prefixes": former})
        first = next(iter(plan.sets))

        def operations(before: int) -> list[Any]:
            root = {of: one.generation for of, one in self._sets.items() if one.generation[0]}
            root |= dict.fromkeys(plan.sets, (number, plan.name))
            return [
                # `root` precedes the head, so that a watch learns of the generations first.
                etcd.put(f"{self._prefix}root", json.dumps(root)),
                etcd.put(marker, rest),
                *self._event_operation(plan.name, plan.events, before),
                # If there is no answer, this one head tells whether the write was made.
                *self._heads(plan.name, [first]),
            ]

        try:
            # A controller that sweeps abandoned generations changes the marker first.
            whole = [etcd.unchanged(marker, number)]
            revision = (await self._commit(plan, operations, waiting, whole)).revision
        except UncertainError:
            raise
        except StoreError:
            self._in_background(self._sweep(marker, list(prefixes.values())))
            raise
        # The heads were compared, so no other controller has written to these sets.
        self._root = max(self._root, revision)
        for of, values in filled.items():
            one = self._set(of)
            # The watch may already have told of this write, and of later ones.
            if one.generation[0] < number:
                one.generation, one.values = (number, plan.name), values
            one.known = max(one.known, revision)
        self._set(first).head = max(self._set(first).head, revision)
        self._in_background(self._sweep(marker, former))
        return Written(number, dict.fromkeys(plan.sets, number) | {first: revision})

    async def _fill(
        self, plan: Plan, prefixes: Mapping[str, str], number: int
    ) -> dict[str, Values]:
        """Write the new generations, which are not in `root` yet, and return their values."""
        filled: dict[str, Values] = {}
        batches: list[list[Any]] = [[]]
        size = 0
        for of, values in plan.sets.items():
            kept = {} if of in plan.gone else dict(self._set(of).values)
            for key, value in values.items():
                kept.pop(key, None)
                if value is not None and of not in plan.gone:
                    kept[key] = value
            filled[of] = {key: with_revision(*one, number) for key, one in kept.items()}
            for (kind, name), one in filled[of].items():
                operation = etcd.put(f"{prefixes[of]}{kind}/{name}", encode(*one))
                if len(batches[-1]) == OPERATIONS or size + operation.ByteSize() > BYTES:
                    batches.append([])
                    size = 0
                batches[-1].append(operation)
                size += operation.ByteSize()
        for start in range(0, len(batches), FILLS):
            some = (self._client.transact([], one) for one in batches[start : start + FILLS] if one)
            # All calls must end before the caller may sweep the generations.
            answers = await asyncio.gather(*some, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
        return filled

    async def _reach(self, revision: int) -> None:
        """Wait until everything up to a revision is known.

        Raises:
            StoreError: the watch has not told of the revision within RESOLVE_S.

        """
        try:
            if self._watching is None:
                await self._load()
            async with asyncio.timeout(RESOLVE_S):
                while self._seen < revision:
                    await self._progress.wait()
        except (TimeoutError, EtcdError) as error:
            raise StoreError(f"{self.name}: {error or 'it does not tell of writes'}") from None

    async def _sweep(self, marker: str, prefixes: Sequence[str]) -> None:
        """Delete generations that are no longer in use, then their marker."""
        try:
            for prefix in prefixes:
                await self._client.transact([], [etcd.delete(prefix, etcd.after(prefix))])
            await self._client.transact([], [etcd.delete(marker)])
        except EtcdError as error:
            _LOG.warning("%s: old generations stay for now: %s", self.name, error)

    async def _sweep_all(self) -> None:
        """Delete the generations that controllers which have ended left behind.

        A controller that seems to have ended may still commit the generations that it has filled.
        Changing the marker first prevents it.
        """
        await asyncio.sleep(SWEEP_AFTER_S)
        with contextlib.suppress(EtcdError):
            kvs, _ = await self._range_all(f"{self._prefix}sweep/")
            for kv in kvs:
                value, marker = json.loads(kv.value), kv.key.decode()
                if value["member"] in self.leases.members:
                    continue
                left = json.dumps({"member": "", "prefixes": value["prefixes"]})
                unchanged = [etcd.unchanged(marker, kv.mod_revision)]
                if (await self._client.transact(unchanged, [etcd.put(marker, left)])).succeeded:
                    await self._sweep(marker, value["prefixes"])

    # ---- reads ----

    async def catch_up(self) -> None:
        """Wait until the feed has told of all writes before the call (`base.Store.catch_up`).

        Concurrent calls share one query, which is sent after all of them have begun.
        """
        if self._asked is None:
            self._asked = asyncio.create_task(
                self._catch_up_next(self._asking), name="etcd: newest"
            )
        await asyncio.shield(self._asked)

    async def _catch_up_next(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        # Calls from here on need another query, since the answer to this one may be too old.
        self._asking, self._asked = self._asked, None
        prefix = f"{self._prefix}heads/"
        newest = {"sort_order": rpc.RangeRequest.DESCEND, "sort_target": rpc.RangeRequest.MOD}
        try:
            # Every write puts a head.
            answer = await self._client.range(
                prefix, etcd.after(prefix), limit=1, keys_only=True, **newest
            )
        except EtcdError as error:
            raise StoreError(f"{self.name}: {error}") from None
        if answer.kvs:
            await self._reach(answer.kvs[0].mod_revision)

    # ---- the rest ----

    async def probe(self) -> None:
        """Check that the cluster takes writes (`base.Store.probe`)."""
        try:
            # A comparison without a put is enough, since it needs a majority, too.
            await self._client.transact([etcd.absent(f"{self._prefix}none")], [])
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
            "controller": self.leases.name,
            "controllers": sorted(self.leases.members),
            "driven": dict(sorted(self.leases.holders.items())),
        }

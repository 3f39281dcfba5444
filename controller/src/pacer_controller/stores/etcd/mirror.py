"""The copy in memory of a controller's keys in etcd.

It is read at one revision (`Mirror.load`), and follows the changes of later revisions (`take`). It
tells the feed of them.
"""

import asyncio
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aetcd import rpc

from pacer_controller.kept_events import KeptEvents
from pacer_controller.records import ResourceChange
from pacer_controller.stores.base import EVENTS_KEPT, SWITCHES, Entry, Feed
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import EtcdClient
from pacer_controller.stores.etcd.layout import ContentSet, Values, decode, differences, read
from pacer_controller.stores.etcd.leases import Leased, Leases, value_of

PAGE = 2_000
"""Most keys of one range request."""

EVENT_BITS = 10
"""Lower bits of an event's number, which count the events of one write."""

_LEASED = frozenset({"members", "leases", "status", "epoch"})


class Mirror:
    """The copy of all keys with a prefix.

    Args:
        client: the client of the etcd cluster.
        prefix: the prefix of all keys; begins and ends with a slash.
        leases: learns of the keys of leases.

    Attributes:
        sets: the sets of resources, by name.
        root: the revision of `root`.
        events: the newest events, oldest first.
        event_keys: the number of each write's events by their key, oldest first.
        events_kept: the number of events that etcd has.
        seen: the newest revision up to which everything is known.
        loads: the number of times that everything was read; the changes between two reads are
            unknown.
        awaited: the writes that wait to be told of, by the name of the write.
        feed: the receiver of changes.

    """

    def __init__(self, client: EtcdClient, prefix: str, leases: Leases) -> None:
        self._client = client
        self.prefix = prefix
        self._leases = leases
        self.sets: defaultdict[str, ContentSet] = defaultdict(ContentSet)
        self.root = 0
        self.events = KeptEvents([], EVENTS_KEPT)
        self.event_keys: OrderedDict[str, int] = OrderedDict()
        self.events_kept = 0
        self.seen = 0
        self.loads = 0
        self.awaited: dict[str, asyncio.Future[int]] = {}
        self.feed: Feed | None = None

    def set(self, name: str) -> ContentSet:
        """Return a set, which may be empty."""
        return self.sets[name]

    # ---- reading ----

    async def load(self) -> None:
        """Read everything at one revision.

        Raises:
            EtcdError: etcd does not answer; the copy is as it was.
            ValueError: a key is not understood; the copy is as it was.

        """
        kvs, revision = await self.range_all(self.prefix)
        new = Mirror(self._client, self.prefix, self._leases)
        new.awaited = self.awaited
        leased: list[Leased] = []
        for kv in sorted(kvs, key=self._turn):
            try:
                new._read(kv, leased)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{kv.key.decode()} is not understood: {error!r}") from None
        # Nothing can fail from here on.
        self._leases.put_all(leased, revision)
        self.sets, self.root = new.sets, new.root
        self.events, self.event_keys = new.events, new.event_keys
        self.events_kept = new.events_kept
        self.loads += 1
        self.seen = revision

    def _turn(self, kv: Any) -> tuple[bool, int]:
        """Return the place of a key among all that are read.

        `root` comes first, since it names the generations whose values count. Events come in the
        order of their numbers.
        """
        key = kv.key.decode().removeprefix(self.prefix)
        return key != "root", _first_number(key, kv) if key.startswith("events/") else 0

    def _read(self, kv: Any, leased: list[Leased]) -> None:
        """Add a key to a copy that is new; those of leases are added to `leased`."""
        key = kv.key.decode().removeprefix(self.prefix)
        what, _, rest = key.partition("/")
        if what == "root":
            self.root = kv.mod_revision
            for name, (number, of) in read(kv).items():
                self.set(name).generation = (number, of)
        elif what == "heads":
            self._take_head(rest, kv)
        elif what == "shapes":
            self.set(rest).shape = kv.mod_revision
        elif what == "data":
            self._take_value(rest, kv)
        elif what == "events":
            self._take_events(key, kv)
        elif what in _LEASED:
            leased.append((what, rest, value_of(what, kv), kv.mod_revision))

    async def load_again(self) -> None:
        """Read everything after a gap, and tell the feed of the changes.

        Raises:
            EtcdError, ValueError: see `load`; the copy is as it was.

        """
        before = {name: dict(one.values) for name, one in self.sets.items()}
        last = self.events.last_id
        await self.load()
        for name in {*before, *self.sets}:
            changed = differences(before.get(name, {}), self.set(name).values)
            self.tell({name: changed}, after_gap=True)
        self._tell_events(self.events.select(last, (), ())[0])

    async def range_all(self, prefix: str, revision: int = 0) -> tuple[list[Any], int]:
        """Return all keys with a prefix at one revision (0: the newest), and that revision.

        Raises:
            EtcdError: etcd does not answer.

        """
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
        one = self.set(name)
        # The head of an own write may be newer: it is known before the watch tells of it.
        one.head = max(one.head, kv.mod_revision)
        waiting = self.awaited.get(kv.value.decode())
        if waiting is not None and not waiting.done():
            waiting.set_result(kv.mod_revision)

    def _take_value(self, rest: str, kv: Any) -> None:
        """Record a value of a set, unless it belongs to a generation that is not in `root`."""
        of, generation, kind, name = rest.split("/")
        one = self.set(of)
        if generation == one.generation[1]:
            one.values[kind, name] = decode(kind, name, kv)

    def _take_events(self, key: str, kv: Any) -> list[dict[str, Any]]:
        first = _first_number(key, kv)
        events = [{"id": first + n, **one} for n, one in enumerate(read(kv))]
        for one in events:
            self.events.add(one)
        # The watch repeats a revision that it could not take as a whole.
        self.events_kept += len(events) - self.event_keys.get(key, 0)
        self.event_keys[key] = len(events)
        return events

    # ---- following ----

    async def take(self, answer: Any) -> None:
        """Process an answer of a watch, revision by revision.

        Raises:
            EtcdError: a new generation could not be read; the revision must be taken again.

        """
        for revision, events in itertools.groupby(answer.events, lambda e: e.kv.mod_revision):
            if revision > self.seen:
                await self._take_revision(revision, list(events))
                # If a later revision cannot be taken, this one is not told of again.
                self.seen = revision

    async def _take_revision(self, revision: int, events: Iterable[Any]) -> None:
        changed: dict[str, Values | dict[tuple[str, str], None]] = {}
        told: list[tuple[str, Any]] = []
        root = f"{self.prefix}root".encode()
        # `root` comes first, since taking it can fail: nothing else of the revision is taken then.
        for event in sorted(events, key=lambda one: one.kv.key != root):
            key = event.kv.key.decode().removeprefix(self.prefix)
            what, _, rest = key.partition("/")
            gone = event.type == rpc.Event.DELETE
            if what == "root" and not gone:
                for name in await self._take_root(event.kv):
                    changed[name] = {}
                # Only after the generations are read. Otherwise a write planned meanwhile would
                # compare the new `root`, but put into the generations of the old one.
                self.root = event.kv.mod_revision
            elif what == "heads" and not gone:
                self._take_head(rest, event.kv)
                changed.setdefault(rest, {})
            elif what == "shapes" and not gone:
                self.set(rest).shape = max(self.set(rest).shape, event.kv.mod_revision)
            elif what == "data":
                self._take_change(rest, event.kv, gone, changed)
            elif what == "events" and gone:
                self.events_kept -= self.event_keys.pop(key, 0)
            elif what == "events":
                told.append((key, event.kv))
            elif what in _LEASED and gone:
                self._leases.deleted(what, rest, revision)
            elif what in _LEASED:
                self._leases.put(what, rest, event.kv)
        self.tell(changed)
        # Events are taken only when all else is: an event that was taken is not told of again.
        self._tell_events([one for key, kv in told for one in self._take_events(key, kv)])

    def _take_change(self, rest: str, kv: Any, gone: bool, changed: dict[str, Any]) -> None:
        of, generation, kind, name = rest.split("/")
        one = self.set(of)
        if generation != one.generation[1]:
            return
        if gone:
            one.values.pop((kind, name), None)
            changed.setdefault(of, {})[kind, name] = None
        else:
            value = one.values[kind, name] = decode(kind, name, kv)
            changed.setdefault(of, {})[kind, name] = value

    async def _take_root(self, kv: Any) -> list[str]:
        """Read the sets that have new generations, tell the feed, and return their names."""
        flipped = []
        for name, (number, of) in read(kv).items():
            one = self.set(name)
            if one.generation[1] == of:
                continue
            prefix = f"{self.prefix}data/{name}/{of}/"
            # This comes before any change in memory: if it fails, the watch repeats it.
            kvs, _ = await self.range_all(prefix, kv.mod_revision)
            before, one.values = one.values, {}
            one.generation = (number, of)
            for value in kvs:
                self._take_value(value.key.decode().removeprefix(f"{self.prefix}data/"), value)
            self.tell({name: differences(before, one.values)})
            flipped.append(name)
        return flipped

    # ---- telling ----

    def tell(
        self, changed: Mapping[str, Mapping[tuple[str, str], Any]], *, after_gap: bool = False
    ) -> None:
        """Tell the feed of changes, by set."""
        if self.feed is None:
            return
        for name, values in changed.items():
            base = self.set(name).base
            if name == SWITCHES:
                settings = {of: value for (_, of), value in values.items()}
                self.feed.entry(Entry(SWITCHES, base, switches=settings, after_gap=after_gap))
                continue
            changes = [
                ResourceChange(name, kind, of, None, value[0] if value is not None else None)
                for (kind, of), value in values.items()
            ]
            self.feed.entry(Entry(name, base, changes, after_gap=after_gap))

    def _tell_events(self, events: Sequence[dict[str, Any]]) -> None:
        if events and self.feed is not None:
            self.feed.events(events)


def _first_number(key: str, kv: Any) -> int:
    """Return the number of the first event of a key (`layout`)."""
    return int(kv.mod_revision << EVENT_BITS) + int(key.partition("+")[2] or 0)

"""The history of all stored versions, against which clients, controllers and switches are checked.

`EtcdTruth` follows the history of the model of etcd. `FileTruth` follows the acknowledged writes of
a store in a file, across crashes. A write that was in doubt when the process ended may be in the
file or not when the file is read the next time; all earlier writes must be.
"""

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from etcd import Commit
from loop import PROCESS, Process, SimulatedLoop
from pacer_controller.records import Desired, ResourceChange, index_of, record_of, stamped
from pacer_controller.schemas import stored
from pacer_controller.stores import SqliteStore, SwitchSettings, UncertainError, Written
from world import PREFIX, Key, token_of

Broken = Callable[[str, str], None]
"""Called with a rule and a description of its violation."""


@dataclass(frozen=True)
class Version:
    """The state of a resource from one write on.

    Attributes:
        write: number of the write, in the order in which they were made.
        at_s: the time of the write.
        spec: the stored settings; None: the resource was removed.
        revision: the revision that clients see.
        index: the index of a class.
        token: the mark that is unique to the value; None: it has none.

    """

    write: int
    at_s: float
    spec: Any
    revision: int
    index: int | None
    token: int | None = None


class Truth:
    """The desired state, with its history.

    Args:
        broken: called for each violation.

    """

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self.versions: dict[Key, list[Version]] = defaultdict(list)
        self.firsts: dict[Key, dict[int, Version]] = defaultdict(dict)
        """The first version of each mark."""
        self._desired: dict[str, Desired] = {}
        """Desired states since whose reading nothing has changed."""

    def held(self, switch: str) -> Mapping[tuple[str, str], Version]:
        """Return the resources of a switch."""
        raise NotImplementedError

    def current(self, key: Key) -> Version | None:
        """Return the current version of a resource."""
        switch, kind, name = key
        return self.held(switch).get((kind, name))

    def _note(self, key: Key, write: int, at_s: float) -> None:
        now, known = self.current(key), self.versions[key]
        last = known[-1] if known else None
        if now is None:
            if last is not None and last.spec is not None:
                known.append(Version(write, at_s, None, 0, None))
        elif last is None or (last.spec, last.revision) != (now.spec, now.revision):
            token = None if key[1] == "switch" else token_of(key[1], now.spec)
            made = replace(now, write=write, at_s=at_s, token=token)
            known.append(made)
            if token is not None:
                self.firsts[key].setdefault(token, made)

    def _check_switch(self, switch: str, write: int) -> None:
        held = self.held(switch)
        used: dict[int, str] = {}
        for (kind, name), version in held.items():
            if version.index is not None:
                other = used.setdefault(version.index, name)
                if other != name:
                    self._broken(
                        "index",
                        f"write {write}: {other} and {name} of {switch} have class index "
                        f"{version.index}",
                    )
            if kind == "flow":
                of = version.spec.get("class")
                if of is not None and ("class", of) not in held:
                    self._broken("reference", f"write {write}: {name} names class {of}")

    def desired(self, switch: str) -> Desired:
        """Return the desired state of a switch."""
        found = self._desired.get(switch)
        if found is None:
            found = self._desired[switch] = Desired()
            for (kind, name), version in sorted(self.held(switch).items()):
                found.set(kind, name, record_of(kind, name, version.index, version.spec, 1))
        return found


class EtcdTruth(Truth):
    """The desired state in etcd."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken)
        self._generations: dict[str, str] = {}
        self._data: dict[tuple[str, str], dict[tuple[str, str], Version]] = defaultdict(dict)

    def held(self, switch: str) -> Mapping[tuple[str, str], Version]:
        """Return the resources of a switch."""
        return self._data[switch, self._generations.get(switch, "0")]

    def take(self, commit: Commit) -> None:
        """Take a revision."""
        touched: dict[Key, None] = {}
        flipped: dict[str, None] = {}
        for event in commit.events:
            key = event.kv.key.decode()
            if not key.startswith(PREFIX):
                continue
            what, _, rest = key.removeprefix(PREFIX).partition("/")
            gone = event.type != 0
            if what == "root":
                self._desired.clear()
                for switch, (_, generation) in json.loads(event.kv.value).items():
                    if self._generations.get(switch, "0") != generation:
                        self._touch_all(switch, touched)
                        self._generations[switch] = generation
                        flipped[switch] = None
            elif what == "data":
                switch, generation, kind, name = rest.split("/")
                self._desired.pop(switch, None)
                held = self._data[switch, generation]
                if gone:
                    held.pop((kind, name), None)
                else:
                    held[kind, name] = _version(event.kv, commit)
                if self._generations.get(switch, "0") == generation:
                    touched[switch, kind, name] = None
        for switch in flipped:
            self._touch_all(switch, touched)
        for one in touched:
            self._note(one, commit.revision, commit.at_s)
        for switch in dict.fromkeys(key[0] for key in touched):
            self._check_switch(switch, commit.revision)

    def _touch_all(self, switch: str, touched: dict[Key, None]) -> None:
        touched |= {(switch, kind, name): None for kind, name in self.held(switch)}


def _version(kv: Any, commit: Commit) -> Version:
    made = json.loads(kv.value)
    revision = int(made.get("revision", kv.mod_revision))
    spec = made.get("spec", made.get("settings"))
    return Version(commit.revision, commit.at_s, spec, revision, made.get("index"))


_State = dict[Key, Version]


class FileTruth(Truth):
    """The desired state that a store in a file has acknowledged.

    Args:
        broken: called for each violation.
        loop: the loop whose clock is read.

    """

    def __init__(self, broken: Broken, loop: SimulatedLoop) -> None:
        super().__init__(broken)
        self._loop = loop
        self._data: dict[str, dict[tuple[str, str], Version]] = defaultdict(dict)
        self._events: set[int] = set()
        """Numbers of events that are in the file."""
        self._bids: dict[int, Process] = {}
        self._doubt: _State | None = None
        """The state of the file if the write in doubt was made."""
        self._leaving: frozenset[int] = frozenset()
        """Numbers of the events that the write in doubt removes."""
        self._write = 0

    def held(self, switch: str) -> Mapping[tuple[str, str], Version]:
        """Return the resources of a switch."""
        return self._data[switch]

    def _all(self) -> _State:
        return {
            (switch, kind, name): version
            for switch, of_switch in self._data.items()
            for (kind, name), version in of_switch.items()
        }

    # ---- writes ----

    def begin(
        self, changes: Sequence[ResourceChange], switches: SwitchSettings, revision: int
    ) -> None:
        """Note the state after a write that begins."""
        after = self._all()
        for change in changes:
            key = (change.switch, change.kind, change.name)
            after.pop(key, None)
            if change.after is not None:
                record = stamped(change.after, revision)
                of = record.revision
                after[key] = self._made(stored(record.spec), of, index_of(record))
        for name, one in switches.items():
            after.pop(("", "switch", name), None)
            if one is not None:
                after["", "switch", name] = self._made(one[0], one[1] or revision, None)
        self._doubt = after

    def _made(self, spec: Any, revision: int, index: int | None) -> Version:
        return Version(self._write + 1, self._loop.now_s, spec, revision, index)

    def refused(self) -> None:
        """Note that the write was not made."""
        self._doubt, self._leaving = None, frozenset()

    def made(self, written: Written, without: Sequence[int]) -> None:
        """Note that the write was made."""
        assert self._doubt is not None
        self._become(self._doubt)
        self._events |= set(written.numbers)
        self._events -= set(without)

    def _become(self, state: _State) -> None:
        self._write += 1
        self._desired.clear()
        before, now_s = self._all(), self._loop.now_s
        self._data.clear()
        for (switch, kind, name), version in state.items():
            self._data[switch][kind, name] = version
        touched = [
            key for key in sorted({*before, *state}) if not _same(before.get(key), state.get(key))
        ]
        for key in touched:
            self._note(key, self._write, now_s)
        for switch in dict.fromkeys(key[0] for key in touched):
            self._check_switch(switch, self._write)
        self._doubt = None

    def bid(self, number: int) -> None:
        """Note a fencing number that the store has given."""
        process = PROCESS.get()
        other = self._bids.setdefault(number, process)
        if other is not process:
            self._broken("id-reused", f"{process} and {other} were given {number:#x}")

    # ---- content of the file ----

    def read(self, store: SqliteStore) -> None:
        """Compare the truth with the state that a store has read from its file."""
        found = {
            (switch, kind, name): self._made(stored(record.spec), record.revision, index_of(record))
            for switch in store.known()
            for kind, name, record in store.desired(switch).all()
        }
        for name, (settings, revision) in store.switches().items():
            found["", "switch", name] = self._made(settings, revision, None)
        before = self._all()
        if not _equal(found, before):
            if self._doubt is None or not _equal(found, self._doubt):
                self._broken("lost", _difference(before, found))
            self._become(found)
        self._doubt = None
        numbers = {number for (number,) in store._db.execute("SELECT id FROM events")}
        lost = sorted(self._events - numbers - self._leaving)
        self._leaving = frozenset()
        if lost:
            self._broken("lost", f"events {lost[:3]} of {len(lost)} are gone")
        self._events = numbers

    @contextlib.contextmanager
    def observing(self, unsynced: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Watch every store in a file while the block runs.

        Args:
            unsynced: returns the files with unsynced data that are nowhere else. The database
                itself is not one of them, since a failed checkpoint is made again from the WAL.

        """
        real: Any = SqliteStore
        write, read, bid = real._write, real._read_all, real.bid

        def answered(what: str) -> bool:
            """Whether an answer counts: the answer of an ended process reaches no client."""
            if not PROCESS.get().alive:
                return False
            if unsynced():
                self._broken("unsynced", f"{what} is acknowledged, and not synced: {unsynced()}")
            return True

        def writing(store: Any, changes: Any, events: Any, switches: Any, *more: Any) -> Any:
            if store.broken is not None:
                write(store, changes, events, switches, *more)
                self._broken("broken-disk", f"a write is acknowledged after {store.broken}")
            changed = bool(changes or switches)
            self._leaving = frozenset(more[1] if len(more) > 1 else ())
            self.begin(changes, switches, store.revision + 1 if changed else store.revision)
            try:
                written = write(store, changes, events, switches, *more)
            except UncertainError:
                raise
            except BaseException:
                if PROCESS.get().alive:
                    self.refused()
                raise
            if store.broken is not None:
                self._broken("broken-disk", f"a write is acknowledged after {store.broken}")
            if answered("a write"):
                self.made(written, more[1] if len(more) > 1 else ())
            return written

        def reading(store: Any) -> None:
            read(store)
            self.read(store)

        async def bidding(store: Any, above: int) -> Any:
            number = await bid(store, above)
            if answered("a fencing number"):
                self.bid(number)
            return number

        with (
            mock.patch.object(SqliteStore, "_write", writing),
            mock.patch.object(SqliteStore, "_read_all", reading),
            mock.patch.object(SqliteStore, "bid", bidding),
        ):
            yield


def _same(one: Version | None, other: Version | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.spec, one.revision, one.index) == (other.spec, other.revision, other.index)


def _equal(one: _State, other: _State) -> bool:
    return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)


def _difference(before: _State, found: _State) -> str:
    key = next(
        key for key in sorted({*before, *found}) if not _same(before.get(key), found.get(key))
    )
    return f"{'/'.join(key)} is {found.get(key)} in the file; {before.get(key)} was acknowledged"

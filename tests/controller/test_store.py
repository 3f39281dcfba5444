"""Stores: every reader sees an acknowledged write. The same tests for each kind of store."""

import asyncio
import itertools
import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from etcd_members import MISSING, Members, given_up

from pacer_controller import server
from pacer_controller.migrate import copy
from pacer_controller.records import (
    ClassRecord,
    FlowRecord,
    MeterRecord,
    PortRecord,
    Record,
    ResourceChange,
)
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec, PortSpec
from pacer_controller.stores import (
    SWITCHES,
    Entry,
    Event,
    SqliteStore,
    StaleError,
    Status,
    Store,
    StoreError,
    Written,
    open_store,
)
from pacer_controller.stores.etcd import generations
from pacer_controller.stores.etcd.store import EtcdStore
from pacer_controller.stores.migrations import MIGRATIONS

VIDEO = ClassRecord("video", 1, ClassSpec(rate=10**9))
FLOW = FlowRecord("web", 2, FlowSpec.model_validate({"match": {"dst_port": 80}, "rate": 10**6}))
METER = MeterRecord("gold", MeterSpec.model_validate({"cir": "5Mbit"}))
PORT = PortRecord("3", PortSpec.model_validate({"delay_ns": 1000}))
KINDS = {ClassRecord: "class", FlowRecord: "flow", MeterRecord: "meter", PortRecord: "port"}
SETTINGS = {"kind": "p4runtime", "address": "127.0.0.1:9559"}
WAIT_S = 60.0

Work = Callable[[Store], Awaitable[Any]]


def put(record: Record, switch: str = "s1", before: Record | None = None) -> ResourceChange:
    return ResourceChange(switch, KINDS[type(record)], record.name, before, record)


def event(message: str) -> dict[str, Any]:
    return {"time": "now", "kind": "change", "switch": "s1", "message": message, "data": {}}


class Told:
    """A receiver that keeps everything from the feed of a store."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.told: list[Event] = []
        self._arrived = asyncio.Event()

    def entry(self, entry: Entry) -> None:
        """Keep a write."""
        self.entries.append(entry)
        self._arrived.set()

    def events(self, events: Sequence[Event]) -> None:
        """Keep events."""
        self.told += events
        self._arrived.set()

    async def until(self, check: Callable[[], Any]) -> None:
        """Wait for something to be told."""
        async with asyncio.timeout(WAIT_S):
            while not check():
                self._arrived.clear()
                await self._arrived.wait()


@pytest.fixture(scope="session")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Run a cluster of one member."""
    if MISSING:
        pytest.skip("not run: no etcd (Debian's etcd-server)")
    made = Members(tmp_path_factory.mktemp("etcd"))
    made.start()
    yield made
    made.close()


_prefixes = itertools.count()


@pytest.fixture(params=["sqlite", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'state'}"
    members: Members = request.getfixturevalue("members")
    return members.url(f"/test{next(_prefixes)}")


@pytest.fixture
def shared(members: Members) -> str:
    """Return the URL of an empty store that several controllers can use."""
    return members.url(f"/test{next(_prefixes)}")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def followed(url: str) -> AsyncIterator[tuple[Store, Told]]:
    """Open a store as a controller does, without switches."""
    async with opened(url) as store:
        told = Told()
        await store.start(told, [], list, lambda _: Status("", "pending"))
        try:
            yield store, told
        finally:
            await store.stop()


def with_store(url: str, work: Work) -> Any:
    """Do something with a store, which is opened for it."""

    async def run() -> Any:
        async with opened(url) as store:
            return await work(store)

    return asyncio.run(run())


def content(store: Store, switch: str = "s1") -> dict[tuple[str, str], Record]:
    return {(kind, name): record for kind, name, record in store.desired(switch).all()}


def test_round_trip(url: str) -> None:
    async def write(store: Store) -> None:
        await store.write([put(one) for one in (VIDEO, FLOW, METER, PORT)], [event("made")])
        await store.write([put(VIDEO, "s2")], (), {"s2": (SETTINGS, 0)})
        await store.write([put(VIDEO, "s2").reversed()])

    async def read(store: Store) -> Any:
        return (
            content(store),
            content(store, "s2"),
            store.desired("s1").used,
            store.switches(),
            [one["message"] for one in store.events()],
        )

    with_store(url, write)
    of_s1, of_s2, used, switches, messages = with_store(url, read)
    assert of_s1 == {(KINDS[type(one)], one.name): one for one in (VIDEO, FLOW, METER, PORT)}
    assert of_s2 == {}
    assert used == {1, 2}
    assert {name: settings for name, (settings, _) in switches.items()} == {"s2": SETTINGS}
    assert messages == ["made"]


def test_revisions_grow_and_stay(url: str) -> None:
    async def write(store: Store) -> list[int]:
        first = await store.write([put(VIDEO), put(FLOW)])
        second = await store.write([put(METER)])
        assert store.base("s1") == second.revision == store.revision
        return [first.revision, second.revision]

    async def read(store: Store) -> dict[str, int]:
        return {name: one.revision for (_, name), one in content(store).items()}

    first, second = with_store(url, write)
    assert 0 < first < second
    assert with_store(url, read) == {"video": first, "web": first, "gold": second}


def test_a_change_planned_on_an_old_revision_is_refused(url: str) -> None:
    async def run(store: Store) -> None:
        base = store.base("s1")
        written = await store.write([put(VIDEO)], (), None, {"s1": base})
        with pytest.raises(StaleError):
            await store.write([put(FLOW)], (), None, {"s1": base})
        with pytest.raises(StaleError):
            await store.write([put(FLOW, "s2")], (), None, {"s2": store.base("s2"), "s1": base})
        await store.write([put(FLOW)], (), None, written.bases)

    async def read(store: Store) -> Any:
        return content(store).keys(), content(store, "s2")

    with_store(url, run)
    assert with_store(url, read) == ({("class", "video"), ("flow", "web")}, {})


def test_the_list_of_switches_has_a_revision_of_its_own(url: str) -> None:
    async def run(store: Store) -> None:
        base = store.base(SWITCHES)
        await store.write([], (), {"a": (SETTINGS, 0)}, {SWITCHES: base})
        with pytest.raises(StaleError):
            await store.write([], (), {"b": (SETTINGS, 0)}, {SWITCHES: base})
        await store.write([], (), {"a": None}, {SWITCHES: store.base(SWITCHES)})

    with_store(url, run)

    async def read(store: Store) -> Any:
        return store.switches()

    assert with_store(url, read) == {}


def test_taking_a_write_back_leaves_what_was(url: str) -> None:
    faster = ClassRecord("video", 1, ClassSpec(rate=2 * 10**9))

    async def write(store: Store) -> int:
        first = await store.write([put(VIDEO)])
        before = ClassRecord("video", 1, VIDEO.spec, first.revision)
        changes = [put(faster, before=before), put(FLOW)]
        written = await store.write(changes, [event("faster")])
        await store.take_back(changes, written, [event("faster")], None, written.bases)
        return first.revision

    async def read(store: Store) -> Any:
        return content(store)

    revision = with_store(url, write)
    found = with_store(url, read)
    assert found == {("class", "video"): VIDEO}
    assert found["class", "video"].revision == revision


def test_more_changes_than_one_transaction_takes(url: str) -> None:
    many = [
        FlowRecord(
            f"f{n}", None, FlowSpec.model_validate({"match": {"dst_port": 1 + n}, "class": "video"})
        )
        for n in range(1_000)
    ]

    async def write(store: Store) -> list[int]:
        first = await store.write([put(VIDEO), put(FLOW)])
        base = store.base("s1")
        all_at_once = [put(FLOW).reversed(), *map(put, many)]
        large = await store.write(all_at_once, [event("large")], None, {"s1": base})
        # On top of the new generation: one more, and a stale one.
        small = await store.write([put(METER)], (), None, {"s1": store.base("s1")})
        with pytest.raises(StaleError):
            await store.write([put(PORT)], (), None, large.bases)
        return [one.revision for one in (first, large, small)]

    async def read(store: Store) -> Any:
        return content(store), [one["message"] for one in store.events()]

    first, large, small = with_store(url, write)
    assert first < large < small
    found, messages = with_store(url, read)
    assert len(found) == len(many) + 2
    assert ("flow", "web") not in found
    # Unchanged resources keep their revisions.
    assert found["class", "video"].revision == first
    assert found["flow", "f7"].revision == large
    assert found["meter", "gold"].revision == small
    assert messages == ["large"]


def test_nothing_of_a_large_write_is_seen_when_it_is_stale(url: str) -> None:
    async def write(store: Store) -> None:
        base = store.base("s1")
        await store.write([put(VIDEO)])
        many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6 + n))) for n in range(300)]
        with pytest.raises(StaleError):
            await store.write(many, (), None, {"s1": base})

    async def read(store: Store) -> Any:
        return content(store)

    with_store(url, write)
    assert with_store(url, read) == {("class", "video"): VIDEO}


def test_fencing_numbers_grow_over_restarts_and_beyond_what_is_remembered(url: str) -> None:
    if url.startswith("etcd"):
        pytest.skip("not run: a lease gives them (test_leases)")

    async def bid(store: Store) -> list[int]:
        tenure = store.tenure("s1")
        numbers = [await tenure.bid(), await tenure.bid()]
        numbers.append(await tenure.bid(above=numbers[-1] + (5 << 64)))
        assert tenure.gave(numbers[-1])
        return numbers

    numbers = [*with_store(url, bid), *with_store(url, bid)]
    assert numbers == sorted(set(numbers))
    assert numbers[2] >> 64 > (numbers[1] >> 64) + 4


# ---- several controllers ----


def test_a_write_of_one_is_told_to_the_others(shared: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (_, told):
            written = await one.write([put(VIDEO)], [event("made")], {"s1": (SETTINGS, 0)})
            await told.until(lambda: told.told and len(told.entries) >= 2)
            by_switch = {entry.switch: entry for entry in told.entries}
            (change,) = by_switch["s1"].changes
            assert change.after == VIDEO
            assert change.after.revision == written.revision == by_switch["s1"].base
            assert by_switch[SWITCHES].switches == {"s1": (SETTINGS, written.revision)}
            assert [one["message"] for one in told.told] == ["made"]

    asyncio.run(run())


def test_who_has_caught_up_has_been_told_what_was_acknowledged_before(shared: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (other, told):
            for number in range(20):
                written = await one.write([put(VIDEO)])
                waiting = [asyncio.create_task(other.catch_up()) for _ in range(3)]
                await asyncio.gather(*waiting)
                assert told.entries[-1].base >= written.revision, number

    asyncio.run(run())


def test_nobody_catches_up_with_an_etcd_that_is_gone(tmp_path: Path) -> None:
    if MISSING:
        pytest.skip("not run: no etcd (Debian's etcd-server)")
    members = Members(tmp_path)
    members.start()

    async def run() -> None:
        async with followed(members.url()) as (store, _):
            await store.catch_up()
            members.close()
            with pytest.raises(StoreError):
                await store.catch_up()

    asyncio.run(run())


def test_an_etcd_that_is_full_takes_no_writes_and_says_so(tmp_path: Path) -> None:
    if MISSING:
        pytest.skip("not run: no etcd (Debian's etcd-server)")
    members = Members(tmp_path, 1, "--quota-backend-bytes", str(1 << 20))
    members.start()

    async def fill(store: Store) -> None:
        for number in range(100):
            await store.write([], [event(f"{number} {'x' * 50_000}")])

    async def run() -> None:
        async with opened(members.url()) as store:
            await store.probe()
            with pytest.raises(StoreError, match="space exceeded"):
                await fill(store)
            with pytest.raises(StoreError, match="space exceeded"):
                await store.probe()

    try:
        asyncio.run(run())
    finally:
        members.close()


def test_of_two_that_plan_on_the_same_revision_one_wins(shared: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            writes = [
                store.write(
                    [put(ClassRecord("video", 1, ClassSpec(rate=rate)))],
                    (),
                    None,
                    {"s1": store.base("s1")},
                )
                for store, rate in ((one, 10**6), (two, 2 * 10**6))
            ]
            answers = await asyncio.gather(*writes, return_exceptions=True)
            assert sorted(type(one).__name__ for one in answers) == ["StaleError", "Written"]
            await told.until(lambda: told.entries)

    asyncio.run(run())


MBIT = 10**6


def rate(record: ClassRecord, mbit: int) -> ResourceChange:
    """Return the change of a class to another rate, as a request plans it."""
    after = ClassRecord(record.name, record.index, ClassSpec(rate=mbit * MBIT))
    return ResourceChange("s1", "class", record.name, record, after)


async def two_classes(one: Store, told: Told) -> tuple[ClassRecord, ClassRecord]:
    """Store two classes, and wait until the other controller knows them."""
    first, second = (
        ClassRecord(name, n, ClassSpec(rate=10**6)) for n, name in ((1, "a"), (2, "b"))
    )
    await one.write([put(first), put(second)])
    await told.until(lambda: told.entries)
    return first, second


def test_changes_of_different_classes_are_not_in_each_others_way(shared: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            a, b = await two_classes(one, told)
            base = {"s1": two.base("s1")}
            first = await one.write([rate(a, 2)], [event("a")], None, base, whole=False)
            second = await two.write([rate(b, 3)], [event("b")], None, base, whole=False)
            assert first.revision < second.revision
            # The second writer must apply the first one's write.
            assert (first.behind, second.behind) == (frozenset(), {"s1"})
        async with opened(shared) as store:
            found = {c.spec.rate for c in store.desired("s1").classes.values()}
            assert found == {2 * MBIT, 3 * MBIT}

    asyncio.run(run())


def test_of_two_changes_of_a_class_one_wins(shared: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            a, _ = await two_classes(one, told)
            base = {"s1": two.base("s1")}
            writes = (
                store.write([rate(a, mbit)], [event("a")], None, base, whole=False)
                for store, mbit in ((one, 2), (two, 3))
            )
            answers = await asyncio.gather(*writes, return_exceptions=True)
            assert sorted(type(one).__name__ for one in answers) == ["StaleError", "Written"]

    asyncio.run(run())


@pytest.mark.parametrize("known", [False, True])
def test_only_what_another_has_changed_is_left_out(shared: str, known: bool) -> None:
    """Whether the writer's store has been told of it already or not."""

    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            a, b = await two_classes(one, told)
            base = {"s1": two.base("s1")}
            written = await one.write([rate(a, 2)], [event("first")], None, base, whole=False)
            if known:
                await told.until(lambda: two.base("s1") == written.revision)
            changes = [rate(a, 3), rate(b, 4)]
            said = [event("second"), event("third")]
            made = await two.write(changes, said, None, base, whole=False)
            assert made.stale == {("class", "a")}
            await told.until(lambda: len(told.told) == 2)
            assert [one["message"] for one in told.told] == ["first", "third"]
        async with opened(shared) as store:
            rates = {name: c.spec.rate for name, c in store.desired("s1").classes.items()}
            assert rates == {"a": 2 * MBIT, "b": 4 * MBIT}
            assert [one["message"] for one in store.events()] == ["first", "third"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a comes", "b comes"),
        ("class goes", "flow comes"),
        ("class goes", "rate"),
        ("port", "rate"),
        ("rate", "port"),
    ],
)
def test_what_depends_on_each_other_is_planned_again(shared: str, first: str, second: str) -> None:
    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            a, _ = await two_classes(one, told)
            changes = {
                "a comes": put(ClassRecord("new", 3, ClassSpec(rate=MBIT))),
                "b comes": put(ClassRecord("other", 3, ClassSpec(rate=MBIT))),
                "class goes": ResourceChange("s1", "class", "a", a, None),
                "flow comes": put(FLOW),
                "port": put(PORT),
                "rate": rate(a, 2),
            }
            base = {"s1": two.base("s1")}
            await one.write([changes[first]], [event("1")], None, base, whole=False)
            with pytest.raises(StaleError):
                await two.write([changes[second]], [event("2")], None, base, whole=False)

    asyncio.run(run())


def test_writes_at_the_same_time_share_a_transaction(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each succeeds or fails on its own, and events have different numbers."""
    from pacer_controller.stores.etcd.client import EtcdClient

    names = [f"s{n}" for n in range(20)]

    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            await one.write([put(VIDEO, "s3")])
            await told.until(lambda: told.entries)
            base = two.base("s3")
            await one.write([put(METER, "s3")])
            real, asked = EtcdClient.transact, list[Any]()

            async def transact(self: EtcdClient, *given: Any, **options: Any) -> Any:
                if any(b"heads" in one.SerializeToString() for one in given[1]):
                    asked.append(given)
                return await real(self, *given, **options)

            monkeypatch.setattr(EtcdClient, "transact", transact)
            writes = (
                two.write([put(VIDEO, of)], [event(of)], None, {of: base if of == "s3" else 0})
                for of in names
            )
            answers = await asyncio.gather(*writes, return_exceptions=True)
            assert len(asked) < len(names) / 2
            made = [
                name for name, one in zip(names, answers, strict=True) if isinstance(one, Written)
            ]
            assert made == [name for name in names if name != "s3"]
            assert isinstance(answers[3], StaleError)
            await told.until(lambda: len(told.told) == len(made))
            assert sorted(one["message"] for one in told.told) == sorted(made)
            numbers = [one["id"] for one in told.told]
            assert numbers == sorted(set(numbers))
        async with opened(shared) as store:
            assert [one["id"] for one in store.events()] == numbers

    asyncio.run(run())


def test_two_controllers_lose_no_change_to_each_other(shared: str) -> None:
    """Each adds to the state that it sees, as a request does; no acknowledged change is lost."""

    def moved(store: Store, base: int) -> bool:
        return store.base("s1") != base

    async def add(store: Store, told: Told, mine: str) -> None:
        for number in range(40):
            while True:
                base = store.base("s1")
                record = ClassRecord(f"{mine}{number}", 1, ClassSpec(rate=10**6))
                try:
                    await store.write([put(record)], (), None, {"s1": base})
                except StaleError:
                    await told.until(partial(moved, store, base))
                else:
                    break

    async def run() -> set[str]:
        async with followed(shared) as (one, of_one), followed(shared) as (two, of_two):
            await asyncio.gather(add(one, of_one, "a"), add(two, of_two, "b"))
        async with opened(shared) as store:
            return set(store.desired("s1").classes)

    assert asyncio.run(run()) == {f"{name}{number}" for name in "ab" for number in range(40)}


def test_a_large_write_is_told_as_what_has_changed(shared: str) -> None:
    many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6))) for n in range(300)]

    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, told):
            await one.write([put(VIDEO)])
            await told.until(lambda: told.entries)
            told.entries.clear()
            written = await one.write([put(VIDEO).reversed(), *many])
            await told.until(lambda: sum(len(entry.changes) for entry in told.entries) >= 301)
            changes = [change for entry in told.entries for change in entry.changes]
            assert {c.name for c in changes if c.after is None} == {"video"}
            assert len([c for c in changes if c.after is not None]) == 300
            await told.until(lambda: two.base("s1") == one.base("s1"))
            # The other goes on from there.
            last = await two.write([put(METER)], (), None, {"s1": two.base("s1")})
            assert last.revision > written.revision

    asyncio.run(run())


def test_another_sets_large_write_is_in_nobodys_way(shared: str) -> None:
    many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6)), "big") for n in range(300)]

    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (two, _):
            base = two.base("s1")
            await one.write(many)
            # It may not know of the new generation yet.
            await two.write([put(VIDEO)], (), None, {"s1": base})
        async with opened(shared) as store:
            assert set(store.desired("s1").classes) == {"video"}
            assert len(store.desired("big").classes) == 300

    asyncio.run(run())


class Nobody(dict[str, Any]):
    """No members, also if the watch tells of some."""

    def __setitem__(self, name: str, member: Any) -> None:
        """Note nothing."""


def test_what_is_swept_as_left_behind_is_not_committed(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is thought to be gone may be in the middle of a large write."""
    many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6)), "big") for n in range(300)]

    async def run() -> None:
        async with followed(shared) as (one, _), followed(shared) as (other, _):
            assert isinstance(one, EtcdStore)
            assert isinstance(other, EtcdStore)
            fill = one.generations.fill

            async def fill_and_be_swept(*arguments: Any) -> Any:
                filled = await fill(*arguments)
                monkeypatch.setattr(generations, "SWEEP_AFTER_S", 0.0)
                monkeypatch.setattr(other.leases, "members", Nobody())
                await other.generations.sweep_all()
                return filled

            monkeypatch.setattr(one.generations, "fill", fill_and_be_swept)
            with pytest.raises(StaleError):
                await one.write(many)
            monkeypatch.setattr(one.generations, "fill", fill)
            await one.write(many)
        async with opened(shared) as store:
            assert len(store.desired("big").classes) == 300

    asyncio.run(run())


def test_a_part_of_a_large_write_that_is_made_late_leaves_nothing_behind(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has failed, and its new generation is deleted."""
    many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6)), "big") for n in range(300)]

    async def run() -> None:
        monkeypatch.setattr(generations, "SWEEP_AFTER_S", 0.0)
        async with followed(shared) as (store, _):
            assert isinstance(store, EtcdStore)
            await asyncio.gather(*store._background)
            with given_up(store._client, "/class/c7") as late, pytest.raises(StoreError):
                await store.write(many)
            await asyncio.gather(*store._background)
            await store._client.transact(*late.pop())
            assert (await store.mirror.range_all(f"{store._prefix}data/"))[0] == []

    asyncio.run(run())


def test_a_gap_in_the_watch_is_made_up_for(shared: str, members: Members) -> None:
    """Changes that are compacted before they are reported are read again."""

    async def run() -> None:
        async with opened(shared) as one, opened(shared) as two:
            await one.write([put(VIDEO), put(FLOW)], [event("before")])
            await one.write([put(FLOW).reversed(), put(METER)], [event("after")])
            await asyncio.to_thread(members.compact)
            told = Told()
            await two.start(told, [], list, lambda _: Status("", "pending"))
            try:
                await told.until(lambda: len(told.told) == 2 and told.entries)
                changed = {c.name for entry in told.entries for c in entry.changes}
                assert changed == {"video", "gold"}
                await two.write([put(PORT)], (), None, {"s1": two.base("s1")})
            finally:
                await two.stop()

    asyncio.run(run())


def test_a_write_without_an_answer_is_found_out_about(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost after, or the request before it was made."""
    from pacer_controller.stores.etcd.client import EtcdError
    from pacer_controller.stores.etcd.group_commit import Answer, GroupCommit, Transaction

    async def run() -> None:
        async with followed(shared) as (store, _):
            real = GroupCommit.make
            lose: list[str] = ["after"]

            # Only writes go through here. The store's other transactions are made at any time.
            async def make(self: GroupCommit, asked: Transaction) -> Answer:
                what = lose.pop() if lose else ""
                if what == "before":
                    raise EtcdError("lost", certain=False)
                answer = await real(self, asked)
                if what == "after":
                    raise EtcdError("lost", certain=False)
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(GroupCommit, "make", make)
                written = await store.write([put(VIDEO)], (), None, {"s1": 0})
                assert written.revision == store.base("s1") > 0
                lose.append("before")
                with pytest.raises(StoreError):
                    await store.write([put(FLOW)], (), None, written.bases)
        async with opened(shared) as store:
            assert content(store) == {("class", "video"): VIDEO}

    asyncio.run(run())


@pytest.mark.skipif(MISSING, reason="not run: no etcd (Debian's etcd-server)")
def test_three_members_lose_nothing_when_one_is_killed(tmp_path: Path) -> None:
    cluster = Members(tmp_path, 3)
    cluster.start()

    async def run() -> set[str]:
        acknowledged: set[str] = set()
        async with followed(cluster.url()) as (store, _):
            for number in range(60):
                if number == 20:
                    await asyncio.to_thread(cluster.kill, 0)
                name = f"c{number}"
                record = ClassRecord(name, 1 + number, ClassSpec(rate=10**6))
                try:
                    await store.write([put(record)], (), None, {"s1": store.base("s1")})
                except StoreError:
                    continue
                acknowledged.add(name)
        assert len(acknowledged) > 40
        async with opened(cluster.url()) as store:
            assert acknowledged <= set(store.desired("s1").classes)
        return acknowledged

    try:
        asyncio.run(run())
    finally:
        cluster.close()


def test_stores_move_into_each_other(tmp_path: Path, shared: str) -> None:
    async def run() -> None:
        first, second = f"sqlite:{tmp_path / 'first'}", f"sqlite:{tmp_path / 'second'}"
        async with opened(first) as one:
            await one.write([put(r) for r in (VIDEO, FLOW, METER, PORT)], (), {"s1": (SETTINGS, 0)})
        async with opened(first) as one, opened(shared) as two:
            assert await copy(one, two) == (1, 4)
        async with opened(shared) as two, opened(second) as three:
            assert await copy(two, three) == (1, 4)
            with pytest.raises(StoreError, match="is not empty"):
                await copy(three, two)
        async with opened(first) as one, opened(second) as three:
            assert content(three) == content(one)
            assert three.switches().keys() == {"s1"}

    asyncio.run(run())


def test_the_command_migrates(
    tmp_path: Path, shared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"sqlite:{tmp_path / 'state'}"
    with_store(source, lambda store: store.write([put(VIDEO)], (), {"s1": (SETTINGS, 0)}))
    assert server.main(["migrate", source, shared]) == 0
    assert "1 switches and 1 resources are in etcd://" in capsys.readouterr().out
    assert server.main(["migrate", source, shared]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_the_command_migrates_nothing_from_a_store_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong name must not look like a copy: controllers of an empty store empty the switches."""
    missing, empty, target = (f"sqlite:{tmp_path / name}" for name in ("missing", "empty", "to"))
    assert server.main(["migrate", missing, target]) == 2
    assert "missing: there is no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with_store(empty, lambda store: store.write([]))
    assert server.main(["migrate", empty, target]) == 2
    assert "empty has no switches and no resources" in capsys.readouterr().err


def test_a_store_must_be_named_rightly() -> None:
    for wrong in ("sqlite:", "postgres://x", "etcd://", "etcd://host", "etcd://host:1/p?x"):
        with pytest.raises(StoreError, match="want sqlite:PATH or etcd://"):
            asyncio.run(open_store(wrong))


@pytest.mark.parametrize("members", ["192.0.2.1:2379", "127.0.0.1:2379,[2001:db8::1]:2379"])
def test_a_password_is_not_sent_in_clear_to_another_machine(members: str) -> None:
    with pytest.raises(StoreError, match="in clear"):
        asyncio.run(open_store(f"etcd://pacer@{members}/test", password="x" * 16))


def test_an_etcd_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match=r"etcd at 127\.0\.0\.1:1/pacer"):
        asyncio.run(open_store("etcd://127.0.0.1:1"))


# ---- files ----

_WRITER = """
import asyncio, sys
from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.schemas import ClassSpec
from pacer_controller.stores import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    for index in range(1, 1_000_000):
        record = ClassRecord(f"c{index}", index, ClassSpec(rate=10**6))
        await store.write([ResourceChange("s1", "class", record.name, None, record)])
        print(index, flush=True)

asyncio.run(main())
"""


def test_every_acknowledged_write_survives_a_kill(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    process = subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = 0
    while said < 200:
        said = int(process.stdout.readline())
    process.kill()
    process.wait()
    with SqliteStore(path) as store:
        assert store.desired("s1").classes.keys() >= {f"c{index}" for index in range(1, said + 1)}


def test_one_controller_owns_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with SqliteStore(path) as store:
        asyncio.run(store.write([put(VIDEO)]))
        with pytest.raises(StoreError, match="another process uses it"):
            SqliteStore(path)


def test_a_file_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with SqliteStore(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    with pytest.raises(StoreError, match="chmod go-w"):
        SqliteStore(str(path))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("no database", encoding="ascii")
    path.chmod(0o600)
    with pytest.raises(StoreError, match="state"):
        SqliteStore(str(path))


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    path.chmod(0o600)
    with pytest.raises(StoreError, match="newer version"):
        SqliteStore(str(path))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        SqliteStore(str(tmp_path / "none" / "state"))


def test_a_file_of_the_first_version_is_brought_forward(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with sqlite3.connect(path) as db:
        db.executescript(MIGRATIONS[0])
        db.execute(
            "INSERT INTO classes VALUES ('s1', 'video', 1, ?)", (json.dumps({"rate": 10**9}),)
        )
        db.execute("PRAGMA user_version = 1")
    path.chmod(0o600)
    with SqliteStore(str(path)) as store:
        desired = store.desired("s1")
        assert desired.classes == {"video": VIDEO}
        assert desired.used == {1}
        written: Written = asyncio.run(store.write([put(METER)]))
        assert written.revision > desired.classes["video"].revision


def test_nothing_is_trusted_after_an_error_of_the_disk(tmp_path: Path) -> None:
    """A failed fsync may have dropped its data: later ones that succeed prove nothing."""
    path = tmp_path / "state"
    with SqliteStore(str(path)) as store:
        asyncio.run(store.write([put(VIDEO)]))

        class Failing:
            """The connection, whose next COMMIT fails as a disk does."""

            def __init__(self, real: Any) -> None:
                self._real = real

            def execute(self, statement: str, *given: Any) -> Any:
                if statement == "COMMIT":
                    self._real.execute("ROLLBACK")
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                    raise error
                return self._real.execute(statement, *given)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

        real = store._db
        store._db = Failing(real)  # type: ignore[assignment]
        with pytest.raises(StoreError, match="disk I/O error"):
            asyncio.run(store.write([put(FLOW)]))
        store._db = real
        with pytest.raises(StoreError, match="start the controller anew"):
            asyncio.run(store.write([put(METER)]))
    with SqliteStore(str(path)) as store:
        assert content(store) == {("class", "video"): VIDEO}


def test_a_full_disk_refuses_and_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with SqliteStore(str(path)) as store:
        asyncio.run(store.write([put(VIDEO)]))
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        many = [put(ClassRecord(f"c{n}", 2 + n, ClassSpec(rate=10**6))) for n in range(2_000)]
        with pytest.raises(StoreError, match="full"):
            asyncio.run(store.write(many))
        assert shutil.disk_usage(tmp_path).free > 0
    with SqliteStore(str(path)) as store:
        assert content(store) == {("class", "video"): VIDEO}

"""The faults that the simulation has found in the controller, each as its smallest story."""

import asyncio
import contextlib
import errno
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
import vfs
from disk import Disk, Failing
from etcd import Cluster
from loop import Process, SimulatedLoop
from pacer_controller.config import switch_from
from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.rows import Rows
from pacer_controller.schemas import ClassSpec
from pacer_controller.service import Service
from pacer_controller.service.bulk import put_whole_state, whole_state
from pacer_controller.service.checks import NO_CONDITION
from pacer_controller.service.managed import Origin
from pacer_controller.service.switches import put_switch
from pacer_controller.service.sync import Sync, _joined
from pacer_controller.southbound import Refusal, SwitchRefusedError
from pacer_controller.state_schema import P4RuntimeSpec, StateSpec
from pacer_controller.stores import (
    Entry,
    SqliteStore,
    StaleError,
    Status,
    StoreError,
    UncertainError,
    Written,
)
from pacer_controller.stores.etcd import mirror, operations
from pacer_controller.stores.etcd import store as etcd_store
from pacer_controller.stores.etcd.client import Access, EtcdError
from pacer_controller.stores.etcd.store import EtcdStore
from world import COMPILED, STATE

PREFIX = "/pacer/"
EVENT = {"time": "2026-01-01T00:00:00Z", "kind": "change", "switch": "a", "data": {}}
LARGE = 20
"""More changes than a transaction takes here."""


@pytest.fixture(autouse=True)
def _small_transactions() -> Any:
    with mock.patch.object(operations, "OPERATIONS", 8):
        yield


class Heard:
    """A feed that keeps all of its writes."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def entry(self, entry: Entry) -> None:
        """Keep a write."""
        self.entries.append(entry)

    def events(self, _: object) -> None:
        """Do nothing."""


@contextlib.asynccontextmanager
async def store(
    cluster: Cluster, switches: Sequence[str] = (), feed: Heard | None = None
) -> AsyncIterator[EtcdStore]:
    """Open a controller's store, with a watch and leases."""
    made = await EtcdStore.open(Access(cluster.endpoints.split(",")), PREFIX)
    await made.start(
        feed or Heard(), switches, lambda: switches, lambda _: Status(made.leases.name, "pending")
    )
    try:
        yield made
    finally:
        await made.stop()
        await made.close()


def classes(switch: str, count: int, first: int = 1) -> list[ResourceChange]:
    """Return new classes."""
    return [
        ResourceChange(
            switch, "class", f"c{n}", None, ClassRecord(f"c{n}", n, ClassSpec(rate=1_000_000 * n))
        )
        for n in range(first, first + count)
    ]


def stored(cluster: Cluster, switch: str) -> set[str]:
    """Return the classes of a switch that a reader of etcd finds."""
    root = json.loads(cluster.value(f"{PREFIX}root") or b"{}")
    generation = root.get(switch, [0, "0"])[1]
    prefix = f"{PREFIX}data/{switch}/{generation}/class/"
    keys = [key.decode() for key in cluster.kvs]
    return {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}


def run(loop: SimulatedLoop, work: Any) -> None:
    """Run a coroutine as the program of a node."""
    loop.run_until_complete(Process(loop, loop.node("c0")).spawn(work))


def test_large_writes_to_two_switches_at_once_are_both_there(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """The second to name its generation must keep the first one's."""

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            for turn in range(10):
                new = {of: classes(of, LARGE, first=1 + turn * LARGE) for of in ("a", "b")}
                await asyncio.gather(one.write(new["a"]), other.write(new["b"]))
                there = (turn + 1) * LARGE
                assert len(stored(cluster, "a")) == len(stored(cluster, "b")) == there

    run(loop, work())


def test_a_large_write_does_not_go_over_what_is_written_while_it_is_prepared(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            large = asyncio.ensure_future(one.write(classes("a", LARGE)))
            while not any(b"/class/c9" in key for key in cluster.kvs):
                await asyncio.sleep(0.001)
            assert not large.done()
            await other.write(classes("a", 1, first=50))
            with pytest.raises(StaleError):
                await large
            assert stored(cluster, "a") == {"c50"}

    run(loop, work())


def test_a_generation_that_could_not_be_read_at_once_is_read_later(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """A set whose new generation is not read yet has its old content, not none."""

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            await one.write(classes("a", LARGE))
            real, failed = other._client.range, list[str]()

            async def failing(key: str, end: str = "", **options: Any) -> Any:
                if "/data/a/" in key and not failed:
                    failed.append(key)
                    raise EtcdError("no answer", certain=False)
                return await real(key, end, **options)

            with mock.patch.object(other._client, "range", failing):
                await one.write(classes("a", LARGE, first=LARGE + 1))
                await asyncio.sleep(2)
            assert failed
            # The generation that it writes has all earlier resources.
            await other.write(classes("a", LARGE, first=2 * LARGE + 1))
            assert len(stored(cluster, "a")) == 3 * LARGE

    run(loop, work())


def test_a_switch_that_is_left_while_a_bid_is_on_its_way_is_free(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    async def work() -> None:
        async with store(cluster, ["s0", "s1"]) as one:
            tenures = {switch: one.tenure(switch) for switch in ("s0", "s1")}
            for tenure in tenures.values():
                await tenure.becomes(True)
            # With a second controller, one of the switches is to be left.
            async with store(cluster, ["s0", "s1"]) as other:

                async def bid_on(switch: str) -> None:
                    while tenures[switch].held:
                        with contextlib.suppress(RuntimeError):
                            await tenures[switch].bid()

                bids = [asyncio.ensure_future(bid_on(switch)) for switch in tenures]
                await asyncio.sleep(5)
                for bid in bids:
                    bid.cancel()
                holders = [one.leases.name, other.leases.name]
                keys = [cluster.value(f"{PREFIX}leases/{switch}") for switch in tenures]
                assert sorted(key.decode() for key in keys if key) == sorted(holders)
                assert sorted(one.leases.holders.values()) == sorted(holders)

    run(loop, work())


def test_a_controller_that_was_cut_off_learns_who_has_taken_its_switch(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """It leaves the switch after another has taken it, and the watch tells of that later."""

    async def work() -> None:
        async with store(cluster, ["s0"]) as one:
            await one.tenure("s0").becomes(True)
            async with store(cluster, ["s0"]) as other:
                assert one.watch._following is not None
                one.watch._following.cancel()
                await one._client.revoke(one.leases._lease)
                await other.tenure("s0").becomes(True)
                await other.write(classes("a", 1))
                await one.leases._leave(["s0"])
                one.watch._following = asyncio.create_task(one.watch.follow())
                await asyncio.sleep(1)
                assert one.leases.holders == {"s0": other.leases.name}

    run(loop, work())


async def _late(one: EtcdStore) -> None:
    await asyncio.sleep(2)
    await one.watch.follow()


@contextlib.asynccontextmanager
async def losing(
    one: EtcdStore, changes: Sequence[ResourceChange], **options: Any
) -> AsyncIterator[tuple["asyncio.Task[Written]", int]]:
    """Make a write whose answer is lost, and of which the watch tells late.

    Yields:
        The task that makes the write, as soon as others know that etcd has made it, and its
        revision.

    """
    real, lost = one._client.transact, list[Any]()

    async def losing_one(*asked: Any, **given: Any) -> Any:
        sought = f"/class/{changes[0].name}".encode()
        if lost or not any(sought in each.SerializeToString() for each in asked[1]):
            return await real(*asked, **given)
        assert one.watch._following is not None
        one.watch._following.cancel()
        lost.append(await real(*asked, **given))
        await asyncio.sleep(1)
        one.watch._following = asyncio.create_task(_late(one))
        raise EtcdError("no answer", certain=False)

    with mock.patch.object(one._client, "transact", losing_one):
        writing = asyncio.create_task(one.write(changes, **options))
        while not lost:
            assert not writing.done()
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        yield writing, lost[0].header.revision


def test_a_write_whose_answer_is_lost_is_found_behind_many_others(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """A head names the newest writes only; one that it does not name may still have been made."""

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            await one.write(classes("a", 1))
            async with losing(one, classes("a", 1, first=2)) as (writing, revision):
                for n in range(20):
                    await other.write(classes("a", 1, first=100 + n))
                assert (await writing).revision == revision
            assert "c2" in stored(cluster, "a")

    run(loop, work())


def test_a_write_whose_answer_is_lost_is_found_in_the_generation_that_it_was_made_in(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """A later generation, which does not have it, does not mean that it was not made."""

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            await one.write([*classes("a", 1), *classes("b", 1)])
            new = classes("b", 1, first=2)
            async with losing(one, new, whole=False) as (writing, revision):
                # It replaces both sets, and moves the head of the first only.
                await other.write([*classes("a", LARGE, first=10), *classes("b", 1, first=50)])
                assert cluster.value(f"{PREFIX}heads/b") != cluster.value(f"{PREFIX}heads/a")
                assert (await writing).revision == revision

    run(loop, work())


def test_a_write_whose_revision_is_compacted_is_in_doubt_at_once(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            await one.write(classes("b", 1))
            new = classes("b", 1, first=2)
            async with losing(one, new, whole=False) as (writing, _):
                await other.write(classes("a", 1))
                cluster.compact(0)
                begun_s = loop.now_s
                with pytest.raises(UncertainError):
                    await writing
                assert loop.now_s - begun_s < 5

    run(loop, work())


def test_a_store_that_is_opened_has_the_events_of_one_revision_in_their_order(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """Their keys name clocks and writes, whose order is another one."""

    async def work() -> None:
        async with store(cluster) as one:
            events = [{**EVENT, "message": str(n)} for n in range(20)]
            # All but the first are written together.
            await asyncio.gather(*(one.write([], [each]) for each in events))
        async with store(cluster) as other:
            told = other.events()
            assert [each["message"] for each in told] == [each["message"] for each in events]
            assert [each["id"] for each in told] == sorted({each["id"] for each in told})

    run(loop, work())


def test_a_clock_that_is_ahead_does_not_have_new_events_removed(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    kept, slack = 10, 3

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            for n in range(40):
                loop.node("c0").wall_s = 86_400.0 if n in (5, 25) else -3_600.0 * (n % 7)
                writer = one if n % 3 else other
                await writer.write([], [{**EVENT, "message": str(n)}])
            await asyncio.sleep(1)
            assert len(one.mirror.event_keys) <= kept + slack
            assert len(other.mirror.event_keys) <= kept + slack
        async with store(cluster) as later:
            told = [int(each["message"]) for each in later.events()]
            assert told == list(range(40))[-len(told) :]
            assert kept <= len(told) <= kept + slack

    with (
        mock.patch.object(mirror, "EVENTS_KEPT", kept),
        mock.patch.object(etcd_store, "EVENTS_KEPT", kept),
        mock.patch.object(etcd_store, "EVENTS_SLACK", slack),
    ):
        run(loop, work())


@pytest.mark.parametrize("how", ["stops", "fails"])
def test_a_reader_is_not_told_that_memory_is_current_when_writes_were_dropped(
    loop: SimulatedLoop, how: str
) -> None:
    async def work() -> None:
        lifecycle = asyncio.Lock()
        # Without a store, the write cannot be taken.
        service = SimpleNamespace(lifecycle=lifecycle, switches={}, base_of=lambda _: 0)
        sync = Sync(cast(Any, service))
        async with lifecycle:
            sync.entry(Entry("a", 7, classes("a", 1)))
            waiting = asyncio.create_task(sync.caught_up())
            await asyncio.sleep(1)
            assert not waiting.done()
            if how == "stops":
                await sync.stop()
        with pytest.raises(StoreError):
            await waiting
        if how == "stops":
            sync.entry(Entry("a", 8))
        # A later reader is not told so either.
        for only in (None, "a"):
            with pytest.raises(StoreError):
                await sync.caught_up(only)
        if how != "stops":
            await sync.caught_up("b")

    run(loop, work())


def test_what_others_wrote_in_a_gap_is_not_taken_for_an_own_write(loop: SimulatedLoop) -> None:
    """The store reads everything anew after an own write, and tells of all writes in one."""

    async def work() -> None:
        found = SimpleNamespace(name="a", lock=asyncio.Lock(), last_change=7)
        service = SimpleNamespace(switches={"a": found}, base_of=lambda _: found.last_change)
        sync = Sync(cast(Any, service))
        async with found.lock:
            sync.entry(Entry("a", 9, classes("a", 1), after_gap=True))
            assert await sync.take_before(cast(Any, found), 9) is None
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sync.caught_up("a"), 1)
            await sync.stop()

    run(loop, work())


def test_a_reader_of_a_switch_does_not_wait_for_writes_to_another(loop: SimulatedLoop) -> None:
    """A switch that hangs holds its lock for as long as a write to it may take."""

    async def work() -> None:
        hung = SimpleNamespace(lock=asyncio.Lock(), last_change=0)
        service = SimpleNamespace(switches={"a": hung}, base_of=lambda _: 0)
        sync = Sync(cast(Any, service))
        async with hung.lock:
            sync.entry(Entry("a", 7, classes("a", 1)))
            await asyncio.wait_for(sync.caught_up("b"), 1)
            for of in ("a", None):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(sync.caught_up(of), 1)
            await sync.stop()

    run(loop, work())


def test_a_status_that_a_stopped_member_of_etcd_puts_late_does_not_stay(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """Its controller has given it up, and has put a newer one by another member."""

    async def work() -> None:
        async with store(cluster, ["a"]) as one, store(cluster) as other:
            states = ["first"]
            one.leases._report = lambda _: Status("", states[-1])
            await one.tenure("a").becomes(True)
            told = Status(one.leases.name, "newest")
            await asyncio.sleep(1)
            loop.pause(cluster.members[0].node)
            for state in ("late", "newest"):
                states.append(state)
                await asyncio.sleep(5)
            assert other.status("a") == told
            loop.resume(cluster.members[0].node)
            await asyncio.sleep(1)
            assert other.status("a") == told

    run(loop, work())


def test_a_large_write_that_cannot_be_taken_back_is_told_to_its_writer(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """It has undone the write in memory, and a watch does not tell of an own generation."""

    async def work() -> None:
        heard = Heard()
        async with store(cluster, feed=heard) as one, store(cluster) as other:
            changes = classes("a", LARGE)
            written = await one.write(changes)
            await asyncio.sleep(1)
            await other.write(classes("a", 1, first=50))
            heard.entries.clear()
            with pytest.raises(StaleError):
                await one.take_back(changes, written, [], {}, written.bases)
            # Not before the writer has noted that it has undone the write.
            names = {change.name for change in changes}
            assert not names & {one.name for entry in heard.entries for one in entry.changes}
            await asyncio.sleep(0)
            told = {
                change.name: change.after for entry in heard.entries for change in entry.changes
            }
            assert all(told[change.name] == change.after for change in changes)

    run(loop, work())


def test_of_several_entries_of_one_revision_none_is_passed_over() -> None:
    """A set's base is that of its generation, and a later entry can have the same."""
    first, second = classes("a", 2)
    line = deque([Entry("a", 7), Entry("a", 9, [first]), Entry("a", 9, [second])])
    assert _joined(line, 7) == ([first, second], 9)


def document(rate: str, other: str) -> StateSpec:
    """Return a state of the switch of the configuration, and of one that a request makes."""
    of_classes = {"classes": {"video": {"rate": rate}}}
    device = {"switch": {"address": f"{other}:9559"}}
    return StateSpec.model_validate({"switches": {"s0": of_classes, other: of_classes | device}})


async def replace(service: Service, state: StateSpec) -> None:
    """Replace the whole state."""
    await put_whole_state(service, state, NO_CONDITION, Origin(), dry_run=False)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_refused_change_that_the_disk_does_not_let_go_is_not_undone_for_readers(
    loop: SimulatedLoop, call: str
) -> None:
    """They have seen it in the file, and would see it again after the restart."""
    disk = loop.node("c0").disk = Disk("test")
    shown: list[Any] = []
    events: list[list[str]] = []

    def made() -> Service:
        """Start a controller without connections to its switches."""
        switches = [switch_from("s0", {"address": "s0:9559"})]
        service = Service(switches, COMPILED, SqliteStore(STATE))
        show(service)
        return service

    def show(service: Service) -> None:
        shown.append(whole_state(service))
        events.append([one["message"] for one in service.events.select()])

    async def first() -> None:
        service = made()
        await replace(service, document("1Mbit", "old"))
        show(service)

        async def refuses(_: Rows, after: Rows, **__: Any) -> bool:
            show(service)
            disk.failing[call] = Failing(errno.EIO, once=True)
            raise SwitchRefusedError([Refusal(next(iter(after.values())), "no", table_full=False)])

        with mock.patch.object(service.switch("s0").driver, "apply", refuses):
            with pytest.raises(UncertainError, match="could not be taken back"):
                await replace(service, document("2Mbit", "new"))
            show(service)
            # If the file no longer has it, this would acknowledge what is gone after the restart.
            with pytest.raises(StoreError, match="start the controller anew"):
                await service.put("s0", "class", "video", ClassSpec(rate=2_000_000))
            with pytest.raises(StoreError, match="start the controller anew"):
                await replace(service, document("2Mbit", "new"))
            same = P4RuntimeSpec(address="new:9559")
            with pytest.raises(StoreError, match="start the controller anew"):
                await put_switch(service, "new", same, NO_CONDITION, Origin())

    async def again() -> None:
        made()

    with vfs.installed(loop):
        for life in (first, again):
            process = Process(loop, loop.node("c0"))
            loop.run_until_complete(process.spawn(life()))
            process.end()
    _, before, refused, after, restarted = shown
    assert set(before["switches"]) == {"s0", "old"}
    # While it is refused, the list of switches is still the former one.
    assert refused["switches"]["s0"]["classes"]["video"]["rate"] == "2Mbit"
    assert set(after["switches"]) == {"s0", "new"}
    assert after["switches"]["s0"] == refused["switches"]["s0"]
    if call == "write":
        assert restarted == after
        assert events[-1] == events[-2]
    else:
        # A failed sync may have taken the change back after all.
        assert restarted in (before, after)

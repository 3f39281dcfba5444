"""The faults that the simulation has found in the store on etcd, each as its smallest story."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest import mock

import pytest
from etcd import Cluster
from loop import Process, SimulatedLoop
from pacer_controller.records import ClassRecord, ResourceChange
from pacer_controller.schemas import ClassSpec
from pacer_controller.service.sync import _joined
from pacer_controller.stores import Entry, StaleError, Status
from pacer_controller.stores.etcd import operations
from pacer_controller.stores.etcd.client import Access, EtcdError
from pacer_controller.stores.etcd.store import EtcdStore

PREFIX = "/pacer/"
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


async def _late(one: EtcdStore) -> None:
    await asyncio.sleep(2)
    await one.watch.follow()


def test_a_write_whose_answer_is_lost_is_found_behind_many_others(
    loop: SimulatedLoop, cluster: Cluster
) -> None:
    """A head names the newest writes only; one that it does not name may still have been made."""

    async def work() -> None:
        async with store(cluster) as one, store(cluster) as other:
            await one.write(classes("a", 1))
            real, lost = one._client.transact, list[Any]()

            async def losing(*asked: Any) -> Any:
                if lost or not any(b"/class/c2" in each.request_put.key for each in asked[1]):
                    return await real(*asked)
                # The watch is as late as the answer, and others go on.
                assert one.watch._following is not None
                one.watch._following.cancel()
                lost.append(await real(*asked))
                await asyncio.sleep(0.1)
                for n in range(20):
                    await other.write(classes("a", 1, first=100 + n))
                one.watch._following = asyncio.create_task(_late(one))
                raise EtcdError("no answer", certain=False)

            with mock.patch.object(one._client, "transact", losing):
                written = await one.write(classes("a", 1, first=2))
            assert written.revision == lost[0].header.revision
            assert "c2" in stored(cluster, "a")

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

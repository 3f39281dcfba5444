"""What the leader keeps for its follower, and when it goes on without it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from controller_harness import COMPILED, free_port
from pacer_controller.config import parse_switch
from pacer_controller.problems import Problem
from pacer_controller.records import ClassRecord, Entry, ResourceChange
from pacer_controller.replication import PeerAddress, pair
from pacer_controller.replication import feed as feeding
from pacer_controller.replication.feed import Feed
from pacer_controller.schemas import ClassSpec
from pacer_controller.service import Service
from pacer_controller.southbound import State
from pacer_controller.store import Store

FOLLOWER = "f"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as made:
        yield made


def change(number: int) -> ResourceChange:
    record = ClassRecord("video", 1, ClassSpec(rate=10**6 * number), number)
    return ResourceChange("s1", "class", "video", None, record)


async def never() -> None:
    raise AssertionError("goes on without its follower")


async def feed_in_sync(store: Store) -> Feed:
    """Return a leader's feed whose follower has everything."""
    feed = Feed(store, never)
    feed.begin()
    said = await feed.read(FOLLOWER, store.epoch, store.sequence)
    assert said["in_sync"]
    return feed


async def still_waits(task: asyncio.Task[Any]) -> bool:
    for _ in range(100):
        await asyncio.sleep(0)
    return not task.done()


def test_what_a_follower_in_sync_has_yet_to_get_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "KEPT_CHANGES", 3)

    async def run() -> None:
        feed = await feed_in_sync(store)
        for number in range(1, 11):
            store.write([change(number)])
        waits = asyncio.create_task(feed.wait_for(10))
        assert await still_waits(waits)
        said = await feed.read(FOLLOWER, store.epoch, 0)
        assert [one["sequence"] for one in said["entries"]] == list(range(1, 11))
        assert said["in_sync"]
        assert await still_waits(waits)
        monkeypatch.setattr(feeding, "POLL_S", 0)
        await feed.read(FOLLOWER, store.epoch, 10)
        await waits

    asyncio.run(run())


def test_a_follower_that_gets_everything_anew_is_waited_for_until_it_has_it(store: Store) -> None:
    async def run() -> None:
        feed = await feed_in_sync(store)
        store.write([change(1)])
        waits = asyncio.create_task(feed.wait_for(1))
        # Until it has read the answer, the follower believes that it has everything.
        said = await feed.read(FOLLOWER, store.epoch, 99)
        assert not said["in_sync"]
        assert await still_waits(waits)
        read = asyncio.create_task(feed.read(FOLLOWER, store.epoch, said["snapshot"]["sequence"]))
        await waits
        read.cancel()

    asyncio.run(run())


def test_a_late_question_takes_nothing_back(store: Store) -> None:
    async def run() -> None:
        feed = await feed_in_sync(store)
        store.write([change(1)])
        read = asyncio.create_task(feed.read(FOLLOWER, store.epoch, 1))
        await feed.wait_for(1)
        read.cancel()
        await feed.read(FOLLOWER, store.epoch, 0)
        await feed.wait_for(1)

    asyncio.run(run())


def test_whoever_sees_a_writes_number_finds_the_write(store: Store) -> None:
    seen: list[tuple[int, int]] = []

    def on_write(entry: Entry) -> None:
        seen.append((entry.sequence, store.sequence))

    store.on_write = on_write
    store.write([change(1)])
    store.write([change(2)])
    assert seen == [(1, 0), (2, 1)]
    assert store.sequence == 2


@pytest.mark.parametrize(
    ("what", "goes_on"),
    [
        ("switch away", False),
        ("switch hangs", False),
        ("switch answers", True),
        ("follower left", True),
        ("no switches", True),
    ],
)
def test_a_leader_goes_on_alone_only_where_it_knows_that_it_leads(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str, goes_on: bool
) -> None:
    monkeypatch.setattr(feeding, "HOLD_S", 0)
    monkeypatch.setattr(pair, "WITNESS_S", 0)
    switches = [] if what == "no switches" else [parse_switch(f"s1=127.0.0.1:{free_port()}")]
    peer = PeerAddress(f"http://127.0.0.1:{free_port()}")

    async def hangs(_: Any) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        service = Service(switches, COMPILED, store, peer=peer)
        assert service.pair is not None
        feed = service.pair.feed
        feed.begin()
        assert (await feed.read(FOLLOWER, store.epoch, store.sequence))["in_sync"]
        if what in ("switch hangs", "switch answers"):
            driver: Any = service.switch("s1").driver
            monkeypatch.setattr(driver._connection, "state", State.CONNECTED)
            if what == "switch hangs":
                monkeypatch.setattr(driver, "read", hangs)
        if what == "follower left":
            feed.leave(FOLLOWER)
        store.write([change(1)])
        if goes_on:
            await feed.wait_for(1)
        else:
            with pytest.raises(Problem) as caught:
                await feed.wait_for(1)
            assert (caught.value.status, caught.value.kind) == (503, "not-leading")
        assert feed.in_sync is not goes_on
        assert store.alone is goes_on
        await service.pair.stop()

    asyncio.run(run())

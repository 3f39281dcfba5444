"""Leases: the right to write to a switch, its end, and its number."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etcd_members import MISSING, Members, given_up

from controller_harness import until
from pacer_controller.southbound import FenceError, NotHeldError, Tenure, fence_of, generation_of
from pacer_controller.stores import Entry, Event, Status
from pacer_controller.stores.base import epoch_above
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd import leases as leases_module
from pacer_controller.stores.etcd.assignment import Member
from pacer_controller.stores.etcd.client import Access, EtcdClient, EtcdError
from pacer_controller.stores.etcd.leases import LEASE_S, Leases, lease_clock
from pacer_controller.stores.etcd.renewal import MARGIN_S, STUCK_S, Renewal, Term
from pacer_controller.stores.etcd.store import EtcdStore

WAIT_S = 60.0


class Nobody:
    """A feed that ignores everything."""

    def entry(self, entry: Entry) -> None:
        """Forget a write."""

    def events(self, events: Sequence[Event]) -> None:
        """Forget events."""


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Run a cluster of one member."""
    if MISSING:
        pytest.skip("not run: no etcd (Debian's etcd-server)")
    made = Members(tmp_path)
    made.start()
    yield made
    made.close()


@asynccontextmanager
async def controller(
    members: Members, *switches: str, states: Sequence[str] = ("connected",)
) -> AsyncIterator[EtcdStore]:
    """Share switches, as a controller that has these in its configuration.

    Args:
        members: the cluster.
        switches: the names of the switches.
        states: the last one is the state of all switches that it drives.

    """
    store = await EtcdStore.open(Access(members.endpoints), "/leases/", LEASE_S)
    await store.start(Nobody(), switches, lambda: switches, lambda _: Status("", states[-1]))
    try:
        yield store
    finally:
        await store.stop()
        await store.close()


async def until_held(tenure: Tenure, held: bool = True) -> None:
    async with asyncio.timeout(WAIT_S):
        await tenure.becomes(held)


def test_numbers_grow_and_only_the_holder_gets_one(members: Members) -> None:
    async def run() -> None:
        async with controller(members, "s1") as one, controller(members) as other:
            tenure = one.tenure("s1")
            await until_held(tenure)
            numbers = [await tenure.bid() for _ in range(3)]
            # A number beyond any that the switch remembers.
            numbers.append(await tenure.bid(above=numbers[-1] + (7 << 64)))
            numbers.append(await tenure.bid())
            assert numbers == sorted(set(numbers))
            assert not other.tenure("s1").held
            with pytest.raises(NotHeldError):
                await other.tenure("s1").bid()
            with pytest.raises(FenceError, match="start it anew"):
                await tenure.bid(above=2**128 - 1)
        async with controller(members, "s1") as successor:
            await until_held(successor.tenure("s1"))
            assert await successor.tenure("s1").bid() > numbers[-1]

    asyncio.run(run())


def test_who_cannot_reach_etcd_stops_before_its_lease_can_end(members: Members) -> None:
    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            await asyncio.to_thread(members.kill, 0)
            # All renewals were requested before this time.
            last_s = lease_clock()
            ahead_s = 0.0
            store.leases._clock = lambda: last_s + ahead_s
            ahead_s = LEASE_S - MARGIN_S
            assert not tenure.held
            await until_held(tenure, False)
            with pytest.raises(NotHeldError):
                await tenure.bid()

    asyncio.run(run())


def test_a_lease_ends_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux's monotonic clock stands still then, and its boot-time clock goes on."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("not run: no CLOCK_BOOTTIME")
    suspended_s = 0.0
    gettime = time.clock_gettime

    def with_suspend(clock: int) -> float:
        return gettime(clock) + (suspended_s if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", with_suspend)
    client: Any = None
    leases = Leases(client, client, "/leases/", "one")
    leases._lease, leases._mine["s1"] = 7, 1
    leases._renewal.term = Term(7, leases._clock() + LEASE_S)
    assert leases.held("s1")
    suspended_s = LEASE_S + 1
    assert not leases.held("s1")


def test_a_busy_event_loop_keeps_its_lease(members: Members) -> None:
    """A thread renews it, and each write looks at the clock."""

    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            lease = store.leases._lease
            time.sleep(LEASE_S + 1)  # noqa: ASYNC251 (the loop is to stand still)
            assert tenure.held
            await asyncio.sleep(0)
            assert tenure.held
            assert store.leases._lease == lease == store.leases._renewal.term.lease
            await tenure.bid()

    asyncio.run(run())


def wakeups(thread: str) -> int:
    """Return how often a thread of this process has waited for something."""
    (native,) = [one.native_id for one in threading.enumerate() if one.name == thread]
    status = Path(f"/proc/self/task/{native}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_calls_of_the_controller_do_not_wake_the_thread_of_the_lease(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = 0
    renew = EtcdClient.keep_alive

    async def counted(client: EtcdClient, lease: int, timeout_s: float) -> int:
        nonlocal renewals
        renewals += 1
        return await renew(client, lease, timeout_s)

    async def run() -> None:
        async with controller(members, "s1") as store:
            await until_held(store.tenure("s1"))
            before = renewals, wakeups("lease")
            for _ in range(100):
                await asyncio.gather(*(store.probe() for _ in range(20)))
            made = renewals - before[0]
            assert wakeups("lease") - before[1] < 100 + 20 * made, f"{made} renewals"

    monkeypatch.setattr(EtcdClient, "keep_alive", counted)
    asyncio.run(run())


def test_an_event_loop_that_stands_still_gives_its_switches_up(members: Members) -> None:
    async def run() -> None:
        client = EtcdClient(Access(members.endpoints))
        now_s = 100.0
        renewal = Renewal(client, LEASE_S, lambda: now_s, lambda: None)
        await renewal._keep_once()
        term = renewal.term
        now_s += STUCK_S - 1
        await renewal._keep_once()
        assert renewal.term.until_s == term.until_s + STUCK_S - 1
        now_s += 2
        await renewal._keep_once()
        assert renewal.term.until_s < now_s + LEASE_S - MARGIN_S
        renewal.alive_s = now_s
        await renewal._keep_once()
        assert renewal.term.until_s == now_s + LEASE_S - MARGIN_S
        await client.close()

    asyncio.run(run())


def test_an_outage_of_etcd_is_two_lines_in_the_log(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal is tried ten times a second."""
    caplog.set_level(logging.INFO, logger="pacer_controller")

    async def run() -> None:
        client = EtcdClient(Access(["127.0.0.1:1"]))
        renewal = Renewal(client, LEASE_S, lambda: 100.0, lambda: None)
        renewal.term = Term(7, 100.0 + LEASE_S)
        for _ in range(3):
            await renewal._keep_once()
        await client.close()
        renewal._client = client = EtcdClient(Access(members.endpoints))
        await renewal._keep_once()
        await client.close()

    asyncio.run(run())
    first, *others = [
        text for text in caplog.messages if text.startswith("the renewal of the lease:")
    ]
    assert "127.0.0.1:1" in first
    assert "\n" not in first
    assert others == ["the renewal of the lease: etcd answers again, after 3 failures"]


def test_keys_under_a_former_lease_are_no_right_to_write(members: Members) -> None:
    """The thread has another lease before the event loop has noticed."""

    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            renewal = store.leases._renewal
            renewal.term = replace(renewal.term, lease=renewal.term.lease + 1)
            assert not tenure.held
            with pytest.raises(NotHeldError):
                await tenure.bid()

    asyncio.run(run())


def test_no_key_is_put_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay for ever. The lease ends between two transactions of one computation."""
    put: list[int] = []

    class Client:
        async def transact(self, _: Sequence[Any], asked: Sequence[Any]) -> Any:
            (one,) = asked
            put.append(one.request_txn.success[0].request_put.lease)
            leases._renewal.term = Term()
            leases._take_term()
            txn = SimpleNamespace(succeeded=True)
            header = SimpleNamespace(revision=5)
            return SimpleNamespace(header=header, responses=[SimpleNamespace(response_txn=txn)])

    client: Any = Client()
    leases = Leases(client, client, "/leases/", "one")
    leases.members["one"] = Member(frozenset({"s1", "s2"}))
    leases._managed = lambda: ("s1", "s2")
    leases._lease = 7
    leases._renewal.term = Term(7, leases._clock() + LEASE_S)
    monkeypatch.setattr(leases_module, "KEYS", 1)
    asyncio.run(leases._share_once())
    assert put == [7]
    assert not leases._mine


def test_a_lease_that_has_ended_is_begun_anew(members: Members) -> None:
    """As after a pause that was longer than the lease."""

    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            before = await tenure.bid()
            await store._client.revoke(store.leases._lease)
            await until_held(tenure, False)
            await until_held(tenure)
            assert await tenure.bid() > before

    asyncio.run(run())


def test_a_key_that_is_deleted_in_a_gap_of_the_watch_is_no_right_to_write(members: Members) -> None:
    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            before = await tenure.bid()
            await store.watch.stop()
            await store._client.transact([], [etcd.delete(f"{store._prefix}leases/s1")])
            assert tenure.held
            await store.mirror.load_again()
            assert not tenure.held
            await until_held(tenure)
            assert await tenure.bid() > before

    asyncio.run(run())


def test_a_late_put_does_not_stay(members: Members) -> None:
    """A member that was stopped makes a put long after it was given up."""

    async def run() -> None:
        late: dict[str, dict[str, Any]] = {
            "status/s1": {"controller": "", "state": "pending", "failed": {}, "base": 0},
            "members/": {"configured": ["s1"], "cannot": ["s1"]},
        }
        async with controller(members, "s1") as store, controller(members) as other:
            await until_held(store.tenure("s1"))
            name, prefix = store.leases.name, store._prefix
            told = Status(name, "connected")
            await until(lambda: other.status("s1") == told)
            late["status/s1"]["controller"] = name
            puts = [
                etcd.put(f"{prefix}{key}{name if key[-1] == '/' else ''}", json.dumps(value))
                for key, value in late.items()
            ]
            made = await store._client.transact([], puts)
            await other.watch.reach(made.header.revision)
            await until(lambda: other.status("s1") == told)
            await until(lambda: not other.leases.members[name].cannot)

    asyncio.run(run())


def test_a_leave_that_is_made_late_takes_no_switch(members: Members) -> None:
    """The controller has the switch again, and has put the key since."""

    async def run() -> None:
        async with controller(members, "s1") as store:
            tenure = store.tenure("s1")
            await until_held(tenure)
            with given_up(store._client, "leases/s1") as late:
                with pytest.raises(EtcdError):
                    await store.leases._leave(["s1"])
                assert not tenure.held
            await until_held(tenure)
            number = await tenure.bid()
            await store._client.transact(*late.pop())
            assert await tenure.bid() > number

    asyncio.run(run())


def test_a_bid_that_is_made_late_keeps_no_status_from_the_others(members: Members) -> None:
    states = ["connected"]

    async def run() -> None:
        async with (
            controller(members, "s1", states=states) as store,
            controller(members) as other,
        ):
            name, tenure = store.leases.name, store.tenure("s1")
            await until_held(tenure)
            await until(lambda: other.status("s1") == Status(name, "connected"))
            with given_up(store._client, "leases/s1") as late, pytest.raises(FenceError):
                await tenure.bid()
            assert (await store._client.transact(*late.pop())).succeeded
            states.append("reconciling")
            await until(lambda: other.status("s1") == Status(name, "reconciling"))

    asyncio.run(run())


def test_a_switch_that_does_not_answer_one_goes_to_the_other(members: Members) -> None:
    async def run() -> None:
        async with controller(members, "s1") as one, controller(members, "s1") as two:
            held = [asyncio.ensure_future(until_held(store.tenure("s1"))) for store in (one, two)]
            done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            waiting.pop().cancel()
            holder, other = (one, two) if held[0] in done else (two, one)
            number = await holder.tenure("s1").bid()
            holder.tenure("s1").reaches(False)
            await until_held(other.tenure("s1"))
            assert not holder.tenure("s1").held
            assert await other.tenure("s1").bid() > number

    asyncio.run(run())


def test_generations_are_in_the_order_of_fencing_numbers() -> None:
    fences = [7_000_000 << 64 | 5, 7_000_000 << 64 | 2**40, 7_000_001 << 64 | 1]
    generations = [generation_of(fence) for fence in fences]
    assert generations == sorted(set(generations))
    assert all(generation < 2**64 for generation in generations)
    for fence, generation in zip(fences, generations, strict=True):
        assert generation_of(fence_of(generation, fence)) == generation
        assert fence_of(generation, fence) >= fence


@pytest.mark.parametrize("epoch", [1, 7_000_000, 2**23 - 1, 2**23, 2**40, 2**61 + 5])
@pytest.mark.parametrize(
    "remembered", [0, 5, 7_000_000 << 41, 7_000_000 << 41 | 2**40, 2**63 + 1, 2**64 - 1]
)
def test_any_generation_that_a_bridge_remembers_is_outbid(epoch: int, remembered: int) -> None:
    """Among them those before and after an epoch that P4Runtime's election ids have raised."""
    revision = 1000
    fence = epoch << 64 | revision
    if distance(remembered, generation_of(fence)) > 0:
        return
    above = fence_of(remembered, fence)
    assert above >= fence
    raised = epoch_above(above) << 64 | revision + 1
    assert distance(remembered, generation_of(raised)) > 0


def distance(cached: int, generation: int) -> int:
    """Return how much newer an id is, as a bridge computes it (OpenFlow 1.3.5, 6.3.6)."""
    return (generation - cached + 2**63) % 2**64 - 2**63

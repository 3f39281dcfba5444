"""Many switches that several controllers share: who has which, and how often that changes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

from aetcd import rpc
from etcd import Cluster, Commit
from loop import Process, SimulatedLoop
from pacer_controller.stores.etcd.client import EtcdClient
from test_found import PREFIX, store

SWITCHES = [f"s{number}" for number in range(300)]
SETTLED_S = 60.0
LATE_S = 0.3
"""Time by which the watch tells later than an answer, as on a busy controller."""


def test_many_switches_come_to_rest(loop: SimulatedLoop, cluster: Cluster) -> None:
    """The watch tells of the keys later than the answers that this controller gets."""
    taken: Counter[str] = Counter()
    gone: Counter[str] = Counter()

    def observe(commit: Commit) -> None:
        for event in commit.events:
            name = event.kv.key.decode().removeprefix(f"{PREFIX}leases/")
            if name in SWITCHES:
                (gone if event.type == rpc.Event.DELETE else taken)[name] += 1

    cluster.observers.append(observe)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(store(cluster, SWITCHES)) for _ in range(3)]
            await asyncio.sleep(SETTLED_S)
            held = Counter(stores[0].leases.holders.values())
            assert sorted(held.values()) == [100, 100, 100]
            # Some move for balance, once, from the controller that was the first.
            assert set(taken) == set(SWITCHES)
            assert max(gone.values(), default=0) <= 1
            before = (taken.total(), gone.total())
            await asyncio.sleep(SETTLED_S)
            assert before == (taken.total(), gone.total())

    watch = EtcdClient.watch

    async def late(self: EtcdClient, prefix: str, start: int) -> AsyncIterator[Any]:
        async with contextlib.aclosing(watch(self, prefix, start)) as answers:
            async for answer in answers:
                await asyncio.sleep(LATE_S)
                yield answer

    with mock.patch.object(EtcdClient, "watch", late):
        loop.run_until_complete(Process(loop, loop.node("c0")).spawn(work()))

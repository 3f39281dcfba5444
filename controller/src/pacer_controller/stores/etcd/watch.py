"""The watch: it keeps the copy of etcd's keys up to date, and tells who waits for a revision."""

import asyncio
import contextlib
import logging

from aetcd import rpc

from pacer_controller.stores.base import StoreError
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import CompactedError, EtcdClient, EtcdError
from pacer_controller.stores.etcd.mirror import Mirror
from pacer_controller.stores.etcd.outage import Outage

_LOG = logging.getLogger(__name__)

REACH_S = 10.0
"""Longest wait for the watch to tell of a revision, in seconds."""

RETRY_S = 0.1


class Watch:
    """Follows the writes of all controllers.

    Args:
        client: the client of the etcd cluster.
        mirror: the copy that it keeps up to date.
        name: the name of the store in messages.

    """

    def __init__(self, client: EtcdClient, mirror: Mirror, name: str) -> None:
        self._client = client
        self._mirror = mirror
        self._name = name
        self._outage = Outage(_LOG, name)
        self._progress = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked: asyncio.Task[None] | None = None
        """The query for the newest write that is under way, and the next query."""

    def start(self) -> None:
        """Start to follow."""
        self._following = asyncio.create_task(self.follow(), name="etcd")

    async def stop(self) -> None:
        """Stop to follow, and end the queries."""
        tasks = [t for t in (self._following, self._asking, self._asked) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._following = None

    async def follow(self) -> None:
        """Follow the writes of all controllers without a gap, for ever."""
        mirror = self._mirror
        while True:
            try:
                watching = self._client.watch(mirror.prefix, mirror.seen + 1)
                async with contextlib.aclosing(watching) as answers:
                    async for answer in answers:
                        self._outage.over()
                        await mirror.take(answer)
                        if answer.events:
                            self._advance(answer.events[-1].kv.mod_revision)
            except CompactedError:
                await self._load_again()
            except (EtcdError, OSError) as error:
                self._outage.failed(error)
            except Exception:
                # The state in memory may differ from etcd's: read it again.
                _LOG.exception("%s: not understood", self._name)
                await self._load_again()
            await asyncio.sleep(RETRY_S)

    async def _load_again(self) -> None:
        try:
            await self._mirror.load_again()
        except (EtcdError, OSError, ValueError) as error:
            _LOG.error("%s: %s", self._name, error)
            return
        _LOG.warning("%s: read anew, after a gap", self._name)
        self._advance(self._mirror.seen)

    def _advance(self, revision: int) -> None:
        self._mirror.seen = max(self._mirror.seen, revision)
        self._progress.set()
        self._progress = asyncio.Event()

    async def reach(self, revision: int) -> None:
        """Wait until everything up to a revision is known.

        Raises:
            StoreError: the watch has not told of the revision within REACH_S.

        """
        try:
            if self._following is None:
                await self._mirror.load()
            async with asyncio.timeout(REACH_S):
                while self._mirror.seen < revision:
                    await self._progress.wait()
        except (TimeoutError, EtcdError, ValueError) as error:
            raise StoreError(f"{self._name}: {error or 'it does not tell of writes'}") from None

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
        prefix = f"{self._mirror.prefix}heads/"
        newest = {"sort_order": rpc.RangeRequest.DESCEND, "sort_target": rpc.RangeRequest.MOD}
        try:
            # Every write puts a head.
            answer = await self._client.range(
                prefix, etcd.after(prefix), limit=1, keys_only=True, **newest
            )
        except EtcdError as error:
            raise StoreError(f"{self._name}: {error}") from None
        if answer.kvs:
            await self.reach(answer.kvs[0].mod_revision)

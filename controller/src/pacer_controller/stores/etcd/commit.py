"""Makes the transaction of a write, and finds out whether it was made if etcd does not answer.

etcd may have made a write that it did not answer. A void write then moves head and shape, so that
the write cannot be made any longer, and the watch tells whether it was made before.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pacer_controller.stores.base import StaleError, StoreError, UncertainError
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import CompactedError, EtcdClient, EtcdError
from pacer_controller.stores.etcd.group_commit import Answer, GroupCommit, Transaction
from pacer_controller.stores.etcd.layout import Made, Plan
from pacer_controller.stores.etcd.mirror import Mirror
from pacer_controller.stores.etcd.operations import Operations
from pacer_controller.stores.etcd.watch import Watch

_LOG = logging.getLogger(__name__)

RESOLVE_S = 10.0
"""Longest time to find out whether a write was made, in seconds."""

RETRY_S = 0.1

UNKNOWN = 1 << 63
"""Stands for an unknown revision: higher than any revision."""


class Commit:
    """Makes the transactions of writes.

    Args:
        client: the client of the etcd cluster.
        mirror: the state known.
        watch: tells of writes.
        operations: makes the operations of writes.
        name: the name of the store in messages.

    """

    def __init__(
        self, client: EtcdClient, mirror: Mirror, watch: Watch, operations: Operations, name: str
    ) -> None:
        self._client = client
        self.group = GroupCommit(client)
        self._mirror = mirror
        self._watch = watch
        self._operations = operations
        self._name = name

    def check(self, plan: Plan) -> None:
        """Check that, as far as is known, the state that a write depends on is unchanged.

        Raises:
            StaleError: another controller has changed it.

        """
        for of, base in plan.bases.items():
            one = self._mirror.set(of)
            if (one.base if plan.whole else max(one.shape, one.generation[0])) > base:
                raise StaleError(f"{self._name}: revision {base} is not the newest")

    async def make(
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
        asked = [etcd.get(f"{self._mirror.prefix}root")]
        while True:
            # Others may have written while this write filled a generation or waited for `root`.
            # So check again, and compare with the state that is known now.
            self.check(plan)
            root = self._mirror.root
            data = {of: self._operations.data(of) for of in plan.sets}
            compared = [*self._operations.comparisons(plan), *also]
            events = len(plan.events)
            try:
                answer = await self.group.make(
                    Transaction(compared, operations, asked, changes, events)
                )
            except EtcdError as error:
                if error.certain:
                    raise StoreError(f"{self._name}: {error}") from None
                _LOG.warning("%s: asking what became of a write: %s", self._name, error)
                # If the write was made, `root` was as compared, and so were the generations.
                return await self._resolve(plan, waiting, data)
            if answer.succeeded:
                return self._made(plan, answer)
            newest = max(
                (kv.mod_revision for kv in answer.responses[0].response_range.kvs), default=0
            )
            if newest <= root:
                raise StaleError(f"{self._name}: another controller has written")
            # Other sets may have new generations; then this write can be made unchanged.
            await self._watch.reach(newest)

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
                raise StaleError(f"{self._name}: another controller has changed it")
        return Made(answer.revision, heads, stale)

    async def _resolve(
        self, plan: Plan, waiting: "asyncio.Future[int]", data: Mapping[str, str]
    ) -> Made:
        """Find out whether a write was made, prevent it otherwise, and return its outcome.

        Args:
            plan: the write.
            waiting: done when the watch tells of the write.
            data: the prefix of the keys that it puts, by set.

        Raises:
            StaleError: the write was not made and will not be; plan it again.
            UncertainError: the outcome cannot be found out.

        """
        operations, loads = self._operations, self._mirror.loads
        of, void = next(iter(plan.sets)), operations.new_name()
        moved = [*operations.heads(void, [of]), *operations.shapes(void, [of])]
        end_s = time.monotonic() + RESOLVE_S
        while time.monotonic() < end_s:
            try:
                if waiting.done():
                    return await self._made_at(plan, waiting.result(), data)
                kvs = (await self._client.range(f"{self._mirror.prefix}heads/{of}")).kvs
                if kvs and kvs[0].value.decode() == plan.name:
                    with contextlib.suppress(StoreError):
                        await self._watch.reach(kvs[0].mod_revision)
                    return await self._made_at(plan, kvs[0].mod_revision, data)
                # The write cannot be made after this: head and shape have moved.
                answer = await self._client.transact([], moved)
                await self._watch.reach(answer.header.revision)
            except CompactedError:
                # Which of its changes the write has made can no longer be read.
                break
            except EtcdError:
                await asyncio.sleep(RETRY_S)
                continue
            except StaleError:
                raise
            except StoreError:
                break
            if not waiting.done() and self._mirror.loads != loads:
                break
            if not waiting.done():
                raise StaleError(f"{self._name}: a write was not made")
        raise UncertainError(f"{self._name}: does not answer: the change may have been made")

    async def _made_at(self, plan: Plan, revision: int, data: Mapping[str, str]) -> Made:
        """Return the outcome of a write that was made at a revision.

        Raises:
            CompactedError: etcd no longer has that revision.
            EtcdError: etcd does not answer.
            StaleError: none of its changes was made.

        """
        # Whether others wrote just before is unknown. It is safe to assume that they did.
        heads = [UNKNOWN] * len(plan.sets)
        if plan.whole:
            return Made(revision, heads)
        ((of, values),) = plan.sets.items()
        asked = [etcd.get(data[of] + "/".join(key), revision) for key in values]
        answers = (await self._client.transact([], asked, again_s=etcd.AGAIN_S)).responses
        stale = set()
        for (key, value), one in zip(values.items(), answers, strict=True):
            found = [kv.mod_revision for kv in one.response_range.kvs]
            if found != ([] if value is None else [revision]):
                stale.add(key)
        if len(stale) == len(values):
            raise StaleError(f"{self._name}: another controller has changed it")
        return Made(revision, heads, frozenset(stale))

"""Transactions that are asked for at the same time, made as one.

A transaction of etcd costs a proposal, its part of a write to the log of each member, and two
messages, whatever it does. So one is under way at a time, and what is asked for meanwhile waits and
becomes the next: a transaction without comparisons, whose operations are the transactions that were
asked for. Each has comparisons of its own, and succeeds or fails on its own.

Where something waits, it begins no sooner than SPACING_S after the last one: what it costs is
shared by more changes then, in etcd and in every controller that is told of it. Who asks alone
waits for nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_controller.stores import etcd_client as etcd
from pacer_controller.stores.etcd_client import EtcdClient, EtcdError

OPERATIONS = 120
"""Most operations of a transaction, nested ones counted: etcd takes 128 (--max-txn-ops)."""

BYTES = 1 << 20
"""Most bytes of a transaction: etcd takes 1.5 MiB (--max-request-bytes)."""

SPACING_S = 0.02
"""Shortest time between two transactions, where the second waits for the first."""

EVENTS = 1_000
"""Most events of one revision."""


@dataclass(frozen=True)
class Transaction:
    """What is asked for.

    Attributes:
        compare: what must hold.
        success: returns what is done then, by how many events are before those of this one.
        failure: what is done otherwise.
        changes: the keys that it puts, or names for them: no other of the same revision may.
        events: how many it has.

    """

    compare: Sequence[Any]
    success: Callable[[int], Sequence[Any]]
    failure: Sequence[Any] = ()
    changes: Collection[str] = ()
    events: int = 0


@dataclass(frozen=True)
class Answer:
    """What became of it.

    Attributes:
        succeeded: whether the comparisons held.
        revision: of etcd by then.
        responses: to the operations.

    """

    succeeded: bool
    revision: int
    responses: Sequence[Any]


_Group = list[tuple[Transaction, "asyncio.Future[Answer]"]]
"""Transactions, and where their answers are waited for."""


class GroupCommit:
    """Makes transactions.

    Args:
        client: of the cluster.

    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._waiting: deque[tuple[Transaction, asyncio.Future[Answer]]] = deque()
        self._making: asyncio.Task[None] | None = None

    async def make(self, asked: Transaction) -> Answer:
        """Make a transaction; returns what became of it.

        Raises:
            EtcdError: no answer, or a refusal.

        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._making is None:
            self._making = asyncio.create_task(self._make_all(), name="etcd: commit")
        return await future

    async def _make_all(self) -> None:
        """Make what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                begun_s = loop.time()
                group, request = self._gather()
                await self._make(group, request)
                if self._waiting:
                    await asyncio.sleep(begun_s + SPACING_S - loop.time())
        finally:
            self._making = None
            # Only if this was cancelled does any wait.
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    def _gather(self) -> tuple[_Group, list[Any]]:
        """Take what waits and fits into one transaction; returns it, and its operations."""
        group: _Group = []
        nested: list[Any] = []
        changes: set[str] = set()
        size = events = longest = 0
        while self._waiting:
            asked, future = self._waiting[0]
            one = etcd.nested(asked.compare, asked.success(events), asked.failure)
            # A nested one has two operations.
            length = max(len(asked.compare), len(one.request_txn.success) + 2)
            fits = (
                # etcd counts the longest list of each level.
                len(group) + 1 + max(longest, length) <= OPERATIONS
                and size + one.ByteSize() <= BYTES
                and events + asked.events <= EVENTS
                and changes.isdisjoint(asked.changes)
            )
            if group and not fits:
                break
            self._waiting.popleft()
            if future.done():
                # Nobody waits for it any longer, and nothing has been sent.
                continue
            group.append((asked, future))
            nested.append(one)
            changes.update(asked.changes)
            size, events = size + one.ByteSize(), events + asked.events
            longest = max(longest, length)
        return group, nested

    async def _make(self, group: _Group, nested: Sequence[Any]) -> None:
        """Make a group, or each of it alone where etcd refuses the group."""
        if not group:
            return
        try:
            said, answers = await self._ask(nested)
        except EtcdError as error:
            if not error.certain or len(group) == 1:
                _fail(group, error)
                return
            for one, operation in zip(group, nested, strict=True):
                await self._make([one], [operation])
        except asyncio.CancelledError:
            for _, future in group:
                future.cancel()
            raise
        except Exception as error:
            # Whatever was wrong with these, others wait.
            _fail(group, error)
        else:
            for (_, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    revision = int(said.header.revision)
                    future.set_result(Answer(answer.succeeded, revision, answer.responses))

    async def _ask(self, nested: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Ask etcd for transactions; returns its answer, and that to each of them."""
        if len(nested) == 1:
            only = nested[0].request_txn
            said = await self._client.transact(only.compare, only.success, only.failure)
            return said, [said]
        said = await self._client.transact([], nested)
        return said, [one.response_txn for one in said.responses]


def _fail(group: _Group, error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)

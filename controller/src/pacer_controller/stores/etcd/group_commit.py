"""Group commit: concurrent requests for transactions are combined into one transaction of etcd.

A transaction of etcd has a fixed cost: a proposal, a share of a write to the log of each member,
and two messages. So only one transaction is under way at a time. Requests that arrive meanwhile
wait, and become the next one: a transaction without comparisons, whose operations are the requested
transactions. Each of these has its own comparisons, and succeeds or fails on its own.

A combined transaction begins SPACING_S after the previous one at the earliest, so that more changes
share its cost, in etcd and in every controller that is told of it. A request that finds no
transaction under way does not wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError

OPERATIONS = 120
"""Most operations of a combined transaction: etcd takes 128 at each level (--max-txn-ops)."""

BYTES = 1 << 20
"""Most bytes of a transaction: etcd takes 1.5 MiB (--max-request-bytes)."""

SPACING_S = 0.02
"""Shortest time between the starts of two transactions, if the second waits for the first."""

EVENTS = 1_000
"""Most events of one revision."""


@dataclass(frozen=True)
class Transaction:
    """A requested transaction.

    Attributes:
        compare: the comparisons that must hold.
        success: returns the operations if they hold. Its argument is the number of events of the
            same revision that precede the events of this transaction.
        failure: the operations if they do not hold.
        changes: the keys that it puts, or names for them. No other transaction of the same revision
            may put them.
        events: the number of its events.

    """

    compare: Sequence[Any]
    success: Callable[[int], Sequence[Any]]
    failure: Sequence[Any] = ()
    changes: Collection[str] = ()
    events: int = 0


@dataclass(frozen=True)
class Answer:
    """The outcome of a requested transaction.

    Attributes:
        succeeded: whether the comparisons held.
        revision: the revision of etcd after it.
        responses: the responses to its operations.

    """

    succeeded: bool
    revision: int
    responses: Sequence[Any]


_Group = list[tuple[Transaction, "asyncio.Future[Answer]"]]
"""Requested transactions, each with the future of its answer."""


class GroupCommit:
    """The queue of requested transactions, and the task that makes them.

    Args:
        client: the client of the etcd cluster.

    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._waiting: deque[tuple[Transaction, asyncio.Future[Answer]]] = deque()
        self._making: asyncio.Task[None] | None = None

    async def make(self, asked: Transaction) -> Answer:
        """Make a transaction, and return its outcome.

        Raises:
            EtcdError: etcd does not answer, or refuses the transaction.

        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._making is None:
            self._making = asyncio.create_task(self._make_all(), name="etcd: commit")
        return await future

    async def _make_all(self) -> None:
        """Make the waiting transactions, until none waits."""
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
            # Some still wait only if this task was cancelled.
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    def _gather(self) -> tuple[_Group, list[Any]]:
        """Take the waiting transactions that fit into one; return them, and its operations."""
        group: _Group = []
        nested: list[Any] = []
        changes: set[str] = set()
        size = events = longest = 0
        while self._waiting:
            asked, future = self._waiting[0]
            try:
                one = etcd.nested(asked.compare, asked.success(events), asked.failure)
            except Exception as error:
                # The error belongs to this caller only.
                self._waiting.popleft()
                _fail([(asked, future)], error)
                continue
            # A nested transaction counts as two operations.
            length = max(len(asked.compare), len(one.request_txn.success) + 2)
            fits = (
                # etcd counts the longest list at each level.
                len(group) + 1 + max(longest, length) <= OPERATIONS
                and size + one.ByteSize() <= BYTES
                and events + asked.events <= EVENTS
                and changes.isdisjoint(asked.changes)
            )
            if group and not fits:
                break
            self._waiting.popleft()
            if future.done():
                # The caller has given up, and nothing has been sent.
                continue
            group.append((asked, future))
            nested.append(one)
            changes.update(asked.changes)
            size, events = size + one.ByteSize(), events + asked.events
            longest = max(longest, length)
        return group, nested

    async def _make(self, group: _Group, nested: Sequence[Any]) -> None:
        """Make a group as one transaction; if etcd refuses it, make each member alone."""
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
            # The error belongs to these callers only; the task goes on for the others.
            _fail(group, error)
        else:
            for (_, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    revision = int(said.header.revision)
                    future.set_result(Answer(answer.succeeded, revision, answer.responses))

    async def _ask(self, nested: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Send transactions to etcd; return its answer, and the answer to each of them."""
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

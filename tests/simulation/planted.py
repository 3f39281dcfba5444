"""Faults planted in the product on purpose: the simulation must find each of them."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from pacer_controller.openvswitch import switch
from pacer_controller.openvswitch.ovsdb import Database
from pacer_controller.p4rt import session
from pacer_controller.stores import SqliteStore, UncertainError
from pacer_controller.stores.etcd import client as etcd_client
from pacer_controller.stores.etcd.client import EtcdClient
from pacer_controller.stores.etcd.commit import Commit
from pacer_controller.stores.etcd.layout import Made
from pacer_controller.stores.etcd.leases import Leases
from pacer_controller.stores.etcd.operations import Operations


@contextlib.contextmanager
def drop_compare() -> Iterator[None]:
    """Write even if another controller has written meanwhile."""
    not_since = etcd_client.not_since

    def always(key: str, _: int, end: str = "") -> Any:
        return not_since(key, 1 << 60, end)

    with (
        mock.patch.object(Operations, "comparisons", return_value=[]),
        mock.patch.object(etcd_client, "not_since", always),
    ):
        yield


@contextlib.contextmanager
def acknowledge_early() -> Iterator[None]:
    """Acknowledge a write before etcd has answered."""

    async def resolve(self: Any, plan: Any, _waiting: Any, _data: Any) -> Made:
        head = self._mirror.set(next(iter(plan.sets))).head
        return Made(head + 1, [head] * len(plan.sets))

    with mock.patch.object(Commit, "_resolve", resolve):
        yield


@contextlib.contextmanager
def reuse_id() -> Iterator[None]:
    """Count election ids in each controller, above its switch's highest, not in etcd."""
    bid: Any = Leases.bid

    async def counted(self: Any, switch: str, above: int) -> int:
        await bid(self, switch, 0)
        last: dict[str, int] = self.__dict__.setdefault("planted", {})
        last[switch] = max(last.get(switch, 0), above & (2**64 - 1)) + 1
        return int(self.epoch[0] << 64 | last[switch])

    with mock.patch.object(Leases, "bid", counted):
        yield


@contextlib.contextmanager
def forget_gap() -> Iterator[None]:
    """Restart a watch from now on, not from the end of the last one."""
    watch: Any = EtcdClient.watch

    async def from_now(self: Any, prefix: str, start: int) -> AsyncIterator[Any]:
        begun = self.__dict__.get("planted", False)
        self.planted = True
        async with contextlib.aclosing(watch(self, prefix, 0 if begun else start)) as answers:
            async for answer in answers:
                yield answer

    with mock.patch.object(EtcdClient, "watch", from_now):
        yield


@contextlib.contextmanager
def skip_lease_time() -> Iterator[None]:
    """Write to a switch after its lease has ended, until etcd names another holder.

    Nor does the controller probe its switches: a probe without an answer ends the connection before
    the lease.
    """
    with (
        mock.patch.object(Leases, "held", lambda self, switch: switch in self._mine),
        mock.patch.object(session, "_keepalive", return_value=[]),
    ):
        yield


@contextlib.contextmanager
def trust_answers() -> Iterator[None]:
    """Take the last value that was put and answered for the present one, as if none came late."""
    with mock.patch.object(Leases, "_note_moved"):
        yield


@contextlib.contextmanager
def skip_sync() -> Iterator[None]:
    """Acknowledge a write before the disk has it."""
    connect = sqlite3.connect

    class Careless(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            statement = statement.replace("synchronous = FULL", "synchronous = OFF")
            return super().execute(statement, *values)

    with mock.patch.object(sqlite3, "connect", partial(connect, factory=Careless)):
        yield


@contextlib.contextmanager
def acknowledge_failed() -> Iterator[None]:
    """Acknowledge a write whose commit has failed."""
    transaction: Any = SqliteStore._transaction

    @contextlib.contextmanager
    def quiet(self: SqliteStore) -> Iterator[None]:
        with contextlib.suppress(UncertainError), transaction(self):
            yield

    with mock.patch.object(SqliteStore, "_transaction", quiet):
        yield


@contextlib.contextmanager
def forget_bids() -> Iterator[None]:
    """Count fencing numbers in memory, from the file's number at the start."""

    async def counted(self: Any, _: int) -> int:
        self._bids += 1
        return int(self._epoch << 64 | self._bids)

    with mock.patch.object(SqliteStore, "bid", counted):
        yield


@contextlib.contextmanager
def skip_lock() -> Iterator[None]:
    """Write to a bridge's database without a check of lease, lock and fencing number."""

    def unguarded(self: Any, operations: Any) -> Any:
        kept = [one for one in operations if one["op"] not in ("assert", "wait")]
        return [{}] * (len(operations) - len(kept)) + self._transact(kept)

    with mock.patch.object(Database, "_write", unguarded):
        yield


@contextlib.contextmanager
def skip_right() -> Iterator[None]:
    """Write to a bridge's database without a look at the lease: lock and number decide alone."""
    with mock.patch.object(Database, "_write", Database._transact):
        yield


@contextlib.contextmanager
def reuse_generation() -> Iterator[None]:
    """Use the same generation id for all controllers."""
    with mock.patch.object(switch, "generation_of", return_value=1):
        yield


@dataclass(frozen=True)
class Plant:
    """A planted fault.

    Attributes:
        scene: name of the scene in which it is found.
        planted: returns a context that has the fault in the product.

    """

    scene: str
    planted: Callable[[], AbstractContextManager[object]]


PLANTS = {
    "drop-compare": Plant("etcd", drop_compare),
    "acknowledge-early": Plant("etcd", acknowledge_early),
    "reuse-id": Plant("etcd", reuse_id),
    "forget-gap": Plant("etcd", forget_gap),
    "skip-lease-time": Plant("etcd", skip_lease_time),
    "trust-answers": Plant("etcd", trust_answers),
    "skip-sync": Plant("sqlite", skip_sync),
    "acknowledge-failed": Plant("sqlite", acknowledge_failed),
    "forget-bids": Plant("sqlite", forget_bids),
    "skip-lock": Plant("bridges", skip_lock),
    "skip-right": Plant("bridges", skip_right),
    "reuse-generation": Plant("bridges", reuse_generation),
}
"""The planted faults, by name."""

"""Faults planted in the product on purpose: the simulation must find each of them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from pacer_controller.stores import etcd_client
from pacer_controller.stores.etcd import EtcdStore
from pacer_controller.stores.etcd_client import EtcdClient
from pacer_controller.stores.etcd_layout import Made
from pacer_controller.stores.leases import Leases


@contextlib.contextmanager
def drop_compare() -> Iterator[None]:
    """Write even if others have written meanwhile."""
    not_since = etcd_client.not_since

    def always(key: str, _: int, end: str = "") -> Any:
        return not_since(key, 1 << 60, end)

    with (
        mock.patch.object(EtcdStore, "_comparisons", return_value=[]),
        mock.patch.object(etcd_client, "not_since", always),
    ):
        yield


@contextlib.contextmanager
def acknowledge_early() -> Iterator[None]:
    """Take a write for made that etcd has not answered."""

    async def resolve(self: Any, plan: Any, _: Any) -> Made:
        head = self._set(next(iter(plan.sets))).head
        return Made(head + 1, [head] * len(plan.sets))

    with mock.patch.object(EtcdStore, "_resolve", resolve):
        yield


@contextlib.contextmanager
def reuse_id() -> Iterator[None]:
    """Count election ids in each controller, above what its switch remembers, not in etcd."""
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
    """Write to a switch while etcd has not said that another drives it, however old that is."""
    with mock.patch.object(Leases, "held", lambda self, switch: switch in self._mine):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "drop-compare": drop_compare,
    "acknowledge-early": acknowledge_early,
    "reuse-id": reuse_id,
    "forget-gap": forget_gap,
    "skip-lease-time": skip_lease_time,
}
"""By name."""

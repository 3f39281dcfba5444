"""Writes that are too large for one transaction: they are written as new generations of their sets.

No controller reads the new generations before a transaction puts their names into `root`. The
marker `sweep/WRITE` names the generations that are to be deleted: first the new ones, in case the
controller ends before that transaction, then the former ones.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pacer_controller.stores.base import StoreError, UncertainError, Written
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
from pacer_controller.stores.etcd.commit import Commit
from pacer_controller.stores.etcd.layout import Plan, Values, encode, with_revision
from pacer_controller.stores.etcd.leases import Leases
from pacer_controller.stores.etcd.mirror import Mirror
from pacer_controller.stores.etcd.operations import Operations, batches
from pacer_controller.stores.etcd.watch import Watch

_LOG = logging.getLogger(__name__)

FILLS = 4
"""Most transactions that fill a new generation at the same time."""

SWEEP_AFTER_S = 10.0
"""Time from the start until generations left by other controllers are deleted, in seconds.

All controllers that run are known by then.
"""

Background = Callable[[Coroutine[Any, Any, None]], None]
"""Runs work whose end nobody waits for."""


class Generations:
    """Makes large writes.

    Args:
        client: the client of the etcd cluster.
        mirror: the state known.
        watch: tells of writes.
        operations: makes the operations of writes.
        commit: makes transactions.
        leases: the controllers that run.
        background: runs the deletion of former generations.
        name: the name of the store in messages.

    """

    def __init__(
        self,
        client: EtcdClient,
        mirror: Mirror,
        watch: Watch,
        operations: Operations,
        commit: Commit,
        leases: Leases,
        background: Background,
        name: str,
    ) -> None:
        self._client = client
        self._mirror = mirror
        self._prefix = mirror.prefix
        self._watch = watch
        self._operations = operations
        self._commit = commit
        self._leases = leases
        self._background = background
        self._name = name

    async def make(self, plan: Plan, waiting: "asyncio.Future[int]") -> Written:
        """Make a write as new generations of its sets.

        Args:
            plan: the write, which is made as a whole.
            waiting: done when the watch tells of the write.

        Raises:
            StoreError: see `base.Store.write`.

        """
        mirror = self._mirror
        # The copies must be complete, and only the watch brings the values of own writes.
        await self._watch.reach(max(mirror.set(of).head for of in plan.sets))
        marker = f"{self._prefix}sweep/{plan.name}"
        prefixes: dict[str, str] = {of: f"{self._prefix}data/{of}/{plan.name}/" for of in plan.sets}
        new = list(prefixes.values())
        former = [self._operations.data(of) for of in plan.sets]
        number = 0
        try:
            mine = json.dumps({"member": self._leases.name, "prefixes": new})
            answer = await self._client.transact([], [etcd.put(marker, mine)])
            # The number is higher than any revision that a client has seen of these sets, and
            # unique.
            number = int(answer.header.revision)
            filled = await self.fill(plan, prefixes, marker, number)
        except EtcdError as error:
            # Without a number, nothing has been filled.
            self._background(
                self._abandon(marker, number, new) if number else self._sweep(marker, ())
            )
            raise StoreError(f"{self._name}: {error}") from None
        rest = json.dumps({"member": "", "prefixes": former})
        first = next(iter(plan.sets))

        def rooted(before: int) -> list[Any]:
            root = {of: one.generation for of, one in mirror.sets.items() if one.generation[0]}
            root |= dict.fromkeys(plan.sets, (number, plan.name))
            return [
                # `root` precedes the head, so that a watch learns of the generations first.
                etcd.put(f"{self._prefix}root", json.dumps(root)),
                etcd.put(marker, rest),
                *self._operations.events(plan.name, plan.events, before),
                # If there is no answer, this one head tells whether the write was made.
                *self._operations.heads(plan.name, [first]),
            ]

        try:
            # A controller that sweeps abandoned generations changes the marker first.
            whole = [etcd.unchanged(marker, number)]
            revision = (await self._commit.make(plan, rooted, waiting, whole)).revision
        except UncertainError:
            raise
        except StoreError:
            self._background(self._abandon(marker, number, new))
            raise
        # The heads were compared, so no other controller has written to these sets.
        mirror.root = max(mirror.root, revision)
        for of, values in filled.items():
            one = mirror.set(of)
            # The watch may already have told of this write, and of later ones.
            if one.generation[0] < number:
                one.generation, one.values = (number, plan.name), values
            one.known = max(one.known, revision)
        mirror.set(first).head = max(mirror.set(first).head, revision)
        self._background(self._sweep(marker, former))
        return Written(number, dict.fromkeys(plan.sets, number) | {first: revision})

    async def fill(
        self, plan: Plan, prefixes: Mapping[str, str], marker: str, number: int
    ) -> dict[str, Values]:
        """Write the new generations, which are not in `root` yet, and return their values.

        Args:
            plan: the write.
            prefixes: the prefixes of the keys of the new generations, by set.
            marker: the key that names the new generations.
            number: the revision of that key. If it has another one, nothing is written: the
                generations are being deleted, or a transaction is made late, after that.

        Raises:
            EtcdError: etcd does not answer, or the generations are being deleted.

        """
        filled: dict[str, Values] = {}
        operations: list[Any] = []
        for of, values in plan.sets.items():
            kept = {} if of in plan.gone else dict(self._mirror.set(of).values)
            for key, value in values.items():
                kept.pop(key, None)
                if value is not None and of not in plan.gone:
                    kept[key] = value
            filled[of] = {key: with_revision(*one, number) for key, one in kept.items()}
            for (kind, name), one in filled[of].items():
                operations.append(etcd.put(f"{prefixes[of]}{kind}/{name}", encode(*one)))
        made = batches(operations)
        for start in range(0, len(made), FILLS):
            some = (
                self._client.transact([etcd.unchanged(marker, number)], one)
                for one in made[start : start + FILLS]
            )
            # All calls must end before the caller may sweep the generations.
            answers = await asyncio.gather(*some, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
                if not answer.succeeded:
                    raise EtcdError("another controller deletes the generation", certain=True)
        return filled

    async def _abandon(self, marker: str, revision: int, prefixes: Sequence[str]) -> None:
        """Delete new generations that are not in `root`, unless another controller does.

        Changing their marker first prevents that they are filled, or put into `root`, any longer.
        """
        left = json.dumps({"member": "", "prefixes": prefixes})
        unchanged = [etcd.unchanged(marker, revision)]
        try:
            answer = await self._client.transact(unchanged, [etcd.put(marker, left)])
        except EtcdError as error:
            _LOG.warning("%s: new generations stay for now: %s", self._name, error)
            return
        if answer.succeeded:
            await self._sweep(marker, prefixes)

    async def _sweep(self, marker: str, prefixes: Sequence[str]) -> None:
        """Delete generations that are no longer in use, then their marker."""
        try:
            for prefix in prefixes:
                await self._client.transact([], [etcd.delete(prefix, etcd.after(prefix))])
            await self._client.transact([], [etcd.delete(marker)])
        except EtcdError as error:
            _LOG.warning("%s: old generations stay for now: %s", self._name, error)

    async def sweep_all(self) -> None:
        """Delete the generations that controllers which have ended left behind.

        A controller that only seems to have ended cannot use its new generations any longer.
        """
        await asyncio.sleep(SWEEP_AFTER_S)
        with contextlib.suppress(EtcdError):
            kvs, _ = await self._mirror.range_all(f"{self._prefix}sweep/")
            for kv in kvs:
                value, marker = json.loads(kv.value), kv.key.decode()
                if value["member"] not in self._leases.members:
                    await self._abandon(marker, kv.mod_revision, value["prefixes"])

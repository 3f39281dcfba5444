"""The comparisons and operations of a write, from the state known at the time."""

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from pacer_controller.stores.base import Event
from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.group_commit import BYTES, OPERATIONS
from pacer_controller.stores.etcd.layout import Plan, encode
from pacer_controller.stores.etcd.mirror import Mirror


def batches(operations: Iterable[Any]) -> list[list[Any]]:
    """Return operations in lists, each of which fits into one transaction."""
    made: list[list[Any]] = []
    size = 0
    for operation in operations:
        if not made or len(made[-1]) == OPERATIONS or size + operation.ByteSize() > BYTES:
            made.append([])
            size = 0
        made[-1].append(operation)
        size += operation.ByteSize()
    return made


class Operations:
    """Makes the comparisons and operations of writes.

    Args:
        mirror: the state known.
        controller: the name of the controller; unique.

    """

    def __init__(self, mirror: Mirror, controller: str) -> None:
        self._mirror = mirror
        self._prefix = mirror.prefix
        self._controller = controller
        self._counter = itertools.count(1)

    def new_name(self) -> str:
        """Return a name for a write; unique."""
        return f"{self._controller}-{next(self._counter)}"

    def fit(self, plan: Plan) -> bool:
        """Whether a write fits into one transaction."""
        count = sum(map(len, plan.sets.values())) + 2 * len(plan.sets) + 1
        # The count comes first, so that the operations of a write with too many are not made.
        return (
            count <= OPERATIONS and sum(one.ByteSize() for one in self.together(plan, 0)) <= BYTES
        )

    def together(self, plan: Plan, before: int) -> list[Any]:
        """Return the operations of a write that is made as a whole; those of the heads come first.

        Args:
            plan: the write.
            before: the number of events of the same revision that precede its own.

        """
        made = [*self.heads(plan.name, plan.sets), *self.shapes(plan.name, plan.shaped)]
        for of, values in plan.sets.items():
            if of in plan.gone:
                prefix = self.data(of)
                made.append(etcd.delete(prefix, etcd.after(prefix)))
                continue
            made += [self._operation(of, key, value) for key, value in values.items()]
        return [*made, *self.events(plan.name, plan.events, before)]

    def each(self, plan: Plan, before: int) -> list[Any]:
        """Return the operations of a write that makes each change on its own (`together`)."""
        ((of, values),) = plan.sets.items()
        one, base = self._mirror.set(of), plan.bases[of]
        made = [*self.heads(plan.name, plan.sets), *self.shapes(plan.name, plan.shaped)]
        for number, (key, value) in enumerate(values.items()):
            # Compare with the newest known revision. If the resource has changed since the plan,
            # compare with revision 0, so that the change is not made.
            known = max(self._mirror.seen, one.known)
            if key in one.values and one.values[key][1] > base:
                known = 0
            compared = [etcd.not_since(f"{self.data(of)}{'/'.join(key)}", known)]
            said = plan.events[number : number + 1]
            done = self.events(plan.name, said, before + number)
            made.append(etcd.nested(compared, [self._operation(of, key, value), *done], []))
        return made

    def comparisons(self, plan: Plan) -> list[Any]:
        """Return the comparisons of a write: of `root`, and of everything that it depends on."""
        mirror = self._mirror
        compared = [etcd.unchanged(f"{self._prefix}root", mirror.root)]
        heads = f"{self._prefix}heads/"
        if plan.whole and len(plan.bases) < OPERATIONS:
            return compared + [
                etcd.unchanged(f"{heads}{of}", mirror.set(of).head) for of in plan.bases
            ]
        if plan.whole:
            # There are too many heads to compare: no head may be newer than the newest known one.
            newest = max(one.head for one in mirror.sets.values())
            return [*compared, etcd.not_since(heads, newest, etcd.after(heads))]
        # The writer has found that the known shapes are those that the write was planned on.
        return compared + [
            etcd.not_since(f"{self._prefix}shapes/{of}", max(mirror.seen, mirror.set(of).known))
            for of in plan.sets
        ]

    def data(self, of: str) -> str:
        """Return the prefix of the keys of a set's values."""
        return f"{self._prefix}data/{of}/{self._mirror.set(of).generation[1]}/"

    def _operation(self, of: str, key: tuple[str, str], value: tuple[Any, int] | None) -> Any:
        where = self.data(of) + "/".join(key)
        return etcd.delete(where) if value is None else etcd.put(where, encode(*value))

    def heads(self, name: str, sets: Iterable[str]) -> list[Any]:
        """Return the operations that move heads; their answers have the previous values."""
        return [etcd.put(f"{self._prefix}heads/{of}", name, former=True) for of in sets]

    def shapes(self, name: str, sets: Iterable[str]) -> list[Any]:
        """Return the operations that move shapes."""
        return [etcd.put(f"{self._prefix}shapes/{of}", name) for of in sets]

    def events(self, name: str, events: Sequence[Event], before: int) -> list[Any]:
        """Return the operation that puts events after `before` others of the same revision."""
        if not events:
            return []
        # The wall-clock time decides only the order of removal.
        key = f"{self._prefix}events/{time.time_ns():020d}-{name}+{before}"
        return [etcd.put(key, json.dumps([dict(one) for one in events]))]

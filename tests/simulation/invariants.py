"""The invariants of every run, with any faults.

The truth is the order of all writes (`truth.py`). The answers to clients, the writes to switches,
and the controllers' state are checked against it.
"""

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import finsy as fy
from bridge import Bridge, modifies, transacts
from etcd import Commit
from finsy import p4entity
from finsy.proto import p4r
from loop import Process
from pacer_controller import entries
from pacer_controller.records import index_of
from pacer_controller.rows import PORTS, Row
from truth import EtcdTruth, FileTruth, Truth, Version
from world import CANCELLED, PREFIX, STATE, Controller, Key, Operation, World

from switch import Accepted, Switch

_MEMORY = 3
"""Violations that are kept of one kind."""

_WRITES = ("/Write", "/SetForwardingPipelineConfig", "/SetPort")

END_MOST_S = 5.0
"""Longest time that a controller runs with a broken disk."""

_STATIONS = (entries.FORWARD, entries.SOURCES)


@dataclass(frozen=True)
class Violation:
    """A violation of an invariant.

    Attributes:
        rule: the name of the invariant, in one word.
        text: a description of the violation.

    """

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Invariants:
    """Watches a world.

    Args:
        world: the world of the run.

    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.found: list[Violation] = []
        self.truth: Truth
        if world.cluster is not None:
            etcd = self.truth = EtcdTruth(self.broken)
            world.cluster.observers.append(lambda commit: self._commit(etcd, commit))
        else:
            self.truth = FileTruth(self.broken, world.loop)
        self._reads: dict[tuple[str, Process, Key], int] = {}
        """Newest version that a client has seen at a controller, by place in the history."""
        self._checked: dict[tuple[str, int], int] = {}
        self._broken_since_s: dict[Controller, float] = {}
        self._refuses = any(fault.kind == "refuse" for fault in world.faults)
        world.core.asked = self._asked
        world.answered = self._answered

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Watch the stores while the block runs."""
        if isinstance(self.truth, FileTruth):
            (node,) = (one.node for one in self._world.controllers)
            disk = node.disk
            assert disk is not None
            with self.truth.observing(lambda: [one for one in disk.unsynced() if one != STATE]):
                yield
        else:
            yield

    def broken(self, rule: str, text: str) -> None:
        """Note a violation."""
        if sum(one.rule == rule for one in self.found) < _MEMORY:
            violation = Violation(rule, f"at {self._world.loop.now_s:.6f} s: {text}")
            self.found.append(violation)
            self._world.loop.note(f"VIOLATION {violation}")

    # ---- after each step ----

    def _commit(self, truth: EtcdTruth, commit: Commit) -> None:
        truth.take(commit)
        self._check_switches()

    def _check_switches(self) -> None:
        """At most one writer, in the order of election ids, and no id of two controllers."""
        for switch in self._world.switches:
            for number, history in enumerate(switch.histories):
                self._check_writers(switch.name, number, history)
            for bid, one, other in switch.stolen[:1]:
                self.broken("id-reused", f"{switch.name}: {one} and {other} bid {bid:#x}")
            if isinstance(switch, Bridge):
                for text in switch.wrong[:1]:
                    self.broken("one-writer", f"{switch.name}: {text}")

    def _check_writers(self, switch: str, number: int, history: Sequence[Accepted]) -> None:
        done = self._checked.get((switch, number), 0)
        for before, after in zip(
            history[max(0, done - 1) :], history[max(1, done) :], strict=False
        ):
            if before.life == after.life and after.election_id < before.election_id:
                self.broken(
                    "one-writer",
                    f"{switch} took {after.method} of {after.controller} with "
                    f"{after.election_id:#x} after {before.election_id:#x}",
                )
            same = after.election_id == before.election_id
            if same and before.controller is not after.controller:
                self.broken("one-writer", f"{switch} has two writers with {after.election_id:#x}")
        self._checked[switch, number] = len(history)

    def sent(self, process: Process, switch: str, data: bytes) -> None:
        """Check what a controller sends to a bridge."""
        if (modifies(data) or transacts(data)) and process in self._world.names:
            self._asked(process, f"{switch}:", "/Write", "")

    def _asked(self, process: Process, target: str, method: str, _: str) -> None:
        """A controller writes to a switch only while it holds the switch's lease."""
        if not method.endswith(_WRITES) or self._world.cluster is None:
            return
        switch = target.partition(":")[0]
        holder = self._world.holder(switch)
        name = self._world.names[process]
        if holder != name:
            self.broken(
                "fenced",
                f"{process} ({name}) writes to {switch} by {method.rpartition('/')[2]}, whose "
                f"lease {holder or 'nobody'} has",
            )

    def _answered(self, operation: Operation) -> None:
        """Check that an answer is true, and not older than an earlier answer."""
        self._check_switches()
        if operation.method == "GET":
            if operation.outcome in (200, 404):
                self._check_read(operation)
        elif operation.outcome in (200, 201, 204):
            self._check_acknowledged(operation)

    def _check_acknowledged(self, operation: Operation) -> None:
        if operation.whole:
            self._check_whole(operation)
        elif operation.key[1] != "switch":
            self._check_single(operation)

    def _check_single(self, operation: Operation) -> None:
        wanted = operation.tokens.get(operation.key)
        for place, version in enumerate(self.truth.versions[operation.key]):
            within = operation.asked_s <= version.at_s <= operation.answered_s
            if wanted is not None:
                made = version.token == wanted and version.revision == operation.revision
            else:
                made = version.spec is None and within
            if made:
                if not within:
                    self.broken("order", f"made at {version.at_s:.6f} s: {operation}")
                self._saw(operation, place)
                return
        self.broken("lost", f"acknowledged and not stored: {operation}")

    def _check_whole(self, operation: Operation) -> None:
        """All of it is there, at once, and was made meanwhile."""
        found = self._made(operation)
        if len(found) < len(operation.tokens):
            self.broken("lost", f"acknowledged and not stored: {operation}")
        for version in found:
            if not operation.asked_s <= version.at_s <= operation.answered_s:
                self.broken("order", f"made at {version.at_s:.6f} s: {operation}")
                return

    def _made(self, operation: Operation) -> list[Version]:
        """Return the versions that a request has made, one for each resource."""
        firsts = self.truth.firsts
        found = [firsts[key].get(token) for key, token in operation.tokens.items()]
        return [version for version in found if version is not None]

    def _check_read(self, operation: Operation) -> None:
        """A read sees all writes that were made before it, and nothing that was never written."""
        versions = self.truth.versions[operation.key]
        before = [place for place, one in enumerate(versions) if one.at_s <= operation.asked_s]
        floor = before[-1] if before else -1
        if operation.outcome == 200:
            places = [
                place
                for place, version in enumerate(versions)
                if version.spec is not None
                and version.revision == operation.revision
                and version.token == operation.seen
            ]
        else:
            places = [place for place, version in enumerate(versions) if version.spec is None]
            places = places if floor >= 0 else [-1, *places]
        if not places:
            self.broken("phantom", f"nothing like this was ever stored: {operation}")
        elif places[-1] < floor:
            self.broken("stale", f"version {places[-1]}, when there was {floor}: {operation}")
        else:
            self._saw(operation, next(place for place in places if place >= floor))

    def _last(self, operation: Operation) -> int:
        if operation.server is None:
            return -1
        return self._reads.get((operation.client, operation.server, operation.key), -1)

    def _saw(self, operation: Operation, place: int) -> None:
        last = self._last(operation)
        if place < last:
            self.broken("backwards", f"version {place} after {last}: {operation}")
        if operation.server is not None:
            known = (operation.client, operation.server, operation.key)
            self._reads[known] = max(place, last)

    def look(self) -> None:
        """Check the invariants that involve time: a controller with a broken disk ends."""
        for controller in self._world.controllers:
            running = controller.running
            if running is None or running.store.broken is None or controller.node.paused:
                self._broken_since_s.pop(controller, None)
                continue
            since_s = self._broken_since_s.setdefault(controller, self._world.loop.now_s)
            if self._world.loop.now_s - since_s > END_MOST_S:
                self.broken("broken-disk", f"{running.process} goes on: {running.store.broken}")

    # ---- at the end ----

    def check_history(self) -> None:
        """Each version comes of one request, made while its condition held, and none comes twice.

        A change that a switch has refused, or in which its controller was stopped, is undone: then
        the former version comes again.
        """
        asked = {
            (key, token): one for one in self._world.operations for key, token in one.tokens.items()
        }
        for key, versions in self.truth.versions.items():
            if key[1] == "switch":
                continue
            made: dict[int, int] = {}
            for place, version in enumerate(versions):
                token = version.token
                if token is None:
                    continue
                operation = asked.get((key, token))
                if operation is None:
                    self.broken("phantom", f"nobody asked for {token} of {key}")
                    continue
                former = made.setdefault(token, place)
                if former != place:
                    # A change that a switch refused is undone, and requested once more.
                    between = versions[former + 1 : place]
                    if not self._refuses and not all(self._stopped(key, v) for v in between):
                        self.broken("again", f"{token} of {key} comes a second time: {operation}")
                    made[token] = place
                    continue
                # A change that a switch refuses is stored and taken back, and then tried once more.
                if operation.certain and not self._refuses:
                    self.broken("refused", f"stored although refused: {operation}")
                self._check_condition(operation, versions[place - 1] if place else None)
        self._check_atomic()
        self._check_deletes()

    def _stopped(self, key: Key, version: Version) -> bool:
        """Whether a version is of a request in which its controller was stopped."""
        return any(
            one.outcome == CANCELLED
            and one.asked_s <= version.at_s <= one.answered_s
            and (
                one.tokens.get(key) == version.token
                if version.token is not None
                else one.whole or (one.method, one.key) == ("DELETE", key)
            )
            for one in self._world.operations
        )

    def _check_condition(self, operation: Operation, before: Version | None) -> None:
        there = before is not None and before.spec is not None
        if operation.match == 0 and there:
            self.broken("condition", f"made where something was: {operation}")
        if operation.match > 0 and (
            before is None or not there or before.revision != operation.match
        ):
            self.broken("condition", f"made on {before}: {operation}")

    def _check_atomic(self) -> None:
        """A document is stored as a whole or not at all."""
        for operation in self._world.operations:
            if operation.whole:
                found = self._made(operation)
                revisions = {version.write for version in found}
                if len(revisions) > 1 or (found and len(found) < len(operation.tokens)):
                    self.broken("atomic", f"stored in parts, at {sorted(revisions)}: {operation}")

    def _check_deletes(self) -> None:
        """Each deletion was asked for, or undoes a request in which its controller was stopped."""
        for key, versions in self.truth.versions.items():
            if key[1] == "switch" or self._refuses:
                continue
            asked = [
                one
                for one in self._world.operations
                if not one.certain
                and (
                    (one.method == "DELETE" and one.key == key)
                    or (one.whole and one.key[0] in ("", key[0]) and key not in one.tokens)
                )
            ]
            gone = [
                one
                for place, one in enumerate(versions)
                if one.spec is None and not (place and self._stopped(key, versions[place - 1]))
            ]
            for version in gone:
                if not any(one.asked_s <= version.at_s for one in asked):
                    self.broken("phantom", f"nobody asked to delete {key}")
            if len(gone) > len(asked):
                self.broken("phantom", f"{key} was deleted {len(gone)} times")

    def check_reports(self, records: Sequence[logging.LogRecord]) -> None:
        """Check that nothing unexpected has happened."""
        for text in self._world.unexpected:
            self.broken("unexpected", text)
        for record in records:
            error = record.exc_info[1] if record.exc_info else None
            self.broken("unexpected", f"{record.name}: {record.getMessage()}: {error!r}")
        for fault in self._world.loop.faults:
            error = fault.get("exception")
            self.broken("unexpected", f"{fault.get('message')}: {error!r}")

    # ---- at rest ----

    def unrest(self, switch: Switch | Bridge) -> str | None:
        """Return how a switch differs from its desired state; None: it does not."""
        if self._unmanaged(switch):
            return None
        if isinstance(switch, Bridge):
            return switch.unrest(self.truth.desired(switch.name))
        if switch.node.process is None or switch.config is None:
            return "has no pipeline"
        primary = switch.primary
        if primary is None:
            return "has no primary"
        if not primary.alive:
            return f"has primary {primary}, which has ended"
        wanted, held = self._wanted(switch), _held(switch)
        for key, row in wanted.items():
            if held.get(key) != row:
                return f"has {held.get(key)} for {row}"
        extra = [row for key, row in held.items() if key not in wanted]
        if extra:
            return f"has {extra[0]} more"
        for number, record in self.truth.desired(switch.name).ports.items():
            has = switch.ports()[int(number)]["fifo_bytes"]
            if has != record.spec.fifo_bytes:
                return f"has {has} bytes of FIFO at port {number}, not {record.spec.fifo_bytes}"
        return None

    def _unmanaged(self, switch: Switch | Bridge) -> bool:
        """Whether the switch that is in no configuration has not been made."""
        made = self.truth.current(("", "switch", switch.name)) is not None
        return switch is self._world.switches[-1] and not made

    def _wanted(self, switch: Switch) -> dict[Any, Row]:
        desired = self.truth.desired(switch.name)
        return {
            row.key: row
            for _, _, record in desired.all()
            for row in entries.record_rows(record, desired)
            if row.table != PORTS
        }

    def differing(self) -> str | None:
        """Return how a controller's state differs from the truth; None: it does not."""
        for controller in self._world.controllers:
            running = controller.running
            if running is None:
                return f"{controller.node} does not run"
            for name, managed in running.service.switches.items():
                truth = self.truth.desired(name)
                for kind, of_kind in managed.desired.resources.items():
                    have = {n: (r.spec, index_of(r)) for n, r in of_kind.items()}
                    want = {n: (r.spec, index_of(r)) for n, r in truth.resources[kind].items()}
                    for one in sorted(have.keys() | want.keys()):
                        if have.get(one) != want.get(one):
                            return (
                                f"{controller.node} knows {kind} {one} of {name} as "
                                f"{have.get(one)}, not {want.get(one)}"
                            )
                if managed.unstored:
                    return f"{controller.node} has unstored changes of {name}"
                if managed.brought() != "applied":
                    how = f"{managed.brought()}, {managed.status()}"
                    return f"{controller.node} says that the state of {name} is {how}"
        return None

    def check_generations(self) -> None:
        """Each generation of a set is the one in use, or a marker says that it is to be deleted."""
        cluster = self._world.cluster
        if cluster is None:
            return
        used = json.loads(cluster.value(f"{PREFIX}root") or b"{}")
        kvs = {key.decode().removeprefix(PREFIX): kv.value for key, kv in cluster.kvs.items()}
        marked = {
            prefix
            for key, value in kvs.items()
            if key.startswith("sweep/")
            for prefix in json.loads(value)["prefixes"]
        }
        for key in kvs:
            what, _, rest = key.partition("/")
            if what == "data":
                of, generation, _ = rest.split("/", 2)
                in_use = generation == used.get(of, (0, "0"))[1]
                if not in_use and f"{PREFIX}data/{of}/{generation}/" not in marked:
                    self.broken("garbage", f"nobody will delete {key}")

    def check_events(self) -> None:
        """All controllers report the same changes in the same order."""
        told = []
        for controller in self._world.controllers:
            if controller.running is not None:
                events = controller.running.service.events.select(kinds=("change",))
                told.append([one["id"] for one in events])
                if told[-1] != sorted(set(told[-1])):
                    self.broken("events", f"{controller.node} tells of events out of order")
        first = max((one[0] for one in told if one), default=0)
        cut = [[number for number in one if number >= first] for one in told]
        if any(one != cut[0] for one in cut):
            missing = [set(cut[0]).symmetric_difference(one) for one in cut]
            self.broken("events", f"controllers tell of different events: {missing}")


def _held(switch: Switch) -> dict[Any, Row]:
    """Return what a switch holds, as rows; learned stations left out."""
    schema = _schema(switch)
    found = {}
    for entry in switch.table_entries():
        decoded = p4entity.decode_entity(p4r.Entity(table_entry=entry), schema)
        row = entries.from_finsy(decoded, schema)
        if row.table not in _STATIONS:
            found[row.key] = row
    return found


_schemas: dict[int, fy.P4Schema] = {}


def _schema(switch: Switch) -> fy.P4Schema:
    cookie = int(switch.config.cookie.cookie)
    if cookie not in _schemas:
        _schemas[cookie] = fy.P4Schema(switch.config.p4info)
    return _schemas[cookie]

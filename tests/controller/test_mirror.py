"""The copy of etcd's keys, and what its feed is told."""

import asyncio
import copy
import json
import re
from collections.abc import Sequence
from typing import Any, cast
from unittest import mock

import pytest
from aetcd import rpc

from pacer_controller.records import ClassRecord
from pacer_controller.schemas import ClassSpec
from pacer_controller.stores.base import Entry
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
from pacer_controller.stores.etcd.layout import encode
from pacer_controller.stores.etcd.leases import Leases
from pacer_controller.stores.etcd.mirror import Mirror

PREFIX = "/pacer/"


class Told:
    """A feed that keeps the messages of events, and the revisions of writes by switch."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.entries: list[tuple[str, int]] = []

    def entry(self, entry: Entry) -> None:
        """Keep a write."""
        self.entries.append((entry.switch, entry.base))

    def events(self, events: Sequence[Any]) -> None:
        """Keep events."""
        self.messages += [one["message"] for one in events]


def put(revision: int, key: str, value: Any) -> Any:
    data = (value if isinstance(value, str) else json.dumps(value)).encode()
    return rpc.Event(
        kv=rpc.KeyValue(key=f"{PREFIX}{key}".encode(), value=data, mod_revision=revision)
    )


def said(message: str) -> dict[str, Any]:
    return {"time": "now", "kind": "change", "switch": "a", "message": message, "data": {}}


def test_nothing_is_told_again_after_a_generation_that_could_not_be_read() -> None:
    """Neither revisions before it, nor what precedes it in a combined transaction."""
    answer = rpc.WatchResponse(
        events=[
            put(3, "heads/a", "one"),
            put(3, "events/1-one+0", [said("first")]),
            put(6, "heads/b", "two"),
            put(6, "events/2-two+0", [said("second")]),
            put(6, "root", {"a": [4, "three"]}),
            put(6, "heads/a", "three"),
            put(6, "events/3-three+1", [said("third")]),
        ]
    )

    async def work() -> None:
        told = Told()
        mirror = Mirror(cast("EtcdClient", mock.Mock()), PREFIX, mock.Mock())
        mirror.feed = told
        failed = EtcdError("no answer", certain=False)
        with mock.patch.object(mirror, "range_all", side_effect=[failed, ([], 6)]):
            with pytest.raises(EtcdError):
                await mirror.take(answer)
            assert mirror.seen == 3
            await mirror.take(answer)
        assert mirror.seen == 6
        assert told.messages == ["first", "second", "third"]
        assert [one["message"] for one in mirror.events] == told.messages
        assert told.entries.count(("a", 3)) == told.entries.count(("b", 6)) == 1

    asyncio.run(work())


def made() -> tuple[Mirror, Leases, Told]:
    """Return an empty copy with its leases, and its feed."""
    client, told = cast("EtcdClient", mock.Mock()), Told()
    leases = Leases(client, client, PREFIX, "one")
    mirror = Mirror(client, PREFIX, leases)
    mirror.feed = told
    return mirror, leases, told


STORED = [
    put(3, "root", {"a": [2, "large"]}),
    put(3, "heads/a", "one-1"),
    put(3, "shapes/a", "one-1"),
    put(3, "data/a/large/class/c1", encode(ClassRecord("c1", 1, ClassSpec(rate=10**6)), 0)),
    put(3, "events/1-one+0", [said("first")]),
    put(4, "epoch", "7000000"),
    put(5, "members/one", {"configured": ["a"], "cannot": []}),
    put(6, "leases/a", "one"),
    put(7, "status/a", {"controller": "one", "state": "connected", "failed": {}, "base": 3}),
]


def contents(mirror: Mirror, leases: Leases) -> Any:
    """Return all that a copy has from etcd."""
    kept = (mirror.sets, mirror.root, list(mirror.events), mirror.event_keys, mirror.events_kept)
    own = (leases.members, leases.holders, leases.epoch, leases.status("a"))
    return copy.deepcopy((kept, mirror.seen, mirror.loads, own))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("root", []),
        ("data/a/large/class/c2", "{"),
        ("data/a/large/lamp/c3", {"spec": {}}),
        ("data/a/large/class/c4", []),
        ("events/2-one+0", "none"),
        ("epoch", "new"),
        ("members/two", {"configured": []}),
        ("status/a", {"brightness": 3}),
    ],
)
def test_a_key_that_is_not_understood_leaves_the_copy_as_it_was(key: str, value: Any) -> None:
    async def work() -> None:
        mirror, leases, told = made()
        with mock.patch.object(mirror, "range_all", return_value=([e.kv for e in STORED], 8)):
            await mirror.load()
        before = contents(mirror, leases)
        assert before[-1][0].keys() == {"one"}
        name = f"{PREFIX}{key}".encode()
        others = [e.kv for e in STORED if e.kv.key not in (name, b"/pacer/leases/a")]
        found = [*others, put(9, key, value).kv, put(9, "leases/b", "two").kv]
        refused = pytest.raises(ValueError, match=re.escape(f"{PREFIX}{key} is not understood"))
        with mock.patch.object(mirror, "range_all", return_value=(found, 10)), refused:
            await mirror.load_again()
        assert contents(mirror, leases) == before
        assert not told.entries
        assert not told.messages

    asyncio.run(work())


def test_an_event_beside_a_key_that_is_not_understood_is_told_when_all_is_read_again() -> None:
    answer = rpc.WatchResponse(
        events=[put(9, "events/2-one+0", [said("second")]), put(9, "status/a", "{")]
    )

    async def work() -> None:
        mirror, _, told = made()
        with pytest.raises(ValueError, match="Expecting"):
            await mirror.take(answer)
        found = [*(e.kv for e in STORED), answer.events[0].kv]
        with mock.patch.object(mirror, "range_all", return_value=(found, 10)):
            await mirror.load_again()
        assert told.messages == ["first", "second"]

    asyncio.run(work())

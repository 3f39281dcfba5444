"""The copy of etcd's keys, and what its feed is told."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast
from unittest import mock

import pytest
from aetcd import rpc

from pacer_controller.stores.base import Entry
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
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


def test_nothing_is_told_again_after_a_generation_that_could_not_be_read() -> None:
    """Neither revisions before it, nor what precedes it in a combined transaction."""
    answer = rpc.WatchResponse(
        events=[
            put(3, "heads/a", "one"),
            put(3, "events/1-one+0", [{"message": "first"}]),
            put(6, "heads/b", "two"),
            put(6, "events/2-two+0", [{"message": "second"}]),
            put(6, "root", {"a": [4, "three"]}),
            put(6, "heads/a", "three"),
            put(6, "events/3-three+1", [{"message": "third"}]),
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

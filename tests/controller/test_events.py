"""Events: published in the order of their numbers, in any order of arrival."""

import asyncio
import gc
from typing import Any

import pytest

from pacer_controller import events
from pacer_controller.events import EventLog, draft
from pacer_controller.kept_events import KeptEvents
from pacer_controller.service.audit import audit
from pacer_controller.service.managed import Origin
from pacer_controller.stores import SqliteStore, Written


def drafts(*messages: str) -> list[dict[str, Any]]:
    return [draft("change", "s1", message, {}) for message in messages]


def told(log: EventLog, after: int = 0) -> list[str]:
    return [event["message"] for event in log.select(after)]


def test_a_cursor_passes_no_event_that_is_still_to_come() -> None:
    async def run() -> None:
        with SqliteStore(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            await log.flush()
            slow, quick = drafts("slow"), drafts("quick")
            number = (await store.write([], slow)).numbers
            overtaking = (await store.write([], quick)).numbers
            cursor = log.last_id
            log.publish(overtaking, quick)
            assert (told(log, cursor), log.last_id) == ([], cursor)
            log.publish(number, slow)
            assert told(log, cursor) == ["slow", "quick"]
            assert log.last_id == overtaking[0]

    asyncio.run(run())


def test_what_was_taken_back_holds_up_nothing() -> None:
    async def run() -> None:
        with SqliteStore(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            await log.flush()
            refused = (await store.write([], drafts("refused"))).numbers
            log.record("drift", "s1", "second")
            await log.flush()
            assert told(log) == ["first"]
            await store.take_back([], Written(0, numbers=refused), [])
            log.drop(refused)
            assert told(log) == ["first", "second"]

    asyncio.run(run())


def test_nothing_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "GAP_S", 0.0)

    async def run() -> None:
        with SqliteStore(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            await log.flush()
            lost = drafts("lost")
            number = (await store.write([], lost)).numbers
            log.record("drift", "s1", "second")
            await log.flush()
            assert told(log) == ["first", "second"]
            log.publish(number, lost)
            assert told(log) == ["first", "lost", "second"]
            assert log.last_id > number[0]

    asyncio.run(run())


def test_a_change_is_told_by_the_settings_that_differ() -> None:
    before = {"rate": "1Mbit", "follow": {"switch": "wan", "port": 1}}
    after = {"rate": "1Mbit", "follow": {"switch": "wan", "port": 2}, "allowance_ns": 1000}
    view = {"op": "update", "kind": "class", "switch": "s1", "name": "video"}
    event = audit(Origin(), [view | {"before": before, "after": after}])
    assert event["message"].endswith("follow.port 1 -> 2, allowance_ns none -> 1000")


def numbered(number: int) -> dict[str, Any]:
    return {"id": number, **draft("change", f"s{number % 2}", "rate", {"count": number})}


@pytest.mark.parametrize(
    ("limit", "newest", "numbers"),
    [(None, False, [3, 5, 7]), (2, False, [3, 5]), (2, True, [5, 7]), (9, True, [3, 5, 7])],
)
def test_a_limit_chooses_the_oldest_or_the_newest(
    limit: int | None, newest: bool, numbers: list[int]
) -> None:
    kept = KeptEvents(map(numbered, [1, 2, 3, 4, 7, 8]), 7)
    kept.add(numbered(5))
    found, total = kept.select(1, {"change"}, {"s1"}, limit, newest=newest)
    assert [one["id"] for one in found] == numbers
    assert [one["data"] for one in found] == [{"count": number} for number in numbers]
    assert total == 3
    # The oldest one goes, wherever the new one's place is.
    kept.add(numbered(6))
    assert [one["id"] for one in kept] == [2, 3, 4, 5, 6, 7, 8]


def test_kept_events_are_no_work_for_the_garbage_collector() -> None:
    gc.collect()
    before = len(gc.get_objects())
    kept = KeptEvents(map(numbered, range(10_000)), 10_000)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert kept.last_id == 9_999

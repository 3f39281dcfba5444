"""Events: told in the order of their numbers, whoever comes first."""

import asyncio
from typing import Any

import pytest

from pacer_controller import events
from pacer_controller.events import EventLog, draft
from pacer_controller.store import Store


def drafts(*messages: str) -> list[dict[str, Any]]:
    return [draft("change", "s1", message, {}) for message in messages]


def told(log: EventLog, after: int = 0) -> list[str]:
    return [event["message"] for event in log.select(after)]


def test_a_cursor_passes_no_event_that_is_still_to_come() -> None:
    async def run() -> None:
        with Store(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            slow, quick = drafts("slow"), drafts("quick")
            number = store.write([], slow)
            overtaking = store.write([], quick)
            cursor = log.last_id
            log.publish(overtaking, quick)
            assert (told(log, cursor), log.last_id) == ([], cursor)
            log.publish(number, slow)
            assert told(log, cursor) == ["slow", "quick"]
            assert log.last_id == overtaking[0]

    asyncio.run(run())


def test_what_was_taken_back_holds_up_nothing() -> None:
    async def run() -> None:
        with Store(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            refused = store.write([], drafts("refused"))
            log.record("drift", "s1", "second")
            assert told(log) == ["first"]
            store.take_back([], refused)
            log.drop(refused)
            assert told(log) == ["first", "second"]

    asyncio.run(run())


def test_nothing_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "GAP_S", 0.0)

    async def run() -> None:
        with Store(":memory:") as store:
            log = EventLog(store)
            log.record("controller", None, "first")
            lost = drafts("lost")
            number = store.write([], lost)
            log.record("drift", "s1", "second")
            assert told(log) == ["first", "second"]
            log.publish(number, lost)
            assert told(log) == ["first", "lost", "second"]
            assert log.last_id > number[0]

    asyncio.run(run())

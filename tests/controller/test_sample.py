"""Concurrent requests share one reading of a switch."""

import asyncio
import time
from typing import Any, cast

import pytest

from pacer_controller.service import sample
from pacer_controller.service.sample import Sample, Sampler
from pacer_controller.southbound import Driver, Reading, SwitchUnreadableError
from rest_client import Client

READERS = 100


class Slow:
    """A switch that answers when the test lets it."""

    def __init__(self) -> None:
        self.readings = 0
        self.begun = asyncio.Event()
        self.answer = asyncio.Event()
        self.fails = False

    async def refresh_ports(self) -> None:
        """Know all ports."""

    async def read(self, _classes: list[int]) -> Reading:
        """Count the readings."""
        self.readings += 1
        self.begun.set()
        await self.answer.wait()
        if self.fails:
            raise SwitchUnreadableError("it is away")
        return Reading(now_ns=self.readings)


def sampler(switch: Slow) -> Sampler:
    return Sampler(cast(Driver, switch), lambda: [0])


async def all_of(reader: Sampler, age_s: float) -> list[Any]:
    """Begin many readings."""
    asked = [asyncio.create_task(reader.read(age_s)) for _ in range(READERS)]
    await asyncio.sleep(0)
    return asked


def test_readings_at_the_same_time_are_one() -> None:
    async def run() -> None:
        switch = Slow()
        reader = sampler(switch)
        asked = await all_of(reader, 0.0)
        await switch.begun.wait()
        # It began before these ask: they need another one, but one is enough.
        later = await all_of(reader, 0.0)
        switch.answer.set()
        assert {one.at_ns for one in await asyncio.gather(*asked)} == {1}
        assert {one.at_ns for one in await asyncio.gather(*later)} == {2}
        # A caller that accepts an older sample gets it at once.
        assert (await reader.read(3600.0)).at_ns == 2
        assert switch.readings == 2

    asyncio.run(run())


def test_who_goes_away_ends_nobody_elses_reading() -> None:
    async def run() -> None:
        switch = Slow()
        reader = sampler(switch)
        first, *others = await all_of(reader, 0.0)
        await switch.begun.wait()
        first.cancel()
        switch.answer.set()
        said: list[Sample] = await asyncio.gather(*others)
        assert {one.at_ns for one in said} == {1}

    asyncio.run(run())


def test_a_switch_that_does_not_answer_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        switch = Slow()
        reader = sampler(switch)
        switch.fails = True
        switch.answer.set()
        said = await asyncio.gather(*await all_of(reader, 0.0), return_exceptions=True)
        assert {str(one) for one in said} == {"it is away"}
        assert switch.readings == 1
        switch.answer.clear()
        monkeypatch.setattr(sample, "READ_MOST_S", 0.01)
        with pytest.raises(SwitchUnreadableError, match=r"within 0\.01 s"):
            await reader.read(0.0)

    asyncio.run(run())


def test_metrics_and_streams_share_a_sample(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pacer_controller.service.core.SHARED_S", 3600.0)
    found = client.service.switches["s1"]
    readings: list[float] = []
    read = found.driver.read

    async def counted(classes: Any) -> Reading:
        readings.append(time.monotonic())
        return await read(classes)

    monkeypatch.setattr(found.driver, "read", counted)
    for _ in range(3):
        assert client.call("GET", "/metrics").status_code == 200
        path = "/v1/stats/stream?switch=s1&interval_ms=200&count=1"
        assert "event: stats" in client.call("GET", path).text
    assert len(readings) == 1
    # The answer to a single question has the figures of that time.
    assert client.call("GET", "/v1/switches/s1/stats").status_code == 200
    assert len(readings) == 2

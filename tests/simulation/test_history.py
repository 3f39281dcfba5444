"""How often the rates of many switches are read, on virtual time."""

import asyncio
import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from loop import Process, SimulatedLoop
from pacer_controller.service import history
from pacer_controller.southbound import State

RUN_S = 60.0


@pytest.mark.parametrize(("switches", "each"), [(1, 30), (10, 30), (40, 30), (400, 3)])
def test_readings_are_spread_and_their_rate_is_bounded(
    loop: SimulatedLoop, switches: int, each: int
) -> None:
    """Up to 40 switches have a point every 2 s."""
    at_s: list[float] = []
    of: Counter[str] = Counter()

    async def statistics(found: Any, *_: object) -> dict[str, Any]:
        at_s.append(loop.now_s)
        of[found.name] += 1
        await asyncio.sleep(1)
        return {"classes": []}

    connected = SimpleNamespace(state=State.CONNECTED)
    names = [f"s{number}" for number in range(switches)]
    made = {name: mock.Mock(driver=connected, desired=SimpleNamespace(used=[])) for name in names}
    for name, one in made.items():
        one.name = name
    service: Any = SimpleNamespace(switches=made)

    async def work() -> None:
        running = asyncio.create_task(history.History(service).run())
        await asyncio.sleep(RUN_S)
        running.cancel()
        await asyncio.wait([running])

    with mock.patch.object(history, "statistics", statistics):
        loop.run_until_complete(Process(loop, loop.node("c0")).spawn(work()))
    assert set(of) == set(names)
    assert all(abs(count - each) <= 1 for count in of.values())
    gaps_s = [later - one for one, later in itertools.pairwise(at_s)]
    assert min(gaps_s) >= 1 / history.READS_MOST_PER_S - 1e-9

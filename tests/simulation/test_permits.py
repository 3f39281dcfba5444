"""The bound on switches that are connected and reconciled at the same time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from loop import Process, SimulatedLoop
from network import Network
from pacer_controller.config import SwitchConfig, switch_from
from pacer_controller.p4rt import P4Switch
from pacer_controller.p4rt.connection import CONNECT_S, UNREACHED_S
from pacer_controller.permits import Permits
from pacer_controller.southbound import DriverContext, State, Unfenced
from world import COMPILED

from switch import Switch

LONG_S = 10 * (CONNECT_S + UNREACHED_S)


def run(loop: SimulatedLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as the program of a node."""
    loop.run_until_complete(Process(loop, loop.node("c0")).spawn(work))


def test_who_waits_longest_is_next_and_no_more_than_the_bound_work(loop: SimulatedLoop) -> None:
    begun: list[int] = []
    working: list[int] = []
    most: list[int] = []

    async def one(permits: Permits, number: int) -> None:
        async with permits.permit():
            begun.append(number)
            working.append(number)
            most.append(len(working))
            await asyncio.sleep(number % 4)
            working.remove(number)

    async def work() -> None:
        permits = Permits(3)
        await asyncio.gather(*(one(permits, number) for number in range(20)))

    run(loop, work())
    assert begun == list(range(20))
    assert max(most) == 3


def test_slow_work_keeps_no_permit_for_ever(loop: SimulatedLoop) -> None:
    async def work() -> None:
        permits = Permits(1, hold_s=5.0)
        slow = await permits.take()
        second = await permits.take()
        assert loop.now_s == 5.0
        # The first has lost its permit already: giving it back frees none.
        slow.release()
        third = asyncio.ensure_future(permits.take())
        await asyncio.sleep(1)
        assert not third.done()
        second.release()
        (await third).release()
        assert loop.now_s == 6.0

    run(loop, work())


class Reached(Unfenced):
    """A right to write that keeps what it is told of the switch."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def reaches(self, reachable: bool) -> None:
        """Keep it."""
        self.told.append(reachable)


def test_a_switch_that_waits_for_a_permit_counts_as_one_that_answers(
    loop: SimulatedLoop, network: Network
) -> None:
    """Its controller is busy; another one would have no reason to drive it instead."""
    config = switch_from("s0", Switch(loop, network, "s0", "test").settings)
    assert isinstance(config, SwitchConfig)

    async def work() -> None:
        tenure, permits = Reached(), Permits(1, hold_s=LONG_S)
        busy = await permits.take()
        driver = P4Switch(config, COMPILED, DriverContext(dict, tenure=tenure, permits=permits))
        running = asyncio.create_task(driver.run())
        await asyncio.sleep(LONG_S / 2)
        assert (driver.state, driver.last_error) == (State.PENDING, None)
        busy.release()
        await asyncio.sleep(1)
        assert (driver.state, driver.last_error) == (State.CONNECTED, None)
        assert set(tenure.told) == {True}
        # The permit is free again.
        (await permits.take()).release()
        running.cancel()
        await asyncio.wait([running])

    run(loop, work())


def test_a_switch_that_does_not_answer_keeps_no_permit(
    loop: SimulatedLoop, network: Network
) -> None:
    Switch(loop, network, "s0", "test")
    config = switch_from("s0", {"address": "s1:9559"})
    assert isinstance(config, SwitchConfig)

    async def work() -> None:
        tenure, permits = Reached(), Permits(1, hold_s=LONG_S)
        driver = P4Switch(config, COMPILED, DriverContext(dict, tenure=tenure, permits=permits))
        running = asyncio.create_task(driver.run())
        for _ in range(100):
            (await permits.take()).release()
            await asyncio.sleep(0.5)
        assert set(tenure.told) == {False}
        running.cancel()
        await asyncio.wait([running])

    run(loop, work())

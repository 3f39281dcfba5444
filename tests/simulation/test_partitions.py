"""Two controllers on the two sides of a partition, each with a switch that only it reaches."""

import asyncio

import pytest
from invariants import Invariants
from run import Work, run, watch
from world import Fault, Scene, World

pytestmark = [
    # Of what is no longer referenced after a run.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TWO = Scene("two", controllers=2, members=3)
SEEDS = (1, 2)
"""They differ in who drives which switch at first, among other things."""

PARTED_S = 4.0
MENDED_S = 30.0
"""A switch that does not answer its controller for 10 s goes to another one."""

EACH_ITS_SWITCH = [("c0", "s1"), ("c1", "s0")]

PARTITIONS = {
    "etcd reached by both": ([], [0, 1]),
    "etcd reached by one": ([("c1", "e0"), ("c1", "e1"), ("c1", "e2")], [0]),
    "a member of etcd on the other side": (
        [("c0", "e2"), ("e2", "e0"), ("e2", "e1"), ("c1", "e0"), ("c1", "e1")],
        [0],
    ),
    "no majority on either side": (
        [("e0", "e1"), ("e1", "e2"), ("e2", "e0"), ("c0", "e1"), ("c1", "e0")],
        [],
    ),
}
"""The links that are cut beside EACH_ITS_SWITCH, and the switches that are served meanwhile."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_two_switches_each_side_of_a_partition_reaching_one(partition: str, seed: int) -> None:
    """No switch has two writers, and who reaches both etcd and a switch serves it.

    The invariants of every run say the former.
    """
    cut, served = PARTITIONS[partition]
    faults = [
        Fault(number, PARTED_S, MENDED_S - PARTED_S, "part", pair)
        for number, pair in enumerate([*EACH_ITS_SWITCH, *cut])
    ]

    async def watching(world: World, invariants: Invariants) -> float:
        await asyncio.sleep(MENDED_S - 0.1)
        for number in served:
            switch, running = world.switches[number], world.controllers[number].running
            how = invariants.unrest(switch)
            if how is not None:
                invariants.broken("served", f"{switch.name} {how}")
            elif running is None or world.holder(switch.name) != running.name:
                invariants.broken("served", f"{switch.name} by {world.holder(switch.name)}")
        return await watch(world, invariants)

    result = run(Work(str(seed), TWO), faults, watching=watching)
    assert not result.violations, "\n".join(map(str, result.violations))
    assert result.acknowledged

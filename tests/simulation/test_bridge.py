"""Tests of the model of a bridge, of byte streams and of threads, and a fault found with them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import pytest
import streams
from bridge import Bridge
from loop import Process, SimulatedLoop
from network import Network
from pacer_controller.config import OpenVSwitchConfig, switch_from
from pacer_controller.openvswitch import OpenVSwitch
from pacer_controller.openvswitch.flows import FLOWS, queue_row
from pacer_controller.openvswitch.openflow import (
    BATCH,
    OpenFlow,
    OpenFlowError,
    StaleRoleError,
)
from pacer_controller.openvswitch.ovsdb import Database, OvsdbError
from pacer_controller.rows import Change, Op, Rows, by_key, row
from pacer_controller.schemas import ClassSpec
from pacer_controller.southbound import (
    DriverContext,
    NotHeldError,
    Refusal,
    State,
    Unfenced,
)
from pacer_controller.stores.base import epoch_above
from pacer_controller.stores.etcd.assignment import Member, assign

QUEUE = {1: {"rate": "1000000", "mode": "static", "limit": "65536"}}
GARBLED = 20


@pytest.fixture
def bridge(loop: SimulatedLoop, network: Network) -> Iterator[Bridge]:
    with streams.installed(loop, network, lambda *_: None):
        yield Bridge(loop, network, "s0", "test")


def run(loop: SimulatedLoop, work: Callable[[], Awaitable[None]], node: str = "c0") -> None:
    """Run something as the program of a node."""

    async def main() -> None:
        await work()

    loop.run_until_complete(Process(loop, loop.node(node)).spawn(main()))


class Client:
    """A controller's connection to the database, with a thread of its own."""

    def __init__(self, bridge: Bridge, held: Callable[[], bool] = lambda: True) -> None:
        self._database = Database(bridge.settings["ovsdb"], bridge.name, bridge.name, held)
        self._thread = ThreadPoolExecutor(1)

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of `Database` in the thread."""
        call = partial(getattr(self._database, name), *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def own(self, fence: int) -> None:
        """Take the bridge."""
        assert await self.call("lock", steal=True)
        assert await self.call("fence", fence) == 0


def rate_of(bridge: Bridge) -> list[str]:
    """Return the rates of the queues in the database."""
    return [dict(one["other_config"][1])["rate"] for one in bridge._tables["Queue"].values()]


def test_a_controller_without_the_lock_or_the_newest_number_writes_nothing(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    async def work() -> None:
        first, second = Client(bridge), Client(bridge)
        await first.own(5)
        assert await first.call("sync", "pacer", QUEUE, {})
        assert not await first.call("sync", "pacer", QUEUE, {})
        await second.own(7)
        with pytest.raises(OvsdbError):
            await first.call("sync", "pacer", {}, {})
        assert rate_of(bridge) == ["1000000"]
        assert await second.call("fence", 6) == 7
        assert not bridge.wrong
        assert [one.election_id for one in bridge.histories[1]] == [5, 5, 7]

    run(loop, work)


def test_a_former_master_writes_nothing(loop: SimulatedLoop, bridge: Bridge) -> None:
    flow = row(FLOWS, {"eth_type": 0x800}, "classify", {"queue": 1}, priority=5, owner="flow f")
    change = [Change(Op.INSERT, flow)]

    async def work() -> None:
        async with (
            OpenFlow.connect(bridge.settings["openflow"]) as first,
            OpenFlow.connect(bridge.settings["openflow"]) as second,
        ):
            await first.become_master(2**64 - 2)
            assert await first.write(change) == []
            rows, _ = await second.read_flows()
            assert [one.key for one in rows] == [flow.key]
            # Ids wrap around: this one is newer.
            await second.become_master(3)
            with pytest.raises(OpenFlowError, match="another controller is master"):
                await first.write(change)
            with pytest.raises(StaleRoleError) as error:
                await first.become_master(2)
            assert error.value.generation == 3

    run(loop, work)


@pytest.mark.parametrize("kind", range(GARBLED))
def test_an_invalid_message_ends_its_connection_only(
    loop: SimulatedLoop, bridge: Bridge, kind: int
) -> None:
    async def work() -> None:
        client = Client(bridge)
        await client.own(5)
        async with OpenFlow.connect(bridge.settings["openflow"]) as connection:
            bridge.garble(kind)
            await asyncio.sleep(1)
            try:
                await connection.read_flows()
                await client.call("probe")
            except (OpenFlowError, OvsdbError):
                pass
        again = Client(bridge)
        await again.own(6)
        async with OpenFlow.connect(bridge.settings["openflow"]) as connection:
            await connection.become_master(1)

    run(loop, work)
    assert not loop.faults


def test_threads_that_wait_hold_up_nobody(loop: SimulatedLoop, bridge: Bridge) -> None:
    async def work() -> None:
        loop.pause(bridge.node)
        silent = Client(bridge)
        asking = asyncio.create_task(silent.call("lock", steal=True))
        for _ in range(3):
            assert await asyncio.to_thread(lambda: 6 * 7) == 42
        assert not asking.done()
        assert loop.now_s < 1
        with pytest.raises(OvsdbError, match="no answer within 10 s"):
            await asking

    run(loop, work)


def test_a_database_that_only_probes_its_connections_does_not_answer(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    async def work() -> None:
        client = Client(bridge)
        await client.own(5)
        bridge.mute = True
        begun_s = loop.now_s
        with pytest.raises(OvsdbError, match="no answer within 10 s"):
            await client.call("sync", "pacer", QUEUE, {})
        assert loop.now_s - begun_s < 11

    run(loop, work)


def test_a_right_that_ends_while_the_database_is_read_is_not_used(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    """An answer may be late by any time, so the right to write is checked after it."""
    held = True

    async def work() -> None:
        nonlocal held
        client = Client(bridge, lambda: held)
        await client.own(5)
        loop.pause(bridge.node)
        writing = asyncio.create_task(client.call("sync", "pacer", QUEUE, {}))
        await asyncio.sleep(1)
        held = False
        loop.resume(bridge.node)
        with pytest.raises(NotHeldError):
            await writing
        assert rate_of(bridge) == []

    run(loop, work)


class _Ending(Unfenced):
    """A right that may end."""

    held = True

    async def becomes(self, held: bool) -> None:
        """Wait for the right, or its end."""
        while self.held is not held:
            await asyncio.sleep(0.01)


def test_a_right_that_ends_during_a_long_write_ends_the_write(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    config = switch_from(bridge.name, bridge.settings)
    assert isinstance(config, OpenVSwitchConfig)
    tenure = _Ending()
    rows = by_key(
        row(
            FLOWS,
            {"eth_type": number},
            "classify",
            {"queue": 1},
            priority=5,
            owner=f"flow {number}",
        )
        for number in range(1, 2 * BATCH + 2)
    )
    write = OpenFlow.write

    async def late(self: OpenFlow, pending: Sequence[Change]) -> list[Refusal]:
        refused = await write(self, pending)
        tenure.held = False
        return refused

    async def work() -> None:
        driver = OpenVSwitch(config, DriverContext(lambda: rows, tenure=tenure))
        running = asyncio.create_task(driver.run())
        await tenure.becomes(False)
        await asyncio.sleep(1)
        assert driver.state is State.BACKUP
        assert len(bridge._state.flows) == BATCH
        running.cancel()

    with mock.patch.object(OpenFlow, "write", late):
        run(loop, work)


def test_a_change_whose_answer_is_lost_is_kept_for_later(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    """The database may have made it: the driver must not say that the switch refused it."""
    config = switch_from(bridge.name, bridge.settings)
    assert isinstance(config, OpenVSwitchConfig)
    queue = queue_row(1, ClassSpec(rate=1_000_000), "class a")
    rows: Rows = {}

    async def until(state: State, driver: OpenVSwitch) -> None:
        while driver.state is not state:
            await asyncio.sleep(0.01)

    async def work() -> None:
        driver = OpenVSwitch(config, DriverContext(lambda: rows))
        running = asyncio.create_task(driver.run())
        await until(State.CONNECTED, driver)
        loop.pause(bridge.node)
        rows[queue.key] = queue
        changing = asyncio.create_task(driver.apply({}, dict(rows)))
        await asyncio.sleep(1)
        bridge.reset_streams()
        assert await changing is False
        loop.resume(bridge.node)
        await until(State.CONNECTED, driver)
        assert rate_of(bridge) == ["1000000"]
        running.cancel()

    run(loop, work)


class _Noting(Unfenced):
    """A right that notes what is said of the switch."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bool] = []

    def reaches(self, reachable: bool) -> None:
        """Note it."""
        self.said.append(reachable)


def test_a_bridge_goes_to_another_controller_only_after_10_s_without_an_answer(
    loop: SimulatedLoop, bridge: Bridge
) -> None:
    """The time counts from the end of the last connection, not from its beginning."""
    config = switch_from(bridge.name, bridge.settings)
    assert isinstance(config, OpenVSwitchConfig)
    tenure = _Noting()

    async def work() -> None:
        driver = OpenVSwitch(config, DriverContext(dict, tenure=tenure))
        running = asyncio.create_task(driver.run())
        await asyncio.sleep(60)
        assert bridge.node.process is not None
        bridge.node.process.end()
        await asyncio.sleep(9)
        assert tenure.said == [True]
        await asyncio.sleep(5)
        assert tenure.said[-1] is False
        running.cancel()

    run(loop, work)


class _Raised(Unfenced):
    """A right whose store has an epoch of its own, as `Leases` has."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._epoch = epoch

    async def bid(self, above: int = 0) -> int:
        """Return the next revision, of a higher epoch if needed."""
        self._last += 1
        if above >= self._epoch << 64:
            self._epoch = epoch_above(above)
        return self._epoch << 64 | self._last


@pytest.mark.parametrize(("former", "raised"), [(7_000_000, 2**40), (2**23 - 1, 2**40 + 2**22)])
def test_a_bridge_follows_an_epoch_that_another_switch_has_raised(
    loop: SimulatedLoop, bridge: Bridge, former: int, raised: int
) -> None:
    """Generation ids have fewer bits than P4Runtime's election ids, so they wrap around."""
    config = switch_from(bridge.name, bridge.settings)
    assert isinstance(config, OpenVSwitchConfig)

    async def work() -> None:
        for epoch in (former, raised, raised + 1, 2**61):
            driver = OpenVSwitch(config, DriverContext(dict, tenure=_Raised(epoch)))
            running = asyncio.create_task(driver.run())
            await asyncio.sleep(1.5)
            reached = driver.state
            running.cancel()
            await asyncio.wait([running])
            assert reached is State.CONNECTED, driver.last_error

    run(loop, work)


class _Pair:
    """The right to write of two controllers, which the rule of `assign` gives."""

    def __init__(self) -> None:
        self.holder = ""
        self.cannot: dict[str, set[str]] = {"c0": set(), "c1": set()}
        self.changed = asyncio.Event()
        self.fences = 0

    def share(self) -> None:
        """Let the rule decide again."""
        members = {name: Member(cannot=frozenset(cannot)) for name, cannot in self.cannot.items()}
        holders = {"s0": self.holder} if self.holder else {}
        self.holder = assign(members, ["s0"], {"s0"}, holders)["s0"]
        self.changed.set()
        self.changed = asyncio.Event()


class _Half:
    """The right to write of one of the two."""

    exclusive = True

    def __init__(self, pair: _Pair, name: str) -> None:
        self._pair, self._name = pair, name

    @property
    def held(self) -> bool:
        """Whether the rule gives it the bridge."""
        return self._pair.holder == self._name

    async def bid(self, above: int = 0) -> int:
        """Return the next number of both."""
        self._pair.fences = max(self._pair.fences, above) + 1
        return self._pair.fences

    def gave(self, fence: int) -> bool:
        """Return False: leases do not need this question."""
        return False

    async def becomes(self, held: bool) -> None:
        """Wait for a change."""
        while self.held is not held:
            await self._pair.changed.wait()

    def reaches(self, reachable: bool) -> None:
        """Note it for the rule."""
        cannot = self._pair.cannot[self._name]
        if reachable == ("s0" in cannot):
            (cannot.discard if reachable else cannot.add)("s0")
            self._pair.share()


def test_a_bridge_goes_back_to_a_controller_that_it_answers_again(
    loop: SimulatedLoop, network: Network, bridge: Bridge
) -> None:
    """The link of one controller fails and heals; then the link of the other one fails for good."""
    config = switch_from(bridge.name, {**bridge.settings, "qos_type": "auto"})
    assert isinstance(config, OpenVSwitchConfig)

    def cut(name: str) -> None:
        for one, other in ((loop.node(name), bridge.node), (bridge.node, loop.node(name))):
            network.cut(one, other)

    async def work() -> None:
        pair = _Pair()
        pair.share()
        first = pair.holder
        (second,) = pair.cannot.keys() - {first}
        drivers = {
            name: OpenVSwitch(config, DriverContext(dict, tenure=_Half(pair, name)))
            for name in pair.cannot
        }
        processes = {n: Process(loop, loop.node(n)) for n in drivers}
        running = [processes[n].spawn(driver.run()) for n, driver in drivers.items()]
        await asyncio.sleep(10)
        assert drivers[first].state is State.CONNECTED
        # The other one only reads the bridge.
        assert drivers[second].state is State.BACKUP
        assert drivers[second].capabilities.ecn
        assert drivers[second].capabilities == drivers[first].capabilities
        await drivers[second].refresh_ports()
        assert drivers[second].ports == drivers[first].ports != []
        assert (await drivers[second].read([])).ports is not None
        cut(first)
        await asyncio.sleep(40)
        assert pair.holder == second
        assert drivers[second].state is State.CONNECTED
        network.mend(loop.node(first), bridge.node)
        network.mend(bridge.node, loop.node(first))
        await asyncio.sleep(40)
        assert pair.holder == second
        cut(second)
        await asyncio.sleep(60)
        assert pair.holder == first
        assert drivers[first].state is State.CONNECTED
        for task in running:
            task.cancel()

    run(loop, work, "c2")

"""Concurrent events on one connection to a switch, in an order that the test chooses."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import finsy as fy
import grpc.aio
import pytest
from finsy.proto import U128, p4r

from controller_harness import COMPILED, TARGET, Network, Switch, until
from pacer_controller.config import SwitchConfig, parse_switch, switch_from
from pacer_controller.entries import FORWARD, MEASURED_FLOWS, MONITOR, WIRE, class_row, port_row
from pacer_controller.learning import forward_row, source_row
from pacer_controller.p4rt import P4Switch, access
from pacer_controller.p4rt.session import Bidder, EndedError, GuardedClient, OutbidError
from pacer_controller.records import Indices, PortRecord
from pacer_controller.rows import Change, Key, Op, Row, by_key
from pacer_controller.schemas import ClassSpec, PortSpec
from pacer_controller.southbound import (
    DriverContext,
    Refusal,
    State,
    SwitchUnreadableError,
    Unfenced,
)
from pacer_controller.traffic_manager import TrafficManager

A = 0x020000000001
FRAME = b"\xff" * 6 + A.to_bytes(6, "big") + b"\x08\x00" + bytes(46)


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(100):
        await asyncio.sleep(0)


class FakeTables:
    """A switch's tables; a packet from A at port 1 comes up while `forward` is read."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: dict[Key, Row] = by_key(rows)
        self.packets: asyncio.Queue[Any] = asyncio.Queue()
        self.create_task = lambda work, name: asyncio.create_task(work, name=name)

    async def read_packets(self, queue_size: int) -> AsyncIterator[Any]:
        """Yield the packets to the controller."""
        assert queue_size > 0
        while True:
            yield await self.packets.get()

    async def read_table(self, *query: Any, meters: bool = False) -> list[Row]:
        """Return a table in its state before the packet comes up."""
        found = [row for row in self.rows.values() if row.table == query[-1]]
        if query[-1] == FORWARD and not meters:
            packet = SimpleNamespace(metadata={"ingress_port": 1}, payload=FRAME)
            self.packets.put_nowait(packet)
            await turns()
        return found

    async def write(self, _: Any, pending: Sequence[Change]) -> list[Refusal]:
        """Take everything."""
        for change in pending:
            await asyncio.sleep(0)
            if change.op is Op.DELETE:
                del self.rows[change.row.key]
            else:
                self.rows[change.row.key] = change.row
        return []


@pytest.mark.parametrize(
    "before", [[], [forward_row(A, 2), source_row(A, 2)]], ids=["new", "moved"]
)
def test_a_station_that_comes_up_during_reconciling_is_known_whole(
    monkeypatch: pytest.MonkeyPatch, before: list[Row]
) -> None:
    async def run() -> tuple[dict[Key, Row], dict[int, int]]:
        tables: Any = FakeTables(before)
        monkeypatch.setattr(access, "read_table", tables.read_table)
        monkeypatch.setattr(access, "write", tables.write)
        config = parse_switch("s1=127.0.0.1:9,ports=1-2")
        assert isinstance(config, SwitchConfig)
        driver = P4Switch(config, COMPILED, DriverContext(dict))
        monkeypatch.setattr(driver, "_write_groups", lambda switch: asyncio.sleep(0))
        monkeypatch.setattr(driver._connection, "switch", tables)
        monkeypatch.setattr(driver._connection, "state", State.CONNECTED)
        driver.learning.ports = {A: 2} if before else {}
        learner = asyncio.create_task(driver._learner.run(tables))
        await driver._reconcile(tables)
        await turns()
        learner.cancel()
        return tables.rows, driver.learning.ports

    rows, ports = asyncio.run(run())
    assert ports == {A: 1}
    assert rows == by_key([forward_row(A, 1), source_row(A, 1)])


def test_a_gtrcnet_switch_drifts_only_when_somebody_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = switch_from(
        "wan",
        {
            "address": "127.0.0.1:9",
            "program": "gtrcnet",
            "wire": ["1:2"],
            "bottleneck": "500mbit",
            "ports": [1, 2],
            "measured": {"web": {"match": {"protocol": "udp", "dst_port": 5001}}},
        },
    )
    assert isinstance(config, SwitchConfig)
    told: list[tuple[str, dict[str, Any]]] = []
    tables: Any = FakeTables([])

    async def run() -> list[int]:
        def notify(kind: str, _: str, data: dict[str, Any]) -> None:
            told.append((kind, data))

        monkeypatch.setattr(access, "read_table", tables.read_table)
        monkeypatch.setattr(access, "write", tables.write)
        driver = P4Switch(config, COMPILED, DriverContext(dict, notify=notify))
        drifts = []
        for _ in range(3):
            await driver._reconcile(tables)
            drifts.append(driver.counters.drift_entries)
        assert {row.table for row in tables.rows.values()} == {WIRE, MONITOR, MEASURED_FLOWS}
        lost = next(key for key in tables.rows if key[0] == WIRE)
        del tables.rows[lost]
        await driver._reconcile(tables)
        assert lost in tables.rows
        return [*drifts, driver.counters.drift_entries]

    assert asyncio.run(run()) == [0, 0, 0, 1]
    assert [kind for kind, _ in told] == ["drift", "mended"]
    assert told[0][1]["entries"][0]["table"] == WIRE


def test_what_was_seen_of_flows_is_read_of_classes_that_follow_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes = {1: ClassSpec(rate=10**6, mode="dynamic"), 2: ClassSpec(rate=10**6)}
    wanted = by_key([class_row(index, spec, "class") for index, spec in modes.items()])
    config = parse_switch("s1=127.0.0.1:9,ports=1-2")
    assert isinstance(config, SwitchConfig)

    async def run() -> dict[str, dict[int, int]]:
        driver = P4Switch(config, COMPILED, DriverContext(lambda: wanted))

        async def registers(_: str, indices: Iterable[int]) -> dict[int, int]:
            return dict.fromkeys(indices, 7)

        monkeypatch.setattr(driver, "registers", registers)
        return await driver._flows_seen([1, 2, 3])

    assert asyncio.run(run()) == {"rtt_ns": {1: 7}, "in_flight_bytes": {1: 7}}


@pytest.mark.parametrize(
    "error", [AssertionError(), grpc.aio.UsageError("closed"), asyncio.CancelledError()]
)
def test_a_connection_closed_while_registers_are_read_is_a_switch_gone(
    error: BaseException,
) -> None:
    class Closing:
        async def read(self, _: Any) -> AsyncIterator[Any]:
            if error is not None:
                raise error
            yield None

    switch: Any = Closing()
    schema = fy.P4Schema(COMPILED / "pacing_switch" / "gtrcnet.p4info.txtpb")
    with pytest.raises(SwitchUnreadableError) as caught:
        asyncio.run(access.registers(switch, schema, "GtrcnetIngress.window_id", [0]))
    assert caught.value.gone


@pytest.mark.parametrize(
    "error", [AssertionError(), grpc.aio.UsageError("closed"), asyncio.CancelledError()]
)
def test_a_connection_closed_while_a_change_is_written_is_a_switch_gone(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    class Closing:
        async def write(self, _: Any) -> None:
            raise error

    async def run() -> tuple[bool, State]:
        config = parse_switch("s1=127.0.0.1:9,ports=1-2")
        assert isinstance(config, SwitchConfig)
        driver = P4Switch(config, COMPILED, DriverContext(dict))
        monkeypatch.setattr(driver._connection, "switch", Closing())
        monkeypatch.setattr(driver._connection, "state", State.CONNECTED)
        row = class_row(1, ClassSpec(rate=10**6), "class")
        return await driver.apply({}, by_key([row])), driver.state

    assert asyncio.run(run()) == (False, State.PENDING)


def test_an_index_given_back_waits_a_whole_round() -> None:
    indices = Indices()

    def take() -> int:
        index = indices.free(4)
        assert index is not None
        indices.take(index)
        return index

    assert [take(), take()] == [1, 2]
    indices.release(1)
    indices.release(2)
    assert [take(), take()] == [3, 4]
    assert take() == 1
    indices.release(4)
    # 2 has been free for longer than 4.
    assert [take(), take()] == [2, 4]
    assert indices.free(4) is None


class Occupied:
    """A switch's answers to bids, whose primary of another store has a high election id."""

    def __init__(self, primary_id: int) -> None:
        self.primary_id = primary_id
        self.device_id = 0
        self._p4client = self
        self._answer: Any = None

    async def send(self, request: Any) -> None:
        """Take a bid."""
        bid = U128.decode(request.arbitration.election_id)
        code = fy.GRPCStatusCode.OK if bid >= self.primary_id else fy.GRPCStatusCode.ALREADY_EXISTS
        self.primary_id = max(self.primary_id, bid)
        update = p4r.MasterArbitrationUpdate(election_id=U128.encode(self.primary_id))
        update.status.code = code.value
        self._answer = p4r.StreamMessageResponse(arbitration=update)

    async def receive(self) -> Any:
        """Return the answer to the last bid."""
        return self._answer

    def _become_primary(self) -> None:
        """Be told of the role."""

    _become_backup = _become_primary


class Leased(Unfenced):
    """The right to write that a lease gives."""

    exclusive = True


@pytest.mark.parametrize("above", [9, 2**100, 2**125])
def test_the_holder_of_a_lease_outbids_a_foreign_primary(above: int) -> None:
    switch: Any = Occupied(above)
    bidder = Bidder(Leased(), looks_first=False)
    asyncio.run(bidder.handshake(switch))
    assert bidder.is_primary
    assert bidder.election_id == switch.primary_id > above
    # Another one takes the switch during the session: a new session outbids it.
    update = p4r.MasterArbitrationUpdate(election_id=U128.encode(switch.primary_id + 1))
    update.status.code = fy.GRPCStatusCode.ALREADY_EXISTS.value
    with pytest.raises(OutbidError):
        asyncio.run(bidder.update(switch, update))
    assert not bidder.is_primary


def test_controllers_without_a_lease_are_backups_of_each_other() -> None:
    switch: Any = Occupied(9)
    bidder = Bidder(Unfenced(), looks_first=True)
    asyncio.run(bidder.handshake(switch))
    assert not bidder.is_primary
    assert switch.primary_id == 9


@pytest.mark.skipif(TARGET == "bmv2", reason="not run: bmv2 ports have no settings")
def test_a_switch_that_comes_up_while_the_store_is_slow_gets_its_ports_settings(
    wires: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt to connect fails, and gRPC has made another one before there is a bid."""
    switch = Switch(wires)
    config = parse_switch(f"s1={switch.address}")
    assert isinstance(config, SwitchConfig)
    rows = by_key([port_row(PortRecord("1", PortSpec(fifo_bytes=20000)))])
    channels: list[Any] = []
    asked = asyncio.Event()
    opening = GuardedClient.open

    async def opened(self: GuardedClient, **options: Any) -> None:
        await opening(self, **options)
        channels.append(self.channel)

    class Slow(Leased):
        async def bid(self, above: int = 0) -> int:
            asked.set()
            while (state := channels[-1].get_state()) is not grpc.ChannelConnectivity.READY:
                await channels[-1].wait_for_state_change(state)
            return await super().bid(above)

    async def run() -> dict[int, int | None]:
        driver = P4Switch(config, COMPILED, DriverContext(lambda: rows, tenure=Slow()))
        running = asyncio.create_task(driver.run())
        await until(lambda: asked.is_set() or driver.last_error is not None)
        await asyncio.to_thread(switch.start)
        await until(lambda: driver.state is State.CONNECTED)
        running.cancel()
        async with grpc.aio.insecure_channel(switch.address) as channel:
            return {one.port: one.fifo_bytes for one in await TrafficManager(channel).ports()}

    monkeypatch.setattr(GuardedClient, "open", opened)
    try:
        sizes = asyncio.run(run())
    finally:
        switch.kill()
    assert sizes[1] == 20000


def test_a_connection_that_closes_under_a_task_of_its_session_is_made_anew(
    wires: Network, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is about to ask for the program; it finds no fault of the controller's."""
    switch = Switch(wires)
    config = parse_switch(f"s1={switch.address}")
    assert isinstance(config, SwitchConfig)
    asking = GuardedClient.request
    closed: list[GuardedClient] = []

    async def asked(self: GuardedClient, msg: Any) -> Any:
        if isinstance(msg, p4r.GetForwardingPipelineConfigRequest) and not closed:
            await self.close()
            closed.append(self)
        return await asking(self, msg)

    async def run() -> None:
        driver = P4Switch(config, COMPILED, DriverContext(dict, tenure=Leased()))
        running = asyncio.create_task(driver.run())
        await until(lambda: driver.state is State.CONNECTED)
        running.cancel()

    monkeypatch.setattr(GuardedClient, "request", asked)
    switch.start()
    try:
        asyncio.run(run())
    finally:
        switch.kill()
    assert len(closed) == 1
    assert "unexpected" not in caplog.text


def test_a_closed_client_says_so_whatever_it_is_asked_for() -> None:
    session: Any = SimpleNamespace(
        name="s1", address="127.0.0.1:1", options=SimpleNamespace(channel_credentials=None)
    )

    async def run() -> None:
        client = GuardedClient(session, Unfenced(), ())
        await client.open()
        await client.close()

        async def read() -> None:
            async for _ in client.request_iter(p4r.ReadRequest()):
                pass

        for work in (
            client.request(p4r.CapabilitiesRequest()),
            read(),
            client.send(p4r.StreamMessageRequest()),
            client.receive(),
        ):
            with pytest.raises(EndedError):
                await work

    asyncio.run(run())

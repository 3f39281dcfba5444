"""The parts of the simulation: its loop, network, RPC, and the models of etcd and switches."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import etcd as model
import grpc
import pytest
from aetcd import rpc
from clocks import simulated
from finsy.proto import U128, p4r
from loop import Process, SimulatedLoop
from network import Endpoint, Network
from pacer_controller.stores.etcd import client as etcd_client
from pacer_controller.stores.etcd.client import Access, CompactedError, EtcdClient, EtcdError
from rpc import AbortError, Core, Server, installed

from switch import Switch


def run(loop: SimulatedLoop, work: Callable[[], Awaitable[Any]], node: str = "client") -> Any:
    """Run a coroutine as the program of a node."""

    async def main() -> Any:
        return await work()

    return loop.run_until_complete(Process(loop, loop.node(node)).spawn(main()))


# ---- the loop ----


def test_a_process_that_ends_runs_nothing_more_not_even_finally(loop: SimulatedLoop) -> None:
    done: list[str] = []

    async def program() -> None:
        try:
            done.append("begun")
            await asyncio.sleep(10)
            done.append("not reached")
        finally:
            done.append("finally")

    process = Process(loop, loop.node("a"))
    process.spawn(program())
    loop.after(5, process.end)
    run(loop, lambda: asyncio.sleep(20))
    assert done == ["begun"]
    assert loop.now_s == 20


def test_a_paused_node_goes_on_later_and_time_has_passed(loop: SimulatedLoop) -> None:
    seen: list[float] = []

    async def program() -> None:
        await asyncio.sleep(1)
        seen.append(loop.now_s)

    node = loop.node("a")
    Process(loop, node).spawn(program())
    loop.after(0.5, loop.pause, node)
    loop.after(3, loop.resume, node)
    run(loop, lambda: asyncio.sleep(5))
    assert seen == [3]


def test_the_order_of_nodes_is_the_seed_s_and_that_within_a_node_is_kept() -> None:
    def order(seed: str) -> list[str]:
        loop, seen = SimulatedLoop(seed), list[str]()
        for name in ("a", "b"):
            process = Process(loop, loop.node(name))
            for n in range(8):
                process.post(seen.append, f"{name}{n}")
        run(loop, lambda: asyncio.sleep(1))
        loop.finish()
        return seen

    orders = {seed: order(seed) for seed in ("1", "2", "3")}
    assert order("1") == orders["1"]
    assert len({tuple(one) for one in orders.values()}) > 1
    for one in orders.values():
        assert [name for name in one if name[0] == "a"] == [f"a{n}" for n in range(8)]


def test_a_thread_s_work_is_an_event_of_its_node(loop: SimulatedLoop) -> None:
    async def work() -> tuple[int, float]:
        return await asyncio.to_thread(lambda: 6 * 7), loop.now_s

    result, when_s = run(loop, work)
    assert result == 42
    assert when_s > 0


def test_a_message_that_comes_before_its_connection_is_accepted_is_not_lost(
    loop: SimulatedLoop, network: Network
) -> None:
    """The kernel takes both while a program is paused."""
    got: list[Any] = []

    def accept(end: Endpoint) -> None:
        end.received = got.append

    async def work() -> None:
        server = Process(loop, loop.node("server"))
        network.listen(server, 1, accept)
        loop.pause(server.node)
        network.connect("server:1", lambda end: end.send("hello"), pytest.fail)
        await asyncio.sleep(5)
        assert not got
        loop.resume(server.node)
        await asyncio.sleep(1)
        assert got == ["hello"]

    run(loop, work)


# ---- the network ----


def _pair(loop: SimulatedLoop, network: Network) -> tuple[Endpoint, list[Any], list[str]]:
    """Connect two nodes; returns the client's end, the server's received messages, and its end."""
    received: list[Any] = []
    ended: list[str] = []
    ends: list[Endpoint] = []

    def accept(end: Endpoint) -> None:
        end.received, end.broken = received.append, ended.append

    network.listen(Process(loop, loop.node("server")), 1, accept)

    async def connect() -> None:
        network.connect("server:1", ends.append, ended.append)
        await asyncio.sleep(1)

    run(loop, connect)
    return ends[0], received, ended


def test_messages_arrive_in_order_and_what_a_cut_holds_up_arrives_later(
    loop: SimulatedLoop, network: Network
) -> None:
    end, received, _ = _pair(loop, network)
    client, server = loop.node("client"), loop.node("server")
    for n in range(20):
        end.send(n)
    loop.after(1, network.cut, client, server)
    for n in range(20, 30):
        loop.after(2, end.send, n)
    counts: list[int] = []
    loop.after(4, lambda: counts.append(len(received)))
    loop.after(5, network.mend, client, server)
    run(loop, lambda: asyncio.sleep(10), "other")
    assert counts == [20]
    assert received == list(range(30))


def test_the_end_of_a_process_is_heard_of_unless_its_node_is_off(
    loop: SimulatedLoop, network: Network
) -> None:
    end, _, ended = _pair(loop, network)
    end.process.end()
    run(loop, lambda: asyncio.sleep(1), "other")
    assert ended == ["reset by peer"]

    end, _, ended = _pair(loop, network)
    loop.node("client").powered = False
    end.process.end()
    run(loop, lambda: asyncio.sleep(60), "other")
    assert ended == []


# ---- RPC ----


async def _echo(request: Any, _: Any) -> Any:
    if request.key == b"refuse":
        raise AbortError(grpc.StatusCode.NOT_FOUND, "refused")
    if request.key == b"slow":
        await asyncio.sleep(10)
    return rpc.RangeResponse(count=len(request.key))


def _call(channel: Any, key: bytes, timeout_s: float = 5) -> Any:
    method = channel.unary_unary(
        "/etcdserverpb.KV/Range",
        request_serializer=rpc.RangeRequest.SerializeToString,
        response_deserializer=rpc.RangeResponse.FromString,
    )
    return method(rpc.RangeRequest(key=key), timeout=timeout_s)


def test_calls_are_answered_refused_and_given_up(loop: SimulatedLoop, network: Network) -> None:
    server = Process(loop, loop.node("server"))
    unary = {"Range": (rpc.RangeRequest, _echo)}
    server.context.run(lambda: Server(network, 1, unary, {}))

    async def work() -> list[Any]:
        channel = grpc.aio.insecure_channel("server:1")
        codes: list[Any] = [(await _call(channel, b"abc")).count]
        for key in (b"refuse", b"slow"):
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await _call(channel, key)
            codes.append(found.value.code())
        loop.after(0.5, server.end)
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await _call(channel, b"slow")
        codes.append(found.value.code())
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await _call(channel, b"nobody there")
        codes.append(found.value.code())
        await channel.close()
        with pytest.raises(grpc.aio.UsageError):
            _call(channel, b"closed")
        return codes

    code = grpc.StatusCode
    gone = [code.UNAVAILABLE, code.UNAVAILABLE]
    assert run(loop, work) == [3, code.NOT_FOUND, code.DEADLINE_EXCEEDED, *gone]


def test_a_keepalive_ends_a_call_that_nobody_will_answer(
    loop: SimulatedLoop, network: Network
) -> None:
    server = Process(loop, loop.node("server"))
    unary = {"Range": (rpc.RangeRequest, _echo)}
    server.context.run(lambda: Server(network, 1, unary, {}))

    async def work() -> float:
        options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000)]
        channel = grpc.aio.insecure_channel("server:1", options=options)
        await _call(channel, b"a")
        begun_s = loop.now_s
        network.cut(loop.node("server"), loop.node("client"))
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await _call(channel, b"b", 60)
        assert found.value.code() is grpc.StatusCode.UNAVAILABLE
        return loop.now_s - begun_s

    assert 1 <= run(loop, work) <= 2.1


# ---- etcd ----


@contextlib.asynccontextmanager
async def _client(cluster: model.Cluster) -> Any:
    client = EtcdClient(Access(cluster.endpoints.split(",")))
    try:
        yield client
    finally:
        await client.close()


def test_a_transaction_compares_and_a_lease_takes_its_keys_along(
    loop: SimulatedLoop, cluster: model.Cluster
) -> None:
    async def work() -> None:
        async with _client(cluster) as client:
            lease = await client.grant(3)
            put = [etcd_client.put("/a", "1", lease)]
            first = await client.transact([etcd_client.absent("/a")], put)
            assert first.succeeded
            revision = first.header.revision
            again = await client.transact([etcd_client.absent("/a")], put, [etcd_client.get("/a")])
            assert not again.succeeded
            assert again.responses[0].response_range.kvs[0].mod_revision == revision
            for _ in range(4):
                await asyncio.sleep(1)
                assert await client.keep_alive(lease, 1) == 3
            assert (await client.range("/a")).count == 1
            await asyncio.sleep(4)
            assert (await client.range("/a")).count == 0
            assert await client.keep_alive(lease, 1) == 0

    run(loop, work)


def test_a_watch_tells_all_from_its_revision_on_and_says_what_is_compacted(
    loop: SimulatedLoop, cluster: model.Cluster
) -> None:
    async def work() -> None:
        async with _client(cluster) as client:
            for n in range(5):
                await client.transact([], [etcd_client.put("/p/k", str(n))])
            seen = []
            async for answer in client.watch("/p/", 3):
                seen += [int(event.kv.value) for event in answer.events]
                if len(seen) == 4:
                    break
            assert seen == [1, 2, 3, 4]
            cluster.compact(0)
            with pytest.raises(CompactedError):
                async for _ in client.watch("/p/", 3):
                    pass
            with pytest.raises(EtcdError):
                await client.range("/p/", "/p0", revision=3)

    run(loop, work)


def test_a_minority_answers_nothing_and_a_majority_elects_a_leader(
    loop: SimulatedLoop, network: Network, cluster: model.Cluster
) -> None:
    nodes = [member.node for member in cluster.members]

    def isolate(one: Any) -> None:
        for other in nodes:
            if other is not one:
                network.cut(one, other)
                network.cut(other, one)

    async def work() -> None:
        lonely = EtcdClient(Access([f"e0:{model.PORT}"]))
        others = EtcdClient(Access([f"e1:{model.PORT}", f"e2:{model.PORT}"]))
        await lonely.transact([], [etcd_client.put("/a", "1")])
        isolate(nodes[0])
        await asyncio.sleep(4)
        with pytest.raises(EtcdError):
            await lonely.transact([], [etcd_client.put("/a", "2")])
        await others.transact([], [etcd_client.put("/a", "3")])
        assert cluster.value("/a") == b"3"
        await lonely.close()
        await others.close()

    run(loop, work)


def test_a_change_whose_leader_has_gone_may_still_be_made_after_nobody_has_answered() -> None:
    """Over seeds, all three outcomes are seen: made, made late, never made."""
    outcomes = set()
    for seed in range(60):
        loop = SimulatedLoop(str(seed))
        with simulated(loop, str(seed)):
            network = Network(loop, str(seed))
            cluster = model.Cluster(loop, network, str(seed))

            async def work(cluster: Any = cluster, loop: Any = loop) -> str:
                async with _client(cluster) as client:
                    await client.transact([], [etcd_client.put("/a", "1")])
                    loop.after(0.004, cluster.members[0].node.process.end)
                    with contextlib.suppress(EtcdError):
                        await client.transact([], [etcd_client.put("/a", "2")])
                        return "made"
                    early = cluster.value("/a") == b"2"
                    await asyncio.sleep(10)
                    late = cluster.value("/a") == b"2"
                    return "unanswered" if early else "late" if late else "never"

            with installed(Core(network)):
                outcomes.add(run(loop, work))
        loop.finish()
    assert outcomes >= {"late", "never"}


def test_a_member_that_was_stopped_makes_what_its_client_has_given_up(
    loop: SimulatedLoop, cluster: model.Cluster
) -> None:
    async def work() -> None:
        async with _client(cluster) as client:
            client._at = 1
            await client.transact([], [etcd_client.put("/a", "1")])
            loop.pause(cluster.members[1].node)
            with pytest.raises(EtcdError) as found:
                await client.transact([], [etcd_client.put("/a", "late")])
            assert not found.value.certain
            await client.transact([], [etcd_client.put("/a", "2")])
            await asyncio.sleep(5)
            assert cluster.value("/a") == b"2"
            loop.resume(cluster.members[1].node)
            await asyncio.sleep(1)
            assert cluster.value("/a") == b"late"

    run(loop, work)


# ---- the switch ----


class _Controller:
    """A stream to a switch."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.stream: Any = channel.stream_stream(
            "/p4.v1.P4Runtime/StreamChannel",
            request_serializer=p4r.StreamMessageRequest.SerializeToString,
            response_deserializer=p4r.StreamMessageResponse.FromString,
        )()

    async def bid(self, election_id: int) -> tuple[int, int]:
        """Bid; returns the status and the highest id."""
        update = p4r.MasterArbitrationUpdate(election_id=U128.encode(election_id))
        await self.stream.write(p4r.StreamMessageRequest(arbitration=update))
        return await self.told()

    async def told(self) -> tuple[int, int]:
        """Return the switch's next message."""
        answer = (await self.stream.read()).arbitration
        return answer.status.code, U128.decode(answer.election_id)

    async def write(self, election_id: int) -> Any:
        """Set an empty pipeline."""
        call = self._channel.unary_unary(
            "/p4.v1.P4Runtime/SetForwardingPipelineConfig",
            request_serializer=p4r.SetForwardingPipelineConfigRequest.SerializeToString,
            response_deserializer=p4r.SetForwardingPipelineConfigResponse.FromString,
        )
        election = U128.encode(election_id)
        return await call(p4r.SetForwardingPipelineConfigRequest(election_id=election), timeout=5)


def test_a_switch_takes_writes_of_the_highest_id_only_and_remembers_it(
    loop: SimulatedLoop, network: Network
) -> None:
    switch = Switch(loop, network, "s0", "test")

    async def work() -> None:
        channel = grpc.aio.insecure_channel(switch.settings["address"])
        one, two = _Controller(channel), _Controller(channel)
        assert await one.bid(5) == (0, 5)
        await one.write(5)
        assert await two.bid(4) == (6, 5)
        assert await two.bid(7) == (0, 7)
        assert await one.told() == (6, 7)
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await one.write(5)
        assert found.value.code() is grpc.StatusCode.PERMISSION_DENIED
        two.stream.cancel()
        assert await one.told() == (5, 7)
        assert await one.bid(6) == (5, 7)
        assert await one.bid(8) == (0, 8)
        three = _Controller(channel)
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await three.bid(8)
        assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert [one.election_id for one in switch.accepted] == [5]
        await channel.close()

    run(loop, work)


def test_a_transaction_that_reads_a_compacted_revision_is_refused_as_a_whole(
    loop: SimulatedLoop, cluster: model.Cluster
) -> None:
    async def work() -> None:
        client = EtcdClient(Access(cluster.endpoints.split(",")))
        for value in "abc":
            await client.transact([], [etcd_client.put("/k", value)])
        cluster.compact(0)
        reads = [etcd_client.get("/k", 3)]
        for asked in (reads, [etcd_client.put("/other", "1"), *reads]):
            with pytest.raises(CompactedError):
                await client.transact([], asked)
        assert cluster.value("/other") is None
        await client.close()

    run(loop, work)

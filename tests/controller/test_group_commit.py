"""Transactions that are asked for at the same time: made as one, each with its own answer."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from aetcd import rpc

from pacer_controller.stores.etcd import client as etcd
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError
from pacer_controller.stores.etcd.group_commit import Answer, GroupCommit, Transaction


class Client:
    """Takes transactions, each when it is let; answers that each nested one succeeded."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails: dict[int, EtcdError] = {}
        self.go = asyncio.Event()

    async def transact(self, compare: Any, success: Sequence[Any], failure: Any = ()) -> Any:
        """Answer, or fail as this call is to."""
        number = len(self.asked)
        first = [
            one.request_txn.success[0] if one.HasField("request_txn") else one for one in success
        ]
        self.asked.append([one.request_put.key.decode() for one in first])
        await self.go.wait()
        if number in self.fails:
            raise self.fails[number]
        answers = [rpc.ResponseOp(response_txn=rpc.TxnResponse(succeeded=True)) for _ in success]
        header = rpc.ResponseHeader(revision=number + 10)
        return rpc.TxnResponse(header=header, succeeded=True, responses=answers)


def transaction(name: str, *, operations: int = 1, events: int = 0) -> Transaction:
    def success(before: int) -> list[Any]:
        return [etcd.put(f"{name}@{before}", "x") for _ in range(operations)]

    return Transaction([], success, changes={name}, events=events)


async def made(client: Client, asked: Sequence[Transaction]) -> list[Answer | BaseException]:
    """Ask for a first one, and for the others while it is under way."""
    commits = GroupCommit(cast("EtcdClient", client))
    tasks = [asyncio.create_task(commits.make(transaction("first")))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(commits.make(one)) for one in asked]
    await asyncio.sleep(0)
    client.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def run(client: Client, asked: Sequence[Transaction]) -> list[Any]:
    return asyncio.run(made(client, asked))


def test_what_waits_becomes_the_next_transaction() -> None:
    client = Client()
    answers = run(client, [transaction("a", events=3), transaction("b", events=2)])
    assert client.asked == [["first@0"], ["a@0", "b@3"]]
    assert [one.revision for one in answers] == [10, 11, 11]


def test_two_that_change_the_same_go_one_after_the_other() -> None:
    client = Client()
    run(client, [transaction("a"), transaction("a"), transaction("b")])
    assert client.asked[1:] == [["a@0"], ["a@0", "b@0"]]


@pytest.mark.parametrize("one", [{"operations": 117}, {"events": 600}])
def test_no_more_than_etcd_takes_and_numbers_there_are(one: dict[str, int]) -> None:
    client = Client()
    run(client, [transaction(name, **one) for name in "abc"])
    assert len(client.asked) > 2
    assert all(len(names) < 121 for names in client.asked)


def test_of_a_group_that_is_refused_each_is_made_alone() -> None:
    client = Client()
    client.fails = {1: EtcdError("too much", certain=True), 3: EtcdError("bad", certain=True)}
    answers = run(client, [transaction("a"), transaction("b"), transaction("c")])
    assert client.asked[1:] == [["a@0", "b@0", "c@0"], ["a@0"], ["b@0"], ["c@0"]]
    assert [type(one) for one in answers] == [Answer, Answer, EtcdError, Answer]


def test_of_a_group_without_an_answer_none_is_made_again() -> None:
    client = Client()
    client.fails = {1: EtcdError("lost", certain=False)}
    answers = run(client, [transaction("a"), transaction("b")])
    assert len(client.asked) == 2
    assert [isinstance(one, EtcdError) and one.certain for one in answers[1:]] == [False, False]


def test_what_nobody_waits_for_any_longer_is_not_sent() -> None:
    client = Client()

    async def work() -> None:
        commits = GroupCommit(cast("EtcdClient", client))
        first = asyncio.create_task(commits.make(transaction("first")))
        await asyncio.sleep(0)
        gone = asyncio.create_task(commits.make(transaction("gone")))
        kept = asyncio.create_task(commits.make(transaction("kept")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        client.go.set()
        await asyncio.gather(first, kept)

    asyncio.run(work())
    assert client.asked == [["first@0"], ["kept@0"]]


def test_a_transaction_that_cannot_be_planned_fails_alone() -> None:
    def wrong(_: int) -> list[Any]:
        raise KeyError("wrong")

    client = Client()
    asked = [transaction("a"), Transaction([], wrong, changes={"b"}), transaction("c")]

    async def work() -> list[Answer | BaseException]:
        async with asyncio.timeout(10):
            return await made(client, asked)

    answers = asyncio.run(work())
    assert [type(one) for one in answers] == [Answer, Answer, KeyError, Answer]
    assert client.asked == [["first@0"], ["a@0", "c@0"]]


@pytest.mark.parametrize(
    ("code", "details", "certain"),
    [
        ("INVALID_ARGUMENT", "etcdserver: request is too large", True),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", True),
        ("PERMISSION_DENIED", "etcdserver: permission denied", True),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", True),
        # gRPC has these for streams that HTTP/2 resets, and for an answer that is too large.
        ("RESOURCE_EXHAUSTED", "Received message larger than max", False),
        ("INTERNAL", "Received RST_STREAM with error code 2", False),
        ("UNKNOWN", "Stream removed", False),
        ("UNIMPLEMENTED", "", False),
        ("DATA_LOSS", "etcdserver: corrupt cluster", False),
        ("UNAVAILABLE", "etcdserver: request timed out", False),
    ],
)
def test_only_what_etcd_itself_refuses_is_certainly_not_made(
    code: str, details: str, certain: bool
) -> None:
    class Stub:
        async def Txn(self, *_: Any, **__: Any) -> Any:  # noqa: N802 (gRPC's name)
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode[code], nothing, nothing, details)

    async def work() -> None:
        client = EtcdClient(etcd.Access(["127.0.0.1:1"]))
        _, member = client._member()
        member.kv = Stub()
        with pytest.raises(EtcdError) as failed:
            await client.transact([], [])
        await client.close()
        assert failed.value.certain is certain

    asyncio.run(work())

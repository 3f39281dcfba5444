"""A model of an etcd cluster of three members, behind the gRPC interface that clients see.

It is a model of etcd's guarantees, and no implementation of Raft: one history of revisions, and
rules for when the next one can be made. A change is made at one instant between request and answer,
if the leader reaches a majority then. Otherwise the change is lost or made later, up to LATE_S, and
no client learns which. A member that was stopped carries out what has reached it when it goes on,
although its clients have given that up. In some clusters, a member also ends a stream in place of
the answer. Members learn of changes with a delay and feed their watches from the revisions that
they know; a member without a leader refuses. Leases run by the leader's clock, and a new leader
gives all of them their whole time again, as etcd does.

Not modelled: authentication, and reads that are not linearizable, which the product does not make.
Sources: etcd 3.5, server/etcdserver/apply.go, server/mvcc/watchable_store.go, server/lease.
"""

import asyncio
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from aetcd import rpc
from loop import Node, Process, SimulatedLoop
from network import Network
from rpc import AbortError, Server, ServerCall

PORT = 2379

ELECTION_S = (1.0, 2.0)
"""Time for which a majority is without a leader before it elects another."""

REQUEST_S = 5.0
"""Longest wait of a member for its own request to be committed."""

LATE_S = 4.0
"""Longest delay of a change whose leader has gone."""

TICK_S = 0.1
OPERATIONS_MOST = 128
BATCH_REVISIONS = 1000

RESETTING = 0.25
"""Share of the clusters whose members end streams of requests that they have carried out."""

RESET = 0.02
"""Share of such requests."""

FSYNC_S = 0.002


@dataclass
class _Lease:
    """A lease, and its keys."""

    ttl_s: int
    ends_s: float
    ending: bool = False
    keys: dict[bytes, None] = field(default_factory=dict)


@dataclass
class Commit:
    """A revision: its time, its changes, and their keys."""

    revision: int
    at_s: float
    events: list[Any]
    keys: list[bytes]


@dataclass(frozen=True)
class _Path:
    """The path of a transaction: whether its comparisons hold, and the operations of the branch."""

    succeeded: bool
    operations: Sequence[tuple[Any, "_Path | None"]]


@dataclass
class _Watcher:
    """One watch of a stream."""

    number: int
    key: bytes
    end: bytes
    following: int


class _Member:
    """The state of one member."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.applied = 1
        self.alone_s = 0.0
        """The time for which it has had no leader; none passes while it is stopped."""
        self.streams: dict[ServerCall, dict[int, _Watcher]] = {}
        self.server: Server | None = None


class Cluster:
    """The cluster.

    Args:
        loop: the simulation.
        network: the network between the members, and to clients.
        seed: the seed of delays and elections.

    Attributes:
        commits: the history.
        observers: called with each revision at the instant at which it is made.

    """

    def __init__(self, loop: SimulatedLoop, network: Network, seed: str) -> None:
        self._loop = loop
        self._network = network
        self._chance = random.Random(f"{seed}/etcd")
        resets = random.Random(f"{seed}/etcd resets")
        self._resets = resets if resets.random() < RESETTING else None
        rate = self._chance.choice((1.0, 1.0, 0.98, 1.02))
        self.members = [_Member(loop.node(f"e{n}", rate)) for n in range(3)]
        self.revision = 1
        self.compacted = 0
        self.kvs: dict[bytes, Any] = {}
        self._past: dict[bytes, list[Any]] = {}
        self._leases: dict[int, _Lease] = {}
        self.commits: list[Commit] = []
        self.observers: list[Callable[[Commit], None]] = []
        self.leader: _Member | None = self.members[0]
        self._leaderless_s: float | None = None
        self._patience_s = self._chance.uniform(*ELECTION_S)
        self.endpoints = ",".join(f"{one.node.name}:{PORT}" for one in self.members)
        for one in self.members:
            self.start(one.node)
        loop.after(TICK_S, self._tick)

    # ---- members ----

    def _member(self, node: Node) -> _Member:
        return next(one for one in self.members if one.node is node)

    def start(self, node: Node) -> None:
        """Start a member, which still has its disk's content."""
        member = self._member(node)
        process = Process(self._loop, node)
        process.context.run(self._serve, member)

    def _serve(self, member: _Member) -> None:
        def unary(method: Any) -> Any:
            async def answered(request: Any, call: ServerCall) -> Any:
                self._check_leader(member)
                return await method(member, request)

            return answered

        async def watch(call: ServerCall) -> None:
            await self._watch(member, call)

        async def keep_alive(call: ServerCall) -> None:
            await self._keep_alive(member, call)

        member.streams = {}
        member.server = Server(
            self._network,
            PORT,
            {
                "Range": (rpc.RangeRequest, unary(self._range)),
                "Txn": (rpc.TxnRequest, unary(self._txn)),
                "LeaseGrant": (rpc.LeaseGrantRequest, unary(self._grant)),
                "LeaseRevoke": (rpc.LeaseRevokeRequest, unary(self._revoke)),
            },
            {
                "Watch": (rpc.WatchRequest, watch),
                "LeaseKeepAlive": (rpc.LeaseKeepAliveRequest, keep_alive),
            },
        )

    @staticmethod
    def _runs(member: _Member) -> bool:
        return member.node.process is not None and not member.node.paused

    def _reach(self, one: _Member, other: _Member) -> bool:
        """Whether two members hear each other."""
        if not (self._runs(one) and self._runs(other)):
            return False
        return one is other or not (
            self._network.is_cut(one.node, other.node) or self._network.is_cut(other.node, one.node)
        )

    def _majority(self, member: _Member) -> bool:
        return sum(self._reach(member, other) for other in self.members) >= 2

    def _led(self, member: _Member) -> bool:
        """Whether a member hears a leader that has a majority."""
        leader = self.leader
        return leader is not None and self._reach(member, leader) and self._majority(leader)

    def _tick(self) -> None:
        self._loop.after(TICK_S, self._tick)
        now_s = self._loop.now_s
        if self.leader is None or not self._majority(self.leader):
            if self._leaderless_s is None:
                self._leaderless_s = now_s
                self._patience_s = self._chance.uniform(*ELECTION_S)
            elif now_s - self._leaderless_s > self._patience_s:
                self._elect()
        else:
            self._leaderless_s = None
            self._expire(self.leader)
        for member in self.members:
            if self._led(member):
                member.alone_s = 0.0
                self._learn(member)
            elif not member.node.paused:
                member.alone_s += TICK_S
                if member.alone_s > ELECTION_S[1] and self._runs(member):
                    for call in list(member.streams):
                        call.finish(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")

    def _elect(self) -> None:
        able = [one for one in self.members if self._majority(one)]
        if not able:
            return
        self.leader = self._chance.choice(able)
        self._leaderless_s = None
        self._loop.note(f"etcd: {self.leader.node} leads")
        for lease in self._leases.values():
            lease.ending, lease.ends_s = False, self._clock_s(self.leader) + lease.ttl_s

    def _clock_s(self, leader: _Member) -> float:
        return self._loop.now_s * leader.node.rate

    def _expire(self, leader: _Member) -> None:
        now_s = self._clock_s(leader)
        for number, lease in list(self._leases.items()):
            if lease.ends_s < now_s:
                # The change is on its way; it is asked for again if it gets lost.
                lease.ending, lease.ends_s = True, now_s + 1.0
                self._propose(functools.partial(self._end_lease, number), None)

    @staticmethod
    def _check_leader(member: _Member) -> None:
        if member.alone_s > ELECTION_S[1]:
            raise AbortError(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")

    # ---- changes ----

    def _propose(self, change: Callable[[], Any], done: Callable[[Any], None] | None) -> None:
        """Have a change made a moment later, if the leader still has a majority then."""
        leader = self.leader
        wait_s = self._chance.expovariate(1 / FSYNC_S) + 2 * self._network.mean_s

        def commit(late: bool) -> None:
            able = self.leader is not None and self._majority(self.leader)
            if able and (late or self.leader is leader):
                result = change()
                if done is not None:
                    done(result)
            elif self._loop.now_s - begun_s < LATE_S and (late or self._chance.random() < 0.5):
                # A follower may have it: the next leader makes it. Else it is lost.
                self._loop.after(self._chance.uniform(0.05, 1.0), commit, True)

        begun_s = self._loop.now_s
        self._loop.after(wait_s, commit, False)

    async def _made(self, member: _Member, change: Callable[[], Any]) -> Any:
        """Make a change for a client, and wait until the member knows of it."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        await self._forwarded(member)

        def made(result: Any) -> None:
            if not future.done():
                future.set_result(result)

        self._propose(change, made)
        try:
            async with asyncio.timeout(REQUEST_S):
                result = await future
                while member.applied < self.revision and not self._led(member):
                    await asyncio.sleep(TICK_S)
        except TimeoutError:
            text = "etcdserver: request timed out"
            raise AbortError(grpc.StatusCode.UNAVAILABLE, text) from None
        self._learn(member)
        if isinstance(result, AbortError):
            raise result
        if self._resets is not None and self._resets.random() < RESET:
            # As gRPC reports a stream that HTTP/2 resets.
            raise AbortError(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2")
        return result

    async def _forwarded(self, member: _Member) -> None:
        """Wait until the member has a leader."""
        try:
            async with asyncio.timeout(REQUEST_S):
                while not self._led(member):
                    await asyncio.sleep(TICK_S)
        except TimeoutError:
            text = "etcdserver: request timed out"
            raise AbortError(grpc.StatusCode.UNAVAILABLE, text) from None
        if member is not self.leader:
            await asyncio.sleep(self._chance.expovariate(1 / self._network.mean_s))

    def _write(self, events: Sequence[Any]) -> None:
        for event in events:
            kv = event.kv
            former = self.kvs.get(kv.key)
            if former is not None and former.lease:
                lease = self._leases.get(former.lease)
                if lease is not None:
                    lease.keys.pop(kv.key, None)
            self._past.setdefault(kv.key, []).append(event)
            if event.type == rpc.Event.DELETE:
                self.kvs.pop(kv.key, None)
            else:
                self.kvs[kv.key] = kv
                if kv.lease:
                    self._leases[kv.lease].keys[kv.key] = None

    def _commit(self, events: list[Any]) -> None:
        """Make a revision of the changes, if there are any."""
        if not events:
            return
        self.revision += 1
        made = Commit(self.revision, self._loop.now_s, events, [one.kv.key for one in events])
        self.commits.append(made)
        self._loop.note(f"etcd: revision {self.revision}: {_shown(events)}")
        for observer in self.observers:
            observer(made)
        for member in self.members:
            self._loop.after(self._network.delay(member.node, member.node), self._learn, member)

    def _put_event(self, key: bytes, value: bytes, lease: int, revision: int) -> Any:
        former = self.kvs.get(key)
        kv = rpc.KeyValue(
            key=key,
            value=value,
            lease=lease,
            mod_revision=revision,
            create_revision=former.create_revision if former is not None else revision,
            version=former.version + 1 if former is not None else 1,
        )
        return rpc.Event(type=rpc.Event.PUT, kv=kv)

    @staticmethod
    def _delete_event(key: bytes, revision: int) -> Any:
        return rpc.Event(type=rpc.Event.DELETE, kv=rpc.KeyValue(key=key, mod_revision=revision))

    def _header(self) -> Any:
        return rpc.ResponseHeader(revision=self.revision, raft_term=1)

    # ---- keys ----

    def _selected(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self.kvs else []
        return sorted(one for one in self.kvs if _within(one, key, end))

    def _at(self, key: bytes, end: bytes, revision: int) -> list[Any]:
        """Return the keys at a revision."""
        found = []
        for one in sorted(self._past):
            if not (_within(one, key, end) if end else one == key):
                continue
            events = [e for e in self._past[one] if e.kv.mod_revision <= revision]
            if events and events[-1].type == rpc.Event.PUT:
                found.append(events[-1].kv)
        return found

    def _unreadable(self, request: Any) -> AbortError | None:
        """Return the refusal of a range; None: it can be read."""
        if request.revision > self.revision:
            text = "etcdserver: mvcc: required revision is a future revision"
            return AbortError(grpc.StatusCode.OUT_OF_RANGE, text)
        if 0 < request.revision < self.compacted:
            text = "etcdserver: mvcc: required revision has been compacted"
            return AbortError(grpc.StatusCode.OUT_OF_RANGE, text)
        return None

    def _read(self, request: Any) -> Any:
        if request.revision and request.revision != self.revision:
            kvs = self._at(request.key, request.range_end, request.revision)
        else:
            kvs = [self.kvs[key] for key in self._selected(request.key, request.range_end)]
        if request.sort_order != rpc.RangeRequest.NONE:
            descends = request.sort_order == rpc.RangeRequest.DESCEND
            kvs = sorted(kvs, key=_SORTED_BY[request.sort_target], reverse=descends)
        shown = kvs[: request.limit] if request.limit else kvs
        return rpc.RangeResponse(
            header=self._header(), kvs=shown, count=len(kvs), more=len(shown) < len(kvs)
        )

    async def _range(self, member: _Member, request: Any) -> Any:
        await self._forwarded(member)
        await asyncio.sleep(2 * self._network.mean_s)
        await self._forwarded(member)
        refused = self._unreadable(request)
        if refused is not None:
            raise refused
        return self._read(request)

    async def _txn(self, member: _Member, request: Any) -> Any:
        _check_operations(request, OPERATIONS_MOST)
        _put_keys(request)
        if not any(_writes(one) for one in (*request.success, *request.failure)):
            # Read by a majority's leave, as a range is.
            await self._forwarded(member)
            await asyncio.sleep(2 * self._network.mean_s)
            await self._forwarded(member)
            answer = self._transact(request)
            if isinstance(answer, AbortError):
                raise answer
            return answer
        return await self._made(member, lambda: self._transact(request))

    def _transact(self, request: Any) -> Any:
        revision = self.revision + 1
        # All that is compared is as it was before any of the operations, also of nested ones. An
        # operation that cannot be done refuses the transaction before any of them is.
        path = self._path(request)
        puts = [one.request_put for one in _carried_out(path) if one.HasField("request_put")]
        if any(put.lease and put.lease not in self._leases for put in puts):
            text = "etcdserver: requested lease not found"
            return AbortError(grpc.StatusCode.NOT_FOUND, text)
        for one in _carried_out(path):
            refused = self._unreadable(one.request_range) if one.HasField("request_range") else None
            if refused is not None:
                return refused
        events: list[Any] = []
        answer = self._carry_out(path, revision, events)
        self._commit(events)
        answer.header.CopyFrom(self._header())
        return answer

    def _path(self, request: Any) -> _Path:
        """Return the operations that a transaction does."""
        succeeded = all(map(self._holds, request.compare))
        operations = request.success if succeeded else request.failure
        return _Path(
            succeeded,
            [
                (one, self._path(one.request_txn) if one.HasField("request_txn") else None)
                for one in operations
            ],
        )

    def _carry_out(self, path: _Path, revision: int, events: list[Any]) -> Any:
        """Do the operations of a transaction; adds the changes, and returns the answer."""
        responses = []
        for one, nested in path.operations:
            made: list[Any] = []
            if nested is not None:
                said = self._carry_out(nested, revision, events)
                responses.append(rpc.ResponseOp(response_txn=said))
                continue
            if one.HasField("request_put"):
                put = one.request_put
                former = self.kvs.get(put.key) if put.prev_kv else None
                made = [self._put_event(put.key, put.value, put.lease, revision)]
                answer = rpc.ResponseOp(response_put=rpc.PutResponse(prev_kv=former))
            elif one.HasField("request_delete_range"):
                drop = one.request_delete_range
                keys = self._selected(drop.key, drop.range_end)
                made = [self._delete_event(key, revision) for key in keys]
                deleted = rpc.DeleteRangeResponse(deleted=len(keys))
                answer = rpc.ResponseOp(response_delete_range=deleted)
            else:
                answer = rpc.ResponseOp(response_range=self._read(one.request_range))
            self._write(made)
            events += made
            responses.append(answer)
        return rpc.TxnResponse(succeeded=path.succeeded, responses=responses)

    def _holds(self, compare: Any) -> bool:
        keys = self._selected(compare.key, compare.range_end)
        if not keys and compare.target == rpc.Compare.VALUE:
            return False
        kvs = [self.kvs[key] for key in keys] or [rpc.KeyValue()]
        return all(_compared(compare, kv) for kv in kvs)

    # ---- leases ----

    async def _grant(self, member: _Member, request: Any) -> Any:
        number = request.ID or self._chance.getrandbits(62)

        def change() -> Any:
            leader = self.leader
            assert leader is not None
            ends_s = self._clock_s(leader) + request.TTL
            self._leases[number] = _Lease(request.TTL, ends_s)
            return rpc.LeaseGrantResponse(header=self._header(), ID=number, TTL=request.TTL)

        return await self._made(member, change)

    async def _revoke(self, member: _Member, request: Any) -> Any:
        return await self._made(member, lambda: self._end_lease(request.ID))

    def _end_lease(self, number: int) -> Any:
        lease = self._leases.get(number)
        if lease is None:
            text = "etcdserver: requested lease not found"
            return AbortError(grpc.StatusCode.NOT_FOUND, text)
        events = [self._delete_event(key, self.revision + 1) for key in sorted(lease.keys)]
        self._write(events)
        del self._leases[number]
        self._commit(events)
        return rpc.LeaseRevokeResponse(header=self._header())

    async def _keep_alive(self, member: _Member, call: ServerCall) -> None:
        async for request in call.requests():
            await self._forwarded(member)
            lease, leader = self._leases.get(request.ID), self.leader
            ttl_s = 0
            if lease is not None and leader is not None and not lease.ending:
                lease.ends_s = self._clock_s(leader) + lease.ttl_s
                ttl_s = lease.ttl_s
            call.send(rpc.LeaseKeepAliveResponse(header=self._header(), ID=request.ID, TTL=ttl_s))

    # ---- watches ----

    async def _watch(self, member: _Member, call: ServerCall) -> None:
        self._check_leader(member)
        if call.ended:
            # The member was stopped while its client gave the watch up.
            return
        watchers: dict[int, _Watcher] = {}
        member.streams[call] = watchers
        call.at_end.append(lambda: member.streams.pop(call, None))
        async for request in call.requests():
            if request.HasField("create_request"):
                self._create(member, call, watchers, request.create_request)
            elif request.HasField("cancel_request"):
                watchers.pop(request.cancel_request.watch_id, None)
            else:
                self._flush(member, call)
                header = rpc.ResponseHeader(revision=member.applied)
                call.send(rpc.WatchResponse(header=header, watch_id=-1))

    def _create(
        self, member: _Member, call: ServerCall, watchers: dict[int, _Watcher], create: Any
    ) -> None:
        number = len(watchers)
        header = rpc.ResponseHeader(revision=member.applied)
        call.send(rpc.WatchResponse(header=header, watch_id=number, created=True))
        start = create.start_revision or member.applied + 1
        if start <= self.compacted:
            call.send(
                rpc.WatchResponse(
                    header=header, watch_id=number, canceled=True, compact_revision=self.compacted
                )
            )
            return
        watchers[number] = _Watcher(number, create.key, create.range_end, start)
        self._flush(member, call)

    def _learn(self, member: _Member) -> None:
        """Bring a member to the cluster's revision, and feed its watches."""
        if member.applied < self.revision and self._led(member):
            member.applied = self.revision
            for call in list(member.streams):
                self._flush(member, call)

    def _flush(self, member: _Member, call: ServerCall) -> None:
        for watcher in member.streams.get(call, {}).values():
            if watcher.following > member.applied:
                continue
            first = self.commits[0].revision if self.commits else 0
            begin = max(0, watcher.following - first)
            events: list[Any] = []
            for commit in self.commits[begin : member.applied - first + 1]:
                for event, key in zip(commit.events, commit.keys, strict=True):
                    if watcher_has(watcher, key):
                        events.append(event)
            watcher.following = member.applied + 1
            header = rpc.ResponseHeader(revision=member.applied)
            # Cut anywhere between two revisions.
            while events:
                most = self._chance.randint(1, BATCH_REVISIONS)
                chunk = _whole_revisions(events, most)
                events = events[len(chunk) :]
                call.send(rpc.WatchResponse(header=header, watch_id=watcher.number, events=chunk))

    def compact(self, behind: int) -> None:
        """Forget all revisions but the last `behind`."""
        self.compacted = max(self.compacted, self.revision - behind)
        self._loop.note(f"etcd: compacted to revision {self.compacted}")

    # ---- for invariants ----

    def value(self, key: str) -> bytes | None:
        """Return the present value of a key."""
        kv = self.kvs.get(key.encode())
        return bytes(kv.value) if kv is not None else None


def _shown(events: Sequence[Any]) -> str:
    shown = [("-" if one.type else "") + one.kv.key.decode() for one in events[:4]]
    return " ".join(shown) + (f" and {len(events) - 4} more" if len(events) > 4 else "")


def watcher_has(watcher: _Watcher, key: bytes) -> bool:
    """Whether a key is of a watch."""
    return _within(key, watcher.key, watcher.end) if watcher.end else key == watcher.key


_SORTED_BY: dict[int, Callable[[Any], Any]] = {
    rpc.RangeRequest.KEY: lambda kv: kv.key,
    rpc.RangeRequest.VERSION: lambda kv: kv.version,
    rpc.RangeRequest.CREATE: lambda kv: kv.create_revision,
    rpc.RangeRequest.MOD: lambda kv: kv.mod_revision,
    rpc.RangeRequest.VALUE: lambda kv: kv.value,
}


def _within(key: bytes, start: bytes, end: bytes) -> bool:
    return key >= start and (end == b"\0" or key < end)


def _writes(operation: Any) -> bool:
    if operation.HasField("request_txn"):
        nested = operation.request_txn
        return any(_writes(one) for one in (*nested.success, *nested.failure))
    return bool(operation.HasField("request_put") or operation.HasField("request_delete_range"))


def _check_operations(request: Any, most: int) -> None:
    """Count operations as etcd does (checkTxnRequest in server/etcdserver/api/v3rpc/key.go).

    Raises:
        AbortError: there are too many.

    """
    longest = max(map(len, (request.compare, request.success, request.failure)))
    if longest > most:
        text = "etcdserver: too many operations in txn request"
        raise AbortError(grpc.StatusCode.INVALID_ARGUMENT, text)
    for one in (*request.success, *request.failure):
        if one.HasField("request_txn"):
            _check_operations(one.request_txn, most - longest)


def _put_keys(request: Any) -> set[bytes]:
    """Return the keys that a transaction may put (checkIntervals, same file).

    Raises:
        AbortError: it may put one twice.

    """
    found: set[bytes] = set()
    for operations in (request.success, request.failure):
        keys: list[bytes] = []
        for one in operations:
            if one.HasField("request_put"):
                keys.append(one.request_put.key)
            elif one.HasField("request_txn"):
                keys += _put_keys(one.request_txn)
        if len(set(keys)) < len(keys):
            text = "etcdserver: duplicate key given in txn request"
            raise AbortError(grpc.StatusCode.INVALID_ARGUMENT, text)
        found.update(keys)
    return found


def _carried_out(path: _Path) -> Iterator[Any]:
    """Yield the operations that a transaction does, also those of nested ones."""
    for one, nested in path.operations:
        if nested is None:
            yield one
        else:
            yield from _carried_out(nested)


def _whole_revisions(events: Sequence[Any], most: int) -> list[Any]:
    """Return the first events, of at most this number of whole revisions."""
    seen = 0
    last = -1
    chunk = []
    for event in events:
        if event.kv.mod_revision != last:
            seen, last = seen + 1, event.kv.mod_revision
            if seen > most:
                break
        chunk.append(event)
    return chunk


def _compared(compare: Any, kv: Any) -> bool:
    have, want = {
        rpc.Compare.VERSION: (kv.version, compare.version),
        rpc.Compare.CREATE: (kv.create_revision, compare.create_revision),
        rpc.Compare.MOD: (kv.mod_revision, compare.mod_revision),
        rpc.Compare.VALUE: (kv.value, compare.value),
        rpc.Compare.LEASE: (kv.lease, compare.lease),
    }[compare.target]
    return bool(
        {
            rpc.Compare.EQUAL: have == want,
            rpc.Compare.GREATER: have > want,
            rpc.Compare.LESS: have < want,
            rpc.Compare.NOT_EQUAL: have != want,
        }[compare.result]
    )

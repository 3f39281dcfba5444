"""Calls to etcd's members: one at a time, the next one when it does not answer.

Messages and stubs are `aetcd`'s (aetcd.rpc), generated from etcd's published interface and kept up
by that project. Its client is not used: it knows one member, no TLS, and passes events on one by
one, so that the writes of one transaction cannot be told from those of the next. etcd's JSON
gateway would need no messages, but its streams are chunked text, and a call costs three times as
much of the event loop; with gRPC one core takes the 500 changes/s that are asked for.

A call that is not answered may have been carried out: `EtcdError.certain` says so, and only calls
that may be repeated are.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc

CALL_S = 2.0
"""Longest wait for one answer of one member; a cluster elects a leader in about one second."""

AGAIN_S = 5.0
"""How long a call that may be repeated is tried at one member after the other."""

RETRY_S = 0.05

HEARTBEAT_S = 1.0
"""How often a silent watch is asked for a sign of life."""

SILENCE_S = 3.0
"""A watch without a sign of life for so long is begun anew at another member."""

MESSAGE_BYTES = 64 << 20
"""Longest answer: a range of many keys."""

# etcd ends connections that probe more often than every 5 s (--grpc-keepalive-min-time).
_OPTIONS = [
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
]

_ELSEWHERE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
"""Another member may answer."""


_TOKEN_ENDED = ("invalid auth token", "revision of auth store is old")
"""What etcd says of a token that has ended, or is older than a change of users or roles."""

_HINTS = {
    "Hostname Verification Check failed": "the certificate of each member must name, as "
    "subjectAltName, the host that the store's URL has",
    "CERTIFICATE_VERIFY_FAILED": "--store-ca must be the authority that signed the certificates of "
    "etcd's members",
}
"""What would be right, by what gRPC says."""


class EtcdError(Exception):
    """etcd did not do what it was asked; the text says why.

    Attributes:
        certain: whether it is known that nothing was changed.

    """

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


class CompactedError(EtcdError):
    """What happened since a revision cannot be told any longer."""

    def __init__(self) -> None:
        super().__init__("etcd has compacted the revision that a watch begins at", certain=True)


@dataclass(frozen=True)
class Access:
    """How to reach etcd.

    Attributes:
        endpoints: HOST:PORT of members.
        authority: who signed the members' certificates; with any of these files, TLS is spoken.
        certificate: ours, for members that ask for one.
        key: its private key.
        user: for clusters with authentication.
        password: of the user.

    """

    endpoints: Sequence[str]
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str | None = None

    @property
    def tls(self) -> bool:
        """Whether TLS is spoken."""
        return self.authority is not None or self.certificate is not None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            OSError: one cannot be read.

        """
        files = (self.authority, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(f.read_bytes() if f else None for f in files))


class _Member:
    """A channel to one member, and its stubs."""

    def __init__(self, endpoint: str, access: Access) -> None:
        if access.tls:
            credentials = access.credentials()
            self.channel = grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        make: Any = rpc_pb2_grpc
        self.kv: Any = make.KVStub(self.channel)
        self.watch: Any = make.WatchStub(self.channel)
        self.lease: Any = make.LeaseStub(self.channel)
        self.auth: Any = make.AuthStub(self.channel)


class EtcdClient:
    """A client of a cluster.

    Args:
        access: how to reach it.

    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._members: dict[str, _Member] = {}
        self._at = 0
        self._token: str | None = None

    async def close(self) -> None:
        """Close the connections."""
        members, self._members = list(self._members.values()), {}
        await asyncio.gather(*(member.channel.close() for member in members))

    def _member(self) -> tuple[int, _Member]:
        endpoint = self._access.endpoints[self._at]
        member = self._members.get(endpoint)
        if member is None:
            member = self._members[endpoint] = _Member(endpoint, self._access)
        return self._at, member

    def _leave(self, at: int) -> None:
        """Go on with the next member, unless somebody has already."""
        if at == self._at:
            self._at = (at + 1) % len(self._access.endpoints)

    async def _metadata(self, member: _Member) -> list[tuple[str, str]]:
        """Return what goes with each call: a member without a leader refuses at once."""
        known = [("hasleader", "true")]
        if self._access.user is None:
            return known
        if self._token is None:
            asked = rpc.AuthenticateRequest(name=self._access.user, password=self._access.password)
            self._token = (await member.auth.Authenticate(asked, timeout=CALL_S)).token
        return [*known, ("token", self._token)]

    async def call(self, service: str, method: str, request: Any, *, again_s: float = 0.0) -> Any:
        """Make a call.

        Args:
            service: `kv` or `lease`.
            method: its name.
            request: the message.
            again_s: how long to try again at other members; 0: not at all.

        Raises:
            EtcdError: no answer, or a refusal.

        """
        end_s = asyncio.get_running_loop().time() + again_s
        while True:
            at, member = self._member()
            try:
                metadata = await self._metadata(member)
                called = getattr(getattr(member, service), method)
                return await called(request, timeout=CALL_S, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if self._forget_token(error):
                    continue
                failed = _failed(error)
                if error.code() not in _ELSEWHERE:
                    raise failed from None
                self._leave(at)
                if asyncio.get_running_loop().time() >= end_s:
                    raise failed from None
            await asyncio.sleep(RETRY_S)

    def _forget_token(self, error: grpc.aio.AioRpcError) -> bool:
        """Whether the token is not valid any longer, and a new one may help."""
        said = error.details() or ""
        expired = self._token is not None and (
            error.code() is grpc.StatusCode.UNAUTHENTICATED
            or any(words in said for words in _TOKEN_ENDED)
        )
        if expired:
            self._token = None
        return expired

    # ---- calls ----

    async def range(self, key: str, end: str = "", **options: Any) -> Any:
        """Return the answer to a range request: linearizable, tried at each member.

        Raises:
            EtcdError: nobody answers.

        """
        request = rpc.RangeRequest(key=key.encode(), range_end=end.encode(), **options)
        return await self.call("kv", "Range", request, again_s=AGAIN_S)

    async def transact(
        self,
        compare: Sequence[Any],
        success: Sequence[Any],
        failure: Sequence[Any] = (),
        *,
        again_s: float = 0.0,
    ) -> Any:
        """Return the answer to a transaction, asked for once unless `again_s` says otherwise.

        Raises:
            EtcdError: no answer, or a refusal.

        """
        request = rpc.TxnRequest(compare=compare, success=success, failure=failure)
        return await self.call("kv", "Txn", request, again_s=again_s)

    async def grant(self, ttl_s: int) -> int:
        """Return the id of a new lease.

        Raises:
            EtcdError: nobody answers.

        """
        request = rpc.LeaseGrantRequest(TTL=ttl_s)
        return int((await self.call("lease", "LeaseGrant", request, again_s=AGAIN_S)).ID)

    async def revoke(self, lease: int) -> None:
        """End a lease, and with it its keys.

        Raises:
            EtcdError: nobody answers.

        """
        await self.call("lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))

    async def keep_alive(self, lease: int, timeout_s: float) -> int:
        """Renew a lease; returns its time to live in seconds from the request, 0 if it has ended.

        Raises:
            EtcdError: no answer.

        """
        at, member = self._member()
        try:
            async with asyncio.timeout(timeout_s):
                metadata = await self._metadata(member)
                stream = member.lease.LeaseKeepAlive(metadata=metadata)
                try:
                    await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
                    answer = await stream.read()
                finally:
                    stream.cancel()
            if answer is grpc.aio.EOF:
                raise EtcdError("the renewal of a lease was not answered", certain=False)
            return int(answer.TTL)
        except (TimeoutError, grpc.aio.AioRpcError, EtcdError) as error:
            if isinstance(error, grpc.aio.AioRpcError):
                self._forget_token(error)
            self._leave(at)
            raise EtcdError(f"the renewal of a lease: {error}", certain=False) from None

    async def watch(self, prefix: str, start: int) -> AsyncGenerator[Any, None]:
        """Yield answers about the keys with a prefix, from a revision on; each has whole revisions.

        Also yields answers without events, at least every SILENCE_S.

        Raises:
            CompactedError: that revision is gone.
            EtcdError: the member does not answer any longer; begin anew.

        """
        at, member = self._member()
        create = rpc.WatchCreateRequest(
            key=prefix.encode(),
            range_end=after(prefix).encode(),
            start_revision=start,
            progress_notify=True,
        )
        stream: Any = None
        beat: asyncio.Task[None] | None = None
        try:
            metadata = await self._metadata(member)
            stream = member.watch.Watch(metadata=metadata)
            await stream.write(rpc.WatchRequest(create_request=create))
            beat = asyncio.create_task(_beat(stream), name="etcd watch")
            while True:
                async with asyncio.timeout(SILENCE_S):
                    answer = await stream.read()
                if answer is grpc.aio.EOF:
                    raise EtcdError("the watch ended", certain=True)
                if answer.compact_revision:
                    raise CompactedError
                if answer.canceled:
                    raise EtcdError(f"the watch was refused: {answer.cancel_reason}", certain=True)
                yield answer
        except TimeoutError:
            self._leave(at)
            raise EtcdError(f"no sign of life within {SILENCE_S:g} s", certain=True) from None
        except grpc.aio.AioRpcError as error:
            if not self._forget_token(error):
                self._leave(at)
            raise _failed(error) from None
        finally:
            if beat is not None:
                beat.cancel()
            if stream is not None:
                stream.cancel()


async def _beat(stream: Any) -> None:
    """Ask for a sign of life; that the stream has ended shows where it is read."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await stream.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))


def _failed(error: grpc.aio.AioRpcError) -> EtcdError:
    certain = error.code() not in _ELSEWHERE and error.code() is not grpc.StatusCode.UNKNOWN
    said = error.details() or error.code().name
    hints = [hint for words, hint in _HINTS.items() if words in said]
    return EtcdError("; ".join([f"etcd: {said}", *hints]), certain=certain)


def after(prefix: str) -> str:
    """Return the first key after all that have a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def put(key: str, value: str, lease: int = 0, *, former: bool = False) -> Any:
    """Return the operation that puts a key; its answer can have what was there before."""
    request = rpc.PutRequest(key=key.encode(), value=value.encode(), lease=lease, prev_kv=former)
    return rpc.RequestOp(request_put=request)


def nested(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any]) -> Any:
    """Return the operation that is a transaction of its own."""
    request = rpc.TxnRequest(compare=compare, success=success, failure=failure)
    return rpc.RequestOp(request_txn=request)


def delete(key: str, end: str = "") -> Any:
    """Return the operation that deletes a key, or all from it to before `end`."""
    request = rpc.DeleteRangeRequest(key=key.encode(), range_end=end.encode())
    return rpc.RequestOp(request_delete_range=request)


def get(key: str, revision: int = 0) -> Any:
    """Return the operation that reads a key, as it was at a revision; 0: the newest."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode(), revision=revision))


def unchanged(key: str, revision: int) -> Any:
    """Return the comparison of the revision of a key's newest value; 0: there is no such key."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL,
        target=rpc.Compare.MOD,
        key=key.encode(),
        mod_revision=revision,
    )


def not_since(key: str, revision: int, end: str = "") -> Any:
    """Return the comparison that holds where no key, of those up to `end`, was put since."""
    return rpc.Compare(
        result=rpc.Compare.LESS,
        target=rpc.Compare.MOD,
        key=key.encode(),
        range_end=end.encode(),
        mod_revision=revision + 1,
    )


def leased(key: str, lease: int) -> Any:
    """Return the comparison that holds where there is such a key and it has this lease."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.LEASE, key=key.encode(), lease=lease
    )


def absent(key: str) -> Any:
    """Return the comparison that holds where there is no such key."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=key.encode(), create_revision=0
    )

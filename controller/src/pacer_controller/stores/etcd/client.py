"""Calls to etcd: to one member at a time, and to the next one when it does not answer.

Messages and stubs are `aetcd`'s (aetcd.rpc), generated from etcd's published interface and
maintained by that project. Its client is not used: it knows one member, has no TLS, and yields
events one by one, so that the writes of one transaction cannot be told from those of the next.
etcd's JSON gateway would need no messages, but its streams are chunked text, and a call takes three
times as much time of the event loop. With gRPC one core takes the required 500 changes/s.

etcd may have carried out a call that it did not answer; `EtcdError.certain` is False then. Only
calls that may be repeated are repeated.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
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
"""Time for which a repeatable call is tried at one member after the other."""

RETRY_S = 0.05

RENEWALS = 5
"""Most times that a call is repeated with a new token."""

HEARTBEAT_S = 1.0
"""Period of the progress requests on a watch."""

SILENCE_S = 3.0
"""Longest silence of a watch, after which it is started again at another member."""

MESSAGE_BYTES = 64 << 20
"""Longest answer, in bytes; the longest are ranges of many keys."""

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
    grpc.StatusCode.INTERNAL,
}
"""Status codes after which another member is tried."""

_REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}
"""Status codes of calls that etcd has refused, and so has not carried out.

All others may follow a call that was carried out. gRPC gives INTERNAL and RESOURCE_EXHAUSTED to
calls whose stream is reset, too (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md,
section "Errors").
"""

_OF_ETCD = "etcdserver: "
"""The beginning of the messages of etcd itself."""


_Metadata = list[tuple[str, str]]

_TOKEN_ENDED = ("invalid auth token", "revision of auth store is old")
"""etcd's messages for a token that has expired, or is older than a change of users or roles."""

_COMPACTED = "required revision has been compacted"
"""etcd's message for a read of a revision that it no longer has."""

_HINTS = {
    "Hostname Verification Check failed": "the certificate of each member must name, as "
    "subjectAltName, the host that the store's URL has",
    "CERTIFICATE_VERIFY_FAILED": "--store-ca must be the authority that signed the certificates of "
    "etcd's members",
    ": Socket closed": "if the members speak TLS, give --store-ca",
    "Handshake read failed": "the members must speak TLS, as --store-ca and --store-cert do",
    "user name is empty": "the cluster has users: name one as etcd://USER@... with "
    "--store-password-file, or give --store-cert",
    "invalid user ID or password": "the user is that of etcd://USER@..., the password that of "
    "--store-password-file",
    "permission denied": "a role of the user must grant readwrite for the store's prefix",
    "UNIMPLEMENTED": "another program than etcd listens there",
}
"""Advice, by the part of gRPC's message that calls for it."""


class EtcdError(Exception):
    """A call to etcd failed; the text says why.

    Attributes:
        certain: True: the call changed nothing. False: it may have been carried out.

    """

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


class CompactedError(EtcdError):
    """etcd no longer has a revision: the call cannot read it, or a watch cannot begin there."""

    def __init__(self) -> None:
        super().__init__("etcd has compacted the revision that was asked for", certain=True)


@dataclass(frozen=True)
class Access:
    """Addresses and credentials of an etcd cluster.

    Attributes:
        endpoints: HOST:PORT of each member.
        authority: the certificate of the authority that signed the members' certificates, PEM. The
            connection uses TLS if this or `certificate` is given.
        certificate: the client's certificate, for members that ask for one, PEM.
        key: the certificate's private key, PEM.
        user: the user's name, for clusters with authentication.
        password: the user's password.

    """

    endpoints: Sequence[str]
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str | None = None

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.authority is not None or self.certificate is not None

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the TLS credentials from the files.

        Raises:
            OSError: a file cannot be read.

        """
        files = (self.authority, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(f.read_bytes() if f else None for f in files))


Connect = Callable[[str, grpc.ChannelCredentials | None, Sequence[tuple[str, Any]]], Any]
"""Makes a channel to an endpoint, with credentials for TLS, and options."""


def connect(
    endpoint: str, credentials: grpc.ChannelCredentials | None, options: Sequence[tuple[str, Any]]
) -> grpc.aio.Channel:
    """Return a channel of the running event loop; without credentials, it does not use TLS."""
    if credentials is None:
        return grpc.aio.insecure_channel(endpoint, options=options)
    return grpc.aio.secure_channel(endpoint, credentials, options=options)


class _Member:
    """A channel to one member, and its stubs."""

    def __init__(self, endpoint: str, access: Access, channel: Connect) -> None:
        self.channel = channel(endpoint, access.credentials() if access.tls else None, _OPTIONS)
        make: Any = rpc_pb2_grpc
        self.kv: Any = make.KVStub(self.channel)
        self.watch: Any = make.WatchStub(self.channel)
        self.lease: Any = make.LeaseStub(self.channel)
        self.auth: Any = make.AuthStub(self.channel)


class EtcdClient:
    """A client of an etcd cluster.

    Args:
        access: the addresses and credentials of the cluster.
        channel: makes the channels to its members.

    """

    def __init__(self, access: Access, channel: Connect = connect) -> None:
        self._access = access
        self._channel = channel
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
            member = self._members[endpoint] = _Member(endpoint, self._access, self._channel)
        return self._at, member

    def _leave(self, at: int) -> None:
        """Move to the next member, unless another call has already done so."""
        if at == self._at:
            self._at = (at + 1) % len(self._access.endpoints)

    async def _metadata(self, member: _Member) -> _Metadata:
        """Return the metadata of each call: `hasleader`, and the token of the user.

        With `hasleader`, a member that knows no leader refuses at once.
        """
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
            method: the name of the method.
            request: the message.
            again_s: time for which the call is repeated at other members, in seconds; 0: once only.

        Raises:
            CompactedError: etcd no longer has the revision that is read.
            EtcdError: etcd does not answer, or refuses the call.

        """
        end_s = asyncio.get_running_loop().time() + again_s
        renewals = 0
        while True:
            at, member = self._member()
            metadata: _Metadata = []
            try:
                metadata = await self._metadata(member)
                called = getattr(getattr(member, service), method)
                return await called(request, timeout=CALL_S, metadata=metadata)
            except grpc.RpcError as error:
                if self._forget_token(error, metadata) and renewals < RENEWALS:
                    renewals += 1
                    continue
                failed = _failed(error)
                if error.code() not in _ELSEWHERE:
                    raise failed from None
                self._leave(at)
                if asyncio.get_running_loop().time() >= end_s:
                    raise failed from None
            await asyncio.sleep(RETRY_S)

    def _forget_token(self, error: grpc.RpcError, metadata: _Metadata) -> bool:
        """Drop the token of a call if the error says that it is no longer valid.

        Another call may already have dropped or renewed it; then its new token stays.

        Args:
            error: the answer to the call.
            metadata: the metadata of the call.

        Returns:
            Whether the call's token is no longer valid, so that a call with a new one may succeed.

        """
        token = dict(metadata).get("token")
        said = error.details() or ""
        expired = token is not None and (
            error.code() is grpc.StatusCode.UNAUTHENTICATED
            or any(words in said for words in _TOKEN_ENDED)
        )
        if expired and self._token == token:
            self._token = None
        return expired

    # ---- calls ----

    async def range(self, key: str, end: str = "", **options: Any) -> Any:
        """Return the answer to a linearizable range request, tried at each member.

        Raises:
            EtcdError: no member answers.

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
        """Return the answer to a transaction, sent once unless `again_s` allows repetition.

        Raises:
            EtcdError: etcd does not answer, or refuses the transaction.

        """
        request = rpc.TxnRequest(compare=compare, success=success, failure=failure)
        return await self.call("kv", "Txn", request, again_s=again_s)

    async def grant(self, ttl_s: int) -> int:
        """Return the id of a new lease.

        Raises:
            EtcdError: no member answers.

        """
        request = rpc.LeaseGrantRequest(TTL=ttl_s)
        return int((await self.call("lease", "LeaseGrant", request, again_s=AGAIN_S)).ID)

    async def revoke(self, lease: int) -> None:
        """End a lease, which deletes its keys.

        Raises:
            EtcdError: etcd does not answer.

        """
        await self.call("lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))

    async def keep_alive(self, lease: int, timeout_s: float) -> int:
        """Renew a lease; return its time to live in seconds from the request, 0 if it has ended.

        Raises:
            EtcdError: the member does not answer within `timeout_s`.

        """
        at, member = self._member()
        metadata: _Metadata = []
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
                raise EtcdError("etcd: ended the call without an answer", certain=False)
            return int(answer.TTL)
        except grpc.RpcError as error:
            self._forget_token(error, metadata)
            self._leave(at)
            raise _failed(error) from None
        except TimeoutError:
            self._leave(at)
            raise EtcdError("etcd: does not answer in time", certain=False) from None
        except EtcdError:
            self._leave(at)
            raise

    async def watch(self, prefix: str, start: int) -> AsyncGenerator[Any, None]:
        """Yield answers with the events of the keys with a prefix, from a revision on.

        An answer has all events of each of its revisions. Answers without events come, too; an
        answer comes at least every SILENCE_S.

        Raises:
            CompactedError: etcd no longer has that revision.
            EtcdError: the member does not answer any longer; start another watch.

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
        metadata: _Metadata = []
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
            if not self._forget_token(error, metadata):
                self._leave(at)
            raise _failed(error) from None
        finally:
            if beat is not None:
                beat.cancel()
            if stream is not None:
                stream.cancel()


async def _beat(stream: Any) -> None:
    """Request progress periodically; the reader of the stream notices its end."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await stream.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))


def _failed(error: grpc.RpcError) -> EtcdError:
    if _COMPACTED in (error.details() or ""):
        return CompactedError()
    said = error.details() or error.code().name
    full = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and said.startswith(_OF_ETCD)
    certain = full or error.code() in _REFUSED
    hints = [hint for words, hint in _HINTS.items() if words in said]
    return EtcdError("; ".join([f"etcd: {said}", *hints]), certain=certain)


def after(prefix: str) -> str:
    """Return the first key after all keys with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def put(key: str, value: str, lease: int = 0, *, former: bool = False) -> Any:
    """Return the operation that puts a key; with `former`, its answer has the previous value."""
    request = rpc.PutRequest(key=key.encode(), value=value.encode(), lease=lease, prev_kv=former)
    return rpc.RequestOp(request_put=request)


def nested(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any]) -> Any:
    """Return the operation that makes a nested transaction."""
    request = rpc.TxnRequest(compare=compare, success=success, failure=failure)
    return rpc.RequestOp(request_txn=request)


def delete(key: str, end: str = "") -> Any:
    """Return the operation that deletes a key, or the keys from it up to `end`, excluded."""
    request = rpc.DeleteRangeRequest(key=key.encode(), range_end=end.encode())
    return rpc.RequestOp(request_delete_range=request)


def get(key: str, revision: int = 0) -> Any:
    """Return the operation that reads a key at a revision; 0: the newest."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode(), revision=revision))


def unchanged(key: str, revision: int) -> Any:
    """Return the comparison that holds if a key's revision is `revision`; 0: no such key exists."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL,
        target=rpc.Compare.MOD,
        key=key.encode(),
        mod_revision=revision,
    )


def not_since(key: str, revision: int, end: str = "") -> Any:
    """Return the comparison that holds if no key up to `end` was put after `revision`."""
    return rpc.Compare(
        result=rpc.Compare.LESS,
        target=rpc.Compare.MOD,
        key=key.encode(),
        range_end=end.encode(),
        mod_revision=revision + 1,
    )


def leased(key: str, lease: int) -> Any:
    """Return the comparison that holds if the key exists and has this lease."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.LEASE, key=key.encode(), lease=lease
    )


def absent(key: str) -> Any:
    """Return the comparison that holds if the key does not exist."""
    return rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=key.encode(), create_revision=0
    )

"""A finsy session that bids only election ids of this controller.

finsy's arbitrator bids the highest id that it has seen, in its handshake and whenever a switch has
no primary. That can be the id of another controller, which then cannot reconnect. This session bids
a new, unique number from the store each time (`southbound.Tenure.bid`). A controller without the
right to write bids none: it only reads, without a stream. finsy has no hook for this, so the module
subclasses its classes; finsy's version is pinned.

A switch remembers the highest id for ever. If it has no primary and remembers an id higher than the
session's, the store's epoch is raised above that id. The holder of a lease also outbids a primary
with a higher id: that controller has no lease of the store. A holder that no longer has the lease
gets no further number. An id of 2^126 or more cannot be outbid (`stores.base.EPOCH_MOST`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import finsy as fy
import grpc.aio
from finsy.p4arbitrator import Arbitrator
from finsy.p4client import P4Client
from finsy.proto import U128, p4r, p4r_grpc

from pacer_controller.southbound import FenceError, NotHeldError, Tenure

_LOG = logging.getLogger(__name__)

BIDS_MOST = 4
"""Most bids in a row; each is above the id that the switch remembered at the time."""

KEEPALIVE_MS = 1_000
KEEPALIVE_READING_MS = 5_000
KEEPALIVE_TIMEOUT_MS = 1_000

PROBE_S = 5.0
PROBE_TIMEOUT_S = 5.0
"""Pause between two requests to a switch that takes no keepalive probes, and time for an answer."""


def _keepalive(*, bids: bool) -> list[tuple[str, int]]:
    """Return the options with which a channel notices that the other end is gone.

    A session that bids notices it within 2 s; one that only reads, of which a controller has many,
    within 6 s. gRPC's own server, which stock BMv2 uses, ends connections that probe more often
    than every 5 min; a session with it makes requests instead (`Session`).
    """
    return [
        ("grpc.keepalive_time_ms", KEEPALIVE_MS if bids else KEEPALIVE_READING_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


_OPTIONS = [
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Another connection to the same switch may be in back-off, or half open.
    ("grpc.use_local_subchannel_pool", 1),
]


class TooHighError(RuntimeError):
    """The switch still remembers a higher election id than the store can give."""


class EndedError(RuntimeError):
    """The connection was closed under a request that a task of the session was about to make."""


class OutbidError(FenceError):
    """A controller without a lease of the store became primary; the next session outbids it."""


class Bidder(Arbitrator):
    """Arbitration with ids from the store.

    Args:
        tenure: the source of the ids.
        looks_first: whether to ask for the primary before bidding, and to be its backup. It is for
            controllers without a lease, which must not take a switch from each other.

    """

    def __init__(self, tenure: Tenure, *, looks_first: bool) -> None:
        super().__init__(0)
        self._tenure = tenure
        self._looks_first = looks_first
        self._bids = 0

    async def handshake(self, switch: Any, *, conflict: bool = False) -> None:
        """Bid, and find out which controller is primary.

        Raises:
            NotHeldError: this controller may not write.
            TooHighError: the switch remembers a higher id than any bid.
            P4ClientError: the switch ended the stream.

        """
        if conflict:
            raise RuntimeError("the switch has a connection with this election id")
        if self._looks_first:
            code, self.primary_id = await self._asked(switch)
            if code is fy.GRPCStatusCode.ALREADY_EXISTS and not self._tenure.gave(self.primary_id):
                return
        above = 0
        for _ in range(BIDS_MOST):
            self.election_id = await self._tenure.bid(above)
            code, self.primary_id = await self._asked(switch)
            self.is_primary = code is fy.GRPCStatusCode.OK
            if self.is_primary or self._is_backup(code):
                return
            above = self.primary_id
        raise TooHighError(f"the switch remembers election id {above}, and takes no higher one")

    def _is_backup(self, code: fy.GRPCStatusCode) -> bool:
        """Whether to be the backup of the present primary; the holder of a lease outbids it."""
        return code is not fy.GRPCStatusCode.NOT_FOUND and not self._tenure.exclusive

    async def _asked(self, switch: Any) -> tuple[fy.GRPCStatusCode, int]:
        """Send an update; return the status, and the highest id of the switch."""
        await self._send(switch)
        response = await self._receive(switch)
        if response is None:
            raise RuntimeError("the switch has a connection with this election id")
        status = fy.GRPCStatusCode(response.status.code)
        return status, U128.decode(response.election_id)

    async def _send(self, switch: Any) -> None:
        update = p4r.MasterArbitrationUpdate(role=self.role, device_id=switch.device_id)
        if self.election_id:
            update.election_id.CopyFrom(U128.encode(self.election_id))
        await switch._p4client.send(p4r.StreamMessageRequest(arbitration=update))

    async def update(self, switch: Any, msg: Any) -> None:
        """Process a later arbitration update of the switch.

        Raises:
            NotHeldError: this controller may not write.
            OutbidError: another controller is primary, although this one has the lease. The
                connection is made anew after a pause, so that two controllers that outbid each
                other do not do so without end at full speed.
            TooHighError: the switch remembers a higher id than any bid.

        """
        self.primary_id = U128.decode(msg.election_id)
        status = fy.GRPCStatusCode(msg.status.code)
        was_primary = self.is_primary
        self.is_primary = status is fy.GRPCStatusCode.OK
        if self.is_primary:
            self._bids = 0
        if self.is_primary != was_primary:
            (switch._become_primary if self.is_primary else switch._become_backup)()
        if status is fy.GRPCStatusCode.ALREADY_EXISTS and not self._is_backup(status):
            raise OutbidError("a controller that does not share this store has taken the switch")
        if status is fy.GRPCStatusCode.NOT_FOUND:
            # The switch has no primary; the answer to this bid is the next update.
            self._bids += 1
            if self._bids > BIDS_MOST:
                raise TooHighError(f"the switch remembers election id {self.primary_id}")
            self.election_id = await self._tenure.bid(self.primary_id)
            await self._send(switch)

    def reset(self) -> None:
        """Forget a session that has ended."""
        super().reset()
        self._bids = 0


class GuardedClient(P4Client):
    """A client that writes only while this controller may, and notices a silent switch.

    Args:
        session: whose.
        tenure: whether it may.
        keepalive: gRPC's options for probes of the switch; empty: it takes none.

    """

    def __init__(
        self, session: "Session", tenure: Tenure, keepalive: Sequence[tuple[str, int]]
    ) -> None:
        credentials = session.options.channel_credentials
        super().__init__(session.address, credentials, wait_for_ready=False)
        self._switch = session.name
        self._tenure = tenure
        self._channel_options = [*_OPTIONS, *keepalive]

    async def open(self, *, schema: Any = None, complete_request: Any = None) -> None:
        """Open the channel as finsy does, with options that finsy has no parameter for."""
        if self._credentials is None:
            options = self._channel_options
            self._channel = grpc.aio.insecure_channel(self._address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(
                self._address,
                self._credentials.to_client_credentials(),
                options=self._channel_options,
            )
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._schema = schema
        self._complete_request = complete_request

    async def attempted(self) -> grpc.aio.Channel:
        """Wait until the first attempt to connect has succeeded or failed; return the channel.

        After a failure gRPC goes on trying, so the channel may be ready later. A request tells why
        the attempt has failed, or succeeds.
        """
        ready, failed = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
        channel = self._channel
        if channel is None:
            raise RuntimeError("open() comes first")
        while (state := channel.get_state(try_to_connect=True)) not in (ready, failed):
            await channel.wait_for_state_change(state)
        return channel

    async def request(self, msg: Any) -> Any:
        """Make a request; a write needs the right to write.

        Raises:
            NotHeldError: this controller may not write.
            EndedError: the connection is closed.
            P4ClientError: the switch refused the request, or disconnected.

        """
        self._check_open()
        writes = isinstance(msg, (p4r.WriteRequest, p4r.SetForwardingPipelineConfigRequest))
        if writes and not self._tenure.held:
            raise NotHeldError(self._switch)
        return await super().request(msg)

    def request_iter(self, msg: Any) -> Any:
        """Return the answers to a read.

        Raises:
            EndedError: the connection is closed.

        """
        self._check_open()
        return super().request_iter(msg)

    async def send(self, msg: Any) -> None:
        """Send a message on the stream.

        Raises:
            EndedError: the connection is closed.
            P4ClientError: the switch disconnected.

        """
        self._check_open()
        await super().send(msg)

    async def receive(self) -> Any:
        """Return the next message of the stream.

        Raises:
            EndedError: the connection is closed.
            P4ClientError: the switch disconnected.

        """
        self._check_open()
        return await super().receive()

    def _check_open(self) -> None:
        """Check what finsy asserts: tasks of a session can outlive its connection by a step."""
        if self._stub is None:
            raise EndedError("the connection was closed")

    async def broken(self) -> None:
        """Wait until the connection is not ready any longer."""
        ready = grpc.ChannelConnectivity.READY
        channel: Any = self._channel
        while channel.get_state(try_to_connect=True) is ready:
            await channel.wait_for_state_change(ready)


class Session(fy.Switch):  # type: ignore[misc]
    """A session with a switch, as primary, as backup, or only for reading.

    Args:
        name: the name of the switch.
        address: HOST:PORT.
        options: finsy's options.
        tenure: the right to write, and the source of ids.
        schema: the program that the switch should have.
        bids: whether to bid; if not, the session only reads.
        looks_first: whether to be the backup of an existing primary (`Bidder`).
        keepalive: whether the switch accepts keepalive probes; if not, the session makes a request
            now and then, and ends when one has no answer.
        admitted: called with the connection when the switch answers; the session goes on when it
            returns.

    """

    def __init__(
        self,
        name: str,
        address: str,
        options: Any,
        tenure: Tenure,
        schema: fy.P4Schema,
        admitted: Callable[[grpc.aio.Channel], Awaitable[None]],
        *,
        bids: bool,
        looks_first: bool,
        keepalive: bool,
    ) -> None:
        super().__init__(name, address, options)
        # finsy would read and hash the program anew.
        self._p4schema = schema
        self._arbitrator = Bidder(tenure, looks_first=looks_first)
        self._tenure = tenure
        self._bids = bids
        self._keepalive = keepalive
        self._admitted = admitted

    async def _get_pipeline(self) -> None:
        """Do nothing: a session that does not bid needs no copy of the switch's P4Info."""

    async def _run(self) -> None:
        """Run like finsy's session, with this client, and without a stream if none is needed."""
        keepalive = _keepalive(bids=self._bids) if self._keepalive else ()
        client = GuardedClient(self, self._tenure, keepalive)
        base: Any = super()
        self._p4client = client
        try:
            await client.open(
                schema=self.p4info, complete_request=self._arbitrator.complete_request
            )
            channel = await client.attempted()
            # Bids wait for the store, so the switch must have answered before the first one.
            await base._fetch_capabilities()
            await self._admitted(channel)
            if self._bids:
                await self._arbitrator.handshake(self)
            base._channel_up()
            until_broken = base._receive_until_closed() if self._bids else client.broken()
            if self._keepalive:
                await until_broken
            else:
                await _first(until_broken, self._until_silent())
        finally:
            await client.close()
            base._channel_down()

    async def _until_silent(self) -> None:
        """Return when the switch no longer answers requests."""
        base: Any = super()
        with contextlib.suppress(TimeoutError):
            while True:
                await asyncio.sleep(PROBE_S)
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    await base._fetch_capabilities()
        _LOG.warning("switch %s: no answer within %g s", self.name, PROBE_TIMEOUT_S)


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Wait until one of several works is done, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

"""An OpenFlow 1.3 connection to a bridge; messages are os-ken's, waiting is asyncio's."""

import asyncio
import contextlib
import ipaddress
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from pacer_controller.openvswitch import lengths
from pacer_controller.openvswitch.flows import FLOWS
from pacer_controller.rows import METERS, Change, Key, MatchValue, Op, Row, row
from pacer_controller.southbound import Count, Refusal

COOKIE = 0x70616365_72000000
"""The cookie of the controller's flows; flows without it belong to others and stay unchanged."""

COOKIE_MASK = 0xFFFFFFFF_FF000000

TIMEOUT_S = 10.0
ECHO_S = 2.0
"""Longest wait for the reply to an echo request, in seconds."""

BATCH = 500
"""Most changes before a barrier."""

REPLIES_MOST = 4096
"""Most messages of one answer, of at most 64 KB each; more end the connection."""

_PROTOCOL = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
_DEMOTED = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
_FULL = {
    (ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL),
    (ofp.OFPET_METER_MOD_FAILED, ofp.OFPMMFC_OUT_OF_METERS),
}


_READ = {
    *(ofp.OFPT_ERROR, ofp.OFPT_ECHO_REQUEST, ofp.OFPT_ECHO_REPLY, ofp.OFPT_FEATURES_REPLY),
    *(ofp.OFPT_MULTIPART_REPLY, ofp.OFPT_BARRIER_REPLY, ofp.OFPT_ROLE_REPLY),
}
"""Types of the messages that are read; all others are ignored."""


class OpenFlowError(Exception):
    """The connection is gone, or a message is not OpenFlow 1.3."""


class StaleRoleError(OpenFlowError):
    """The bridge knows a newer generation of masters.

    Attributes:
        generation: the id of that generation.

    """

    def __init__(self, generation: int) -> None:
        super().__init__(f"the bridge has seen generation id {generation}, which is newer")
        self.generation = generation


class OpenFlow:
    """One connection; made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._xids = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[Any]] = {}
        self._errors: dict[int, Any] = {}
        self._in_doubt: set[int] = set()
        """The numbers of the changes since the last barrier; errors with other numbers are
        ignored."""
        self.closed = asyncio.Event()
        self.datapath_id = 0
        self._task = asyncio.create_task(self._receive(), name="openflow")

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, target: str) -> "AsyncIterator[OpenFlow]":
        """Connect to `unix:PATH` or `tcp:HOST:PORT` and close it in the end.

        Raises:
            OSError: nothing listens there.
            OpenFlowError: not a bridge that speaks OpenFlow 1.3.

        """
        kind, _, rest = target.partition(":")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if kind == "unix":
                    reader, writer = await asyncio.open_unix_connection(rest)
                else:
                    host, _, port = rest.rpartition(":")
                    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            raise OpenFlowError(f"no answer within {TIMEOUT_S:g} s") from None
        async with cls.over(reader, writer) as connection:
            yield connection

    @classmethod
    @contextlib.asynccontextmanager
    async def over(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> "AsyncIterator[OpenFlow]":
        """Make the connection of a pair of streams, and close it in the end.

        Raises:
            OpenFlowError: the other end is not a bridge that speaks OpenFlow 1.3.

        """
        connection = cls(reader, writer)
        try:
            versions = [parser.OFPHelloElemVersionBitmap(versions=[ofp.OFP_VERSION])]
            connection._send(parser.OFPHello(_PROTOCOL, versions))
            features = await connection._one(
                parser.OFPFeaturesRequest(_PROTOCOL), parser.OFPSwitchFeatures
            )
            connection.datapath_id = features.datapath_id
            yield connection
        finally:
            connection._task.cancel()
            writer.close()

    def _send(self, message: Any, xid: int | None = None) -> int:
        """Send a message, with a new number unless it answers another; return its number."""
        xid = next(self._xids) if xid is None else xid
        message.set_xid(xid)
        message.serialize()
        self._writer.write(bytes(message.buf))
        return xid

    async def _receive(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(ofp.OFP_HEADER_SIZE)
                version, kind, length, xid = ofproto_parser.header(head)
                if length < len(head):
                    raise OpenFlowError("a message is shorter than its header")
                body = await self._reader.readexactly(length - len(head))
                if version != ofp.OFP_VERSION and kind != ofp.OFPT_HELLO:
                    raise OpenFlowError("the bridge does not speak OpenFlow 1.3")
                if kind in _READ:
                    self._handle(_parsed(version, kind, length, xid, head + body))
        except (OSError, asyncio.IncompleteReadError, OpenFlowError):
            pass
        finally:
            self.closed.set()
            for waiting in self._waiting.values():
                waiting.put_nowait(None)

    def _handle(self, message: Any) -> None:
        if isinstance(message, parser.OFPEchoRequest):
            self._send(parser.OFPEchoReply(_PROTOCOL, data=message.data), message.xid)
        elif message.xid in self._waiting:
            self._waiting[message.xid].put_nowait(message)
        elif isinstance(message, parser.OFPErrorMsg) and message.xid in self._in_doubt:
            self._errors[message.xid] = message

    async def _ask(self, request: Any, timeout_s: float = TIMEOUT_S) -> list[Any]:
        """Send a request and return its replies, including an error.

        Raises:
            OpenFlowError: the connection is gone, or there was no answer.

        """
        xid = self._send(request)
        replies: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting[xid] = replies
        if self.closed.is_set():
            replies.put_nowait(None)
        found = []
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    reply = await replies.get()
                    if reply is None:
                        raise OpenFlowError("connection closed")
                    found.append(reply)
                    if not getattr(reply, "flags", 0) & ofp.OFPMPF_REPLY_MORE:
                        return found
                    if len(found) == REPLIES_MOST:
                        raise OpenFlowError(f"an answer has more than {REPLIES_MOST} messages")
        except TimeoutError:
            raise OpenFlowError(f"no answer within {timeout_s:g} s") from None
        finally:
            del self._waiting[xid]

    async def _one(self, request: Any, *kinds: type) -> Any:
        """Send a request and return its reply, which must be of one of these kinds.

        Raises:
            OpenFlowError: the connection is gone, or there was no answer or another one.

        """
        replies = await self._ask(request)
        if len(replies) != 1 or not isinstance(replies[0], kinds):
            raise _unexpected(request, replies)
        return replies[0]

    async def _all(self, request: Any, kind: type) -> list[Any]:
        """Send a multipart request and return the lists in its replies' bodies as one.

        A bridge that does not know the request answers with an error; the list is then empty.

        Raises:
            OpenFlowError: the connection is gone, or there was no answer or another one.

        """
        replies = await self._ask(request)
        if any(not isinstance(reply, (kind, parser.OFPErrorMsg)) for reply in replies):
            raise _unexpected(request, replies)
        return [one for reply in replies for one in getattr(reply, "body", None) or ()]

    async def become_master(self, generation: int) -> None:
        """Become the master (OpenFlow 1.3.5, 6.3.6); former masters may no longer write.

        Raises:
            StaleRoleError: the bridge knows a newer generation.
            OpenFlowError: the connection is gone, or the bridge has no roles.

        """
        request = parser.OFPRoleRequest(_PROTOCOL, ofp.OFPCR_ROLE_MASTER, generation)
        reply = await self._one(request, parser.OFPRoleReply, parser.OFPErrorMsg)
        if isinstance(reply, parser.OFPRoleReply):
            return
        if (reply.type, reply.code) != (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE):
            raise OpenFlowError(f"role: OpenFlow error type {reply.type}, code {reply.code}")
        unchanged = parser.OFPRoleRequest(_PROTOCOL, ofp.OFPCR_ROLE_NOCHANGE, 0)
        reply = await self._one(unchanged, parser.OFPRoleReply)
        raise StaleRoleError(reply.generation_id)

    async def echo(self) -> None:
        """Check that the bridge answers an echo request.

        Raises:
            OpenFlowError: there was no reply.

        """
        await self._ask(parser.OFPEchoRequest(_PROTOCOL), ECHO_S)

    async def write(self, pending: Sequence[Change]) -> list[Refusal]:
        """Write at most BATCH changes of flows and meters in order; return the refusals.

        Raises:
            OpenFlowError: the connection is gone; it is unknown which changes were made.

        """
        refused: list[Refusal] = []
        self._errors.clear()
        xids = {self._send(_message(change)): change for change in pending}
        # No reply has been received yet, since nothing was awaited after the first was sent.
        self._in_doubt = set(xids)
        await self._ask(parser.OFPBarrierRequest(_PROTOCOL))
        for xid, change in xids.items():
            error = self._errors.get(xid)
            if error is not None and (error.type, error.code) == _DEMOTED:
                raise OpenFlowError("another controller is master of the bridge")
            if error is not None:
                full = (error.type, error.code) in _FULL
                text = f"OpenFlow error type {error.type}, code {error.code}"
                refused.append(Refusal(change.row, text, full))
        return refused

    async def read_flows(self) -> tuple[list[Row], dict[Key, Count]]:
        """Return the controller's flows and their counters."""
        request = parser.OFPFlowStatsRequest(
            _PROTOCOL, 0, 0, ofp.OFPP_ANY, ofp.OFPG_ANY, COOKIE, COOKIE_MASK, parser.OFPMatch()
        )
        rows: list[Row] = []
        counts: dict[Key, Count] = {}
        for stats in await self._all(request, parser.OFPFlowStatsReply):
            try:
                entry = _row_of(stats)
            except (TypeError, ValueError) as error:
                text = f"a flow with this controller's cookie cannot be read: {error}"
                raise OpenFlowError(text) from error
            rows.append(entry)
            counts[entry.key] = Count(stats.packet_count, stats.byte_count)
        return rows, counts

    async def read_meters(self) -> list[Row]:
        """Return all meters; a bridge without meters has none."""
        rows = []
        request = parser.OFPMeterConfigStatsRequest(_PROTOCOL, 0, ofp.OFPM_ALL)
        for meter in await self._all(request, parser.OFPMeterConfigStatsReply):
            params: dict[str, int | str] = {}
            for band in meter.bands:
                params = {"rate": band.rate, "burst_size": band.burst_size}
            owner = "meter of unknown origin"
            rows.append(row(METERS, {"meter": meter.meter_id}, "drop", params, owner=owner))
        return rows

    async def queue_counters(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Return sent packets and bytes, and packets lost, by port and queue."""
        request = parser.OFPQueueStatsRequest(_PROTOCOL, 0, ofp.OFPP_ANY, ofp.OFPQ_ALL)
        return {
            (one.port_no, one.queue_id): (one.tx_packets, one.tx_bytes, one.tx_errors)
            for one in await self._all(request, parser.OFPQueueStatsReply)
        }

    async def port_counters(self) -> dict[int, dict[str, Any]]:
        """Return counters by port."""
        names = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
        request = parser.OFPPortStatsRequest(_PROTOCOL, 0, ofp.OFPP_ANY)
        return {
            one.port_no: {
                **{name: getattr(one, name) for name in names},
                "drops": {"rx-dropped": one.rx_dropped, "tx-dropped": one.tx_dropped},
            }
            for one in await self._all(request, parser.OFPPortStatsReply)
        }


def _parsed(version: int, kind: int, length: int, xid: int, data: bytes) -> Any:
    """Return a message, with everything in it read.

    Raises:
        OpenFlowError: os-ken cannot read it.

    """
    try:
        lengths.check(data)
        return ofproto_parser.msg(_PROTOCOL, version, kind, length, xid, data)
    except Exception as error:
        raise OpenFlowError(f"a message of type {kind} cannot be read: {error!r}") from error


def _unexpected(request: Any, replies: Sequence[Any]) -> OpenFlowError:
    names = ", ".join(type(reply).__name__ for reply in replies)
    return OpenFlowError(f"the bridge answers {type(request).__name__} with {names}")


def _message(change: Change) -> Any:
    return _meter_mod(change) if change.row.table == METERS else _flow_mod(change)


def _meter_mod(change: Change) -> Any:
    params = dict(change.row.params)
    commands = {Op.INSERT: ofp.OFPMC_ADD, Op.MODIFY: ofp.OFPMC_MODIFY, Op.DELETE: ofp.OFPMC_DELETE}
    band = parser.OFPMeterBandDrop(int(params["rate"]), int(params["burst_size"]))
    flags = ofp.OFPMF_KBPS | ofp.OFPMF_BURST
    number = dict(change.row.match)["meter"]
    return parser.OFPMeterMod(_PROTOCOL, commands[change.op], flags, number, [band])


def _flow_mod(change: Change) -> Any:
    entry = change.row
    params = dict(entry.params)
    instructions = []
    if "meter" in params:
        instructions.append(parser.OFPInstructionMeter(params["meter"]))
    actions: list[Any] = []
    if "set_dscp" in params:
        actions.append(parser.OFPActionSetField(ip_dscp=params["set_dscp"]))
    if "queue" in params:
        actions.append(parser.OFPActionSetQueue(params["queue"]))
    actions.append(parser.OFPActionOutput(ofp.OFPP_NORMAL))
    instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    # ADD replaces an entry of the same match and priority, with its cookie.
    delete = change.op is Op.DELETE
    return parser.OFPFlowMod(
        _PROTOCOL,
        cookie=COOKIE,
        cookie_mask=COOKIE_MASK if delete else 0,
        table_id=0,
        command=ofp.OFPFC_DELETE_STRICT if delete else ofp.OFPFC_ADD,
        priority=entry.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=parser.OFPMatch(**{name: _to_oxm(name, value) for name, value in entry.match}),
        instructions=[] if delete else instructions,
    )


def _to_oxm(name: str, value: MatchValue) -> Any:
    """Return a value as os-ken wants it: addresses as text."""
    if not name.startswith(("ipv4_", "ipv6_")):
        return value
    kind = ipaddress.IPv4Address if name.startswith("ipv4_") else ipaddress.IPv6Address
    if isinstance(value, tuple):
        return tuple(str(kind(part)) for part in value)
    return str(kind(value))


def _from_oxm(name: str, value: Any) -> MatchValue:
    parts = value if isinstance(value, tuple) else (value,)
    if name.startswith(("ipv4_", "ipv6_")):
        parts = tuple(int(ipaddress.ip_address(part)) for part in parts)
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else int(parts[0])


def _row_of(stats: Any) -> Row:
    """Return the row of a flow that was read back."""
    params: dict[str, int | str] = {}
    normal = False
    for instruction in stats.instructions:
        if isinstance(instruction, parser.OFPInstructionMeter):
            params["meter"] = instruction.meter_id
        for action in getattr(instruction, "actions", ()):
            if isinstance(action, parser.OFPActionSetQueue):
                params["queue"] = action.queue_id
            elif isinstance(action, parser.OFPActionSetField) and action.key == "ip_dscp":
                params["set_dscp"] = action.value
            elif isinstance(action, parser.OFPActionOutput):
                normal = action.port == ofp.OFPP_NORMAL
    fields = {name: _from_oxm(name, value) for name, value in stats.match.items()}
    return row(
        FLOWS,
        fields,
        "classify" if normal else "other",
        params,
        priority=stats.priority,
        owner="flow of unknown origin",
    )

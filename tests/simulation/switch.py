"""A model of a switch that speaks P4Runtime, and of its traffic manager.

Arbitration follows switch/crates/p4runtime-server/src/arbitration.rs: the highest election id that
was ever bid for a role is remembered until the switch starts anew, an id of another live stream is
refused, and a new primary writes only after the writes that have begun. Tables, direct meters,
registers, counters and groups are dictionaries; a batch goes on after an update that fails, as
CONTINUE_ON_ERROR says. Packets are not forwarded; packets of unknown stations come up.

Unlike a switch, the model keeps the author and the time of each accepted write (`accepted`).
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.proto import U128, p4r, rpc_code, rpc_status
from loop import Process, SimulatedLoop
from network import Network
from pacer_controller import switch_services
from rpc import AbortError, Server, ServerCall

PORT = 9559
PORTS = 4
KEEPALIVE_S = (10.0, 10.0)
VISIT = 256
"""Updates between which nothing else happens."""

_OK, _NOT_FOUND, _EXISTS = rpc_code.OK, rpc_code.NOT_FOUND, rpc_code.ALREADY_EXISTS


@dataclass(frozen=True)
class Accepted:
    """A request that was allowed to change the switch."""

    at_s: float
    life: int
    election_id: int
    controller: Process
    method: str


@dataclass(eq=False)
class _Session:
    """A stream that takes part in arbitration."""

    call: ServerCall
    election_id: int | None = None


@dataclass
class _State:
    """The state that a switch loses when it restarts."""

    highest: int | None = None
    primary: _Session | None = None
    may_write: bool = False
    sessions: dict[_Session, None] = field(default_factory=dict)
    config: Any = None
    tables: dict[tuple[int, tuple[bytes, ...], int], Any] = field(default_factory=dict)
    groups: dict[int, Any] = field(default_factory=dict)
    registers: dict[tuple[int, int], Any] = field(default_factory=dict)
    ports: dict[int, dict[str, Any]] = field(default_factory=dict)


class Switch:
    """The switch.

    Args:
        loop: the simulation.
        network: the network to its controllers.
        name: the name of its node.
        seed: the seed of its delays.

    Attributes:
        accepted: its accepted changes with their authors, over all its lives.
        refused: the number of requests from processes that were not primary.

    """

    def __init__(self, loop: SimulatedLoop, network: Network, name: str, seed: str) -> None:
        self._loop = loop
        self._network = network
        self.node = loop.node(name)
        self.name = name
        self.settings = {"address": f"{name}:{PORT}"}
        self._chance = random.Random(f"{seed}/{name}")
        self.accepted: list[Accepted] = []
        self.histories = (self.accepted,)
        self.bids: dict[int, Process] = {}
        """The process that has bid each election id, over all lives."""
        self.stolen: list[tuple[int, Process, Process]] = []
        """Ids that two processes have bid."""
        self.refused = 0
        self.refuses = 0.0
        """The share of valid new entries that it refuses."""
        self._state = _State()
        self._lock = asyncio.Lock()
        self._server: Server | None = None
        self.start()

    def start(self) -> None:
        """Start it, with nothing in it."""
        process = Process(self._loop, self.node)
        self._state = _State()
        self._state.ports = {
            port: {"port": port, "interface": f"veth{port}", "up": True, "counts": 1}
            | {"fifo_bytes": 65536, "gap_mode": 1}
            for port in range(1, PORTS + 1)
        }
        process.context.run(self._serve)

    def _serve(self) -> None:
        self._lock = asyncio.Lock()
        messages = switch_services.messages()
        self._server = Server(
            self._network,
            PORT,
            {
                "Write": (p4r.WriteRequest, self._write),
                "SetForwardingPipelineConfig": (
                    p4r.SetForwardingPipelineConfigRequest,
                    self._set_pipeline,
                ),
                "GetForwardingPipelineConfig": (
                    p4r.GetForwardingPipelineConfigRequest,
                    self._get_pipeline,
                ),
                "Capabilities": (p4r.CapabilitiesRequest, self._capabilities),
                "ListPorts": (messages["ListPortsRequest"], self._list_ports),
                "SetPort": (messages["SetPortRequest"], self._set_port),
                "GetStatistics": (messages["GetStatisticsRequest"], self._statistics),
            },
            {
                "Read": (p4r.ReadRequest, self._read),
                "StreamChannel": (p4r.StreamMessageRequest, self._stream),
            },
            KEEPALIVE_S,
        )

    # ---- arbitration ----

    async def _stream(self, call: ServerCall) -> None:
        session = _Session(call)
        call.at_end.append(lambda: self._close(session))
        async for message in call.requests():
            if message.WhichOneof("update") == "arbitration":
                await self._arbitrate(session, message.arbitration)

    async def _arbitrate(self, session: _Session, update: Any) -> None:
        state = self._state
        bid = U128.decode(update.election_id) if update.HasField("election_id") else None
        if bid is not None:
            taken = [s for s in state.sessions if s is not session and s.election_id == bid]
            former = self.bids.setdefault(bid, session.call.client)
            if former is not session.call.client:
                self.stolen.append((bid, former, session.call.client))
            if taken:
                raise AbortError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"arbitration: election_id: {bid} given, another live controller of role '' "
                    "has it; one of its own expected",
                )
        state.sessions[session] = None
        session.election_id = bid
        if bid is not None and (state.highest is None or bid >= state.highest):
            state.highest, state.primary, state.may_write = bid, session, False
            self._loop.note(f"{self.name}: {session.call.client} is primary with {bid:#x}")
            self._notify(lambda one: one is not session)
            async with self._lock:
                # The writes that had begun are done.
                if state.primary is session and state is self._state:
                    state.may_write = True
                    self._notify(lambda one: one is session)
        elif state.primary is session:
            state.primary, state.may_write = None, False
            self._notify(lambda _: True)
        else:
            self._notify(lambda one: one is session)

    def _notify(self, wanted: Any) -> None:
        state = self._state
        for session in list(state.sessions):
            if not wanted(session):
                continue
            code = _NOT_FOUND if state.primary is None else _EXISTS
            code = _OK if state.primary is session else code
            answer = p4r.MasterArbitrationUpdate(device_id=0, status=rpc_status.Status(code=code))
            if state.highest is not None:
                answer.election_id.CopyFrom(U128.encode(state.highest))
            session.call.send(p4r.StreamMessageResponse(arbitration=answer))

    def _close(self, session: _Session) -> None:
        state = self._state
        if state.sessions.pop(session, session) is session:
            return
        if state.primary is session:
            state.primary, state.may_write = None, False
            self._notify(lambda _: True)

    def _check_primary(self, election_id: Any, given: bool) -> int:
        state = self._state
        bid = U128.decode(election_id) if given else None
        primary = state.primary if state.may_write else None
        if bid is None or primary is None or primary.election_id != bid:
            self.refused += 1
            has = "none" if primary is None else str(primary.election_id)
            raise AbortError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"election_id: {bid} given, the primary controller of role '' has {has}",
            )
        return bid

    @property
    def primary(self) -> Process | None:
        """The process that may write."""
        state = self._state
        return state.primary.call.client if state.primary and state.may_write else None

    def _accept(self, bid: int, call: ServerCall, method: str) -> None:
        life = self.node.lives
        self.accepted.append(Accepted(self._loop.now_s, life, bid, call.client, method))

    # ---- the pipeline ----

    def _configured(self) -> Any:
        if self._state.config is None:
            text = "no forwarding pipeline config has been set"
            raise AbortError(grpc.StatusCode.FAILED_PRECONDITION, text)
        return self._state.config

    async def _capabilities(self, _: Any, __: ServerCall) -> Any:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    async def _get_pipeline(self, request: Any, _: ServerCall) -> Any:
        config = self._configured()
        answer = p4r.GetForwardingPipelineConfigResponse()
        answer.config.cookie.CopyFrom(config.cookie)
        if request.response_type != p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            answer.config.p4info.CopyFrom(config.p4info)
        return answer

    async def _set_pipeline(self, request: Any, call: ServerCall) -> Any:
        self._check_primary(request.election_id, request.HasField("election_id"))
        async with self._lock:
            bid = self._check_primary(request.election_id, request.HasField("election_id"))
            self._accept(bid, call, "SetForwardingPipelineConfig")
            await asyncio.sleep(self._chance.uniform(0.01, 0.2))
            state = self._state
            state.config = request.config
            state.tables.clear()
            state.groups.clear()
            state.registers.clear()
            self._loop.note(f"{self.name}: pipeline of {call.client}")
        return p4r.SetForwardingPipelineConfigResponse()

    # ---- writes ----

    async def _write(self, request: Any, call: ServerCall) -> Any:
        self._configured()
        self._check_primary(request.election_id, request.HasField("election_id"))
        async with self._lock:
            bid = self._check_primary(request.election_id, request.HasField("election_id"))
            self._accept(bid, call, "Write")
            codes = []
            for number, update in enumerate(request.updates):
                if number % VISIT == VISIT - 1 or self._chance.random() < 0.02:
                    await asyncio.sleep(self._chance.expovariate(1 / 0.001))
                codes.append(self._update(update))
        if any(code != _OK for code in codes):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="updates failed")
            for code in codes:
                text = "" if code == _OK else f"entry: {code}"
                detail = status.details.add()
                detail.Pack(p4r.Error(canonical_code=code, message=text))
            raise AbortError(
                grpc.StatusCode.UNKNOWN,
                "updates failed",
                (("grpc-status-details-bin", status.SerializeToString()),),
            )
        return p4r.WriteResponse()

    def _update(self, update: Any) -> int:
        entity, state = update.entity, self._state
        kind = entity.WhichOneof("entity")
        held: dict[Any, Any]
        key: Any
        if kind == "table_entry":
            entry = entity.table_entry
            match = tuple(sorted(one.SerializeToString() for one in entry.match))
            held, key = state.tables, (entry.table_id, match, entry.priority)
        elif kind == "packet_replication_engine_entry":
            entry = entity.packet_replication_engine_entry.multicast_group_entry
            held, key = state.groups, entry.multicast_group_id
        elif kind == "register_entry":
            one = entity.register_entry
            state.registers[one.register_id, one.index.index] = one.data
            return _OK
        elif kind == "counter_entry":
            return _OK
        else:
            return int(rpc_code.UNIMPLEMENTED)
        if update.type == p4r.Update.INSERT:
            if key in held:
                return _EXISTS
            if self.refuses and self._chance.random() < self.refuses:
                return int(rpc_code.RESOURCE_EXHAUSTED)
            held[key] = entry
        elif key not in held:
            return _NOT_FOUND
        elif update.type == p4r.Update.MODIFY:
            held[key] = entry
        else:
            del held[key]
        return _OK

    # ---- reads ----

    async def _read(self, call: ServerCall) -> None:
        self._configured()
        async for request in call.requests():
            found: list[Any] = []
            for entity in request.entities:
                found += self._entities(entity)
            for start in range(0, len(found), VISIT):
                # Writes in between are seen in part, as on the switch.
                await asyncio.sleep(0)
                call.send(p4r.ReadResponse(entities=found[start : start + VISIT]))

    def _entities(self, entity: Any) -> list[Any]:
        state, kind = self._state, entity.WhichOneof("entity")
        if kind == "table_entry":
            wanted = entity.table_entry
            return [
                _shown(entry, wanted)
                for (table, _, _), entry in state.tables.items()
                if wanted.table_id in (0, table)
            ]
        if kind == "packet_replication_engine_entry":
            return [
                p4r.Entity(
                    packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
                        multicast_group_entry=group
                    )
                )
                for group in state.groups.values()
            ]
        if kind == "counter_entry":
            counter = p4r.CounterEntry()
            counter.CopyFrom(entity.counter_entry)
            counter.data.SetInParent()
            return [p4r.Entity(counter_entry=counter)]
        register = p4r.RegisterEntry()
        register.CopyFrom(entity.register_entry)
        data = state.registers.get((register.register_id, register.index.index))
        if data is None:
            register.data.bitstring = b"\0"
        else:
            register.data.CopyFrom(data)
        return [p4r.Entity(register_entry=register)]

    # ---- the traffic manager ----

    def _port(self, number: int) -> Any:
        return switch_services.messages()["Port"](**self._state.ports[number])

    async def _list_ports(self, _: Any, __: ServerCall) -> Any:
        ports = [self._port(number) for number in self._state.ports]
        return switch_services.messages()["ListPortsResponse"](ports=ports)

    async def _set_port(self, request: Any, call: ServerCall) -> Any:
        fields = request.DESCRIPTOR.fields_by_name
        if "election_id" in fields:
            bid = self._check_primary(request.election_id, request.HasField("election_id"))
            self._accept(bid, call, "SetPort")
        port = self._state.ports.get(request.port)
        if port is None:
            raise AbortError(grpc.StatusCode.NOT_FOUND, f"no port {request.port}")
        for name in ("line_rate_bps", "counts", "fifo_bytes", "delay_ns", "gap_mode"):
            if request.HasField(name):
                port[name] = getattr(request, name)
        if request.remove_line_rate:
            port.pop("line_rate_bps", None)
        answer = switch_services.messages()["SetPortResponse"]
        return answer(port=self._port(request.port))

    async def _statistics(self, request: Any, _: ServerCall) -> Any:
        messages = switch_services.messages()
        classes = [messages["ClassState"](class_id=number) for number in request.class_ids]
        ports = [messages["PortStatistics"](port=number) for number in self._state.ports]
        return messages["GetStatisticsResponse"](
            switch=messages["SwitchStatistics"](now_ns=int(self._loop.now_s * 1e9)),
            ports=ports,
            classes=classes,
        )

    # ---- events from the world ----

    def packet(self, mac: int, port: int) -> None:
        """Have the first packet of a station come in."""
        state = self._state
        if state.primary is None or not state.may_write or state.config is None:
            return
        payload = b"\xff" * 6 + mac.to_bytes(6, "big") + b"\x08\x00" + bytes(46)
        ingress = p4r.PacketMetadata(metadata_id=1, value=bytes([port]))
        reason = p4r.PacketMetadata(metadata_id=2, value=b"\0")
        packet = p4r.PacketIn(payload=payload, metadata=[ingress, reason])
        state.primary.call.send(p4r.StreamMessageResponse(packet=packet))

    def reset_streams(self) -> None:
        """Break all connections, as a middlebox that has lost its table does."""
        if self._server is not None:
            self._server.end_connections()

    # ---- for invariants ----

    def table_entries(self) -> list[Any]:
        """Return all table entries."""
        return list(self._state.tables.values())

    @property
    def config(self) -> Any:
        """The pipeline's configuration; None: there is none."""
        return self._state.config

    def ports(self) -> dict[int, dict[str, Any]]:
        """Return the settings of ports."""
        return self._state.ports


def _shown(entry: Any, wanted: Any) -> Any:
    """Return an entry with the direct resources that were asked for."""
    if entry.HasField("meter_config") and not wanted.HasField("meter_config"):
        shown = p4r.TableEntry()
        shown.CopyFrom(entry)
        shown.ClearField("meter_config")
        return p4r.Entity(table_entry=shown)
    return p4r.Entity(table_entry=entry)

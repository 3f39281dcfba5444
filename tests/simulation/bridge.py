"""A model of Open vSwitch with the pacer: one bridge, its database, and its OpenFlow connections.

The database follows RFC 7047 as ovsdb-server does, with the tables and columns that the controller
uses. A transaction makes all of its changes or none. A lock belongs to a connection. The server
probes a silent connection, and closes it if no answer comes. The database is on a disk: its rows
survive a restart. Flows, roles and connections do not.

OpenFlow is version 1.3, with roles and generation ids (6.3.6 of the specification). The model keeps
flows and meters as the bytes of their messages. It does not forward packets.
"""

import copy
import itertools
import json
import random
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loop import Process, SimulatedLoop
from network import Endpoint, Network
from os_ken.ofproto import ofproto_v1_3 as ofp
from pacer_controller.openvswitch import flows, openflow
from pacer_controller.records import Desired
from pacer_controller.rows import PORTS, QUEUES, Change, Op

from switch import Accepted

OVSDB_PORT = 6640
OPENFLOW_PORT = 6653
PORTS_MADE = 2

PROBE_S = 5.0
"""Silence on a connection to the database before the server probes it."""

SETTLE_S = (0.005, 0.2)
"""Range of the time that the switch takes to apply a change of the database."""

IN_PIECES = 0.1
"""Share of the messages that arrive in two pieces."""

GENERATIONS = 2**64

LOCK = "pacer_"
"""Beginning of a lock's name; the bridge's name follows, in hexadecimal digits."""

_MODS = (
    bytes((ofp.OFP_VERSION, ofp.OFPT_FLOW_MOD)),
    bytes((ofp.OFP_VERSION, ofp.OFPT_METER_MOD)),
)

Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]

_DEFAULTS: dict[str, Row] = {
    "QoS": {
        "type": "",
        "other_config": ["map", []],
        "queues": ["map", []],
        "external_ids": ["map", []],
        "status": ["map", []],
    },
    "Queue": {"other_config": ["map", []], "external_ids": ["map", []]},
}

_SCHEMA: Row = {"tables": {"QoS": {"columns": {"status": {}}}}}


class _ConstraintError(Exception):
    """A failed operation, which fails its transaction; the text is the error's name."""


@dataclass(eq=False)
class _Client:
    """A connection to the database.

    Attributes:
        fence: the fencing number that it wrote last.
        heard: number of messages that came on it.

    """

    end: Endpoint
    controller: Process
    text: str = ""
    fence: int = 0
    heard: int = 0


@dataclass(eq=False)
class _Session:
    """An OpenFlow connection."""

    end: Endpoint
    controller: Process
    data: bytearray = field(default_factory=bytearray)
    role: int = ofp.OFPCR_ROLE_EQUAL


@dataclass
class _State:
    """The state of a bridge that a restart clears."""

    generation: int | None = None
    flows: dict[tuple[int, bytes], tuple[int, bytes]] = field(default_factory=dict)
    """Cookie and instructions, by priority and match."""
    meters: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    sessions: dict[_Session, None] = field(default_factory=dict)
    clients: dict[_Client, None] = field(default_factory=dict)
    locks: dict[str, list[_Client]] = field(default_factory=dict)
    """The holder of each lock, followed by the clients that wait for it."""


class Bridge:
    """The bridge.

    Args:
        loop: the simulation.
        network: to its controllers.
        name: the name of its node, and of the bridge.
        seed: the seed of delays.

    Attributes:
        histories: accepted changes over all its lives: by OpenFlow, and in the database.
        stolen: generation ids that two processes have bid.
        wrong: violations that the bridge itself has seen.
        refuses: share of valid new flows that it refuses.
        mute: whether it answers no request, and only probes its connections.

    """

    def __init__(self, loop: SimulatedLoop, network: Network, name: str, seed: str) -> None:
        self._loop = loop
        self._network = network
        self.node = loop.node(name)
        self.name = name
        self.settings = {
            "kind": "openvswitch",
            "ovsdb": f"tcp:{name}:{OVSDB_PORT}",
            "bridge": name,
            "openflow": f"tcp:{name}:{OPENFLOW_PORT}",
            "qos_type": "pacer",
        }
        self._chance = random.Random(f"{seed}/{name}")
        self.histories: tuple[list[Accepted], list[Accepted]] = ([], [])
        self.stolen: list[tuple[int, Process, Process]] = []
        self.wrong: list[str] = []
        self.refuses = 0.0
        self.mute = False
        self._bids: dict[int, Process] = {}
        self._state = _State()
        self._tables = self._made()
        self.start()

    def _made(self) -> Tables:
        """Return the database of a new bridge."""
        interfaces = {
            self._uuid(): {"ofport": n, "link_state": "up", "link_speed": 10**10}
            for n in range(1, PORTS_MADE + 1)
        }
        ports = {
            self._uuid(): {
                "name": f"veth{one['ofport']}",
                "interfaces": ["uuid", key],
                "qos": ["set", []],
            }
            for key, one in interfaces.items()
        }
        bridge = {
            "name": self.name,
            "datapath_type": "netdev",
            "ports": ["set", [["uuid", key] for key in ports]],
            "external_ids": ["map", []],
        }
        return {
            "Open_vSwitch": {self._uuid(): {"next_cfg": 0, "cur_cfg": 0}},
            "Bridge": {self._uuid(): bridge},
            "Port": ports,
            "Interface": interfaces,
            "QoS": {},
            "Queue": {},
        }

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128)))

    def start(self) -> None:
        """Start it, with the rows of its database."""
        process = Process(self._loop, self.node)
        self._state = _State()
        self._network.listen(process, OVSDB_PORT, self._accept_client)
        self._network.listen(process, OPENFLOW_PORT, self._accept_session)
        self._apply_later()

    def reset_streams(self) -> None:
        """Break all connections."""
        ends = [one.end for one in self._state.clients]
        ends += [one.end for one in self._state.sessions]
        for end in ends:
            end.lose("reset by peer")

    def packet(self, _address: int, _port: int) -> None:
        """Do nothing: packets do not come up."""

    def garble(self, kind: int) -> None:
        """Send invalid bytes or an invalid message on every connection."""
        noise = self._chance.randbytes(24)
        header = struct.pack(ofp.OFP_HEADER_PACK_STR, 4, ofp.OFPT_MULTIPART_REPLY, 24, 0)
        of_sessions = (noise, b"\x04\x13\0\0" + noise, header + noise[:16], b"\x01" + noise)
        of_clients = (noise, b"]", b'{"id":0,"result":7}', b'{"method":"stolen"}', b'{"id":[]')
        for session in self._state.sessions:
            session.end.send((of_sessions[kind % len(of_sessions)],))
        for client in self._state.clients:
            client.end.send((of_clients[kind % len(of_clients)],))

    def _send(self, end: Endpoint, data: bytes) -> None:
        if len(data) > 1 and self._chance.random() < IN_PIECES:
            at = self._chance.randrange(1, len(data))
            end.send((data[:at],))
            data = data[at:]
        end.send((data,))

    def _accepted(self, history: int, number: int, controller: Process, method: str) -> None:
        life = self.node.lives if history == 0 else 0
        self.histories[history].append(Accepted(self._loop.now_s, life, number, controller, method))

    # ---- the database ----

    def _accept_client(self, end: Endpoint) -> None:
        assert end.other is not None
        client = _Client(end, end.other.process)
        self._state.clients[client] = None
        end.received = lambda message: self._receive(client, message[0])
        end.broken = lambda _: self._gone(client)
        self._loop.after(PROBE_S, self._probe, client, 0)

    def _probe(self, client: _Client, heard: int, asked: bool = False) -> None:
        if client not in self._state.clients or not client.end.open:
            return
        if client.heard == heard and asked:
            client.end.close()
            self._gone(client)
            return
        silent = client.heard == heard
        if silent:
            self._say(client, {"id": "echo", "method": "echo", "params": []})
        self._loop.after(PROBE_S, self._probe, client, client.heard, silent)

    def _gone(self, client: _Client) -> None:
        self._state.clients.pop(client, None)
        for lock in list(self._state.locks):
            self._leave(client, lock)

    def _leave(self, client: _Client, lock: str) -> None:
        line = self._state.locks.get(lock, [])
        if client in line:
            first = line[0] is client
            line.remove(client)
            if first and line:
                self._say(line[0], {"id": None, "method": "locked", "params": [lock]})

    def _owns(self, client: _Client, lock: str) -> bool:
        return self._state.locks.get(lock, [])[:1] == [client]

    def _say(self, client: _Client, message: Mapping[str, Any]) -> None:
        self._send(client.end, json.dumps(message, separators=(",", ":")).encode())

    def _receive(self, client: _Client, data: bytes) -> None:
        client.heard += 1
        client.text += data.decode()
        while client.text:
            try:
                message, end = json.JSONDecoder().raw_decode(client.text)
            except ValueError:
                # The rest is yet to come.
                return
            client.text = client.text[end:]
            if "method" in message:
                self._answer(client, message)

    def _answer(self, client: _Client, message: Mapping[str, Any]) -> None:
        if self.mute:
            return
        method, params = message["method"], message["params"]
        error: Any = None
        result: Any = None
        if method == "echo":
            result = params
        elif method == "get_schema":
            result = _SCHEMA
        elif method in ("lock", "steal", "unlock"):
            result = self._locks(client, method, params[0])
            error = "unknown lock" if result is None else None
        else:
            assert method == "transact", method
            result = self._transact(client, params[1:])
        self._say(client, {"id": message["id"], "result": result, "error": error})

    def _locks(self, client: _Client, method: str, lock: str) -> dict[str, bool] | None:
        line = self._state.locks.setdefault(lock, [])
        if method == "unlock":
            if client not in line:
                return None
            self._leave(client, lock)
            return {}
        if method == "steal" and line:
            self._say(line[0], {"id": None, "method": "stolen", "params": [lock]})
            del line[0]
            line.insert(0, client)
        else:
            line.append(client)
        return {"locked": line[0] is client}

    def _transact(self, client: _Client, operations: Sequence[Row]) -> list[Any]:
        changes = any(one["op"] not in ("select", "assert", "wait") for one in operations)
        tables = copy.deepcopy(self._tables) if changes else self._tables
        names: dict[str, str] = {
            one["uuid-name"]: self._uuid() for one in operations if "uuid-name" in one
        }
        results: list[Any] = []
        try:
            results.extend(self._operate(client, tables, names, one) for one in operations)
            if changes:
                self._check_writer(client, operations)
            _check_references(tables)
        except _ConstraintError as error:
            results.append({"error": str(error), "details": ""})
            return results
        if changes:
            self._tables = tables
            self._accepted(1, client.fence, client.controller, "transact")
            self._apply_later()
        return results

    def _check_writer(self, client: _Client, operations: Sequence[Row]) -> None:
        """Note a violation if the client writes without the lock or a fencing number.

        The transaction may still be refused, but not for the lack of a right.
        """
        if not self._owns(client, LOCK + self.name.encode().hex()):
            self.wrong.append(f"{client.controller} writes without the lock")
        for one in operations:
            for column, how, value in one.get("mutations", ()):
                if one["table"] == "Bridge" and (column, how) == ("external_ids", "insert"):
                    client.fence = int(dict(value[1])["pacer-fence"])
        if not client.fence:
            self.wrong.append(f"{client.controller} writes without a fencing number")

    def _operate(
        self, client: _Client, tables: Tables, names: Mapping[str, str], one: Row
    ) -> Row | None:
        if one["op"] == "assert":
            if not self._owns(client, one["lock"]):
                raise _ConstraintError("not owner")
            return {}
        table = tables[one["table"]]
        if one["op"] == "insert":
            key = names[one["uuid-name"]]
            table[key] = copy.deepcopy(_DEFAULTS[one["table"]]) | _named(one["row"], names)
            return {"uuid": ["uuid", key]}
        found = [key for key, row in table.items() if _matches(key, row, one["where"])]
        if one["op"] == "select":
            return {"rows": [_columns(key, table[key], one["columns"]) for key in found]}
        if one["op"] == "wait":
            rows = [_columns(key, table[key], one["columns"]) for key in found]
            if (rows == one["rows"]) != (one["until"] == "=="):
                raise _ConstraintError("timed out")
            return {}
        for key in found:
            if one["op"] == "update":
                table[key] |= _named(one["row"], names)
            elif one["op"] == "delete":
                del table[key]
            else:
                _mutate(table[key], one["mutations"])
        return {"count": len(found)}

    def _apply_later(self) -> None:
        (root,) = self._tables["Open_vSwitch"].values()
        process, wanted = self.node.process, root["next_cfg"]
        assert process is not None
        delay_s = self._chance.uniform(*SETTLE_S)
        self._loop.after(delay_s, process.post, lambda: self._settled(wanted))

    def _settled(self, wanted: int) -> None:
        (root,) = self._tables["Open_vSwitch"].values()
        root["cur_cfg"] = max(root["cur_cfg"], wanted)

    # ---- OpenFlow ----

    def _accept_session(self, end: Endpoint) -> None:
        assert end.other is not None
        session = _Session(end, end.other.process)
        self._state.sessions[session] = None
        end.received = lambda message: self._take(session, message[0])
        end.broken = lambda _: self._state.sessions.pop(session, None) and None
        self._reply(session, ofp.OFPT_HELLO, 0)

    def _take(self, session: _Session, data: bytes) -> None:
        session.data += data
        while len(session.data) >= ofp.OFP_HEADER_SIZE:
            _, kind, length, xid = struct.unpack_from(ofp.OFP_HEADER_PACK_STR, session.data)
            if len(session.data) < length:
                return
            message = bytes(session.data[:length])
            del session.data[:length]
            self._handle(session, kind, xid, message)

    def _reply(self, session: _Session, kind: int, xid: int, body: bytes = b"") -> None:
        head = struct.pack(
            ofp.OFP_HEADER_PACK_STR, ofp.OFP_VERSION, kind, ofp.OFP_HEADER_SIZE + len(body), xid
        )
        self._send(session.end, head + body)

    def _refuse(self, session: _Session, message: bytes, xid: int, kind: int, code: int) -> None:
        self._reply(session, ofp.OFPT_ERROR, xid, struct.pack("!HH", kind, code) + message[:64])

    def _handle(self, session: _Session, kind: int, xid: int, message: bytes) -> None:
        body = message[ofp.OFP_HEADER_SIZE :]
        if kind == ofp.OFPT_ECHO_REQUEST:
            self._reply(session, ofp.OFPT_ECHO_REPLY, xid, body)
        elif kind == ofp.OFPT_FEATURES_REQUEST:
            body = struct.pack("!QIBB2xII", int(self.name[1:]) + 1, 0, 254, 0, 0, 0)
            self._reply(session, ofp.OFPT_FEATURES_REPLY, xid, body)
        elif kind == ofp.OFPT_BARRIER_REQUEST:
            self._reply(session, ofp.OFPT_BARRIER_REPLY, xid)
        elif kind == ofp.OFPT_ROLE_REQUEST:
            self._role(session, xid, message)
        elif kind == ofp.OFPT_MULTIPART_REQUEST:
            self._list(session, xid, body)
        elif kind in (ofp.OFPT_FLOW_MOD, ofp.OFPT_METER_MOD):
            self._write(session, kind, xid, message)

    def _role(self, session: _Session, xid: int, message: bytes) -> None:
        role, generation = struct.unpack_from("!I4xQ", message, ofp.OFP_HEADER_SIZE)
        state = self._state
        if role == ofp.OFPCR_ROLE_MASTER:
            known = state.generation
            if known is not None and (generation - known) % GENERATIONS >= GENERATIONS // 2:
                kind, code = ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE
                self._refuse(session, message, xid, kind, code)
                return
            other = self._bids.setdefault(generation, session.controller)
            if other is not session.controller:
                self.stolen.append((generation, other, session.controller))
            for one in state.sessions:
                if one.role == ofp.OFPCR_ROLE_MASTER:
                    one.role = ofp.OFPCR_ROLE_SLAVE
            state.generation, session.role = generation, role
            self._loop.note(f"{self.name}: {session.controller} is master with {generation:#x}")
        known = GENERATIONS - 1 if state.generation is None else state.generation
        body = struct.pack("!I4xQ", session.role, known)
        self._reply(session, ofp.OFPT_ROLE_REPLY, xid, body)

    def _list(self, session: _Session, xid: int, body: bytes) -> None:
        (kind,) = struct.unpack_from("!H", body)
        found = b""
        if kind == ofp.OFPMP_FLOW:
            cookie, mask = struct.unpack_from("!QQ", body, 8 + 16)
            for (priority, match), (of, instructions) in self._state.flows.items():
                if of & mask == cookie & mask:
                    size = 48 + len(match) + len(instructions)
                    numbers = (size, 0, 0, 0, priority, 0, 0, 0, of, 0, 0)
                    head = struct.pack(ofp.OFP_FLOW_STATS_0_PACK_STR, *numbers)
                    found += head + match + instructions
        elif kind == ofp.OFPMP_METER_CONFIG:
            for number, (flags, bands) in self._state.meters.items():
                found += struct.pack("!HHI", 8 + len(bands), flags, number) + bands
        self._reply(session, ofp.OFPT_MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, 0) + found)

    def _write(self, session: _Session, kind: int, xid: int, message: bytes) -> None:
        if session.role == ofp.OFPCR_ROLE_SLAVE:
            code = ofp.OFPBRC_IS_SLAVE
            self._refuse(session, message, xid, ofp.OFPET_BAD_REQUEST, code)
            return
        if session.role != ofp.OFPCR_ROLE_MASTER:
            self.wrong.append(f"{session.controller} writes before it is master")
        generation = self._state.generation or 0
        self._accepted(0, generation, session.controller, "mod")
        if kind == ofp.OFPT_METER_MOD:
            command, flags, number = struct.unpack_from("!HHI", message, ofp.OFP_HEADER_SIZE)
            self._state.meters.pop(number, None)
            if command != ofp.OFPMC_DELETE:
                self._state.meters[number] = (flags, message[16:])
            return
        command, cookie, key, instructions = flow_of(message)
        if command == ofp.OFPFC_DELETE_STRICT:
            self._state.flows.pop(key, None)
        elif self._chance.random() < self.refuses:
            kind, code = ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL
            self._refuse(session, message, xid, kind, code)
        else:
            self._state.flows[key] = (cookie, instructions)

    # ---- at rest ----

    def unrest(self, desired: Desired) -> str | None:
        """Return how it differs from its desired state; None: it does not."""
        masters = [one for one in self._state.sessions if one.role == ofp.OFPCR_ROLE_MASTER]
        if not masters or not masters[0].controller.alive:
            return "has no master"
        rows = [row for _, _, record in desired.all() for row in flows.record_rows(record, desired)]
        wanted = {}
        for row in rows:
            if row.table == flows.FLOWS:
                message = openflow._message(Change(Op.INSERT, row))
                message.serialize()
                _, cookie, key, instructions = flow_of(bytes(message.buf))
                wanted[key] = (cookie, instructions)
        if wanted != self._state.flows:
            differing = [
                key
                for key in sorted({*wanted, *self._state.flows})
                if wanted.get(key) != self._state.flows.get(key)
            ]
            priority, match = differing[0]
            return f"has another flow of priority {priority}, match {match.hex()}"
        queues = {
            int(str(dict(row.match)["queue"])): flows.queue_settings(row, "pacer")
            for row in rows
            if row.table == QUEUES
        }
        settings = {int(str(dict(row.match)["port"])): row for row in rows if row.table == PORTS}
        return self._rows_differ(queues, settings)

    def _rows_differ(
        self, queues: Mapping[int, Mapping[str, str]], settings: Mapping[int, Any]
    ) -> str | None:
        """Return how the database differs."""
        numbers = {}
        for key, row in self._tables["Queue"].items():
            number = int(dict(row["external_ids"][1])["pacer-queue"])
            if number in numbers:
                return f"has queue {number} twice"
            numbers[number] = (key, dict(row["other_config"][1]))
        has = {number: config for number, (_, config) in numbers.items()}
        if has != dict(queues):
            return f"has queues {has}, not {dict(queues)}"
        for port in self._tables["Port"].values():
            number = int(port["name"].removeprefix("veth"))
            if port["qos"][0] != "uuid":
                return f"has no QoS at port {number}"
            qos = self._tables["QoS"][port["qos"][1]]
            references = {n: one[1] for n, one in qos["queues"][1]}
            if references != {n: key for n, (key, _) in numbers.items()}:
                return f"has other queues at port {number}"
            setting = settings.get(number)
            limit = None if setting is None else dict(setting.params).get("fifo_bytes")
            found = dict(qos["other_config"][1]).get("limit")
            if found != (None if limit is None else str(limit)):
                return f"has {found} bytes of FIFO at port {number}, not {limit}"
        return None


def modifies(data: bytes) -> bool:
    """Whether a message changes flows or meters."""
    return data[:2] in _MODS


def transacts(data: bytes) -> bool:
    """Whether a message changes the database."""
    # Each change counts up, or puts a fencing number, by a mutation.
    return b'"mutate"' in data


def queries(data: bytes) -> bool:
    """Whether a message only reads the database."""
    return b'"transact"' in data and not transacts(data)


def flow_of(message: bytes) -> tuple[int, int, tuple[int, bytes], bytes]:
    """Return command, cookie, priority and match, and instructions of a flow's change."""
    values = struct.unpack_from(ofp.OFP_FLOW_MOD_PACK_STR0, message, ofp.OFP_HEADER_SIZE)
    cookie, command, priority = values[0], values[3], values[6]
    start = ofp.OFP_FLOW_MOD_SIZE - ofp.OFP_MATCH_SIZE
    (length,) = struct.unpack_from("!H", message, start + 2)
    end = start + (length + 7) // 8 * 8
    return command, cookie, (priority, message[start:end]), message[end:]


# ---- rows ----


def _named(row: Row, names: Mapping[str, str]) -> Row:
    """Return a row with UUIDs for the names that its transaction gives them."""

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            if len(value) == 2 and value[0] == "named-uuid":
                return ["uuid", names[value[1]]]
            return [resolved(one) for one in value]
        return value

    return {column: resolved(value) for column, value in row.items()}


def _columns(key: str, row: Row, columns: Sequence[str]) -> Row:
    return {column: ["uuid", key] if column == "_uuid" else row[column] for column in columns}


def _matches(key: str, row: Row, where: Sequence[Any]) -> bool:
    for column, how, value in where:
        have = ["uuid", key] if column == "_uuid" else row[column]
        if how == "==":
            if have != value:
                return False
        else:
            assert how == "includes", how
            if not all(one in have[1] for one in value[1]):
                return False
    return True


def _mutate(row: Row, mutations: Sequence[Any]) -> None:
    for column, how, value in mutations:
        if how == "+=":
            row[column] += value
        elif how == "delete":
            row[column] = ["map", [one for one in row[column][1] if one[0] not in value[1]]]
        else:
            assert how == "insert", how
            known = {one[0] for one in row[column][1]}
            row[column][1].extend(one for one in value[1] if one[0] not in known)


def _check_references(tables: Tables) -> None:
    """Check that every reference names a row."""
    of_ports = ((one["qos"], "QoS") for one in tables["Port"].values())
    of_qos = (
        (reference, "Queue") for one in tables["QoS"].values() for _, reference in one["queues"][1]
    )
    for reference, table in itertools.chain(of_ports, of_qos):
        if reference[0] == "uuid" and reference[1] not in tables[table]:
            raise _ConstraintError("referential integrity violation")

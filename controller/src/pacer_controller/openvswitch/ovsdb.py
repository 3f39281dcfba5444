"""A bridge's ports, QoS and queues in the Open vSwitch database (RFC 7047).

Calls block, since `ovs` does not use asyncio. They are made in a thread of the driver.

The bridge's lock belongs to a connection and is lost with it. The next connection is made only by
the next request for the lock. Each transaction that writes asserts the lock, and that the bridge
has the fencing number of this controller. So a controller that has lost either writes nothing.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import ovs.jsonrpc
import ovs.poller
import ovs.stream
import ovs.timeval

from pacer_controller.southbound import NotHeldError

_DATABASE = "Open_vSwitch"
_OWNER = "pacer-controller"
_QUEUE = "pacer-queue"
_PORT = "pacer-port"
"""Keys of a queue's `external_ids`: its number, and its port if it is not on every port."""

EVERY_PORT = 0
"""In place of a port's number: the queue is on every port."""

QueueKey = tuple[int, int]
"""A queue: port or EVERY_PORT, and number."""

_FENCE = "pacer-fence"
"""Key in the bridge's `external_ids` of the fencing number of the controller that may write, in
decimal."""

_NOT_OURS = ("not owner", "timed out")
"""Errors of the operations that check the lock and the fencing number (RFC 7047, 5.2)."""

_COUNT_UP = {
    "op": "mutate",
    "table": "Open_vSwitch",
    "where": [],
    "mutations": [["next_cfg", "+=", 1]],
}

_NONE: Mapping[int, Any] = MappingProxyType({})

SILENCE_MS = 10_000
"""Longest time without a byte of an answer, after which the connection is closed."""


class OvsdbError(Exception):
    """The database is gone, or refused a request; the text is its error."""


class RefusedError(OvsdbError):
    """The database answered with an error, and changed nothing; the connection still works."""


@dataclass
class BridgePort:
    """A port of the bridge as the database has it."""

    uuid: str
    name: str
    ofport: int
    up: bool | None
    qos_uuid: str | None = None
    qos_type: str | None = None
    qos_config: dict[str, str] = field(default_factory=dict)
    queues: dict[int, str] = field(default_factory=dict)
    own_queues: dict[int, dict[str, str]] = field(default_factory=dict)
    """`other_config` of the queues that only this port has, by number."""
    mine: bool = False
    link_bps: int | None = None


@dataclass
class Snapshot:
    """A bridge as the database describes it."""

    ports: list[BridgePort]
    queues: dict[QueueKey, tuple[str, dict[str, str]]]
    """UUID and `other_config` of the controller's queues."""
    strays: list[str]
    """UUIDs of the controller's rows that have no queue, or the queue of another row."""
    refused: dict[str, str]
    """The reasons for refused QoS or queues, by port name; only the patched switch reports them."""
    settled: bool
    """Whether the switch has applied everything; true if it does not report that."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Read answers of the database, whose form is checked by using it.

    Raises:
        OvsdbError: an answer has another form than RFC 7047 and the schema of Open vSwitch say.

    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise OvsdbError(f"an answer of the database has an unknown form: {error!r}") from error


class Database:
    """A connection to the database.

    Args:
        remote: `unix:PATH` or `tcp:HOST:PORT`.
        bridge: the bridge's name.
        owner: the mark of this controller's rows.
        held: whether this controller may write; asked right before each write.

    """

    def __init__(
        self, remote: str, bridge: str, owner: str, held: Callable[[], bool] = lambda: True
    ) -> None:
        self._held = held
        self._remote = remote
        self._bridge = bridge
        self._owner = owner
        self._connection: Any = None
        self._paces = False
        """Whether the switch at this connection knows the QoS type `pacer`."""
        self._owned = False
        """Whether the last connection had the lock; then only `lock` makes another connection."""
        self._number: str | None = None
        """The fencing number that the bridge has while this controller owns it."""
        # A lock's name is an identifier (RFC 7047, 3.1); a bridge's may be anything.
        self._lock = f"pacer_{bridge.encode().hex()}"

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        if self._connection is None:
            if self._owned:
                raise OvsdbError("the connection is gone, and with it the bridge's lock")
            opened = ovs.stream.Stream.open(self._remote)
            error, stream = ovs.stream.Stream.open_block(opened, SILENCE_MS)
            if error:
                raise OvsdbError(f"{self._remote}: {_errno(error)}")
            self._connection = ovs.jsonrpc.Connection(stream)
            schema = self._call("get_schema", [_DATABASE])
            try:
                columns = schema["tables"]["QoS"]["columns"]
            except (KeyError, TypeError):
                self.close()
                raise OvsdbError(f"{self._remote} has no database of Open vSwitch") from None
            # The column came with the type (ovs-patches); a switch without it has neither.
            self._paces = "status" in columns

    def _call(self, method: str, params: Sequence[Any]) -> Any:
        self._connect()
        request = ovs.jsonrpc.Message.create_request(method, list(params))
        due_ms = ovs.timeval.msec() + SILENCE_MS
        # The rest of the request is sent while this waits for the answer.
        error = self._connection.send(request)
        while not error:
            # A server that only asks for signs of life does not answer the request.
            error, reply = self._receive(due_ms)
            if not error and reply.id == request.id:
                break
            if not error and reply.type == ovs.jsonrpc.Message.T_REQUEST:
                # The server's echo request (RFC 7047, 4.1.11).
                error = self._connection.send(
                    ovs.jsonrpc.Message.create_reply(reply.params, reply.id)
                )
            elif not error and reply.method == "stolen":
                self.close()
                raise OvsdbError("another controller has taken the bridge's lock")
        if error:
            self.close()
            raise OvsdbError(f"{self._remote}: {_errno(error)}")
        if reply.error is not None:
            raise RefusedError(f"{method}: {reply.error}")
        return reply.result

    def _receive(self, due_ms: int) -> tuple[int, Any]:
        """Return the next message, or an error number.

        Args:
            due_ms: the time until which to wait for it, in ms of `ovs.timeval`; bytes that come or
                go extend the wait by SILENCE_MS from then on.

        """
        connection = self._connection
        progress: tuple[int, int] | None = None
        deadline_ms = due_ms
        while True:
            error, message = connection.recv()
            if error != errno.EAGAIN:
                return error, message
            connection.run()
            now_ms = ovs.timeval.msec()
            moved = (connection.get_received_bytes(), connection.get_backlog())
            if progress is not None and moved != progress:
                deadline_ms = now_ms + SILENCE_MS
            progress = moved
            if now_ms >= deadline_ms:
                return errno.ETIMEDOUT, None
            poller = ovs.poller.Poller()
            connection.wait(poller)
            connection.recv_wait(poller)
            poller.timer_wait_until(deadline_ms)
            poller.block()

    @_reading()
    def _transact(self, operations: Sequence[Mapping[str, Any]]) -> list[Any]:
        results = self._call("transact", [_DATABASE, *operations])
        for result in results:
            if isinstance(result, dict) and "error" in result:
                kind = OvsdbError if result["error"] in _NOT_OURS else RefusedError
                raise kind(f"{result['error']}: {result.get('details', '')}")
        return list(results)

    def _write(self, operations: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Make a transaction that changes something.

        Raises:
            NotHeldError: this controller may not write any longer.
            RefusedError: an operation is refused.
            OvsdbError: no answer, so that the change may be made or not; or the bridge is not this
                controller's.

        """
        if not self._held():
            raise NotHeldError(self._owner)
        return self._transact(operations)

    def probe(self) -> None:
        """Keep the connection and its lock alive: the server closes a silent one.

        Raises:
            OvsdbError: the connection is gone.

        """
        self._call("echo", [])

    @_reading()
    def lock(self, *, steal: bool) -> bool:
        """Take the bridge's lock (RFC 7047, 4.1.8); return whether this connection has it.

        Args:
            steal: whether to take the lock from its owner; only the holder of a lease may do so.

        Raises:
            OvsdbError: the database does not answer.

        """
        self._owned, self._number = False, None
        # An earlier request may still be pending, and would get the lock as soon as it is free.
        # So end it first.
        self.unlock()
        method = "steal" if steal else "lock"
        self._owned = bool(self._call(method, [self._lock])["locked"])
        return self._owned

    @_reading()
    def fence(self, number: int) -> int:
        """Write a fencing number to the bridge; return a higher one that it already has, or 0.

        Raises:
            OvsdbError: the database does not answer, has no such bridge, or the lock belongs to
                another controller.

        """
        where = [["name", "==", self._bridge]]
        columns = ["external_ids"]
        select = {"op": "select", "table": "Bridge", "where": where, "columns": columns}
        (answer,) = self._transact([select])
        if not answer["rows"]:
            raise OvsdbError(f"there is no bridge {self._bridge!r}")
        borne = _map(answer["rows"][0]["external_ids"]).get(_FENCE)
        if borne is not None and borne.isascii() and borne.isdigit() and int(borne) >= number:
            return int(borne)
        # The transaction waits for the number that was read, so that it fails after a change.
        known = [["external_ids", "includes", ["map", [[_FENCE, borne]]]]] if borne else []
        mutations = [
            ["external_ids", "delete", ["set", [_FENCE]]],
            ["external_ids", "insert", ["map", [[_FENCE, str(number)]]]],
        ]
        mutate = {"op": "mutate", "table": "Bridge", "where": where + known, "mutations": mutations}
        answers = self._write([{"op": "assert", "lock": self._lock}, mutate])
        if answers[1]["count"] != 1:
            raise OvsdbError("another controller has changed the bridge's fencing number")
        self._number = str(number)
        return 0

    def _guards(self) -> list[dict[str, Any]]:
        """Return the operations that every writing transaction begins with: lock and number.

        Raises:
            OvsdbError: this controller does not own the bridge.

        """
        if self._number is None:
            raise OvsdbError("the bridge is not this controller's")
        ours: list[Any] = [["name", "==", self._bridge]]
        ours.append(["external_ids", "includes", ["map", [[_FENCE, self._number]]]])
        wait: dict[str, Any] = {"op": "wait", "table": "Bridge", "where": ours, "columns": ["name"]}
        wait |= {"until": "==", "rows": [{"name": self._bridge}], "timeout": 0}
        return [{"op": "assert", "lock": self._lock}, wait]

    def unlock(self) -> None:
        """Release the bridge's lock.

        Raises:
            OvsdbError: the database does not answer.

        """
        if self._connection is None:
            return
        with contextlib.suppress(RefusedError):
            # An error means that there was no lock to release.
            self._call("unlock", [self._lock])

    def release(self) -> None:
        """Give the lock up, and only read from now on."""
        self._owned, self._number = False, None
        with contextlib.suppress(OvsdbError):
            # If the connection is closed, the lock is free, or another controller's.
            self.unlock()

    @_reading()
    def qos_type(self) -> str:
        """Return the best type of QoS rows that the bridge's ports can have.

        Raises:
            OvsdbError: no answer, or no such bridge.

        """
        where = [["name", "==", self._bridge]]
        select = {"op": "select", "table": "Bridge", "where": where, "columns": ["datapath_type"]}
        (answer,) = self._transact([select])
        if not answer["rows"]:
            raise OvsdbError(f"there is no bridge {self._bridge!r}")
        # Packets that the kernel forwards never pass the pacer.
        userspace = answer["rows"][0]["datapath_type"] in ("netdev", "dummy")
        return "pacer" if self._paces and userspace else "linux-htb"

    @_reading()
    def read(self) -> Snapshot:
        """Return the bridge's part of the database.

        Raises:
            OvsdbError: no answer, or no such bridge.

        """
        self._connect()
        status = ["status"] if self._paces else []
        owned = [["external_ids", "includes", ["map", [[_OWNER, self._owner]]]]]
        tables = {
            "Bridge": ([["name", "==", self._bridge]], ["ports"]),
            "Port": ([], ["_uuid", "name", "interfaces", "qos"]),
            "Interface": ([], ["_uuid", "ofport", "link_state", "link_speed"]),
            "QoS": ([], ["_uuid", "type", "other_config", "queues", "external_ids", *status]),
            "Queue": (owned, ["_uuid", "other_config", "external_ids"]),
            "Open_vSwitch": ([], ["next_cfg", "cur_cfg"]),
        }
        answers = self._transact(
            [
                {"op": "select", "table": table, "where": where, "columns": columns}
                for table, (where, columns) in tables.items()
            ]
        )
        bridges, ports, interfaces, qos, queues, root = (answer["rows"] for answer in answers)
        if not bridges:
            raise OvsdbError(f"there is no bridge {self._bridge!r}")
        members = set(_set(bridges[0]["ports"]))
        by_interface = {_uuid(one["_uuid"]): one for one in interfaces}
        by_qos = {_uuid(one["_uuid"]): one for one in qos}
        found = []
        for one in ports:
            interface = by_interface.get(_set(one["interfaces"])[0], {})
            ofport = interface.get("ofport")
            if _uuid(one["_uuid"]) not in members or not isinstance(ofport, int):
                continue
            if 0 < ofport < 510:
                state = interface.get("link_state")
                up = {"up": True, "down": False}.get(state) if isinstance(state, str) else None
                speed = interface.get("link_speed")
                port = BridgePort(_uuid(one["_uuid"]), one["name"], ofport, up)
                port.link_bps = speed if isinstance(speed, int) and speed > 0 else None
                self._add_qos(port, _set(one["qos"]), by_qos)
                found.append(port)
        refused: dict[str, str] = {}
        for one in qos:
            refused |= _map(one.get("status", ["map", []]))
        mine: dict[QueueKey, tuple[str, dict[str, str]]] = {}
        strays: list[str] = []
        for one in queues:
            ids, uuid = _map(one["external_ids"]), _uuid(one["_uuid"])
            index, of = number(ids.get(_QUEUE)), number(ids.get(_PORT, str(EVERY_PORT)))
            if index is None or of is None or (of, index) in mine:
                strays.append(uuid)
            else:
                mine[of, index] = (uuid, _map(one["other_config"]))
        for port in found:
            port.own_queues = {
                index: config
                for (of, index), (uuid, config) in mine.items()
                if of == port.ofport and port.queues.get(index) == uuid
            }
        return Snapshot(
            sorted(found, key=lambda port: port.ofport),
            dict(sorted(mine.items())),
            strays,
            {port.name: refused[port.name] for port in found if port.name in refused},
            not self._paces or all(one["cur_cfg"] >= one["next_cfg"] for one in root),
        )

    def _add_qos(
        self, port: BridgePort, uuids: Sequence[str], by_qos: Mapping[str, dict[str, Any]]
    ) -> None:
        qos = by_qos.get(uuids[0]) if uuids else None
        if qos is not None:
            port.qos_uuid = uuids[0]
            port.qos_type = qos["type"]
            port.qos_config = _map(qos["other_config"])
            port.queues = {int(n): u[1] for n, u in qos["queues"][1]}
            port.mine = _map(qos["external_ids"]).get(_OWNER) == self._owner

    def sync(
        self,
        qos_type: str,
        queues: Mapping[int, Mapping[str, str]],
        ports: Mapping[int, Mapping[str, str]],
        kept: Iterable[int] = (),
        own_queues: Mapping[int, Mapping[int, Mapping[str, str]]] = _NONE,
    ) -> list[str]:
        """Change queues and the ports' QoS to the desired state, with the fewest operations.

        Args:
            qos_type: the type of the QoS rows.
            queues: the desired `other_config` of the queues that are on every port, by number.
            ports: the desired `other_config` of the QoS by port number.
            kept: the numbers of queues on every port that stay unchanged, if they exist.
            own_queues: the desired `other_config` of the queues that only one port has, by port
                number and number; the numbers differ from those of the queues on every port.

        Returns:
            Descriptions of the writes.

        Raises:
            RefusedError: the database refused; nothing was written.
            NotHeldError: this controller may not write any longer; nothing was written.
            OvsdbError: the database does not answer, or the bridge is not this controller's.

        """
        now = self.read()
        asked: dict[QueueKey, Mapping[str, str]] = {
            (EVERY_PORT, n): now.queues[EVERY_PORT, n][1]
            for n in kept
            if (EVERY_PORT, n) in now.queues
        }
        asked |= {(EVERY_PORT, n): config for n, config in queues.items()}
        asked |= {(of, n): config for of, own in own_queues.items() for n, config in own.items()}
        operations: list[dict[str, Any]] = []
        said: list[str] = []
        references: dict[QueueKey, list[str]] = {}
        for key, config in asked.items():
            uuid, current = now.queues.get(key, ("", None))
            name = f"queue{key[1]}_{key[0]}"
            references[key] = ["uuid", uuid] if uuid else ["named-uuid", name]
            if current is None:
                operations.append(
                    {
                        "op": "insert",
                        "table": "Queue",
                        "uuid-name": name,
                        "row": {
                            "other_config": _to_map(config),
                            "external_ids": _to_map(self._ids(key)),
                        },
                    }
                )
                said.append(_told(key))
            elif current != config:
                operations.append(_update("Queue", uuid, {"other_config": _to_map(config)}))
                said.append(_told(key))
        for port in now.ports:
            line = ports.get(port.ofport, {})
            of_port = {
                n: reference
                for (of, n), reference in references.items()
                if of in (EVERY_PORT, port.ofport)
            }
            wanted = {n: reference[1] for n, reference in of_port.items()}
            row: dict[str, Any] = {
                "type": qos_type,
                "other_config": _to_map(line),
                "queues": ["map", [[n, reference] for n, reference in of_port.items()]],
            }
            if port.qos_uuid is None or not port.mine:
                row["external_ids"] = _to_map({_OWNER: self._owner})
                name = f"qos{port.ofport}"
                operations.append({"op": "insert", "table": "QoS", "uuid-name": name, "row": row})
                operations.append(_update("Port", port.uuid, {"qos": ["named-uuid", name]}))
                said.append(f"QoS of port {port.ofport}")
            elif (port.qos_type, port.qos_config, port.queues) != (qos_type, line, wanted):
                operations.append(_update("QoS", port.qos_uuid, row))
                said.append(f"QoS of port {port.ofport}")
        gone = [(uuid, _told(key)) for key, (uuid, _) in now.queues.items() if key not in asked]
        for uuid, what in (*gone, *((uuid, f"queue row {uuid}") for uuid in now.strays)):
            where = [["_uuid", "==", ["uuid", uuid]]]
            operations.append({"op": "delete", "table": "Queue", "where": where})
            said.append(what)
        if operations:
            if self._paces:
                # The switch sets `cur_cfg` to this count after it has applied or refused all of it.
                operations.append(_COUNT_UP)
            self._write([*self._guards(), *operations])
        return said

    def _ids(self, key: QueueKey) -> dict[str, str]:
        """Return the `external_ids` of a queue, by which this controller knows it again."""
        of, index = key
        ids = {_OWNER: self._owner, _QUEUE: str(index)}
        return ids if of == EVERY_PORT else {**ids, _PORT: str(of)}


def _told(key: QueueKey) -> str:
    of, index = key
    return f"queue {index}" if of == EVERY_PORT else f"queue {index} of port {of}"


def _update(table: str, uuid: str, row: Mapping[str, Any]) -> dict[str, Any]:
    where = [["_uuid", "==", ["uuid", uuid]]]
    return {"op": "update", "table": table, "where": where, "row": row}


def _errno(error: int) -> str:
    if error == errno.ETIMEDOUT:
        return f"no answer within {SILENCE_MS / 1000:g} s"
    return "connection closed" if error < 0 else f"error {error}"


def number(value: str | None) -> int | None:
    """Return a number of the database's maps; None if it is missing or no number."""
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > 18:
        return None
    return int(value)


def _uuid(value: Sequence[str]) -> str:
    return value[1]


def _set(value: Any) -> list[str]:
    """Return the UUIDs of a set; the database writes a set of one member as the member."""
    if value[0] == "set":
        return [one[1] for one in value[1]]
    return [value[1]]


def _map(value: Any) -> dict[str, str]:
    return {str(key): str(one) for key, one in value[1]}


def _to_map(value: Mapping[str, str]) -> list[Any]:
    return ["map", [[key, one] for key, one in sorted(value.items())]]

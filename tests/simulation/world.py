"""Controllers, stores, switches and clients on one simulated network, and their faults.

There are several scenes (`Scene`). A seed has one of them, and draws everything else.

A controller is the product: its store, its service, its drivers, its REST application,
without the process and the sockets around them. It is started again when it ends, as a service
manager does. Clients change classes and flows by REST and note the answers. A schedule of faults,
drawn from the seed, goes on for some time; then everything is mended, and the world must come to
rest in the state that its clients have asked for.
"""

import asyncio
import contextlib
import errno
import functools
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from bridge import Bridge, modifies, queries, transacts
from disk import Disk, Failing
from etcd import Cluster
from loop import PROCESS, Node, Process, SimulatedLoop
from network import RETRANSMIT_S, Endpoint, Network
from pacer_controller import rates
from pacer_controller.api import build
from pacer_controller.config import switch_from
from pacer_controller.service import Service
from pacer_controller.service.follow import Follower
from pacer_controller.stores import Store, StoreError, open_store
from pacer_controller.stores.etcd import group_commit, mirror, operations
from rpc import Core

from switch import Switch

COMPILED = Path(__file__).resolve().parents[2] / "p4src" / "compiled"

SWITCHES = 3
"""Switches of the configuration; one more is made by request."""

CLIENTS = 3
REST_PORT = 8080
CANCELLED = 500
"""The outcome of a request in which its controller was stopped."""

PREFIX = "/pacer/"

BEGIN_S = 3.0
"""The time when clients and faults begin, after everything has started."""

FAULTS_UNTIL_S = 12.0
CLIENTS_UNTIL_S = 14.0

OUTLIVING = 0.3
"""Share of the runs with etcd in which a controller outlives its leases while it writes."""

OUTLIVING_UNTIL_S = 8.0
"""Latest time when that begins: the clients go on for longer than a lease."""

OUTLIVING_S = (3.5, 6.0)
"""Its duration; a lease lasts for 3 s."""

HOLDING = 0.5
"""Share of the runs with bridges in which a change of one is held up for longer than a lease."""

HOLDING_UNTIL_S = 5.5
"""Latest time from which the change is waited for: it goes on before the clients end."""

HOLDING_S = (4.5, 7.5)
"""Time for the wait, and for the change to be held up."""

STOPPING = 0.3
"""Share of the runs with etcd in which a member of it is stopped until the clients end."""

STOPPING_S = (2.5, 6.0)
"""Its duration; a client waits for 2 s for an answer."""

RESTART_S = (0.1, 1.0)
"""Time between a controller's end and its restart."""

ANSWER_S = 8.0
"""Longest wait of a client for an answer."""


STATE = "/state"
"""Path of the state file, in scenes without etcd."""

GRACE_S = 3.0
"""Time that requests have to end before a controller ends, as in `server`."""

BROKEN_LOOK_S = 0.1
"""Time between two looks at whether the store is broken, as in `server`."""


@dataclass(frozen=True)
class Scene:
    """The machines of a run.

    Attributes:
        name: the name of the scene.
        controllers: number of controllers.
        members: members of etcd; 0: one controller has a state file on a disk instead.
        bridges: numbers of the switches that are bridges of Open vSwitch.

    """

    name: str
    controllers: int
    members: int
    bridges: frozenset[int] = frozenset()


ETCD = Scene("etcd", controllers=3, members=3)
SQLITE = Scene("sqlite", controllers=1, members=0)
BRIDGES = Scene("bridges", controllers=3, members=3, bridges=frozenset({0, 1, 3}))
SCENES = {one.name: one for one in (ETCD, SQLITE, BRIDGES)}

_TURNS = (SQLITE, ETCD, BRIDGES, ETCD)


def scene_of(seed: int) -> Scene:
    """Return the scene of a seed: of four seeds two have etcd, one the file, one the bridges."""
    return _TURNS[seed % len(_TURNS)]


Key = tuple[str, str, str]
"""Switch, kind and name of a resource."""

NAMES = {"port": 2, "class": 3, "flow": 3}
"""Number of resources of each kind that clients change one by one."""

OF_ETCD = ("no-store", "compact")
"""Faults of scenes with etcd."""

DISK_CALLS = ("read", "write", "sync", "remove")
"""Calls of a disk that can fail."""

PLURALS = {"port": "ports", "class": "classes", "flow": "flows"}

JSON = (b"content-type", b"application/json")


class LostError(Exception):
    """A client has got no answer; `sent` says whether its request may have arrived."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("no answer")
        self.sent = sent


# ---- faults ----


@dataclass(frozen=True)
class Fault:
    """A fault that lasts for some time.

    Attributes:
        number: its place in the schedule.
        at_s: the time when it begins.
        for_s: its duration.
        kind: its kind.
        who: nodes that have the fault.
        value: its extent.

    """

    number: int
    at_s: float
    for_s: float
    kind: str
    who: tuple[str, ...]
    value: float = 0.0

    def __str__(self) -> str:
        more = f" {self.value:.3f}" if self.value else ""
        return f"{self.at_s:.2f} s: {self.kind} {' '.join(self.who)}{more} for {self.for_s:.2f} s"


def schedule(seed: str, scene: Scene = ETCD) -> list[Fault]:
    """Draw the faults of a run."""
    chance = random.Random(f"{seed}/faults")
    controllers = [f"c{n}" for n in range(scene.controllers)]
    members = [f"e{n}" for n in range(scene.members)]
    switches = [f"s{n}" for n in range(SWITCHES + 1)]
    clients = [f"u{n}" for n in range(CLIENTS)]

    def pair(ones: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
        one = chance.choice(ones)
        return one, chance.choice([other for other in others if other != one])

    makers: dict[str, Callable[[], tuple[tuple[str, ...], float]]] = {
        "pause": lambda: ((chance.choice([*controllers, *controllers, *members, *switches]),), 0),
        "kill-busy": lambda: ((chance.choice(controllers),), float(chance.randint(1, 300))),
        "pause-busy": lambda: ((chance.choice(controllers),), float(chance.randint(1, 300))),
        "refuse": lambda: ((chance.choice(switches),), chance.choice((0.2, 1.0))),
        "kill": lambda: ((chance.choice([*controllers, *controllers, *members]),), 0),
        "stop": lambda: ((chance.choice(controllers),), 0),
        "power": lambda: ((chance.choice([*controllers, *controllers, *members, *switches]),), 0),
        "cut": lambda: (pair([*controllers, *members], [*members, *switches]), 0),
        "cut-back": lambda: (pair([*members, *switches], [*controllers, *members]), 0),
        "part": lambda: (pair(controllers, [*members, *switches]), 0),
        "isolate": lambda: ((chance.choice([*controllers, *members]),), 0),
        "no-store": lambda: ((chance.choice(controllers),), 0),
        "deaf-client": lambda: (pair(clients, controllers), 0),
        "reset": lambda: (pair(controllers, [*members, *switches]), 0),
        "forget": lambda: ((chance.choice(switches),), 0),
        "streams": lambda: ((chance.choice(switches),), 0),
        "clock": lambda: ((chance.choice(controllers),), chance.choice((-3600, -5, 5, 86400))),
        "compact": lambda: ((), float(chance.choice((0, 0, 3, 20)))),
        "slow": lambda: (pair([*controllers, *members], [*members, *switches]), 0.3),
        "packets": lambda: ((chance.choice(switches),), 0),
    }
    of_disk: dict[str, Callable[[], tuple[tuple[str, ...], float]]] = {
        "disk-kill": lambda: (("c0",), float(chance.randint(1, 60))),
        "disk-power": lambda: (("c0",), float(chance.randint(1, 60))),
        "disk-full": lambda: (("c0",), 0),
        "disk-fails": lambda: (("c0",), float(chance.randrange(len(DISK_CALLS)))),
        "disk-fails-once": lambda: (("c0",), float(chance.randrange(len(DISK_CALLS)))),
    }
    if scene.bridges:
        bridges = [f"s{n}" for n in sorted(scene.bridges)]
        makers["garble"] = lambda: ((chance.choice(bridges),), float(chance.randrange(20)))
    if not scene.members:
        for kind in OF_ETCD:
            del makers[kind]
        makers |= of_disk
    kinds = [*makers, *([] if scene.members else [*of_disk, *of_disk])]
    faults = []
    for number in range(chance.randint(2, 9)):
        kind = chance.choice(kinds)
        who, value = makers[kind]()
        at_s = chance.uniform(BEGIN_S, FAULTS_UNTIL_S)
        for_s = min(chance.choice((0.1, 0.7, 2.0, 4.0, 8.0)) * chance.uniform(0.5, 1.5), 12.0)
        for_s = min(for_s, CLIENTS_UNTIL_S - at_s)
        faults.append(Fault(number, at_s, for_s, kind, who, value))
    if scene.members:
        faults += _stopping(seed, members, len(faults))
        faults += _outliving(seed, controllers, len(faults))
        faults += _holding(seed, scene, len(faults))
    return sorted(faults, key=lambda fault: fault.at_s)


def _stopping(seed: str, members: Sequence[str], number: int) -> list[Fault]:
    """Draw a fault in which a member of etcd is stopped until the clients end.

    When it goes on, it makes the transactions that have reached it, and no change of a client hides
    their effect. The other faults of the seed do not depend on it.
    """
    chance = random.Random(f"{seed}/stopping")
    if chance.random() > STOPPING:
        return []
    for_s = chance.uniform(*STOPPING_S)
    # Controllers stay with the first member as long as it answers.
    who = chance.choice([members[0], *members])
    return [Fault(number, CLIENTS_UNTIL_S - for_s, for_s, "pause", (who,))]


def _outliving(seed: str, controllers: Sequence[str], number: int) -> list[Fault]:
    """Draw a fault in which a controller outlives its leases while it writes to a switch.

    The other faults of the seed do not depend on it.
    """
    chance = random.Random(f"{seed}/outliving")
    if chance.random() > OUTLIVING:
        return []
    kind = chance.choice(("pause-sending", "cut-sending"))
    who, value = (chance.choice(controllers),), float(chance.randint(1, 3))
    at_s, for_s = chance.uniform(BEGIN_S, OUTLIVING_UNTIL_S), chance.uniform(*OUTLIVING_S)
    return [Fault(number, at_s, for_s, kind, who, value)]


def _holding(seed: str, scene: Scene, number: int) -> list[Fault]:
    """Draw a fault in which a controller loses its lease in the middle of a change of a bridge.

    The other faults of the seed do not depend on it.
    """
    chance = random.Random(f"{seed}/holding")
    if not scene.bridges or chance.random() > HOLDING:
        return []
    kind = chance.choice(("hold-transact", "hold-mod", "hold-read"))
    # A driver looks at the ports, and reads the database again before it writes.
    value = 2.0 if kind == "hold-read" else float(chance.randint(1, 3))
    who = (f"s{chance.choice(sorted(scene.bridges))}",)
    at_s, for_s = chance.uniform(BEGIN_S, HOLDING_UNTIL_S), chance.uniform(*HOLDING_S)
    return [Fault(number, at_s, for_s, kind, who, value)]


# ---- requests of clients ----


@dataclass
class Operation:
    """A request of a client, and its outcome.

    Attributes:
        tokens: the marks of the values that it puts, by resource; each is unique.
        whole: whether it replaces the whole desired state of the switch.
        match: the revision of its If-Match; -1: none; 0: If-None-Match.
        outcome: status of the answer; 0: none.
        certain: whether a request without a good answer is known to have changed nothing.
        revision: the revision in the answer.

    """

    client: str
    server: Process | None
    method: str
    key: Key
    tokens: Mapping[Key, int]
    match: int
    asked_s: float
    whole: bool = False
    answered_s: float = 0.0
    outcome: int = 0
    certain: bool = False
    revision: int = 0
    seen: int | None = None

    def __str__(self) -> str:
        return (
            f"{self.client} {self.method} {'/'.join(self.key)} {list(self.tokens.values())} match "
            f"{self.match} at {self.server}: {self.outcome} revision {self.revision} "
            f"(asked {self.asked_s:.6f}, answered {self.answered_s:.6f})"
        )


def token_of(kind: str, spec: Any) -> int | None:
    """Return the mark that is unique to a value; None: there is no value."""
    if spec is None:
        return None
    if kind == "class":
        return rates.parse_rate(spec["rate"])
    return int(spec["priority" if kind == "flow" else "fifo_bytes"])


# ---- controllers ----


class _Current:
    """A proxy of the calling process's service, or of a part of it."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        found = PROCESS.get().program
        return getattr(functools.reduce(getattr, self._path, found), name)


class _CurrentService(_Current):
    events = _Current("events")


@functools.cache
def _application() -> Any:
    """Return the REST application; controllers share it, since it takes long to make."""
    service: Any = _CurrentService()
    return build(service)


@contextlib.contextmanager
def sizes(seed: str) -> Iterator[None]:
    """Have small writes and answers of etcd count as large ones, in some runs."""
    chance = random.Random(f"{seed}/sizes")
    with (
        mock.patch.object(operations, "OPERATIONS", chance.choice((120, 120, 12))),
        mock.patch.object(group_commit, "OPERATIONS", chance.choice((120, 120, 24))),
        mock.patch.object(mirror, "PAGE", chance.choice((2000, 2000, 7))),
        _checkpoints(chance.choice((1000, 30, 4))),
    ):
        yield


@contextlib.contextmanager
def _checkpoints(pages: int) -> Iterator[None]:
    """Have SQLite bring its WAL to the database when that has so many pages."""
    connect = sqlite3.connect

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*given, **options)
        made.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        return made

    with mock.patch.object(sqlite3, "connect", connected):
        yield


@dataclass
class Running:
    """A controller that runs."""

    process: Process
    store: Store
    service: Service
    name: str


class Controller:
    """A controller's machine, which runs the product, and restarts it whenever it has ended.

    Args:
        world: its world.
        node: its machine.

    """

    def __init__(self, world: "World", node: Node) -> None:
        self._world = world
        self.node = node
        self.running: Running | None = None
        self._stopping: asyncio.Event | None = None
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start it, if its machine is on and it does not run."""
        if self.node.powered and self.node.process is None:
            process = Process(self._world.loop, self.node)
            self.starts += 1
            process.spawn(self._life(process), f"{process.name} main")

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        if self._stopping is not None:
            self._stopping.set()

    async def _life(self, process: Process) -> None:
        world = self._world
        self._stopping = asyncio.Event()
        try:
            await self._serve(process, self._stopping)
        except StoreError as error:
            world.loop.note(f"{process}: ends: {error}")
        except Exception as error:
            if process.alive:
                world.unexpected.append(f"{process} ended with {error!r}")
        self.ended(process)
        process.end()

    def ended(self, process: Process) -> None:
        """Schedule its restart."""
        if self.running is not None and self.running.process is process:
            self.running = None
        if self.node.process is process:
            # The task that calls this belongs to the process.
            self.node.process = None
        delay_s = self._world.chance.uniform(*RESTART_S)
        self._world.loop.after(delay_s, self.start)

    async def _serve(self, process: Process, stopping: asyncio.Event) -> None:
        world = self._world
        async with AsyncExitStack() as stack:
            store = await open_store(world.store)
            stack.push_async_callback(store.close)
            configured = world.switches[:SWITCHES]
            switches = [switch_from(one.name, one.settings) for one in configured]
            service = Service(switches, COMPILED, store, world.reconcile_s)
            process.program = service
            name = store.describe()["controller"] or self.node.name
            world.names[process] = name
            # As the application's lifespan does.
            stack.push_async_callback(service.stop)
            await service.start()
            follower = asyncio.create_task(Follower(service).run(), name="follow")
            stack.callback(follower.cancel)
            self.running = Running(process, store, service, name)
            server = _Server(world.network, process, _application())
            world.loop.note(f"{process}: serves as {name}")
            await self._until_over(stopping, store)
            world.loop.note(f"{process}: stops: {store.broken or 'asked to'}")
            service.closing.set()
            await server.shut_down()

    @staticmethod
    async def _until_over(stopping: asyncio.Event, store: Store) -> None:
        """Wait until the controller is to end, as `server` does."""
        while store.broken is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BROKEN_LOOK_S):
                    await stopping.wait()
                return


class _Server:
    """The connections of clients to one life of a controller, which it ends as uvicorn does.

    Args:
        network: the network.
        process: the controller's process.
        app: its application.

    """

    def __init__(self, network: Network, process: Process, app: Any) -> None:
        self._network = network
        self._process = process
        self._app = app
        self._idle: dict[Endpoint, None] = {}
        self._answering: dict[asyncio.Task[None], None] = {}
        network.listen(process, REST_PORT, self._accept)

    def _accept(self, end: Endpoint) -> None:
        self._idle[end] = None
        end.received = lambda message: self._receive(end, message)
        end.broken = lambda _: self._idle.pop(end, None) and None

    def _receive(self, end: Endpoint, message: Any) -> None:
        if end in self._idle:
            del self._idle[end]
            work = _answer(self._app, end, *message)
            task = self._process.spawn(work, f"{self._process.name} request")
            self._answering[task] = None
            task.add_done_callback(lambda task: self._answering.pop(task) and None)

    async def shut_down(self) -> None:
        """Take no more requests; those that go on are cancelled after GRACE_S."""
        self._network.refuse(self._process, REST_PORT)
        for end in self._idle:
            end.close()
        self._idle.clear()
        try:
            async with asyncio.timeout(GRACE_S):
                while self._answering:
                    await asyncio.wait(self._answering)
        except TimeoutError:
            for task in self._answering:
                task.cancel()


async def _answer(
    app: Any, end: Endpoint, method: str, path: str, headers: Any, body: bytes
) -> None:
    """Have the application answer one request."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), *headers],
        "client": (end.peer.name, 1),
        "server": ("localhost", REST_PORT),
    }
    given = [{"type": "http.request", "body": body, "more_body": False}]
    status, answer, told = 0, b"", []

    async def receive() -> Any:
        if given:
            return given.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        nonlocal status, answer, told
        if message["type"] == "http.response.start":
            status, told = message["status"], list(message["headers"])
        else:
            answer += message.get("body", b"")

    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        status, told, answer = CANCELLED, [], b""
    end.send((status, told, answer))
    end.close()


# ---- the world ----


class World:
    """The machines, the network and the clients of a run.

    Args:
        loop: the simulation.
        seed: the seed of everything.
        faults: the faults.
        scene: the scene.

    """

    def __init__(
        self, loop: SimulatedLoop, seed: str, faults: Sequence[Fault], scene: Scene = ETCD
    ) -> None:
        self.loop = loop
        self.scene = scene
        self.seed = seed
        self.chance = random.Random(f"{seed}/world")
        self.network = Network(loop, seed)
        self.core = Core(self.network)
        self.cluster = Cluster(loop, self.network, seed) if scene.members else None
        self.store = f"sqlite:{STATE}"
        """URL of the controllers' store."""
        if self.cluster is not None:
            self.store = f"etcd://{self.cluster.endpoints}{PREFIX.rstrip('/')}"
        refuses = any(fault.kind == "refuse" for fault in faults)
        # Reconciling retries entries that a switch has refused.
        self.reconcile_s = 5.0 if refuses else self.chance.choice((0.0, 5.0, 30.0))
        self.switches = [
            (Bridge if n in scene.bridges else Switch)(loop, self.network, f"s{n}", seed)
            for n in range(SWITCHES + 1)
        ]
        self.operations: list[Operation] = []
        self.names: dict[Process, str] = {}
        """The name of each controller, by process."""
        self.tokens = 0
        self.unexpected: list[str] = []
        """Unexpected exceptions."""
        self.faults = faults
        speeds = (1.0, 1.0, 0.99, 1.01)
        machines = [
            loop.node(f"c{n}", self.chance.choice(speeds)) for n in range(scene.controllers)
        ]
        for machine in machines:
            machine.disk = None if scene.members else Disk(seed)
        self.controllers = [Controller(self, machine) for machine in machines]
        self.answered: Callable[[Operation], None] = lambda _: None
        self.clients = [Client(self, n) for n in range(CLIENTS)]
        for fault in faults:
            loop.at(fault.at_s, self._begin, fault)

    def controller(self, name: str) -> Controller | None:
        """Return the controller on a node."""
        return next((one for one in self.controllers if one.node.name == name), None)

    def switch(self, name: str) -> Switch | Bridge | None:
        """Return the switch on a node."""
        return next((one for one in self.switches if one.name == name), None)

    # ---- faults ----

    def _begin(self, fault: Fault) -> None:
        self.loop.note(f"fault {fault.number}: {fault}")
        nodes = [self.loop.node(name) for name in fault.who]
        undo = getattr(self, "_fault_" + fault.kind.replace("-", "_"))(fault, *nodes)
        if undo is not None:
            self.loop.after(fault.for_s, self._end, fault, undo)

    def _end(self, fault: Fault, undo: Callable[[], None]) -> None:
        self.loop.note(f"fault {fault.number} ends")
        undo()

    def _fault_pause(self, _: Fault, node: Node) -> Callable[[], None]:
        self.loop.pause(node)
        self.network.suspect()
        return lambda: self.loop.resume(node)

    def _kill(self, node: Node) -> None:
        process = node.process
        if process is None:
            return
        process.end()
        controller = self.controller(node.name)
        if controller is not None:
            controller.ended(process)

    def _start(self, node: Node) -> None:
        if not node.powered or node.process is not None:
            return
        controller, switch = self.controller(node.name), self.switch(node.name)
        if controller is not None:
            controller.start()
        elif switch is not None:
            switch.start()
        else:
            assert self.cluster is not None
            self.cluster.start(node)

    def _fault_kill(self, _: Fault, node: Node) -> Callable[[], None]:
        self._kill(node)
        return lambda: self._start(node)

    def _fault_kill_busy(self, fault: Fault, node: Node) -> Callable[[], None]:
        node.fuse = (int(fault.value), lambda: self._kill(node))
        return lambda: self._start(node)

    def _fault_pause_busy(self, fault: Fault, node: Node) -> Callable[[], None]:
        def stop() -> None:
            self.loop.pause(node)
            self.network.suspect()

        def go() -> None:
            node.fuse = None
            self.loop.resume(node)

        node.fuse = (int(fault.value), stop)
        return go

    def _at_sending(
        self,
        fault: Fault,
        counts: Callable[[Endpoint, Any], bool],
        begin: Callable[[Node, Node], Callable[[], None]],
    ) -> Callable[[], None]:
        """Begin something when a controller has sent so many messages to a switch that it drives.

        Args:
            fault: the fault; its value is the number of messages.
            counts: whether a message counts, by its sender's end of the connection.
            begin: begins it, and returns the function that ends it.

        """
        sent: Counter[str] = Counter()
        undo: Callable[[], None] | None = None

        def sends(source: Endpoint, message: Any) -> None:
            nonlocal undo
            to = source.peer
            if not counts(source, message):
                return
            if self.holder(to.name) == self.names.get(source.process):
                sent[to.name] += 1
                if sent[to.name] == int(fault.value):
                    self.network.traps.remove(sends)
                    self.loop.note(f"fault {fault.number} strikes {to}")
                    undo = begin(source.process.node, to)

        def end() -> None:
            if undo is not None:
                undo()
            else:
                self.network.traps.remove(sends)

        self.network.traps.append(sends)
        return end

    def _changing(self) -> Callable[[Node], bool]:
        """Return a function that says whether a client has changed a switch's state since now."""
        heads = {one.name: self._changed(one.name) for one in self.switches}
        return lambda switch: self._changed(switch.name) != heads.get(switch.name)

    def _changing_by(self, node: Node) -> Callable[[Endpoint, Any], bool]:
        """Return a function that says whether a controller writes to a switch that has changed."""
        changing = self._changing()
        return lambda source, _: source.process.node is node and changing(source.peer)

    def holder(self, switch: str) -> str:
        """Return the name of the controller that has a switch's lease; empty: none has it."""
        value = self.cluster.value(f"{PREFIX}leases/{switch}") if self.cluster is not None else None
        return value.decode() if value is not None else ""

    def _changed(self, switch: str) -> bytes | None:
        """Return what each change of a switch's desired state changes."""
        return self.cluster.value(f"{PREFIX}heads/{switch}") if self.cluster is not None else None

    def _fault_pause_sending(self, fault: Fault, node: Node) -> Callable[[], None]:
        """Pause a controller when a switch is about to answer it."""
        return self._at_sending(
            fault, self._changing_by(node), lambda node, _: self._fault_pause(fault, node)
        )

    def _fault_cut_sending(self, fault: Fault, node: Node) -> Callable[[], None]:
        """Hold up a switch's answer, and all that the controller sends to the store."""
        return self._at_sending(
            fault,
            self._changing_by(node),
            lambda node, switch: self._held_up(node, (switch, node)),
        )

    def _fault_hold_transact(self, fault: Fault, bridge: Node) -> Callable[[], None]:
        """Hold up a write to a bridge's database."""
        return self._hold(fault, bridge, transacts)

    def _fault_hold_mod(self, fault: Fault, bridge: Node) -> Callable[[], None]:
        """Hold up a change of a bridge's flows."""
        return self._hold(fault, bridge, modifies)

    def _hold(
        self, fault: Fault, bridge: Node, counts: Callable[[bytes], bool]
    ) -> Callable[[], None]:
        """Part a controller from a bridge while it writes, and hold up what it tells the store."""

        def begin(node: Node, _: Node) -> Callable[[], None]:
            mend = self._held_up(node, (node, bridge))
            self.network.cut(bridge, node)

            def end() -> None:
                mend()
                # The write comes first: a controller that learns of its successor closes the
                # connection, and loses what has not arrived.
                self.loop.after(RETRANSMIT_S, self.network.mend, bridge, node)

            return end

        return self._at_sending(
            fault, lambda source, message: source.peer is bridge and counts(message[0]), begin
        )

    def _fault_hold_read(self, fault: Fault, bridge: Node) -> Callable[[], None]:
        """Hold up what a write to a bridge waits for, and what its controller tells the store."""
        changing = self._changing()
        return self._at_sending(
            fault,
            lambda source, message: (
                source.peer is bridge and changing(bridge) and queries(message[0])
            ),
            lambda node, _: self._held_up(node, (bridge, node)),
        )

    def _held_up(self, node: Node, way: tuple[Node, Node]) -> Callable[[], None]:
        """Hold up the messages of one way, and all that a controller sends to the store."""
        links = [(node, member) for member in self._named("e")] + [way]
        for link in links:
            self.network.cut(*link)

        def mend() -> None:
            # The links to the store come last, so the messages held up arrive first.
            for link in reversed(links):
                self.network.mend(*link)

        return mend

    def _fault_refuse(self, fault: Fault, node: Node) -> Callable[[], None]:
        switch = self.switch(node.name)
        assert switch is not None
        switch.refuses = fault.value

        def end() -> None:
            switch.refuses = 0.0

        return end

    def _fault_power(self, _: Fault, node: Node) -> Callable[[], None]:
        self._lose_power(node)

        def on() -> None:
            node.powered = True
            self._start(node)

        return on

    def _lose_power(self, node: Node) -> None:
        node.powered = False
        self._kill(node)
        if node.disk is not None:
            node.disk.lose_power()
        self.network.suspect()

    def _fault_stop(self, _: Fault, node: Node) -> None:
        controller = self.controller(node.name)
        assert controller is not None
        controller.stop()

    def _fault_cut(self, _: Fault, one: Node, other: Node) -> Callable[[], None]:
        self.network.cut(one, other)
        return lambda: self.network.mend(one, other)

    _fault_cut_back = _fault_cut

    def _fault_part(self, _: Fault, one: Node, other: Node) -> Callable[[], None]:
        return self._parted(one, [other])

    def _parted(self, one: Node, others: Sequence[Node]) -> Callable[[], None]:
        for other in others:
            self.network.cut(one, other)
            self.network.cut(other, one)

        def mend() -> None:
            for other in others:
                self.network.mend(one, other)
                self.network.mend(other, one)

        return mend

    def _named(self, letters: str) -> list[Node]:
        counts = {
            "c": self.scene.controllers,
            "e": self.scene.members,
            "s": SWITCHES + 1,
            "u": CLIENTS,
        }
        return [self.loop.node(f"{one}{n}") for one in letters for n in range(counts[one])]

    def _fault_isolate(self, _: Fault, node: Node) -> Callable[[], None]:
        return self._parted(node, [one for one in self._named("cesu") if one is not node])

    def _fault_no_store(self, _: Fault, node: Node) -> Callable[[], None]:
        return self._parted(node, self._named("e"))

    def _fault_deaf_client(self, _: Fault, client: Node, controller: Node) -> Callable[[], None]:
        return self._fault_cut(_, controller, client)

    def _fault_reset(self, _: Fault, one: Node, other: Node) -> None:
        self.network.reset(one, other)

    def _fault_forget(self, fault: Fault, node: Node) -> Callable[[], None]:
        self._kill(node)
        # A switch is started again at once.
        return lambda: self._start(node)

    def _fault_streams(self, _: Fault, node: Node) -> None:
        switch = self.switch(node.name)
        if switch is not None and node.process is not None:
            switch.reset_streams()

    def _fault_clock(self, fault: Fault, node: Node) -> None:
        node.wall_s += fault.value

    def _fault_compact(self, fault: Fault) -> None:
        assert self.cluster is not None
        self.cluster.compact(int(fault.value))

    def _fault_disk_kill(self, fault: Fault, node: Node) -> Callable[[], None]:
        """End the program between two calls of its disk."""
        return self._at_call(fault, node, lambda: self._kill(node))

    def _fault_disk_power(self, fault: Fault, node: Node) -> Callable[[], None]:
        """Lose power between two calls of the disk."""
        return self._at_call(fault, node, lambda: self._lose_power(node))

    def _at_call(self, fault: Fault, node: Node, call: Callable[[], None]) -> Callable[[], None]:
        disk = node.disk
        assert disk is not None
        disk.fuse = (int(fault.value), call)

        def end() -> None:
            disk.fuse = None
            node.powered = True
            self._start(node)

        return end

    def _fault_disk_full(self, _: Fault, node: Node) -> Callable[[], None]:
        return self._failing(node, "write", Failing(errno.ENOSPC))

    def _fault_disk_fails(self, fault: Fault, node: Node) -> Callable[[], None]:
        return self._failing(node, DISK_CALLS[int(fault.value)], Failing(errno.EIO))

    def _fault_disk_fails_once(self, fault: Fault, node: Node) -> Callable[[], None]:
        return self._failing(node, DISK_CALLS[int(fault.value)], Failing(errno.EIO, once=True))

    @staticmethod
    def _failing(node: Node, kind: str, failing: Failing) -> Callable[[], None]:
        disk = node.disk
        assert disk is not None
        disk.failing[kind] = failing

        def end() -> None:
            if disk.failing.get(kind) is failing:
                del disk.failing[kind]

        return end

    def _fault_slow(self, fault: Fault, one: Node, other: Node) -> Callable[[], None]:
        self.network.slow(one, other, fault.value)
        return lambda: self.network.slow(one, other, 0.0)

    def _fault_garble(self, fault: Fault, node: Node) -> None:
        switch = self.switch(node.name)
        assert isinstance(switch, Bridge)
        if node.process is not None:
            switch.garble(int(fault.value))

    def _fault_packets(self, _: Fault, node: Node) -> None:
        switch = self.switch(node.name)
        assert switch is not None
        for n in range(8):
            switch.packet(0x0200_0000_0000 + self.chance.randrange(6), 1 + n % 3)


# ---- clients ----


@dataclass
class Known:
    """A client's knowledge of a resource."""

    revision: int = 0
    there: bool = False


class Client:
    """A client that changes and reads resources, one request after the other.

    Args:
        world: its world.
        number: its number.

    """

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.node = world.loop.node(f"u{number}")
        self._chance = random.Random(f"{world.seed}/client {number}")
        self._known: dict[Key, Known] = {}
        self.done = False
        process = Process(world.loop, self.node)
        process.spawn(self._run(), f"client {number}")

    async def _run(self) -> None:
        world, chance = self._world, self._chance
        await asyncio.sleep(BEGIN_S * chance.uniform(0.8, 1.2))
        pause_s = chance.choice((0.05, 0.3, 1.0))
        made = False
        while world.loop.now_s < CLIENTS_UNTIL_S:
            key = self._key()
            work = chance.random()
            if not made:
                made = await self._make_switch()
            elif work < 0.1:
                await self._put_all(
                    [key[0]] if work < 0.07 else [f"s{n}" for n in range(SWITCHES + 1)]
                )
            elif work < 0.55:
                await self._put(key)
            elif work < 0.7:
                await self._delete(key)
            else:
                await self._get(key)
            await asyncio.sleep(chance.expovariate(1 / pause_s))
        self.done = True

    def _key(self) -> Key:
        kind = self._chance.choice(("class", "class", "class", "flow", "flow", "port"))
        switch = f"s{self._chance.randrange(SWITCHES + 1)}"
        number = self._chance.randrange(NAMES[kind])
        return switch, kind, str(1 + number) if kind == "port" else f"{kind[0]}{number}"

    @staticmethod
    def _path(key: Key) -> str:
        switch, kind, name = key
        if kind == "switch":
            return f"/v1/switches/{switch}"
        if not switch:
            return "/v1/state"
        return f"/v1/switches/{switch}/{PLURALS.get(kind, kind)}/{name}".rstrip("/")

    def _spec(self, key: Key, classes: Sequence[str]) -> tuple[int, dict[str, Any]]:
        """Return a new, unique mark and the settings that carry it."""
        world, chance = self._world, self._chance
        world.tokens += 1
        _, kind, name = key
        if kind == "class":
            token = 1_000_000 + 1_000 * world.tokens
            return token, {"rate": token}
        if kind == "port":
            return 2_000 + world.tokens, {"fifo_bytes": 2_000 + world.tokens}
        match = {"protocol": "tcp", "dst_port": 7000 + int(name[1:])}
        body: dict[str, Any] = {"priority": world.tokens, "match": match}
        by_class = classes and chance.random() < 0.4
        return world.tokens, body | ({"class": classes[0]} if by_class else {"rate": 2_000_000})

    async def _make_switch(self) -> bool:
        """Make the switch that is in no configuration, unless it is there."""
        name = f"s{SWITCHES}"
        switch = self._world.switch(name)
        assert switch is not None
        body = json.dumps(switch.settings).encode()
        operation = await self._ask("PUT", (name, "switch", ""), [JSON], body, {}, -1)
        return operation.outcome in (200, 201)

    async def _put(self, key: Key) -> None:
        chance, known = self._chance, self._known.get(key, Known())
        token, body = self._spec(key, ("c0",))
        match, headers = -1, [JSON]
        if chance.random() < 0.6:
            match = known.revision if known.there else 0
            quoted = f'"{known.revision}"'.encode()
            headers.append((b"if-match", quoted) if known.there else (b"if-none-match", b"*"))
        data = json.dumps(body).encode()
        operation = await self._ask("PUT", key, headers, data, {key: token}, match)
        if operation.outcome in (200, 201):
            self._known[key] = Known(operation.revision, there=True)

    async def _put_all(self, switches: Sequence[str]) -> None:
        """Replace the desired state of a switch, or of all switches."""
        many = self._chance.random() < 0.5
        tokens: dict[Key, int] = {}
        documents = {switch: self._document(switch, many, tokens) for switch in switches}
        body, name = documents[switches[0]], switches[0]
        if len(switches) > 1:
            last = self._world.switches[-1]
            documents[last.name]["switch"] = last.settings
            body, name = {"switches": documents}, ""
        data = json.dumps(body).encode()
        await self._ask("PUT", (name, "state", ""), [JSON], data, tokens, -1, whole=True)

    def _document(self, switch: str, many: bool, tokens: dict[Key, int]) -> dict[str, Any]:
        """Return a whole desired state of a switch, and add its marks to `tokens`."""
        document: dict[str, Any] = {}
        for kind, plural in PLURALS.items():
            of_kind = document.setdefault(plural, {})
            classes = list(document.get("classes", ()))
            for number in range(NAMES[kind] * (4 if many and kind != "port" else 1)):
                if self._chance.random() < 0.7:
                    name = str(1 + number) if kind == "port" else f"{kind[0]}{number}"
                    key = (switch, kind, name)
                    tokens[key], of_kind[name] = self._spec(key, classes)
        return document

    async def _delete(self, key: Key) -> None:
        known = self._known.get(key, Known())
        match, headers = -1, []
        if known.there and self._chance.random() < 0.5:
            match, headers = known.revision, [(b"if-match", f'"{known.revision}"'.encode())]
        operation = await self._ask("DELETE", key, headers, b"", {}, match)
        if operation.outcome == 204:
            self._known[key] = Known()

    async def _get(self, key: Key) -> None:
        operation = await self._ask("GET", key, [], b"", {}, -1)
        if operation.outcome == 200:
            self._known[key] = Known(operation.revision, there=True)
        elif operation.outcome == 404:
            self._known[key] = Known()

    async def _ask(
        self,
        method: str,
        key: Key,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        tokens: Mapping[Key, int],
        match: int,
        *,
        whole: bool = False,
    ) -> Operation:
        world = self._world
        controller = self._chance.choice(world.controllers)
        server, asked_s = controller.node.process, world.loop.now_s
        operation = Operation(
            self.node.name, server, method, key, tokens, match, asked_s, whole=whole
        )
        world.operations.append(operation)
        try:
            address = f"{controller.node.name}:{REST_PORT}"
            operation.server, status, told, answer = await self._call(
                address, method, self._path(key), headers, body
            )
        except LostError as error:
            operation.certain = not error.sent
        else:
            self._take(operation, status, told, answer)
        operation.answered_s = world.loop.now_s
        world.loop.note(str(operation))
        world.answered(operation)
        return operation

    @staticmethod
    def _take(operation: Operation, status: int, told: Any, answer: bytes) -> None:
        """Note the answer to a client."""
        operation.outcome = status
        tags = [value for name, value in told if name == b"etag"]
        operation.revision = int(tags[0].strip(b'"')) if tags else 0
        if status == 200 and operation.method == "GET":
            view, kind = json.loads(answer), operation.key[1]
            if not tags:
                # A port with unmanaged settings.
                operation.outcome = 404
            else:
                operation.seen = token_of(kind, view["desired"] if kind == "port" else view)
        uncertain = status == 503 and json.loads(answer)["type"].endswith("uncertain")
        operation.certain = status >= 400 and not uncertain and status not in (CANCELLED, 502, 507)

    async def _call(
        self,
        address: str,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> tuple[Process, int, Any, bytes]:
        """Make one request on a connection of its own."""
        future = asyncio.get_running_loop().create_future()
        opened: list[Endpoint] = []

        def failed(_: str) -> None:
            if not future.done():
                future.set_exception(LostError(sent=bool(opened)))

        def received(message: Any) -> None:
            if not future.done():
                future.set_result(message)

        def ready(end: Endpoint) -> None:
            if future.done():
                end.close()
                return
            opened.append(end)
            end.received, end.broken = received, failed
            end.send((method, path, headers, body))

        self._world.network.connect(address, ready, failed)
        try:
            async with asyncio.timeout(ANSWER_S):
                status, told, answer = await future
        except TimeoutError:
            # Before it is opened a request may still be sent: `ready` looks.
            raise LostError(sent=bool(opened)) from None
        finally:
            for end in opened:
                end.close()
        assert opened[0].other is not None
        return opened[0].other.process, status, told, answer

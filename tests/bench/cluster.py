"""How many rate changes three controllers on etcd make, and what a change costs.

    cluster.py [--out FILE.json] [--seconds S] [--rate R] [--clients N] [--flows N]

Starts what `make cluster` starts: members of etcd, controllers, and switches without ports. Clients
change rates of classes picked at random, the same number of clients at each controller. With
--rate, that many changes begin each second, and a change's latency counts from when it was due;
without, each client sends its next change as soon as it has an answer.

A change is answered when a majority of etcd's members has it on disk. When it is on its switch, one
prober for each controller finds out: it changes a class that nobody else does, and reads the switch
through P4Runtime until the class is so. At the end all switches must hold what the controllers say.

The result has the processor time of each kind of process for each change, and what etcd counts for
each change: calls by method, proposals (entries of its log), and fsyncs of all members.

--flows puts that many flows on one switch in one document, before the changes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import random
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import finsy as fy
import grpc.aio
from finsy.proto import p4r, p4r_grpc
from targets import PACER, ROOT

from pacer_entries import time_per_byte_q24  # isort: skip

CLASSES = "PacerIngress.classes"
PROBE = "probe"
RATE_BPS_LEAST = 1_000_000
POLL_S = 0.003
PROBE_PAUSE_S = 0.1
SETTLE_S = 30.0
READY_S = 60.0
COUNTED = {
    "grpc_server_handled_total": "calls",
    "etcd_server_proposals_committed_total": "proposals",
    "etcd_disk_wal_fsync_duration_seconds_count": "fsyncs",
}
"""Counters of etcd's members, and their names in the result."""


def launcher() -> Any:
    """Return the module that `make cluster` runs."""
    loader = importlib.machinery.SourceFileLoader("cluster_tool", str(ROOT / "tools" / "cluster"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Connection:
    """A kept-alive HTTP/1.1 connection that costs little beside the measured work."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect to http://HOST:PORT."""
        made = cls(url)
        await made._connect()
        return made

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self._url.removeprefix("http://").rpartition(":")
        self._streams = await asyncio.open_connection(host, int(port))
        return self._streams

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Make a request; returns the answer's status and body."""
        reader, writer = self._streams or await self._connect()
        if reader.at_eof():
            # A server closes idle connections.
            reader, writer = await self._connect()
        content = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await reader.readuntil(b"\r\n\r\n")
        said = b""
        for line in answer.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                said = await reader.readexactly(int(line.partition(b":")[2]))
        return int(answer.split(b" ", 2)[1]), said


class OnSwitch:
    """Reads classes of a switch through P4Runtime, beside the controller that drives it."""

    def __init__(self, address: str, schema: fy.P4Schema) -> None:
        self._schema = schema
        self._channel = grpc.aio.insecure_channel(address)
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def costs(self, index: int | None = None) -> dict[int, int]:
        """Return the time per byte, in 2^-24 ns, of one class or of all, by index."""
        match = fy.P4TableMatch() if index is None else fy.P4TableMatch(class_id=index)
        entity = fy.P4TableEntry(CLASSES, match=match).encode(self._schema)
        found = {}
        async for answer in self._stub.Read(p4r.ReadRequest(device_id=0, entities=[entity])):
            for one in answer.entities:
                if one.table_entry.match and one.table_entry.action.action.params:
                    of = int.from_bytes(one.table_entry.match[0].exact.value, "big")
                    value = one.table_entry.action.action.params[0].value
                    found[of] = int.from_bytes(value, "big")
        return found


class Run:
    """One measurement.

    Args:
        urls: the URLs of the controllers.
        switches: a function that reads each switch, by name.
        classes: the number of classes of each switch.

    """

    def __init__(self, urls: Sequence[str], switches: Mapping[str, OnSwitch], classes: int) -> None:
        self._urls = urls
        self._switches = switches
        self._classes = classes
        self._numbers = itertools.count(1)
        self._chance = random.Random(1)
        self.answered_ms: list[float] = []
        self.on_switch_ms: list[float] = []
        self.states: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    async def prepare(self) -> None:
        """Give each switch its classes."""
        connection = await Connection.open(self._urls[0])
        names = [*(f"c{n}" for n in range(self._classes)), PROBE]
        names += [f"{PROBE}{n}" for n in range(len(self._urls))]
        classes = {name: {"rate": RATE_BPS_LEAST} for name in names}
        for switch in self._switches:
            path = f"/v1/switches/{switch}/state"
            status, said = await connection.request("PUT", path, {"classes": classes})
            if status != 200:
                raise SystemExit(f"PUT {path}: {status} {said.decode()}")

    async def _change(self, connection: Connection, switch: str, of: str) -> dict[str, Any] | None:
        """Change a rate; returns a prober's answer, or None if it was refused."""
        body = {"rate": RATE_BPS_LEAST + next(self._numbers)}
        path = f"/v1/switches/{switch}/classes/{of}"
        status, said = await connection.request("PUT", path, body)
        if status != 200:
            self.refused[f"{status} {json.loads(said)['type'].rpartition(':')[2]}"] += 1
            return None
        return dict(json.loads(said)) if of.startswith(PROBE) else {}

    def _picked(self) -> tuple[str, str]:
        switch = self._chance.choice(list(self._switches))
        return switch, f"c{self._chance.randrange(self._classes)}"

    async def _closed(self, url: str, end_s: float) -> None:
        """Change rates, one after the other."""
        connection = await Connection.open(url)
        while (began_s := time.perf_counter()) < end_s:
            if await self._change(connection, *self._picked()) is not None:
                self.answered_ms.append((time.perf_counter() - began_s) * 1000)

    async def _open(self, clients: int, rate: float, end_s: float) -> None:
        """Begin changes at a rate; each waits for a free connection."""
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(clients):
            for url in self._urls:
                free.put_nowait(await Connection.open(url))
        began_s = time.perf_counter()

        async def change(due_s: float) -> None:
            connection = await free.get()
            if await self._change(connection, *self._picked()) is not None:
                self.answered_ms.append((time.perf_counter() - due_s) * 1000)
            free.put_nowait(connection)

        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                due_s = began_s + number / rate
                if due_s >= end_s:
                    break
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                group.create_task(change(due_s))

    async def _probe(self, number: int, end_s: float) -> None:
        """Find out when changes are on their switches."""
        connection = await Connection.open(self._urls[number])
        chance = random.Random(number)
        while (began_s := time.perf_counter()) < end_s:
            name = chance.choice(list(self._switches))
            view = await self._change(connection, name, f"{PROBE}{number}")
            if view is None:
                continue
            self.answered_ms.append((time.perf_counter() - began_s) * 1000)
            self.states[view["state"]] += 1
            index, cost = view["index"], time_per_byte_q24(view["rate_bps"])
            while (await self._switches[name].costs(index)).get(index) != cost:
                if time.perf_counter() > end_s + SETTLE_S:
                    raise SystemExit(f"a change is not on {name} after {SETTLE_S:g} s")
                await asyncio.sleep(POLL_S)
            self.on_switch_ms.append((time.perf_counter() - began_s) * 1000)
            await asyncio.sleep(PROBE_PAUSE_S)

    async def changes(self, seconds: float, clients: int, rate: float) -> float:
        """Change rates for a time; returns how long that took, in s."""
        began_s = time.perf_counter()
        end_s = began_s + seconds
        async with asyncio.TaskGroup() as group:
            for number, url in enumerate(self._urls):
                group.create_task(self._probe(number, end_s))
                for _ in range(0 if rate else clients):
                    group.create_task(self._closed(url, end_s))
            if rate:
                group.create_task(self._open(clients, rate, end_s))
        return time.perf_counter() - began_s

    async def settle(self) -> float:
        """Wait until all switches hold the controllers' state; returns the time it took, in s."""
        began_s = time.perf_counter()
        connections = [await Connection.open(url) for url in self._urls]
        for name, switch in self._switches.items():
            wanted = []
            for connection in connections:
                _, said = await connection.request("GET", f"/v1/switches/{name}/classes")
                views = json.loads(said)["classes"]
                wanted.append({v["index"]: time_per_byte_q24(v["rate_bps"]) for v in views})
            if any(one != wanted[0] for one in wanted):
                raise SystemExit(f"the controllers differ about {name}")
            while await switch.costs() != wanted[0]:
                if time.perf_counter() - began_s > SETTLE_S:
                    raise SystemExit(f"{name} does not hold what is desired after {SETTLE_S:g} s")
                await asyncio.sleep(POLL_S)
        return time.perf_counter() - began_s

    async def flows(self, count: int) -> float:
        """Put flows on one switch in one document; returns how long it took, in s."""
        connection = await Connection.open(self._urls[0])
        name = next(iter(self._switches))
        flows = {f"f{n:05}": {"match": {"dst_port": 1 + n}, "class": "video"} for n in range(count)}
        state = {"classes": {"video": {"rate": "500Mbit"}}, "flows": flows}
        began_s = time.perf_counter()
        status, said = await connection.request("PUT", f"/v1/switches/{name}/state", state)
        took_s = time.perf_counter() - began_s
        if status != 200:
            raise SystemExit(f"PUT state: {status} {said.decode()}")
        for url in self._urls:
            other = await Connection.open(url)
            while True:
                _, said = await other.request("GET", f"/v1/switches/{name}/flows?limit=1")
                if json.loads(said)["total"] == count:
                    break
                await asyncio.sleep(POLL_S)
        return took_s


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, in s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kind_of(process: str) -> str:
    """Return the kind of a process of the cluster, by its name."""
    kinds = {"etcd": "etcd", "cont": "controllers"}
    return kinds.get(process[:4], "switches")


class Spent:
    """The processor time and the counts since this object was made.

    Args:
        processes: the pids of the cluster's processes by name.
        members: the addresses of etcd's members.

    """

    def __init__(self, processes: Mapping[str, int], members: Sequence[str]) -> None:
        self._processes = processes
        self._members = members
        self._cpu_before, self._counts_before = self._cpu(), self._counts()

    def _cpu(self) -> dict[str, float]:
        used = defaultdict[str, float](float, clients=time.process_time())
        for name, pid in self._processes.items():
            used[kind_of(name)] += cpu_s(pid)
        return used

    def _counts(self) -> dict[str, float]:
        counts = defaultdict[str, float](float)
        for member in self._members:
            with urllib.request.urlopen(f"http://{member}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                name, _, rest = line.partition(" ")
                of, _, labels = name.partition("{")
                if of not in COUNTED or float(rest) == 0:
                    continue
                what = COUNTED[of]
                if what == "calls":
                    what += " " + labels.partition('grpc_method="')[2].partition('"')[0]
                # Each member counts each proposal.
                weight = len(self._members) if what == "proposals" else 1
                counts[what] += float(rest) / weight
        return counts

    def per_change(self, changes: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return processor time in ms by kind of process, and etcd's counts, for each change."""
        cpu, counts = self._cpu(), self._counts()
        ms = {k: round((v - self._cpu_before[k]) * 1000 / changes, 3) for k, v in cpu.items()}
        ms["all"] = round(sum(ms.values()), 3)
        before = self._counts_before
        made = {k: round((v - before.get(k, 0.0)) / changes, 3) for k, v in counts.items()}
        return ms, {k: v for k, v in sorted(made.items()) if v}


def quantiles(found_ms: Sequence[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum."""
    ordered = sorted(found_ms) or [0.0]
    at = {"median": 0.5, "p99": 0.99}
    made = {name: round(ordered[int(len(ordered) * q)], 2) for name, q in at.items()}
    return {**made, "max": round(ordered[-1], 2)}


@contextmanager
def started(
    options: argparse.Namespace, within_s: float = READY_S
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Run a cluster; yields it, and the addresses of its switches by name.

    Raises:
        SystemExit: not all of it is there within some seconds.

    """
    tool = launcher()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        cluster = tool.Cluster(Path(directory))
        try:
            cluster.store = cluster.start_members(options.members)
            switches = cluster.start_switches(options.switches)
            cluster.start_controllers(options.controllers, cluster.store)
            for name, where in switches.items():
                body = {"kind": "p4runtime", "address": where}
                tool.request(f"{cluster.urls[0]}/v1/switches/{name}", "PUT", body)
            for url in cluster.urls:
                cluster.wait(
                    url, "/healthz", lambda said: said["connected"] == len(switches), within_s
                )
            cluster.members = cluster.store.removeprefix("etcd://").partition("/")[0].split(",")
            yield cluster, switches
        finally:
            cluster.stop()


async def measure(
    options: argparse.Namespace, cluster: Any, addresses: Mapping[str, str]
) -> dict[str, Any]:
    """Return the figures."""
    schema = fy.P4Schema(PACER / "pacing_switch" / "pacer.p4info.txtpb")
    switches = {name: OnSwitch(where, schema) for name, where in addresses.items()}
    run = Run(cluster.urls, switches, options.classes)
    result: dict[str, Any] = {name: getattr(options, name) for name in _SETTINGS}
    pids = {name: process.pid for name, process in cluster.processes.items()}
    for name, pid in pids.items():
        if kind_of(name) == "controllers":
            print(f"{name} is process {pid}", flush=True)
    if options.flows:
        spent = Spent(pids, cluster.members)
        result["flows_s"] = round(await run.flows(options.flows), 2)
        result["flows_cpu_ms_each"], _ = spent.per_change(options.flows)
    await run.prepare()
    # A collection of all objects of this process would be measured as a delay of the controllers.
    gc.collect()
    gc.freeze()
    spent = Spent(pids, cluster.members)
    took_s = await run.changes(options.seconds, options.clients, options.rate)
    settled_s = await run.settle()
    count = len(run.answered_ms)
    cpu_ms, counts = spent.per_change(count)
    await asyncio.gather(*(one.close() for one in switches.values()))
    return result | {
        "changes": count,
        "changes_per_s": round(count / took_s),
        "answered_ms": quantiles(run.answered_ms),
        "on_switch_ms": quantiles(run.on_switch_ms),
        "probes": dict(run.states),
        "refused": dict(run.refused),
        "settled_s": round(settled_s, 2),
        "cpu_ms_per_change": cpu_ms,
        "etcd_per_change": counts,
        "load": round(os.getloadavg()[0], 2),
    }


_SETTINGS = ("members", "controllers", "switches", "clients", "classes", "rate", "flows")


def main() -> None:
    """Measure and print; the JSON is written where --out says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--switches", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8, help="at each controller")
    parser.add_argument("--classes", type=int, default=50, help="of each switch")
    parser.add_argument("--rate", type=float, default=0.0, help="changes that begin each second")
    parser.add_argument("--flows", type=int, default=0, help="in one document, before")
    parser.add_argument("--directory", type=Path, help="below which etcd has its data")
    options = parser.parse_args()
    with started(options) as (cluster, addresses):
        result = asyncio.run(measure(options, cluster, addresses))
    for name, value in result.items():
        print(f"{name:20} {value}")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

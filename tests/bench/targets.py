"""The targets of the benchmarks: pacing_switch, the bare forwarder, and switches of others.

Each is started between two interfaces, by default those of two veth pairs, and pinned to cores, by
default to one of its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in ("common", "ptf", "virtual"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

from open_vswitch import OpenVSwitch  # noqa: E402
from p4runtime_client import Client, Program  # noqa: E402
from pacer_entries import paced_class  # noqa: E402

RELEASE = ROOT / "switch" / "target" / "release"
PACER = ROOT / "p4src" / "compiled"
ROUTER = ROOT / "tests" / "bench" / "programs" / "compiled" / "v1model"
DESTINATION = "02:00:00:00:00:02"
SOURCE = "02:00:00:00:00:01"
SOURCE_ADDRESS = "10.0.0.1"
DESTINATION_ADDRESS = "10.0.0.2"
GRPC_ADDRESS = ("127.0.0.1", 9559)
READY_SECONDS = 60.0
# One core for the sender, the other for the target.
SENDER_CPU, TARGET_CPU = 0, 1
# Routes beside the one that the frames take, so that there is something to look up.
OTHER_ROUTES = 255
ROUTES_PER_WRITE = 64


@dataclass(frozen=True)
class Wire:
    """The sender's and the receiver's interface, and the two of the device between them."""

    sender: str = "gen"
    device_in: str = "in"
    device_out: str = "out"
    receiver: str = "sink"


WIRE = Wire()
PORTS = ((1, WIRE.device_in), (2, WIRE.device_out))


@dataclass
class Started:
    """A running target; `statistics` are those that pacing_switch writes at its end.

    `pid` is 0 where the kernel forwards.
    """

    pid: int
    client: Client | None = None
    statistics: dict[str, Any] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, in s; 0 where the kernel forwards."""
        return sum(self.thread_seconds().values())

    def thread_seconds(self) -> dict[str, float]:
        """Processor time by the names of its threads, in s."""
        if not self.pid:
            return {}
        found: dict[str, float] = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            used_ns = int((task / "schedstat").read_text().split()[0])
            found[name] = found.get(name, 0.0) + used_ns / 1e9
        return found


@contextmanager
def running(command: Sequence[str], cpus: str = str(TARGET_CPU)) -> Iterator[subprocess.Popen[str]]:
    """A process pinned to these cores, ended by its pid."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            ["taskset", "-c", cpus, *command], stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is not None:
                log.seek(0)
                print(f"{command[0]} ended early:\n{log.read()}", file=sys.stderr)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for_grpc(process: subprocess.Popen[str]) -> None:
    """Returns when the switch accepts connections."""
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        try:
            socket.create_connection(GRPC_ADDRESS, timeout=READY_SECONDS).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise SystemExit("the switch does not come up")


def number(mac: str) -> int:
    """A hardware address as P4Runtime writes it."""
    return int(mac.replace(":", ""), 16)


def forward_by_pacer(client: Client) -> None:
    """pacer.p4 knows both stations and sends the frames to port 2."""
    client.insert(
        client.entry(
            "PacerIngress.sources",
            {"src_mac": number(SOURCE), "ingress_port": 1},
            "PacerIngress.known",
        ),
        client.entry(
            "PacerIngress.forward",
            {"dst_mac": number(DESTINATION)},
            "PacerIngress.forward_to",
            {"port": 2},
        ),
    )


def pace(client: Client, rate_bps: int) -> None:
    """Packets from port 1 belong to class 1, which has a rate."""
    install_class(client, paced_class(1, rate_bps, limit_bytes=1 << 20))


def install_class(client: Client, entry: dict[str, object]) -> None:
    """Installs class 1 (see `pacer_entries`), to which the packets from port 1 belong."""
    params = entry["action_params"]
    assert isinstance(params, dict)
    client.insert(
        client.entry("PacerIngress.classes", {"class_id": 1}, str(entry["action_name"]), params),
        client.entry(
            "PacerIngress.flows",
            {"ingress_port": 1},
            "PacerIngress.classify",
            {"class_id": 1, "drop_red": 0, "mark": 0, "yellow_dscp": 0, "red_dscp": 0},
            priority=1,
        ),
    )


def forward_by_router(client: Client) -> None:
    """router.p4 has a route for the frames, and others."""
    hop = {"port": 2, "src_mac": number(SOURCE), "dst_mac": number(DESTINATION)}
    prefixes = [(0x0A000000, 24)]
    prefixes += [(0x0A000000 + (number << 8), 24) for number in range(1, OTHER_ROUTES + 1)]
    routes = [
        client.entry(
            "RouterIngress.routes", {"hdr.ipv4.dst_addr": prefix}, "RouterIngress.next_hop", hop
        )
        for prefix in prefixes
    ]
    for first in range(0, len(routes), ROUTES_PER_WRITE):
        client.insert(*routes[first : first + ROUTES_PER_WRITE])


@contextmanager
def p4_switch(
    target: str,
    folder: Path,
    program: str,
    *entries: Callable[[Client], None],
    options: Sequence[str] = (),
    ports: Sequence[tuple[int, str]] = PORTS,
    binary: Path = RELEASE / "pacing_switch",
    cpus: str = str(TARGET_CPU),
) -> Iterator[Started]:
    """A P4 target that runs a compiled program of a folder, with its entries."""
    address = f"{GRPC_ADDRESS[0]}:{GRPC_ADDRESS[1]}"
    own = ["--grpc-server-addr", address, "--cpu-port", "510"]
    interfaces = [word for port, name in ports for word in ("-i", f"{port}@{name}")]
    with tempfile.TemporaryDirectory() as scratch:
        statistics = Path(scratch) / "statistics.json"
        if target == "bmv2":
            command = ["simple_switch_grpc", "--no-p4", "--log-level", "off", *interfaces]
            command += ["--", *own]
        else:
            command = [str(binary), "--no-p4", *own, *interfaces, *options]
            command += ["--stats-file", str(statistics)]
        with running(command, cpus) as process:
            wait_for_grpc(process)
            client = Client(
                address,
                0,
                Program(folder / f"{program}.p4info.txtpb", folder / f"{program}.json"),
            )
            client.become_primary()
            client.push()
            for install in entries:
                install(client)
            started = Started(process.pid, client)
            yield started
            client.close()
        if statistics.exists():
            started.statistics = json.loads(statistics.read_text())


@contextmanager
def bare_forwarder(
    *options: str,
    ports: Sequence[tuple[int, str]] = PORTS,
    cpus: str = str(TARGET_CPU),
) -> Iterator[Started]:
    """The project's forwarder without P4."""
    command = [str(RELEASE / "forwarder"), *(name for _, name in ports), *options]
    with running(command, cpus) as process:
        time.sleep(0.5)  # it opens two interfaces; too short a wait shows as a lower figure
        yield Started(process.pid)


@contextmanager
def kernel_bridge(ports: Sequence[tuple[int, str]] = PORTS) -> Iterator[Started]:
    """A bridge of the kernel."""
    _ip("link", "add", "bridge", "type", "bridge")
    try:
        for _, name in ports:
            _ip("link", "set", name, "master", "bridge")
        _ip("link", "set", "bridge", "up")
        yield Started(0)
    finally:
        _ip("link", "delete", "bridge")


@contextmanager
def open_vswitch(
    installed: Path,
    ports: Sequence[tuple[int, str]] = PORTS,
    cpus: str = str(TARGET_CPU),
    *,
    trains: bool = False,
) -> Iterator[Started]:
    """Open vSwitch's userspace datapath, which sends what comes in at a port out of the other.

    `installed` is the folder that `ovs-patches/build` prints; `trains`: frames of several segments
    come.
    """
    (one, other) = (name for _, name in ports)
    under = ("taskset", "-c", cpus)
    with OpenVSwitch.running(installed, (one, other), under=under, trains=trains) as ovs:
        ovs.flows([f"in_port={a},actions=output:{b}" for a, b in ((one, other), (other, one))])
        yield Started(ovs.pid)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)

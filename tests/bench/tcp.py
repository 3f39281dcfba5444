"""Measures TCP between two hosts with their offloads on, through pacing_switch and a kernel bridge.

    tcp.py [--out FILE.json] [--rounds N] [--seconds S] [--only TEXT]
           [--switch NAME=BINARY]... [--packets NAME=CHECKOUT]...

The hosts are network namespaces, at the ends of veth pairs as the kernel makes them. Between them
are a bridge of the kernel, router.p4, pacer.p4 without a class, and pacer.p4 with classes of 2 and
5 Gbit/s, with and without a quantum. Each round reads every row once, so that what else the machine
does meets all rows; the table has medians and ranges. Hosts and switch share all processors.

`--switch` names further binaries of pacing_switch, to compare. `--packets` names checkouts of older
versions, with their release build. They need the hosts' offloads off, and have their own pacer.p4,
without a class. In a network namespace of its own. Needs root and iperf3. The table goes beside
FILE.json, as Markdown.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from own_namespace import run_inside
from pacing_switch.wires import OFFLOADS
from tables import markdown
from targets import (
    PACER,
    RELEASE,
    ROOT,
    ROUTER,
    install_class,
    kernel_bridge,
    number,
    p4_switch,
)

sys.path.insert(0, str(ROOT / "tests" / "ptf"))
sys.path.insert(0, str(ROOT / "tests" / "virtual"))

from p4runtime_client import Client
from pacer_entries import paced_class, timer_class

LIMIT_BYTES = 4 << 20
READY_S = 30.0
CONNECT_S = 5.0
ENDS_S = 20.0


class TcpError(Exception):
    """TCP does not work between the hosts."""


@dataclass(frozen=True)
class Host:
    """A host and its wire: interface at the switch, its own address and the other's."""

    port: int
    device: str
    mac: str
    address: str


Hosts = tuple[Host, Host]
HOSTS = (
    Host(1, "left", "02:00:00:00:00:01", "10.0.1.1"),
    Host(2, "right", "02:00:00:00:00:02", "10.0.2.1"),
)


@dataclass(frozen=True)
class Row:
    """What is between the hosts: `rate_bps` is 0 without a class, `quantum_bytes` without one."""

    target: str
    program: str = ""
    rate_bps: int = 0
    quantum_bytes: int = 0
    allowance_bytes: int = 16_384
    streams: int = 1
    reverse: bool = False

    @property
    def name(self) -> str:
        """A name for people."""
        words = [self.target, self.program]
        if self.rate_bps:
            words.append(f"{self.rate_bps / 1e9:g} Gbit/s")
        if self.quantum_bytes:
            words.append(f"quantum {self.quantum_bytes}")
        if self.rate_bps and self.allowance_bytes != Row.allowance_bytes:
            words.append(f"allowance {self.allowance_bytes}")
        if self.streams > 1:
            words.append(f"{self.streams} streams")
        if self.reverse:
            words.append("reverse")
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Build:
    """A binary of pacing_switch, and the folder with pacer.p4 compiled for it."""

    binary: Path = RELEASE / "pacing_switch"
    compiled: Path = PACER / "pacing_switch"

    @classmethod
    def of_checkout(cls, checkout: Path) -> Build:
        """The release build and the programs of another checkout."""
        return cls(
            checkout / cls.binary.relative_to(ROOT), checkout / cls.compiled.relative_to(ROOT)
        )


PORTS = tuple((host.port, host.device) for host in HOSTS)
BRIDGE = "bridge"


def everywhere() -> str:
    """All processors, as `taskset` takes them."""
    return f"0-{(os.cpu_count() or 1) - 1}"


def unpaced(switches: list[str]) -> list[Row]:
    """The rows of these switches with pacer.p4 and no class."""
    kinds: list[dict[str, Any]] = [{}, {"reverse": True}, {"streams": 8}]
    return [Row(switch, "pacer.p4", **kind) for switch in switches for kind in kinds]


def rows(switches: list[str]) -> list[Row]:
    """Every row of the table."""
    found = [Row(BRIDGE), Row(BRIDGE, reverse=True), Row(BRIDGE, streams=8)]
    for switch in switches:
        found += [Row(switch, "router.p4"), *unpaced([switch])]
        found += [
            Row(switch, "pacer.p4", 2_000_000_000, allowance_bytes=allowance_bytes)
            for allowance_bytes in (Row.allowance_bytes, 65_536)
        ]
        found += [
            Row(switch, "pacer.p4", 5_000_000_000, quantum_bytes)
            for quantum_bytes in (0, 6_072, 16_384, 65_536)
        ]
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def hosts(of: Hosts = HOSTS, *, offloads: bool = True) -> Iterator[list[list[str]]]:
    """Make the hosts; gives the beginning of a command in each.

    The second one runs iperf3's server.

    `offloads`: as the kernel makes their interfaces, else with all offloads off, at both ends.
    """
    with ExitStack() as ending:
        entered = []
        for host in of:
            # It says when the namespace is there.
            held = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                stdout=subprocess.PIPE,
            )
            ending.callback(held.wait)
            ending.callback(held.kill)
            assert held.stdout is not None
            held.stdout.readline()
            _run("ip", "link", "add", host.device, "type", "veth", "peer", "name", "eth0",
                 "netns", str(held.pid))  # fmt: skip
            # A connection that was cut keeps the namespace for minutes.
            ending.callback(_run, "ip", "link", "delete", host.device)
            inside = ["nsenter", "--net", "--target", str(held.pid)]
            _run(*inside, "ip", "link", "set", "eth0", "address", host.mac, "up")
            _run(*inside, "ip", "address", "add", f"{host.address}/16", "dev", "eth0")
            if not offloads:
                off = [word for feature in OFFLOADS for word in (feature, "off")]
                _run("ethtool", "-K", host.device, *off)
                _run(*inside, "ethtool", "-K", "eth0", *off)
            _run("ip", "link", "set", host.device, "up")
            entered.append(inside)
        for inside, other in zip(entered, reversed(of), strict=True):
            _run(*inside, "ip", "neighbour", "replace", other.address, "lladdr", other.mac,
                 "dev", "eth0")  # fmt: skip
        server = subprocess.Popen([*entered[1], "iperf3", "--server"], stdout=subprocess.DEVNULL)
        ending.callback(server.wait)
        ending.callback(server.kill)
        wait_for_server(entered[1])
        yield entered


def forward(client: Client, of: Hosts = HOSTS) -> None:
    """pacer.p4 knows both hosts."""
    for host in of:
        client.insert(
            client.entry(
                "PacerIngress.sources",
                {"src_mac": number(host.mac), "ingress_port": host.port},
                "PacerIngress.known",
            ),
            client.entry(
                "PacerIngress.forward",
                {"dst_mac": number(host.mac)},
                "PacerIngress.forward_to",
                {"port": host.port},
            ),
        )


def route(client: Client) -> None:
    """router.p4 has a route to each host."""
    for host, other in zip(HOSTS, reversed(HOSTS), strict=True):
        hop = {"port": host.port, "src_mac": number(other.mac), "dst_mac": number(host.mac)}
        octets = [int(octet) for octet in host.address.split(".")]
        prefix = int.from_bytes(bytes([*octets[:3], 0]))
        client.insert(
            client.entry(
                "RouterIngress.routes",
                {"hdr.ipv4.dst_addr": (prefix, 24)},
                "RouterIngress.next_hop",
                hop,
            )
        )


def pace(row: Row) -> Callable[[Client], None]:
    """Packets of the first host belong to a class with the row's rate."""
    allowance_ns = row.allowance_bytes * 8_000_000_000 // row.rate_bps
    if row.quantum_bytes:
        tick_ns = row.quantum_bytes * 8_000_000_000 // row.rate_bps
        entry = timer_class(1, row.rate_bps, tick_ns, LIMIT_BYTES, allowance_ns)
    else:
        entry = paced_class(1, row.rate_bps, limit_bytes=LIMIT_BYTES, allowance_ns=allowance_ns)
    return functools.partial(install_class, entry=entry)


def read(row: Row, inside: list[list[str]], seconds: float, builds: dict[str, Build]) -> float:
    """Return the goodput of a row in bit/s."""
    with ExitStack() as between:
        if row.target == BRIDGE:
            between.enter_context(kernel_bridge(PORTS))
        else:
            routes = row.program == "router.p4"
            build = builds[row.target]
            folder, program = (ROUTER, "router") if routes else (build.compiled, "pacer")
            entries: list[Callable[[Client], None]] = [route if routes else forward]
            if row.rate_bps:
                entries.append(pace(row))
            between.enter_context(
                p4_switch(
                    "pacing_switch",
                    folder,
                    program,
                    *entries,
                    ports=PORTS,
                    binary=build.binary,
                    cpus=everywhere(),
                )
            )
        try:
            return goodput_bps(inside, seconds, row.streams, reverse=row.reverse)
        except TcpError as error:
            raise SystemExit(f"{row.name}: {error}") from None


def goodput_bps(
    inside: list[list[str]], seconds: float, streams: int, *, reverse: bool = False
) -> float:
    """Return what TCP carries between the hosts; TcpError if it carries nothing.

    iperf3 takes whole seconds.
    """
    wait_for_ping(inside[0], HOSTS[1])
    command = [*inside[0], "iperf3", "--json", "--client", HOSTS[1].address, "--omit", "1"]
    command += ["--time", f"{max(seconds, 1):.0f}", "--parallel", str(streams)]
    command += ["--connect-timeout", f"{CONNECT_S * 1000:.0f}"]
    command += ["--reverse"] if reverse else []
    try:
        # A connection that carries nothing would keep iperf3 for minutes.
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + 1 + CONNECT_S + ENDS_S
        )
        said = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise TcpError(f"iperf3 does not end: {type(error).__name__}") from None
    if "error" in said:
        raise TcpError(f"iperf3: {said['error']}")
    return float(said["end"]["sum_received"]["bits_per_second"])


def wait_for_server(inside: list[str]) -> None:
    """Return when iperf3's server listens."""
    command = [*inside, "ss", "--no-header", "--listening", "--tcp", "sport = :5201"]
    _wait(lambda: bool(subprocess.check_output(command)), "iperf3's server does not listen")


def wait_for_ping(inside: list[str], other: Host) -> None:
    """Return when the other host answers."""
    command = [*inside, "ping", "-q", "-c", "1", "-W", "1", other.address]
    _wait(
        lambda: subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0,
        "the hosts do not reach each other",
    )


def _wait(ready: Callable[[], bool], otherwise: str) -> None:
    limit_s = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > limit_s:
            raise TcpError(otherwise)


def _named(given: list[str]) -> dict[str, Path]:
    return {name: Path(path) for name, _, path in (one.partition("=") for one in given)}


def main() -> int:
    """Measure all rows and write the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/tcp.json"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--switch", action="append", default=[], metavar="NAME=BINARY")
    parser.add_argument("--packets", action="append", default=[], metavar="NAME=CHECKOUT")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    options = parser.parse_args()
    inside_status = run_inside()
    if inside_status is not None:
        return inside_status
    whole = {"pacing_switch": Build()}
    whole |= {name: Build(binary) for name, binary in _named(options.switch).items()}
    of_packets = {name: Build.of_checkout(of) for name, of in _named(options.packets).items()}
    chosen = {
        True: [row for row in rows(list(whole)) if options.only in row.name],
        False: [row for row in unpaced(list(of_packets)) if options.only in row.name],
    }
    readings: dict[Row, list[float]] = {row: [] for row in [*chosen[True], *chosen[False]]}
    _run("ip", "link", "set", "lo", "up")
    for number_of_round in range(options.rounds):
        for offloads, those in chosen.items():
            if not those:
                continue
            with hosts(offloads=offloads) as inside:
                for row in those:
                    found = read(row, inside, options.seconds, whole | of_packets)
                    readings[row].append(found)
                    print(
                        f"{number_of_round + 1}: {row.name}: {found / 1e9:.2f} Gbit/s", flush=True
                    )
    results: list[dict[str, Any]] = [
        {"row": row.name, "rate_bps": row.rate_bps, "readings_bps": each, "bps": median(each)}
        for row, each in readings.items()
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    table = markdown("tcp", results)
    options.out.with_suffix(".md").write_text(table)
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

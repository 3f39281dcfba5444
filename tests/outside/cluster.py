"""Three members of etcd, three controllers and ten switches, each a process on its own host."""

import os
import secrets
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hosts import Host, Hosts, run

ROOT = Path(__file__).resolve().parents[2]

ETCD_CLIENT, ETCD_PEER, REST, GRPC = 2379, 2380, 8080, 9559
LEASE_S = 3
DISK = "768m"
"""Size of the file system of an etcd member's data: etcd keeps five write-ahead logs of 64 MB."""

START_S = 60.0


@dataclass
class Node:
    """A process on a host, which can be started again."""

    host: Host
    kind: str
    command: list[str]
    log: Path
    ready: str
    """The text in its log when it is ready; empty: there is none."""
    process: "subprocess.Popen[bytes] | None" = field(default=None)
    stopped: bool = False
    killed_at_s: float = 0.0

    @property
    def name(self) -> str:
        """Its host's name."""
        return self.host.name

    @property
    def runs(self) -> bool:
        """Whether it runs, and is not stopped by a signal."""
        return self.process is not None and self.process.poll() is None and not self.stopped

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.host.inside(*self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.stopped = False

    def wait_ready(self) -> None:
        """Wait for the line of its log that says that it can be used."""
        end_s = time.monotonic() + START_S
        while self.ready and self.ready not in self.log.read_text(errors="replace"):
            if self.process is None or self.process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"{self.name} did not start; its log is {self.log}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.killed_at_s = time.monotonic()

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        if self.runs and self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            self.stopped = True

    def resume(self) -> None:
        """Let it go on."""
        if self.stopped and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stopped = False


class Cluster:
    """All nodes.

    Args:
        hosts: the maker of their hosts.
        directory: for data and logs.
        switches: the number of switches.

    """

    def __init__(self, hosts: Hosts, directory: Path, switches: int = 10) -> None:
        self._directory = directory
        self.token = secrets.token_hex(16)
        token_file = directory / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token)
        self.certificate, key = directory / "cert.pem", directory / "key.pem"
        names = ",".join(f"IP:10.9.0.{20 + number}" for number in (1, 2, 3))
        run(
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=controllers", "-addext", f"subjectAltName={names}"),
            *("-keyout", str(key), "-out", str(self.certificate)),
        )
        key.chmod(0o600)
        self.etcd = [self._member(hosts.add(f"e{n}", 10 + n)) for n in (1, 2, 3)]
        self.switches = [self._switch(hosts.add(f"s{n}", 100 + n)) for n in range(1, switches + 1)]
        store = "etcd://" + ",".join(f"{one.host.address}:{ETCD_CLIENT}" for one in self.etcd)
        serving = [
            *("--token-file", str(token_file), "--tls-cert", str(self.certificate)),
            *("--tls-key", str(key), "--store", f"{store}/pspacer", "--lease", str(LEASE_S)),
            *("--no-history", "--reconcile-interval", "5"),
        ]
        for switch in self.switches:
            serving += ["--switch", f"{switch.name}={switch.host.address}:{GRPC}"]
        self.controllers = [
            self._controller(hosts.add(f"c{n}", 20 + n), serving) for n in (1, 2, 3)
        ]

    @property
    def nodes(self) -> list[Node]:
        """All of them."""
        return [*self.etcd, *self.switches, *self.controllers]

    @property
    def urls(self) -> list[str]:
        """The controllers' REST interfaces."""
        return [f"https://{one.host.address}:{REST}" for one in self.controllers]

    def _node(self, host: Host, kind: str, command: list[str], ready: str) -> Node:
        return Node(host, kind, command, self._directory / f"{host.name}.log", ready)

    def disk_of(self, member: Node) -> Path:
        """Return where an etcd member's data is: a small file system of its own."""
        return self._directory / member.name

    def _member(self, host: Host) -> Node:
        data = self._directory / host.name
        data.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(data))
        client = f"http://{host.address}:{ETCD_CLIENT}"
        peer = f"http://{host.address}:{ETCD_PEER}"
        named = ",".join(f"e{n}=http://10.9.0.{10 + n}:{ETCD_PEER}" for n in (1, 2, 3))
        command = [
            *("etcd", "--name", host.name, "--data-dir", str(data / "etcd")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", named, "--logger", "zap", "--log-level", "error"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000", "--pre-vote"),
            *("--snapshot-count", "5000", "--auto-compaction-mode", "revision"),
            *("--auto-compaction-retention", "2000"),
        ]
        return self._node(host, "etcd", command, "")

    def _switch(self, host: Host) -> Node:
        binary = os.environ.get("PACING_SWITCH") or ROOT / "switch/target/release/pacing_switch"
        command = [str(binary), "--grpc-server-addr", f"{host.address}:{GRPC}", "--cpu-port", "510"]
        return self._node(host, "switch", command, "pacing_switch: ready")

    def _controller(self, host: Host, serving: list[str]) -> Node:
        binary = os.environ.get("PACER_CONTROLLER") or ROOT / "build/venv/bin/pacer-controller"
        command = [str(binary), "--listen", f"{host.address}:{REST}", *serving]
        return self._node(host, "controller", command, "pacer-controller: ready")

    def start(self) -> None:
        """Start all nodes, and wait until every switch is driven."""
        for one in (*self.etcd, *self.switches):
            one.start()
        for one in self.switches:
            one.wait_ready()
        for one in self.controllers:
            one.start()
        for one in self.controllers:
            one.wait_ready()
        self.wait_driven(START_S)

    def ask(self, url: str, path: str) -> httpx.Response:
        """GET a path of a controller."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.get(url + path, headers=headers, verify=str(self.certificate), timeout=2.0)

    def undriven(self) -> list[str]:
        """Return the switches that no controller has connected to."""
        left = {one.name for one in self.switches if one.runs}
        for node, url in zip(self.controllers, self.urls, strict=True):
            if not node.runs:
                continue
            try:
                answer = self.ask(url, "/v1/switches")
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                for one in answer.json()["switches"]:
                    # One that another controller drives is shown with that one's name.
                    if one["state"] == "connected" and one["controller"] is None:
                        left.discard(one["name"])
        return sorted(left)

    def wait_driven(self, within_s: float) -> float:
        """Wait until every switch is driven; return after how long.

        Raises:
            RuntimeError: it takes longer.

        """
        began_s = time.monotonic()
        while left := self.undriven():
            if time.monotonic() - began_s > within_s:
                raise RuntimeError(f"not driven after {within_s:g} s: {', '.join(left)}")
            time.sleep(0.05)
        return time.monotonic() - began_s

    def stop(self) -> None:
        """End all nodes."""
        for one in reversed(self.nodes):
            one.resume()
            one.kill()
        for member in self.etcd:
            run("umount", str(self.disk_of(member)))

"""Real members of etcd on loopback, each a process of the test's."""

import shutil
import subprocess
import time
from pathlib import Path

import grpc
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc

from controller_harness import DEADLINE_S, Process, free_port

MISSING = shutil.which("etcd") is None
"""Whether this machine has no etcd: Debian's package etcd-server."""


class Members:
    """A cluster.

    Args:
        directory: for their data.
        count: how many.
        options: further ones of each.

    """

    def __init__(self, directory: Path, count: int = 1, *options: str) -> None:
        self._directory = directory
        self._options = options
        ports = [(free_port(), free_port()) for _ in range(count)]
        self.endpoints = [f"127.0.0.1:{client}" for client, _ in ports]
        self._peers = [f"http://127.0.0.1:{peer}" for _, peer in ports]
        self.processes: list[Process | None] = [None] * count

    def url(self, prefix: str = "/test") -> str:
        """Return the store's URL."""
        return f"etcd://{','.join(self.endpoints)}{prefix}"

    def start(self) -> None:
        """Start those that do not run, and wait until the cluster takes writes."""
        for index in range(len(self.processes)):
            if self.processes[index] is None:
                self._start(index)
        self._wait()

    def _start(self, index: int) -> None:
        named = ",".join(f"m{n}={peer}" for n, peer in enumerate(self._peers))
        client = f"http://{self.endpoints[index]}"
        self.processes[index] = Process(
            [
                *("etcd", "--name", f"m{index}", "--data-dir", str(self._directory / f"m{index}")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", self._peers[index]),
                *("--initial-advertise-peer-urls", self._peers[index]),
                *("--initial-cluster", named, "--logger", "zap", "--log-level", "error"),
                *("--heartbeat-interval", "50", "--election-timeout", "500"),
                *self._options,
            ]
        )

    def _wait(self) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            for endpoint in self.endpoints:
                with grpc.insecure_channel(endpoint) as channel:
                    put = rpc.PutRequest(key=b"/ready", value=b"1")
                    try:
                        rpc_pb2_grpc.KVStub(channel).Put(put, timeout=1.0, wait_for_ready=True)
                    except grpc.RpcError:
                        continue
                    return
        raise AssertionError("etcd takes no writes")

    def compact(self) -> None:
        """Forget what has been."""
        environment = {"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"}
        base = ["etcdctl", "--endpoints", self.endpoints[0]]
        said = subprocess.run(
            [*base, "put", "/ready", "2", "-w", "json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        revision = said.partition('"revision":')[2].partition(",")[0]
        subprocess.run([*base, "compact", revision], env=environment, check=True)

    def kill(self, index: int) -> None:
        """Kill a member."""
        process, self.processes[index] = self.processes[index], None
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill all."""
        for index in range(len(self.processes)):
            self.kill(index)

"""Real members of etcd on loopback, each a process of the test's."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc
from certificates import Authority

from controller_harness import DEADLINE_S, Process, free_port
from pacer_controller.stores.etcd.client import EtcdClient, EtcdError

MISSING = shutil.which("etcd") is None
"""Whether this machine has no etcd: Debian's package etcd-server."""


ROOT_PASSWORD = "of-root"  # noqa: S105 (of a test's own etcd)


class Members:
    """A cluster.

    Args:
        directory: the directory for their data.
        count: the number of members.
        options: further options of each member.
        authority: signs the certificates of members and clients; None: no TLS.
        named: the name for which the members' certificates are valid.

    """

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        *options: str,
        authority: Authority | None = None,
        named: str = "IP:127.0.0.1",
    ) -> None:
        self._directory = directory
        self._options = options
        self._authority = authority
        self._tls: tuple[Path, Path] | None = None
        if authority is not None:
            self._tls = authority.issue("member", f"DNS:member,{named}")
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
        options = list(self._options)
        if self._tls is not None:
            client = f"https://{self.endpoints[index]}"
            options += ["--key-file", str(self._tls[0]), "--cert-file", str(self._tls[1])]
        self.processes[index] = Process(
            [
                *("etcd", "--name", f"m{index}", "--data-dir", str(self._directory / f"m{index}")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", self._peers[index]),
                *("--initial-advertise-peer-urls", self._peers[index]),
                *("--initial-cluster", named, "--logger", "zap", "--log-level", "error"),
                *("--heartbeat-interval", "50", "--election-timeout", "500"),
                *options,
            ]
        )

    def _wait(self) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            for endpoint in self.endpoints:
                with self.channel(endpoint) as channel:
                    put = rpc.PutRequest(key=b"/ready", value=b"1")
                    try:
                        rpc_pb2_grpc.KVStub(channel).Put(put, timeout=1.0, wait_for_ready=True)
                    except grpc.RpcError:
                        continue
                    return
        raise AssertionError("etcd takes no writes")

    def channel(self, endpoint: str) -> grpc.Channel:
        """Return a connection to a member."""
        if self._tls is None or self._authority is None:
            return grpc.insecure_channel(endpoint)
        files = (self._authority.certificate, *self._tls)
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        named = [("grpc.ssl_target_name_override", "member")]
        return grpc.secure_channel(endpoint, credentials, named)

    def require_users(self, prefix: str, users: Mapping[str, str]) -> None:
        """Have calls need a user; `users` (passwords by name) may use the keys with a prefix."""
        with self.channel(self.endpoints[0]) as channel:
            auth = rpc_pb2_grpc.AuthStub(channel)
            end = (prefix[:-1] + chr(ord(prefix[-1]) + 1)).encode()
            whole = rpc.Permission(
                permType=rpc.Permission.READWRITE, key=prefix.encode(), range_end=end
            )
            auth.RoleAdd(rpc.AuthRoleAddRequest(name="all"))
            auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="all", perm=whole))
            for user, password in {**users, "root": ROOT_PASSWORD}.items():
                auth.UserAdd(rpc.AuthUserAddRequest(name=user, password=password))
                role = "root" if user == "root" else "all"
                auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=role))
            auth.AuthEnable(rpc.AuthEnableRequest())

    def add_role(self, name: str) -> None:
        """Change the rights of users, which makes earlier tokens invalid."""
        with self.channel(self.endpoints[0]) as channel:
            auth = rpc_pb2_grpc.AuthStub(channel)
            said = auth.Authenticate(rpc.AuthenticateRequest(name="root", password=ROOT_PASSWORD))
            auth.RoleAdd(rpc.AuthRoleAddRequest(name=name), metadata=[("token", said.token)])

    def compact(self) -> None:
        """Compact the history."""
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


@contextlib.contextmanager
def given_up(client: EtcdClient, key: str) -> Iterator[list[Sequence[Any]]]:
    """Have a transaction get no answer: the first one whose operations name a key.

    It does not reach etcd. The caller makes it later, as a member that was stopped does when it
    goes on.

    Yields:
        The transaction, as the arguments of `EtcdClient.transact`, once it was given up.

    """
    real, late = client.transact, list[Sequence[Any]]()

    async def transact(
        compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = (), **options: Any
    ) -> Any:
        if late or not any(key.encode() in one.SerializeToString() for one in success):
            return await real(compare, success, failure, **options)
        late.append((compare, success, failure))
        raise EtcdError("no answer", certain=False)

    with mock.patch.object(client, "transact", transact):
        yield late

"""A private Open vSwitch with a dummy datapath, which needs no root, and a controller of it."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from controller_harness import Controller, eventually

Start = Callable[..., Controller]
BRIDGE = "/v1/switches/br0"
LIMIT_S = 120
"""Time limit of a process that hangs; far above the time that a busy machine needs."""

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


class Bridge:
    """A database and a switch process of our own, in a directory of our own.

    Args:
        directory: the directory of its files and sockets.
        programs: where Open vSwitch's programs are; those on the path without.
        schema: the database's.

    """

    def __init__(
        self, directory: Path, programs: Path | None = None, schema: Path = SCHEMA
    ) -> None:
        self.directory = directory
        self.database = f"unix:{directory}/db.sock"
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        self._env = {**os.environ, **dict.fromkeys(names, str(directory))}
        if programs is not None:
            self._env["PATH"] = f"{programs}:{os.environ['PATH']}"
        self._schema = schema
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start database and switch, with a bridge of two ports."""
        directory = self.directory
        self.run("ovsdb-tool", "create", f"{directory}/conf.db", str(self._schema))
        self._start("ovsdb-server", f"{directory}/conf.db", f"--remote=p{self.database}")
        eventually((directory / "db.sock").exists, "the database listens")
        self.vsctl("--no-wait", "init")
        self.start_switch()
        ports = ["--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy"]
        ports += ["ofport_request=1", "--", "add-port", "br0", "p2", "--", "set", "interface"]
        ports += ["p2", "type=dummy", "ofport_request=2"]
        bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]
        self.vsctl(*bridge, "fail_mode=standalone", *ports)

    def run(self, *command: str) -> str:
        """Run a tool on it and return its output."""
        done = subprocess.run(
            self._found(command),
            env=self._env,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _found(self, command: Sequence[str]) -> list[str]:
        """Return a command with its program looked up where ours are, not on the caller's path."""
        return [shutil.which(command[0], path=self._env["PATH"]) or command[0], *command[1:]]

    def _start(self, *command: str) -> None:
        log = f"--log-file={self.directory}/{command[0]}.log"
        self._processes[command[0]] = subprocess.Popen(
            [*self._found(command), log], env=self._env, stderr=subprocess.DEVNULL
        )

    def start_switch(self) -> None:
        """Start the switch process."""
        self._start("ovs-vswitchd", self.database, "--enable-dummy=override", "--disable-system")

    def kill(self, *names: str) -> None:
        """Kill processes by name; all when none is named."""
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.kill()
            process.wait()

    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl."""
        return self.run("ovs-vsctl", f"--db={self.database}", f"--timeout={LIMIT_S}", *arguments)

    def ofctl(self, command: str, *arguments: str) -> str:
        """Run ovs-ofctl."""
        target = f"unix:{self.directory}/br0.mgmt"
        options = [one for one in arguments if one.startswith("--")]
        rest = [one for one in arguments if one not in options]
        return self.run("ovs-ofctl", "-O", "OpenFlow13", *options, command, target, *rest)

    def appctl(self, *arguments: str) -> str:
        """Run ovs-appctl on the switch process."""
        pid = self._processes["ovs-vswitchd"].pid
        return self.run("ovs-appctl", "-t", f"{self.directory}/ovs-vswitchd.{pid}.ctl", *arguments)

    def flows(self) -> list[str]:
        """Return match and actions of all flows with a cookie."""
        lines = self.ofctl("dump-flows", "--no-stats").splitlines()
        return sorted(line.partition("priority=")[2] for line in lines if "cookie=0x70" in line)

    def queues(self, port: str) -> dict[str, dict[str, str]]:
        """Return the `other_config` of a port's queues, by number."""
        qos = self.vsctl("get", "port", port, "qos").strip()
        if qos == "[]":
            return {}
        row = json.loads(self.vsctl("--format=json", "--columns=queues", "list", "qos", qos))
        return {
            str(number): dict(
                json.loads(
                    self.vsctl("--format=json", "--columns=other_config", "list", "queue", uuid[1])
                )["data"][0][0][1]
            )
            for number, uuid in row["data"][0][0][1]
        }


@contextlib.contextmanager
def running(
    directory: Path, programs: Path | None = None, schema: Path = SCHEMA
) -> Iterator[Bridge]:
    """Run a bridge; its arguments are those of `Bridge`."""
    made = Bridge(directory, programs, schema)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def controlled(bridge: Bridge, start_controller: Start, qos_type: str) -> Controller:
    """Start a controller of the bridge that soon repairs changes by others."""
    which = f"br0={bridge.database},bridge=br0,qos-type={qos_type}"
    made = start_controller("--switch", which, "--reconcile-interval", "0.3")
    made.wait_connected("br0")
    return made


def put(controller: Controller, path: str, body: Any) -> dict[str, Any]:
    """Make a resource; the bridge must have accepted it."""
    answer = controller.put(BRIDGE + path, body)
    assert answer.status_code in (200, 201), answer.text
    said = dict(answer.json())
    assert said.get("state", "applied") == "applied"
    return said

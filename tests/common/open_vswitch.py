"""Open vSwitch with its userspace datapath, in the network namespace of the caller."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

READY_S = 30.0
ANSWER_S = 300
"""Under valgrind, ovs-vswitchd takes long for a change."""


def quiet(*command: str) -> str:
    """Run a command that must not fail; return its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:200]}: {done.stderr.strip()}")
    return done.stdout


class OpenVSwitch:
    """A running Open vSwitch whose bridge `br0` has some interfaces.

    Args:
        installed: the folder that `ovs-patches/build` prints.
        directory: for its database, sockets and pid files.
        ports: the interfaces.
        under: the beginning of ovs-vswitchd's command line: a program that runs it.
        dummy: whether datapath and interfaces are Open vSwitch's dummies.
        trains: whether it takes frames of several segments (`userspace-tso-enable`).

    """

    def __init__(
        self,
        installed: Path,
        directory: Path,
        ports: Sequence[str],
        *,
        under: Sequence[str] = (),
        dummy: bool = False,
        trains: bool = False,
    ) -> None:
        self.binaries = installed / "bin"
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        os.environ.update(OVS_RUNDIR=str(directory), OVS_LOGDIR=str(directory))
        database = directory / "conf.db"
        schema = installed / "share" / "vswitch.ovsschema"
        quiet(str(self.binaries / "ovsdb-tool"), "create", str(database), str(schema))
        try:
            self._start("ovsdb-server", str(database), f"--remote=punix:{directory}/db.sock")
            self._wait_for(directory / "db.sock")
            self.vsctl("--no-wait", "init")
            if trains:
                option = "other_config:userspace-tso-enable=true"
                self.vsctl("--no-wait", "set", "Open_vSwitch", ".", option)
            dummies = ["--enable-dummy=override", "--disable-system"] if dummy else []
            self._start("ovs-vswitchd", f"unix:{directory}/db.sock", *dummies, under=under)
            bridge = ["add-br", "br0", "--", "set", "bridge", "br0"]
            bridge.append(f"datapath_type={'dummy' if dummy else 'netdev'}")
            for port in ports:
                bridge += ["--", "add-port", "br0", port]
                if dummy:
                    bridge += ["--", "set", "interface", port, "type=dummy"]
            self.vsctl(*bridge)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process of ovs-vswitchd."""
        return self.processes[-1].pid

    def _start(self, program: str, *words: str, under: Sequence[str] = ()) -> None:
        command = [*under, str(self.binaries / program), *words]
        command.append(f"--unixctl={self.directory}/{program}")
        self.processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def _wait_for(self, path: Path) -> None:
        limit = time.monotonic() + READY_S
        while not path.exists():
            if time.monotonic() > limit:
                raise SystemExit(f"no {path.name} after {READY_S:.0f} s")
            time.sleep(0.02)

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl."""
        database = f"--db=unix:{self.directory}/db.sock"
        vsctl = str(self.binaries / "ovs-vsctl")
        return quiet(vsctl, database, f"--timeout={ANSWER_S}", *words)

    def appctl(self, *words: str) -> str:
        """Run ovs-appctl on ovs-vswitchd."""
        return quiet(
            str(self.binaries / "ovs-appctl"), "-t", f"{self.directory}/ovs-vswitchd", *words
        )

    def flows(self, flows: Sequence[str]) -> None:
        """Replace all flows."""
        ofctl, bridge = str(self.binaries / "ovs-ofctl"), f"unix:{self.directory}/br0.mgmt"
        listed = self.directory / "flows"
        listed.write_text("\n".join(flows) + "\n")
        quiet(ofctl, "--names", "replace-flows", bridge, str(listed))

    def stop(self) -> None:
        """End the processes, by their ids."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        for device in ("br0", "ovs-netdev"):
            subprocess.run(["ip", "link", "del", device], capture_output=True)

    @classmethod
    @contextmanager
    def running(
        cls,
        installed: Path,
        ports: Sequence[str],
        *,
        under: Sequence[str] = (),
        dummy: bool = False,
        trains: bool = False,
    ) -> Iterator[Self]:
        """Run one for a while, in a folder of its own."""
        with tempfile.TemporaryDirectory() as directory:
            ovs = cls(installed, Path(directory), ports, under=under, dummy=dummy, trains=trains)
            try:
                yield ovs
            finally:
                ovs.stop()

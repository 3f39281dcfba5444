"""Real processes for the controller's tests: switches, controllers, wires between them."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ROOT / "p4src" / "compiled"
TARGET = os.environ.get("TARGET", "pacing_switch")
DEADLINE_S = 90.0
"""Longest wait for an expected event; only a failure reaches it, however slow the machine."""

HTTP_TIMEOUT_S = 60.0
STOP_S = 60.0
CPU_PORT = 510


@dataclass
class Network:
    """The place where integration tests run.

    Attributes:
        private: whether this is a namespace of our own, with ports to send packets through.
        ports: interface on the test's side by switch port number.

    """

    private: bool
    ports: dict[int, str] = field(default_factory=dict)

    def send(self, port: int, frame: bytes) -> None:
        """Put a frame on the wire to a port of the switch."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((self.ports[port], 0))
            sender.send(frame)

    def listen(self, port: int) -> socket.socket:
        """Return a socket that receives the frames that the switch sends out of a port."""
        receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        receiver.bind((self.ports[port], 0))
        receiver.settimeout(DEADLINE_S)
        return receiver


def free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(check: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Return the first true result of `check`; fail when there is none in time."""
    end = time.monotonic() + deadline_s
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s} s: {what}")
        time.sleep(0.02)


async def until(check: Callable[[], object]) -> None:
    """Wait until a check is true, while the tasks of the event loop go on."""
    end_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)


class Process:
    """A child process whose standard error is kept and can be waited on."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def wait_for_line(self, text: str) -> str:
        """Return the first line of output with `text` in it."""

        def find() -> str | None:
            found = next((line for line in self.lines if text in line), None)
            if found is None and not self.running:
                self._reader.join(1)
                pytest.fail(f"process ended before {text!r}:\n" + "\n".join(self.lines))
            return found

        return str(eventually(find, f"{text!r} in the output of {self._process.args!r}"))

    def kill(self) -> None:
        """Kill at once (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait for it to end by itself and return the exit status."""
        status = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def stop(self) -> int:
        """Ask to end (SIGTERM) and return the exit status."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"did not end on SIGTERM:\n{chr(10).join(self.lines[-20:])}")


class Switch:
    """A switch process that can be stopped and started at the same address."""

    def __init__(
        self, network: Network, ports: dict[int, str] | None = None, *options: str
    ) -> None:
        self._options = options
        self.address = f"127.0.0.1:{free_port()}"
        self._ports = {number: f"sw{number}" for number in network.ports}
        self._settings = ports or {}
        self._process: Process | None = None

    def start(self) -> None:
        """Start and wait until it serves."""
        interfaces: list[str] = []
        for number, name in self._ports.items():
            setting = self._settings.get(number, "")
            interfaces += ["-i", f"{number}@{name}{',' + setting if setting else ''}"]
        if TARGET == "bmv2":
            command = [_simple_switch(), "--no-p4", "--device-id", "0", "-L", "warn"]
            command += [*interfaces, "--", "--grpc-server-addr", self.address]
            command += ["--cpu-port", str(CPU_PORT), *self._options]
            self._process = Process(command)
            host, _, port = self.address.partition(":")
            eventually(lambda: _connects(host, int(port)), "simple_switch_grpc serves")
            return
        command = [str(pacing_switch()), "--no-p4", "--device-id", "0"]
        command += ["--grpc-server-addr", self.address, "--cpu-port", str(CPU_PORT), *interfaces]
        command += self._options
        self._process = Process(command)
        self._process.wait_for_line("pacing_switch: ready")

    @property
    def pid(self) -> int:
        """Process id of the switch, which is running."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None and self._process.running:
            self._process.kill()

    def stop(self) -> None:
        """Ask it to end, and wait until it has written its output."""
        if self._process is not None and self._process.running:
            self._process.stop()

    @property
    def options(self) -> str:
        """The options of the switch for the controller, beside its address."""
        numbers = "+".join(str(number) for number in self._ports or {1: "", 2: ""})
        return f",target=bmv2,ports={numbers}" if TARGET == "bmv2" else ""


def _connects(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _simple_switch() -> str:
    found = shutil.which("simple_switch_grpc")
    if found is None:
        pytest.fail("TARGET=bmv2, but there is no simple_switch_grpc on PATH")
    return found


def pacing_switch() -> Path:
    named = os.environ.get("PACING_SWITCH")
    if named is not None:
        candidates = [Path(named)]
    else:
        target = os.environ.get("CARGO_TARGET_DIR")
        base = Path(target) if target else ROOT / "switch" / "target"
        candidates = [base / profile / "pacing_switch" for profile in ("release", "debug")]
    for path in candidates:
        if os.access(path, os.X_OK) and path.is_file():
            return path
    pytest.fail(
        "no pacing_switch binary: build it (cargo build --release in switch/) or name it in "
        f"PACING_SWITCH; looked for {', '.join(map(str, candidates))}"
    )


class Controller:
    """A controller process and a client of it."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "pacer_controller", "--listen", "127.0.0.1:0"]
        self.process = Process([*command, "--compiled-dir", str(COMPILED), *options])
        line = self.process.wait_for_line("pacer-controller: ready")
        self.url = line.rpartition(" ")[2]
        self.http = httpx.Client(base_url=self.url, timeout=HTTP_TIMEOUT_S, trust_env=False)

    def get(self, path: str) -> Any:
        """GET, which must succeed, and return the body."""
        response = self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def put(self, path: str, body: Any) -> httpx.Response:
        """PUT a JSON body."""
        return self.http.put(path, json=body)

    def wait_connected(self, switch: str = "s1") -> None:
        """Wait until a switch holds the desired state."""
        eventually(
            lambda: self.get(f"/v1/switches/{switch}")["state"] == "connected",
            f"switch {switch} connected",
        )

    def close(self) -> None:
        """End the client and the process."""
        self.http.close()
        if self.process.running:
            assert self.process.stop() == 0, "\n".join(self.process.lines[-20:])

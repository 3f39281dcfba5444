"""A running stock `simple_switch` on capture files, commanded by its `simple_switch_CLI`.

The switch has no way to say that it is done with its packets. It is idle when all its threads
sleep and none has been woken for a while, which the kernel tells (proc(5)).
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

SWITCH = "simple_switch"
CLI = "simple_switch_CLI"
LOG = "simple_switch.log"
"""The file with what the switch prints, in its folder."""
_PROMPT = b"RuntimeCmd: "
_READY_S = 60.0
_IDLE_S = 120.0
_LOOK_EVERY_S = 0.004
_QUIET_LOOKS = 5
# pcap with microsecond stamps, as the switch's --use-files reads and writes it.
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
RECORD = struct.Struct("<IIII")


class SwitchError(Exception):
    """The switch, or its command line, did not start, ended, or refused a command."""


class EndedError(SwitchError):
    """The command line has ended; `said` is its output after its last prompt."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{CLI} ended: {said[-300:]}")
        self.said = said


def available() -> bool:
    """Whether both programs are on PATH."""
    return shutil.which(SWITCH) is not None and shutil.which(CLI) is not None


def read_capture(path: Path) -> list[bytes]:
    """The frames of a capture file that the switch writes; those that are whole already."""
    data = path.read_bytes() if path.exists() else b""
    frames, at = [], len(FILE_HEADER)
    while at + RECORD.size <= len(data):
        size = RECORD.unpack_from(data, at)[2]
        at += RECORD.size
        if at + size > len(data):
            break
        frames.append(data[at : at + size])
        at += size
    return frames


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class CommandLine:
    """A process of the command line, connected to the Thrift server at a port."""

    def __init__(self, port: int, program: str = CLI, folder: Path | None = None) -> None:
        """Start it in a folder; `program` is its name on PATH, or its path."""
        self._process = subprocess.Popen(
            [program, "--thrift-port", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=folder,
            # Otherwise what it says of an error comes before what it said earlier.
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            self._replies(1)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _replies(self, count: int) -> list[str]:
        """The output up to each of the next prompts."""
        assert self._process.stdout is not None
        said = bytearray()
        while said.count(_PROMPT) < count:
            part = self._process.stdout.read(65536)
            if not part:
                raise EndedError(said.rpartition(_PROMPT)[2].decode(errors="replace").strip())
            said += part
        return [reply.decode(errors="replace").strip() for reply in said.split(_PROMPT)[:count]]

    def run(self, lines: list[str]) -> list[str]:
        """Run commands; return the replies when all are done.

        Raises EndedError.
        """
        assert self._process.stdin is not None
        replies = []
        # In portions, so that neither side waits for a full pipe.
        for at in range(0, len(lines), 200):
            portion = lines[at : at + 200]
            self._process.stdin.write("".join(line + "\n" for line in portion).encode())
            replies += self._replies(len(portion))
        return replies

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.terminate()
        self._process.wait()


def wait_for_server(port: int, check_alive: Callable[[], None]) -> None:
    """Return when a server listens at a port of loopback.

    Raises SwitchError, also that of `check_alive`, which is called while there is none.
    """
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        check_alive()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_LOOK_EVERY_S)
    raise SwitchError(f"no server at port {port} after {_READY_S} s")


class SimpleSwitch:
    """The switch in a folder: port N reads `pN_in.pcap` there and writes `pN_out.pcap`.

    The input files, or named pipes, must be there before. A pipe in `pipes` gets its file header
    when the switch opens it; the switch reads no packet from any port before it knows the first
    one, or the end, of every port.
    """

    def __init__(
        self,
        compiled: Path,
        folder: Path,
        ports: Iterable[int],
        pipes: Iterable[int],
        options: Iterable[str] = (),
    ) -> None:
        self.inputs: dict[int, IO[bytes]] = {}
        ports = sorted(ports)
        thrift = _free_port()
        self._log_path = folder / LOG
        self._log = self._log_path.open("wb")
        self._cli: CommandLine | None = None
        self._switch = subprocess.Popen(
            [
                SWITCH,
                *("--use-files", "0"),
                *("--thrift-port", str(thrift)),
                # Its notification socket is named after the device.
                *("--device-id", str(thrift)),
                *(word for port in ports for word in ("-i", f"{port}@p{port}")),
                *options,
                str(compiled.resolve()),
            ],
            cwd=folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            waiting = set(pipes)
            # In the switch's own order: each end of a pipe waits for the other.
            for port in ports:
                if port in waiting:
                    self.inputs[port] = self._open_pipe(folder / f"p{port}_in.pcap")
                    self.inputs[port].write(FILE_HEADER)
            wait_for_server(thrift, self._check_alive)
            self._cli = CommandLine(thrift)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open_pipe(self, path: Path) -> IO[bytes]:
        """Opens the writing end as soon as the switch has the reading end."""
        end = time.monotonic() + _READY_S
        while time.monotonic() < end:
            self._check_alive()
            try:
                number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                time.sleep(_LOOK_EVERY_S)
                continue
            os.set_blocking(number, True)
            return os.fdopen(number, "wb", buffering=0)
        raise SwitchError(f"{SWITCH} did not open {path.name} within {_READY_S} s")

    def _check_alive(self) -> None:
        status = self._switch.poll()
        if status is not None:
            said = self._log_path.read_text(errors="replace").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            raise SwitchError(f"{SWITCH} ended with status {status}{last}")

    def command(self, lines: list[str]) -> list[str]:
        """Runs commands of the command line; returns its replies when all are done."""
        assert self._cli is not None
        return self._cli.run(lines)

    def send(self, port: int, frame: bytes, at_us: int) -> None:
        """Writes a packet into a port's pipe."""
        seconds, microseconds = divmod(at_us, 1_000_000)
        size = len(frame)
        try:
            self.inputs[port].write(RECORD.pack(seconds, microseconds, size, size) + frame)
        except BrokenPipeError:
            self._check_alive()
            raise

    def end_input(self) -> None:
        """Ends all pipes."""
        while self.inputs:
            self.inputs.popitem()[1].close()

    def _switches(self) -> list[tuple[str, int]] | None:
        """Every thread and how often it has slept; None while one of them runs."""
        threads = []
        try:
            tasks = sorted(Path(f"/proc/{self._switch.pid}/task").iterdir())
            texts = [(task / "status").read_text() for task in tasks]
        except (FileNotFoundError, ProcessLookupError):
            # A thread, or the switch, has ended in between.
            return None
        for task, status in zip(tasks, texts, strict=True):
            values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if not values["State"].strip().startswith("S"):
                return None
            slept = int(values["voluntary_ctxt_switches"])
            threads.append((task.name, slept))
        return threads

    def wait_idle(self) -> None:
        """Returns when the switch has nothing left to do."""
        end = time.monotonic() + _IDLE_S
        before, quiet = None, 0
        while quiet < _QUIET_LOOKS:
            self._check_alive()
            if time.monotonic() > end:
                raise SwitchError(f"{SWITCH} is still busy after {_IDLE_S} s")
            now = self._switches()
            quiet = quiet + 1 if now is not None and now == before else 0
            before = now
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Ends the command line and the switch."""
        for pipe in self.inputs.values():
            pipe.close()
        if self._cli is not None:
            self._cli.close()
        self._switch.terminate()
        try:
            self._switch.wait(timeout=_READY_S)
        except subprocess.TimeoutExpired:
            self._switch.kill()
            self._switch.wait()
        self._log.close()

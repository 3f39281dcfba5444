"""A switch on network interfaces, for the time of a `with` block."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pacing_switch.processes import LoggedProcess
from pacing_switch.program import program_path

READY = "pacing_switch: ready"


def port_options(ports: Mapping[int, str]) -> list[str]:
    """Return the words of the command line that give a switch its ports."""
    return [word for number, port in ports.items() for word in ("-i", f"{number}@{port}")]


class Switch:
    """A `pacing_switch` process on network interfaces; the `with` block begins when it is ready.

    The process ends with the block, by SIGTERM to its process id. It needs root, or the
    capabilities CAP_NET_RAW and CAP_NET_ADMIN, if it has ports.

        with Switch("router.json", ports={1: "veth0", 2: "veth2,rate=100mbit,fifo=64KB"}) as switch:
            ...
    """

    def __init__(
        self,
        program: str | os.PathLike[str] | None = None,
        ports: Mapping[int, str] | None = None,
        *,
        options: Sequence[str] = (),
        grpc_address: str = "127.0.0.1:0",
        log: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe a switch; it starts with the `with` block.

        Args:
            program: p4c-bm2-ss's JSON. Without one the switch waits for P4Runtime to install one.
            ports: the interface of each port number, with the port's settings after it, as on the
                command line: `veth0,rate=100mbit`.
            options: further words of the command line (`pacing_switch --help`), such as
                `["--cpu-port", "510"]` or `["--runtime-json", "entries.json"]`.
            grpc_address: where it serves P4Runtime, HOST:PORT. Port 0 is any free port.
            log: the file for its output; by default a temporary one, which goes with the block.
            folder: the folder that it runs in; by default the present one.
            binary: the program; by default what `program_path` finds.

        """
        self._program = program
        self._ports = dict(ports or {})
        self._options = list(options)
        self._listen = grpc_address
        self._folder = Path(folder) if folder is not None else None
        self._binary = binary
        self._log = Path(log) if log is not None else None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._running: LoggedProcess | None = None
        self._address = ""

    @property
    def grpc_address(self) -> str:
        """Address of the P4Runtime server, HOST:PORT, with the port that it has."""
        self._started()
        return self._address

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process. After the block, its `returncode` is 0 unless the block ended it."""
        return self._started().process

    @property
    def log(self) -> Path:
        """The file with all that the switch has printed."""
        return self._started().log

    def wait_for_line(self, text: str) -> str:
        """Return the first line of the log with a text, when it has come.

        Raises:
            ProcessError: the switch ended without it, or it did not come within 60 s.

        """
        return self._started().wait_for_line(text)

    def stop(self) -> int:
        """End the switch before the block does; return its status."""
        return self._started().stop()

    def command(self) -> list[str]:
        """Return the command line.

        Raises:
            NoSwitchError: the program pacing_switch is not installed.

        """
        command = [str(self._binary if self._binary is not None else program_path())]
        command += [*port_options(self._ports), "--grpc-server-addr", self._listen, *self._options]
        return [*command, "--no-p4" if self._program is None else os.fspath(self._program)]

    def __enter__(self) -> Switch:
        """Start the switch; return when it forwards packets and serves P4Runtime.

        Raises:
            NoSwitchError: the program pacing_switch is not installed.
            OSError: it cannot be run, or the log not be written.
            ProcessError: it refuses its arguments; the text has its words.

        """
        command = self.command()
        self._scratch = tempfile.TemporaryDirectory(prefix="pacing-switch-")
        log = self._log or Path(self._scratch.name) / "switch.log"
        try:
            self._running = LoggedProcess(command, log, READY, folder=self._folder)
            self._address = self._running.wait_ready().rpartition(" ")[2]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the switch.

        Raises:
            ProcessError: it ended with another status than 0, unless the block raised an error.

        """
        status = self.stop()
        try:
            if status != 0 and kind is None:
                raise self._started().error(f"pacing_switch ended with status {status}")
        finally:
            self._end()

    def _started(self) -> LoggedProcess:
        if self._running is None:
            raise RuntimeError("the switch starts with its block: `with Switch(...) as switch:`")
        return self._running

    def _end(self) -> None:
        """End the process, if it runs, and remove the temporary folder."""
        if self._running is not None:
            self._running.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

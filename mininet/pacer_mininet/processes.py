"""Starts the long-running processes of nodes, logs their output, and stops them by process id."""

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from mininet.log import error, warn

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
LOG_LINES_IN_ERRORS = 15


class NodeError(RuntimeError):
    """A node's process did not start, or ended by itself; the text ends with the end of its log."""


def free_tcp_port() -> int:
    """Return a free TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class StateDirectory:
    """A directory under /tmp for the logs and state of this process's nodes.

    It is removed when this process ends, unless a node has failed.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._kept = False

    @property
    def path(self) -> Path:
        """The directory; it is made on first use."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="pacer-"))
            atexit.register(self._remove, self._path)
        return self._path

    def keep(self) -> None:
        """Leave the directory behind: its logs explain a failure."""
        self._kept = True

    def _remove(self, path: Path) -> None:
        if self._kept:
            error(f"*** the logs are kept in {path}\n")
        else:
            shutil.rmtree(path, ignore_errors=True)


STATE = StateDirectory()


class LoggedProcess:
    """A child process whose output goes to a log file."""

    def __init__(self, command: Sequence[str], log: Path, ready: str, name: str = "") -> None:
        """Start `command`.

        It prints `ready` once it can be used. `name` is its name in errors, by default the text
        before the colon of `ready`.
        """
        self.command = list(command)
        self.log = log
        self._ready = ready
        # The command's first word may be `nice`.
        self._name = name or ready.partition(":")[0]
        self._seen_ready = threading.Event()
        self._ended = threading.Event()
        # In its own session, so that Ctrl-C in the Mininet command line does not reach it.
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        atexit.register(self.stop)
        assert self.process.stdout is not None
        self._copier = threading.Thread(
            target=self._copy, args=(self.process.stdout,), name=f"log of {log.name}", daemon=True
        )
        self._copier.start()

    def _copy(self, source: IO[bytes]) -> None:
        with self.log.open("wb") as log:
            for line in source:
                log.write(line)
                log.flush()
                if self._ready.encode() in line:
                    self._seen_ready.set()
        self._ended.set()
        # Wakes `wait_ready`, which then finds `_ended` set.
        self._seen_ready.set()

    def wait_ready(self) -> None:
        """Return when the ready line has come; NodeError if the process ends or takes too long."""
        in_time = self._seen_ready.wait(START_TIMEOUT_S)
        if self._ended.is_set():
            status = self.process.wait()
            raise NodeError(f"{self._name} ended with status {status}{self.log_end()}")
        if not in_time:
            self.stop()
            raise NodeError(
                f"{self._name} was not ready after {START_TIMEOUT_S:.0f} s{self.log_end()}"
            )

    def log_end(self) -> str:
        """Return the end of the log, for an error message; the log is kept."""
        STATE.keep()
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        if not lines:
            return f" and printed nothing (command: {' '.join(self.command)})"
        return f"; the end of {self.log}:\n" + "\n".join(lines[-LOG_LINES_IN_ERRORS:])

    def stop(self) -> int:
        """End the process by its id, with SIGTERM or else SIGKILL; return its status."""
        atexit.unregister(self.stop)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            warn(f"{self.command[0]} ignored SIGTERM\n")
            self.process.kill()
            status = self.process.wait()
        self._copier.join(STOP_TIMEOUT_S)
        return status

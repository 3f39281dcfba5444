"""Starts the long-running processes of nodes, logs their output, and stops them by process id."""

import atexit
import shutil
import socket
import tempfile
from pathlib import Path

from mininet.log import error, warn
from pacing_switch.processes import LoggedProcess, ProcessError


class NodeError(ProcessError):
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


class NodeProcess(LoggedProcess):
    """A process of a node; a failure keeps its log, and mn tells of it."""

    def error(self, what: str) -> NodeError:
        """Return an error whose text ends with the end of the log; the log is kept."""
        STATE.keep()
        return NodeError(str(super().error(what)))

    def ignored_sigterm(self) -> None:
        """Tell of a process that SIGTERM did not end."""
        warn(f"{self.command[0]} ignored SIGTERM\n")

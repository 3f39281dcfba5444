"""Starts a long-running process, logs its output, and stops it by its process id."""

from __future__ import annotations

import atexit
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
LOG_LINES_IN_ERRORS = 15


class ProcessError(RuntimeError):
    """A process did not start, or ended by itself; the text ends with the end of its log."""


class LoggedProcess:
    """A child process whose output goes to a log file.

    Attributes:
        process: the child.
        log: the file with its output.

    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        ready: str,
        name: str = "",
        folder: Path | None = None,
    ) -> None:
        """Start a command.

        Args:
            command: the program and its arguments.
            log: the file that gets its output, both streams of it.
            ready: a text that it prints once it can be used.
            name: its name in errors; by default the text before the colon of `ready`, since the
                command's first word may be `nice`.
            folder: the folder that it runs in; by default the present one.

        Raises:
            OSError: the program cannot be run, or the log not be written.

        """
        self.command = list(command)
        self.log = log
        self._ready = ready
        self._name = name or ready.partition(":")[0]
        self._more = threading.Condition()
        self._ended = False
        output = log.open("wb")
        try:
            # In its own session, so that Ctrl-C in a terminal does not reach it.
            self.process = subprocess.Popen(
                self.command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            output.close()
            raise
        atexit.register(self.stop)
        assert self.process.stdout is not None
        self._copier = threading.Thread(
            target=self._copy,
            args=(self.process.stdout, output),
            name=f"log of {log.name}",
            daemon=True,
        )
        self._copier.start()

    def _copy(self, source: IO[bytes], log: IO[bytes]) -> None:
        with source, log:
            for line in source:
                log.write(line)
                log.flush()
                with self._more:
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def line_with(self, text: str) -> str:
        """Return the first whole line of the log so far with a text; empty if there is none."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        return next((line for line in lines if text in line and line.endswith("\n")), "").rstrip()

    def wait_for_line(self, text: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """Return the first line of the log with a text, when it has come.

        Raises:
            ProcessError: the process ended without it, or it did not come in time.

        """
        with self._more:
            self._more.wait_for(lambda: self._ended or self.line_with(text), timeout_s)
            ended = self._ended
        line = self.line_with(text)
        if line:
            return line
        if ended:
            raise self.error(f"{self._name} ended with status {self.process.wait()}")
        raise self.error(f"{self._name} has not printed {text!r} after {timeout_s:.0f} s")

    def wait_ready(self) -> str:
        """Return the line that says that the process is ready, when it has come.

        Raises:
            ProcessError: the process ended first, or was not ready after START_TIMEOUT_S.

        """
        return self.wait_for_line(self._ready)

    def error(self, what: str) -> ProcessError:
        """Return an error whose text ends with the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        if not lines:
            return ProcessError(f"{what} and printed nothing (command: {' '.join(self.command)})")
        end = "\n".join(lines[-LOG_LINES_IN_ERRORS:])
        return ProcessError(f"{what}; the end of its log:\n{end}")

    def stop(self) -> int:
        """End the process by its id, with SIGTERM or else SIGKILL; return its status."""
        atexit.unregister(self.stop)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.ignored_sigterm()
            self.process.kill()
            status = self.process.wait()
        self._copier.join(STOP_TIMEOUT_S)
        return status

    def ignored_sigterm(self) -> None:
        """Do something before the process is killed because SIGTERM did not end it."""

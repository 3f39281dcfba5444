"""Makes runs from the host: starts each in a lab or in its own namespaces, and reads its events.

A process makes one run, or several on one network, and prints one JSON object per line. In the lab
it runs in a virtual-time kernel on one processor, so processes side by side do not change each
other's results. In real time, runs are made one after the other.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import IO, Any

from pacer_mininet import paths

LINE_BYTES = 64 << 20
STDERR_LINES = 20
STOP_TIMEOUT_S = 15.0
LAB_ENVIRONMENT = ("SETUPTOOLS_USE_DISTUTILS=stdlib",)
"""Imports in the lab take time. Mininet imports a version class from distutils, for which
setuptools would load 120 of its own modules."""

Listener = Callable[[dict[str, Any]], None]


class RunError(RuntimeError):
    """A run that failed; the text says which and why."""


class LabUnavailableError(RuntimeError):
    """The lab cannot run here; the text says why."""


def check_lab() -> None:
    """Check that the lab can run here; builds its kernel if needed.

    Raises:
        LabUnavailableError: it cannot; the text says why.

    """
    if not paths.LAB_RUN.exists() or not paths.LAB_AVAILABLE.exists():
        raise LabUnavailableError("this checkout has no lab")
    asked = subprocess.run(
        [str(paths.LAB_AVAILABLE)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if asked.returncode != 0:
        lines = asked.stdout.strip().splitlines()
        raise LabUnavailableError(lines[-1] if lines else "lab/available gives no reason")
    # This takes minutes the first time; lab/build says so on standard error.
    built = subprocess.run([str(paths.LAB_BUILD)], stdin=subprocess.DEVNULL)
    if built.returncode != 0:
        raise LabUnavailableError("the lab's kernel could not be built")


def need_root() -> None:
    """Raise RunError unless this process may make namespaces on the host's kernel."""
    if os.geteuid() != 0:
        raise RunError(
            "real time needs root, to make network namespaces on this machine's kernel: "
            "use sudo (for example: sudo make demo REALTIME=1)"
        )
    paths.need_programs("unshare", "mount")


def in_lab_command(command: Sequence[str], *options: str) -> list[str]:
    """Return a command that runs another one in the lab, with options of lab/run.

    It ends with the thread that starts it, even if that is killed.
    """
    passed = [
        word
        for variable in paths.OVERRIDES
        if variable in os.environ
        for word in ("--env", variable)
    ]
    settings = [word for setting in LAB_ENVIRONMENT for word in ("--env", setting)]
    ending = ("setpriv", "--pdeathsig", "TERM")
    return [*ending, str(paths.LAB_RUN), *passed, *settings, *options, "--", *command]


def isolated(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one in its own network, PID and mount namespaces.

    When the command ends, the kernel ends all other processes of the namespaces. Temporary files
    are in a tmpfs of the namespace, so nothing is left behind. A command that ends when its
    standard input closes (`command.end_with_stdin`) ends with the process that started it.
    """
    # /run is made private and not /tmp, because the checkout itself may be in /tmp.
    script = 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/tmp && exec "$@"'
    return [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--"),
        *("env", f"PACER_PARENT_NETNS={os.stat('/proc/self/ns/net').st_ino}", "TMPDIR=/run/tmp"),
        *("sh", "-ec", script, "sh", *command),
    ]


class Running:
    """A process that makes runs.

    Args:
        names: the names of the runs, in the order in which they are made.
        command: the process's.
        listener: gets every event, in a thread of its own. That of a result has the time since the
            last one, `wall_s`.

    Attributes: `results`, those of the runs that have been made, by name.

    """

    def __init__(self, names: Sequence[str], command: Sequence[str], listener: Listener) -> None:
        self.names = tuple(names)
        self.results: dict[str, dict[str, Any]] = {}
        self.error: str | None = None
        self._listener = listener
        self._last = time.monotonic()
        self._stderr: list[str] = []
        # In its own session: Ctrl-C reaches only this process, which then ends its runs.
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read_events, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_events(self, stream: IO[str]) -> None:
        while line := stream.readline(LINE_BYTES):
            try:
                event = json.loads(line)
                kind = event["event"]
            except (ValueError, TypeError, KeyError):
                self._stderr.append(line.rstrip())
                continue
            if kind == "error":
                self.error = str(event["message"])
                continue
            if kind == "result":
                now = time.monotonic()
                event["wall_s"] = now - self._last
                self._last = now
                self.results[event["run"]] = event["result"]
            self._listener(event)

    def _read_errors(self, stream: IO[str]) -> None:
        for line in stream:
            self._stderr.append(line.rstrip())
            del self._stderr[:-STDERR_LINES]

    def wait(self) -> dict[str, dict[str, Any]]:
        """Wait for the end; return the results by name.

        Raises:
            RunError: a run failed. `results` has those before it.

        """
        status = self.process.wait()
        for thread in self._threads:
            thread.join()
        missing = [name for name in self.names if name not in self.results]
        if not missing and status == 0:
            return self.results
        said = self.error or "\n".join(self._stderr) or "it printed nothing"
        failed = missing[0] if missing else self.names[-1]
        raise RunError(f"the run {failed!r} failed (status {status}): {said}")

    def stop(self) -> None:
        """End the process and its own if it is still in progress."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def stopping(running: list[Running]) -> Iterator[None]:
    """End all runs of a list when the block ends or raises."""
    try:
        yield
    finally:
        for run in running:
            run.stop()


def side_by_side(
    commands: Sequence[tuple[Sequence[str], list[str]]], at_once: int, listener: Listener
) -> Generator[Running, None, None]:
    """Start processes, given by their runs' names and command; yield each as it ends.

    At most `at_once` run at a time. Those that remain are ended when the caller stops iterating.
    """
    waiting = list(commands)
    running: list[Running] = []
    with stopping(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                names, words = waiting.pop(0)
                running.append(Running(names, words, listener))
            ended = _first_to_end(running)
            yield ended
            ended.stop()
            running.remove(ended)


def _first_to_end(running: Sequence[Running]) -> Running:
    """Wait until one of the processes ends."""
    while True:
        for run in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(0.1)
                return run

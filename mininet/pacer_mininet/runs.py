"""Makes runs from the host: starts each in a lab or in its own namespaces, and reads its events.

A run is a process that prints one JSON object per line. In the lab it runs in a virtual-time kernel
on one processor, so runs side by side do not change each other's results. In real time, runs are
made one after the other.
"""

import contextlib
import json
import os
import resource
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
    """One run in progress."""

    def __init__(self, name: str, command: Sequence[str], listener: Listener) -> None:
        self.name = name
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        self.wall_s = self.cpu_s = 0.0
        self._listener = listener
        self._began = time.monotonic()
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
            if kind == "result":
                self.result = {"run": event["run"], "series": event["series"]}
            elif kind == "error":
                self.error = str(event["message"])
            else:
                self._listener(event)

    def _read_errors(self, stream: IO[str]) -> None:
        for line in stream:
            self._stderr.append(line.rstrip())
            del self._stderr[:-STDERR_LINES]

    def wait(self) -> dict[str, Any]:
        """Wait for the end; return the result, or raise RunError with the reason."""
        status = self.process.wait()
        self.wall_s = time.monotonic() - self._began
        for thread in self._threads:
            thread.join()
        if self.result is not None and status == 0:
            return self.result
        said = self.error or "\n".join(self._stderr) or "it printed nothing"
        raise RunError(f"the run {self.name!r} failed (status {status}): {said}")

    def stop(self) -> None:
        """End the run and its processes if it is still in progress."""
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
    commands: Sequence[tuple[str, list[str]]], at_once: int, listener: Listener
) -> Generator[Running, None, None]:
    """Make runs, given by name and command, `at_once` at a time; yield each as it ends.

    The remaining runs are ended when the caller stops iterating.
    """
    waiting = list(commands)
    running: list[Running] = []
    with stopping(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                name, words = waiting.pop(0)
                running.append(Running(name, words, listener))
            ended = _first_to_end(running)
            yield ended
            ended.stop()
            running.remove(ended)


def _first_to_end(running: Sequence[Running]) -> Running:
    """Wait until one of the runs ends; store its processor time."""
    while True:
        for run in running:
            before_s = _ended_children_s()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(0.1)
                run.cpu_s = _ended_children_s() - before_s
                return run


def _ended_children_s() -> float:
    """Return the processor time of all children that have ended, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

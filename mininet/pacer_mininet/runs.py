"""Makes runs from the host: starts each in a lab or in namespaces of its own, and listens to it.

A run is a process of its own, which prints one JSON object per line. In the lab it
runs in a virtual-time kernel, on one processor, so that several run side by side without touching
each other's results; in real time it has the machine to itself, one run after the other.
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
"""Inside every import counts: Mininet takes a version class from distutils, for which setuptools
would load 120 modules of its own."""

Listener = Callable[[dict[str, Any]], None]


class RunError(RuntimeError):
    """A run that failed; the text says which and why."""


class LabUnavailableError(RuntimeError):
    """There is no lab here; the text says why."""


def check_lab() -> None:
    """Make sure that runs can be made in the lab here; builds its kernel if that must be.

    Raises:
        LabUnavailableError: they cannot; the text says why.

    """
    if not paths.LAB_RUN.exists() or not paths.LAB_AVAILABLE.exists():
        raise LabUnavailableError("this checkout has no lab")
    asked = subprocess.run(
        [str(paths.LAB_AVAILABLE)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if asked.returncode != 0:
        lines = asked.stdout.strip().splitlines()
        raise LabUnavailableError(lines[-1] if lines else "lab/available gives no reason")
    # Takes minutes the first time, and says so itself, on standard error.
    built = subprocess.run([str(paths.LAB_BUILD)], stdin=subprocess.DEVNULL)
    if built.returncode != 0:
        raise LabUnavailableError("the lab's kernel could not be built")


def need_root() -> None:
    """Raise RunError unless we may make namespaces on the host's kernel."""
    if os.geteuid() != 0:
        raise RunError(
            "real time needs root, to make network namespaces on this machine's kernel: "
            "use sudo (for example: sudo make demo REALTIME=1)"
        )
    paths.need_programs("unshare", "mount")


def in_lab_command(command: Sequence[str], *options: str) -> list[str]:
    """Return a command that runs another one in the lab; `options` are lab/run's."""
    passed = [
        word
        for variable in paths.OVERRIDES
        if variable in os.environ
        for word in ("--env", variable)
    ]
    settings = [word for setting in LAB_ENVIRONMENT for word in ("--env", setting)]
    return [str(paths.LAB_RUN), *passed, *settings, *options, "--", *command]


def isolated(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one in network, PID and mount namespaces of its own.

    When its first process ends, the kernel ends everything else in it; a tmpfs of its own takes
    what was written. Nothing is left behind. A command that ends when its standard input closes
    (`command.end_with_stdin`) ends with whoever started it.
    """
    # /run, not /tmp, is made private: the checkout itself may lie in /tmp.
    script = 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/tmp && exec "$@"'
    return [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--"),
        *("env", f"PACER_PARENT_NETNS={os.stat('/proc/self/ns/net').st_ino}", "TMPDIR=/run/tmp"),
        *("sh", "-ec", script, "sh", *command),
    ]


class Running:
    """One run that is being made."""

    def __init__(self, name: str, command: Sequence[str], listener: Listener) -> None:
        self.name = name
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        self.wall_s = self.cpu_s = 0.0
        self._listener = listener
        self._began = time.monotonic()
        self._stderr: list[str] = []
        # A session of its own: Ctrl-C reaches us alone, and we end our runs in order.
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
        """Wait for the end; return the result, or raise RunError with what went wrong."""
        status = self.process.wait()
        self.wall_s = time.monotonic() - self._began
        for thread in self._threads:
            thread.join()
        if self.result is not None and status == 0:
            return self.result
        said = self.error or "\n".join(self._stderr) or "it said nothing"
        raise RunError(f"the run {self.name!r} failed (status {status}): {said}")

    def stop(self) -> None:
        """End the run if it is still going on, and all that belongs to it."""
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
    """End all runs of a list when the block is left, however it is left."""
    try:
        yield
    finally:
        for run in running:
            run.stop()


def side_by_side(
    commands: Sequence[tuple[str, list[str]]], at_once: int, listener: Listener
) -> Generator[Running, None, None]:
    """Make runs, by name and command, `at_once` at a time; yield each as it ends.

    All that still go on are ended when the caller stops asking.
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
    """Wait until one of the runs ends; note what processor time it took."""
    while True:
        for run in running:
            before_s = _ended_children_s()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(0.1)
                run.cpu_s = _ended_children_s() - before_s
                return run


def _ended_children_s() -> float:
    """Return the processor time of all children that have ended, and of what they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

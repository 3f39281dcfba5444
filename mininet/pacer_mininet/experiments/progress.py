"""Shows the progress of runs: live bars on a terminal, plain lines elsewhere, and the time left."""

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pacer_mininet.experiments.estimate import whole_s
from pacer_mininet.experiments.schedule import Job

LINE_EVERY_S = 5
FEW_RUNS = 5
"""Plain lines also show phases and seconds if there are at most this many runs."""

PHASES = {
    "network": "building the network",
    "ping": "measuring the empty path",
    "iperf": "sending",
    "reading": "reading the measurements",
}


class RunsDisplay:
    """Shows the events of runs while its block runs."""

    def __init__(self, jobs: list[Job], clock: str, at_once: int) -> None:
        """Show `jobs`, of which `at_once` run side by side.

        `clock` is the unit of a run's seconds (`virtual s`, `s`).
        """
        self._jobs = {job.name: job for job in jobs}
        self._clock = clock
        self._at_once = at_once
        self._left = dict(self._jobs)
        self._estimated_s = self._left_estimated_s()
        self._began = time.monotonic()
        self._running: dict[str, TaskID] = {}
        self._bars: Progress | None = None
        if sys.stdout.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}"),
                TimeElapsedColumn(),
                console=Console(file=sys.stdout),
            )
            self._all = self._bars.add_task(
                "all runs", total=sum(job.cost_s for job in jobs) or 1.0, note=self._note()
            )

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show one event of a run."""
        name, kind = str(event["run"]), event["event"]
        if kind in ("done", "failed"):
            self._end(name, event)
        elif kind == "phase":
            self._show(name, None, PHASES.get(str(event["phase"]), str(event["phase"])))
        else:
            rate, lost = event["goodput_bps"] / 1e6, event["bottleneck_drops"]
            self._show(name, int(event["second"]), f"{rate:.1f} Mbit/s, {lost:,} lost")

    def _show(self, name: str, second: int | None, note: str) -> None:
        seconds = self._jobs[name].scenario.seconds
        if self._bars is not None:
            if name not in self._running:
                self._running[name] = self._bars.add_task(f"  {name}", total=seconds, note="")
            at = "" if second is None else f"{second} {self._clock}, "
            self._bars.update(self._running[name], completed=second, note=at + note)
        elif len(self._jobs) <= FEW_RUNS:
            if second is None:
                print(f"{name}: {note}", flush=True)
            elif second <= seconds and (second % LINE_EVERY_S == 0 or second == seconds):
                print(f"{name}: {second}/{seconds} {self._clock}, {note}", flush=True)

    def _end(self, name: str, event: dict[str, Any]) -> None:
        job = self._left.pop(name)
        how = event.get("message") or (
            f"{event['result']}; took {event['wall_s']:.0f} s "
            f"({event['cpu_s']:.0f} s of processor time)"
        )
        if self._bars is None:
            print(f"[{self._note()}] {name}: {how}", flush=True)
            return
        if name in self._running:
            self._bars.remove_task(self._running.pop(name))
        self._bars.advance(self._all, job.cost_s)
        self._bars.update(self._all, note=self._note())
        if event["event"] == "failed" or len(self._jobs) <= FEW_RUNS:
            style = "red" if event["event"] == "failed" else None
            self._bars.console.print(f"{name}: {how}", style=style, markup=False)

    def _left_estimated_s(self) -> float:
        return whole_s([job.cost_s for job in self._left.values()], self._at_once)

    def _note(self) -> str:
        """Return how many runs are done, and an estimate of how long the rest takes."""
        done = f"{len(self._jobs) - len(self._left)}/{len(self._jobs)}"
        if not self._left:
            return done
        left_s = self._left_estimated_s()
        passed_s = self._estimated_s - left_s
        if passed_s > 0:
            # The estimate is for another machine: scale it by this one's speed so far.
            left_s *= (time.monotonic() - self._began) / passed_s
        return f"{done}, about {left_s / 60:.1f} min left"

"""Shows the progress of the demo's runs: live bars on a terminal, plain lines elsewhere."""

import sys
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pacer_mininet.experiments.jobs import Job

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

    def __init__(self, jobs: list[Job], clock: str) -> None:
        """Show `jobs`; `clock` is the unit of a run's seconds (`virtual s`, `s`)."""
        self._jobs = {job.name: job for job in jobs}
        self._clock = clock
        self._left = dict(self._jobs)
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
                "all runs", total=sum(job.scenario.seconds for job in jobs) or 1, note=self._note()
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
        how = event.get("message") or (f"{event['result']}; took {event['wall_s']:.0f} s")
        if self._bars is None:
            print(f"[{self._note()}] {name}: {how}", flush=True)
            return
        if name in self._running:
            self._bars.remove_task(self._running.pop(name))
        self._bars.advance(self._all, job.scenario.seconds)
        self._bars.update(self._all, note=self._note())
        if event["event"] == "failed" or len(self._jobs) <= FEW_RUNS:
            style = "red" if event["event"] == "failed" else None
            self._bars.console.print(f"{name}: {how}", style=style, markup=False)

    def _note(self) -> str:
        """Return how many runs are done."""
        return f"{len(self._jobs) - len(self._left)}/{len(self._jobs)}"

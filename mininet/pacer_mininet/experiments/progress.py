"""Tells how the runs go: a bar over all of them by their estimated time, and what runs now."""

import time
from typing import Any

from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn

from pacer_mininet.experiments.schedule import Job
from pacer_mininet.progress import PHASES, OptionalBars


class RunsDisplay(OptionalBars):
    """Shows the events of runs; to be used as a context. Plain lines where there is no terminal."""

    def __init__(self, jobs: list[Job], clock: str) -> None:
        """Show `jobs`; `clock` is what a run's seconds are called (`virtual s`, `s`)."""
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._jobs = {job.name: job for job in jobs}
        self._clock = clock
        self._done = 0
        self._began = time.monotonic()
        self._running: dict[str, TaskID] = {}
        if self._bars is not None:
            cost_s = sum(job.cost_s for job in jobs) or 1.0
            self._all = self._bars.add_task("all runs", total=cost_s, note=f"0/{len(jobs)}")

    def __call__(self, event: dict[str, Any]) -> None:
        """Show one event of a run."""
        name, kind = str(event["run"]), event["event"]
        if kind in ("done", "failed"):
            self._end(name, event)
        elif self._bars is not None:
            self._go_on(name, event)

    def _go_on(self, name: str, event: dict[str, Any]) -> None:
        assert self._bars is not None
        if name not in self._running:
            seconds = self._jobs[name].scenario.seconds
            self._running[name] = self._bars.add_task(f"  {name}", total=seconds, note="")
        task = self._running[name]
        if event["event"] == "phase":
            note = PHASES.get(str(event["phase"]), str(event["phase"]))
            self._bars.update(task, note=note)
        else:
            rate = event["goodput_bps"] / 1e6
            note = f"{event['second']} {self._clock}, {rate:.1f} Mbit/s"
            note += f", {event['bottleneck_drops']:,} lost"
            self._bars.update(task, completed=event["second"], note=note)

    def _end(self, name: str, event: dict[str, Any]) -> None:
        self._done += 1
        how = event.get("message") or f"{event['wall_s']:.0f} s ({event['cpu_s']:.0f} s processor)"
        if self._bars is None:
            minutes = (time.monotonic() - self._began) / 60
            count = f"{self._done}/{len(self._jobs)}"
            print(f"[{count}, {minutes:.1f} min] {name}: {how}", flush=True)
            return
        if name in self._running:
            self._bars.remove_task(self._running.pop(name))
        self._bars.advance(self._all, self._jobs[name].cost_s)
        self._bars.update(self._all, note=f"{self._done}/{len(self._jobs)}")
        if event["event"] == "failed":
            self._bars.console.print(f"{name}: {how}", style="red", markup=False)

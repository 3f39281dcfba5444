"""Tells how the runs go: live bars on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

LINE_EVERY_S = 5
PHASES = {
    "network": "building the network",
    "ping": "measuring the empty path",
    "iperf": "sending",
    "reading": "reading the measurements",
}


class OptionalBars:
    """Bars where standard output is a terminal, None elsewhere; to be used as a context."""

    def __init__(self, *columns: ProgressColumn) -> None:
        """Prepare bars of these columns; they are shown from the beginning of the block on."""
        self._bars: Progress | None = None
        if sys.stdout.isatty():
            self._bars = Progress(*columns, console=Console(file=sys.stdout))

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()


class ProgressDisplay(OptionalBars):
    """Shows the events of all runs; to be used as a context."""

    def __init__(self, names: tuple[str, ...], seconds: int, clock: str) -> None:
        """Show `names`; `clock` is what the seconds are called (`virtual s`, `s`)."""
        super().__init__(
            TextColumn("{task.description:8}"),
            BarColumn(),
            TextColumn("{task.completed:>3.0f}/{task.total:.0f} " + clock),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._clock = clock
        self._seconds = seconds
        self._tasks: dict[str, TaskID] = {}
        if self._bars is not None:
            for name in names:
                self._tasks[name] = self._bars.add_task(
                    name, total=seconds, note="waiting", start=False
                )

    def __call__(self, event: dict[str, Any]) -> None:
        """Show one event of a run."""
        name, kind = str(event.get("run")), event.get("event")
        if kind == "phase":
            self._note(name, PHASES.get(str(event["phase"]), str(event["phase"])))
        elif kind == "progress":
            note = f"{event['goodput_bps'] / 1e6:6.1f} Mbit/s, {event['bottleneck_drops']:,} lost"
            self._second(name, int(event["second"]), note)
        elif kind == "done":
            self._done(name, float(event["wall_s"]))

    def _note(self, name: str, note: str) -> None:
        if self._bars is None:
            print(f"{name}: {note}", flush=True)
        else:
            self._bars.start_task(self._tasks[name])
            self._bars.update(self._tasks[name], note=note)

    def _second(self, name: str, second: int, note: str) -> None:
        shown = min(second, self._seconds)
        if self._bars is not None:
            self._bars.update(self._tasks[name], completed=shown, note=note)
        elif second == shown and (shown % LINE_EVERY_S == 0 or shown == self._seconds):
            print(f"{name}: {shown}/{self._seconds} {self._clock}, {note}", flush=True)

    def _done(self, name: str, wall_s: float) -> None:
        note = f"done in {wall_s:.0f} s"
        if self._bars is None:
            print(f"{name}: {note}", flush=True)
        else:
            task = self._tasks[name]
            self._bars.update(task, completed=self._seconds, note=note)
            self._bars.stop_task(task)

"""Shows the progress of the experiments' runs: one line for each, with its figures and its time.

A plugin of Snakemake, which finds this package by its name on PYTHONPATH, in an environment of its
own. So it imports Snakemake and the standard library alone. Snakemake's own log is in
`.snakemake/log` in the directory of the results.
"""

import csv
import json
import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

FAILED_STEPS = ("At least one job did not complete", "Exiting because a job execution failed")


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):  # type: ignore[misc] # it has no types here
    """The plugin's options on Snakemake's command line: `--logger-pacer-plan FILE`."""

    plan: Path = field(default=Path("plan.json"), metadata={"help": "the plan of the runs"})


class LogHandler(LogHandlerBase):  # type: ignore[misc] # it has no types here
    """Prints a line for each run that ends, and Snakemake's own errors."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        file = self.settings.plan.absolute()
        self._directory = file.parent
        self._runs: dict[str, dict[str, Any]] = json.loads(file.read_text())["runs"]
        self._keys: dict[int, str] = {}
        self._wanted = self._done = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event."""
        event = getattr(record, "event", None)
        if event == LogEvent.RUN_INFO:
            self._wanted = vars(record)["stats"].get("run", 0)
        elif event == LogEvent.JOB_INFO and vars(record)["rule_name"] == "run":
            self._keys[vars(record)["jobid"]] = vars(record)["wildcards"]["key"]
        elif event == LogEvent.JOB_FINISHED:
            self._finished(self._keys.get(vars(record)["job_id"]))
        elif event == LogEvent.JOB_ERROR:
            self._failed(self._keys.get(vars(record)["jobid"]))
        elif event == LogEvent.ERROR or (event is None and record.levelno >= logging.ERROR):
            self._error(record)

    def _finished(self, key: str | None) -> None:
        if key is None:
            return
        self._done += 1
        with (self._directory / "benchmarks" / f"{key}.tsv").open() as lines:
            took_s = float(next(csv.DictReader(lines, delimiter="\t"))["s"])
        self._show(key, f"{self._log(key)}; took {took_s:.0f} s")

    def _failed(self, key: str | None) -> None:
        if key is not None:
            self._show(key, f"failed: {self._log(key)}")

    @staticmethod
    def _error(record: logging.LogRecord) -> None:
        said = record.getMessage()
        # The output of a failed step says more.
        of_a_step = vars(record).get("exception") == "RuleException"
        if not of_a_step and not any(text in said for text in FAILED_STEPS):
            print(f"snakemake: {said}", file=sys.stderr, flush=True)

    def _log(self, key: str) -> str:
        """Return a run's output: its figures, or its error."""
        file = self._directory / "logs" / f"{key}.log"
        said = file.read_text().strip() if file.exists() else ""
        return said or "it ended without a message"

    def _show(self, key: str, what: str) -> None:
        name = self._runs[key]["name"]
        print(f"[{self._done}/{self._wanted}] {name}: {what}", flush=True)

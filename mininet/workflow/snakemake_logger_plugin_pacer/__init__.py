"""Shows the progress of the experiments' runs: one line for each, with its figures and its time.

A plugin of Snakemake, which finds this package by its name on PYTHONPATH, in an environment of its
own. So it imports Snakemake and the standard library alone. Snakemake's own log is in
`.snakemake/log` in the directory of the results.
"""

import json
import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

FAILED = "failed: "
"""What the log of a run that failed begins with."""

INTERRUPTED = "Terminating processes on user request"
"""What Snakemake says before it ends its steps."""

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
        plan = json.loads(file.read_text())
        self._runs: dict[str, dict[str, Any]] = plan["runs"]
        self._groups = {f"runs_{key}": group["keys"] for key, group in plan["groups"].items()}
        self._keys: dict[int, list[str]] = {}
        self._wanted = sum(map(len, self._groups.values()))
        self._made: set[str] = set()
        self._interrupted = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event."""
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            rule = vars(record)["rule_name"]
            self._keys[vars(record)["jobid"]] = self._groups.get(rule, [])
        elif event == LogEvent.JOB_FINISHED:
            self._ended(vars(record)["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._ended(vars(record)["jobid"])
        elif event == LogEvent.ERROR or (event is None and record.levelno >= logging.ERROR):
            self._error(record)
        elif record.getMessage().startswith(INTERRUPTED):
            self._interrupted = True

    def _ended(self, job: int) -> None:
        for key in self._keys.get(job, []):
            # The results do not tell: Snakemake removes those of a group that it tries again.
            said = self._log(key)
            if self._interrupted and not said:
                continue
            said = said or f"{FAILED}it ended without a message"
            if not said.startswith(FAILED):
                self._made.add(key)
            name = self._runs[key]["name"]
            print(f"[{len(self._made)}/{self._wanted}] {name}: {said}", flush=True)

    @staticmethod
    def _error(record: logging.LogRecord) -> None:
        said = record.getMessage()
        # The output of a failed step says more.
        of_a_step = vars(record).get("exception") == "RuleException"
        if not of_a_step and not any(text in said for text in FAILED_STEPS):
            print(f"snakemake: {said}", file=sys.stderr, flush=True)

    def _log(self, key: str) -> str:
        """Return a run's output: its figures, or FAILED and the reason; empty before its end."""
        file = self._directory / "logs" / f"{key}.log"
        return file.read_text().strip() if file.exists() else ""

"""The steps that the rules of workflow/Snakefile run: `experiments.py --step PLAN STEP`.

STEP is `runs KEY...`, `table NAME` or `report`.
The figures of each run, or the reason why it failed, are in its log. A step that fails prints the
reason and nothing else.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pacer_mininet.experiments import catalogue, jobs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.plan import FAILED, Plan
from pacer_mininet.experiments.results import write_whole
from pacer_mininet.experiments.scenario import from_json


class StepError(RuntimeError):
    """A step that failed; the text says why."""


def make_runs(plan: Plan, *keys: str) -> None:
    """Make runs on one network and store their results.

    A run that fails ends its network. Those after it are made on a new one.
    """
    remaining = [_job(plan, key) for key in keys]
    key_of = {job.name: key for job, key in zip(remaining, keys, strict=True)}
    failed: list[str] = []

    def listener(event: dict[str, Any]) -> None:
        if event["event"] == "done":
            said = f"{event['result']}; took {event['wall_s']:.0f} s"
            write_whole(plan.log(key_of[event["run"]]), said + "\n")

    while remaining:
        reasons = jobs.make([remaining], plan.store, listener, realtime=plan.realtime)
        remaining = [job for job in remaining if job.name in reasons]
        if remaining:
            culprit = remaining.pop(0).name
            failed.append(reasons[culprit])
            write_whole(plan.log(key_of[culprit]), f"{FAILED}{reasons[culprit]}\n")
    if failed:
        raise StepError("\n".join(failed))


def _job(plan: Plan, key: str) -> jobs.Job:
    run = plan.runs[key]
    return jobs.Job(run["name"], from_json(run["scenario"]))


def make_table(plan: Plan, name: str) -> None:
    """Write the JSON and the plots of an experiment from the results of its runs."""
    # A run would be longer by the time that this import takes.
    from pacer_mininet.experiments import reporting

    try:
        reporting.write_table(_known(plan)[name], plan.store, plan.directory)
    except reporting.VirtualError as error:
        raise StepError(str(error)) from None


def make_report(plan: Plan) -> None:
    """Write the report on all experiments of the plan."""
    from pacer_mininet.experiments import reporting

    known = _known(plan)
    reporting.write_report([known[name] for name in plan.experiments], plan.directory)


def _known(plan: Plan) -> dict[str, Experiment]:
    return catalogue.of_kernel(quick=plan.quick, realtime=plan.realtime)


_STEPS: dict[str, Callable[..., None]] = {
    "runs": make_runs,
    "table": make_table,
    "report": make_report,
}


def main(arguments: Sequence[str]) -> int:
    """Make the step of the arguments: PLAN STEP [KEY|NAME]...; return the exit status."""
    file, step, *rest = arguments
    try:
        _STEPS[step](Plan.read(Path(file)), *rest)
    except (StepError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0

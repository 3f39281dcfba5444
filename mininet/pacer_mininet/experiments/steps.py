"""The steps that the rules of workflow/Snakefile run: `experiments.py --step PLAN STEP`.

STEP is `run KEY`, `table NAME` or `report`.
A run prints its figures in short. A step that fails prints the reason and nothing else.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pacer_mininet.experiments import catalogue, jobs
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.experiments.plan import Plan
from pacer_mininet.experiments.scenario import from_json


class StepError(RuntimeError):
    """A step that failed; the text says why."""


def make_run(plan: Plan, key: str) -> None:
    """Make one run and store its result."""
    planned = plan.runs[key]
    job = jobs.Job(planned["name"], from_json(planned["scenario"]))
    said: list[str] = []

    def listener(event: dict[str, Any]) -> None:
        said.append(event.get("result", ""))

    failed = jobs.make([[job]], plan.store, listener, realtime=plan.realtime)
    if failed:
        raise StepError(failed[job.name])
    print(said[-1])


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
    "run": make_run,
    "table": make_table,
    "report": make_report,
}


def main(arguments: Sequence[str]) -> int:
    """Make the step of the arguments: PLAN STEP [NAME]; return the exit status."""
    file, step, *rest = arguments
    try:
        _STEPS[step](Plan.read(Path(file)), *rest)
    except (StepError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0

"""Has Snakemake make the runs, tables and report of a plan (workflow/Snakefile).

Snakemake finds files that are missing or older than their inputs, starts the steps that make them,
repeats steps that failed, and makes tables anew whose steps were interrupted. Its state is in
`.snakemake` in the directory of the results. A step makes the runs of a group (`Plan.groups`), and
stores the result of each when it is whole.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pacer_mininet import paths
from pacer_mininet.experiments.plan import FAILED, Plan
from pacer_mininet.runs import RunError

FOLDER = paths.MININET_DIR / "workflow"
STOP_TIMEOUT_S = 20.0

STEPS_PER_SECOND_OF_LIMIT = 60
"""After every step, Snakemake (9.27) begins to look for further steps once in the time of its rate
limit, for ever, and it ends up to that time late. With its default of a second, it uses a whole
processor after some hundred steps. So the time grows with the number of steps."""


class WorkflowError(RunError):
    """Snakemake failed without a run that failed; the text says where its messages are."""


def make(plan: Plan, options: Sequence[str], lock: IO[str]) -> dict[str, str]:
    """Make all that a plan lacks; return the reasons of runs and tables that failed, by name.

    Tables and report are made of the other runs.

    Args:
        plan: the runs and experiments to make.
        options: Snakemake's options on where and how many at once.
        lock: the lock of the results, which Snakemake keeps for as long as it runs.

    Raises:
        WorkflowError: nothing could be made.

    """
    _make_again(plan)
    for made in (*plan.missing(), *plan.experiments):
        # Files read afterwards belong to this pass.
        plan.log(made).unlink(missing_ok=True)
    steps = {key: plan.log(f"runs-{first}") for first, of in plan.groups().items() for key in of}
    if _snakemake(plan, options, lock) == 0:
        return {}
    missing = plan.missing()
    # The log of a run's step has the reason why the step could not make it.
    failed = {plan.runs[key]["name"]: _said(plan.log(key)) or _said(steps[key]) for key in missing}
    if missing and not any(failed.values()):
        raise WorkflowError(f"Snakemake failed; its log is in {plan.directory.parent}/.snakemake")
    # Runs under way when Snakemake itself failed have no reason.
    failed = {name: why or "it was not made" for name, why in failed.items()}
    if not missing or _snakemake(plan.without(missing), options, lock) != 0:
        tables = {name: _said(plan.log(name)) for name in (*plan.experiments, "report")}
        failed |= {name: why for name, why in tables.items() if why}
    if not failed:
        raise WorkflowError(f"Snakemake failed; its log is in {plan.directory.parent}/.snakemake")
    return failed


def _make_again(plan: Plan) -> None:
    """Remove tables of missing runs, and the report of a missing table.

    Snakemake does not make a missing input of a file that is newer than all others.
    """
    missing = set(plan.missing())
    for name, keys in plan.experiments.items():
        if missing.intersection(keys):
            plan.table(name).unlink(missing_ok=True)
    if not all(plan.table(name).exists() for name in plan.experiments):
        plan.report.unlink(missing_ok=True)


def _said(log: Path) -> str:
    try:
        return log.read_text().strip().removeprefix(FAILED)
    except OSError:
        return ""


def _snakemake(plan: Plan, options: Sequence[str], lock: IO[str]) -> int:
    """Run Snakemake on a plan; return its exit status."""
    if not paths.SNAKEMAKE.exists():
        raise paths.MissingError(
            f"Snakemake is not installed (there is no {paths.SNAKEMAKE}): run `make experiments` "
            f"in {paths.REPO}"
        )
    plan.write()
    limit_s = max(1, len(plan.groups()) // STEPS_PER_SECOND_OF_LIMIT)
    # In its own session: Ctrl-C reaches only this process, which then ends it and its steps. If
    # this process is killed, Snakemake ends, and its steps with it.
    command = [
        *("setpriv", "--pdeathsig", "KILL", str(paths.SNAKEMAKE)),
        *("--snakefile", str(FOLDER / "Snakefile"), "--configfile", str(plan.file)),
        *("--directory", str(plan.directory.parent), "--nolock"),
        *("--keep-going", "--keep-incomplete", "--rerun-incomplete"),
        *("--rerun-triggers", "mtime", "params", "input"),
        *("--max-jobs-per-timespan", f"1000/{limit_s}s"),
        *("--scheduler", "greedy", "--logger", "pacer", "--logger-pacer-plan", str(plan.file)),
        *options,
    ]
    own = {"PYTHONPATH": str(FOLDER), "XDG_CACHE_HOME": str(plan.directory.parent / ".snakemake")}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **own},
        start_new_session=True,
        pass_fds=[lock.fileno()],
    )
    with _ending(process):
        return process.wait()


@contextlib.contextmanager
def _ending(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """End Snakemake and its steps when the block raises."""
    try:
        yield
    finally:
        if process.poll() is None:
            # Snakemake ends its jobs on a cluster; its local steps end themselves.
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

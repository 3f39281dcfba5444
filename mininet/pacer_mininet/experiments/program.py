"""What the commands of the demo and of the experiments share: flags, checks, runs, errors."""

import argparse
import os
import sys
from collections.abc import Callable

from pacer_mininet import congestion, paths
from pacer_mininet.experiments import schedule, virtual
from pacer_mininet.experiments.cache import Cache
from pacer_mininet.experiments.costs import Costs
from pacer_mininet.experiments.progress import RunsDisplay
from pacer_mininet.experiments.results import BusyError
from pacer_mininet.runs import LabUnavailableError, RunError

FAILURES = (
    ValueError,
    RunError,
    BusyError,
    LabUnavailableError,
    virtual.VirtualError,
    congestion.CongestionControlError,
    paths.MissingError,
)


def add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add the option `--name`; its default comes from the environment variable NAME."""
    default = os.environ.get(name.upper(), "0") not in ("", "0")
    parser.add_argument(f"--{name}", action="store_true", default=default, help=text)


def need_parts() -> None:
    """Raise MissingError if switch or controller are not built."""
    paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
    paths.need_built(paths.CONTROLLER, "the controller")


def make_runs(
    jobs: list[schedule.Job], cache: Cache, costs: Costs, *, realtime: bool
) -> dict[str, str]:
    """Make runs and show their progress; return the reasons of those that failed, by name."""
    clock = "s" if realtime else "virtual s"
    with RunsDisplay(jobs, clock, schedule.at_once(realtime=realtime)) as display:
        return schedule.make(jobs, cache, costs, realtime=realtime, listener=display)


def run(name: str, command: Callable[[], int], interrupted: str) -> int:
    """Run a command; return its exit status, or print its error and return that of a failure."""
    try:
        return command()
    except FAILURES as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; {interrupted}", file=sys.stderr)
        return 130


def report_failed(name: str, failed: dict[str, str]) -> None:
    """Print the runs that failed and why."""
    for one, why in failed.items():
        print(f"{name}: failed: {one}: {why}", file=sys.stderr)

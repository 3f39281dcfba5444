"""The common parts of the commands of the demo and of the experiments: checks, errors."""

import sys
from collections.abc import Callable

from pacer_mininet import congestion, paths
from pacer_mininet.experiments.results import BusyError
from pacer_mininet.runs import LabUnavailableError, RunError

FAILURES = (
    ValueError,
    RunError,
    BusyError,
    LabUnavailableError,
    congestion.CongestionControlError,
    paths.MissingError,
)


def need_parts() -> None:
    """Raise MissingError if switch or controller are not built."""
    paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
    paths.need_built(paths.CONTROLLER, "the controller")


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

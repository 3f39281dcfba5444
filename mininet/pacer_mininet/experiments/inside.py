"""The command that makes one scenario: `python3 mininet/experiments.py --inside NAME JSON`.

It prints one JSON object per line (see `command`). Where the controller or the kernel lacks
something that the run needs, the result is `{"skipped": why}`.
"""

from collections.abc import Sequence

from mininet.log import setLogLevel

from pacer_mininet.command import FAILURES, emit, end_with_stdin, prepare_namespace
from pacer_mininet.congestion import CongestionControlError
from pacer_mininet.experiments.runner import run_scenario
from pacer_mininet.experiments.scenario import from_json
from pacer_mininet.experiments.shaping import NotOfferedError


def main(arguments: Sequence[str]) -> int:
    """Make the run of the arguments: NAME SCENARIO [--end-with-stdin]; return the exit status."""
    name, text = arguments[:2]
    if "--end-with-stdin" in arguments[2:]:
        end_with_stdin()
    setLogLevel("warning")
    try:
        scenario = from_json(text)
        prepare_namespace()
        result = run_scenario(name, scenario, emit)
    except (NotOfferedError, CongestionControlError) as error:
        emit({"event": "result", "run": {"skipped": str(error)}, "series": {}})
        return 0
    except FAILURES as error:
        emit({"event": "error", "run": name, "message": str(error)})
        return 1
    shown = {key: value for key, value in result.items() if key != "series"}
    emit({"event": "result", "run": shown, "series": result["series"]})
    return 0

"""The command that makes runs: `python3 mininet/experiments.py --inside NAME SCENARIO...`.

Several runs share one network. It prints one JSON object per line (see `command`). Where the
controller or the kernel lacks something that a run needs, its result is `{"skipped": why}`.
"""

from collections.abc import Sequence

from mininet.log import setLogLevel

from pacer_mininet.command import FAILURES, emit, end_with_stdin, prepare_namespace
from pacer_mininet.experiments.runner import run_scenarios
from pacer_mininet.experiments.scenario import from_json


def main(arguments: Sequence[str]) -> int:
    """Make the runs of the arguments; return the exit status.

    The arguments are `[--end-with-stdin] (NAME SCENARIO)...`.
    """
    if arguments[:1] == ["--end-with-stdin"]:
        end_with_stdin()
        arguments = arguments[1:]
    setLogLevel("warning")
    try:
        pairs = zip(arguments[::2], arguments[1::2], strict=True)
        named = [(name, from_json(text)) for name, text in pairs]
        prepare_namespace()
        for name, result in run_scenarios(named, emit):
            emit({"event": "result", "run": name, "result": result})
    except FAILURES as error:
        emit({"event": "error", "message": str(error)})
        return 1
    return 0

"""The part of the test of departures inside the lab: runs of one flow, with all their results.

The argument says who sends frames when it is time, `switch` or `kernel`. Prints one JSON object.
Not a test itself: `test_lab_departures.py` runs it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mininet"))

from mininet.log import setLogLevel

from pacer_mininet.command import prepare_namespace
from pacer_mininet.experiments import network
from pacer_mininet.experiments.runner import run_scenarios
from pacer_mininet.experiments.scenario import Flow, Scenario, Shaper

SHAPERS = (Shaper("unpaced"), Shaper("paced", "class"))


def put_off() -> int:
    """Return how often the queueing disciplines of the switches' ports had to wait for a frame."""
    command = ["tc", "-s", "-j", "qdisc", "show"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return sum(one.get("throttled", 0) for one in shown if one["kind"] == "fq")


def run(shaper: Shaper) -> dict[str, Any]:
    """Make a run; a FIFO of 16 KB overflows where nothing paces."""
    flows = (Flow(shaper=shaper),)
    scenario = Scenario(flows, seconds=1, rtt_ns=20_000_000, fifo_bytes=16 * 1024, bins=True)
    seen = []

    def look(event: dict[str, Any]) -> None:
        if event.get("phase") == "reading":
            seen.append(put_off())

    ((_, result),) = run_scenarios([(shaper.name, scenario)], look)
    # Sampled at round instants, at which something may be just arriving.
    del result["series"]["flows"]
    return {"result": result, "put_off": seen}


def main() -> None:
    """Make both runs and print their results."""
    setLogLevel("warning")
    prepare_namespace()
    with patch.object(network, "departures_here", lambda: sys.argv[1]):
        print(json.dumps({shaper.name: run(shaper) for shaper in SHAPERS}))


if __name__ == "__main__":
    main()

"""The demo's options, and a check of them that needs nothing but Python.

`make demo` checks its settings by `python3 -m pacer_mininet.experiments.demo_options OPTIONS`
before it installs or builds anything. So this module imports neither Mininet nor an installed
package.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pacer_mininet import congestion, paths
from pacer_mininet.experiments import flags
from pacer_mininet.experiments.demo_runs import (
    BMV2_FIFO_BYTES,
    BMV2_RATE_BPS,
    EDGE_RUNS,
    FIFO_BYTES,
    SECONDS,
    SHARED,
    SHARED_FIFO_BYTES,
    SINGLE_RUNS,
    TEN_SECONDS,
    TWO_SECONDS,
    experiments_of,
)
from pacer_mininet.published import RATE_BPS as PAPERS_RATE_BPS
from pacer_mininet.units import format_rate, format_size

RESULTS = paths.REPO / "results" / "demo"


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line; their defaults come from the environment."""
    environment = os.environ
    parser = argparse.ArgumentParser(
        prog="demo", description="The demo: options, tables, pictures, a report."
    )
    fifo = (
        f"default: {format_size(FIFO_BYTES)}, for several senders {format_size(SHARED_FIFO_BYTES)}"
    )
    parser.add_argument("--fifo", default=environment.get("FIFO") or None, help=fifo)
    parser.add_argument(
        "--cc",
        default=congestion.UNCHOSEN,
        help="congestion control (default: bic; cubic where this machine's kernel lacks bic)",
    )
    seconds = (
        f"of each run; default: {SECONDS}, for two senders {TWO_SECONDS}, for ten {TEN_SECONDS}"
    )
    parser.add_argument("--seconds", default=environment.get("SECONDS") or None, help=seconds)
    parser.add_argument("--rate", default=environment.get("RATE"))
    parser.add_argument("--rtt", default=environment.get("RTT") or "200ms")
    flags.add_flag(parser, "realtime", "on this machine's kernel instead of in the lab")
    parser.add_argument(
        "--edge",
        choices=tuple(EDGE_RUNS),
        default=environment.get("EDGE") or "pacing_switch",
        help="ovs: two more runs, with Open vSwitch as the edge switch (needs `make ovs`); bmv2: "
        "one more run, with stock BMv2 (needs simple_switch_grpc), in real time on a slower path",
    )
    some = f"some of {', '.join((*SHARED, *SINGLE_RUNS))}, separated by commas"
    parser.add_argument("--runs", help=some)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.edge not in EDGE_RUNS:
        # argparse checks an option against its choices, but not its default.
        parser.error(f"EDGE={options.edge}: it is one of {', '.join(EDGE_RUNS)}")
    on_bmv2 = options.edge == "bmv2"
    if on_bmv2 and not options.fifo:
        options.fifo = format_size(BMV2_FIFO_BYTES)
    options.rate = options.rate or format_rate(BMV2_RATE_BPS if on_bmv2 else PAPERS_RATE_BPS)
    # The lab's clock stands still while programs compute, and BMv2 computes all the time: it
    # recirculates the packets that it holds.
    options.realtime = options.realtime or on_bmv2
    return options


def check(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 if the demo can be made with these options, else 1 or 2.

    Standard error has the demo's own description of the error.
    """
    try:
        experiments_of(options_of(arguments))
    except ValueError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(check())

"""Makes the experiments of the switch alone with tests/accuracy: departures in virtual time.

They are Tables 2 to 4, Figs. 1 and 3, the sweep of target rates, and aggregation.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pacer_mininet import paths
from pacer_mininet.experiments import tables
from pacer_mininet.experiments.experiment import Experiment
from pacer_mininet.published import FIG_1_PACKETS_OF_A_TICK

SCRIPT = paths.REPO / "tests" / "accuracy" / "accuracy.py"
AGGREGATION = SCRIPT.with_name("aggregation.py")
TIMEOUT_S = 600

Measured = tuple[list[dict[str, Any]], list[str], dict[str, Any] | None]
"""The rows of an experiment, its sentences, and the data of its plot, if one is drawn."""


class VirtualError(RuntimeError):
    """The accuracy program failed; the text has its message."""


def _run(*options: str, script: Path = SCRIPT) -> Any:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        try:
            done = subprocess.run(
                [sys.executable, str(script), *options, str(out)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise VirtualError(f"{script.name} was not done after {TIMEOUT_S} s") from None
        if done.returncode != 0 or not out.exists():
            raise VirtualError(f"{script.name}: {(done.stderr or done.stdout).strip()[-500:]}")
        return json.loads(out.read_text())


def _accuracy_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of Tables 2 to 4 by column title; `published` has the published figures."""
    # The published mean is that of the bandwidths of n packets.
    rates = {
        "min": ("min_bps",) * 2,
        "max": ("max_bps",) * 2,
        "mean": ("mean_of_n_bps", "mean_bps"),
    }
    published = {
        f"{title}, Mbit/s": row[f"published_{name}"] / 1e6
        for title, (_, name) in rates.items()
        if row[f"published_{name}"] is not None
    }
    if row["published_burst_mtu"] is not None:
        published["burst, MTU"] = row["published_burst_mtu"]
    return {
        "table": row["table"],
        "line, Gbit/s": row["line_bps"] // 10**9,
        "per n packets": row["per_packets"],
        "target, Mbit/s": row["target_bps"] / 1e6,
        **{f"{title}, Mbit/s": row[name] / 1e6 for title, (name, _) in rates.items()},
        "burst, MTU": row["burst_mtu"],
        "all bytes over all time, off target, ppm": round(row["error_ppm"], 3),
        "doubtful in the source": row["published_doubt"] or "",
        "published": published,
    }


def _clocks() -> Measured:
    """Return Fig. 3: its rows, its sentences and the data of its plots."""
    clocks = _run("--clocks")
    rows = [
        {
            "class": f"P{number}",
            "target bit/s": one["rate_bps"],
            "packets": len(one["departures_ns"]),
            "first to last, us": (one["departures_ns"][-1] - one["departures_ns"][0]) / 1e3,
            "mean gap, ns": one["mean_gap_ns"],
        }
        for number, one in enumerate(clocks["classes"], start=1)
    ]
    said = [
        "Each dot is a packet. It leaves when the global clock (the line) reaches the class's "
        "clock, as in the published drawing.",
    ]
    return rows, said, clocks


def _ticks() -> Measured:
    """Return Fig. 1: its rows, its sentences and the data of its plots."""
    found = _run("--ticks")
    rows = []
    for one in found["kinds"]:
        gaps_ns = [b - a for a, b in itertools.pairwise(one["departures_ns"])]
        runs = itertools.groupby(gap_ns <= found["back_to_back_ns"] for gap_ns in gaps_ns)
        most = 1 + max((len(list(gaps)) for together, gaps in runs if together), default=0)
        rows.append(
            {
                "pacing": one["kind"],
                "packets": len(one["departures_ns"]),
                "most back to back": most,
                "shortest, start to start, ns": min(gaps_ns),
                "longest, ns": max(gaps_ns),
                "published": {}
                if one["kind"] == "ideal"
                else {"most back to back": FIG_1_PACKETS_OF_A_TICK},
            }
        )
    said = [
        "A tick at 500 Mbit/s and HZ 1000 has tokens for 62,500 bytes, 41.17 packets of 1518 "
        "bytes: 41 or 42 leave back to back. Ideal pacing spaces each packet."
    ]
    return rows, said, found


def _targets() -> Measured:
    """Return the talk's sweep of target rates: its rows, its sentences, its plots' data."""
    found = _run("--sweep")
    measured = found["rows"]
    rows = [
        {
            "target, Mbit/s": row["target_bps"] / 1e6,
            **{
                f"{title}, Mbit/s": row[name] / 1e6
                for title, name in (("min", "min_bps"), ("max", "max_bps"), ("mean", "mean_bps"))
            },
            "mean off target, ppm": round(row["error_ppm"], 3),
        }
        for row in measured
    ]
    worst = max(abs(row["error_ppm"]) for row in measured)
    return rows, [f"The mean is within {worst:.2g} ppm of each target."], found


def _accuracy() -> Measured:
    """Return Tables 2 to 4: their rows and sentences; nothing is drawn."""
    measured = _run("--out")["rows"]
    worst = max(abs(row["error_ppm"]) for row in measured if not row["contended"])
    said = [
        f"Where classes do not contend for the port, the mean is within {worst:.2g} ppm of "
        "the target; the published ones are within about 1 %.",
    ]
    return [_accuracy_row(row) for row in measured], said, None


def _aggregation() -> Measured:
    """Return the queues of N paced flows: the rows, the sentences and the data of the plots."""
    found = _run(script=AGGREGATION)
    measured = {(row["arrangement"], row["flows"]): row for row in found["rows"]}
    titles = list(dict.fromkeys(title for title, _ in measured))
    rows = []
    for flows in dict.fromkeys(flows for _, flows in measured):
        of = {title: measured[title, flows] for title in titles}
        rows.append(
            {
                "flows": flows,
                **{title: round(of[title]["queue_max_packets"], 2) for title in titles},
                "random phase, median": round(of["random phase"]["queue_median_packets"], 2),
                "FIFO in phase, bytes": of["in phase"]["fifo_max_bytes"],
                "FIFO in slots, bytes": of["slots at the edge"]["fifo_max_bytes"],
            }
        )
    last = rows[-1]
    said = [
        f"N paced flows in phase queue N packets, {last['flows']} of them {last['in phase']:.0f}; "
        f"in random phase at most {last['random phase']:.1f} (the longest of "
        f"{found['seeds']} draws); in slots one packet, however many flows there are.",
        "A line of 1 Gbit/s behind the senders halves the queue of many flows in phase, "
        f"{last['flows']} of them to {last['in phase, one line']:.1f}: the bottleneck drains it at "
        "half of the line's rate.",
        "A figure counts the packet on the line; the FIFO holds those that wait for it.",
    ]
    return rows, said, found


_MEASURED: dict[str, Callable[[], Measured]] = {
    "tables2-4": _accuracy,
    "targets": _targets,
    "fig1": _ticks,
    "fig3": _clocks,
    "aggregation": _aggregation,
}
"""What measures each experiment of the switch alone, by the experiment's name."""


def collect(experiment: Experiment) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return an experiment's results, as written to its JSON file, and the data of its plots.

    Raises:
        VirtualError: the program failed.

    """
    rows, said, drawn = _MEASURED[experiment.name]()
    # It takes seconds, so it is never scaled down.
    whole = dataclasses.replace(experiment, quick=False)
    found = tables.in_common(whole, rows, [*said, *experiment.differs])
    return {**found, "virtual": rows}, drawn

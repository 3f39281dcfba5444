"""Many switches that three controllers on etcd share: memory, processor time, cold starts.

    switches.py [--out FILE.json] [--switches N] [--controllers N] [--classes N]

Starts members of etcd, controllers, and real pacing_switch processes without ports, and gives each
switch classes and a flow for each. Then it measures two cold starts, from the first process until
every controller says that all switches hold what is desired:

- controllers: they end and start anew, while the switches go on;
- everything but etcd: the switches end, too, and start without a program.

Processor time is that of the start alone. Memory is the proportional set size, so pages that
processes share count once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from cluster import cpu_s, kind_of, launcher, started

READY_S = 1_800.0
SETTINGS = ("members", "controllers", "switches", "classes")


def memory_bytes(pid: int) -> int:
    """Return the proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"process {pid}: the kernel does not say its memory")


def of_kind(cluster: Any, kind: str) -> list[int]:
    """Return the pids of a kind of processes."""
    return [one.pid for name, one in cluster.processes.items() if kind_of(name) == kind]


class Measurement:
    """A cluster with many switches.

    Args:
        cluster: as `cluster.started` gives it.
        addresses: the addresses of the switches, by name.

    """

    def __init__(self, cluster: Any, addresses: dict[str, str]) -> None:
        self._cluster = cluster
        self._addresses = addresses

    def fill(self, classes: int) -> float:
        """Give each switch classes and flows; returns how long it took, in s."""
        rates = {f"c{n}": {"rate": f"{1 + n}Mbit"} for n in range(classes)}
        flows = {
            f"c{n}": {"match": {"dst_port": 5001 + n}, "class": f"c{n}"} for n in range(classes)
        }
        began_s = time.monotonic()
        for number, name in enumerate(self._addresses):
            url = self._cluster.urls[number % len(self._cluster.urls)]
            state = {"classes": rates, "flows": flows}
            launcher().request(f"{url}/v1/switches/{name}/state", "PUT", state)
        self._await_all()
        return time.monotonic() - began_s

    def _await_all(self) -> None:
        """Wait until each controller says that all switches hold the desired state."""
        for url in self._cluster.urls:
            self._cluster.wait(
                url, "/healthz", lambda said: said["connected"] == len(self._addresses), READY_S
            )

    def memory(self) -> dict[str, dict[str, float]]:
        """Return the median and the largest memory of each kind of process, in MB."""
        found = {}
        for kind in ("controllers", "switches", "etcd"):
            each = [memory_bytes(pid) / 1e6 for pid in of_kind(self._cluster, kind)]
            found[kind] = {"median_mb": round(median(each), 1), "max_mb": round(max(each), 1)}
        return found

    def cold_start(self, *, switches: bool) -> dict[str, float]:
        """End the controllers, and perhaps the switches; start them, and wait for all."""
        names = [n for n in self._cluster.processes if kind_of(n) == "controllers"]
        if switches:
            names += list(self._addresses)
        self._cluster.end(names)
        etcd_before_s = sum(map(cpu_s, of_kind(self._cluster, "etcd")))
        switches_before_s = 0.0 if switches else sum(map(cpu_s, of_kind(self._cluster, "switches")))
        began_s = time.monotonic()
        if switches:
            for name, address in self._addresses.items():
                self._cluster.start_switch(name, address)
        count = len(self._cluster.urls)
        self._cluster.urls.clear()
        self._cluster.start_controllers(count, self._cluster.store)
        self._await_all()
        took_s = time.monotonic() - began_s
        controllers_s = [cpu_s(pid) for pid in of_kind(self._cluster, "controllers")]
        switches_s = sum(map(cpu_s, of_kind(self._cluster, "switches"))) - switches_before_s
        return {
            "took_s": round(took_s, 2),
            "controller_cpu_s_median": round(median(controllers_s), 2),
            "controller_cpu_s_max": round(max(controllers_s), 2),
            "switches_cpu_s": round(switches_s, 2),
            "etcd_cpu_s": round(sum(map(cpu_s, of_kind(self._cluster, "etcd"))) - etcd_before_s, 2),
        }

    def shares(self) -> list[int]:
        """Return how many switches each controller drives."""
        said: Any = launcher().request(f"{self._cluster.urls[0]}/v1/store")
        driven: dict[str, str] = said["driven"]
        return sorted(list(driven.values()).count(one) for one in set(driven.values()))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures."""
    result: dict[str, Any] = {name: getattr(options, name) for name in SETTINGS}
    steps: dict[str, Callable[[Measurement], Any]] = {
        "filled_s": lambda made: round(made.fill(options.classes), 2),
        "shares": Measurement.shares,
        "memory": Measurement.memory,
        "controllers start": lambda made: made.cold_start(switches=False),
        "all start": lambda made: made.cold_start(switches=True),
        "shares after": Measurement.shares,
    }
    with started(options, READY_S) as (cluster, addresses):
        made = Measurement(cluster, addresses)
        for name, step in steps.items():
            result[name] = step(made)
            print(f"{name:20} {result[name]}", flush=True)
    return result | {"load": round(os.getloadavg()[0], 2)}


def main() -> None:
    """Measure and print; the JSON is written where --out says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--switches", type=int, default=250)
    parser.add_argument("--classes", type=int, default=5, help="of each switch, each with a flow")
    parser.add_argument("--directory", type=Path, help="below which etcd has its data")
    options = parser.parse_args()
    result = measure(options)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

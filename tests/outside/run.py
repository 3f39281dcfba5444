"""Faults from outside: kills, pauses, cut links and full disks while clients write.

    sudo build/venv/bin/python tests/outside/run.py [--minutes 30] [--seed 1]

Three members of etcd, three controllers and ten switches run in network namespaces. After the
last fault, every switch must hold its desired state within 5 s. The answers to clients must be
linearizable (checker/main.go), and the switches of a killed controller must be taken over in time.
The summary, the history and all logs are in the folder of the results.

Clocks do not jump here: a time namespace sets a clock only when it is made.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from clients import Client, Target
from cluster import LEASE_S, Cluster
from faults import Faults, sleep_until
from history import History
from hosts import Hosts

CHECKER = Path(__file__).resolve().parent / "checker"
CLIENTS = 8
CLASSES = 5
SETTLE_S = 60.0
EQUAL_S = 5.0
"""Longest time from the last fault until every switch holds its desired state."""

TAKEOVER_S = 2.0
"""Longest time from the end of a killed controller's lease until its switches are driven."""


def isolated(arguments: list[str]) -> int:
    """Run this program again in namespaces of its own; return its status."""
    script = 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/netns && exec "$@"'
    words = [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--"),
        *("sh", "-ec", script, "sh", sys.executable, __file__, "--inside", *arguments),
    ]
    return subprocess.run(words).returncode


def build_checker(directory: Path) -> Path:
    """Build the checker of histories; it needs Go."""
    built = directory / "checker"
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=CHECKER, check=True)
    return built


def make_faults(faults: Faults, cluster: Cluster, minutes: float) -> list[float]:
    """Make faults for some minutes.

    Returns how long after a killed controller's lease had ended all switches were driven.
    """
    end_s = time.monotonic() + 60 * minutes
    late_s = []
    while time.monotonic() < end_s:
        fault = faults.make()
        print(f"{end_s - time.monotonic():6.0f} s left: {fault.name}", flush=True)
        if fault.name.startswith("kill c"):
            late_s.append(max(0.0, cluster.wait_driven(SETTLE_S) - LEASE_S))
        sleep_until(end_s, faults.duration_s())
        fault.undo()
        sleep_until(end_s, faults.pause_s())
    return late_s


def held_equals_desired(cluster: Cluster) -> list[str]:
    """Return the switches with classes that are not as desired."""
    wrong = []
    for switch in cluster.switches:
        answer = cluster.ask(cluster.urls[0], f"/v1/switches/{switch.name}/classes?limit=1000")
        classes = answer.json()["classes"] if answer.status_code == 200 else [{"state": "?"}]
        if any(one["state"] != "applied" for one in classes):
            wrong.append(switch.name)
    return wrong


def inside(options: argparse.Namespace) -> int:
    """Make the faults and the checks; return the exit status."""
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    checker = build_checker(out)
    hosts = Hosts()
    cluster = Cluster(hosts, out)
    os.environ["SSL_CERT_FILE"] = str(cluster.certificate)
    cluster.start()
    history = History(out / "history.jsonl")
    target = Target(cluster.urls, cluster.token, [one.name for one in cluster.switches], CLASSES)
    stop = threading.Event()
    talking = threading.Thread(target=_talk, args=(target, history, options.seed, stop))
    talking.start()
    faults = Faults(cluster, hosts, options.seed)
    try:
        late_s = make_faults(faults, cluster, options.minutes)
    finally:
        stop.set()
        talking.join()
        history.close()
    began_s = time.monotonic()
    cluster.wait_driven(SETTLE_S)
    while (wrong := held_equals_desired(cluster)) and time.monotonic() - began_s < SETTLE_S:
        time.sleep(0.1)
    equal_s = time.monotonic() - began_s
    cluster.stop()
    checked = subprocess.run(
        [str(checker), str(out / "history.jsonl"), str(out / "history.html")],
        capture_output=True,
        text=True,
    )
    summary = {
        "seed": options.seed,
        "minutes": options.minutes,
        "faults": faults.made,
        "acknowledged": history.acknowledged,
        "unknown": history.unknown,
        "refused": history.refused,
        "reads": history.reads,
        "linearizable": checked.returncode == 0,
        "equal_after_s": round(equal_s, 2),
        "wrong": wrong,
        "takeovers": len(late_s),
        "takeover_late_s": _percentiles(late_s),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1), checked.stdout, checked.stderr, sep="\n")
    good = checked.returncode == 0 and not wrong and equal_s <= EQUAL_S
    return 0 if good and max(late_s, default=0.0) <= TAKEOVER_S else 1


def _percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {"median": round(statistics.median(values), 2), "max": round(max(values), 2)}


def _talk(target: Target, history: History, seed: int, stop: threading.Event) -> None:
    """Run all clients until the event is set."""

    async def all_clients() -> None:
        until = asyncio.Event()
        clients = [Client(number, target, history, seed) for number in range(CLIENTS)]
        async with asyncio.TaskGroup() as tasks:
            for one in clients:
                tasks.create_task(one.run(until))
            await asyncio.to_thread(stop.wait)
            until.set()

    asyncio.run(all_clients())


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/outside"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.inside:
        return inside(options)
    if os.geteuid() != 0:
        print("run.py makes network namespaces: run it as root", file=sys.stderr)
        return 2
    return isolated(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

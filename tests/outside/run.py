"""Faults from outside: kills, pauses, cut links and full disks while clients write.

    sudo build/venv/bin/python tests/outside/run.py [--minutes 30] [--seed 1]

Three members of etcd, three controllers and ten switches run in network namespaces. Within 5 s of
the end of the last fault, every switch must hold its desired state, by the controllers' word and by
the switch's own tables, which are read over P4Runtime. The answers to clients must be linearizable
(checker/main.go), with a last read of every class among them, and the switches of a killed
controller must be taken over in time. No switch may have accepted changes of two controllers at a
time, by its own list (writers.py). In 30 minutes or more, clients must get 10,000 writes
acknowledged.
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

import grpc
import httpx

from clients import Client, Target, note_read
from cluster import GRPC, LEASE_S, ROOT, Cluster, Node
from faults import Faults, sleep_until
from history import History
from hosts import Hosts
from tables import SwitchTables, desired_times_per_byte
from writers import Watch

CHECKER = Path(__file__).resolve().parent / "checker"
CLIENTS = 8
CLASSES = 5
SETTLE_S = 60.0
EQUAL_S = 5.0
"""Longest time from the end of the last fault until every switch holds its desired state."""

LONG_MINUTES = 30
ACKNOWLEDGED_LEAST = 10_000
"""Least number of acknowledged writes in a run of LONG_MINUTES."""

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


def make_faults(faults: Faults, cluster: Cluster, minutes: float) -> tuple[list[float], float]:
    """Make faults for some minutes.

    Returns how long after the end of a controller's lease all switches were driven, for each that
    was killed or lost its power, and the time at which the last fault ended.
    """
    end_s = time.monotonic() + 60 * minutes
    late_s = []
    while True:
        fault = faults.make()
        print(f"{end_s - time.monotonic():6.0f} s left: {fault.name}", flush=True)
        if fault.name.startswith(("kill c", "power c")):
            late_s.append(max(0.0, cluster.wait_driven(SETTLE_S) - LEASE_S))
        sleep_until(end_s, faults.duration_s())
        fault.undo()
        undone_s, pause_s = time.monotonic(), faults.pause_s()
        if undone_s + pause_s >= end_s:
            return late_s, undone_s
        time.sleep(pause_s)


def unlike_desired(cluster: Cluster, tables: SwitchTables) -> list[str]:
    """Return the switches with classes that are not as desired, and how they differ."""
    return [
        f"{switch.name}: {how}"
        for switch in cluster.switches
        if (how := _difference(cluster, tables, switch))
    ]


def _difference(cluster: Cluster, tables: SwitchTables, switch: Node) -> str:
    """Return how a switch's classes differ from the desired ones; empty: not at all."""
    try:
        answer = cluster.ask(cluster.urls[0], f"/v1/switches/{switch.name}/classes?limit=1000")
        if answer.status_code != 200:
            return f"a controller answers {answer.status_code}"
        classes = answer.json()["classes"]
        late = [f"{c['name']} ({c.get('reason')})" for c in classes if c["state"] != "applied"]
        if late:
            return f"not applied: {', '.join(late)}"
        held = tables.times_per_byte(f"{switch.host.address}:{GRPC}")
    except httpx.HTTPError as error:
        return f"no controller answers: {error!r}"
    except grpc.RpcError as error:
        return f"it does not answer: {error!r}"
    wanted = desired_times_per_byte(classes)
    return "" if held == wanted else f"it has {held}, desired is {wanted}"


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
    watch = Watch(cluster.switches)
    history = History(out / "history.jsonl")
    target = Target(cluster.urls, cluster.token, [one.name for one in cluster.switches], CLASSES)
    stop = threading.Event()
    talking = threading.Thread(target=_talk, args=(target, history, options.seed, stop))
    talking.start()
    faults = Faults(cluster, hosts, options.seed)
    tables = SwitchTables(ROOT / "p4src/compiled/pacing_switch/pacer.p4info.txtpb")
    try:
        late_s, undone_s = make_faults(faults, cluster, options.minutes)
    finally:
        stop.set()
        talking.join()
    cluster.wait_driven(SETTLE_S)
    while (wrong := unlike_desired(cluster, tables)) and time.monotonic() - undone_s < SETTLE_S:
        time.sleep(0.1)
    equal_s = time.monotonic() - undone_s
    unread = read_all(cluster, target, history)
    history.close()
    watch.close()
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
        "unread": unread,
        "spans": {name: len(spans) for name, spans in watch.spans.items()},
        "wrong_writers": watch.wrong(),
        "takeovers": len(late_s),
        "takeover_late_s": _percentiles(late_s),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1), checked.stdout, checked.stderr, sep="\n")
    good = checked.returncode == 0 and not wrong and equal_s <= EQUAL_S
    good = good and not unread and not summary["wrong_writers"]
    if options.minutes >= LONG_MINUTES:
        good = good and history.acknowledged >= ACKNOWLEDGED_LEAST
    return 0 if good and max(late_s, default=0.0) <= TAKEOVER_S else 1


def _percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {"median": round(statistics.median(values), 2), "max": round(max(values), 2)}


def read_all(cluster: Cluster, target: Target, history: History) -> list[str]:
    """Read every class, so that the history shows a write that is lost after its last read.

    Returns the classes of which no controller tells.
    """
    unread = []
    for key in (f"{s}/c{number}" for s in target.switches for number in range(target.classes)):
        switch, _, name = key.partition("/")
        call = history.begin(CLIENTS, key, "read")
        try:
            answer = cluster.ask(cluster.urls[0], f"/v1/switches/{switch}/classes/{name}")
        except httpx.HTTPError:
            unread.append(key)
            continue
        if not note_read(history, call, answer):
            unread.append(key)
    return unread


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

"""Measures the effect of a flood of unauthorised clients on a paced class and on its controller.

    flood.py [--out FILE.json] [--seconds S] [--rounds N] [--only PORT]

A class of pacing_switch is paced at 500 Mbit/s, and a controller changes the rate of another class
20 times a second. A client of another user, without a token, asks for all it can: at the switch's
ports for P4Runtime, Thrift and notifications, then at the controller's REST port. Readings with and
without the flood alternate. The defaults flood each port for a minute in all.

The pacing thread has its real-time class, and a processor that all other processes keep off, as the
manual recommends. Generator and gap meter run at a higher priority than what is measured, because
they are the instruments. In a network namespace of its own. Needs root and two processors.

The table goes beside FILE.json, as Markdown. Compare what is in one row.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc.aio
import httpx
import measures
from own_namespace import run_inside
from pacing_switch.wires import WireError, make_wires
from tables import markdown
from targets import ROOT, WIRE

for folder in ("controller", "cli"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

from controller_harness import Controller, Process, free_port, pacing_switch  # noqa: E402
from flood_namespace import NOBODY, NOTIFICATIONS_PORT, THRIFT_PORT, flood  # noqa: E402
from pacer_controller.traffic_manager import TrafficManager  # noqa: E402

RATE_BPS = 500_000_000
CHANGES_PER_S = 20
TIMEOUT_S = 10.0
BEFORE_S = 0.5
"""Time of changes before the instruments start."""

CLIENT = ROOT / "tests" / "cli" / "flood_client.py"
FLOODED = ("p4runtime", "thrift", "notifications", "rest")
"""The ports, in their order."""


class Changes:
    """Rate changes of a class that has no packets, by a client with a token, until `close`."""

    def __init__(self, url: str, token: str) -> None:
        self.took_ms: list[float] = []
        self.refused: list[str] = []
        self._stop = threading.Event()
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        rate_mbit = 1
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            rate_mbit = rate_mbit % 100 + 1
            try:
                answer = self._http.put(
                    "/v1/switches/s1/classes/other", json={"rate": f"{rate_mbit}Mbit"}
                )
                if answer.status_code != httpx.codes.OK:
                    self.refused.append(f"{answer.status_code} {answer.text}")
            except httpx.HTTPError as error:
                self.refused.append(f"{type(error).__name__} {error}")
            # From when it was due: a change that waits for the one before it is late, too.
            self.took_ms.append((time.monotonic() - due_s) * 1000)
            due_s += 1 / CHANGES_PER_S

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self._http.close()


@contextmanager
def paced(folder: Path) -> Iterator[tuple[str, Controller, str]]:
    """A switch and its controller; gives the switch's address, the controller and a token.

    Afterwards this thread and what it starts use all processors but the last, the switch's own.
    """
    address = f"127.0.0.1:{free_port()}"
    *others, own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others)
    switch = Process(
        [
            *("taskset", "--cpu-list", ",".join(map(str, [*others, own]))),
            *(str(pacing_switch()), "--no-p4", "--pacing-cpu", str(own)),
            *("--grpc-server-addr", address, "--cpu-port", "510"),
            *("--thrift-port", str(THRIFT_PORT)),
            *("--notifications-addr", f"tcp://127.0.0.1:{NOTIFICATIONS_PORT}"),
            *("-i", f"1@{WIRE.device_in}", "-i", f"2@{WIRE.device_out}"),
        ]
    )
    try:
        switch.wait_for_line("pacing_switch: ready")
        tokens = folder / "tokens"
        module = [sys.executable, "-m", "pacer_controller"]
        token = subprocess.run(
            [*module, "token", "add", "bench", "--role", "all", "--tokens", str(tokens)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[-1]
        controller = Controller("--switch", f"s1={address}", "--tokens", str(tokens))
        controller.http.headers["Authorization"] = f"Bearer {token}"
        try:
            controller.wait_connected()
            for name, rate in (("paced", f"{RATE_BPS}bit"), ("other", "1Mbit")):
                made = controller.put(f"/v1/switches/s1/classes/{name}", {"rate": rate})
                assert made.status_code == httpx.codes.CREATED, made.text
            body = {"match": {"ingress_port": 1}, "class": "paced"}
            made = controller.put("/v1/switches/s1/flows/paced", body)
            assert made.status_code == httpx.codes.CREATED, made.text
            yield address, controller, token
        finally:
            controller.close()
    finally:
        switch.stop()


def reading(seconds: float, url: str, token: str) -> dict[str, Any]:
    """Gaps of the paced class and times of changes, over some seconds."""
    changes = Changes(url, token)
    # Otherwise the first change would wait for the start of the instruments.
    time.sleep(BEFORE_S)
    with measures.as_instrument():
        measures.announce()
        report = measures.gaps(WIRE.receiver, RATE_BPS, seconds, None, None)
    changes.close()
    return {
        "p99_us": report["error_p99_us"],
        "mean_rate_bps": report["mean_rate_bps"],
        "took_ms": changes.took_ms,
        "refused": changes.refused,
    }


def refusals(address: str, controller: Controller) -> int:
    """How many calls and connections switch and controller have refused."""

    async def of_switch() -> dict[str, int]:
        async with grpc.aio.insecure_channel(address) as channel:
            statistics = await TrafficManager(channel).statistics([])
        return dict(statistics["switch"]["refusals"])

    own: dict[str, int] = controller.get("/v1/controller")["refusals"]
    return sum(asyncio.run(of_switch()).values()) + sum(own.values())


def row(
    flooded: str, options: argparse.Namespace, address: str, controller: Controller, token: str
) -> dict[str, Any]:
    """Readings without and with a flood of a server, in turn."""
    servers = {
        "p4runtime": address,
        "thrift": f"127.0.0.1:{THRIFT_PORT}",
        "notifications": f"127.0.0.1:{NOTIFICATIONS_PORT}",
        "rest": controller.url.removeprefix("http://"),
    }
    command = [sys.executable, str(CLIENT), servers[flooded], flooded]
    without, under = [], []
    before = refusals(address, controller)
    for _ in range(options.rounds):
        without.append(reading(options.seconds, controller.url, token))
        with flood(*command, user=NOBODY):
            under.append(reading(options.seconds, controller.url, token))
    took_ms = sorted(one for each in under for one in each["took_ms"])
    return {
        "flooded": flooded,
        "without_p99_us": median(one["p99_us"] for one in without),
        "with_p99_us": median(one["p99_us"] for one in under),
        "ratio": median(
            one["p99_us"] / other["p99_us"] for one, other in zip(under, without, strict=True)
        ),
        "mean_rate_bps": median(one["mean_rate_bps"] for one in under),
        "changes": len(took_ms),
        "refused": sum(len(one["refused"]) for one in under),
        "change_p99_ms": took_ms[len(took_ms) * 99 // 100],
        "change_max_ms": took_ms[-1],
        "strangers_refused": refusals(address, controller) - before,
        "readings": {"without": without, "with": under},
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="A paced class beside clients without rights")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "flood.json")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each reading")
    parser.add_argument("--rounds", type=int, default=6, help="pairs of readings for each port")
    parser.add_argument("--only", choices=FLOODED, help="flood this port only")
    options = parser.parse_args()
    if (status := run_inside()) is not None:
        return status
    try:
        make_wires([(WIRE.sender, WIRE.device_in), (WIRE.device_out, WIRE.receiver)])
    except WireError as error:
        raise SystemExit(f"cannot run: {error}") from error
    with (
        tempfile.TemporaryDirectory() as folder,
        paced(Path(folder)) as (address, controller, token),
    ):
        # The changes come from this process. A collection of all objects would delay them, and
        # would be measured as a delay of the controller.
        gc.collect()
        gc.freeze()
        rows = [
            row(flooded, options, address, controller, token)
            for flooded in FLOODED
            if options.only in (None, flooded)
        ]
    table = markdown("flood", rows)
    print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    options.out.with_suffix(".md").write_text(table)
    print(f"written to {options.out} and {options.out.with_suffix('.md')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

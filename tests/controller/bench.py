"""How fast the controller is: ten thousand flows in one call, a thousand rate changes a second.

Real processes, loopback, the state in a file, every change on disk and on the switch before its
answer. Beside it Ryu's way, one call for each rule, on the same controller.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from controller_harness import Controller, Network, Switch

FLOWS = 10_000
FLOWS_LIMIT_S = 5.0
RATE_CHANGES_PER_S = 1000
P99_LIMIT_MS = 20.0
CONNECTIONS = 8
RYU_RULES = 300


class Connection:
    """A kept-alive HTTP/1.1 connection that costs little beside the measured work."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        """Connect to http://HOST:PORT."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def request(self, method: str, path: str, body: Any) -> int:
        """Make a request and return its status."""
        content = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        for line in answer.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self._reader.readexactly(int(line.partition(b":")[2]))
        return int(answer.split(b" ", 2)[1])


async def bulk(url: str) -> float:
    """Return the seconds that ten thousand flows take in one call."""
    flows = {f"f{n:05}": {"match": {"dst_port": 1 + n}, "class": "video"} for n in range(FLOWS)}
    state = {"classes": {"video": {"rate": "500Mbit"}}, "flows": flows}
    connection = await Connection.open(url)
    began_s = time.perf_counter()
    status = await connection.request("PUT", "/v1/switches/s1/state", state)
    took_s = time.perf_counter() - began_s
    if status != 200:
        raise SystemExit(f"PUT state: {status}")
    return took_s


async def one_call_per_rule(url: str) -> float:
    """Return the rules per second that are set one call each, as Ryu documents it."""
    connection = await Connection.open(url)
    began_s = time.perf_counter()
    for number in range(RYU_RULES):
        match = {"nw_dst": "10.0.0.1", "nw_proto": "UDP", "tp_dst": str(30_000 + number)}
        body = {"match": match, "actions": {"queue": "1"}}
        status = await connection.request("POST", "/qos/rules/s1", body)
        if status != 200:
            raise SystemExit(f"POST rules: {status}")
    return RYU_RULES / (time.perf_counter() - began_s)


async def rate_changes(url: str, seconds: float) -> tuple[float, list[float]]:
    """Return changes per second and latencies in ms, sorted: so many are begun every second."""
    connections = [await Connection.open(url) for _ in range(CONNECTIONS)]
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        free.put_nowait(connection)
    latencies: list[float] = []
    began_s = time.perf_counter()
    count = int(RATE_CHANGES_PER_S * seconds)

    async def change(number: int, due_s: float) -> None:
        connection = await free.get()
        body = {"rate": 1_000_000 + number}
        status = await connection.request("PUT", f"/v1/switches/s1/classes/c{number % 50}", body)
        if status not in (200, 201):
            raise SystemExit(f"PUT class: {status}")
        # From when it was due: waiting for a connection counts.
        latencies.append((time.perf_counter() - due_s) * 1000)
        free.put_nowait(connection)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            due_s = began_s + number / RATE_CHANGES_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            group.create_task(change(number, due_s))
    return count / (time.perf_counter() - began_s), sorted(latencies)


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used: no other process changes it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print a table; the JSON is written where --out says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    switch = Switch(Network(private=False))
    switch.start()
    with tempfile.TemporaryDirectory() as directory:
        state = ("--state", str(Path(directory) / "state"), "--log-level", "warning")
        controller = Controller("--switch", f"s1={switch.address}", *state)
        try:
            controller.wait_connected()
            before_s = cpu_s(controller.process.pid)
            per_s, latencies = asyncio.run(rate_changes(controller.url, options.seconds))
            cpu_ms = (cpu_s(controller.process.pid) - before_s) * 1000 / len(latencies)
            rules_per_s = asyncio.run(one_call_per_rule(controller.url))
            bulk_s = asyncio.run(bulk(controller.url))
        finally:
            controller.close()
            switch.kill()
    p99 = latencies[int(len(latencies) * 0.99)]
    result = {
        "flows_in_one_call": FLOWS,
        "one_call_s": round(bulk_s, 3),
        "flows_per_s_one_call": round(FLOWS / bulk_s),
        "rules_per_s_one_call_each": round(rules_per_s),
        "one_call_each_s": round(FLOWS / rules_per_s, 1),
        "rate_changes_per_s": round(per_s),
        "rate_change_ms": {
            "median": round(latencies[len(latencies) // 2], 2),
            "p99": round(p99, 2),
            "max": round(latencies[-1], 2),
        },
        "controller_cpu_ms_per_rate_change": round(cpu_ms, 3),
        "load": round(os.getloadavg()[0], 2),
    }
    print("| | this controller | Ryu's way: a call for each rule |")
    print("|---|---|---|")
    print(f"| {FLOWS:,} flows | {bulk_s:.2f} s | {FLOWS / rules_per_s:.0f} s |")
    print(f"| rate changes per second | {per_s:.0f}, p99 {p99:.1f} ms | |")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Nothing acknowledged is lost: controllers killed, switches restarted, strangers writing."""

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from test_live import CLASS, A, B, entries_of, frame, observe, options

from controller_harness import Controller, Network, Switch, eventually

Start = Callable[..., Controller]
WRITES = 1000
TAKEOVER_S = 2.0


def limit_s(seconds: float) -> float:
    """Return a limit that holds on a quiet machine, stretched by how many share this one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def flow_path(number: int) -> str:
    return f"/v1/switches/s1/flows/f{number:04}"


def flow(number: int) -> dict[str, Any]:
    return {"match": {"dst_port": 1000 + number}, "rate": 1_000_000 + number}


def test_controller_killed_during_a_thousand_writes(
    start_controller: Start, switch: Switch, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "state"))
    first = start_controller(*options(switch), *state)
    first.wait_connected()
    acknowledged: set[int] = set()
    enough = threading.Event()

    def write(numbers: range) -> None:
        with httpx.Client(base_url=first.url, timeout=15.0, trust_env=False) as client:
            for number in numbers:
                try:
                    made = client.put(flow_path(number), json=flow(number))
                except httpx.TransportError:
                    return
                assert made.status_code == 201, made.text
                acknowledged.add(number)
                if len(acknowledged) >= WRITES:
                    enough.set()

    writers = 4
    with ThreadPoolExecutor(writers) as pool:
        # More than are waited for, so that it is killed in the middle of some.
        share = (WRITES + 400) // writers
        running = [pool.submit(write, range(n * share, (n + 1) * share)) for n in range(writers)]
        assert enough.wait(120)
        first.process.kill()
        for one in running:
            one.result()
    assert len(acknowledged) >= WRITES

    second = start_controller(*options(switch), *state)
    second.wait_connected()
    flows = second.get("/v1/switches/s1/flows?limit=10000")["flows"]
    kept = {int(one["name"][1:]): one for one in flows}
    assert acknowledged <= kept.keys()
    assert all(kept[number]["rate_bps"] == flow(number)["rate"] for number in kept)
    on_switch = {entry["dst_port"][0] - 1000 for entry in entries_of(switch, "flows")}
    assert on_switch == kept.keys()
    assert len(entries_of(switch, "classes")) == len(kept)


def test_switch_restart_under_load(wires: Network, start_controller: Start, switch: Switch) -> None:
    controller = start_controller(*options(switch))
    controller.wait_connected()
    state = {
        "classes": {"video": {"rate": "500Mbit"}},
        "flows": {f"f{n}": {"match": {"dst_port": 1000 + n}, "class": "video"} for n in range(500)},
    }
    assert controller.put("/v1/switches/s1/state", state).status_code == 200
    over = threading.Event()

    def traffic() -> None:
        number = 0
        while not over.is_set():
            wires.send(1, frame(A + number % 7, B))
            number += 1
            over.wait(0.001)

    def rates() -> None:
        with httpx.Client(base_url=controller.url, timeout=15.0, trust_env=False) as client:
            number = 0
            while not over.is_set():
                number += 1
                assert client.put(CLASS, json={"rate": 10**6 + number}).status_code == 200

    with ThreadPoolExecutor(2) as pool:
        load = [pool.submit(traffic), pool.submit(rates)]
        try:
            switch.kill()
            eventually(
                lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch is away"
            )
            switch.start()
            opened_s = time.monotonic()
            allowed_s = limit_s(2.0)
            controller.wait_connected()
            took_s = time.monotonic() - opened_s
        finally:
            over.set()
            for one in load:
                one.result()
    assert took_s < allowed_s
    assert len(entries_of(switch, "flows")) == 500
    (video,) = entries_of(switch, "classes")
    assert controller.get(CLASS)["state"] == "applied"
    rate_bps = controller.get(CLASS)["rate_bps"]
    assert video["time_per_byte_q24"] == ((8_000_000_000 << 24) + rate_bps // 2) // rate_bps


def test_foreign_change_is_mended_and_told(start_controller: Start, switch: Switch) -> None:
    controller = start_controller(*options(switch), "--reconcile-interval", "0.2")
    controller.wait_connected()
    controller.put(CLASS, {"rate": "500Mbit"})
    with controller.http.stream("GET", "/v1/events/stream?kind=drift&kind=mended") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        observe(switch, "delete-class", "1")
        drift, mended = (json.loads(next(lines).removeprefix("data: ")) for _ in range(2))
    assert drift["kind"] == "drift"
    (entry,) = drift["data"]["entries"]
    assert entry["owner"] == "class 'video'"
    assert entry["found"] is None
    assert entry["wanted"]["action"] == "PacerIngress.paced_static"
    assert (mended["kind"], mended["data"]["writes"]) == ("mended", 1)
    assert len(entries_of(switch, "classes")) == 1
    assert controller.get("/v1/switches/s1")["counters"]["drift_entries"] == 1
    assert (
        'pacer_switch_drift_entries_total{switch="s1"} 1.0' in controller.http.get("/metrics").text
    )


def test_port_settings_are_brought_back(
    wires: Network, start_controller: Start, switch: Switch
) -> None:
    controller = start_controller(*options(switch))
    controller.wait_connected()
    path = "/v1/switches/s1/ports/2"
    asked = {
        "line_rate": "1Gbit",
        "counts": "layer2",
        "fifo_bytes": 65536,
        "delay_ns": 1000,
        "gap_mode": "pause-frames",
        "gap_frame_max_bytes": 300,
    }
    made = controller.put(path, asked)
    assert made.status_code == 201, made.text
    assert {name: made.json()[name] for name in asked} == asked
    assert made.json()["state"] == "applied"
    switch.kill()
    eventually(lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch is away")
    switch.start()
    controller.wait_connected()
    assert {name: controller.get(path)[name] for name in asked} == asked
    # Without a length it is 1514, for any former length of the switch, and after its next start.
    del asked["gap_frame_max_bytes"]
    changed = controller.put(path, asked)
    assert changed.json()["gap_frame_max_bytes"] == 1514, changed.text
    switch.kill()
    eventually(lambda: controller.get("/v1/switches/s1")["state"] == "pending", "switch is away")
    switch.start()
    controller.wait_connected()
    assert controller.get(path)["gap_frame_max_bytes"] == 1514
    refused = controller.put(path, {"line_rate": "none"})
    assert refused.status_code == 422, "gap frames need the line rate"
    gone = controller.put(path, {"line_rate": "none", "gap_mode": "accounted"}).json()
    assert gone["gap_mode"] == "accounted"
    assert gone["gap_frame_max_bytes"] is None
    assert gone["line_rate"] is None
    assert gone["delay_ns"] == 1000
    refused = controller.put("/v1/switches/s1/ports/9", {"delay_ns": 1})
    assert refused.status_code == 422


def test_ten_thousand_flows_in_one_call(start_controller: Start, switch: Switch) -> None:
    controller = start_controller(*options(switch))
    controller.wait_connected()
    flows = {f"f{n:05}": {"match": {"dst_port": 1 + n}, "class": "video"} for n in range(10_000)}
    state = {"classes": {"video": {"rate": "500Mbit"}}, "flows": flows}
    with httpx.Client(base_url=controller.url, timeout=120.0, trust_env=False) as client:
        began_s = time.monotonic()
        allowed_s = limit_s(5.0)
        made = client.put("/v1/switches/s1/state", json=state)
        took_s = time.monotonic() - began_s
        assert made.status_code == 200, made.text[:500]
        assert made.json()["switches"] == {"s1": "applied"}
        assert took_s < allowed_s
        assert len(entries_of(switch, "flows")) == 10_000

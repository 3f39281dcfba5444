"""Disks that are slow, full or broken, under the state file."""

import asyncio
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_operations import CLASS, nobody, samples_of

from controller_harness import DEADLINE_S, Controller
from pacer_controller.service import core
from rest_client import Client

Start = Callable[..., Controller]

WRITERS = 4
MANY = 50


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the disk that fails."""
    if shutil.which("cc") is None:
        pytest.skip("not run: no C compiler")
    source = Path(__file__).with_name("failing_disk.c")
    built = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(built), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return built


def acknowledged(controller: Controller, breaks: Callable[[], None]) -> dict[str, int]:
    """Change many classes, have the disk fail, and go on; return the last acknowledged state."""
    known: dict[str, int] = {}
    enough = threading.Event()

    def write(writer: int) -> set[int]:
        seen = set()
        with httpx.Client(base_url=controller.url, timeout=DEADLINE_S, trust_env=False) as http:
            for rate in range(10**6, 10**6 + 10**6):
                name = f"c{writer}"
                try:
                    said = http.put(f"/v1/switches/s1/classes/{name}", json={"rate": rate})
                except httpx.TransportError:
                    break
                seen.add(said.status_code)
                if said.status_code not in (200, 201):
                    continue
                known[name] = rate
                if rate >= 10**6 + MANY:
                    enough.set()
        return seen

    with ThreadPoolExecutor(WRITERS) as pool:
        running = [pool.submit(write, number) for number in range(WRITERS)]
        assert enough.wait(DEADLINE_S)
        breaks()
        statuses = set().union(*(one.result() for one in running))
    assert statuses <= {200, 201, 503}
    return known


@pytest.mark.parametrize("how", ["EIO", "NOSPC", "file-size"])
def test_a_broken_disk_ends_the_controller_and_loses_nothing(
    start_controller: Start,
    tmp_path: Path,
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    fails, state = tmp_path / "fails", tmp_path / "state"
    options = (*nobody(), "--state", str(state))
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("FAILING_DISK", str(fails))
        controller = start_controller(*options)

    def breaks() -> None:
        if how == "file-size":
            # The next page is one too many: EFBIG.
            resource.prlimit(controller.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        else:
            fails.write_text(how)

    known = acknowledged(controller, breaks)
    assert controller.process.wait() == os.EX_IOERR
    said = "\n".join(controller.process.lines)
    assert "nothing more is stored" in said
    assert "the controller ends; start it anew" in said
    fails.unlink(missing_ok=True)
    again = start_controller(*options)
    kept = {one["name"]: one["rate_bps"] for one in again.get("/v1/switches/s1/classes")["classes"]}
    assert len(known) == WRITERS
    # A change that was answered 503 may have been made: at most one after the last acknowledged.
    assert {name: kept[name] - rate in (0, 1) for name, rate in known.items()} == dict.fromkeys(
        known, True
    )


def test_a_slow_disk_holds_up_no_reads_and_shows_nothing_that_is_not_on_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PROBE_MOST_S", 0.01)
    client.put(CLASS, {"rate": "1Mbit"})
    goes_on = threading.Event()

    async def staged(switch: str) -> None:
        while not client.service.switches[switch].unstored:  # noqa: ASYNC110 (nothing says so)
            await asyncio.sleep(0)

    async def run() -> None:
        client.store._thread.submit(goes_on.wait)
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def get(path: str) -> Any:
                answer = await http.get(path)
                assert answer.status_code == 200, answer.text
                return answer.json()

            changing = asyncio.create_task(http.put(CLASS, json={"rate": "2Mbit"}))
            await staged("s1")
            adding = asyncio.create_task(
                http.put("/v1/switches/wan/ports/1", json={"delay_ns": 1000})
            )
            await staged("wan")
            assert (await get(CLASS))["rate"] == "1Mbit"
            (one,) = (await get("/v1/switches/s1/classes"))["classes"]
            assert one["rate"] == "1Mbit"
            state = (await get("/v1/state"))["switches"]
            assert state["s1"]["classes"]["video"]["rate"] == "1Mbit"
            assert state["wan"]["ports"] == {}
            statistics = await get("/v1/switches/s1/stats")
            assert statistics["classes"][1]["rate"] == "1Mbit"
            assert (await get("/v1/switches/wan"))["ports"] == []
            assert len((await get("/v1/events?kind=change"))["events"]) == 1
            metrics = samples_of((await http.get("/metrics")).text)
            wanted = metrics["pacer_switch_resources"]
            assert wanted[frozenset(("wan", "port"))] == 0
            rates = metrics["pacer_class_target_bits_per_second"]
            assert rates[frozenset(("s1", "video"))] == 10**6
            assert (await http.get("/readyz")).status_code == 503
            assert (await get("/healthz"))["status"] == "ok"
            assert not changing.done()
            assert not adding.done()
            goes_on.set()
            assert (await changing).json()["rate"] == "2Mbit"
            assert (await adding).status_code == 201
            assert (await get(CLASS))["rate"] == "2Mbit"

    try:
        asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    finally:
        goes_on.set()

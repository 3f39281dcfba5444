"""The files for deployment fit the controller: systemd's unit, Grafana's dashboard."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller_harness import ROOT, Controller, Network, Process, eventually, free_port
from pacer_controller.config import MAX_SWITCHES

DEPLOY = ROOT / "controller" / "deploy"
UNIT = ROOT / "packaging" / "systemd" / "pacer-controller.service"
SWITCH_UNIT = UNIT.with_name("pacing-switch@.service")
PROGRAM = "/usr/bin/pacer-controller"
SWITCH_PROGRAM = "/usr/bin/pacing_switch"
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 (nobody else's)


def unit(file: Path = UNIT) -> dict[str, list[str]]:
    """Return a unit's settings by name."""
    settings: dict[str, list[str]] = {}
    for line in file.read_text().replace("\\\n", " ").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


@contextlib.contextmanager
def service(
    directory: Path, configured: str = "", options: Sequence[str] = ()
) -> Iterator[Process]:
    """Start the unit's command, with directories as systemd gives them.

    Args:
        directory: the place of configuration, token and state.
        configured: lines of the configuration's section `[controller]`.
        options: the words of PACER_OPTIONS.

    """
    (command,) = unit()["ExecStart"]
    program, *arguments = command.split()
    assert arguments.pop() == "$PACER_OPTIONS"
    assert program == PROGRAM
    (directory / "token").touch(0o600)
    (directory / "token").write_text(TOKEN + "\n")
    (directory / "controller.toml").write_text(
        f'[controller]\nlisten = "127.0.0.1:{free_port()}"\n{configured}\n'
        f'[switches.s1]\naddress = "127.0.0.1:{free_port()}"\n'
    )
    places = {"CREDENTIALS_DIRECTORY": str(directory), "STATE_DIRECTORY": str(directory)}
    for name, place in places.items():
        arguments = [argument.replace(f"${{{name}}}", place) for argument in arguments]
    words = [sys.executable, "-m", "pacer_controller", *arguments, *options]
    process = Process(words, places)
    try:
        yield process
    finally:
        process.kill()


def test_the_unit_starts_a_controller_that_wants_the_token(
    network: Network, tmp_path: Path
) -> None:
    assert unit()["LoadCredential"] == [
        "controller.toml:/etc/pacer/controller.toml",
        "token:/etc/pacer/token",
    ]
    # The configuration names no store: so did the package's, before it had a line for it.
    with service(tmp_path) as process:
        url = process.wait_for_line("pacer-controller: ready").rpartition(" ")[2]
        with httpx.Client(base_url=url, trust_env=False, timeout=15) as http:
            assert http.get("/v1/switches").status_code == 401
            allowed = http.get("/v1/switches", headers={"Authorization": f"Bearer {TOKEN}"})
            assert [s["name"] for s in allowed.json()["switches"]] == ["s1"]
        assert (tmp_path / "state.sqlite").exists()
        assert process.stop() == 0


@pytest.mark.parametrize("by_option", [False, True])
def test_the_service_uses_the_store_that_is_named(
    network: Network, tmp_path: Path, by_option: bool
) -> None:
    other = tmp_path / "other.sqlite"
    options = ["--store", f"sqlite:{other}"] if by_option else []
    with service(tmp_path, "" if by_option else f'store = "sqlite:{other}"', options) as process:
        process.wait_for_line("pacer-controller: ready")
        assert other.exists()
        assert not (tmp_path / "state.sqlite").exists()
        assert process.stop() == 0


def test_two_stores_are_refused(network: Network, tmp_path: Path) -> None:
    options = ["--store", "etcd://127.0.0.1:1/pacer"]
    with service(tmp_path, f'state = "{tmp_path}/state.sqlite"', options) as process:
        line = process.wait_for_line("there can be one store")
        assert "--store names etcd://127.0.0.1:1/pacer" in line
        assert f"controller.toml names sqlite:{tmp_path}/state.sqlite" in line
        assert process.wait() == 2


def test_the_package_configures_the_state_of_the_service() -> None:
    example = tomllib.loads((ROOT / "packaging/examples/controller.toml").read_text())
    assert example["controller"]["state"] == "/var/lib/pacer/state.sqlite"
    assert unit()["StateDirectory"] == ["pacer"]


def test_the_unit_allows_a_thread_for_each_bridge() -> None:
    assert int(unit()["TasksMax"][-1]) > MAX_SWITCHES + 100


def test_the_switchs_unit_allows_a_thread_for_each_client() -> None:
    page = (ROOT / "docs" / "thrift.md").read_text()
    clients = re.search(r"(\d+) connections of holders, (\d+) of strangers", page)
    subscribers = re.search(r"At most (\d+) subscribers connect", page)
    assert clients is not None
    assert subscribers is not None
    # Two sockets have subscribers, of which each has two threads.
    of_clients = int(clients[1]) + int(clients[2]) + 2 * 2 * int(subscribers[1])
    assert int(unit(SWITCH_UNIT)["TasksMax"][-1]) > of_clients + 50


@pytest.mark.parametrize("file", [UNIT, SWITCH_UNIT], ids=lambda file: file.stem)
def test_systemd_restarts_a_service_without_end(file: Path) -> None:
    settings = unit(file)
    assert settings["Restart"] == ["always"]
    assert settings["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("file", [UNIT, SWITCH_UNIT], ids=lambda file: file.stem)
def test_systemd_understands_the_unit(tmp_path: Path, file: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("not run: no systemd-analyze")
    copy = tmp_path / file.name
    program = shutil.which("true") or "/bin/true"
    text = file.read_text().replace(PROGRAM, program).replace(SWITCH_PROGRAM, program)
    copy.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "--man=no", "verify", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert copy.name not in checked.stderr, checked.stderr
    assert checked.returncode == 0, checked.stderr


def test_bootstrap_knows_every_word_of_the_makefile() -> None:
    words = set(re.findall(r"tools/bootstrap ([a-z-]+)", (ROOT / "Makefile").read_text()))
    known = re.search(r"^([a-z| -]+)\) ;;$", (ROOT / "tools/bootstrap").read_text(), re.MULTILINE)
    assert known is not None
    assert "cluster" in words
    assert words <= set(known[1].split(" | "))


def names_in(requirements: str) -> set[str]:
    """Return the names of the packages of a lock file."""
    return set(re.findall(r"^([a-z0-9-]+)==", requirements, re.MULTILINE))


def test_what_a_package_takes_from_debian_is_what_the_project_needs() -> None:
    files = ["requirements.lock", "packaging/python-from-debian"]
    lock, from_debian = ((ROOT / name).read_text() for name in files)
    names = {line.split()[0] for line in from_debian.splitlines() if not line.startswith("#")}
    command = [sys.executable, "packaging/vendored.py", *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    brought = names_in(ran.stdout)
    assert names <= names_in(lock)
    assert {"fastapi", "finsy", "grpcio", "os-ken"} <= brought <= names_in(lock)
    # Packages that only the demo and the tests need stay out.
    assert not brought & (names | {"cryptography", "matplotlib", "numpy", "scapy"})
    # Each is fetched by its digests.
    assert ran.stdout.count("--hash=sha256:") >= len(brought)


def expressions(value: Any) -> list[str]:
    """Return every query of a dashboard."""
    if isinstance(value, dict):
        own = [value[name] for name in ("expr", "query") if isinstance(value.get(name), str)]
        return own + [found for part in value.values() for found in expressions(part)]
    if isinstance(value, list):
        return [found for part in value for found in expressions(part)]
    return []


def test_grafana_asks_for_metrics_that_there_are(controller: Controller, wires: Network) -> None:
    # A queue with room for one byte drops the frame that is flooded to its port.
    queues = {"queues": 1, "settings": [{"queue": 0, "fifo_bytes": 1}]}
    controller.put("/v1/switches/s1/ports/3", {"egress_queues": queues})
    # A flooded frame is pruned towards where it came from: counted as a drop of that port.
    wires.send(1, (b"\xff" * 6 + b"\x02" + bytes(5) + b"\x88\xb5").ljust(60, b"\0"))
    eventually(
        lambda: "pacer_queue_dropped_packets_total{" in controller.http.get("/metrics").text,
        "the flooded frame is counted",
    )
    controller.put("/v1/switches/s1/ports/2", {"line_rate": "1Gbit"})
    controller.put("/v1/switches/s1/classes/video", {"rate": "5Mbit"})
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    queries = expressions(dashboard)
    used = {name for query in queries for name in re.findall(r"\bpacer_[a-z_]+", query)}
    assert len(used) > 15
    told = controller.http.get("/metrics").text
    offered: dict[str, set[str]] = {}
    for line in told.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([a-z_]+)(\{.*\})?", line).groups()  # type: ignore[union-attr]
            offered.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    assert used <= set(offered)
    for query in queries:
        for name, labels in re.findall(r"\b(pacer_[a-z_]+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)(?:=|!)", labels)) <= offered[name], query
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)

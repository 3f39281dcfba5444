"""Stock BMv2 as an edge switch: its command line, its errors, and a run where it is installed."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pacer_mininet import counters, paths
from pacer_mininet.bmv2_switch import BMv2PacerSwitch
from pacer_mininet.experiments import demo, demo_options, demo_runs
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.network import ScenarioTopo
from pacer_mininet.experiments.scenario import BMV2_PACED, OVS_PACED, PACED, Scenario, from_json
from pacer_mininet.pacing_switch import PacingSwitch
from pacer_mininet.runs import isolated

INSIDE = Path(__file__).with_name("bmv2_inside.py")
TIMEOUT_S = 120
FRAME_BYTES = 1518


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a simple_switch_grpc on PATH that fails, and shows its command line."""
    fake = tmp_path / "simple_switch_grpc"
    fake.write_text('#!/bin/sh\necho "started with $*"\nexit 3\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return fake


def test_without_bmv2_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(paths.MissingError, match=r"simple_switch_grpc is not on PATH: install"):
        BMv2PacerSwitch("s1")
    with pytest.raises(paths.MissingError, match="simple_switch_grpc is not on PATH"):
        demo._command(demo_options.options_of(["--edge", "bmv2"]))


def test_other_programs_than_pacer_are_refused(on_path: Path) -> None:
    assert on_path.exists()
    with pytest.raises(ValueError, match="program 'gtrcnet' is not one of pacer"):
        BMv2PacerSwitch("s1", program="gtrcnet")


def test_the_demo_scales_rates_and_window_but_not_the_rtt() -> None:
    options = demo_options.options_of(["--edge", "bmv2"])
    assert options.realtime
    experiment = demo_runs.experiments_of(options)[0]
    assert [cell.column for cell in experiment.cells][-1] == BMV2_PACED.name
    assert "scaled: 1/100" in experiment.title
    for cell in experiment.cells:
        path = cell.scenario
        assert (path.rate_bps, path.edge_rate_bps) == (5_000_000, 10_000_000)
        assert path.socket_buffer_bytes == 125_000
        assert path.rtt_ns == 200_000_000
        assert not cell.published
    (faster,) = demo_runs.experiments_of(
        demo_options.options_of(["--edge", "bmv2", "--rate", "20mbit"])
    )
    assert "scaled: 1/25" in faster.title
    with pytest.raises(ValueError, match="needs --edge bmv2"):
        demo_runs.experiments_of(demo_options.options_of(["--runs", "bmv2-paced"]))


def test_a_scenarios_network_has_bmv2_at_the_edge_only_and_sets_none_of_its_ports() -> None:
    scenario = Scenario(one_flow(BMV2_PACED))
    assert from_json(scenario.to_json()) == scenario
    topo = ScenarioTopo(scenario)
    assert topo.nodeInfo("edge1")["cls"] is BMv2PacerSwitch
    assert "cls" not in topo.nodeInfo("wan")
    for sender, receiver, info in topo.links(withInfo=True):
        ends = {info["node1"]: info.get("params1"), info["node2"]: info.get("params2")}
        assert not ends.get("edge1"), (sender, receiver)
    assert ScenarioTopo(Scenario(one_flow(PACED))).nodeInfo("edge1")["cls"] is PacingSwitch


def test_bmv2_is_the_one_edge_switch() -> None:
    with pytest.raises(ValueError, match="one edge switch of this kind"):
        Scenario(one_flow(BMV2_PACED), edges=2)
    with pytest.raises(ValueError, match="one edge switch of this kind"):
        Scenario((*one_flow(BMV2_PACED), *one_flow(OVS_PACED)))


def test_a_switch_that_measures_no_lateness_has_none() -> None:
    reading = {"ports": [], "traffic_manager": {"drops": {"hold-limit": 2}}}
    assert counters.lateness_between(reading, reading) is None
    assert counters.stalls_between(reading, reading) is None
    assert counters.drops_by_cause(reading) == {"hold-limit": 2}


# ---- in namespaces ----


def inside(*words: str, path: str | None = None) -> dict[str, Any]:
    """Run `bmv2_inside.py` in namespaces of its own; return its output."""
    if os.geteuid() != 0:
        pytest.skip("not run: stock BMv2 at the edge: needs root, to make network namespaces")
    probe = subprocess.run(isolated(["true"]), capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: stock BMv2 at the edge: no namespaces: {probe.stderr.strip()}")
    ended = subprocess.run(
        isolated([sys.executable, str(INSIDE), *words]),
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def test_its_command_line_names_ports_and_server_and_a_failure_ends_with_its_log(
    on_path: Path,
) -> None:
    said = inside("start", path=os.environ["PATH"])["error"]
    assert said.startswith("simple_switch_grpc ended with status 3")
    assert (
        "started with --no-p4 --log-level off -i 1@s1-eth1 -i 2@s1-eth2 "
        "-- --grpc-server-addr 127.0.0.1:" in said
    )
    assert "--cpu-port 510" in said


def test_a_port_setting_is_refused_with_where_to_put_it(on_path: Path) -> None:
    said = inside("start", "rate", "10mbit", path=os.environ["PATH"])["error"]
    assert said == (
        "s1-eth2: rate: BMv2's ports have no such setting; "
        "set it at the other end of the link, at a PacingSwitch"
    )


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """Send datagrams through a class of stock BMv2; return the arrivals."""
    try:
        paths.need_bmv2()
        paths.need_built(paths.CONTROLLER, "the controller")
        paths.need_programs("ip", "mnexec", "ethtool", "ping", "unshare")
    except paths.MissingError as error:
        pytest.skip(f"not run: stock BMv2 at the edge: {error}")
    return inside("run")


def test_all_packets_arrive_in_order(run: dict[str, Any]) -> None:
    assert run["received"] == list(range(run["sent"]))
    assert run["drops"].get("hold-limit", 0) == 0


def test_no_packet_is_early(run: dict[str, Any]) -> None:
    """Packet n leaves at least n gaps after the first can have come; to BMv2's microsecond."""
    gap_ns = FRAME_BYTES * 8 * 10**9 // run["rate_bps"]
    for number, at_ns in enumerate(run["at_ns"]):
        assert at_ns - run["sent_ns"] >= number * gap_ns - 1000


def test_a_burst_beyond_what_it_holds_is_counted(run: dict[str, Any]) -> None:
    burst = run["burst"]
    assert burst["received"] + burst["drops"] <= burst["sent"]
    assert burst["drops"] > 0


# ---- the comparison of edges ----


@pytest.fixture
def edges(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of tests/bench/edges.py."""
    bench = paths.REPO / "tests" / "bench"
    monkeypatch.syspath_prepend(str(bench))
    return runpy.run_path(str(bench / "edges.py"), run_name="edges")


def test_held_lost_and_waiting_packets_are_told_apart(edges: dict[str, Any]) -> None:
    entered = {b"a": 0, b"b": 10, b"lost": 20, b"c": 30, b"d": 500, b"still inside": 900}
    left = {b"a": 100, b"b": 200, b"c": 310, b"d": 510}
    assert edges["most_held"](entered, left) == 3
    assert edges["lost_between"](entered, left) == 1
    # `d` entered after `c` had left: it did not wait.
    assert edges["gap_errors_ns"](entered, left, 100, 0) == [0, 10]
    assert edges["gap_errors_ns"](entered, left, 100, 200) == [10]


def test_the_plot_of_a_run_is_the_same_each_time(edges: dict[str, Any], tmp_path: Path) -> None:
    figures = {"of_ideal": 0.9, "held_max": 40, "edge_lost": 0, "gaps": 9, "gap_us": 1200.0}
    errors = {"gap_error_p50_us": 50.0, "gap_error_p99_us": 900.0}
    rows = [
        {"edge": edge, "rate_bps": rate_bps, **figures, **errors}
        for edge in ("pacing_switch", "bmv2")
        for rate_bps in (1_000_000, 10_000_000)
    ]
    for name in ("one.svg", "two.svg"):
        edges["plot"](rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()

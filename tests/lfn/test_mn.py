"""`mn --custom mininet/lfn.py`: an error takes one line, and Mininet does not clean up.

Its clean-up kills processes of the whole machine by name and empties /tmp.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pacer_mininet import paths
from pacer_mininet.ovs_switch import installed_ovs
from pacer_mininet.runs import isolated
from pacer_mininet.topology import LfnTopo

LFN = paths.MININET_DIR / "lfn.py"
MN = "/usr/bin/mn"
TIMEOUT_S = 120
CLEAN_UP_TOOLS = ("killall", "pkill", "rm")

# `mn` without its tuning of the whole machine's limits.
RUN_MN = """
import os, runpy, socket, sys
import mininet.net
mininet.net.Mininet.inited = True
taken = socket.create_server(("127.0.0.1", 8080)) if os.environ.get("TAKE_8080") else None
if other := os.environ.get("OTHER_NETWORK"):
    os.system(f"ip link add {other} type veth peer name other")
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    left = [name for _, name in socket.if_nameindex() if "-eth" in name]
    print("left behind:", left, flush=True)
"""


@pytest.fixture(scope="module")
def lfn() -> dict[str, Any]:
    """Return the names of lfn.py, loaded as a file that is no module."""
    return runpy.run_path(str(LFN), run_name="custom")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"rate": "fast"}, "'fast' is not a rate"),
        ({"rtd": "5ms"}, "no parameter 'rtd' .did you mean 'rtt'"),
        ({"loss": "1"}, "it has rate, rtt, fifo, edge_rate"),
    ],
)
def test_a_wrong_parameter_of_the_topology_is_named(
    lfn: dict[str, Any], parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        LfnTopo(**parameters)
    with pytest.raises(SystemExit, match=said):
        lfn["topos"]["lfn"](**parameters)


def test_a_right_topology_has_two_hosts_and_three_switches(lfn: dict[str, Any]) -> None:
    topo = lfn["topos"]["lfn"](rate="10mbit", rtt="5ms", fifo="16KB", edge_rate="100mbit")
    assert sorted(topo.hosts()) == ["h1", "h2"]
    assert sorted(topo.switches()) == ["s1", "s2", "wan"]


def test_the_topology_wants_its_switch(lfn: dict[str, Any]) -> None:
    lfn["validate"](SimpleNamespace(topo="lfn,rtt=5ms", switch="pacing,spin=0ns", link="default"))
    lfn["validate"](SimpleNamespace(topo="single,3", switch="ovsk", link="tc,bw=10"))
    with pytest.raises(SystemExit, match="needs --switch pacing, not 'ovsk'"):
        lfn["validate"](SimpleNamespace(topo="lfn", switch="ovsk", link="default"))


def test_a_tc_link_is_refused_with_what_to_use(lfn: dict[str, Any]) -> None:
    for topo in ("lfn", "single,2"):
        options = SimpleNamespace(topo=topo, switch="pacing", link="tc,bw=10")
        with pytest.raises(SystemExit, match=r"--link tc: .*--topo lfn,rate="):
            lfn["validate"](options)


def test_without_a_controller_mn_takes_ours(lfn: dict[str, Any]) -> None:
    assert lfn["findController"]() is lfn["controllers"]["pacer"]


def mn(tmp_path: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `mn` in namespaces of its own, where tools of its clean-up only say that they ran."""
    if os.geteuid() != 0:
        pytest.skip("not run: mn's errors: needs root, to make network namespaces")
    if not Path(MN).exists():
        pytest.skip("not run: mn's errors: mininet is not installed: apt install mininet")
    probe = subprocess.run(isolated(["true"]), capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"not run: mn's errors: no namespaces here: {probe.stderr.strip()}")
    for tool in CLEAN_UP_TOOLS:
        (tmp_path / tool).write_text(f"#!/bin/sh\necho cleaning up: {tool} >&2\n")
        (tmp_path / tool).chmod(0o755)
    script = ["sh", "-ec", 'ip link set lo up && exec "$@"', "sh"]
    command = [sys.executable, "-c", RUN_MN, MN, "--custom", str(LFN), *options]
    return subprocess.run(
        isolated([*script, *command]),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def need_parts() -> None:
    """Skip, with a report, where the parts of a network are not built."""
    try:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        paths.need_built(paths.CONTROLLER, "the controller")
        paths.need_programs("ip", "mnexec", "ethtool", "unshare")
    except paths.MissingError as error:
        pytest.skip(f"not run: mn's errors: {error}")


LFN_OPTIONS = ("--topo", "lfn", "--switch", "pacing", "--controller", "pacer")


def check(ended: "subprocess.CompletedProcess[str]", said: str, left: str = "[]") -> None:
    """Check that it ended with that line, and with nothing but it."""
    output = ended.stdout + ended.stderr
    assert said in output
    assert ended.returncode == 1, output
    assert "leaning up" not in output
    assert "Traceback" not in output
    assert f"left behind: {left}" in output


def test_mn_names_a_wrong_rate(tmp_path: Path) -> None:
    check(mn(tmp_path, "--topo", "lfn,rate=fast", "--switch", "pacing"), "'fast' is not a rate")


def test_mn_names_an_unknown_parameter(tmp_path: Path) -> None:
    check(mn(tmp_path, "--topo", "lfn,rtd=5ms", "--switch", "pacing"), "did you mean 'rtt'")


def test_mn_names_a_controller_that_is_not_built(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-controller")
    ended = mn(tmp_path, *LFN_OPTIONS, PACER_CONTROLLER=missing)
    check(ended, f"the controller is not built (there is no {missing})")


def test_mn_names_a_taken_port(tmp_path: Path) -> None:
    need_parts()
    check(mn(tmp_path, *LFN_OPTIONS, TAKE_8080="1"), "TCP port 8080 of 127.0.0.1 is taken")


def test_mn_names_another_network_and_leaves_it_alone(tmp_path: Path) -> None:
    need_parts()
    options = ("--topo", "lfn", "--switch", "pacing", "--controller", "pacer,port=8081")
    ended = mn(tmp_path, *options, OTHER_NETWORK="s1-eth1")
    check(ended, "another network has a switch of this name", left="['s1-eth1']")


def test_mn_names_a_switch_that_does_not_start_and_takes_its_links_away(tmp_path: Path) -> None:
    need_parts()
    switch = tmp_path / "pacing_switch"
    switch.write_text("#!/bin/sh\necho no can do\nexit 3\n")
    switch.chmod(0o755)
    ended = mn(tmp_path, *LFN_OPTIONS, PACING_SWITCH=str(switch))
    check(ended, "*** pacing_switch ended with status 3")
    assert "no can do" in ended.stdout + ended.stderr


def without_rights(tmp_path: Path) -> str:
    """Return a pacing_switch that no real-time scheduling class is allowed to."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("not run: a refused real-time class: needs two processors")
    switch = tmp_path / "pacing_switch"
    drop = "setpriv --bounding-set -sys_nice --inh-caps -sys_nice"
    switch.write_text(f'#!/bin/sh\nexec prlimit --rtprio=0 {drop} {paths.SWITCH_BINARY} "$@"\n')
    switch.chmod(0o755)
    return str(switch)


SINGLE_OPTIONS = ("--topo", "single,2", "--controller", "pacer", "--wait", "--test", "pingall")


def test_mn_says_that_a_real_time_class_was_refused(tmp_path: Path) -> None:
    need_parts()
    switch = without_rights(tmp_path)
    ended = mn(tmp_path, *SINGLE_OPTIONS, "--switch", "pacing", PACING_SWITCH=switch)
    output = ended.stdout + ended.stderr
    assert "s1: no real-time scheduling class: other processes delay departures" in output
    assert "0% dropped (2/2 received)" in output
    # Nobody asks for it, nobody is told.
    options = (*SINGLE_OPTIONS, "--switch", "pacing,realtime=off")
    ended = mn(tmp_path, *options, PACING_SWITCH=switch)
    output = ended.stdout + ended.stderr
    assert "real-time" not in output
    assert "0% dropped (2/2 received)" in output


def test_mn_ends_without_a_real_time_class_that_must_be(tmp_path: Path) -> None:
    need_parts()
    switch = without_rights(tmp_path)
    options = (*SINGLE_OPTIONS, "--switch", "pacing,realtime=on")
    ended = mn(tmp_path, *options, PACING_SWITCH=switch)
    check(ended, "*** pacing_switch ended with status 1")
    assert "--realtime on: needs CAP_SYS_NICE" in ended.stdout + ended.stderr


def test_mn_names_a_wrong_real_time_setting(tmp_path: Path) -> None:
    need_parts()
    ended = mn(tmp_path, "--topo", "single,2", "--switch", "pacing,realtime=1")
    check(ended, "*** s1: realtime 1 is not one of auto, on, off")


QUEUED = """
from mininet.topo import Topo

class Queued(Topo):
    def build(self):
        h1, h2, s1 = self.addHost("h1"), self.addHost("h2"), self.addSwitch("s1")
        settings = {"rate": "100mbit", "queues": 2, "scheduler": "drr:3:1", "q1.rate": "10mbit"}
        self.addLink(h1, s1)
        self.addLink(s1, h2, params1=settings)

def show(net):
    net.pingAll()
    ports = net.controllers[0].rest.get("switches", "s1", "stats")["ports"]
    print("queues:", *(len(port["statistics"]["queues"]) for port in ports))

topos, tests = {"queued": Queued}, {"queued": show}
"""


def test_a_link_has_egress_queues_and_a_switch_further_options(tmp_path: Path) -> None:
    need_parts()
    custom, traces = tmp_path / "queued.py", tmp_path / "s1.json"
    custom.write_text(QUEUED)
    options = ("--custom", str(custom), "--topo", "queued", "--test", "queued", "--wait")
    switch = ("--controller", "pacer", "--switch", f"pacing,options=--packet-trace {traces}")
    ended = mn(tmp_path, *options, *switch)
    output = ended.stdout + ended.stderr
    assert "queues: 0 2" in output
    assert ended.returncode == 0, output
    assert json.loads(traces.read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('"ring": 1', "s1-eth2: ring: 1 is not 2 to 524288 frames"),
        ('"scheduler": "drr:3:1,fifo=1"', "s1-eth2: scheduler: 'drr:3:1,fifo=1' has a comma"),
        ('"q9.rate": "1mbit"', "q9"),
    ],
)
def test_mn_names_a_wrong_setting_of_a_link(tmp_path: Path, setting: str, said: str) -> None:
    need_parts()
    custom = tmp_path / "queued.py"
    custom.write_text(QUEUED.replace('"q1.rate": "10mbit"', setting))
    options = ("--custom", str(custom), "--topo", "queued", "--controller", "pacer")
    check(mn(tmp_path, *options, "--switch", "pacing", "--test", "none"), said)


def test_mn_names_a_controller_that_does_not_start(tmp_path: Path) -> None:
    need_parts()
    controller = tmp_path / "pacer-controller"
    controller.write_text("#!/bin/sh\necho no can do\nexit 3\n")
    controller.chmod(0o755)
    ended = mn(tmp_path, *LFN_OPTIONS, PACER_CONTROLLER=str(controller))
    check(ended, "*** pacer-controller ended with status 3")


def test_mn_makes_a_network_of_open_vswitch_in_the_controllers_hands(tmp_path: Path) -> None:
    need_parts()
    try:
        installed_ovs()
    except paths.MissingError as error:
        pytest.skip(f"not run: mn with Open vSwitch: {error}")
    options = ("--topo", "single,2", "--switch", "pacing_ovs", "--controller", "pacer")
    ended = mn(tmp_path, *options, "--wait", "--test", "pingall")
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "0% dropped (2/2 received)" in output
    assert "left behind: []" in output


def test_mn_names_bmv2_that_is_not_on_path(tmp_path: Path) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    without = [one for one in folders if not (Path(one) / "simple_switch_grpc").exists()]
    path = os.pathsep.join([str(tmp_path), *without])
    ended = mn(tmp_path, "--topo", "single,2", "--switch", "bmv2", PATH=path)
    check(ended, "*** simple_switch_grpc is not on PATH: install BMv2")


def test_mn_makes_a_network_of_stock_bmv2(tmp_path: Path) -> None:
    need_parts()
    try:
        paths.need_bmv2()
    except paths.MissingError as error:
        pytest.skip(f"not run: mn with stock BMv2: {error}")
    options = ("--topo", "single,2", "--switch", "bmv2", "--controller", "pacer")
    ended = mn(tmp_path, *options, "--wait", "--test", "pingall")
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "0% dropped (2/2 received)" in output
    assert "left behind: []" in output

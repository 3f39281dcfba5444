"""Open vSwitch with the pacer of `ovs-patches/`, as a Mininet switch and as the demo's edge.

    from pacer_mininet.ovs_switch import PacingOVSSwitch
    net = Mininet(topo, switch=PacingOVSSwitch, controller=None)

Each switch has an ovsdb-server and an ovs-vswitchd of its own, with their sockets and files in a
directory of its own: nothing of an Open vSwitch that the machine runs is touched. The datapath is
the one in user space, so that neither a kernel module nor Mininet's own OVSSwitch is needed.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mininet.link import Intf, TCIntf
from mininet.log import warn
from mininet.node import Controller, Switch
from mininet.topo import Topo

from pacer_mininet import paths, processors
from pacer_mininet.nodes import (
    COUNTS,
    NICENESS,
    START_TIMEOUT_S,
    LoggedProcess,
    NodeError,
    in_lab,
    quiet_ipv6,
    state_directory,
    turn_offloads_off,
)
from pacer_mininet.topology import LfnTopo
from pacer_mininet.units import parse_rate, parse_size

OVS_RUN_NAMES = ("ovs-meter", "ovs-paced")
"""The demo's runs that have Open vSwitch at the edge: stock Open vSwitch can meter, that is drop
what is over a rate; the patched one paces."""

COMMAND_TIMEOUT_S = 30
PACED_QUEUE = 1
PACED_LIMIT_BYTES = 32 << 20
"""More than the largest TCP window of the experiments, as for `pacing_switch`."""

_PACER_COUNTERS = {
    "queue-limit": "class-limit",
    "fifo-full": "fifo-full",
    "port-limit": "port-limit",
}
"""Causes of drops: from Open vSwitch's names to those in pacing_switch's statistics."""


class PacingOVSSwitch(Switch):  # type: ignore[misc] # mininet has no types
    """The patched Open vSwitch with one port per link, in the namespace that Mininet runs in.

    Parameters of the node: `fail_mode` (`standalone`, the default: a learning switch, or `secure`:
    nothing without flows), `log_dir`. Parameters of each of its interfaces, as of a PacingSwitch:
    `rate` (the line's), `counts` and `fifo`; an interface that has a rate gets a pacer with it.
    OpenFlow controllers of the net are told the switch in the usual way.

    Errors: MissingError when Open vSwitch or a tool is not there, ValueError for a parameter out of
    range, NodeError when a process does not start or refuses a command.
    """

    live: ClassVar[list["PacingOVSSwitch"]] = []
    """The switches of the net that have not been stopped."""

    def __init__(
        self,
        name: str,
        fail_mode: str = "standalone",
        log_dir: str | None = None,
        **params: Any,
    ) -> None:
        paths.need_programs("ethtool", "mnexec")
        if fail_mode not in ("standalone", "secure"):
            raise ValueError(f"{name}: fail_mode {fail_mode!r} is not standalone or secure")
        if params.get("inNamespace"):
            raise ValueError(f"{name}: a PacingOVSSwitch runs in Mininet's own namespace")
        self.installed = installed_ovs()
        super().__init__(name, **params)
        self.fail_mode = fail_mode
        self.directory = (Path(log_dir) if log_dir else state_directory()) / name
        self._processes: list[LoggedProcess] = []
        PacingOVSSwitch.live.append(self)

    # ---- commands ----

    def _run(self, program: str, *words: str) -> str:
        command = [str(self.installed / "bin" / program), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=self._env()
        )
        if done.returncode != 0:
            raise NodeError(f"{self.name}: {program} {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _env(self) -> dict[str, str]:
        private = {name: str(self.directory) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}
        return {**os.environ, **private}

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl on this switch; return what it printed. NodeError if it fails."""
        return self._run("ovs-vsctl", f"--db=unix:{self.directory}/db.sock", *words)

    def ofctl(self, command: str, *words: str) -> str:
        """Run an ovs-ofctl command (OpenFlow 1.3) on this switch; return what it printed."""
        bridge = f"unix:{self.directory}/{self.name}.mgmt"
        return self._run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *words)

    def appctl(self, *words: str) -> str:
        """Run ovs-appctl on this switch's ovs-vswitchd; return what it printed."""
        return self._run("ovs-appctl", "-t", f"{self.directory}/vswitchd.ctl", *words)

    # ---- life ----

    def data_interfaces(self) -> list[Intf]:
        """Return the interfaces that are ports (all but loopback), by port number."""
        return [self.intfs[port] for port in sorted(self.intfs) if self.intfs[port].name != "lo"]

    def _start_process(self, program: str, *words: str) -> None:
        command = ["env", *(f"{name}={self.directory}" for name in ("OVS_RUNDIR", "OVS_LOGDIR"))]
        command += [str(self.installed / "bin" / program), "-vconsole:info", *words]
        if program == "ovs-vswitchd" and not in_lab():
            # It is the network; hosts and the rest of the machine must not delay it.
            command = ["nice", "-n", str(NICENESS), *processors.for_pacing(), *command]
        process = LoggedProcess(
            command, self.directory / f"{program}.log", f"{program} (Open vSwitch)"
        )
        self._processes.append(process)
        process.wait_ready(START_TIMEOUT_S)

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start Open vSwitch, with a bridge that has all the interfaces."""
        interfaces = self.data_interfaces()
        for interface in interfaces:
            ends = (interface.link.intf1, interface.link.intf2) if interface.link else (interface,)
            for end in ends:
                # Or TCP never connects: the datapath takes packets as they are.
                turn_offloads_off(end)
            quiet_ipv6(interface)
        self.directory.mkdir(parents=True, exist_ok=True)
        database = self.directory / "conf.db"
        schema = self.installed / "share" / "vswitch.ovsschema"
        self._run("ovsdb-tool", "create", str(database), str(schema))
        self._start_process(
            "ovsdb-server",
            str(database),
            f"--remote=punix:{self.directory}/db.sock",
            f"--unixctl={self.directory}/ovsdb.ctl",
        )
        self.vsctl("--no-wait", "init")
        self._start_process(
            "ovs-vswitchd",
            f"unix:{self.directory}/db.sock",
            f"--unixctl={self.directory}/vswitchd.ctl",
        )
        bridge = ["--", "add-br", self.name, "--", "set", "bridge", self.name]
        bridge += ["datapath_type=netdev", f"fail_mode={self.fail_mode}"]
        if self.dpid:
            bridge += [f"other_config:datapath-id={int(self.dpid, 16):016x}"]
        for interface in interfaces:
            bridge += ["--", "add-port", self.name, interface.name]
            bridge += ["--", "set", "interface", interface.name]
            bridge += [f"ofport_request={self.ports[interface]}"]
        self.vsctl(*bridge)
        for interface in interfaces:
            self._set_line(interface)
        targets = [f"tcp:{controller.IP()}:{controller.port}" for controller in controllers]
        if targets and self.fail_mode == "secure":
            self.vsctl("set-controller", self.name, *targets)

    def _set_line(self, interface: Intf) -> None:
        """Give an interface that has a rate the line that its parameters describe."""
        if isinstance(interface, TCIntf):
            raise ValueError(f"{interface.name}: use Mininet's plain Link, not TCLink")
        rate = interface.params.get("rate")
        if rate is None:
            return
        counts = interface.params.get("counts", "wire")
        if counts not in COUNTS:
            raise ValueError(f"{interface.name}: counts={counts!r} is not one of {COUNTS}")
        line = [f"other_config:max-rate={parse_rate(rate)}", f"other_config:counts={counts}"]
        fifo = interface.params.get("fifo")
        if fifo is not None:
            line.append(f"other_config:limit={parse_size(fifo)}")
        self.vsctl(
            *("--id=@line", "create", "qos", "type=pacer", *line),
            *("--", "set", "port", interface.name, "qos=@line"),
        )
        self._check_refused(interface.name)

    def _check_refused(self, interface: str) -> None:
        """Raise NodeError with what Open vSwitch refused of an interface's QoS, if anything."""
        row = self.vsctl("get", "port", interface, "qos").strip()
        refused = self.vsctl("--if-exists", "get", "qos", row, f"status:{interface}").strip()
        if refused:
            raise NodeError(f"{self.name}: {interface}: {refused}")

    def pace(self, interface: str, queue: int, rate_bps: int, limit_bytes: int) -> None:
        """Pace what OpenFlow's set_queue puts into a queue of a port that has a line rate.

        Rates count layer-2 bytes with FCS. NodeError when a value is refused.
        """
        settings = [f"other_config:rate={rate_bps}", f"other_config:limit={limit_bytes}"]
        row = self.vsctl("get", "port", interface, "qos").strip()
        self.vsctl(
            *("--id=@queue", "create", "queue", *settings),
            *("--", "set", "qos", row, f"queues:{queue}=@queue"),
        )
        self._check_refused(interface)

    def statistics(self) -> dict[str, Any]:
        """Return what is counted, in the shape of pacing_switch's statistics: drops, lateness.

        A port without a rate has no pacer, so it counts nothing here. Of lateness only the greatest
        since the start is there.
        """
        ports = []
        for interface in self.data_interfaces():
            drops, late_ns, sent = dict.fromkeys(_PACER_COUNTERS.values(), 0), 0, 0
            if interface.params.get("rate") is not None:
                shown = self.appctl("dpif-netdev/pacer-show", interface.name)
                late_ns = _number(r"lateness: max (\d+)", shown)
                sent = _number(r"sent: (\d+)", shown)
                for name, cause in _PACER_COUNTERS.items():
                    drops[cause] = _number(rf"dropped:.*?{name} (\d+)", shown)
            buckets = [0] * late_ns.bit_length() + [sent]
            lateness = {"buckets": buckets, "max_ns": late_ns}
            number = self.ports[interface]
            ports.append({"port": number, "statistics": {"drops": drops, "lateness": lateness}})
        # A meter's own line begins with its duration; its bands' with what they dropped.
        bands = self.ofctl("meter-stats")
        metered = sum(int(n) for n in re.findall(r"^\s*\d+:\s*packet_count:(\d+)", bands, re.M))
        return {"now_ns": 0, "ports": ports, "traffic_manager": {"drops": {"meter": metered}}}

    def connected(self) -> bool:
        """Whether the switch works (for `mn --wait`)."""
        return bool(self._processes)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        """End the processes, by their ids: first ovs-vswitchd, then its database."""
        if self in PacingOVSSwitch.live:
            PacingOVSSwitch.live.remove(self)
        for process in reversed(self._processes):
            status = process.stop()
            if status not in (0, -15):
                warn(f"{self.name}: {process.log.stem} ended with status {status}\n")
        self._processes.clear()
        super().stop(deleteIntfs)


def _number(pattern: str, text: str) -> int:
    """Return the number that a pattern finds; NodeError if the text has none."""
    found = re.search(pattern, text)
    if found is None:
        raise NodeError(f"Open vSwitch's statistics have no {pattern!r}: {text}")
    return int(found[1])


def installed_ovs() -> Path:
    """Return where the patched Open vSwitch is; MissingError when it is not built."""
    chosen = os.environ.get("PACER_OVS")
    if chosen:
        return Path(chosen)
    built = subprocess.run(
        [str(paths.REPO / "ovs-patches" / "build"), "--print"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if built.returncode != 0:
        raise paths.MissingError(
            f"Open vSwitch with the pacer is not built: run `make ovs` in {paths.REPO}"
        )
    return Path(built.stdout.strip())


class OvsEdgeTopo(LfnTopo):
    """The long fat network with Open vSwitch as its edge switch s1."""

    def addSwitch(self, name: str, **options: Any) -> str:  # noqa: N802 (Mininet's name)
        """Add a switch; s1 is another one than the class that the net names."""
        if name == "s1":
            options = {"cls": PacingOVSSwitch}
        return str(Topo.addSwitch(self, name, **options))


def shape(
    edge: PacingOVSSwitch, run: str, interface: str, rate_bps: int, tcp_port: int
) -> dict[str, Any]:
    """Set up what a run with Open vSwitch at the edge is named after; return it as plain data.

    `rate_bps` counts layer-2 bytes with FCS.
    """
    match = f"priority=100,tcp,tp_dst={tcp_port}"
    if run == "ovs-paced":
        edge.pace(interface, PACED_QUEUE, rate_bps, PACED_LIMIT_BYTES)
        edge.ofctl("add-flow", f"{match},actions=set_queue:{PACED_QUEUE},normal")
        return {"kind": "Open vSwitch pacer", "at": edge.name, "rate_bps": rate_bps}
    # Meters count frames without FCS, in kbit/s.
    rate_kbps = rate_bps * 1514 // 1518 // 1000
    # A meter counts time in ms: with a burst of less than a ms its bucket is never filled again.
    burst_kbit = rate_kbps // 1000 + 1
    band = f"type=drop rate={rate_kbps} burst_size={burst_kbit}"
    edge.ofctl("add-meter", f"meter=1 kbps burst stats bands={band}")
    edge.ofctl("add-flow", f"{match},actions=meter:1,normal")
    return {
        "kind": "Open vSwitch meter",
        "at": edge.name,
        "rate_bps": rate_kbps * 1000,
        "burst_bytes": burst_kbit * 125,
    }

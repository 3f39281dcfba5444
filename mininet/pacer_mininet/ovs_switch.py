"""Open vSwitch with the pacer of `ovs-patches/`, as a Mininet switch.

    from pacer_mininet.ovs_switch import PacingOVSSwitch
    net = Mininet(topo, switch=PacingOVSSwitch, controller=PacerController)

The controller service writes its classes as paced queues, over OVSDB, and its flows and meters,
over OpenFlow. Without one (`controller=None`), `pace()` and `ofctl()` do that by hand.

Each switch runs its own ovsdb-server and ovs-vswitchd, with sockets and files in its own directory.
An Open vSwitch that the machine already runs is not touched. The datapath is the one in user space,
so neither a kernel module nor Mininet's own OVSSwitch is needed.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mininet.link import Intf
from mininet.node import Controller

from pacer_mininet import paths, processors
from pacer_mininet.controller import PacerController
from pacer_mininet.processes import NodeError
from pacer_mininet.settings import COUNTS, GAPS
from pacer_mininet.switches import NetworkSwitch
from pacer_mininet.units import parse_rate, parse_size

COMMAND_TIMEOUT_S = 30
LATENESS_BUCKETS = 32
"""As in lib/pacer.h of the patches (PACER_N_LATENESS)."""

_PACER_COUNTERS = {
    "queue-limit": "class-limit",
    "fifo-full": "fifo-full",
    "port-limit": "port-limit",
}
"""Causes of drops: from Open vSwitch's names to those in pacing_switch's statistics."""


class PacingOVSSwitch(NetworkSwitch):
    """The patched Open vSwitch with one port per link.

    Parameters of the node: `fail_mode` (`standalone`, the default: a learning switch; or `secure`:
    it forwards nothing without flows), `log_dir`. Parameters of each of its interfaces, as of a
    PacingSwitch: `rate` (the line's), `counts`, `fifo` and `gaps`. An interface with a rate gets a
    pacer. A PacerController of the net controls the switch. Any other controller is set as the
    bridge's OpenFlow controller.

    Errors: MissingError when Open vSwitch or a tool is not installed, ValueError for a parameter
    out of range, NodeError when a process does not start or refuses a command.
    """

    # ovs-vswitchd ends by SIGTERM (15) itself.
    clean_ends: ClassVar[tuple[int, ...]] = (0, -15)

    def __init__(self, name: str, fail_mode: str = "standalone", **params: Any) -> None:
        paths.need_programs("ss")
        if fail_mode not in ("standalone", "secure"):
            raise ValueError(f"{name}: fail_mode {fail_mode!r} is not standalone or secure")
        self.installed = installed_ovs()
        super().__init__(name, **params)
        self.fail_mode = fail_mode
        self.directory = self.log_dir / name

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
        """Run ovs-vsctl on this switch; return its output. NodeError if it fails."""
        return self._run("ovs-vsctl", f"--db=unix:{self.directory}/db.sock", *words)

    def ofctl(self, command: str, *words: str) -> str:
        """Run an ovs-ofctl command (OpenFlow 1.3) on this switch; return its output."""
        bridge = f"unix:{self.directory}/{self.name}.mgmt"
        return self._run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *words)

    def appctl(self, *words: str) -> str:
        """Run ovs-appctl on this switch's ovs-vswitchd; return its output."""
        return self._run("ovs-appctl", "-t", f"{self.directory}/vswitchd.ctl", *words)

    # ---- life ----

    def _start_process(self, program: str, *words: str) -> None:
        command = ["env", *(f"{name}={self.directory}" for name in ("OVS_RUNDIR", "OVS_LOGDIR"))]
        command += [str(self.installed / "bin" / program), "-vconsole:info", *words]
        if program == "ovs-vswitchd":
            command = processors.for_switch(command, paces=True)
        self.start_process(command, self.directory / f"{program}.log", f"{program} (Open vSwitch)")

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start Open vSwitch with a bridge of all the interfaces."""
        interfaces = self.prepare_interfaces()
        self.directory.mkdir(parents=True, exist_ok=True)
        database = self.directory / "conf.db"
        # An earlier start of the switch, or another net with the same directory, may have left one.
        database.unlink(missing_ok=True)
        schema = self.installed / "share" / "vswitch.ovsschema"
        self._run("ovsdb-tool", "create", str(database), str(schema))
        socket = f"{self.directory}/db.sock"
        unixctl = f"--unixctl={self.directory}"
        self._start_process(
            "ovsdb-server", str(database), f"--remote=punix:{socket}", f"{unixctl}/ovsdb.ctl"
        )
        self.vsctl("--no-wait", "init")
        self._start_process("ovs-vswitchd", f"unix:{socket}", f"{unixctl}/vswitchd.ctl")
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
        others = [one for one in controllers if not isinstance(one, PacerController)]
        if others:
            self.vsctl("set-controller", self.name, *(f"tcp:{c.IP()}:{c.port}" for c in others))
        self.register(controllers)

    def service_option(self) -> str:
        """Return the controller service's `--switch` option for this switch."""
        return f"{self.name}=unix:{self.directory}/db.sock,bridge={self.name},qos_type=pacer"

    def service_ports(self) -> dict[int, dict[str, Any]]:
        """Return the lines of the ports that have a rate: the service rewrites all QoS rows."""
        lines = ((self.ports[one], self._line(one)) for one in self.data_interfaces())
        return {port: line for port, line in lines if line is not None}

    def _line(self, interface: Intf) -> dict[str, Any] | None:
        """Return the port settings that an interface's parameters describe; None without a rate."""
        rate = interface.params.get("rate")
        if rate is None:
            return None
        counts = interface.params.get("counts", "wire")
        if counts not in COUNTS:
            raise ValueError(f"{interface.name}: counts={counts!r} is not one of {COUNTS}")
        gaps = interface.params.get("gaps", "accounted")
        if gaps not in GAPS:
            raise ValueError(f"{interface.name}: gaps={gaps!r} is not one of {GAPS}")
        fifo = interface.params.get("fifo")
        line = {"line_rate": parse_rate(rate), "counts": counts, "gap_mode": gaps}
        return line if fifo is None else {**line, "fifo_bytes": parse_size(fifo)}

    def _set_line(self, interface: Intf) -> None:
        """Give an interface with a rate the QoS row that its parameters describe."""
        described = self._line(interface)
        if described is None:
            return
        line = [f"other_config:max-rate={described['line_rate']}"]
        line.append(f"other_config:counts={described['counts']}")
        line.append(f"other_config:gaps={described['gap_mode']}")
        if "fifo_bytes" in described:
            line.append(f"other_config:limit={described['fifo_bytes']}")
        self.vsctl(
            *("--id=@line", "create", "qos", "type=pacer", *line),
            *("--", "set", "port", interface.name, "qos=@line"),
        )
        self._check_refused(interface.name)

    def _check_refused(self, interface: str) -> None:
        """Raise NodeError if Open vSwitch refused an interface's QoS; the text says what."""
        row = self.vsctl("get", "port", interface, "qos").strip()
        refused = self.vsctl("--if-exists", "get", "qos", row, f"status:{interface}").strip()
        if refused:
            raise NodeError(f"{self.name}: {interface}: {refused}")

    def pace(self, interface: str, queue: int, rate_bps: int, limit_bytes: int) -> None:
        """Pace a queue of a port that has a line rate; OpenFlow's set_queue puts packets into it.

        For nets without a PacerController: one would undo this change. Rates count layer-2 bytes
        with FCS. NodeError when Open vSwitch refuses a value.
        """
        settings = [f"other_config:rate={rate_bps}", f"other_config:limit={limit_bytes}"]
        row = self.vsctl("get", "port", interface, "qos").strip()
        self.vsctl(
            *("--id=@queue", "create", "queue", *settings),
            *("--", "set", "qos", row, f"queues:{queue}=@queue"),
        )
        self._check_refused(interface)

    def statistics(self) -> dict[str, Any]:
        """Return drops and lateness, in the shape of pacing_switch's statistics.

        A port without a rate has no pacer and counts only packets lost on arrival.
        """
        ports = []
        overflows = self._overflows()
        for interface in self.data_interfaces():
            drops = dict.fromkeys(_PACER_COUNTERS.values(), 0)
            drops["receive-buffer-full"] = overflows.get(interface.name, 0)
            lateness: dict[str, Any] = {"buckets": [], "max_ns": 0}
            if interface.params.get("rate") is not None:
                shown = self.appctl("dpif-netdev/pacer-show", interface.name)
                lateness = lateness_shown(shown)
                for name, cause in _PACER_COUNTERS.items():
                    drops[cause] = _number(rf"dropped:.*?{name} (\d+)", shown)
            number = self.ports[interface]
            ports.append({"port": number, "statistics": {"drops": drops, "lateness": lateness}})
        # A meter's own line begins with its duration, its bands' lines with their drops.
        bands = self.ofctl("meter-stats")
        metered = sum(int(n) for n in re.findall(r"^\s*\d+:\s*packet_count:(\d+)", bands, re.M))
        return {"now_ns": 0, "ports": ports, "traffic_manager": {"drops": {"meter": metered}}}

    def _overflows(self) -> dict[str, int]:
        """Return the packets that arrived at a full socket, by interface.

        Open vSwitch does not count them, and a busy machine loses bursts this way.
        """
        sockets = subprocess.run(
            ["ss", "--packet", "--numeric", "--memory", "--processes", "--no-header", "--oneline"],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=True,
        ).stdout
        found: dict[str, int] = {}
        for one in sockets.splitlines():
            overflow = re.search(r":(\S+) .*ovs-vswitchd.*skmem:\(.*,d(\d+)\)", one)
            if overflow is not None:
                found[overflow[1]] = found.get(overflow[1], 0) + int(overflow[2])
        return found


def lateness_shown(shown: str) -> dict[str, Any]:
    """Return the lateness in an answer of `pacer-show`, in the shape of pacing_switch's.

    Bucket 0 counts packets on time, bucket i those 2^(i-1) to 2^i - 1 ns late.
    """
    line = re.search(r"lateness: .*", shown)
    buckets = [0] * LATENESS_BUCKETS
    for from_ns, count in re.findall(r"(\d+) ns: (\d+)", line[0] if line else ""):
        buckets[int(from_ns).bit_length()] = int(count)
    return {"buckets": buckets, "max_ns": _number(r"lateness: max (\d+)", shown)}


def _number(pattern: str, text: str) -> int:
    """Return the number that a pattern finds; NodeError if it finds none."""
    found = re.search(pattern, text)
    if found is None:
        raise NodeError(f"Open vSwitch's statistics have no {pattern!r}: {text}")
    return int(found[1])


def installed_ovs() -> Path:
    """Return the directory of the patched Open vSwitch; MissingError when it is not built."""
    chosen = os.environ.get("PACER_OVS")
    if chosen:
        return Path(chosen)
    if not paths.IN_CHECKOUT:
        raise paths.MissingError(
            "Open vSwitch with the pacer is not part of the Debian packages: run `make ovs` in a "
            "checkout, and set PACER_OVS to the folder that it prints"
        )
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

"""Mininet nodes: a pacing_switch process as a Switch, the controller service as a Controller.

A link to a `PacingSwitch` is an ordinary Mininet link (a veth pair). What the wire is like (rate,
FIFO, delay) is the business of the switch's port, given as parameters of the interface:

    self.addLink("s1", "wan", params1={"rate": "1gbit", "fifo": "32MB"},
                              params2={"rate": "500mbit", "counts": "layer2", "delay": "100ms"})

so nothing here needs netem, another kernel module, or `TCLink`.
"""

import atexit
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from mininet.link import Intf, TCIntf
from mininet.log import info, warn
from mininet.net import Mininet
from mininet.node import Controller, Host, Switch
from mininet.node import Node as MininetNode
from mininet.topo import Topo

from pacer_mininet import offloads, paths, processors
from pacer_mininet.hosts import DirectIntf, write_settings
from pacer_mininet.namespaces import in_namespace_of
from pacer_mininet.rest import ControllerError, RestClient
from pacer_mininet.units import parse_duration, parse_rate, parse_size

PROGRAMS = ("pacer", "gtrcnet")
"""P4 programs that the controller can push to a switch."""

COUNTS = ("layer2", "wire")
GAPS = ("accounted", "pause-frames")
DEPARTURES = ("switch", "kernel")
RING_FRAMES_MIN, RING_FRAMES_MAX = 2, 1 << 19

CPU_PORT = 510
"""The port of packets to and from the controller, as pacer.p4 has it."""

REST_PORT = 8080
SOCKET_BUFFER_BYTES = 12_500_000
"""The talk's: the bytes that a 500 Mbit/s path of 200 ms holds."""

OPEN_FILES = 1024
NICENESS = -15
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
LOG_LINES_IN_ERRORS = 15


class NodeError(RuntimeError):
    """A node's process did not start, or died; the text ends with the end of its log."""


def free_tcp_port() -> int:
    """Return a TCP port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_in(node: MininetNode, *command: str) -> None:
    """Run a command in a node's namespace; NodeError with what it printed if it fails."""
    out, err, status = node.pexec(*command)
    if status != 0:
        raise NodeError(f"{node.name}: `{' '.join(command)}` failed: {(err or out).strip()}")


def turn_offloads_off(interface: Intf) -> None:
    """Make an interface carry packets as they would be on a wire; NodeError if it refuses.

    A userspace switch then sees packets of at most one MTU, and with checksums in them.
    """
    try:
        with in_namespace_of(interface.node.pid, socket.socket) as through:
            offloads.switch_off(through, interface.name)
    except OSError as error:
        raise NodeError(f"{interface.name}: its offloads cannot be switched off: {error}") from None


def departures_here() -> str:
    """Return who is to send frames when it is time, where both may: `switch` or `kernel`.

    In the lab each call of the switch is dear and the kernel's timers are exact. Elsewhere there
    may be no fq.
    """
    return "kernel" if in_lab() else "switch"


def time_departures(interface: Intf) -> None:
    """Give an interface the queueing discipline that sends frames at the times they come with."""
    discipline = ("fq", "limit", "40000", "flow_limit", "40000", "timer_slack", "0")
    run_in(interface.node, "tc", "qdisc", "replace", "dev", interface.name, "root", *discipline)


def quiet_ipv6(interface: Intf) -> None:
    """Keep the kernel from sending neighbour discovery of its own into the network.

    A kernel without IPv6 has nothing to keep quiet.
    """
    knob = Path("/proc/sys/net/ipv6/conf") / interface.name / "disable_ipv6"
    if knob.exists():
        knob.write_text("1\n")


class LoggedProcess:
    """A child process whose output goes to a log file and can be waited for, line by line."""

    def __init__(self, command: Sequence[str], log: Path, ready: str) -> None:
        """Start `command`; `ready` is what it prints when it can be used, `NAME: ready`."""
        self.command = list(command)
        self.log = log
        self._ready = ready
        self._seen_ready = threading.Event()
        self._ended = threading.Event()
        # A session of its own: Ctrl-C in the Mininet command line must not reach it.
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        atexit.register(self.stop)
        assert self.process.stdout is not None
        self._copier = threading.Thread(
            target=self._copy, args=(self.process.stdout,), name=f"log of {log.name}", daemon=True
        )
        self._copier.start()

    def _copy(self, source: IO[bytes]) -> None:
        with self.log.open("wb") as log:
            for line in source:
                log.write(line)
                log.flush()
                if self._ready.encode() in line:
                    self._seen_ready.set()
        self._ended.set()
        # Whoever waits for the ready line learns of the end the same way.
        self._seen_ready.set()

    def wait_ready(self, timeout_s: float) -> None:
        """Return when the ready line has come; NodeError if the process ends or takes too long."""
        # Not the command's first word, which may be `nice`.
        name = self._ready.partition(":")[0]
        in_time = self._seen_ready.wait(timeout_s)
        if self._ended.is_set():
            status = self.process.wait()
            raise NodeError(f"{name} ended with status {status}{self.log_end()}")
        if not in_time:
            self.stop()
            raise NodeError(f"{name} was not ready after {timeout_s:.0f} s{self.log_end()}")

    def log_end(self) -> str:
        """Return the end of the log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        if not lines:
            return f" and printed nothing (command: {' '.join(self.command)})"
        return f"; the end of {self.log}:\n" + "\n".join(lines[-LOG_LINES_IN_ERRORS:])

    def stop(self) -> int:
        """End the process, by its id, with SIGTERM or else SIGKILL; return its status."""
        atexit.unregister(self.stop)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            warn(f"{self.command[0]} ignored SIGTERM\n")
            self.process.kill()
            status = self.process.wait()
        self._copier.join(STOP_TIMEOUT_S)
        return status


def in_lab() -> bool:
    """Whether this is the virtual-time lab."""
    return os.environ.get("LAB") == "1"


def limit_open_files() -> None:
    """Lower the number of files a process may open to what Mininet itself asks for.

    `mnexec -c` closes every descriptor up to the limit, one system call each, for every node: with
    a limit of a million that is seconds per node, and in the lab minutes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft > OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))


def read_statistics(name: str, file: Path) -> dict[str, Any]:
    """Return what a switch left at its end; of one that died there may be nothing: {}, and a line.

    Args:
        name: the switch's, for the line.
        file: its statistics, JSON.

    """
    try:
        text = file.read_text()
        found = json.loads(text) if text.strip() else None
    except (OSError, ValueError) as error:
        warn(f"{name}: no statistics: {file} cannot be read ({error})\n")
        return {}
    if not isinstance(found, dict):
        what = "is empty" if found is None else "holds something else"
        warn(f"{name}: no statistics: {file} {what}; did the switch die?\n")
        return {}
    return found


def state_directory() -> Path:
    """Return a private directory for logs and statistics of this process's nodes."""
    global _state_directory
    if _state_directory is None:
        _state_directory = Path(tempfile.mkdtemp(prefix="pacer-"))
    return _state_directory


_state_directory: Path | None = None


def _ring(value: object) -> None:
    """Raise ValueError for what is no number of frames that a receive ring may hold."""
    try:
        frames = int(str(value))
    except ValueError:
        frames = 0
    if not RING_FRAMES_MIN <= frames <= RING_FRAMES_MAX:
        raise ValueError(f"{value!r} is not {RING_FRAMES_MIN} to {RING_FRAMES_MAX} frames")


def _one_of(names: tuple[str, ...]) -> Callable[[object], None]:
    """Return what raises ValueError for anything but these names."""

    def check(value: object) -> None:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}")

    return check


class PacingSwitch(Switch):  # type: ignore[misc] # mininet has no types
    """A pacing_switch process with one port per link, in the namespace that Mininet runs in.

    Parameters of the node: `program` (what the controller pushes: `pacer` or `gtrcnet`); for
    gtrcnet `wire` (pairs of ports that are connected) and `bottleneck` (rate of the virtual
    bottleneck that measures); `spin` (how long before a departure the process stops sleeping);
    `log_dir`. Parameters of each of its interfaces (`params1`/`params2` of `addLink`): `rate`,
    `counts` (`layer2` or `wire`), `fifo`, `delay`, `gaps` (`accounted` or `pause-frames`),
    `departures` (`switch`, or `kernel`: the interface gets the queueing discipline fq), `ring`
    (frames that may wait to be taken). All as on pacing_switch's command line, and with its
    defaults.

    Errors: MissingError when the binary or a tool is not there, ValueError for a parameter out of
    range, NodeError when the process does not start.
    """

    live: ClassVar[list["PacingSwitch"]] = []
    """The switches of the net that have not been stopped, started or not."""

    port_keys: ClassVar[dict[str, Any]] = {
        "rate": parse_rate,
        "counts": _one_of(COUNTS),
        "fifo": parse_size,
        "delay": parse_duration,
        "gaps": _one_of(GAPS),
        "departures": _one_of(DEPARTURES),
        "ring": _ring,
    }

    def __init__(
        self,
        name: str,
        program: str = "pacer",
        wire: Sequence[str] = ("1:2",),
        bottleneck: str | None = None,
        spin: str | None = None,
        log_dir: str | None = None,
        dpid: str | None = None,
        **params: Any,
    ) -> None:
        paths.need_programs("mnexec")
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        if program not in PROGRAMS:
            raise ValueError(f"{name}: program {program!r} is not one of {', '.join(PROGRAMS)}")
        if params.get("inNamespace"):
            raise ValueError(f"{name}: a PacingSwitch runs in Mininet's own namespace")
        # Mininet wants a number in a switch's name or a dpid; P4Runtime has device ids instead.
        if dpid is None and not any(character.isdigit() for character in name):
            dpid = f"{int.from_bytes(name.encode()[:8], 'big'):x}"
        super().__init__(name, dpid=dpid, **params)
        self.program = program
        self.wire = list(wire)
        self.bottleneck = bottleneck
        # In the lab time stands still while a process spins, and nothing is ever late.
        self.spin = "0ns" if in_lab() else spin
        self.log_dir = Path(log_dir) if log_dir else state_directory()
        self.grpc_address = ""
        self.statistics: dict[str, Any] = {}
        self._process: LoggedProcess | None = None
        self._controllers: list[PacerController] = []
        PacingSwitch.live.append(self)

    @property
    def stats_file(self) -> Path:
        """Where the process leaves its statistics at its end."""
        return self.log_dir / f"{self.name}-statistics.json"

    def port_option(self, interface: Intf) -> str:
        """Return `PORT@IFACE,key=value...` for an interface, its parameters checked."""
        if isinstance(interface, TCIntf):
            raise ValueError(
                f"{interface.name}: a PacingSwitch makes rate and delay itself; "
                "use Mininet's plain Link, not TCLink (with mn: no --link tc)"
            )
        words = [f"{self.ports[interface]}@{interface.name}"]
        for key, parse in self.port_keys.items():
            value = interface.params.get(key)
            if value is None:
                continue
            try:
                parse(value)
            except ValueError as error:
                raise ValueError(f"{interface.name}: {key}: {error}") from None
            words.append(f"{key}={value}")
        return ",".join(words)

    def data_interfaces(self) -> list[Intf]:
        """Return the interfaces that are ports (all but loopback), by port number."""
        return [self.intfs[port] for port in sorted(self.intfs) if self.intfs[port].name != "lo"]

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start the process, wait until it can be used, and tell the controllers of it."""
        interfaces = self.data_interfaces()
        for interface in interfaces:
            ends = (interface.link.intf1, interface.link.intf2) if interface.link else (interface,)
            for end in ends:
                turn_offloads_off(end)
            quiet_ipv6(interface)
            if interface.params.get("departures") == "kernel":
                time_departures(interface)
        self.grpc_address = f"127.0.0.1:{free_tcp_port()}"
        command = [str(paths.SWITCH_BINARY), "--grpc-server-addr", self.grpc_address]
        command += ["--cpu-port", str(CPU_PORT), "--stats-file", str(self.stats_file)]
        if self.spin is not None:
            command += ["--spin", self.spin]
        if not in_lab():
            # The switches are the network; hosts and the rest of the machine must not delay it.
            command = ["nice", "-n", str(NICENESS), *command]
            if self.spin != "0ns":
                command = [*processors.for_pacing(), *command]
        for interface in interfaces:
            command += ["-i", self.port_option(interface)]
        process = LoggedProcess(command, self.log, "pacing_switch: ready")
        process.wait_ready(START_TIMEOUT_S)
        self._process = process
        self._controllers = [c for c in controllers if isinstance(c, PacerController)]
        for controller in self._controllers:
            controller.register(self)
        if not self._controllers:
            warn(f"{self.name} forwards nothing without a program: use the controller `pacer`\n")

    def connected(self) -> bool:
        """Whether the switch is in its controller's hands (for `mn --wait`)."""
        return all(controller.is_connected(self.name) for controller in self._controllers)

    def service_option(self) -> str:
        """Return the controller service's `--switch` option for this switch."""
        words = [f"{self.name}={self.grpc_address}", f"program={self.program}"]
        words.append(f"cpu_port={CPU_PORT}")
        if self.program == "gtrcnet":
            words += [f"wire={pair}" for pair in self.wire]
            if self.bottleneck is not None:
                words.append(f"bottleneck={self.bottleneck}")
        return ",".join(words)

    def service_ports(self) -> dict[int, dict[str, Any]]:
        """Return nothing: the process has its ports' lines from its command line."""
        return {}

    @property
    def log(self) -> Path:
        """Where the process's messages are."""
        return self.log_dir / f"{self.name}.log"

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        """End the process, by its id, and read its statistics into `statistics`."""
        if self in PacingSwitch.live:
            PacingSwitch.live.remove(self)
        for controller in self._controllers:
            controller.unregister(self)
        if self._process is not None:
            status = self._process.stop()
            if status != 0:
                warn(f"{self.name}: pacing_switch ended with status {status}\n")
            self._process = None
            if self.stats_file.exists():
                self.statistics = read_statistics(self.name, self.stats_file)
        super().stop(deleteIntfs)


class ServedSwitch(Protocol):
    """A switch that the controller service can have in its hands."""

    name: str

    def service_option(self) -> str:
        """Return the service's `--switch` option for it."""

    def service_ports(self) -> dict[int, dict[str, Any]]:
        """Return what the service has to be told of its ports, by number, as REST has it."""


class PacerController(Controller):  # type: ignore[misc] # mininet has no types
    """The controller service, with the net's PacingSwitches and PacingOVSSwitches as its switches.

    It starts when the first switch has, and again when another one comes: its switches are named
    on its command line, and its desired state is in a file that outlives it. `rest` talks to it.

    Errors: MissingError when it is not installed, ValueError for a port out of range, NodeError
    when its port is taken, when it does not start or does not bring a switch up.
    """

    def __init__(
        self, name: str, port: int = REST_PORT, log_dir: str | None = None, **params: Any
    ) -> None:
        paths.need_built(paths.CONTROLLER, "the controller")
        if not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"{name}: port {port!r} is not a TCP port, 1 to 65535")
        params.pop("ip", None)
        self.log_dir = Path(log_dir) if log_dir else state_directory()
        self._service: LoggedProcess | None = None
        self._switches: dict[str, ServedSwitch] = {}
        super().__init__(name, port=port, **params)
        self.rest = RestClient("127.0.0.1", port)

    def checkListening(self) -> None:  # noqa: N802 (Mininet's name)
        """Make sure that the port is free; NodeError naming it if it is not.

        Mininet's own way to find out needs telnet.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                raise NodeError(
                    f"{self.name}: TCP port {self.port} of 127.0.0.1 is taken; another one: "
                    "--controller pacer,port=8081"
                ) from None

    def start(self) -> None:
        """Do nothing yet: see `register`."""

    def register(self, switch: ServedSwitch) -> None:
        """Take a started switch into service; with the last one of the net, start the service.

        Returns then when every switch has its program and its entries.
        """
        self._switches[switch.name] = switch
        if all(other.name in self._switches for other in PacingSwitch.live):
            self._serve()

    def unregister(self, switch: ServedSwitch) -> None:
        """Forget a switch that stops; the service goes on and waits for it in vain."""
        self._switches.pop(switch.name, None)

    def _serve(self) -> None:
        """Start the service, anew if it runs, and wait until all switches are in its hands."""
        self.stop_service()
        command = [str(paths.CONTROLLER), "--listen", f"127.0.0.1:{self.port}"]
        command += ["--state", str(self.log_dir / f"{self.name}.sqlite")]
        for switch in self._switches.values():
            command += ["--switch", switch.service_option()]
        log = self.log_dir / f"{self.name}.log"
        self._service = LoggedProcess(command, log, "pacer-controller: ready")
        self._service.wait_ready(START_TIMEOUT_S)
        try:
            self.rest.wait_until(self._all_connected, START_TIMEOUT_S, "the switches are not up")
        except ControllerError as error:
            raise NodeError(f"{self.name}: {error}{self._service.log_end()}") from error
        for switch in self._switches.values():
            for port, settings in switch.service_ports().items():
                self.rest.put("switches", switch.name, "ports", str(port), body=settings)
        info(f"\n*** Dashboard: http://127.0.0.1:{self.port}/  Logs: {self.log_dir}\n")

    def _all_connected(self) -> bool:
        if self._service is not None and self._service.process.poll() is not None:
            raise NodeError(f"{self.name}: pacer-controller ended{self._service.log_end()}")
        health = self.rest.request("GET", "/healthz")
        return bool(health["connected"] == len(self._switches))

    def is_connected(self, switch: str) -> bool:
        """Whether the service has a switch in its hands."""
        return bool(self.rest.get("switches", switch)["state"] == "connected")

    def stop_service(self) -> None:
        """End the service, if it runs, by its id."""
        if self._service is not None:
            self._service.stop()
            self._service = None

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """End the service and the node."""
        self.stop_service()
        MininetNode.stop(self, *args, **kwargs)


class LfnHost(Host):  # type: ignore[misc] # mininet has no types
    """A host at the end of a long fat network.

    `socket_buffer_bytes` is the TCP window that it grants and uses: the kernel takes half of a
    buffer for its own bookkeeping, so the buffers are twice that. Offloads are off, so that
    packets are packets; IPv6 is off, so that nothing but the experiment's packets is sent.
    """

    def config(self, socket_buffer_bytes: int = SOCKET_BUFFER_BYTES, **params: Any) -> Any:
        """Configure the host; HostError when a setting is refused."""
        result = super().config(**params)
        both = f"4096 {2 * socket_buffer_bytes} {2 * socket_buffer_bytes}"
        # A kernel without IPv6 has nothing to switch off.
        quiet = {"net.ipv6.conf.all.disable_ipv6": "1"}
        write_settings(self, quiet, ignore_absent=True)
        write_settings(self, {"net.ipv4.tcp_rmem": both, "net.ipv4.tcp_wmem": both})
        for interface in self.intfList():
            if interface.name != "lo":
                turn_offloads_off(interface)
        return result


@contextmanager
def started(topo: Topo, *others: Sequence[Switch]) -> Iterator[Mininet]:
    """Build a network of pacing switches and start it; its processes end with the block.

    Args:
        topo: its topology.
        others: lists of live switches of other kinds, to be stopped as well.

    """
    limit_open_files()
    # Mininet's own preparation sets limits of the whole machine; all that is needed is set here.
    Mininet.inited = True
    net = Mininet(
        topo=topo,
        switch=PacingSwitch,
        controller=PacerController,
        intf=DirectIntf,
        autoSetMacs=True,
        build=False,
    )
    try:
        net.build()
        net.start()
        yield net
    finally:
        # Mininet takes links down first; the switches would complain of it.
        for live in (PacingSwitch.live, *others):
            for switch in list(live):
                switch.stop(deleteIntfs=False)
        net.stop()

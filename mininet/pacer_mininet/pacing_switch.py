"""A pacing_switch process as a Mininet switch: its parameters become the process's options.

A link to a `PacingSwitch` is an ordinary Mininet link (a veth pair). The switch's port sets rate,
FIFO and delay of the wire, from parameters of the interface:

    self.addLink("s1", "wan", params1={"rate": "1gbit", "fifo": "32MB"},
                              params2={"rate": "500mbit", "counts": "layer2", "delay": "100ms"})

so no netem, no other kernel module, and no `TCLink` is needed.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from mininet.link import Intf
from mininet.log import warn
from mininet.node import Controller

from pacer_mininet import paths, processors
from pacer_mininet.interfaces import send_at_departure_times
from pacer_mininet.lab import in_lab
from pacer_mininet.processes import free_tcp_port
from pacer_mininet.switches import COUNTS, GAPS, NetworkSwitch
from pacer_mininet.units import parse_duration, parse_rate, parse_size

PROGRAMS = ("pacer", "gtrcnet")
"""P4 programs that the controller can push to a switch."""

DEPARTURES = ("switch", "kernel")
RING_FRAMES_MIN, RING_FRAMES_MAX = 2, 1 << 19

CPU_PORT = 510
"""The port of packets to and from the controller, as in pacer.p4."""


def _ring(value: object) -> None:
    """Raise ValueError unless the value is a number of frames that a receive ring can hold."""
    try:
        frames = int(str(value))
    except ValueError:
        frames = 0
    if not RING_FRAMES_MIN <= frames <= RING_FRAMES_MAX:
        raise ValueError(f"{value!r} is not {RING_FRAMES_MIN} to {RING_FRAMES_MAX} frames")


def _one_of(names: tuple[str, ...]) -> Callable[[object], None]:
    """Return a function that raises ValueError for any other value than these names."""

    def check(value: object) -> None:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}")

    return check


class PacingSwitch(NetworkSwitch):
    """A pacing_switch process.

    Parameters of the node: `program` (the P4 program that the controller pushes: `pacer` or
    `gtrcnet`); for gtrcnet `wire` (pairs of connected ports) and `bottleneck` (rate of the virtual
    bottleneck that measures); `spin` (how long before a departure the process stops sleeping);
    `log_dir`. Parameters of each of its interfaces (`params1`/`params2` of `addLink`): `rate`,
    `counts` (`layer2` or `wire`), `fifo`, `delay`, `gaps` (`accounted` or `pause-frames`),
    `departures` (`switch`, or `kernel`: the interface gets the queueing discipline fq), `ring`
    (frames that the receive ring holds). They mean the same as on pacing_switch's command line and
    have its defaults.

    Errors: MissingError when the binary or a tool is not installed, ValueError for a parameter out
    of range, NodeError when the process does not start.
    """

    port_keys: ClassVar[dict[str, Callable[[object], object]]] = {
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
        **params: Any,
    ) -> None:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        if program not in PROGRAMS:
            raise ValueError(f"{name}: program {program!r} is not one of {', '.join(PROGRAMS)}")
        # Mininet wants a number in a switch's name, or a dpid. P4Runtime has device ids instead.
        if params.get("dpid") is None and not any(character.isdigit() for character in name):
            params["dpid"] = f"{int.from_bytes(name.encode()[:8], 'big'):x}"
        super().__init__(name, **params)
        self.program = program
        self.wire = list(wire)
        self.bottleneck = bottleneck
        # In the lab time stands still while a process spins, and nothing is ever late.
        self.spin = "0ns" if in_lab() else spin
        self.grpc_address = ""

    def port_option(self, interface: Intf) -> str:
        """Return `PORT@IFACE,key=value...` for an interface; ValueError for a bad parameter."""
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

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start the process, wait until it is ready, and register it with the controllers."""
        interfaces = self.prepare_interfaces()
        self.grpc_address = f"127.0.0.1:{free_tcp_port()}"
        command = [str(paths.SWITCH_BINARY), "--grpc-server-addr", self.grpc_address]
        statistics = self.log_dir / f"{self.name}-statistics.json"
        command += ["--cpu-port", str(CPU_PORT), "--stats-file", str(statistics)]
        if self.spin is not None:
            command += ["--spin", self.spin]
        for interface in interfaces:
            command += ["-i", self.port_option(interface)]
            if interface.params.get("departures") == "kernel":
                send_at_departure_times(interface)
        log = self.log_dir / f"{self.name}.log"
        command = processors.for_switch(command, paces=self.spin != "0ns")
        self.start_process(command, log, "pacing_switch: ready")
        self.register(controllers)
        if not self.services:
            warn(f"{self.name} forwards nothing without a program: use --controller pacer\n")

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
        """Return nothing: the process has its port settings from its command line."""
        return {}

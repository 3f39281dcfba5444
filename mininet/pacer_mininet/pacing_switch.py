"""A pacing_switch process as a Mininet switch: its parameters become the process's options.

A link to a `PacingSwitch` is an ordinary Mininet link (a veth pair). The switch's port sets rate,
FIFO and delay of the wire, from parameters of the interface:

    self.addLink("s1", "wan", params1={"rate": "1gbit", "fifo": "32MB"},
                              params2={"rate": "500mbit", "counts": "layer2", "delay": "100ms"})

so no netem, no other kernel module, and no `TCLink` is needed.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from mininet.link import Intf
from mininet.log import warn
from mininet.node import Controller

from pacer_mininet import paths
from pacer_mininet.interfaces import send_at_departure_times
from pacer_mininet.lab import in_lab
from pacer_mininet.p4runtime_switch import CPU_PORT, P4RuntimeSwitch
from pacer_mininet.settings import COUNTS, GAPS
from pacer_mininet.units import parse_duration, parse_rate, parse_size

DEPARTURES = ("switch", "kernel")
REALTIME = ("auto", "on", "off")
NOT_REALTIME = "no real-time scheduling class"
"""The beginning of what the process says when it asked for one and was refused."""
RING_FRAMES_MIN, RING_FRAMES_MAX = 2, 1 << 19


def _ring(value: object) -> None:
    """Raise ValueError unless the value is a number of frames that a receive ring can hold."""
    try:
        frames = int(str(value))
    except ValueError:
        frames = 0
    if not RING_FRAMES_MIN <= frames <= RING_FRAMES_MAX:
        raise ValueError(f"{value!r} is not {RING_FRAMES_MIN} to {RING_FRAMES_MAX} frames")


def _any(value: object) -> None:
    """Raise ValueError if the value has a comma, which would begin another setting."""
    if "," in str(value):
        raise ValueError(f"{value!r} has a comma")


def _one_of(names: tuple[str, ...]) -> Callable[[object], None]:
    """Return a function that raises ValueError for any other value than these names."""

    def check(value: object) -> None:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}")

    return check


class PacingSwitch(P4RuntimeSwitch):
    """A pacing_switch process.

    Parameters of the node: `program` (the P4 program that the controller pushes: `pacer`,
    `gtrcnet`, or the path of a compiled one); for gtrcnet `wire` (pairs of connected ports) and
    `bottleneck` (rate of the virtual bottleneck that measures); `by_request` (whether a request
    adds it to the controller, so that another one may change its bottleneck); `spin` (how long
    before a departure the process stops sleeping); `realtime` (whether its pacing thread has a
    real-time scheduling class: `auto`, `on`, `off`); `options` (further options of the process, as
    on a command line: `--thrift-port 9090`); `log_dir`. Parameters of each of its
    interfaces (`params1`/`params2` of `addLink`): `rate`, `counts` (`layer2` or `wire`), `fifo`,
    `delay`, `gaps` (`accounted` or `pause-frames`), `departures` (`switch`, or `kernel`: the
    interface gets the queueing discipline fq), `ring` (frames that the receive ring holds),
    `offload`, and those of egress queues: `queues`, `scheduler`, `buffer`, `aqm`, `q7.rate` and so
    on. They mean the same as on pacing_switch's command line and have its defaults. Hosts leave
    their offloads on.

    Errors: MissingError when the binary or a tool is not installed, ValueError for a parameter out
    of range, NodeError when the process does not start.
    """

    takes_offloads = True
    programs: ClassVar[tuple[str, ...]] = ("pacer", "gtrcnet")
    port_keys: ClassVar[dict[str, Callable[[object], object]]] = {
        "rate": parse_rate,
        "counts": _one_of(COUNTS),
        "fifo": parse_size,
        "delay": parse_duration,
        "gaps": _one_of(GAPS),
        "departures": _one_of(DEPARTURES),
        "ring": _ring,
        "offload": _one_of(("on", "off")),
        **dict.fromkeys(("queues", "scheduler", "buffer", "aqm"), _any),
    }
    queue_key = re.compile(r"q\d+\.[a-z]+")
    """The settings of one queue. The process checks them and those of all queues."""

    def __init__(
        self,
        name: str,
        wire: Sequence[str] = ("1:2",),
        bottleneck: str | None = None,
        spin: str | None = None,
        realtime: str = "auto",
        options: str = "",
        by_request: bool = False,
        **params: Any,
    ) -> None:
        paths.need_built(paths.SWITCH_BINARY, "pacing_switch")
        if realtime not in REALTIME:
            raise ValueError(f"{name}: realtime {realtime!r} is not one of {', '.join(REALTIME)}")
        super().__init__(name, **params)
        self.wire = list(wire)
        self.bottleneck = bottleneck
        self.by_request = by_request
        # In the lab time stands still while a process spins, and nothing is ever late.
        self.spin = "0ns" if in_lab() else spin
        self.realtime = realtime
        self.options = shlex.split(options)

    @classmethod
    def settings_of(cls, interface: Intf) -> dict[str, object]:
        """Return those parameters of an interface that are settings of a port, by their keys."""
        keys = [*cls.port_keys, *sorted(filter(cls.queue_key.fullmatch, interface.params))]
        values = {key: interface.params.get(key) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def port_option(self, interface: Intf) -> str:
        """Return `PORT@IFACE,key=value...` for an interface; ValueError for a bad parameter."""
        words = [f"{self.ports[interface]}@{interface.name}"]
        for key, value in self.settings_of(interface).items():
            try:
                self.port_keys.get(key, _any)(value)
            except ValueError as error:
                raise ValueError(f"{interface.name}: {key}: {error}") from None
            words.append(f"{key}={value}")
        return ",".join(words)

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start the process, wait until it is ready, and register it with the controllers.

        Warns if the process asked for a real-time scheduling class and was refused.
        """
        interfaces = self.prepare_interfaces()
        command = [str(paths.SWITCH_BINARY), *self.grpc_options()]
        command += ["--stats-file", str(self.log_dir / f"{self.name}-statistics.json")]
        if not in_lab():
            command += ["--realtime", self.realtime]
        if self.spin is not None:
            command += ["--spin", self.spin]
        command += self.options
        for interface in interfaces:
            command += ["-i", self.port_option(interface)]
            if interface.params.get("departures") == "kernel":
                send_at_departure_times(interface)
        self.serve(command, "pacing_switch: ready", controllers, paces=self.spin != "0ns")
        refused = self.processes[-1].line_with(NOT_REALTIME)
        if refused:
            warn(f"{self.name}: {refused.removeprefix('pacing_switch: ')}\n")

    def service_words(self) -> list[str]:
        """Return the parts of the controller service's `--switch` option for this switch."""
        words = super().service_words()
        if self.program == "gtrcnet":
            words += [f"wire={pair}" for pair in self.wire]
            if self.bottleneck is not None:
                words.append(f"bottleneck={self.bottleneck}")
        return words

    def service_request(self) -> dict[str, Any] | None:
        """Return its settings if a request adds it to the controller service."""
        if not self.by_request:
            return None
        own = {"wire": self.wire, "bottleneck": self.bottleneck}
        given = {"address": self.grpc_address, "program": self.program, "cpu_port": CPU_PORT}
        return given | (own if self.program == "gtrcnet" else {})

"""The common base of the switches that the controller reaches over P4Runtime."""

from collections.abc import Sequence
from typing import Any, ClassVar

from mininet.log import warn
from mininet.node import Controller

from pacer_mininet import processors
from pacer_mininet.processes import free_tcp_port
from pacer_mininet.switches import NetworkSwitch

CPU_PORT = 510
"""The port of packets to and from the controller, as in pacer.p4."""


class P4RuntimeSwitch(NetworkSwitch):
    """A process with a P4Runtime server, to which the controller pushes a program.

    Parameters of the node: `program` (one of `programs`, or the path of a compiled one, a JSON file
    with its P4Info beside it), `log_dir`.
    """

    programs: ClassVar[tuple[str, ...]] = ()
    """P4 programs that the controller can push to it."""

    def __init__(self, name: str, program: str = "pacer", **params: Any) -> None:
        if program not in self.programs and "/" not in program:
            raise ValueError(
                f"{name}: program {program!r} is not one of {', '.join(self.programs)}"
            )
        # Mininet wants a number in a switch's name, or a dpid. P4Runtime has device ids instead.
        if params.get("dpid") is None and not any(character.isdigit() for character in name):
            params["dpid"] = f"{int.from_bytes(name.encode()[:8], 'big'):x}"
        super().__init__(name, **params)
        self.program = program
        self.grpc_address = ""

    def serve(
        self,
        command: list[str],
        ready: str,
        controllers: Sequence[Controller],
        *,
        paces: bool,
        name: str = "",
    ) -> None:
        """Start the process, wait until it is ready, and register it with the controllers."""
        log = self.log_dir / f"{self.name}.log"
        self.start_process(processors.for_switch(command, paces=paces), log, ready, name)
        self.register(controllers)
        if not self.services:
            warn(f"{self.name} forwards nothing without a program: use --controller pacer\n")

    def grpc_options(self) -> list[str]:
        """Return the options of the P4Runtime server, with a new address."""
        self.grpc_address = f"127.0.0.1:{free_tcp_port()}"
        return ["--grpc-server-addr", self.grpc_address, "--cpu-port", str(CPU_PORT)]

    def service_words(self) -> list[str]:
        """Return the parts of the controller service's `--switch` option for this switch."""
        address = f"{self.name}={self.grpc_address}"
        return [address, f"program={self.program}", f"cpu_port={CPU_PORT}"]

    def service_option(self) -> str:
        """Return the controller service's `--switch` option for this switch."""
        return ",".join(self.service_words())

    def service_ports(self) -> dict[int, dict[str, Any]]:
        """Return nothing: the process has its port settings, if any, from its command line."""
        return {}

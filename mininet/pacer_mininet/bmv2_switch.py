"""Stock BMv2 with pacer.p4 as a Mininet switch.

    from pacer_mininet.bmv2_switch import BMv2PacerSwitch
    net = Mininet(topo, switch=BMv2PacerSwitch, controller=PacerController)

The program is the one for BMv2 (`p4src/compiled/bmv2`), which holds packets by recirculating them;
docs/bmv2.md has its limits. `simple_switch_grpc` from PATH runs it.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from mininet.link import Intf
from mininet.node import Controller

from pacer_mininet import paths
from pacer_mininet.counters import program_drops
from pacer_mininet.p4runtime_switch import P4RuntimeSwitch
from pacer_mininet.pacing_switch import PacingSwitch

PROGRAM = "simple_switch_grpc"
TARGET = "bmv2"
"""The controller's name for the programs that are compiled for BMv2."""


class BMv2PacerSwitch(P4RuntimeSwitch):
    """A simple_switch_grpc process.

    Parameters of the node: `log_dir`. Its interfaces have none: BMv2's ports have neither rate nor
    FIFO nor delay. Set these at the other end of a link, at a PacingSwitch.

    Errors: MissingError when simple_switch_grpc or a tool is not on PATH, ValueError for a
    parameter that BMv2 does not have, NodeError when the process does not start.
    """

    programs: ClassVar[tuple[str, ...]] = ("pacer",)
    # simple_switch_grpc ends by SIGTERM (15) itself.
    clean_ends: ClassVar[tuple[int, ...]] = (0, -15)

    def __init__(self, name: str, **params: Any) -> None:
        paths.need_bmv2()
        # Its output is buffered otherwise, and the ready line stays unseen.
        paths.need_programs("stdbuf")
        super().__init__(name, **params)

    def port_option(self, interface: Intf) -> str:
        """Return `PORT@IFACE` for an interface; ValueError if it has a parameter of a port."""
        for key in PacingSwitch.settings_of(interface):
            raise ValueError(
                f"{interface.name}: {key}: BMv2's ports have no such setting; "
                "set it at the other end of the link, at a PacingSwitch"
            )
        return f"{self.ports[interface]}@{interface.name}"

    def start(self, controllers: Sequence[Controller]) -> None:
        """Start the process, wait until it is ready, and register it with the controllers."""
        ports = [self.port_option(interface) for interface in self.prepare_interfaces()]
        command = ["stdbuf", "--output=L", PROGRAM, "--no-p4", "--log-level", "off"]
        for port in ports:
            command += ["-i", port]
        command += ["--", *self.grpc_options()]
        self.serve(command, "Server listening on", controllers, paces=True, name=PROGRAM)

    def service_words(self) -> list[str]:
        """Return the parts of the controller service's `--switch` option for this switch."""
        # simple_switch_grpc does not list its ports.
        ports = "+".join(str(self.ports[interface]) for interface in self.data_interfaces())
        return [*super().service_words(), f"target={TARGET}", f"ports={ports}"]

    def statistics(self) -> dict[str, Any]:
        """Return the program's counted drops, in the shape of pacing_switch's statistics.

        BMv2 counts neither the drops of its queues nor the lateness of packets.
        """
        (service,) = self.services
        drops = program_drops(service.rest, self.name)
        return {"now_ns": 0, "ports": [], "traffic_manager": {"drops": drops}}

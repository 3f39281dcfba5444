"""The controller service as a Mininet controller: when it starts, and which switches it serves."""

import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from mininet.log import info
from mininet.node import Controller
from mininet.node import Node as MininetNode
from pacing_switch.processes import START_TIMEOUT_S

from pacer_mininet import paths
from pacer_mininet.processes import STATE, NodeError, NodeProcess
from pacer_mininet.rest import ControllerError, RestClient

REST_PORT = 8080


class ServedSwitch(Protocol):
    """A switch that the controller service can control."""

    name: str

    def service_option(self) -> str:
        """Return the service's `--switch` option for it."""

    def service_request(self) -> dict[str, Any] | None:
        """Return its settings if a request adds it to the service; None: the option does."""

    def service_ports(self) -> dict[int, dict[str, Any]]:
        """Return the port settings that the service must send, by port number, as in REST."""

    def end(self) -> None:
        """End its processes."""


class PacerController(Controller):  # type: ignore[misc] # mininet has no types
    """The controller service, with the net's PacingSwitches and PacingOVSSwitches as its switches.

    The service starts once all switches of the net have started. When a switch starts again later,
    the service is restarted, because its command line names the switches. Its desired state is in a
    file that survives the restart. `rest` is a client of its REST interface.

    Attributes: `service_options`, further options of the service. Without history the controller
    reads nothing during a measurement that the measurement did not ask for.

    Errors: MissingError when it is not installed, ValueError for a port out of range, NodeError
    when its port is taken, when it does not start or cannot connect to a switch.
    """

    service_options: tuple[str, ...] = ("--no-history",)

    def __init__(
        self, name: str, port: int = REST_PORT, log_dir: str | None = None, **params: Any
    ) -> None:
        paths.need_built(paths.CONTROLLER, "the controller")
        if not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"{name}: port {port!r} is not a TCP port, 1 to 65535")
        params.pop("ip", None)
        self.log_dir = Path(log_dir) if log_dir else STATE.path
        self._service: NodeProcess | None = None
        self._switches: dict[str, ServedSwitch] = {}
        super().__init__(name, port=port, **params)
        self.rest = RestClient("127.0.0.1", port)

    def checkListening(self) -> None:  # noqa: N802 (Mininet's name)
        """Raise NodeError if the port is taken.

        Mininet's own check needs telnet.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                raise NodeError(
                    f"{self.name}: TCP port {self.port} of 127.0.0.1 is taken. If another network "
                    "runs, end it first; else use another port: --controller pacer,port=8081"
                ) from None

    def start(self) -> None:
        """Do nothing: the service starts in `register`."""

    def register(self, switch: ServedSwitch, expected: Collection[str]) -> None:
        """Take over a switch that has started; start the service once all `expected` ones have.

        Then it returns when every switch has its program and its entries.
        """
        self._switches[switch.name] = switch
        if self._switches.keys() >= set(expected):
            self._serve()

    def unregister(self, switch: ServedSwitch) -> None:
        """Forget a switch that stops. A running service keeps trying to reach it."""
        self._switches.pop(switch.name, None)

    def _serve(self) -> None:
        """Start or restart the service and wait until it controls all switches."""
        self.stop_service()
        command = [str(paths.CONTROLLER), "--listen", f"127.0.0.1:{self.port}"]
        command += ["--state", str(self.log_dir / f"{self.name}.sqlite")]
        command += self.service_options
        requests = {name: one.service_request() for name, one in self._switches.items()}
        for switch in self._switches.values():
            if requests[switch.name] is None:
                command += ["--switch", switch.service_option()]
        log = self.log_dir / f"{self.name}.log"
        self._service = NodeProcess(command, log, "pacer-controller: ready")
        self._service.wait_ready()
        for name, settings in requests.items():
            if settings is not None:
                self.rest.put("switches", name, body=settings)
        try:
            self.rest.wait_until(self._all_connected, START_TIMEOUT_S, "switches are not connected")
        except ControllerError as error:
            raise self._service.error(f"{self.name}: {error}") from error
        for switch in self._switches.values():
            for port, settings in switch.service_ports().items():
                self.rest.put("switches", switch.name, "ports", str(port), body=settings)
        info(f"\n*** Dashboard: http://127.0.0.1:{self.port}/  Logs: {self.log_dir}\n")

    def _all_connected(self) -> bool:
        if self._service is not None and self._service.process.poll() is not None:
            raise self._service.error(f"{self.name}: pacer-controller ended")
        health = self.rest.request("GET", "/healthz")
        return bool(health["connected"] == len(self._switches))

    def is_connected(self, switch: str) -> bool:
        """Whether the service is connected to a switch."""
        return bool(self.rest.get("switches", switch)["state"] == "connected")

    def stop_service(self) -> None:
        """End the service if it runs."""
        if self._service is not None:
            self._service.stop()
            self._service = None

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """End the service, its switches' processes and the node.

        Mininet takes the links down next. A switch that still ran would report that as a failure.
        """
        self.stop_service()
        for switch in self._switches.values():
            switch.end()
        MininetNode.stop(self, *args, **kwargs)

"""Client of the switch's own gRPC service, `pacer.v1.TrafficManager`: ports and statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from pacer_controller import egress_queues
from pacer_controller.fields import NO_LINE_RATE
from pacer_controller.southbound import PortInfo
from pacer_controller.switch_services import call

CLASSES_PER_REQUEST = 4096
"""Most classes of one GetStatistics request."""

_TIMEOUT_S = 5.0
_SERVICE = "TrafficManager"


@dataclass(frozen=True)
class Primary:
    """The P4Runtime primary controller that requests a change.

    Attributes:
        device_id: the device id of the switch.
        election_id: the election id of the primary controller, 0 to 2^128 - 1.
        role: the role of the controller; empty: the default role.

    """

    device_id: int
    election_id: int
    role: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of a request that identify it."""
        high, low = divmod(self.election_id, 1 << 64)
        election_id = {"high": high, "low": low}
        return {"device_id": self.device_id, "role": self.role, "election_id": election_id}


class TrafficManager:
    """One switch's traffic manager, on a connection to the switch.

    Args:
        channel: the connection, which P4Runtime can use, too; the caller closes it.

    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    @property
    def channel(self) -> grpc.aio.Channel:
        """The connection, for other services of the switch."""
        return self._channel

    async def _call(self, method: str, **fields: Any) -> Any:
        return await call(self._channel, _SERVICE, method, _TIMEOUT_S, **fields)

    async def ports(self) -> list[PortInfo]:
        """Return the switch's ports, by number.

        Raises:
            ServiceUnavailableError: no answer, or no such service.

        """
        response = await self._call("ListPorts")
        return [_port_info(port) for port in response.ports]

    async def set_port(
        self, port: int, settings: Mapping[str, int | str], primary: Primary
    ) -> PortInfo:
        """Change settings of a port, as the primary controller.

        Those are `line_rate_bps` (0: none), `counts`, `fifo_bytes`, `delay_ns`, `gap_mode`,
        `gap_frame_max_bytes` (only beside `gap_mode` "pause-frames"), `egress_queues` (as
        `egress_queues.text` writes them).

        Returns:
            The port after the change.

        Raises:
            ServiceUnavailableError: no answer, no such service, or refused; another
                controller is primary.

        """
        fields: dict[str, Any] = {"port": port, **settings, **primary.fields()}
        if "counts" in fields:
            fields["counts"] = _COUNTS[fields["counts"]]
        if "gap_mode" in fields:
            fields["gap_mode"] = _GAP_MODES[fields["gap_mode"]]
        if fields.get("line_rate_bps") == NO_LINE_RATE:
            del fields["line_rate_bps"]
            fields["remove_line_rate"] = True
        if "egress_queues" in fields:
            queues = egress_queues.read(fields.pop("egress_queues"))
            if queues is None:
                fields["remove_egress_queues"] = True
            else:
                fields["egress_queues"] = egress_queues.message(queues)
        response = await self._call("SetPort", **fields)
        return _port_info(response.port)

    async def statistics(self, classes: Sequence[int]) -> dict[str, Any]:
        """Return the traffic manager's statistics in JSON form.

        Members: `switch` (totals, with the switch's clock `now_ns`), `ports` (a list, with drops
        by cause and lateness), `classes` (state by class index, for the classes asked for).

        Raises:
            ServiceUnavailableError: no answer, or no such service.

        """
        states: dict[int, dict[str, Any]] = {}
        totals: dict[str, Any] = {}
        # Each answer has the totals, even if it is about no classes.
        for start in range(0, max(1, len(classes)), CLASSES_PER_REQUEST):
            chunk = list(classes[start : start + CLASSES_PER_REQUEST])
            response = await self._call("GetStatistics", class_ids=chunk)
            states |= {state.class_id: _plain(state) for state in response.classes}
            totals = totals or {
                "switch": _plain(response.switch),
                "ports": [_plain(port) for port in response.ports],
            }
        return totals | {"classes": states}


_COUNTS = {"layer2": 1, "wire": 2}
_GAP_MODES = {"accounted": 1, "pause-frames": 2}


def _port_info(port: Any) -> PortInfo:
    return PortInfo(
        port=port.port,
        interface=port.interface,
        up=port.up,
        line_rate_bps=port.line_rate_bps if port.HasField("line_rate_bps") else None,
        counts=_name_of(port.counts, _COUNTS),
        fifo_bytes=port.fifo_bytes,
        delay_ns=port.delay_ns,
        gap_mode=_name_of(port.gap_mode, _GAP_MODES),
        gap_frame_max_bytes=port.gap_frame_max_bytes or None,
        egress_queues=_queues(port.egress_queues) if port.HasField("egress_queues") else None,
    )


def _queues(message: Any) -> dict[str, Any]:
    settings = [
        {field.name: value for field, value in one.ListFields()} for one in message.settings
    ]
    numbers = {field.name: value for field, value in message.ListFields()}
    # A number 0 is left out of the fields.
    return egress_queues.plain({**numbers, "settings": [{"queue": 0, **one} for one in settings]})


def _name_of(number: int, numbers: Mapping[str, int]) -> str | None:
    """Return the name of an enumeration's value; None when there is none."""
    return next((name for name, known in numbers.items() if known == number), None)


def _plain(message: Any) -> dict[str, Any]:
    """Return a message as plain values, zeros included; counts by cause become {cause: n}."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            plain[field.name] = list(value) if _is_list(value) else value
        elif field.message_type.name == "DropCount":
            plain[field.name] = {drop.cause: drop.packets for drop in value}
        elif field.message_type.name == "RefusalCount":
            plain[field.name] = {refusal.cause: refusal.count for refusal in value}
        elif _is_list(value):
            plain[field.name] = [_plain(item) for item in value]
        else:
            plain[field.name] = _plain(value)
    return plain


def _is_list(value: object) -> bool:
    return not isinstance(value, (str, bytes, int, bool, float)) and hasattr(value, "__len__")

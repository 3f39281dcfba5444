"""The whole desired state as one document, and the settings of switches."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from pacer_controller.fields import NAME_PATTERN, Name, PortNumber, Rate, Strict, examples
from pacer_controller.measured import MAX_MEASURED_FLOWS, MeasuredFlowSpec
from pacer_controller.schemas import ClassSpec, FlowSpec, MeterSpec, PortSpec

PortKey = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,2})$", max_length=3)]


class P4RuntimeSpec(Strict):
    """A switch that speaks P4Runtime."""

    model_config = examples({"address": "127.0.0.1:9559"})

    kind: Literal["p4runtime"] = "p4runtime"
    address: str = Field(max_length=260, description="HOST:PORT of its gRPC server; tls:HOST:PORT.")
    device_id: int = Field(default=0, ge=0, le=2**64 - 1, description="P4Runtime device id.")
    target: Literal["pacing_switch", "bmv2"] = Field(
        default="pacing_switch", description="Whose flavour of the program."
    )
    program: Literal["pacer", "gtrcnet"] = Field(default="pacer", description="P4 program.")
    cpu_port: PortNumber | Literal[510] = Field(
        default=510, description="Port number of packets to the controller."
    )
    ports: str | list[PortNumber] | None = Field(
        default=None, description='Ports, such as "1-4", for a switch that cannot list its own.'
    )
    wire: list[str] | None = Field(
        default=None, description='gtrcnet: pairs of ports it connects, such as "1:2".'
    )
    bottleneck: Rate | None = Field(
        default=None, description="gtrcnet: rate of the virtual bottleneck."
    )
    stations: dict[str, PortNumber] | None = Field(
        default=None, description="Port by MAC address, for stations that never move."
    )
    measured: dict[Name, MeasuredFlowSpec] | None = Field(
        default=None,
        max_length=MAX_MEASURED_FLOWS,
        json_schema_extra={"propertyNames": {"pattern": NAME_PATTERN}},
        description="gtrcnet: flows that are measured on their own.",
    )


class OpenVSwitchSpec(Strict):
    """A bridge of Open vSwitch."""

    model_config = examples(
        {"kind": "openvswitch", "ovsdb": "unix:/run/openvswitch/db.sock", "bridge": "br0"}
    )

    kind: Literal["openvswitch"]
    ovsdb: str = Field(max_length=260, description="unix:PATH or tcp:HOST:PORT of its database.")
    bridge: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    openflow: str | None = Field(
        default=None,
        max_length=260,
        description="unix:PATH or tcp:HOST:PORT where the bridge takes OpenFlow. Default: its "
        "management socket, beside the database's.",
    )
    qos_type: Literal["auto", "linux-htb", "pacer"] = Field(
        default="auto",
        description="Type of QoS rows: `pacer` is the patched Open vSwitch's; `auto` means `pacer` "
        "where the switch has it, else `linux-htb`.",
    )


P4RUNTIME, OPENVSWITCH = "p4runtime", "openvswitch"


def _kind(value: object) -> str:
    kind: Any = value.get("kind", P4RUNTIME) if isinstance(value, dict) else None
    if kind is None:
        kind = getattr(value, "kind", P4RUNTIME)
    return OPENVSWITCH if kind == OPENVSWITCH else P4RUNTIME


SwitchSpec = Annotated[
    Annotated[P4RuntimeSpec, Tag(P4RUNTIME)] | Annotated[OpenVSwitchSpec, Tag(OPENVSWITCH)],
    Discriminator(_kind),
]


class SwitchStateSpec(Strict):
    """The desired state of one switch."""

    ports: dict[PortKey, PortSpec] = Field(default={}, description="By port number.")
    classes: dict[Name, ClassSpec] = Field(default={})
    meters: dict[Name, MeterSpec] = Field(default={})
    flows: dict[Name, FlowSpec] = Field(default={})


class FullSwitchSpec(SwitchStateSpec):
    """A switch and its desired state."""

    switch: SwitchSpec | None = Field(
        default=None, description="Where it is; may be left out when the switch is there already."
    )


class StateSpec(Strict):
    """The desired state of all switches."""

    model_config = examples(
        {
            "switches": {
                "s1": {
                    "classes": {"video": {"rate": "500Mbit"}},
                    "flows": {"web": {"match": {"dst_port": 80}, "class": "video"}},
                }
            }
        }
    )

    switches: dict[Name, FullSwitchSpec] = Field(
        json_schema_extra={"propertyNames": {"pattern": NAME_PATTERN}}
    )

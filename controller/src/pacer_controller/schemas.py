"""The resources, as clients write them and as they are stored.

Every field's meaning, unit, range and default stands in its description, which is also what the
OpenAPI page shows. Checks that need one field are made while reading it; checks across fields
are in `ClassSpec.problems` and `FlowSpec.problems`; checks against other resources and the
switch are in `service`.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from pacer_controller import rates
from pacer_controller.problems import FieldError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

FRAME_BYTES_MAX = 1522
"""Largest tagged Ethernet frame with FCS: a class that queues less can never send one."""

DEFAULT_LIMIT_BYTES = 32 * 1024 * 1024
"""A class queues a whole TCP window when the window exceeds rate times path delay. 32 MiB is
twice the 12.5 MB that a 500 Mbit/s, 200 ms path needs, with room for the kernel's doubling."""

DEFAULT_PRIORITY = 1000
MAX_PRIORITY = 1_000_000

MIN_BURST_BYTES = FRAME_BYTES_MAX
MAX_BURST_BYTES = 2**32 - 1

ETHER_TYPE_IPV4 = 0x0800
ETHER_TYPE_IPV6 = 0x86DD

_ETHER_TYPES = {"ipv4": ETHER_TYPE_IPV4, "ipv6": ETHER_TYPE_IPV6, "arp": 0x0806}
_PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}
_PORT_PROTOCOLS = (6, 17)

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_PREFIX_SHAPE = re.compile(r"[0-9A-Fa-f.:]{2,45}(?:/[0-9]{1,3})?", re.ASCII)


class _Strict(BaseModel):
    """Base: unknown fields are errors, nothing is coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


def _refuse(message: str, expected: str) -> PydanticCustomError:
    """Make the error that carries its own "what would be right"."""
    return PydanticCustomError(
        "pacer_value", "{message}", {"message": message, "expected": expected}
    )


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _read_rate(value: object) -> int:
    try:
        return rates.parse_rate(value)
    except rates.RateError as error:
        raise _refuse(str(error), error.expected) from None


_PREFIX_EXPECTED = 'an IPv4 or IPv6 address or prefix, such as "10.0.0.0/8" or "2001:db8::1"'


def _read_prefix(value: object) -> str:
    """Return the prefix in its canonical form, always with a length."""
    if not isinstance(value, str) or _PREFIX_SHAPE.fullmatch(value) is None:
        raise _refuse(f"{_show(value)} is not an address or prefix", _PREFIX_EXPECTED)
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise _refuse(f"{_show(value)} is not an address or prefix", _PREFIX_EXPECTED) from None
    address = ipaddress.ip_address(value.partition("/")[0])
    if address != network.network_address:
        raise _refuse(f"{value!r} has bits set beyond its prefix length", f'"{network}"')
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        ipv4 = ipaddress.IPv4Address(int(network.network_address) & 0xFFFFFFFF)
        raise _refuse(
            f"{value!r} is an IPv4 address written as IPv6", f'"{ipv4}/{network.prefixlen - 96}"'
        )
    return str(network)


def _read_choice(
    names: dict[str, int], top: int, what: str, expected: str
) -> Callable[[object], int]:
    """Make a reader of a number 0..top that may also be given by name or as "0x..." text."""

    def read(value: object) -> int:
        if isinstance(value, str):
            lowered = value.lower()
            if lowered in names:
                return names[lowered]
            if re.fullmatch(r"0x[0-9a-f]{1,4}", lowered, re.ASCII):
                value = int(lowered, 16)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= top:
            raise _refuse(f"{_show(value)} is not {what}", expected)
        return value

    return read


def _protocol_name(number: int) -> str | int:
    return _PROTOCOL_NAMES.get(number, number)


def _hexadecimal(number: int) -> str:
    return f"0x{number:04x}"


Rate = Annotated[
    int,
    BeforeValidator(_read_rate),
    PlainSerializer(rates.format_rate, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rates.RATE_PATTERN},
                {
                    "type": "integer",
                    "minimum": rates.MIN_RATE_BPS,
                    "maximum": rates.MAX_RATE_BPS,
                },
            ],
            "examples": ["500Mbit", "62.5MB/s", "8kbit", 500_000_000],
        }
    ),
]

Prefix = Annotated[
    str,
    BeforeValidator(_read_prefix),
    WithJsonSchema({"type": "string", "examples": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"]}),
]

Protocol = Annotated[
    int,
    BeforeValidator(
        _read_choice(
            _PROTOCOLS, 255, "an IP protocol", '"tcp", "udp", "icmp", "icmpv6" or 0 to 255'
        )
    ),
    PlainSerializer(_protocol_name, return_type=str | int, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": list(_PROTOCOLS)},
                {"type": "integer", "minimum": 0, "maximum": 255},
            ],
            "examples": ["tcp"],
        }
    ),
]

EtherType = Annotated[
    int,
    BeforeValidator(
        _read_choice(
            _ETHER_TYPES,
            0xFFFF,
            "an EtherType",
            '"ipv4", "ipv6", "arp", a string such as "0x0800", or 0 to 65535',
        )
    ),
    PlainSerializer(_hexadecimal, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^(ipv4|ipv6|arp|0x[0-9A-Fa-f]{1,4})$"},
                {"type": "integer", "minimum": 0, "maximum": 0xFFFF},
            ],
            "examples": ["ipv4"],
        }
    ),
]

PortNumber = Annotated[int, Field(ge=1, le=509)]
TransportPort = Annotated[int, Field(ge=1, le=65535)]
Dscp = Annotated[int, Field(ge=0, le=63)]

LimitBytes = Annotated[
    int,
    Field(
        ge=FRAME_BYTES_MAX,
        le=2**32 - 1,
        description="Most bytes (layer 2 with FCS) the class queues before it drops arrivals.",
    ),
]

AllowanceNs = Annotated[
    int | None,
    Field(
        ge=0,
        le=3_600_000_000_000,
        description="Lost time in ns that the class makes up after a stall of the switch. "
        "Default: the time of 1518 bytes at the class's rate.",
    ),
]


class ClassSpec(_Strict):
    """A class of packets: how they are spaced."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"rate": "500Mbit"}, {"mode": "static", "rate": "62.5MB/s", "port": 2}]
        }
    )

    mode: Literal["static", "unpaced"] = Field(
        default="static",
        description="`static`: packets leave at the target rate. `unpaced`: they take what the "
        "paced classes leave.",
    )
    rate: Rate | None = Field(
        default=None,
        description="Target rate; layer-2 bytes with FCS count. Needed in mode `static`. "
        "8kbit to 100Gbit.",
    )
    limit_bytes: LimitBytes = DEFAULT_LIMIT_BYTES
    allowance_ns: AllowanceNs = None
    port: PortNumber | None = Field(
        default=None,
        description="Port the class leaves by, if it is only one: the rate may not be above that "
        "port's line rate. Without it, the fastest port with a line rate counts.",
    )

    def problems(self) -> list[FieldError]:
        """Return what is wrong across fields."""
        if self.mode == "static" and self.rate is None:
            return [FieldError("rate", "a static class needs a rate", rates.EXPECTED)]
        if self.mode == "unpaced" and self.rate is not None:
            return [
                FieldError(
                    "rate",
                    "an unpaced class has no rate",
                    'no rate, or mode "static"',
                )
            ]
        return []


class MatchSpec(_Strict):
    """Which packets belong to a flow; a field that is not given matches anything."""

    ingress_port: PortNumber | None = Field(default=None, description="Port the packet came in by.")
    ether_type: EtherType | None = Field(
        default=None, description="EtherType, behind the VLAN tag if there is one."
    )
    vlan: int | None = Field(
        default=None, ge=0, le=4094, description="VLAN id; 0 matches packets without a tag."
    )
    src: Prefix | None = Field(default=None, description="Source address or prefix.")
    dst: Prefix | None = Field(default=None, description="Destination address or prefix.")
    dscp: Dscp | None = Field(
        default=None, description="DSCP of the IP header (0 matches non-IP too)."
    )
    protocol: Protocol | None = Field(
        default=None, description="IP protocol (IPv6: the first next header)."
    )
    src_port: TransportPort | None = Field(default=None, description="TCP or UDP source port.")
    dst_port: TransportPort | None = Field(default=None, description="TCP or UDP destination port.")

    def family(self) -> int | None:
        """Return 4 or 6 when an address says so."""
        for prefix in (self.src, self.dst):
            if prefix is not None:
                return ipaddress.ip_network(prefix).version
        return None

    def problems(self) -> list[FieldError]:
        """Return what is wrong across fields."""
        found: list[FieldError] = []
        family = self.family()
        if self.src is not None and self.dst is not None:
            other = ipaddress.ip_network(self.dst).version
            if other != family:
                found.append(
                    FieldError(
                        "match.dst",
                        f"{self.dst!r} is IPv{other} but match.src is IPv{family}",
                        f"an IPv{family} prefix",
                    )
                )
        wanted = {4: ETHER_TYPE_IPV4, 6: ETHER_TYPE_IPV6}.get(family or 0)
        if wanted is not None and self.ether_type not in (None, wanted):
            found.append(
                FieldError(
                    "match.ether_type",
                    f"the addresses are IPv{family}, whose EtherType is 0x{wanted:04x}",
                    f'"0x{wanted:04x}", or no ether_type',
                )
            )
        for name, port in (("src_port", self.src_port), ("dst_port", self.dst_port)):
            if port is not None and self.protocol not in (None, *_PORT_PROTOCOLS):
                found.append(
                    FieldError(
                        f"match.{name}",
                        "only TCP and UDP have ports",
                        'protocol "tcp" or "udp", or no port',
                    )
                )
        return found


class MeterSpec(_Strict):
    """A two-rate three-colour marker, colour-blind (RFC 2698).

    Rates count layer-2 bytes without FCS and are rounded to whole bytes per second.
    """

    cir: Rate = Field(description="Committed information rate: above it packets are yellow.")
    cburst: int | None = Field(
        default=None,
        ge=MIN_BURST_BYTES,
        le=MAX_BURST_BYTES,
        description="Committed burst in bytes. Default: 10 ms at `cir`, at least 15220.",
    )
    pir: Rate | None = Field(
        default=None, description="Peak information rate: above it packets are red. Default: `cir`."
    )
    pburst: int | None = Field(
        default=None,
        ge=MIN_BURST_BYTES,
        le=MAX_BURST_BYTES,
        description="Peak burst in bytes. Default: 10 ms at `pir`, at least `cburst`.",
    )
    drop_red: bool = Field(default=True, description="Whether red packets are dropped.")
    yellow_dscp: Dscp | None = Field(default=None, description="DSCP that yellow packets get.")
    red_dscp: Dscp | None = Field(
        default=None, description="DSCP that red packets get when they are not dropped."
    )

    @property
    def pir_bps(self) -> int:
        """Peak rate in bit/s, with its default."""
        return self.cir if self.pir is None else self.pir

    @property
    def cburst_bytes(self) -> int:
        """Committed burst, with its default."""
        if self.cburst is not None:
            return self.cburst
        return max(10 * FRAME_BYTES_MAX, rates.bytes_per_second(self.cir) // 100)

    @property
    def pburst_bytes(self) -> int:
        """Peak burst, with its default."""
        if self.pburst is not None:
            return self.pburst
        return max(self.cburst_bytes, rates.bytes_per_second(self.pir_bps) // 100)

    @property
    def marks(self) -> bool:
        """Whether colours change the DSCP."""
        return self.yellow_dscp is not None or self.red_dscp is not None

    def problems(self) -> list[FieldError]:
        """Return what is wrong across fields."""
        found: list[FieldError] = []
        if self.pir is not None and self.pir < self.cir:
            found.append(
                FieldError(
                    "meter.pir",
                    f"{rates.format_rate(self.pir)} is below cir, {rates.format_rate(self.cir)}",
                    f"a rate of at least {rates.format_rate(self.cir)}",
                )
            )
        if self.red_dscp is not None and self.drop_red:
            found.append(
                FieldError(
                    "meter.red_dscp",
                    "red packets are dropped, so they cannot be marked",
                    "drop_red false, or no red_dscp",
                )
            )
        # The program writes both marks or none, so both must be known.
        if self.marks and not self.drop_red:
            found += [
                FieldError(
                    f"meter.{name}",
                    "yellow and red packets are both marked or both left alone",
                    "a DSCP, 0 to 63",
                )
                for name in ("yellow_dscp", "red_dscp")
                if getattr(self, name) is None
            ]
        return found


class FlowSpec(_Strict):
    """A flow: which packets, and what becomes of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"match": {"protocol": "tcp", "dst_port": 5001}, "class": "video"},
                {"match": {"src": "10.0.0.0/24"}, "rate": "100Mbit", "priority": 2000},
                {
                    "match": {"dst": "2001:db8::/32"},
                    "class": "video",
                    "meter": {"cir": "50Mbit", "pir": "80Mbit", "yellow_dscp": 10},
                },
            ]
        }
    )

    match: MatchSpec
    priority: int = Field(
        default=DEFAULT_PRIORITY,
        ge=1,
        le=MAX_PRIORITY,
        description="Where several flows match a packet, the one with the highest priority wins. "
        "Among equals pacing_switch takes the one that has been in its table longest; a switch "
        "that was restarted is filled in the order of the flows' names. Flows that overlap should "
        "have different priorities. (Two flows of the same match and priority are refused.)",
    )
    class_name: str | None = Field(
        default=None, alias="class", pattern=NAME_PATTERN, description="Class the packets join."
    )
    rate: Rate | None = Field(
        default=None, description="A rate of its own: the flow gets a static class to itself."
    )
    limit_bytes: LimitBytes | None = Field(
        default=None, description="As in a class; only with `rate`."
    )
    allowance_ns: AllowanceNs = None
    meter: MeterSpec | None = Field(
        default=None, description="Meter in front of the class; without one all packets are green."
    )

    def problems(self) -> list[FieldError]:
        """Return what is wrong across fields."""
        found = self.match.problems()
        if self.meter is not None:
            found += self.meter.problems()
        if self.class_name is not None and self.rate is not None:
            found.append(
                FieldError("rate", "a flow has a class or a rate of its own", "one of class, rate")
            )
        if self.class_name is None and self.rate is None and self.meter is None:
            found.append(
                FieldError("class", "the flow has no class, rate or meter", "one of class, rate")
            )
        if self.rate is None:
            found += [
                FieldError(name, "belongs to a rate of the flow's own", "a rate as well")
                for name in ("limit_bytes", "allowance_ns")
                if getattr(self, name) is not None
            ]
        return found

    def private_class(self) -> ClassSpec | None:
        """Return the class of a flow that has a rate of its own."""
        if self.rate is None:
            return None
        return ClassSpec(
            rate=self.rate,
            limit_bytes=DEFAULT_LIMIT_BYTES if self.limit_bytes is None else self.limit_bytes,
            allowance_ns=self.allowance_ns,
        )


def stored(spec: BaseModel) -> dict[str, Any]:
    """Return the JSON form under which a resource is stored; reading it gives an equal one."""
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)

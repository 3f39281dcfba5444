"""The types of the resources' fields: their form, their checks and their schemas.

This module also makes the answers to wrong values: `refuse` carries the expected value.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from pacer_controller import rates
from pacer_controller.problems import shorten

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

FCS_BYTES = 4
"""Bytes of a frame that a switch's counters leave out."""

FRAME_BYTES_MAX = 1522
"""Largest tagged Ethernet frame with FCS: a class that queues less can never send one."""

DEFAULT_LIMIT_BYTES = 32 * 1024 * 1024
"""A class queues a whole TCP window when the window exceeds rate times path delay. 32 MiB is
twice the 12.5 MB that a 500 Mbit/s, 200 ms path needs, with room for the kernel's doubling."""

DEFAULT_HEADROOM_PERCENT = 120
"""Linux's pacing factor in congestion avoidance (tcp_pacing_ca_ratio): a window may grow."""

DEFAULT_TICK_HZ = 1000
"""The system's timer of the published token buckets: HZ of Linux 2.6."""

DEFAULT_THRESHOLD_NS = 1_000_000
"""Clustered Packet Spacing's threshold of RTT / cwnd."""

DEFAULT_PRIORITY = 1000
MAX_PRIORITY = 1_000_000

MIN_BURST_BYTES = FRAME_BYTES_MAX
MAX_BURST_BYTES = 2**32 - 1

ETHER_TYPE_IPV4 = 0x0800
ETHER_TYPE_IPV6 = 0x86DD

_ETHER_TYPES = {"ipv4": ETHER_TYPE_IPV4, "ipv6": ETHER_TYPE_IPV6, "arp": 0x0806}
_PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}
PORT_PROTOCOLS = (6, 17)

NO_LINE_RATE = 0
"""Stored value of the line rate "none"."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_PREFIX_SHAPE = re.compile(r"[0-9A-Fa-f.:]{2,45}(?:/[0-9]{1,3})?", re.ASCII)


class Strict(BaseModel):
    """Base: unknown fields are errors, nothing is coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


def examples(*given: dict[str, Any]) -> ConfigDict:
    """Return the settings of a model whose JSON Schema shows examples."""
    return ConfigDict(json_schema_extra={"examples": list(given)})


def refuse(message: str, expected: str) -> PydanticCustomError:
    """Make an error that carries the expected value."""
    return PydanticCustomError(
        "pacer_value", "{message}", {"message": message, "expected": expected}
    )


def show(value: object) -> str:
    """Print a given value, shortened."""
    return shorten(ascii(value))


def _read_rate(value: object) -> int:
    try:
        return rates.parse_rate(value)
    except rates.RateError as error:
        raise refuse(str(error), error.expected) from None


_PREFIX_EXPECTED = 'an IPv4 or IPv6 address or prefix, such as "10.0.0.0/8" or "2001:db8::1"'


def _read_prefix(value: object) -> str:
    """Return the prefix in its canonical form, always with a length."""
    if not isinstance(value, str) or _PREFIX_SHAPE.fullmatch(value) is None:
        raise refuse(f"{show(value)} is not an address or prefix", _PREFIX_EXPECTED)
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise refuse(f"{show(value)} is not an address or prefix", _PREFIX_EXPECTED) from None
    address = ipaddress.ip_address(value.partition("/")[0])
    if address != network.network_address:
        raise refuse(f"{value!r} has bits set beyond its prefix length", f'"{network}"')
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        ipv4 = ipaddress.IPv4Address(int(network.network_address) & 0xFFFFFFFF)
        raise refuse(
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
            raise refuse(f"{show(value)} is not {what}", expected)
        return value

    return read


_PORTS_EXPECTED = 'a port from 1 to 65535, or a range such as "5000-5999"'


def _read_line_rate(value: object) -> int:
    return NO_LINE_RATE if value == "none" else _read_rate(value)


def _line_rate_text(rate_bps: int) -> str:
    return "none" if rate_bps == NO_LINE_RATE else rates.format_rate(rate_bps)


def _read_ports(value: object) -> int | str:
    """Return a port, or a range of them in its canonical form, "first-last"."""
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value, re.ASCII)
        if found is not None:
            first, last = int(found.group(1)), int(found.group(2))
            if 1 <= first < last <= 65535:
                return f"{first}-{last}"
            if 1 <= first == last <= 65535:
                return first
    elif isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return value
    raise refuse(f"{show(value)} is not a port or a range of ports", _PORTS_EXPECTED)


def port_range(value: int | str) -> tuple[int, int]:
    """Return the first and last port of a `TransportPort`."""
    if isinstance(value, int):
        return value, value
    first, _, last = value.partition("-")
    return int(first), int(last)


def format_mac(mac: int) -> str:
    """Print a MAC address as six hexadecimal pairs."""
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6, "big"))


def _any_of(*forms: dict[str, Any], examples: list[Any]) -> WithJsonSchema:
    """Describe a value that may be written in several forms."""
    return WithJsonSchema({"anyOf": list(forms), "examples": examples})


_RATE_TEXT = {"type": "string", "pattern": rates.RATE_PATTERN}
_RATE_NUMBER = {"type": "integer", "minimum": rates.MIN_RATE_BPS, "maximum": rates.MAX_RATE_BPS}

Rate = Annotated[
    int,
    BeforeValidator(_read_rate),
    PlainSerializer(rates.format_rate, return_type=str, when_used="json"),
    _any_of(_RATE_TEXT, _RATE_NUMBER, examples=["500Mbit", "62.5MB/s", "8kbit", 500_000_000]),
]

LineRate = Annotated[
    int,
    BeforeValidator(_read_line_rate),
    PlainSerializer(_line_rate_text, return_type=str, when_used="json"),
    _any_of(
        _RATE_TEXT, {"type": "string", "const": "none"}, _RATE_NUMBER, examples=["1Gbit", "none"]
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
    PlainSerializer(
        lambda number: _PROTOCOL_NAMES.get(number, number), return_type=str | int, when_used="json"
    ),
    _any_of(
        {"type": "string", "enum": list(_PROTOCOLS)},
        {"type": "integer", "minimum": 0, "maximum": 255},
        examples=["tcp"],
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
    PlainSerializer("0x{:04x}".format, return_type=str, when_used="json"),
    _any_of(
        {"type": "string", "pattern": "^(ipv4|ipv6|arp|0x[0-9A-Fa-f]{1,4})$"},
        {"type": "integer", "minimum": 0, "maximum": 0xFFFF},
        examples=["ipv4"],
    ),
]

PortNumber = Annotated[int, Field(ge=1, le=509)]
TransportPort = Annotated[
    int | str,
    BeforeValidator(_read_ports),
    _any_of(
        {"type": "integer", "minimum": 1, "maximum": 65535},
        {"type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,5}$"},
        examples=[5001, "5000-5999"],
    ),
]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Dscp = Annotated[int, Field(ge=0, le=63)]

LimitBytes = Annotated[
    int,
    Field(
        ge=FRAME_BYTES_MAX,
        le=2**32 - 1,
        description="Most bytes (layer 2 with FCS) the class queues before it drops arrivals.",
    ),
]

GapBytes = Annotated[
    int,
    Field(
        ge=8,
        le=65535,
        description="Gap between two packets of mode `ipg`, in bytes of a line at `rate`: from the "
        "end of one packet's FCS to the preamble of the next, so that Ethernet's own 12 bytes are "
        "part of it.",
    ),
]

TickHz = Annotated[
    int,
    Field(
        ge=1,
        le=10_000,
        description="Mode `timer`: ticks a second at which packets leave; a tick has whole "
        "nanoseconds. Default: 1000.",
    ),
]

Slots = Annotated[
    int,
    Field(
        ge=2,
        le=65535,
        description="Packets of the class leave once in a cycle of so many slots of `slot_ns`: in "
        "mode `static` in the slot `slot`, in modes `pspd` and `dynamic` each TCP flow in a slot "
        "of its own, which flows get in turn. Default: they leave at any time.",
    ),
]

SlotNs = Annotated[
    int,
    Field(
        ge=100,
        le=500_000_000,
        description="Time of a slot in ns; with `slots`. To interleave packets at a bottleneck, "
        "the time of a full frame there. The cycle of all slots is 1 s at most.",
    ),
]

SlotNumber = Annotated[
    int,
    Field(
        ge=1,
        le=65535,
        description="Mode `static` with `slots`: the slot of the class, 1 to `slots`. Slot k "
        "begins k * `slot_ns` behind a multiple of the cycle.",
    ),
]

QuantumBytes = Annotated[
    int,
    Field(
        ge=1518,
        le=1_048_576,
        description="Mode `static`: packets of so many bytes, frames with FCS, leave together, at "
        "multiples of the time that they take at `rate` (1 us to 1 s). Default: each packet leaves "
        "by itself, exactly spaced.",
    ),
]

CYCLE_NS_MIN = 1_000
"""Shortest time of a quantum."""
CYCLE_NS_MAX = 1_000_000_000
"""Longest cycle of slots, and longest time of a quantum."""

HeadroomPercent = Annotated[
    int,
    Field(
        ge=50,
        le=1000,
        description="Modes `dynamic` and `slow-start`: percentage of window / round-trip time that "
        "a flow is paced at. Default: 120.",
    ),
]

ThresholdNs = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000_000,
        description="Modes `slow-start` and `clustered`: a flow is left alone once its round-trip "
        "time divided by its window in packets is this many ns or less. Default: 1000000 (1 ms).",
    ),
]

WindowMarginBytes = Annotated[
    int,
    Field(
        ge=1,
        le=2**30,
        description="Receive windows in acknowledgements of the class's TCP flows are lowered to "
        "rate times round-trip time and this many bytes. Needs a rate; not in mode `ipg`. Default: "
        "they are left alone.",
    ),
]

EXACT = "exact"

ALLOWANCE_NS_MAX = 3_600_000_000_000


def _read_allowance(value: object) -> int | str | None:
    if value in (None, "auto"):
        return None
    if value == EXACT:
        return EXACT
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= ALLOWANCE_NS_MAX:
        raise refuse(
            f"{show(value)} is no allowance", f'"auto", "exact", or 0 to {ALLOWANCE_NS_MAX} ns'
        )
    return value


AllowanceNs = Annotated[
    int | str | None,
    BeforeValidator(_read_allowance),
    _any_of(
        {"type": "string", "enum": ["auto", EXACT]},
        {"type": "integer", "minimum": 0, "maximum": ALLOWANCE_NS_MAX},
        {"type": "null"},
        examples=["auto", EXACT, 262_144],
    ),
    Field(
        description="Lost time in ns that the class makes up after a stall of the switch. `auto` "
        "(default): the time of 16384 bytes at the class's rate, or of half the FIFO that it "
        "follows. "
        "`exact`: the time of 1518 bytes. In mode `ipg` preamble and gap of each frame count. Of a "
        "class without a rate both are 100000.",
    ),
]

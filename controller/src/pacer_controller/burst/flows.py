"""The flow of a packet, by the rules of p4src/include/wire_flow.p4."""

import ipaddress
import struct
from typing import NamedTuple

ETHER_TYPE_VLAN = 0x8100
ETHER_TYPE_IPV4 = 0x0800
ETHER_TYPE_IPV6 = 0x86DD
PORT_PROTOCOLS = {6: "tcp", 17: "udp"}


class Flow(NamedTuple):
    """A 5-tuple; ports are 0 where they are not at a fixed place."""

    protocol: int
    source: str
    destination: str
    source_port: int
    destination_port: int

    def __str__(self) -> str:
        name = PORT_PROTOCOLS.get(self.protocol, f"protocol {self.protocol}")
        if not self.source_port and not self.destination_port:
            return f"{name} {self.source} > {self.destination}"
        return (
            f"{name} {_endpoint(self.source, self.source_port)} > "
            f"{_endpoint(self.destination, self.destination_port)}"
        )


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def flow_of(data: bytes) -> Flow | None:
    """Return the flow of a frame, one VLAN tag allowed; None if it is not IP or is cut short."""
    try:
        at = 14
        ether_type = struct.unpack_from(">H", data, 12)[0]
        if ether_type == ETHER_TYPE_VLAN:
            at = 18
            ether_type = struct.unpack_from(">H", data, 16)[0]
        if ether_type == ETHER_TYPE_IPV4:
            return _ipv4(data, at)
        if ether_type == ETHER_TYPE_IPV6:
            return _ipv6(data, at)
    except struct.error:
        pass
    return None


def _ipv4(data: bytes, at: int) -> Flow:
    words, fragment, protocol, source, destination = struct.unpack_from(">B5xH1xB2xII", data, at)
    # Neither IPv4 options nor a later fragment.
    fixed = words & 0xF == 5 and fragment & 0x1FFF == 0
    ports = _ports(data, at + 20, protocol) if fixed else (0, 0)
    addresses = str(ipaddress.IPv4Address(source)), str(ipaddress.IPv4Address(destination))
    return Flow(protocol, *addresses, *ports)


def _ipv6(data: bytes, at: int) -> Flow:
    protocol, source, destination = struct.unpack_from(">6xBx16s16s", data, at)
    addresses = str(ipaddress.IPv6Address(source)), str(ipaddress.IPv6Address(destination))
    return Flow(protocol, *addresses, *_ports(data, at + 40, protocol))


def _ports(data: bytes, at: int, protocol: int) -> tuple[int, int]:
    if protocol not in PORT_PROTOCOLS or len(data) < at + 4:
        return 0, 0
    source, destination = struct.unpack_from(">HH", data, at)
    return source, destination

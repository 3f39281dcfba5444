"""Hosts: their settings, their neighbours, and pings, without starting a program in them.

In the lab, starting a program is the most expensive thing there is.
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mininet.link import Intf
from mininet.node import Host, Node

from pacer_mininet.interfaces import datagram_socket_of, mac_bytes, turn_offloads_off
from pacer_mininet.namespaces import in_namespace_of
from pacer_mininet.settings import SOCKET_BUFFER_BYTES

SIOCSARP = 0x8955
"""ioctl of arp(7)."""

ATF_COMPLETE_FOR_GOOD = 0x02 | 0x04

_ARP = struct.Struct("=HH4s8x H6s8x i HH4s8x 16s")
"""struct arpreq: protocol address, hardware address, flags, netmask, device."""

ECHO_REQUEST, ECHO_REPLY = 8, 0
_ECHO = struct.Struct("!BBHHH")


class HostError(OSError):
    """A host refuses a setting, or does not answer; the text names the host and the reason."""


def write_settings(host: Node, settings: Mapping[str, str], *, ignore_absent: bool = False) -> None:
    """Write kernel settings (sysctl) of a host's namespace.

    Args:
        host: the host.
        settings: values by name, as in sysctl(8).
        ignore_absent: skip settings that this kernel does not have.

    Raises:
        HostError: there is no such setting, or it refuses the value.

    """

    def write() -> None:
        for name, value in settings.items():
            path = Path("/proc/sys", *name.split("."))
            if ignore_absent and not path.exists():
                continue
            try:
                path.write_text(f"{value}\n")
            except OSError as error:
                reason = f"{name}={value}: {error.strerror}"
                raise HostError(f"{host.name}: {reason}") from None

    in_namespace_of(host.pid, write)


def introduce(host: Node, others: Sequence[Node]) -> None:
    """Give a host permanent neighbour entries for other hosts, so that it sends no ARP requests.

    Raises:
        HostError: the kernel refuses an entry.

    """
    add_neighbours(host.defaultIntf(), {other.IP(): other.MAC() for other in others})


def add_neighbours(interface: Intf, neighbours: Mapping[str, str]) -> None:
    """Give a host permanent neighbour entries, MAC addresses by IP address, on an interface.

    Raises:
        HostError: the kernel refuses an entry.

    """
    host = interface.node
    with datagram_socket_of(host) as through:
        for address, mac in neighbours.items():
            request = _ARP.pack(
                *(socket.AF_INET, 0, socket.inet_aton(address)),
                *(socket.AF_UNSPEC, mac_bytes(mac), ATF_COMPLETE_FOR_GOOD),
                *(socket.AF_UNSPEC, 0, bytes(4), interface.name.encode()),
            )
            try:
                fcntl.ioctl(through, SIOCSARP, request)
            except OSError as error:
                raise HostError(f"{host.name}: neighbour {address}: {error.strerror}") from None


def ping(host: Node, address: str, *, timeout_s: float) -> None:
    """Send an ICMP echo request and wait for the reply (RFC 792).

    Raises:
        HostError: no reply came in time.

    """
    body = b"is anybody there"
    head = _ECHO.pack(ECHO_REQUEST, 0, 0, os.getpid() & 0xFFFF, 1)
    packet = _ECHO.pack(
        *(ECHO_REQUEST, 0, _checksum(head + body), os.getpid() & 0xFFFF, 1),
    )
    deadline = time.monotonic() + timeout_s
    with in_namespace_of(host.pid, _icmp_socket) as through:
        try:
            through.sendto(packet + body, (address, 0))
            while (left_s := deadline - time.monotonic()) > 0:
                through.settimeout(left_s)
                # A raw socket gets the IPv4 header too, and every ICMP packet for this host.
                answer, _ = through.recvfrom(2048)
                icmp = answer[(answer[0] & 0xF) * 4 :]
                if icmp[:1] == bytes([ECHO_REPLY]) and icmp[4:] == (packet + body)[4:]:
                    return
        except TimeoutError:
            pass
        except OSError as error:
            raise HostError(f"{host.name} cannot reach {address}: {error.strerror}") from None
    raise HostError(f"{host.name} cannot reach {address}: no answer in {timeout_s:g} s")


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _icmp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


class LfnHost(Host):  # type: ignore[misc] # mininet has no types
    """A host at the end of a long fat network.

    It grants and uses a TCP window of `socket_buffer_bytes`. The kernel takes half of a buffer for
    its own bookkeeping, so the buffers are twice that. Offloads are off, so that the switch sees
    single packets. IPv6 is off, so that only the experiment's packets are sent.
    """

    def config(self, socket_buffer_bytes: int = SOCKET_BUFFER_BYTES, **params: Any) -> Any:
        """Configure the host; HostError or InterfaceError when a setting is refused."""
        result = super().config(**params)
        # A kernel without IPv6 has nothing to switch off.
        write_settings(self, {"net.ipv6.conf.all.disable_ipv6": "1"}, ignore_absent=True)
        buffer = f"4096 {2 * socket_buffer_bytes} {2 * socket_buffer_bytes}"
        write_settings(self, {"net.ipv4.tcp_rmem": buffer, "net.ipv4.tcp_wmem": buffer})
        for interface in self.intfList():
            if interface.name != "lo":
                turn_offloads_off(interface)
        return result

"""Sets hosts up, and asks them, without starting a program in them.

In the lab a program start is the dearest thing there is, and each host would be several.
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mininet.link import Intf
from mininet.node import Node

from pacer_mininet.namespaces import in_namespace_of

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C
SIOCSIFHWADDR = 0x8924
SIOCSARP = 0x8955
"""ioctls of netdevice(7) and arp(7)."""

IFF_UP = 0x1
ATF_COMPLETE_FOR_GOOD = 0x02 | 0x04

_NAMED = "=16s"
_FLAGS = struct.Struct(_NAMED + "h22x")
_ADDRESS = struct.Struct(_NAMED + "HH4s8x8x")
"""struct ifreq with a sockaddr_in."""
_HARDWARE = struct.Struct(_NAMED + "H6s8x8x")
_ARP = struct.Struct("=HH4s8x H6s8x i HH4s8x 16s")
"""struct arpreq: protocol address, hardware address, flags, netmask, device."""

ECHO_REQUEST, ECHO_REPLY = 8, 0
_ECHO = struct.Struct("!BBHHH")


class HostError(OSError):
    """A host refuses a setting, or does not answer; the text says which and what."""


def write_settings(host: Node, settings: Mapping[str, str], *, ignore_absent: bool = False) -> None:
    """Write kernel settings (sysctl) of a host's namespace.

    Args:
        host: whose.
        settings: values by name, as sysctl(8) has them.
        ignore_absent: pass over what this kernel does not have.

    Raises:
        HostError: there is no such setting, or it takes no such value.

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
    """Let a host know for good where others are, so that it never asks, and never answers for it.

    Raises:
        HostError: an address was refused.

    """
    device = host.defaultIntf().name.encode()
    with _socket_of(host) as through:
        for other in others:
            request = _ARP.pack(
                *(socket.AF_INET, 0, socket.inet_aton(other.IP())),
                *(socket.AF_UNSPEC, _mac(other.MAC()), ATF_COMPLETE_FOR_GOOD),
                *(socket.AF_UNSPEC, 0, bytes(4), device),
            )
            try:
                fcntl.ioctl(through, SIOCSARP, request)
            except OSError as error:
                raise HostError(f"{host.name}: where {other.IP()} is: {error.strerror}") from None


def ping(host: Node, address: str, *, timeout_s: float) -> None:
    """Send an ICMP echo request and wait for the reply (RFC 792).

    Raises:
        HostError: none came in time.

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
                # A raw socket gets the IPv4 header, too, and all that is not for others.
                answer, _ = through.recvfrom(2048)
                icmp = answer[(answer[0] & 0xF) * 4 :]
                if icmp[:1] == bytes([ECHO_REPLY]) and icmp[4:] == (packet + body)[4:]:
                    return
        except TimeoutError:
            pass
        except OSError as error:
            raise HostError(f"{host.name} cannot reach {address}: {error.strerror}") from None
    raise HostError(f"{host.name} cannot reach {address}: no answer for {timeout_s:g} s")


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _icmp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _socket_of(node: Node) -> socket.socket:
    """Return any socket of a node's namespace."""
    return in_namespace_of(node.pid, _datagram_socket)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


class DirectIntf(Intf):  # type: ignore[misc] # mininet has no types
    """An interface that is set up by ioctls where Mininet's starts `ifconfig`.

    Its errors are exceptions: HostError.
    """

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:  # noqa: N802, N803
        """Set the IPv4 address, `ADDRESS/LENGTH` or with its length beside it; the interface is up.

        Raises:
            HostError: it is refused.

        """
        address, _, length = ipstr.partition("/")
        self.ip, self.prefixLen = address, int(length or prefixLen or 32)
        mask = (0xFFFFFFFF << (32 - self.prefixLen)) & 0xFFFFFFFF
        for request, value in (
            (SIOCSIFADDR, socket.inet_aton(address)),
            (SIOCSIFNETMASK, mask.to_bytes(4, "big")),
        ):
            self._ask(request, _ADDRESS.pack(self._named, socket.AF_INET, 0, value))
        self.isUp(setUp=True)

    def setMAC(self, macstr: str) -> None:  # noqa: N802 (Mininet's name)
        """Set the MAC address; the interface is up.

        Raises:
            HostError: it is refused.

        """
        self.mac = macstr
        ethernet = 1
        self._ask(SIOCSIFHWADDR, _HARDWARE.pack(self._named, ethernet, _mac(macstr)))
        self.isUp(setUp=True)

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802 (Mininet's names)
        """Whether the interface is up; sets it up first if that is asked for.

        Raises:
            HostError: there is no such interface, or it cannot be set up.

        """
        _, flags = _FLAGS.unpack(self._ask(SIOCGIFFLAGS, _FLAGS.pack(self._named, 0)))
        if setUp and not flags & IFF_UP:
            flags |= IFF_UP
            self._ask(SIOCSIFFLAGS, _FLAGS.pack(self._named, flags))
        return bool(flags & IFF_UP)

    def delete(self) -> None:
        """Delete the interface, unless it went with the other end of its link."""
        try:
            self.isUp()
        except HostError:
            self.node.delIntf(self)
            self.link = None
        else:
            super().delete()

    @property
    def _named(self) -> bytes:
        return str(self.name).encode()

    def _ask(self, request: int, argument: bytes) -> bytes:
        try:
            with _socket_of(self.node) as through:
                return fcntl.ioctl(through, request, argument)
        except OSError as error:
            raise HostError(f"{self.name}: {error.strerror}") from None

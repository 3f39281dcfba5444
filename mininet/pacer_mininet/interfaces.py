"""Sets interfaces up: addresses, offloads, IPv6, departure times.

Most of it uses ioctls instead of `ifconfig` and `ethtool`: in the lab, starting a program is the
most expensive thing there is.
"""

import fcntl
import socket
import struct
import time
from pathlib import Path

from mininet.link import Intf
from mininet.node import Node
from pacing_switch.offloads import OffloadError, turn_off

from pacer_mininet.namespaces import in_namespace_of

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C
SIOCSIFHWADDR = 0x8924
"""ioctls of netdevice(7) and linux/sockios.h."""

OFFLOADS = ("rx", "tx", "tso", "gso", "gro")

IFF_UP = 0x1
IFF_RUNNING = 0x40

CARRIER_TIMEOUT_S = 2.0
CARRIER_POLL_S = 0.01

_NAMED = "=16s"
_FLAGS = struct.Struct(_NAMED + "h22x")
_ADDRESS = struct.Struct(_NAMED + "HH4s8x8x")
"""struct ifreq with a sockaddr_in."""
_HARDWARE = struct.Struct(_NAMED + "H6s8x8x")


class InterfaceError(OSError):
    """An interface refuses a setting; the text names both."""


def datagram_socket_of(node: Node) -> socket.socket:
    """Return a socket of a node's namespace, for ioctls."""
    return in_namespace_of(node.pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def mac_bytes(text: str) -> bytes:
    """Return the six bytes of a MAC address."""
    return bytes.fromhex(text.replace(":", ""))


def turn_offloads_off(interface: Intf) -> None:
    """Make an interface carry packets as they would be on a wire.

    A userspace switch then sees packets of at most one MTU, with checksums filled in.

    Raises:
        InterfaceError: the interface refuses.

    """
    with datagram_socket_of(interface.node) as through:
        try:
            turn_off(through, interface.name, OFFLOADS)
        except OffloadError as error:
            raise InterfaceError(str(error)) from None


def quiet_ipv6(interface: str) -> None:
    """Keep the kernel from sending neighbour discovery of its own through an interface.

    `default` stands for all interfaces made from now on. A kernel without IPv6 has nothing to
    quiet.
    """
    knob = Path("/proc/sys/net/ipv6/conf") / interface / "disable_ipv6"
    if knob.exists():
        knob.write_text("1\n")


def wait_for_carrier(interface: Intf) -> None:
    """Wait until an interface's link has a carrier, for at most 2 s.

    The kernel reports the carrier up to a second after both ends are up, and a switch loses packets
    sent before. A link whose other end is down has no carrier, which is no error.
    """
    request = _FLAGS.pack(interface.name.encode(), 0)
    deadline = time.monotonic() + CARRIER_TIMEOUT_S
    with datagram_socket_of(interface.node) as through:
        while time.monotonic() < deadline:
            _, flags = _FLAGS.unpack(fcntl.ioctl(through, SIOCGIFFLAGS, request))
            if flags & IFF_RUNNING:
                return
            time.sleep(CARRIER_POLL_S)


def send_at_departure_times(interface: Intf) -> None:
    """Give an interface the queueing discipline that sends each frame at its departure time.

    Raises:
        InterfaceError: `tc` fails; the text has its output.

    """
    fq = ("fq", "limit", "40000", "flow_limit", "40000", "timer_slack", "0")
    command = ("tc", "qdisc", "replace", "dev", interface.name, "root", *fq)
    out, err, status = interface.node.pexec(*command)
    if status != 0:
        raise InterfaceError(f"`{' '.join(command)}` failed: {(err or out).strip()}")


class DirectIntf(Intf):  # type: ignore[misc] # mininet has no types
    """An interface that is set up by ioctls where Mininet's starts `ifconfig`.

    Its methods raise InterfaceError.
    """

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:  # noqa: N802, N803
        """Set the IPv4 address, `ADDRESS/LENGTH` or with its length beside it; the interface is up.

        Raises:
            InterfaceError: the kernel refuses it.

        """
        address, _, length = ipstr.partition("/")
        self.ip, self.prefixLen = address, int(length or prefixLen or 32)
        mask = (0xFFFFFFFF << (32 - self.prefixLen)) & 0xFFFFFFFF
        for request, value in (
            (SIOCSIFADDR, socket.inet_aton(address)),
            (SIOCSIFNETMASK, mask.to_bytes(4, "big")),
        ):
            self._ioctl(request, _ADDRESS.pack(self._named, socket.AF_INET, 0, value))
        self.isUp(setUp=True)

    def setMAC(self, macstr: str) -> None:  # noqa: N802 (Mininet's name)
        """Set the MAC address; the interface is up.

        Raises:
            InterfaceError: the kernel refuses it.

        """
        self.mac = macstr
        ethernet = 1
        self._ioctl(SIOCSIFHWADDR, _HARDWARE.pack(self._named, ethernet, mac_bytes(macstr)))
        self.isUp(setUp=True)

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802 (Mininet's names)
        """Whether the interface is up; with `setUp`, set it up first.

        Raises:
            InterfaceError: there is no such interface, or it cannot be set up.

        """
        _, flags = _FLAGS.unpack(self._ioctl(SIOCGIFFLAGS, _FLAGS.pack(self._named, 0)))
        if setUp and not flags & IFF_UP:
            flags |= IFF_UP
            self._ioctl(SIOCSIFFLAGS, _FLAGS.pack(self._named, flags))
        return bool(flags & IFF_UP)

    def delete(self) -> None:
        """Delete the interface, unless it went with the other end of its link."""
        try:
            self.isUp()
        except InterfaceError:
            self.node.delIntf(self)
            self.link = None
        else:
            super().delete()

    @property
    def _named(self) -> bytes:
        return str(self.name).encode()

    def _ioctl(self, request: int, argument: bytes) -> bytes:
        try:
            with datagram_socket_of(self.node) as through:
                return fcntl.ioctl(through, request, argument)
        except OSError as error:
            raise InterfaceError(f"{self.name}: {error.strerror}") from None

"""Switches an interface's offloads off, as `ethtool -K` does, without starting a program.

In the lab a program start is the dearest thing there is, and each interface would be one.
"""

import array
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
COMMANDS = {"rx": 0x15, "tx": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
"""ETHTOOL_SRXCSUM, _STXCSUM, _STSO, _SGSO and _SGRO of linux/ethtool.h, by `ethtool -K`'s names."""

_VALUE = struct.Struct("=II")
"""struct ethtool_value."""
_REQUEST = struct.Struct("=16sQ8x")
"""struct ifreq with a pointer, of a 64-bit kernel."""


def switch_off(through: socket.socket, interface: str) -> None:
    """Have an interface carry packets as they would be on a wire, checksums in them.

    Args:
        through: any socket of the interface's network namespace.
        interface: its name.

    Raises:
        OSError: there is no such interface, or it refuses.

    """
    for command in COMMANDS.values():
        value = array.array("B", _VALUE.pack(command, 0))
        address, _ = value.buffer_info()
        fcntl.ioctl(through, SIOCETHTOOL, _REQUEST.pack(interface.encode(), address))

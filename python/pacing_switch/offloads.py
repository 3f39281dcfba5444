"""Turns off what an interface does to packets in place of the kernel, as `ethtool -K` does."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable

SIOCETHTOOL = 0x8946
"""ioctl of linux/sockios.h."""

SETTINGS = {"rx": 0x15, "tx": 0x17, "sg": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
"""ETHTOOL_SRXCSUM, _STXCSUM, _SSG, ... of linux/ethtool.h, by ethtool's names."""
FLAGS = {"txvlan": 1 << 7, "rxvlan": 1 << 8}
"""ETH_FLAG_TXVLAN and _RXVLAN, by ethtool's names."""
GET_FLAGS, SET_FLAGS = 0x25, 0x26
"""ETHTOOL_GFLAGS and _SFLAGS."""

_REQUEST = struct.Struct("=16sQ8x")
"""struct ifreq with a pointer, of a 64-bit kernel."""
_VALUE = struct.Struct("=II")
"""struct ethtool_value."""


class OffloadError(OSError):
    """An interface refuses a setting; the text names the interface and the reason."""


def turn_off(through: socket.socket, interface: str, names: Iterable[str]) -> None:
    """Turn off offloads of an interface.

    Args:
        through: any socket of the interface's network namespace.
        interface: its name.
        names: keys of SETTINGS and FLAGS.

    Raises:
        OffloadError: there is no such interface, or it cannot do without one of them.

    """
    try:
        for name in names:
            if name in SETTINGS:
                _ethtool(through, interface, SETTINGS[name], 0)
            else:
                kept = _ethtool(through, interface, GET_FLAGS, 0) & ~FLAGS[name]
                _ethtool(through, interface, SET_FLAGS, kept)
    except OSError as error:
        raise OffloadError(f"{interface}: cannot turn its offloads off: {error.strerror}") from None


def _ethtool(through: socket.socket, interface: str, command: int, value: int) -> int:
    """Give an interface a command with a value; return the value that the kernel leaves there."""
    argument = array.array("B", _VALUE.pack(command, value))
    address, _ = argument.buffer_info()
    fcntl.ioctl(through, SIOCETHTOOL, _REQUEST.pack(interface.encode(), address))
    _, told = _VALUE.unpack(argument)
    return int(told)

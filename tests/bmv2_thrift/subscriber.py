"""A subscriber to notifications, which speaks nanomsg's protocol by hand."""

from __future__ import annotations

import socket
import struct

TIMEOUT_S = 60.0


def received(stream: socket.socket, length: int) -> bytes:
    """Read exactly so many bytes."""
    found = b""
    while len(found) < length:
        piece = stream.recv(length - len(found))
        assert piece, "the publisher has gone"
        found += piece
    return found


def subscribed(address: str) -> socket.socket:
    """Connect to a publisher and wait until it knows of the subscriber."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(TIMEOUT_S)
    stream.connect(address.removeprefix("ipc://"))
    stream.sendall(b"\0SP\0\0\x21\0\0")
    assert received(stream, 8) == b"\0SP\0\0\x20\0\0"
    return stream


def message_of(stream: socket.socket) -> bytes:
    """Receive a message."""
    kind, length = struct.unpack(">BQ", received(stream, 9))
    assert kind == 1
    return received(stream, length)

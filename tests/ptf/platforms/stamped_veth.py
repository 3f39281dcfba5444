"""PTF platform: packet sockets on veth interfaces that keep the kernel's receive timestamps.

PTF's own port class takes the time when Python gets round to reading a packet, which says more
about the machine than about the switch. This one asks the kernel (SO_TIMESTAMPNS), with a
receive buffer that holds any burst the tests send.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

ETH_P_ALL = 0x0003
ETH_P_8021Q = 0x8100
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_IGNORE_OUTGOING = 23
# Not exported by Python's socket module; the values of Linux on every architecture but
# alpha, mips, parisc and sparc.
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
TP_STATUS_VLAN_VALID = 1 << 4
RECEIVE_BUFFER_BYTES = 16 << 20
LONGEST_FRAME_BYTES = 16384

# struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid.
AUXDATA = struct.Struct("=IIIHHHH")
TIMESPEC = struct.Struct("=qq")


class Instant(float):
    """A time in seconds, as PTF expects it, that has not forgotten its nanoseconds.

    `ns` is the kernel's receive time on CLOCK_REALTIME, the clock of `time.time_ns()`.
    """

    ns: int

    def __new__(cls, ns: int) -> Instant:
        """Makes the instant from whole nanoseconds."""
        made = super().__new__(cls, ns / 1e9)
        made.ns = ns
        return made


class StampedPort:
    """A dataplane port of PTF on one network interface."""

    def __init__(
        self,
        interface_name: str,
        device_number: int,
        port_number: int,
        config: dict[str, Any] | None = None,
    ) -> None:
        """Opens the interface; frames sent by this side are not seen as received."""
        self.interface_name = interface_name
        self.device_number = device_number
        self.port_number = port_number
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        except PermissionError:
            # Root of a user namespace may not exceed the system's limit.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.socket.bind((interface_name, ETH_P_ALL))

    def fileno(self) -> int:
        """Descriptor for PTF's select loop."""
        return self.socket.fileno()

    def recv(self) -> tuple[int, int, bytes, Instant]:
        """Takes one frame: device, port, bytes (VLAN tag put back), kernel receive time."""
        room = socket.CMSG_SPACE(AUXDATA.size) + socket.CMSG_SPACE(TIMESPEC.size)
        frame, control, _, _ = self.socket.recvmsg(LONGEST_FRAME_BYTES, room)
        received_ns = 0
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = TIMESPEC.unpack(data[: TIMESPEC.size])
                received_ns = seconds * 1_000_000_000 + nanoseconds
            elif (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tag, protocol = AUXDATA.unpack(data[: AUXDATA.size])
                if status & TP_STATUS_VLAN_VALID:
                    head = struct.pack("!HH", protocol or ETH_P_8021Q, tag)
                    frame = frame[:12] + head + frame[12:]
        return self.device_number, self.port_number, frame, Instant(received_ns)

    def get_packet_source(self) -> StampedPort:
        """The object that PTF's select loop reads from."""
        return self

    def send(self, frame: bytes) -> int:
        """Sends one frame unchanged."""
        return self.socket.send(frame)

    def down(self) -> None:
        """Not needed by any test."""
        raise NotImplementedError

    def up(self) -> None:
        """Not needed by any test."""
        raise NotImplementedError

    def mac(self) -> str:
        """Hardware address of the interface."""
        raw = self.socket.getsockname()[4]
        return ":".join(f"{byte:02x}" for byte in raw)


def platform_config_update(config: dict[str, Any]) -> None:
    """Called by PTF: maps ports to the interfaces of the command line, read by StampedPort."""
    config["port_map"] = {
        (device, port): interface for device, port, interface in config["interfaces"]
    }
    config["dataplane"] = {"portclass": StampedPort}

"""Reads TCP connections and counters of a node from the kernel, without starting a program.

Connections come from the kernel's socket monitoring interface (sock_diag(7)), as in `ss -ti`;
counters from /proc/PID/net. In the lab, starting a program is the most expensive thing there is,
and a run samples every 100 ms.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pacer_mininet.namespaces import in_namespace_of

SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLM_F_REQUEST_DUMP = 0x301
INET_DIAG_INFO = 2
INET_DIAG_SKMEMINFO = 7
NETLINK_SOCK_DIAG = 4
TCP_TIME_WAIT = 6
STATES_WITH_DATA = sum(1 << state for state in (1, 4, 5, 8, 9, 11))
"""Established, fin-wait 1 and 2, close-wait, last-ack and closing: states that may carry data."""

_REQUEST = struct.Struct("=IHHII BBBBI HH16s16sIII")
_MESSAGE = struct.Struct("=BBBB 2s2s")
_MESSAGE_BYTES = 72
_TCP_INFO = struct.Struct("=8B 24I 4Q 6I 4Q 2I 2Q 3I")
"""struct tcp_info of linux/tcp.h up to tcpi_rcv_ooopack (Linux 5.5 and later have all of it)."""


@dataclass(frozen=True)
class TcpSample:
    """One connection at one time."""

    state: int
    """TCP state as the kernel numbers them: 1 is established."""
    local_port: int
    remote_port: int
    rtt_us: int
    """Smoothed RTT."""
    min_rtt_us: int
    cwnd_packets: int
    resent_packets: int
    """Of the connection so far."""
    unacked_packets: int
    bytes_acked: int
    bytes_received: int
    """Payload that arrived in order."""
    reorderings_seen: int
    """The number of times that the sender found its segments reordered by the path."""
    send_buffer_bytes: int
    receive_buffer_bytes: int


def _attributes(data: bytes) -> dict[int, bytes]:
    """Split netlink attributes; stop at one with an impossible length."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4 or offset + length > len(data):
            break
        found[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def parse_ports(body: bytes) -> tuple[int, int]:
    """Return local and remote port of the connection in an inet_diag_msg."""
    _, _, _, _, local_port, remote_port = _MESSAGE.unpack_from(body)
    return int.from_bytes(local_port, "big"), int.from_bytes(remote_port, "big")


def parse_message(body: bytes) -> TcpSample | None:
    """Return the connection in an inet_diag_msg; None if it has no tcp_info."""
    if len(body) < _MESSAGE_BYTES:
        return None
    state = body[1]
    local_port, remote_port = parse_ports(body)
    attributes = _attributes(body[_MESSAGE_BYTES:])
    info = attributes.get(INET_DIAG_INFO, b"")
    if len(info) < _TCP_INFO.size:
        return None
    fields = _TCP_INFO.unpack_from(info)
    words, longs, later = fields[8:32], fields[32:36], fields[36:]
    memory = attributes.get(INET_DIAG_SKMEMINFO, bytes(36))
    _, receive_buffer, _, send_buffer = struct.unpack_from("=4I", memory)
    return TcpSample(
        state=state,
        local_port=local_port,
        remote_port=remote_port,
        rtt_us=words[15],
        min_rtt_us=later[3],
        cwnd_packets=words[18],
        resent_packets=words[23],
        unacked_packets=words[4],
        bytes_acked=longs[2],
        bytes_received=longs[3],
        reorderings_seen=later[15],
        send_buffer_bytes=send_buffer,
        receive_buffer_bytes=receive_buffer,
    )


class TcpMonitor:
    """Reads the IPv4 TCP connections of one network namespace."""

    def __init__(self, pid: int) -> None:
        """Open a monitoring socket in the namespace of process `pid`; needs root."""
        self._socket = in_namespace_of(pid, _diagnostics_socket)
        self._socket.settimeout(10)

    def close(self) -> None:
        """Close the monitoring socket."""
        self._socket.close()

    def connections(self) -> list[TcpSample]:
        """Return all connections that may carry data, now."""
        samples = map(parse_message, self._dump(STATES_WITH_DATA))
        return [sample for sample in samples if sample is not None]

    def closed(self) -> list[tuple[int, int]]:
        """Return local and remote port of connections in TIME-WAIT: this end closed first.

        The other end has acknowledged all data and the FIN (RFC 9293 section 3.3.2).
        """
        return [parse_ports(body) for body in self._dump(1 << TCP_TIME_WAIT)]

    def _dump(self, states: int) -> Iterator[bytes]:
        """Yield the messages on all connections in these states."""
        request = _REQUEST.pack(
            *(_REQUEST.size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0),
            *(socket.AF_INET, socket.IPPROTO_TCP),
            (1 << (INET_DIAG_INFO - 1)) | (1 << (INET_DIAG_SKMEMINFO - 1)),
            *(0, states, 0, 0, bytes(16), bytes(16), 0, 0, 0),
        )
        self._socket.send(request)
        while True:
            data = self._socket.recv(65536)
            offset = 0
            while offset + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, offset)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR or length < 16:
                    raise OSError("the kernel refuses to list TCP connections (CONFIG_INET_DIAG?)")
                yield data[offset + 16 : offset + length]
                offset += (length + 3) & ~3

    def connection(self, *, remote_port: int = 0, local_port: int = 0) -> TcpSample | None:
        """Return the connection to or from a port that has carried most data, or None."""
        candidates = [
            sample
            for sample in self.connections()
            if remote_port in (0, sample.remote_port) and local_port in (0, sample.local_port)
        ]
        return max(
            candidates, key=lambda sample: sample.bytes_acked + sample.bytes_received, default=None
        )


def _diagnostics_socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)


def counters(pid: int) -> dict[str, int]:
    """Return the TCP/IP counters of the namespace of `pid`, by `nstat`'s names."""
    found: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
        for titles, values in zip(lines[::2], lines[1::2], strict=True):
            group, _, names = titles.partition(":")
            numbers = values.partition(":")[2].split()
            for key, number in zip(names.split(), numbers, strict=True):
                found[group + key] = int(number)
    return found

"""A receiver of TCP streams, and of UDP datagrams, that discards all data.

It reads when enough data has arrived (`SO_RCVLOWAT` of socket(7)), not with every packet. In the
lab, the work of a receiver like iperf's for each packet is a third of a run's cost. The kernel's
acknowledgements do not wait for the reads.
"""

import contextlib
import selectors
import socket
import threading

from mininet.node import Node

from pacer_mininet.namespaces import in_namespace_of

READ_BYTES = 1 << 20
WAKE_BYTES = 1 << 16
"""Upper limit for the payload that must have arrived before it is read."""

WINDOW_SHARE = 16
"""It is also at most this fraction of a connection's window."""

BACKLOG = 128
STOP_TIMEOUT_S = 10


class Sink:
    """Listens in the namespaces of hosts, with one thread for all."""

    def __init__(self, window_bytes: int) -> None:
        """Make a sink without ports; `window_bytes` is the hosts' TCP window."""
        self._wake_bytes = max(1, min(WAKE_BYTES, window_bytes // WINDOW_SHARE))
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(READ_BYTES)
        self._stop, stopped = socket.socketpair()
        self._selector.register(stopped, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="sink", daemon=True)
        self._started = False
        self._unread: list[socket.socket] = []

    def listen(self, host: Node, port: int, congestion_control: str = "") -> None:
        """Accept connections to a TCP port of a host. Call it before `start`.

        Args:
            host: the host.
            port: the port.
            congestion_control: that of the connections; empty: the host's.

        Raises:
            OSError: the port is taken, or the kernel lacks the congestion control.

        """

        def make() -> socket.socket:
            listener = socket.create_server(("", port), backlog=BACKLOG)
            if congestion_control:
                name = congestion_control.encode()
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            return listener

        listener = in_namespace_of(host.pid, make)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def discard(self, host: Node, port: int) -> None:
        """Take the datagrams to a UDP port of a host; the kernel drops datagrams that are not read.

        Raises:
            OSError: the port is taken.

        """

        def make() -> socket.socket:
            taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            taken.bind(("", port))
            return taken

        self._unread.append(in_namespace_of(host.pid, make))

    def start(self) -> None:
        """Start reading."""
        self._started = True
        self._thread.start()

    def close(self) -> None:
        """Close all connections and stop listening."""
        self._stop.close()
        if self._started:
            self._thread.join(STOP_TIMEOUT_S)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        for taken in self._unread:
            taken.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        # The other end may have given up before.
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._wake_bytes)
            self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            # With MSG_TRUNC, TCP discards data without copying it (tcp(7)).
            read = connection.recv_into(self._buffer, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError:
            read = 0
        if not read:
            self._selector.unregister(connection)
            connection.close()

"""A relay for TCP connections to a switch or etcd, to break them and to make them silent."""

import contextlib
import socket
import threading


class Relay:
    """A TCP port in front of a switch, whose connections can be broken or stalled."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._open = threading.Event()
        self._open.set()
        self._stranded: list[threading.Event] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                arguments = (one, other, self._open)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, passes: threading.Event) -> None:
        try:
            while data := one.recv(65536):
                passes.wait()
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            end.close()

    def break_all(self) -> None:
        """Break every connection at once."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Pass nothing on any longer, and break nothing: as a machine without power."""
        self._open.clear()

    def strand(self) -> None:
        """Stall the connections that there are for ever, while new ones pass."""
        self._stranded.append(self._open)
        self._open.clear()
        self._open = threading.Event()
        self._open.set()

    def resume(self) -> None:
        """Pass everything on again."""
        self._open.set()

    def close(self) -> None:
        """End."""
        self._closed = True
        for passes in (self._open, *self._stranded):
            passes.set()
        self._listener.close()
        self.break_all()

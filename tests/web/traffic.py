"""Packets for the dashboard to show."""

import socket
import threading


class Traffic:
    """Frames into a switch port, all the time, from a thread: bursts of four every 8 ms."""

    def __init__(self, interface: str, frame: bytes) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(interface, frame), daemon=True)
        self._thread.start()

    def _run(self, interface: str, frame: bytes) -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((interface, 0))
            while not self._stop.wait(0.008):
                for _ in range(4):
                    sender.send(frame)

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()

"""Sends bursts of UDP datagrams until it is killed.

    python3 -m pacer_mininet.bursts HOST PORT FRAMES PERIOD_NS BYTES

Each burst is FRAMES datagrams of BYTES, sent at once. Bursts begin PERIOD_NS apart.
"""

import socket
import sys
import time

SEND_BUFFER_BYTES = 16 << 20
"""A burst does not wait for the interface."""


def main() -> None:
    """Send."""
    host, port, frames, period_ns, payload_bytes = sys.argv[1], *map(int, sys.argv[2:])
    payload = bytes(payload_bytes)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sender.connect((host, port))
        due_ns = time.monotonic_ns()
        while True:
            for _ in range(frames):
                sender.send(payload)
            due_ns += period_ns
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)


if __name__ == "__main__":
    main()

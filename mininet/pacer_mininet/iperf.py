"""iperf 2, the papers' tool: its command lines, and what its server reports.

The server's report is the one that counts: it has seen what arrived, and its clock stops with the
last byte. iperf3 is no substitute in the lab: it polls its clock at the start.
"""

import time
from dataclasses import dataclass
from pathlib import Path

PORT = 5001
START_TIMEOUT_S = 30


class IperfError(RuntimeError):
    """iperf failed, or its report cannot be understood; the text has what it printed."""


@dataclass(frozen=True)
class ServerReport:
    """What the server says of a whole connection."""

    payload_bytes: int
    rate_bps: int
    """Over the server's own duration, from the first byte to the last."""


def server_command() -> list[str]:
    """Return a server that reports exact bytes and ends after one connection."""
    return ["iperf", "-s", "-p", str(PORT), "-P", "1", "-y", "C"]


def client_command(server: str, seconds: int, congestion_control: str) -> list[str]:
    """Return a client that writes for so many seconds."""
    return [
        *("iperf", "-c", server, "-p", str(PORT)),
        *("-t", str(seconds), "-Z", congestion_control, "-f", "m"),
    ]


def wait_for_listener(pid: int, port: int) -> None:
    """Return when a server listens in the namespace of process `pid`: it has no ready line.

    Raises:
        IperfError: it does not.

    """
    deadline = time.monotonic() + START_TIMEOUT_S
    wanted = f":{port:04X} 00000000:0000 0A"
    while time.monotonic() < deadline:
        for table in ("tcp", "tcp6"):
            path = Path(f"/proc/{pid}/net/{table}")
            if path.exists() and wanted in path.read_text():
                return
        time.sleep(0.01)
    raise IperfError(f"the iperf server does not listen on port {port}")


def parse_server_report(text: str) -> ServerReport:
    """Return the last line of `iperf -s -y C`: the whole connection.

    Fields: timestamp, address and port of both ends, id, interval, bytes, bits per second.
    """
    lines = [line for line in text.splitlines() if line.count(",") >= 8]
    if not lines:
        raise IperfError(f"the iperf server reported nothing; it printed: {text.strip()!r}")
    fields = lines[-1].split(",")
    try:
        return ServerReport(payload_bytes=int(fields[7]), rate_bps=int(fields[8]))
    except ValueError:
        raise IperfError(f"cannot read the iperf server's report {lines[-1]!r}") from None


def check_client_output(text: str, congestion_control: str) -> None:
    """Raise IperfError unless the client connected and got the congestion control it asked for."""
    if "connected with" not in text:
        raise IperfError(f"the iperf client did not connect: {text.strip()}")
    if f"TCP congestion control set to {congestion_control}" not in text:
        raise IperfError(f"the kernel refused congestion control {congestion_control!r}: {text}")

"""What the real-time smoke test does inside its namespaces: one transfer, paced, looked at.

Prints one JSON object. Not a test itself: `test_realtime.py` runs it.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mininet"))

from pacer_mininet import tcp_state
from pacer_mininet.command import prepare_namespace
from pacer_mininet.experiment import Run, drops_by_cause, long_fat_network, settings_from
from pacer_mininet.iperf import PORT
from pacer_mininet.topology import S1_PORT_TO_WAN, WAN_PORT_TO_SENDER
from pacer_mininet.traffic import BIN_NS

TOTAL_BYTES = 3_000_000
RATE = "20mbit"

RECEIVER = """
import hashlib, socket
with socket.create_server(("", {port})) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    digest = hashlib.sha256()
    while data := connection.recv(65536):
        digest.update(data)
print(digest.hexdigest())
"""

SENDER = """
import random, socket
with socket.create_connection(("{address}", {port})) as connection:
    connection.sendall(random.Random(7).randbytes({total}))
"""


def port_statistics(statistics: dict[str, Any], port: int) -> dict[str, Any]:
    """Return the counters of one port."""
    return next(p["statistics"] for p in statistics["ports"] if p["port"] == port)


READINGS = 20


def main() -> None:
    """Make the transfer and say what was seen."""
    import random

    prepare_namespace()
    settings = settings_from("paced", seconds=2, rate=RATE, rtt="20ms", congestion_control="cubic")
    with long_fat_network(settings) as net:
        run = Run(settings, net, lambda _event: None)
        run.ping()
        run.shape()
        before = tcp_state.counters(run.h1.pid)
        start_ns = run.statistics("wan")["now_ns"]
        receiver = run.h2.popen([sys.executable, "-c", RECEIVER.format(port=PORT)])
        assert receiver.stdout.readline() == b"listening\n"
        program = SENDER.format(address=run.h2.IP(), port=PORT, total=TOTAL_BYTES)
        _, problems, status = run.h1.pexec(sys.executable, "-c", program)
        assert status == 0, problems
        received, problems = receiver.communicate(timeout=60)
        run.read_bandwidth(start_ns)
        # Read one after the other, while a last ACK or ARP may be on its way: until they agree,
        # which they never do where a ring overflowed.
        for _ in range(READINGS):
            s1, wan = run.statistics("s1"), run.statistics("wan")
            sent = port_statistics(s1, S1_PORT_TO_WAN)["tx_packets"]
            if sent == port_statistics(wan, WAN_PORT_TO_SENDER)["rx_packets"]:
                break
        after = tcp_state.counters(run.h1.pid)
    bandwidth = run.bandwidth.since(start_ns)
    first, last = min(bandwidth.bin_bytes), max(bandwidth.bin_bytes)
    seen = {
        "rate_bps": settings.rate_bps,
        "sent_bytes": TOTAL_BYTES,
        "sent_digest": hashlib.sha256(random.Random(7).randbytes(TOTAL_BYTES)).hexdigest(),
        "received_digest": received.decode().strip(),
        "span_ns": (last - first + 1) * BIN_NS,
        "bytes_in": bandwidth.total_bytes,
        "s1_to_wan_packets": port_statistics(s1, S1_PORT_TO_WAN)["tx_packets"],
        "wan_from_s1_packets": port_statistics(wan, WAN_PORT_TO_SENDER)["rx_packets"],
        "rx_ring_full": drops_by_cause(wan).get("rx-ring-full", 0),
        "retransmits": after["TcpRetransSegs"] - before["TcpRetransSegs"],
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()

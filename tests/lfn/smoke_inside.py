"""The part of the real-time smoke test inside its namespaces: one paced transfer.

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
from pacer_mininet.counters import bandwidth_of, drops_by_cause
from pacer_mininet.experiments.experiment import one_flow
from pacer_mininet.experiments.network import WIRE_IN, network_of, port_to_bottleneck
from pacer_mininet.experiments.runner import ScenarioRun
from pacer_mininet.experiments.scenario import PACED, Scenario
from pacer_mininet.experiments.shaping import port_of, shape
from pacer_mininet.hosts import ping
from pacer_mininet.traffic import BIN_NS

TOTAL_BYTES = 3_000_000
SCENARIO = Scenario(
    one_flow(PACED, "cubic"), seconds=2, rate_bps=20_000_000, rtt_ns=20_000_000, bins=True
)
PING_TIMEOUT_S = 12.0

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
    """Make the transfer and print the measurements."""
    import random

    prepare_namespace()
    with network_of(SCENARIO) as net:
        run = ScenarioRun("smoke", SCENARIO, net, lambda _event: None)
        a1, b1 = net.get("a1"), net.get("b1")
        for _ in range(2):
            ping(a1, b1.IP(), timeout_s=PING_TIMEOUT_S)
        shape(SCENARIO, net, run.rest)
        before = tcp_state.counters(a1.pid)
        start_ns = run.statistics("wan")["now_ns"]
        receiver = b1.popen([sys.executable, "-c", RECEIVER.format(port=port_of(0))])
        assert receiver.stdout.readline() == b"listening\n"
        program = SENDER.format(address=b1.IP(), port=port_of(0), total=TOTAL_BYTES)
        _, problems, status = a1.pexec(sys.executable, "-c", program)
        assert status == 0, problems
        received, problems = receiver.communicate(timeout=60)
        answer = run.rest.get("switches", "wan", "bandwidth", port=WIRE_IN, from_ns=start_ns)
        # Read one after the other, while a last ACK or ARP may be on its way: until they agree,
        # which they never do where a ring overflowed.
        for _ in range(READINGS):
            edge, wan = run.statistics("edge1"), run.statistics("wan")
            sent = port_statistics(edge, port_to_bottleneck(SCENARIO, 1))["tx_packets"]
            arrived = port_statistics(wan, WIRE_IN)["rx_packets"]
            if sent == arrived:
                break
        after = tcp_state.counters(a1.pid)
    bandwidth = bandwidth_of(answer).since(start_ns)
    first, last = min(bandwidth.bin_bytes), max(bandwidth.bin_bytes)
    seen = {
        "rate_bps": SCENARIO.rate_bps,
        "sent_bytes": TOTAL_BYTES,
        "sent_digest": hashlib.sha256(random.Random(7).randbytes(TOTAL_BYTES)).hexdigest(),
        "received_digest": received.decode().strip(),
        "span_ns": (last - first + 1) * BIN_NS,
        "bytes_in": bandwidth.total_bytes,
        "edge_to_wan_packets": sent,
        "wan_from_edge_packets": arrived,
        "rx_ring_full": drops_by_cause(wan).get("rx-ring-full", 0),
        "retransmits": after["TcpRetransSegs"] - before["TcpRetransSegs"],
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()

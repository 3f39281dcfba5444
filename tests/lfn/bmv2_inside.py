"""The part of the tests of stock BMv2 inside its namespaces. Prints one JSON object.

    bmv2_inside.py start [KEY VALUE]    start it, with a parameter at its port 2; say its error
    bmv2_inside.py run                  send datagrams through a class; say what came

Not a test itself: `test_bmv2.py` runs it.
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mininet"))

from mininet.net import Mininet
from mininet.topo import Topo

from pacer_mininet.bmv2_switch import BMv2PacerSwitch
from pacer_mininet.command import prepare_namespace
from pacer_mininet.hosts import LfnHost, introduce, ping
from pacer_mininet.namespaces import in_namespace_of
from pacer_mininet.net import started
from pacer_mininet.processes import NodeError

RATE_BPS = 5_000_000
PORT = 5001
PAYLOAD_BYTES = 1472
SENT, BURST = 20, 300
PING_TIMEOUT_S = 12.0
LEARNING_S = 0.2
QUIET_S = 1.0
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("=qq")
NUMBER = struct.Struct("=I")


class EdgeTopo(Topo):  # type: ignore[misc] # mininet has no types
    """Two hosts at stock BMv2."""

    def build(self, settings: dict[str, str]) -> None:
        """Build it; `settings` are parameters of port 2."""
        self.addSwitch("s1", cls=BMv2PacerSwitch)
        for name in ("h1", "h2"):
            self.addHost(name, cls=LfnHost)
        self.addLink("h1", "s1", port2=1)
        self.addLink("h2", "s1", port2=2, params2=settings)


def start(settings: dict[str, str]) -> dict[str, Any]:
    """Start the switch without a controller; return the error."""
    Mininet.inited = True
    net = Mininet(topo=EdgeTopo(settings), controller=None, autoSetMacs=True, build=False)
    try:
        net.build()
        net.start()
    except (NodeError, ValueError) as error:
        return {"error": str(error)}
    finally:
        net.stop()
    return {"error": None}


def receiver_at(host: Any) -> socket.socket:
    """Return a UDP socket of a host that stamps arriving datagrams."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind(("", PORT))
        return made

    return in_namespace_of(host.pid, make)


def received(through: socket.socket) -> tuple[list[int], list[int]]:
    """Return the numbers of the datagrams that come until it is quiet, and their stamps in ns."""
    through.settimeout(QUIET_S)
    numbers: list[int] = []
    stamps: list[int] = []
    while True:
        try:
            data, control, _, _ = through.recvmsg(2048, socket.CMSG_SPACE(STAMP.size))
        except TimeoutError:
            return numbers, stamps
        seconds, nanoseconds = STAMP.unpack(control[0][2])
        numbers.append(NUMBER.unpack_from(data)[0])
        stamps.append(seconds * 10**9 + nanoseconds)


def run() -> dict[str, Any]:
    """Send a few datagrams at once, and then more than the switch can hold."""
    with started(EdgeTopo({})) as net:
        h1, h2, s1 = (net.get(name) for name in ("h1", "h2", "s1"))
        rest = net.controllers[0].rest
        introduce(h1, [h2])
        introduce(h2, [h1])
        for _ in range(2):
            ping(h1, h2.IP(), timeout_s=PING_TIMEOUT_S)
            time.sleep(LEARNING_S)
        rest.put("switches", "s1", "classes", "udp", body={"rate": RATE_BPS})
        match = {"protocol": "udp", "dst_port": PORT}
        rest.put("switches", "s1", "flows", "udp", body={"match": match, "class": "udp"})
        sender = in_namespace_of(h1.pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        arriving = receiver_at(h2)

        def send(count: int) -> int:
            at_ns = time.time_ns()
            for number in range(count):
                frame = NUMBER.pack(number).ljust(PAYLOAD_BYTES, b"\0")
                sender.sendto(frame, (h2.IP(), PORT))
            return at_ns

        sent_ns = send(SENT)
        numbers, at_ns = received(arriving)
        drops = s1.statistics()["traffic_manager"]["drops"]
        send(BURST)
        burst, _ = received(arriving)
        dropped = s1.statistics()["traffic_manager"]["drops"]["hold-limit"]
        return {
            "rate_bps": RATE_BPS,
            "sent": SENT,
            "sent_ns": sent_ns,
            "received": numbers,
            "at_ns": at_ns,
            "drops": drops,
            "burst": {
                "sent": BURST,
                "received": len(burst),
                "drops": dropped - drops["hold-limit"],
            },
        }


if __name__ == "__main__":
    prepare_namespace()
    words = sys.argv[2:]
    found = (
        run() if sys.argv[1] == "run" else start(dict(zip(words[::2], words[1::2], strict=True)))
    )
    print(json.dumps(found))

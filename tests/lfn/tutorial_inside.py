"""One switch and two hosts in Mininet, with the command line that the P4 tutorials use.

tutorial_inside.py SWITCH PROGRAM.json FOLDER: prints what came out as JSON. Runs in namespaces of
its own.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

from mininet.net import Mininet
from mininet.node import Host, Switch
from mininet.topo import Topo

START_TIMEOUT_S = 30.0
GRPC_PORT = 50051
RECEIVE = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("{interface}", 0))
s.settimeout({timeout})
print("listening", flush=True)
frame = b""
while len(frame) != {length}:
    frame = s.recv(2048)
print(frame.hex())
"""
SEND = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("{interface}", 0))
s.send(bytes({length}))
"""
FRAME_BYTES = 71


class CommandLineSwitch(Switch):  # type: ignore[misc]  # Mininet has no types
    """Starts its program with simple_switch_grpc's options, as one line of a shell."""

    pid = 0

    def start(self, _controllers: object) -> None:
        """Start it, and wait for its gRPC port."""
        switch, program, folder = sys.argv[1:]
        words = [switch]
        for port, interface in self.intfs.items():
            if not interface.IP():
                words.append(f"-i {port}@{interface.name}")
        words += [
            f"--pcap {folder} --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 {program}",
            f"--log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:{GRPC_PORT}",
            "--cpu-port 255 --priority-queues 8",
        ]
        line = f"{' '.join(words)} >{folder}/switch.log 2>&1 & echo $! >{folder}/switch.pid"
        self.cmd(line)
        self.pid = int((Path(folder) / "switch.pid").read_text())
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", GRPC_PORT)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError((Path(folder) / "switch.log").read_text())

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """End it."""
        self.cmd(f"kill {self.pid}; wait {self.pid}")
        super().stop(deleteIntfs)


class OneSwitch(Topo):  # type: ignore[misc]  # Mininet has no types
    """Two hosts, ports 1 and 2."""

    def build(self) -> None:
        """Make the nodes."""
        self.addSwitch("s1", cls=CommandLineSwitch)
        for number in (1, 2):
            self.addHost(f"h{number}", cls=Host)
            self.addLink(f"h{number}", "s1", port2=number)


def main() -> None:
    """Send a frame from h1; print the frames that h2 got."""
    Mininet.inited = True  # or it tunes the whole machine's limits
    net = Mininet(topo=OneSwitch(), controller=None)
    net.start()
    try:
        sender, receiver = net.get("h1"), net.get("h2")
        receive = RECEIVE.format(
            interface=receiver.defaultIntf().name, timeout=START_TIMEOUT_S, length=FRAME_BYTES
        )
        process = receiver.popen([sys.executable, "-c", receive], text=True)
        process.stdout.readline()
        send = SEND.format(interface=sender.defaultIntf().name, length=FRAME_BYTES)
        sender.popen([sys.executable, "-c", send]).wait()
        got, errors = process.communicate(timeout=START_TIMEOUT_S)
        told = {"frame": got.strip(), "errors": errors}
    finally:
        net.stop()
    folder = Path(sys.argv[3])
    told["files"] = sorted(os.listdir(folder))
    told["log"] = (folder / "switch.log").read_text()
    print(json.dumps(told))


if __name__ == "__main__":
    main()

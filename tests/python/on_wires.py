"""A switch between two wires, in a namespace of its own; not a test itself.

Prints one JSON object: whether a frame passed, what `ethtool -k` says of one end, and how an
interface that is not there is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from pacing_switch import ProcessError, Switch
from pacing_switch.wires import make_wires

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))

from virtual_switch import COMPILED, binary

ETHER_TYPE = 0x88B5
FRAME = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + ETHER_TYPE.to_bytes(2, "big") + bytes(46)
TIMEOUT_S = 60.0


def end_of_wire(interface: str) -> socket.socket:
    """Return a socket that sends and receives the test's frames."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.bind((interface, ETHER_TYPE))
    end.settimeout(TIMEOUT_S)
    return end


def make_wires_by_ip_alone(folder: Path) -> None:
    """Make the wires, with no program on PATH but `ip`."""
    ip, path = shutil.which("ip"), os.environ["PATH"]
    assert ip is not None
    (folder / "ip").symlink_to(ip)
    os.environ["PATH"] = str(folder)
    make_wires([("t1", "s1"), ("t2", "s2")])
    os.environ["PATH"] = path


def main() -> None:
    """Run both."""
    folder = Path(sys.argv[1])
    replicas = [{"egress_port": port, "instance": port} for port in (1, 2)]
    groups = [{"multicast_group_id": group, "replicas": replicas} for group in (1, 2)]
    runtime = folder / "runtime.json"
    runtime.write_text(json.dumps({"multicast_group_entries": groups}))
    make_wires_by_ip_alone(folder)
    offloads = ""
    if ethtool := shutil.which("ethtool"):
        command = [ethtool, "-k", "s1"]
        offloads = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    near, far = end_of_wire("t1"), end_of_wire("t2")
    options = ["--cpu-port", "510", "--runtime-json", str(runtime)]
    ports = {1: "s1", 2: "s2,rate=1gbit"}
    with Switch(COMPILED / "pacer.json", ports, options=options, binary=binary()):
        near.send(FRAME)
        passed = far.recv(2048) == FRAME
    refused = ""
    try:
        with Switch(ports={1: "none"}, binary=binary()):
            pass
    except ProcessError as error:
        refused = str(error)
    print(json.dumps({"passed": passed, "offloads": offloads, "refused": refused}))


if __name__ == "__main__":
    main()

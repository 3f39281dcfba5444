"""A port that goes down and up, and is removed and added, in its own namespace; not a test.

Prints the messages of it that the switch publishes, in hexadecimal, as a JSON list.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pacing_switch import Switch
from pacing_switch.wires import make_wires
from stubs import connected, generate
from subscriber import message_of, subscribed
from virtual_switch import binary

PROGRAM = Path(__file__).resolve().parents[1] / "conformance" / "compiled" / "priorities.json"


def main() -> None:
    """Take the switch's end of a wire down and up again; remove the port and add it."""
    address = f"ipc://{sys.argv[1]}/notifications.ipc"
    generate(Path(sys.argv[1]))
    make_wires([("t1", "s1"), ("t2", "s2")])
    options = ["--notifications-addr", address, "--thrift-port", "0"]
    messages = []
    with (
        Switch(PROGRAM, {1: "s1", 2: "s2"}, options=options, binary=binary()) as switch,
        subscribed(address) as stream,
    ):
        for state in ("down", "up"):
            subprocess.run(["ip", "link", "set", "s2", state], check=True)
            messages.append(message_of(stream).hex())
        line = switch.wait_for_line(": Thrift at ")
        with connected(int(line.rpartition(":")[2])) as clients:
            clients.standard.bm_dev_mgr_remove_port(2)
            clients.standard.bm_dev_mgr_add_port("s2", 2, "")
        messages.append(message_of(stream).hex())
    print(json.dumps(messages))


if __name__ == "__main__":
    main()

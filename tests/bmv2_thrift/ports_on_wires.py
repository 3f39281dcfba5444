"""A port that goes down and up, in a network namespace of its own; not a test.

Prints the messages of it that the switch publishes, in hexadecimal, as a JSON list.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pacing_switch import Switch
from pacing_switch.wires import make_wires
from subscriber import message_of, subscribed
from virtual_switch import binary

PROGRAM = Path(__file__).resolve().parents[1] / "conformance" / "compiled" / "priorities.json"


def main() -> None:
    """Take the switch's end of a wire down and up again."""
    address = f"ipc://{sys.argv[1]}/notifications.ipc"
    make_wires([("t1", "s1"), ("t2", "s2")])
    options = ["--notifications-addr", address]
    messages = []
    with (
        Switch(PROGRAM, {1: "s1", 2: "s2"}, options=options, binary=binary()),
        subscribed(address) as stream,
    ):
        for state in ("down", "up"):
            subprocess.run(["ip", "link", "set", "s2", state], check=True)
            messages.append(message_of(stream).hex())
    print(json.dumps(messages))


if __name__ == "__main__":
    main()

"""Virtual wires for tests: veth pairs that carry every frame, and only the tests' frames.

Works in the network namespace that it is called in, which has to be one of the test's own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from pacing_switch.offloads import FLAGS, SETTINGS, OffloadError, turn_off

CARRIER_SECONDS = 60.0
# The kernel would hand over frames larger than the wire takes, or with checksums to be filled in.
OFFLOADS = (*SETTINGS, *FLAGS)


class WireError(Exception):
    """A wire cannot be made; the text has the words of the tool, or the kernel, that refused."""


def make_wires(pairs: Iterable[tuple[str, str]], mtu: int = 1500) -> None:
    """One veth pair, up, for each pair of names; returns when all of them carry frames.

    Packet-true: no offloads, and no IPv6, whose router solicitations would be stray packets.
    `mtu` is the longest payload of a frame, in bytes. The loopback interface is brought up, too.

    Raises WireError, also when an interface has no carrier after CARRIER_SECONDS.
    """
    for scope in ("all", "default"):
        knob = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if knob.exists():
            knob.write_text("1")
    _quietly("ip", "link", "set", "lo", "up")
    ends = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as through:
        for one, other in pairs:
            _quietly("ip", "link", "add", one, "type", "veth", "peer", "name", other)
            for end in (one, other):
                try:
                    turn_off(through, end, OFFLOADS)
                except OffloadError as error:
                    raise WireError(str(error)) from None
                _quietly("ip", "link", "set", end, "mtu", str(mtu), "up")
                ends.append(end)
    for end in ends:
        await_carrier(end)


def await_carrier(interface: str) -> None:
    """Returns when the interface takes frames.

    The kernel handles a change of carrier some time after the call that made it; until then the
    interface drops all frames.

    Raises WireError when it does not within CARRIER_SECONDS.
    """
    limit = time.monotonic() + CARRIER_SECONDS
    while True:
        (link,) = json.loads(_quietly("ip", "-j", "link", "show", "dev", interface))
        if link["operstate"] == "UP":
            return
        if time.monotonic() > limit:
            raise WireError(f"{interface} is {link['operstate']} after {CARRIER_SECONDS} s")
        time.sleep(0.01)


def _quietly(*command: str) -> str:
    """Runs a command that has nothing to say unless it fails; returns its output."""
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise WireError(f"`{command[0]}` is not installed") from missing
    if run.returncode != 0:
        raise WireError(f"`{' '.join(command)}` failed: {(run.stderr + run.stdout).strip()}")
    return run.stdout

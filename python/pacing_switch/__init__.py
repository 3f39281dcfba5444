"""Starts the P4 switch `pacing_switch` for a test, on interfaces or in virtual time.

    from pacing_switch import Switch

    with Switch("router.json", ports={1: "veth0", 2: "veth2,rate=100mbit"}) as switch:
        print(switch.grpc_address)  # P4Runtime

The module `wires` makes pairs of veth interfaces that carry a test's frames and no others.
"""

from pacing_switch.captures import TimedFrame, read_capture, write_capture
from pacing_switch.processes import ProcessError
from pacing_switch.program import NoSwitchError, program_path
from pacing_switch.switch import Switch
from pacing_switch.virtual import VirtualSwitch

__all__ = [
    "NoSwitchError",
    "ProcessError",
    "Switch",
    "TimedFrame",
    "VirtualSwitch",
    "program_path",
    "read_capture",
    "write_capture",
]

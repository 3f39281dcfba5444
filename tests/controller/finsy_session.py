"""A session of finsy with a running switch: program, entries, meters, counters.

    finsy_session.py ADDRESS P4INFO.txtpb PROGRAM.json METERED_INTERFACE OTHER_INTERFACE

Pushes the program, sends three frames to port 1, which has a flow with a meter, and two to port 2,
which has none, and prints the switch's counters, as JSON. Runs as a process of its
own, since its connections belong to the namespace it starts in.
"""

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import finsy as fy

FRAME = b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x0a" + b"\x90\x00" + bytes(46)
METER = fy.P4MeterConfig(cir=1, cburst=len(FRAME), pir=1, pburst=2 * len(FRAME))
GROUP = 9
NOTHING = fy.P4CounterData(packet_count=0, byte_count=0)


def flow(**what: Any) -> fy.P4TableEntry:
    """Return the entry of the flow of packets from port 1, for a read or a write."""
    match = fy.P4TableMatch(ingress_port="1/&0x1ff")
    return fy.P4TableEntry("flows", match=match, priority=10, **what)


async def one(switch: fy.Switch, entity: Any) -> Any:
    """Read an entity of which there is one."""
    answers: Any = switch.read(entity)
    [answer] = [answer async for answer in answers]
    return answer


def send(interface: str, frames: int) -> None:
    """Put frames on a wire."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((interface, 0))
        for _ in range(frames):
            sender.send(FRAME)


async def session(address: str, p4info: str, program: str, metered: str, other: str) -> Any:
    """Write, send and read."""
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), device_id=0)
    async with fy.Switch("s1", address, options) as switch:
        classify = fy.P4TableAction(
            "classify", class_id=0, drop_red=0, mark=0, yellow_dscp=0, red_dscp=0
        )
        group = fy.P4MulticastGroupEntry(GROUP, replicas=[1, 2])
        await switch.insert([flow(action=classify, meter_config=METER), group])
        send(metered, 3)
        send(other, 2)
        misses = fy.P4DirectCounterEntry(
            "flow_counter", table_entry=fy.P4TableEntry("flows", is_default_action=True)
        )
        asked = flow(
            meter_config=METER,
            counter_data=NOTHING,
            meter_counter_data=fy.P4MeterCounterData(green=NOTHING, yellow=NOTHING, red=NOTHING),
        )
        while True:
            missed = await one(switch, misses)
            entry = await one(switch, asked)
            if missed.data.packet_count >= 2 and entry.counter_data.packet_count >= 3:
                break
        read_group = await one(switch, fy.P4MulticastGroupEntry(GROUP))
        counts = entry.meter_counter_data
        await switch.delete([flow(), group])
        left: Any = switch.read(fy.P4TableEntry("flows"))
        return {
            "meter_as_written": entry.meter_config == METER,
            "colours": [c.packet_count for c in (counts.green, counts.yellow, counts.red)],
            "misses": [missed.data.packet_count, missed.data.byte_count],
            "replicas": len(read_group.replicas),
            "left": len([entry async for entry in left]),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(session(*sys.argv[1:]))))

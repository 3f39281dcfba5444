"""Settings of queues over Thrift, in a network namespace of its own; not a test.

`calls.json` in the folder has groups of calls by name. A call is a list: a method of the service
`simple_switch` and its arguments. Port 1 has three queues in a tree, port 2 has a FIFO, and port
510 is the controller's.

Prints one JSON object: the queues of each port at the start; of each group, the error of each call
(null: none) with the queues after it; a stranger's answer while a holder controls the switch, with
the queues before and after it; the switch's refusals.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import grpc.aio
from p4runtime_client import Client, Program
from pacer_controller.traffic_manager import TrafficManager
from pacing_switch import Switch
from pacing_switch.wires import make_wires
from stranger import strangers_answer
from stubs import Clients, connected, generate
from virtual_switch import COMPILED, binary

TREE = (
    "rate=100mbit,queues=3,scheduler=strict{q2+wfq{q1:4+q0}:rate=40mbit},"
    "q0.min=1mbit,q1.rate=10mbit,q1.burst=3KB,q2.packets=64"
)
CPU_PORT = 510
# A field of Thrift: its type (a number of 64 bits), its number, its value.
RATE_1_PPS = struct.pack(">bhq", 10, 1, 1)


def queues_of(switch: Switch) -> dict[int, Any]:
    """The egress queues of each port, as the service TrafficManager has them."""

    async def asked() -> dict[int, Any]:
        async with grpc.aio.insecure_channel(switch.grpc_address) as channel:
            ports = await TrafficManager(channel).ports()
        return {port.port: port.egress_queues for port in ports}

    return asyncio.run(asked())


def error_of(clients: Clients, method: str, arguments: list[int]) -> str | None:
    """Make a call; return the text of its error."""
    refusal = importlib.import_module("thrift.Thrift").TApplicationException
    try:
        getattr(clients.simple_switch, method)(*arguments)
    except refusal as error:
        return str(error)
    return None


def main() -> None:
    """Make the calls, then a stranger's."""
    folder = Path(sys.argv[1])
    groups = json.loads((folder / "calls.json").read_text())
    stats = folder / "stats.json"
    generate(folder)
    make_wires([("s1", "s2")])
    ports = {1: f"s1,{TREE}", 2: "s2"}
    options = ["--thrift-port", "0", "--cpu-port", str(CPU_PORT), "--stats-file", str(stats)]
    program = COMPILED / "pacer.json"
    with Switch(program, ports, options=options, binary=binary()) as switch:
        line = switch.wait_for_line(": Thrift at ")
        port = int(line.rpartition(":")[2])
        queues = queues_of(switch)
        told: dict[str, Any] = {"queues": queues}
        with connected(port) as clients:
            for group, calls in groups.items():
                told[group] = []
                for method, *arguments in calls:
                    error = error_of(clients, method, arguments)
                    queues = queues_of(switch)
                    told[group].append([error, queues])
        p4info = program.with_suffix(".p4info.txtpb")
        holder = Client(switch.grpc_address, 0, Program(p4info, program))
        holder.become_primary()
        answer = strangers_answer(port, "simple_switch:set_all_egress_queue_rates", RATE_1_PPS)
        told["stranger"] = [answer, queues, queues_of(switch)]
        holder.close()
    told["refusals"] = json.loads(stats.read_text())["refusals"]
    print(json.dumps(told))


if __name__ == "__main__":
    main()

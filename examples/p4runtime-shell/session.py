"""A session of p4runtime-shell with a running switch: program, entries, counters.

    session.py ADDRESS P4INFO.txtpb PROGRAM.json     (docs/tools.md says how to start it)

p4runtime-shell pins old packages, so it lives in an environment of its own. The same lines work at
its prompt, without `shell.`.
"""

from __future__ import annotations

import sys

from p4runtime_sh import shell  # type: ignore[import-not-found]

FLOODED = 100


def main() -> None:
    address, p4info, program = sys.argv[1:]
    shell.setup(
        device_id=0,
        grpc_addr=address,
        election_id=(0, 1),
        config=shell.FwdPipeConfig(p4info, program),
        verbose=False,
    )
    # A class of 8 Mbit/s: a microsecond for each byte, in 1/2^24 ns.
    paced = shell.TableEntry("PacerIngress.classes")(action="PacerIngress.paced_static")
    paced.match["class_id"] = "7"
    paced.action["time_per_byte_q24"] = str(1000 << 24)
    paced.action["limit_bytes"] = "100000"
    paced.action["allowance_ns"] = "1518000"
    paced.insert()
    paced.action["limit_bytes"] = "50000"
    paced.modify()
    station = shell.TableEntry("PacerIngress.forward")(action="PacerIngress.forward_to")
    station.match["dst_mac"] = "02:00:00:00:00:02"
    station.action["port"] = "2"
    station.insert()
    group = shell.MulticastGroupEntry(FLOODED)
    group.add(1, 1)
    group.add(2, 1)
    group.insert()
    for name in ("PacerIngress.classes", "PacerIngress.forward"):
        entries = list(shell.TableEntry(name).read())
        print(f"{name}: {len(entries)} entry")
    counter = shell.CounterEntry("PacerIngress.class_accepted")
    counter.index = 7
    counter.read(lambda cell: print(f"class 7: {cell.packet_count} packets"))
    for entry in (station, paced, group):
        entry.delete()
    print(f"left: {len(list(shell.TableEntry('PacerIngress.classes').read()))}")
    shell.teardown()


if __name__ == "__main__":
    main()

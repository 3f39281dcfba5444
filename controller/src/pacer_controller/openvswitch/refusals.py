"""The patched Open vSwitch's reasons for refused QoS or queues, by resource; a pure function.

They are in the `status` column of a QoS row: by interface, separated by "; ". A reason about a
queue begins with "queue N: "; the others are about the port (`ovs-vswitchd.conf.db(5)`). An egress
queue is a setting of its port.
"""

import re
from collections.abc import Iterable, Mapping

from pacer_controller.openvswitch.queues import queue_of
from pacer_controller.rows import PORTS, QUEUES, Rows
from pacer_controller.southbound import PortInfo

_QUEUE = re.compile(r"queue ([0-9]{1,10}): (.*)", re.DOTALL)


def by_owner(refused: Mapping[str, str], ports: Iterable[PortInfo], wanted: Rows) -> dict[str, str]:
    """Return the reasons for refused resources, by owner of their rows.

    Refusals at other ports do not concern a class that leaves by one port.

    Args:
        refused: the status by interface.
        ports: the bridge's ports.
        wanted: the desired rows; reasons about other rows are ignored.

    """
    numbers = {port.interface: port.port for port in ports}
    queues, settings = {}, {}
    for row in wanted.values():
        match = dict(row.match)
        if row.table == QUEUES:
            queues[match["queue"]] = (row.owner, dict(row.params).get("port"))
        elif row.table == PORTS:
            settings[match["port"]] = row.owner
    reasons: dict[str, list[str]] = {}
    for interface, status in refused.items():
        port = numbers.get(interface)
        for text in status.split("; "):
            named = _QUEUE.fullmatch(text)
            egress_queue = None if named is None else queue_of(int(named[1]))
            if named is None or egress_queue is not None:
                owner, reason = None if port is None else settings.get(port), text
                if named is not None:
                    reason = f"egress queue {egress_queue}: {named[2]}"
            else:
                owner, only = queues.get(int(named[1]), (None, None))
                owner, reason = owner if only in (None, port) else None, named[2]
            if owner is not None:
                reasons.setdefault(owner, []).append(f"port {interface} refuses it: {reason}")
    return {owner: "; ".join(texts) for owner, texts in reasons.items()}

"""The egress queues of a port as rows of the patched Open vSwitch's database, and back; pure.

A port's egress queues are unpaced queues of its own, beside those of the classes, which are on
every port. Their numbers are above those of all classes, so that the two never meet.
"""

from collections.abc import Mapping
from typing import Any

from pacer_controller import egress_queues
from pacer_controller.egress_queues import QueueFeatures
from pacer_controller.fields import FCS_BYTES
from pacer_controller.openvswitch.ovsdb import number

NUMBERS_FROM = 62_000
"""Added to the number of an egress queue above 0. Classes have numbers up to 61,439, and a pacer
has queues up to 65,535."""

FEATURES = QueueFeatures(
    trees=False,
    aqm=False,
    min_rates=False,
    buffers=False,
    fifo_max_bytes=2**32 - 1,
    packets_max=2**20,
    burst_max_bytes=2**20,
)
"""The features of the pacer's unpaced queues (ovs-patches/README.md)."""

_KEYS = {
    "fifo_bytes": "limit",
    "fifo_packets": "limit-packets",
    "rate_bps": "max-rate",
    "burst_bytes": "burst",
}
"""Keys of a queue's `other_config` by setting."""

_UNCOUNTED = (
    "backlog_packets",
    "backlog_bytes",
    "backlog_max_packets",
    "backlog_max_bytes",
    "marked_packets",
    "sojourn",
)
"""Statistics that a pacing_switch has of a queue, and OpenFlow has not."""

_WEIGHTED = ("drr", "wfq")


def number_of(queue: int) -> int:
    """Return an egress queue's number on the switch; 0 is the queue of packets without one."""
    return queue and NUMBERS_FROM + queue


def queue_of(index: int) -> int | None:
    """Return the egress queue of a number on the switch; None: the queue of a class has it."""
    if index == 0:
        return 0
    return index - NUMBERS_FROM if index > NUMBERS_FROM else None


def scheduler(queues: Mapping[str, Any]) -> str:
    """Return the `scheduler` of a port's `other_config`.

    Args:
        queues: egress queues in the form of `egress_queues.plain`.

    """
    return str(queues["scheduler"]).partition(":")[0]


def settings(queues: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    """Return the `other_config` of each egress queue, by number on the switch.

    Args:
        queues: egress queues in the form of `egress_queues.plain`.

    """
    rows = {queue: {"mode": "unpaced"} for queue in range(queues["queues"])}
    _, *weights = str(queues["scheduler"]).split(":")
    for queue, weight in enumerate(weights):
        rows[queue]["weight"] = str(int(weight))
    for one in queues["settings"]:
        rows[one["queue"]] |= {_KEYS[name]: str(one[name]) for name in _KEYS if name in one}
    return {number_of(queue): config for queue, config in rows.items()}


def plain(port: Mapping[str, str], rows: Mapping[int, Mapping[str, str]]) -> dict[str, Any] | None:
    """Return a port's egress queues in the form of `egress_queues.plain`; None: it has none.

    Args:
        port: the `other_config` of the port's QoS.
        rows: the `other_config` of each of its own queues, by number on the switch.

    """
    if not rows:
        return None
    own = [config for _, config in sorted(rows.items())]
    order = port.get("scheduler", "fifo")
    if order in _WEIGHTED:
        order = ":".join([order, *(config.get("weight", "1") for config in own)])
    given = [
        {"queue": queue, **{name: number(config.get(key)) for name, key in _KEYS.items()}}
        for queue, config in enumerate(own)
    ]
    return egress_queues.plain({"queues": len(own), "scheduler": order, "settings": given})


def statistics(
    port: int, queues: int, counters: Mapping[tuple[int, int], tuple[int, int, int]]
) -> list[dict[str, Any]]:
    """Return the statistics of a port's egress queues; what OpenFlow does not have is None.

    Args:
        port: the port's number.
        queues: the number of its egress queues.
        counters: sent packets and bytes without FCS, and packets lost, by port and number on the
            switch.

    """
    result = []
    for queue in range(queues):
        packets, size, lost = counters.get((port, number_of(queue)), (0, 0, 0))
        result.append(
            {
                "queue": queue,
                "tx_packets": packets,
                "tx_bytes": size + FCS_BYTES * packets,
                "drops": {"queue-full": lost},
                **dict.fromkeys(_UNCOUNTED),
            }
        )
    return result

"""Layer-2 learning: what a packet from a station changes in `sources` and `forward`.

Pure: packets go in, changes come out, and nothing is learned until the switch has taken them
(`learned`). A station is a unicast MAC address at a port; when it turns up at another port it
has moved. Pinned stations, from the configuration, never move.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pacer_controller.entries import FORWARD, SOURCES
from pacer_controller.fields import format_mac
from pacer_controller.rows import Change, MatchValue, Op, Row, row

_MULTICAST_BIT = 1 << 40


@dataclass
class LearningCounters:
    """Packets from unknown sources since the controller started, by their outcome."""

    packets: int = 0
    """Packets looked at."""
    learned: int = 0
    """New stations."""
    moved: int = 0
    """Stations that changed port."""
    repeated: int = 0
    """Packets of a station that was already known there: sent before the entry took effect."""
    ignored: int = 0
    """Packets with no usable source: too short, or a group or zero address."""
    pinned: int = 0
    """Packets of a pinned station at the wrong port."""
    table_full: int = 0
    """Packets whose source could not be learned because the switch's table is full."""
    failed: int = 0
    """Packets whose source the switch refused to learn for another reason."""


@dataclass
class Learning:
    """Stations of one switch.

    Attributes:
        capacity: most stations the switch's tables hold.
        ports: port by MAC address.
        pinned: stations that do not move.

    """

    capacity: int
    ports: dict[int, int] = field(default_factory=dict)
    pinned: Mapping[int, int] = field(default_factory=dict)
    counters: LearningCounters = field(default_factory=LearningCounters)

    def packet(self, payload: bytes, port: int) -> list[Change]:
        """Return the changes for a packet that came in by `port` from an unknown source."""
        self.counters.packets += 1
        mac = int.from_bytes(payload[6:12], "big")
        if len(payload) < 14 or mac == 0 or mac & _MULTICAST_BIT:
            self.counters.ignored += 1
            return []
        if self.pinned.get(mac, port) != port:
            self.counters.pinned += 1
            return []
        old = self.ports.get(mac)
        if old == port:
            self.counters.repeated += 1
            return []
        if old is None and len(self.ports) >= self.capacity:
            self.counters.table_full += 1
            return []
        return station_changes(mac, port, old)

    def learned(self, mac: int, port: int) -> None:
        """Note that the switch has taken the changes."""
        if mac in self.ports:
            self.counters.moved += 1
        else:
            self.counters.learned += 1
        self.ports[mac] = port

    def adopt(self, rows: list[Row]) -> list[Change]:
        """Take over what a switch already knows; returns the changes that make it consistent.

        A `forward` entry says where a station is; `sources` entries that contradict it, and
        stations known in one table only, are mended.
        """
        known: dict[int, int] = {}
        sources: dict[tuple[int, int], Row] = {}
        for entry in rows:
            match = dict(entry.match)
            if entry.table == FORWARD:
                known[plain(match["dst_mac"])] = int(dict(entry.params)["port"])
            elif entry.table == SOURCES:
                where = (plain(match["src_mac"]), plain(match["ingress_port"]))
                sources[where] = entry
        mends: list[Change] = []
        for mac, port in self.pinned.items():
            if known.get(mac) != port:
                op = Op.MODIFY if mac in known else Op.INSERT
                mends.append(Change(op, forward_row(mac, port)))
                known[mac] = port
        for mac, port in known.items():
            if (mac, port) not in sources:
                mends.append(Change(Op.INSERT, source_row(mac, port)))
        for (mac, port), entry in sources.items():
            if known.get(mac) != port:
                mends.append(Change(Op.DELETE, entry))
        self.ports = known
        return mends


def plain(value: MatchValue) -> int:
    """Return a value without its mask."""
    if isinstance(value, tuple):
        return value[0]
    return int(value)


def forward_row(mac: int, port: int) -> Row:
    """Return the entry that sends packets for a station to its port."""
    owner = f"station {format_mac(mac)}"
    return row(FORWARD, {"dst_mac": mac}, "forward_to", {"port": port}, owner=owner)


def source_row(mac: int, port: int) -> Row:
    """Return the entry that says a station is known at a port."""
    owner = f"station {format_mac(mac)}"
    return row(SOURCES, {"src_mac": mac, "ingress_port": port}, "known", owner=owner)


def station_changes(mac: int, port: int, old: int | None) -> list[Change]:
    """Return the writes for a station that is new (`old` is None) or has moved."""
    if old is None:
        return [Change(Op.INSERT, forward_row(mac, port)), Change(Op.INSERT, source_row(mac, port))]
    return [
        Change(Op.MODIFY, forward_row(mac, port)),
        Change(Op.INSERT, source_row(mac, port)),
        Change(Op.DELETE, source_row(mac, old)),
    ]

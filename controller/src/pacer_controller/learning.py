"""Layer-2 learning: the changes of `sources` and `forward` that a station's packets cause.

The module does no I/O: packets and times go in, changes come out. A change counts only when the
switch has made it (`learned`, `aged`). A station is a unicast MAC address at a port; if its packets
come in by another port, it has moved. Pinned stations, from the configuration, never move and never
age.

A station ages in two steps. `AGEING_S` after its last packet, its entry in `sources` is deleted, so
its next packet comes to the controller, which inserts the entry again. After another `AGEING_S`
without a packet its entry in `forward` is deleted, too. Between the two steps, packets to the
station are forwarded as before.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pacer_controller.entries import FORWARD, SOURCES
from pacer_controller.fields import format_mac
from pacer_controller.rows import Change, MatchValue, Op, Row, row

_MULTICAST_BIT = 1 << 40

AGEING_S = 300.0
"""Time without a packet after which a station is asked, and then forgotten after the same time
again, in seconds: the ageing time that IEEE 802.1Q recommends (8.8.3)."""


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
    """Packets of a station already known at the port, sent before its entry took effect."""
    ignored: int = 0
    """Packets with no usable source: too short, or a group or zero address."""
    pinned: int = 0
    """Packets of a pinned station at the wrong port."""
    confirmed: int = 0
    """Stations that were asked and have sent a packet."""
    aged: int = 0
    """Stations forgotten because they sent nothing."""
    port_full: int = 0
    """Packets whose source could not be learned: its port has as many stations as there are free
    entries."""
    table_full: int = 0
    """Packets whose source could not be learned because the switch's table is full."""
    failed: int = 0
    """Packets whose source the switch refused to learn for another reason."""


@dataclass
class Learning:
    """Stations of one switch.

    Attributes:
        capacity: the largest number of stations that the switch's tables hold. A port may have at
            most as many stations as entries are free, so one port alone can take half of them.
        ports: the port by MAC address.
        pinned: stations that do not move.

    """

    capacity: int
    ports: dict[int, int] = field(default_factory=dict)
    pinned: Mapping[int, int] = field(default_factory=dict)
    counters: LearningCounters = field(default_factory=LearningCounters)
    _heard_s: dict[int, float] = field(default_factory=dict)
    """The time of a station's last packet, oldest first. Pinned stations are left out."""
    _asked_s: dict[int, float] = field(default_factory=dict)
    """The time when a station was asked, oldest first."""
    _of_port: Counter[int] = field(default_factory=Counter)
    """The number of stations of each port."""

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
            if mac in self._asked_s:
                return [Change(Op.INSERT, source_row(mac, port))]
            self.counters.repeated += 1
            return []
        free = self.capacity - len(self.ports)
        if old is None and free <= 0:
            self.counters.table_full += 1
            return []
        if old is None and self._of_port[port] >= free:
            self.counters.port_full += 1
            return []
        return station_changes(mac, port, old, asked=mac in self._asked_s)

    def learned(self, mac: int, port: int, now_s: float) -> None:
        """Record that the switch has made the changes for a packet.

        Args:
            mac: the station's address.
            port: the station's port.
            now_s: the time of a monotonic clock, in seconds.

        """
        old = self.ports.get(mac)
        if old is None:
            self.counters.learned += 1
        elif old != port:
            self.counters.moved += 1
        else:
            self.counters.confirmed += 1
        self._forget(mac)
        self._know(mac, port, now_s)

    def ageing(self, now_s: float, most: int) -> list[Change]:
        """Return at most `most` changes of ageing, of the stations that were silent longest."""
        due: list[Change] = []
        for mac, since_s in self._asked_s.items():
            if len(due) >= most or now_s - since_s < AGEING_S:
                break
            due.append(Change(Op.DELETE, forward_row(mac, self.ports[mac])))
        for mac, since_s in self._heard_s.items():
            if len(due) >= most or now_s - since_s < AGEING_S:
                break
            due.append(Change(Op.DELETE, source_row(mac, self.ports[mac])))
        return due

    def aged(self, change: Change, now_s: float) -> None:
        """Record that the switch has made a change of `ageing`."""
        if change.row.table == FORWARD:
            self._forget(plain(dict(change.row.match)["dst_mac"]))
            self.counters.aged += 1
        else:
            mac = plain(dict(change.row.match)["src_mac"])
            self._heard_s.pop(mac, None)
            self._asked_s[mac] = now_s

    def _know(self, mac: int, port: int, now_s: float) -> None:
        self.ports[mac] = port
        self._of_port[port] += 1
        if mac not in self.pinned:
            self._heard_s[mac] = now_s

    def _forget(self, mac: int) -> None:
        port = self.ports.pop(mac, None)
        if port is not None:
            self._of_port[port] -= 1
        self._heard_s.pop(mac, None)
        self._asked_s.pop(mac, None)

    def adopt(self, rows: list[Row], now_s: float) -> list[Change]:
        """Take over a switch's entries; returns the changes that make them consistent.

        A `forward` entry has the port of a station. The changes mend `sources` entries that
        contradict it, and stations known in one table only. A station that is asked is in `forward`
        only.
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
        asked = {
            mac: since_s
            for mac, since_s in self._asked_s.items()
            if known.get(mac) == self.ports[mac] and (mac, known[mac]) not in sources
        }
        for mac, port in known.items():
            if (mac, port) not in sources and mac not in asked:
                mends.append(Change(Op.INSERT, source_row(mac, port)))
        for (mac, port), entry in sources.items():
            if known.get(mac) != port:
                mends.append(Change(Op.DELETE, entry))
        heard = {mac: self._heard_s.get(mac, now_s) for mac in known if mac not in asked}
        self.ports = {}
        self._of_port.clear()
        self._heard_s.clear()
        self._asked_s = asked
        # The longest silent first.
        for mac in sorted(known, key=lambda mac: heard.get(mac, now_s)):
            self._know(mac, known[mac], heard.get(mac, now_s))
        for mac in asked:
            self._heard_s.pop(mac, None)
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


def station_changes(mac: int, port: int, old: int | None, *, asked: bool = False) -> list[Change]:
    """Return the writes for a station that is new (`old` is None) or has moved.

    `asked`: it has no `sources` entry at the old port.
    """
    if old is None:
        return [Change(Op.INSERT, forward_row(mac, port)), Change(Op.INSERT, source_row(mac, port))]
    moved = [Change(Op.MODIFY, forward_row(mac, port)), Change(Op.INSERT, source_row(mac, port))]
    if not asked:
        moved.append(Change(Op.DELETE, source_row(mac, old)))
    return moved

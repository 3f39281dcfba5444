"""Learns stations from the packets that a switch sends up, one batch of writes at a time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import finsy as fy

from pacer_controller import learning
from pacer_controller.fields import format_mac
from pacer_controller.rows import Change, Row
from pacer_controller.southbound import Refusal

_LOG = logging.getLogger(__name__)

PACKET_QUEUE = 4096
"""Most packets from unknown sources that wait for the controller. finsy drops further ones, and
logs it. A lost packet is harmless: the station's next packet comes up again."""

LEARN_BATCH = 64
"""Packets learned from with one WriteRequest."""

AGEING_STEP_S = 1.0
AGEING_BATCH = 256
"""Period of ageing in seconds, and most stations aged at a time: 16,384 take about a minute."""

Write = Callable[[Sequence[Change]], Awaitable[list[Refusal]]]


@dataclass
class StationLearner:
    """Turns packets from unknown sources into entries.

    Attributes:
        name: the name of the switch, for messages.
        state: the known stations of the switch.
        write: writes changes to the switch; returns the refusals.
        ready: returns whether the switch's tables have been read; packets are ignored until then.
        doubt: called when the tables hold an unknown entry.
        now_s: returns the time of a monotonic clock, in seconds.

    """

    name: str
    state: learning.Learning
    write: Write
    ready: Callable[[], bool]
    doubt: Callable[[], None]
    now_s: Callable[[], float] = time.monotonic
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while stations are learned, and while their tables are read or written as a whole."""

    async def run(self, switch: fy.Switch) -> None:
        """Learn until cancelled."""
        queue: asyncio.Queue[fy.P4PacketIn] = asyncio.Queue(PACKET_QUEUE)
        reader = switch.create_task(_fill(queue, switch), name="packets")
        ageing = switch.create_task(self._age(), name="ageing")
        try:
            while True:
                packets = [await queue.get()]
                while len(packets) < LEARN_BATCH and not queue.empty():
                    packets.append(queue.get_nowait())
                async with self.lock:
                    # Before the first reconcile the switch's entries are unknown.
                    if self.ready():
                        await self._learn_from(packets)
        finally:
            reader.cancel()
            ageing.cancel()

    async def _age(self) -> None:
        while True:
            await asyncio.sleep(AGEING_STEP_S)
            async with self.lock:
                if self.ready():
                    await self.age()

    async def age(self) -> None:
        """Ask and forget the stations that are due; the caller holds the lock."""
        due = self.state.ageing(self.now_s(), AGEING_BATCH)
        refused = {refusal.row.key for refusal in await self.write(due)} if due else set()
        for change in due:
            if change.row.key not in refused:
                self.state.aged(change, self.now_s())
        if refused:
            # The tables lack a known entry.
            self.doubt()

    async def _learn_from(self, packets: Sequence[fy.P4PacketIn]) -> None:
        counters = self.state.counters
        full_before = counters.table_full + counters.port_full
        batch: list[Change] = []
        stations: dict[int, int] = {}
        for packet in packets:
            port = int(packet.metadata["ingress_port"])
            mac = int.from_bytes(packet.payload[6:12], "big")
            if mac in stations:
                # Moves within one batch wait for the next packet; repeats need nothing.
                counters.repeated += 1
                continue
            changes = self.state.packet(packet.payload, port)
            if changes:
                stations[mac] = port
                batch += changes
        refusals = await self.write(batch) if batch else []
        refused = {_station_of(refusal.row): refusal for refusal in refusals}
        for mac, port in stations.items():
            refusal = refused.get(mac)
            if refusal is None:
                self.state.learned(mac, port, self.now_s())
                _LOG.info("switch %s: %s is at port %d", self.name, format_mac(mac), port)
                continue
            if refusal.table_full:
                counters.table_full += 1
            else:
                counters.failed += 1
                # The tables hold an entry that the controller does not know: read them back.
                self.doubt()
                _LOG.warning("switch %s: %s: %s", self.name, refusal.row.owner, refusal.message)
        full = counters.table_full + counters.port_full
        # A flood of addresses must not cause a flood of log lines.
        if full > full_before and (full_before == 0 or full // 1000 > full_before // 1000):
            _LOG.warning(
                "switch %s: no room for more stations (%d are known): %d packets not learned from",
                self.name,
                len(self.state.ports),
                full,
            )


async def _fill(queue: "asyncio.Queue[fy.P4PacketIn]", switch: fy.Switch) -> None:
    async for packet in switch.read_packets(queue_size=PACKET_QUEUE):
        await queue.put(packet)


def _station_of(entry: Row) -> int:
    match = dict(entry.match)
    return learning.plain(match.get("src_mac", match.get("dst_mac", 0)))

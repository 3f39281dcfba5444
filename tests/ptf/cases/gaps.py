"""PAUSE frames in the gaps of a port, on the wire; and those that come in, consumed.

When a frame leaves depends on the machine here; that all of a gap is filled is exact, and is
shown in virtual time (tests/virtual).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import grpc.aio
from pacer_controller.traffic_manager import Primary, TrafficManager
from ptf import testutils

from harness import (
    COMES_SECONDS,
    NS_PER_S,
    Arrival,
    PacerTest,
    gap_ns,
    udp_frame,
)

PAUSE = bytes.fromhex("0180c2000001")
CONTROL_PAUSE_0 = bytes.fromhex("880800010000")
SHORTEST_BYTES, LONGEST_BYTES = 60, 1514
# Preamble and start delimiter, FCS, inter-frame gap (IEEE 802.3).
WIRE_OVERHEAD_BYTES = 24


class GapsTest(PacerTest):
    """The base of the tests of gaps: port 2 is a line of 10 Mbit/s."""

    line_rate_bps = 10_000_000

    def setUp(self) -> None:
        """Makes port 2 a line with PAUSE frames in its gaps."""
        if self.on_bmv2_target():
            self.skipTest("bmv2 has ports without lines")
        super().setUp()
        self.before = self.port_statistics()
        self.set_port({"line_rate_bps": self.line_rate_bps, "gap_mode": "pause-frames"})
        self.addCleanup(self.set_port, {"line_rate_bps": 0, "gap_mode": "accounted"})

    @staticmethod
    def on_bmv2_target() -> bool:
        """Whether the target is a stock BMv2, before a program is pushed to it."""
        return bool(testutils.test_param_get("target") == "bmv2")

    def set_port(self, settings: Mapping[str, int | str]) -> None:
        """Changes port 2 through the switch's own service."""

        async def change() -> None:
            async with grpc.aio.insecure_channel(self.address) as channel:
                client = self.switch
                election_id = (client.election_id.high << 64) + client.election_id.low
                primary = Primary(client.device_id, election_id)
                await TrafficManager(channel).set_port(2, settings, primary)

        asyncio.run(change())

    def port_statistics(self) -> dict[int, dict[str, Any]]:
        """The switch's own counters, by port."""
        return {port["port"]: port for port in self.traffic_statistics()["ports"]}

    def more(self, port: int, counter: str) -> int:
        """By how much a counter of a port has grown in this test."""
        return int(self.port_statistics()[port][counter] - self.before[port][counter])

    def pause_drops(self, port: int) -> int:
        """PAUSE frames that a port has consumed in this test."""
        cause = "pause-frame"
        now, then = self.port_statistics()[port]["drops"], self.before[port]["drops"]
        return int(now.get(cause, 0) - then.get(cause, 0))


class PauseFramesFillGaps(GapsTest):
    """Between the packets of a class, and only there, are PAUSE frames of pause time 0."""

    rate_bps = 1_000_000
    packets = 4

    def runTest(self) -> None:
        self.install(self.flow({"dst_port": 2000}, 21), self.paced(21, self.rate_bps))
        frames = [udp_frame(frame_bytes=1500, number=n) for n in range(self.packets)]
        began_ns = self.send(1, *frames)
        gap_frames, packets = self.until_packets(len(frames))
        self.assertEqual([arrival.frame for arrival in packets], frames)
        for place, arrival in enumerate(packets):
            due_ns = place * gap_ns(frames[0], self.rate_bps) * 0.999  # as in pacing.py
            self.assertGreaterEqual(arrival.received_ns - began_ns, due_ns, f"packet {place} early")
        self.nothing_comes()
        for arrival in gap_frames:
            self.assertEqual(arrival.frame[12:18], CONTROL_PAUSE_0)
            self.assertEqual(arrival.frame[18:].strip(b"\0"), b"")
            self.assertTrue(SHORTEST_BYTES <= len(arrival.frame) <= LONGEST_BYTES)
        # A stalled machine leaves a part of a gap empty; it never sends more than a gap takes.
        step_ns = gap_ns(frames[0], self.rate_bps)
        per_byte_ns = 8 * NS_PER_S / self.line_rate_bps
        wire_bytes = (len(frames) - 1) * (
            step_ns / per_byte_ns - len(frames[0]) - WIRE_OVERHEAD_BYTES
        )
        filled_bytes = sum(len(arrival.frame) + WIRE_OVERHEAD_BYTES for arrival in gap_frames)
        self.assertGreater(filled_bytes, 0)
        self.assertLess(filled_bytes, wire_bytes + len(gap_frames) + SHORTEST_BYTES)
        self.assertEqual(self.more(2, "gap_frames"), len(gap_frames))
        self.assertEqual(self.more(2, "tx_packets"), len(frames))

    def until_packets(self, count: int) -> tuple[list[Arrival], list[Arrival]]:
        """Everything out of port 2 up to a number of packets: PAUSE frames, and packets."""
        gap_frames: list[Arrival] = []
        packets: list[Arrival] = []
        limit = time.monotonic() + COMES_SECONDS
        while len(packets) < count:
            arrival = self.next_arrival(2, limit)
            if arrival is None:
                raise self.failureException(f"{len(packets)} of {count} packets came")
            (gap_frames if arrival.frame.startswith(PAUSE) else packets).append(arrival)
        return gap_frames, packets


class PauseFramesAreConsumed(GapsTest):
    """A PAUSE frame that comes in is dropped and counted; the frames after it pass."""

    def runTest(self) -> None:
        pause = PAUSE + bytes.fromhex("020000000001") + CONTROL_PAUSE_0
        frame = udp_frame()
        self.send(1, pause.ljust(60, b"\0"), pause.ljust(1514, b"\0"), frame)
        self.comes(2, frame)
        self.nothing_comes()
        self.assertEqual(self.pause_drops(1), 2)

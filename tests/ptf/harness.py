"""Base classes of the PTF tests: a freshly pushed program, and operations on it.

Every test starts from its own pipeline push, so that tables, counters, registers and meters
are as new, and no test depends on another.
"""

from __future__ import annotations

import asyncio
import json
import time
import unittest
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import grpc.aio
import ptf
from finsy.proto import p4r
from pacer_controller.traffic_manager import TrafficManager
from ptf import testutils
from ptf.base_tests import BaseTest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from p4runtime_client import Client, Count, Match, P4RuntimeError, Program, Rates

DEVICE_ID = 0
CPU_PORT = 510
FCS_BYTES = 4
FLOOD_GROUP = 1
FLOOD_AND_LEARN_GROUP = 2
REASON_UNKNOWN_SOURCE = 1
FRACTION_BITS = 24
NS_PER_S = 1_000_000_000

# Times to wait for expected frames, and for forbidden ones. The first costs nothing when all
# is well; a switch that sends forbidden frames does so at once.
COMES_SECONDS = 60.0
ABSENT_SECONDS = 0.15

# Indices of the counter `drops` (p4src/include/limits.p4).
DROP_PARSER_ERROR = 1
DROP_NO_ROUTE = 2
DROP_CLASS_LIMIT = 3
DROP_METER_RED = 4
DROP_SAME_PORT = 6

PORTS = (1, 2, 3)


def mac_of(port: int) -> str:
    """Address of the station behind a port."""
    return f"02:00:00:00:00:{port:02x}"


def as_int(mac: str) -> int:
    """An address as a number, for table keys."""
    return int(mac.replace(":", ""), 16)


def time_per_byte_q24(rate_bps: int) -> int:
    """Time of a byte at this rate in 2^-24 ns, rounded to nearest, half up."""
    return (((8 * NS_PER_S) << FRACTION_BITS) + rate_bps // 2) // rate_bps


def gap_ns(frame: bytes, rate_bps: int) -> float:
    """Time from start to start of such frames in a class of this rate."""
    return (len(frame) + FCS_BYTES) * 8 * NS_PER_S / rate_bps


def pad(frame: Packet, frame_bytes: int) -> bytes:
    """The frame with its payload grown to a length in bytes, FCS included."""
    short = frame_bytes - FCS_BYTES - len(frame)
    if short < 0:
        raise ValueError(f"frame has {len(frame)} bytes already, {frame_bytes} wanted")
    return bytes(frame / Raw(bytes(index & 0xFF for index in range(short))))


class Around(TypedDict, total=False):
    """Everything around the network header of a UDP frame: stations, VLAN tag, UDP ports."""

    source: int
    destination: int
    vlan: int | None
    src_port: int
    dst_port: int


def udp_frame(
    *,
    frame_bytes: int = 104,
    number: int = 0,
    ip_src: str = "10.0.0.1",
    ip_dst: str = "10.0.0.2",
    dscp: int = 0,
    ecn: int = 0,
    flags: str | int = 0,
    frag: int = 0,
    options: Sequence[Packet] = (),
    **around: Unpack[Around],
) -> bytes:
    """An IPv4/UDP frame between two stations; `number` goes into the identification field."""
    network = IP(
        src=ip_src,
        dst=ip_dst,
        id=number,
        tos=dscp << 2 | ecn,
        flags=flags,
        frag=frag,
        options=list(options),
    )
    return _udp(network, frame_bytes, **around)


def udp6_frame(
    *,
    frame_bytes: int = 124,
    number: int = 0,
    ip_src: str = "2001:db8::1",
    ip_dst: str = "2001:db8::2",
    dscp: int = 0,
    ecn: int = 0,
    **around: Unpack[Around],
) -> bytes:
    """An IPv6/UDP frame between two stations; `number` goes into the flow label."""
    network = IPv6(src=ip_src, dst=ip_dst, fl=number, tc=dscp << 2 | ecn)
    return _udp(network, frame_bytes, **around)


def _udp(
    network: Packet,
    frame_bytes: int,
    *,
    source: int = 1,
    destination: int = 2,
    vlan: int | None = None,
    src_port: int = 1000,
    dst_port: int = 2000,
) -> bytes:
    """A frame of a length in bytes, FCS included: Ethernet, the network header, UDP."""
    frame = Ether(src=mac_of(source), dst=mac_of(destination))
    if vlan is not None:
        frame = frame / Dot1Q(vlan=vlan, prio=5)
    return pad(frame / network / UDP(sport=src_port, dport=dst_port), frame_bytes)


def number_of(frame: bytes) -> int:
    """The number that `udp_frame` or `udp6_frame` put in."""
    parsed = Ether(frame)
    return int(parsed[IP].id) if IP in parsed else int(parsed[IPv6].fl)


@dataclass(frozen=True)
class Arrival:
    """A frame that came out of a port, with the kernel's receive time."""

    received_ns: int
    frame: bytes


class SwitchTest(BaseTest):
    """A test against a freshly pushed program; subclasses name it and have a `runTest`."""

    program_name: str

    def run(self, result: unittest.TestResult | None = None) -> None:
        """Runs as ever and appends the outcome, as a line of JSON, to the results file."""
        assert result is not None
        lists = {
            "failed": result.failures,
            "error": result.errors,
            "not run": result.skipped,
        }
        before = {outcome: len(kept) for outcome, kept in lists.items()}
        began_ns = time.monotonic_ns()
        super().run(result)
        outcome, text = "passed", ""
        for name, kept in lists.items():
            if len(kept) > before[name]:
                outcome, text = name, str(kept[-1][1])
        record = {
            "test": str(self),
            "outcome": outcome,
            "text": text,
            "seconds": (time.monotonic_ns() - began_ns) / NS_PER_S,
        }
        with Path(testutils.test_param_get("results")).open("a") as results:
            results.write(json.dumps(record) + "\n")

    def setUp(self) -> None:
        """Connects, pushes the program and forgets the frames of earlier tests."""
        super().setUp()
        self.target: str = testutils.test_param_get("target")
        self.dataplane = ptf.dataplane_instance
        compiled = Path(testutils.test_param_get("compiled")) / self.target
        self.program = Program(
            compiled / f"{self.program_name}.p4info.txtpb", compiled / f"{self.program_name}.json"
        )
        self.address: str = testutils.test_param_get("address")
        self.switch = Client(self.address, DEVICE_ID, self.program)
        self.addCleanup(self.switch.close)
        self.assertEqual(self.switch.become_primary(), 0, "the only controller is primary")
        self.switch.push()
        # Frames of earlier tests came before this time; PTF may still have to read some.
        self.pushed_ns = time.time_ns()
        self.dataplane.flush()

    @property
    def on_bmv2(self) -> bool:
        """Whether the target is a stock BMv2; each use says why it differs."""
        return self.target == "bmv2"

    # Sending and receiving -------------------------------------------------------------

    def send(self, port: int, *frames: bytes) -> int:
        """Sends frames back to back; returns the time just before the first (`time_ns`)."""
        wire = self.dataplane.ports[(0, port)]
        began_ns = time.time_ns()
        for frame in frames:
            wire.send(frame)
        return began_ns

    def next_arrival(self, port: int, limit: float) -> Arrival | None:
        """The next frame out of a port; None when none has come by `limit` (monotonic)."""
        while True:
            left = max(limit - time.monotonic(), 0.001)
            polled = self.dataplane.poll(0, port, timeout=left)
            if not isinstance(polled, self.dataplane.PollSuccess):
                return None
            if polled.time.ns >= self.pushed_ns:
                return Arrival(polled.time.ns, polled.packet)

    def arrivals(self, port: int, count: int, seconds: float = COMES_SECONDS) -> list[Arrival]:
        """The next `count` frames out of a port; fails when they do not come in time."""
        came: list[Arrival] = []
        limit = time.monotonic() + seconds
        while len(came) < count:
            arrival = self.next_arrival(port, limit)
            if arrival is None:
                text = f"port {port}: {len(came)} of {count} frames came within {seconds} s"
                raise self.failureException(text)
            came.append(arrival)
        return came

    def comes(self, port: int, *frames: bytes) -> list[Arrival]:
        """Exactly these frames come out of the port next, in this order."""
        came = self.arrivals(port, len(frames))
        for place, (arrival, frame) in enumerate(zip(came, frames, strict=True)):
            if arrival.frame != frame:
                self.fail(
                    f"port {port}, frame {place}: "
                    f"\n  came     {arrival.frame.hex()}\n  expected {frame.hex()}"
                )
        return came

    def nothing_comes(self, *ports: int) -> None:
        """Nothing (more) comes out of these ports, of all when none is named."""
        limit = time.monotonic() + ABSENT_SECONDS
        for port in ports or PORTS:
            arrival = self.next_arrival(port, limit)
            if arrival is not None:
                self.fail(f"port {port}: unexpected frame {arrival.frame.hex()}")

    # Expectations ----------------------------------------------------------------------

    def refused(
        self, update: p4r.Update, code: str, names: Sequence[str], bmv2: str | None = None
    ) -> None:
        """The write is refused with this code, by a text that names the things.

        BMv2's server may answer with another code (`bmv2`), or accept (`ACCEPTED`; an INSERT
        is then taken back); its texts are its own and not looked at.
        """
        wanted = bmv2 if self.on_bmv2 and bmv2 is not None else code
        try:
            self.switch.write(update)
        except P4RuntimeError as error:
            self.assertEqual(error.code.name, wanted, error.text)
            if not self.on_bmv2:
                for name in names:
                    self.assertIn(name, error.text)
            return
        self.assertEqual(wanted, "ACCEPTED", f"accepted: {update}")
        if update.type == p4r.Update.INSERT:
            self.switch.delete(update.entity)

    def counted(self, counter: str, index: int, packets: int, frames: Iterable[bytes]) -> None:
        """A cell of an indirect counter holds these packets and the bytes of these frames."""
        expected = Count(packets, sum(len(frame) for frame in frames))
        self.assertEqual(self.switch.counter(counter, index), expected, f"{counter}[{index}]")


class PacerTest(SwitchTest):
    """pacer.p4 with three stations, one behind each port, all known to the switch."""

    program_name = "pacer"

    def setUp(self) -> None:
        """Fills the flooding groups and makes the stations known."""
        super().setUp()
        self.switch.insert(*self.groups())
        if self.on_bmv2:
            # Its replication engine survives a pipeline push, while its P4Runtime server
            # forgets the groups: a second insert would add a second copy for each port.
            self.addCleanup(self.switch.delete, *self.groups())
        for port in PORTS:
            self.switch.insert(self.source(mac_of(port), port), self.station(mac_of(port), port))

    @staticmethod
    def groups() -> tuple[p4r.Entity, p4r.Entity]:
        """The two flooding groups."""
        return (
            Client.multicast_group(FLOOD_GROUP, PORTS),
            Client.multicast_group(FLOOD_AND_LEARN_GROUP, (*PORTS, CPU_PORT)),
        )

    def push_again(self) -> None:
        """Pushes the program once more; only the flooding groups are filled again."""
        if self.on_bmv2:
            self.switch.delete(*self.groups())  # as in setUp: it would keep them
        self.switch.push()
        self.switch.insert(*self.groups())

    @property
    def class_count(self) -> int:
        """CLASS_COUNT of the target's flavour, read from its P4Info."""
        return self.program.table("PacerIngress.classes").size

    # Entities --------------------------------------------------------------------------

    def station(self, mac: str, port: int) -> p4r.Entity:
        """Forwarding entry: packets to `mac` leave by `port`."""
        return self.switch.entry(
            "PacerIngress.forward",
            {"dst_mac": as_int(mac)},
            "PacerIngress.forward_to",
            {"port": port},
        )

    def source(self, mac: str, port: int) -> p4r.Entity:
        """Entry that says that `mac` is known to be behind `port`."""
        return self.switch.entry(
            "PacerIngress.sources",
            {"src_mac": as_int(mac), "ingress_port": port},
            "PacerIngress.known",
        )

    def flow(
        self,
        match: Match,
        class_id: int = 0,
        *,
        priority: int = 10,
        drop_red: int = 0,
        yellow_dscp: int | None = None,
        red_dscp: int | None = None,
        rates: Rates | None = None,
    ) -> p4r.Entity:
        """Flow entry; colours are marked when DSCPs are given."""
        return self.switch.entry(
            "PacerIngress.flows",
            match,
            "PacerIngress.classify",
            {
                "class_id": class_id,
                "drop_red": drop_red,
                "mark": int(yellow_dscp is not None or red_dscp is not None),
                "yellow_dscp": yellow_dscp or 0,
                "red_dscp": red_dscp or 0,
            },
            priority,
            rates,
        )

    def paced(
        self, class_id: int, rate_bps: int, limit_bytes: int = 1 << 24, allowance_ns: int = 0
    ) -> p4r.Entity:
        """Class entry of static mode.

        The allowance is zero unless the test is about it: then no two packets are ever closer
        than the rate says, whatever the machine does.
        """
        return self.switch.entry(
            "PacerIngress.classes",
            {"class_id": class_id},
            "PacerIngress.paced_static",
            {
                "time_per_byte_q24": time_per_byte_q24(rate_bps),
                "limit_bytes": limit_bytes,
                "allowance_ns": allowance_ns,
            },
        )

    def mode(self, class_id: int, action: str, params: Mapping[str, int]) -> p4r.Entity:
        """Class entry of any mode: an action of the table of classes."""
        return self.switch.entry(
            "PacerIngress.classes", {"class_id": class_id}, f"PacerIngress.{action}", params
        )

    def install(self, *entities: p4r.Entity) -> None:
        """Inserts, and returns when the dataplane acts on it (a Write is synchronous)."""
        self.switch.insert(*entities)

    # Counters --------------------------------------------------------------------------

    def hits(self, entry: p4r.Entity) -> int:
        """Packets that the flow entry has matched."""
        return self.switch.direct_counter(entry).packets

    def dropped(self, cause: int, frames: Sequence[bytes]) -> None:
        """The counter `drops` holds exactly these frames for the cause."""
        self.counted("PacerIngress.drops", cause, len(frames), frames)

    def accepted(self, class_id: int, frames: Sequence[bytes]) -> None:
        """The class has accepted exactly these frames."""
        self.counted("PacerIngress.class_accepted", class_id, len(frames), frames)

    def traffic_statistics(self, *classes: int) -> dict[str, Any]:
        """The counters of the traffic manager of pacing_switch, and the state of some classes."""

        async def read() -> dict[str, Any]:
            async with grpc.aio.insecure_channel(self.address) as channel:
                return await TrafficManager(channel).statistics(classes)

        return asyncio.run(read())

    def matches(self, entry: p4r.Entity, cases: Mapping[str, tuple[bytes, bool]]) -> None:
        """Each frame is forwarded unchanged, and the entry matches those that it should."""
        for name, (frame, expected) in cases.items():
            before = self.hits(entry)
            self.send(1, frame)
            self.comes(2, frame)
            self.assertEqual(self.hits(entry) - before, int(expected), name)


class GtrcnetTest(SwitchTest):
    """gtrcnet.p4 as a wire between ports 1 and 2."""

    program_name = "gtrcnet"

    def setUp(self) -> None:
        """Wires the two ports together."""
        super().setUp()
        self.switch.insert(self.wire(1, 2), self.wire(2, 1))

    def wire(self, port: int, other: int) -> p4r.Entity:
        """Packets from `port` leave at `other`."""
        return self.switch.entry(
            "GtrcnetIngress.wire",
            {"ingress_port": port},
            "GtrcnetIngress.send_to",
            {"port": other},
        )

    def monitor(self, port: int, bytes_per_ns_q24: int) -> p4r.Entity:
        """Measures arrivals at `port` against a virtual bottleneck of this rate."""
        return self.switch.entry(
            "GtrcnetIngress.monitor",
            {"ingress_port": port},
            "GtrcnetIngress.measure",
            {"bytes_per_ns_q24": bytes_per_ns_q24},
        )

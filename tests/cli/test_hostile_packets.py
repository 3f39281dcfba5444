"""Packets that lie, through the real binary in virtual time: every one is accounted for.

Random bytes, truncated headers, lengths that promise more than there is, chains of VLAN tags. The
run has to end, account for each packet, and give the same output to the byte when repeated.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pacer_entries import all_to, paced_class
from pacing_switch import TimedFrame
from virtual_switch import Port, VirtualRun, run, statistics

SEED = 7
EACH = 1_000
GAP_NS = 5_000
MACS = b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01"
IPV4, IPV6, VLAN, QINQ = 0x0800, 0x86DD, 0x8100, 0x88A8
CLASS = 1

Maker = Callable[[random.Random], bytes]


def ethernet(ether_type: int, payload: bytes) -> bytes:
    """A frame."""
    return MACS + ether_type.to_bytes(2, "big") + payload


def ipv4(
    payload: bytes,
    *,
    version: int = 4,
    header_words: int = 5,
    total_bytes: int | None = None,
    fragment: int = 0,
    protocol: int = 6,
) -> bytes:
    """An IPv4 header, true unless told otherwise, before a payload."""
    total = 20 + len(payload) if total_bytes is None else total_bytes
    head = struct.pack(
        ">BBHHHBBH4s4s",
        *(version << 4 | header_words, 0, total, 1, fragment, 64, protocol, 0),
        *(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])),
    )
    return head + payload


def ipv6(payload: bytes, *, length: int | None = None, next_header: int = 6) -> bytes:
    """An IPv6 header, true unless told otherwise, before a payload."""
    size = len(payload) if length is None else length
    addresses = bytes.fromhex("fd00" + "00" * 13 + "01" + "fd00" + "00" * 13 + "02")
    return struct.pack(">IHBB", 6 << 28, size, next_header, 64) + addresses + payload


def tcp(chance: random.Random, *, offset_words: int = 5) -> bytes:
    """A TCP header with some data."""
    head = struct.pack(">HHIIBBHHH", 40_000, 5_001, 1, 1, offset_words << 4, 16, 100, 0, 0)
    return head + chance.randbytes(chance.randrange(100))


def true_frame(chance: random.Random) -> bytes:
    """A frame with nothing wrong."""
    segment = tcp(chance)
    udp = struct.pack(">HHHH", 1, 2, 8 + 20, 0) + chance.randbytes(20)
    tagged = struct.pack(">HH", chance.randrange(1 << 16), IPV4) + ipv4(segment)
    return chance.choice(
        [
            ethernet(IPV4, ipv4(segment)),
            ethernet(IPV4, ipv4(udp, protocol=17)),
            ethernet(IPV6, ipv6(segment)),
            ethernet(IPV6, ipv6(udp, next_header=17)),
            ethernet(VLAN, tagged),
        ]
    )


def random_bytes(chance: random.Random) -> bytes:
    """Bytes, from none to a jumbo frame."""
    return chance.randbytes(chance.choice([chance.randrange(80), chance.randrange(9_300)]))


def random_after_type(chance: random.Random) -> bytes:
    """A type that the parser knows, and anything behind it."""
    kind = chance.choice([IPV4, IPV6, VLAN, QINQ, 0x0806, chance.randrange(1 << 16)])
    return ethernet(kind, chance.randbytes(chance.randrange(120)))


def truncated(chance: random.Random) -> bytes:
    """A true frame cut anywhere."""
    frame = true_frame(chance)
    return frame[: chance.randrange(len(frame))]


def flipped(chance: random.Random) -> bytes:
    """A true frame with some bits turned."""
    frame = bytearray(true_frame(chance))
    for _ in range(chance.randrange(1, 9)):
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame)


def lying_ipv4(chance: random.Random) -> bytes:
    """An IPv4 header whose version, header length, total length or fragment offset is not true."""
    return ethernet(
        IPV4,
        ipv4(
            tcp(chance, offset_words=chance.randrange(16))[: chance.randrange(60)],
            version=chance.choice([4, 4, chance.randrange(16)]),
            header_words=chance.randrange(16),
            total_bytes=chance.choice([0, 1, 19, 20, 21, 40, 1500, 65_535]),
            fragment=chance.choice([0, 1, 0x1FFF, 0x2000, 0xFFFF]),
            protocol=chance.choice([6, 17, chance.randrange(256)]),
        ),
    )


def lying_ipv6(chance: random.Random) -> bytes:
    """An IPv6 header whose length or next header is not true."""
    payload = chance.randbytes(chance.randrange(60))
    length = chance.choice([0, 1, 65_535])
    kind = chance.choice([0, 6, 17, 43, 44, 59, 60, chance.randrange(256)])
    return ethernet(IPV6, ipv6(payload, length=length, next_header=kind))


def tag_chain(chance: random.Random) -> bytes:
    """From 1 to 60 tags, at the end of which something follows, or not."""
    tags = b"".join(
        struct.pack(">HH", chance.randrange(1 << 16), chance.choice([VLAN, VLAN, QINQ]))
        for _ in range(chance.randrange(1, 60))
    )
    end = chance.choice([b"", b"\0", struct.pack(">HH", 1, IPV4) + ipv4(tcp(chance))])
    return ethernet(chance.choice([VLAN, QINQ]), tags + end)


MAKERS: list[Maker] = [
    true_frame,
    random_bytes,
    random_after_type,
    truncated,
    flipped,
    lying_ipv4,
    lying_ipv6,
    tag_chain,
]


def hostile_packets() -> list[TimedFrame]:
    """Every kind of packet, mixed."""
    chance = random.Random(SEED)
    frames = [make(chance) for make in MAKERS for _ in range(EACH)]
    chance.shuffle(frames)
    return [TimedFrame(at * GAP_NS, frame) for at, frame in enumerate(frames, start=1)]


SYN = 2
TCP_OPTIONS_READ, TCP_OPTION_BYTES_MAX = 6, 18
"""As in p4src/include/limits.p4."""

PACKETS = hostile_packets()


def options_fit(frame: bytes, at: int) -> bool:
    """Whether the options of a SYN from `at` on are there as far as pacer.p4 reads them.

    It looks for the window scale, and does not read options whose lengths do not add up.
    """
    left = max(0, (frame[at - 8] >> 4) - 5) * 4
    for _ in range(TCP_OPTIONS_READ):
        if left == 0:
            return True
        if len(frame) < at + 1:
            return False
        kind, length = frame[at], 1
        if kind == 0 or (kind != 1 and left == 1):
            return True
        if kind != 1:
            if len(frame) < at + 2:
                return False
            length = frame[at + 1]
            if not 2 <= length <= min(TCP_OPTION_BYTES_MAX, left):
                return True
            if (kind, length) == (3, 3):
                return len(frame) >= at + 3
        at, left = at + length, left - length
        if len(frame) < at:
            return False
    return True


def headers_fit(frame: bytes) -> bool:
    """Whether a frame is long enough for every header that pacer.p4 takes out of it."""
    at = 14
    if len(frame) < at:
        return False
    kind = int.from_bytes(frame[12:14], "big")
    if kind == VLAN:
        at += 4
        if len(frame) < at:
            return False
        kind = int.from_bytes(frame[16:18], "big")
    protocol = None
    if kind == IPV4:
        start, at = at, at + 20
        if len(frame) < at:
            return False
        # Ports are looked for without options, in the first fragment only.
        later = int.from_bytes(frame[start + 6 : start + 8], "big") & 0x1FFF
        if frame[start] & 15 == 5 and later == 0:
            protocol = frame[start + 9]
    elif kind == IPV6:
        start, at = at, at + 40
        if len(frame) < at:
            return False
        protocol = frame[start + 6]
    at += {6: 20, 17: 8}.get(protocol or 0, 0)
    if len(frame) < at:
        return False
    return protocol != 6 or not frame[at - 7] & SYN or options_fit(frame, at)


UNPARSABLE = sum(not headers_fit(timed.frame) for timed in PACKETS)

CLASSIFY = {"class_id": CLASS, "drop_red": 0, "mark": 1, "yellow_dscp": 1, "red_dscp": 2}


def pacer_entries() -> list[dict[str, object]]:
    """TCP goes to a class that is too slow and queues little: it has to drop, too."""
    flow = {
        "table": "PacerIngress.flows",
        "match": {"protocol": [6, 0xFF]},
        "action_name": "PacerIngress.classify",
        "action_params": CLASSIFY,
        "priority": 1,
    }
    return [flow, paced_class(CLASS, 20_000_000, limit_bytes=20_000)]


def wired(port: int, to: int) -> dict[str, object]:
    """An entry of gtrcnet.p4 that forwards a port's frames to another port."""
    return {
        "table": "GtrcnetIngress.wire",
        "match": {"ingress_port": port},
        "action_name": "GtrcnetIngress.send_to",
        "action_params": {"port": to},
    }


def total(drops: Mapping[str, int]) -> int:
    """Packets dropped for any cause."""
    return sum(drops.values())


def all_drops(told: dict[str, Any]) -> Counter[str]:
    """Dropped packets by cause: at each port, and without a port."""
    drops = Counter(told["drops"])
    for port in told["ports"]:
        drops.update(port["drops"])
    return drops


def to_one_port() -> VirtualRun:
    """pacer.p4, all packets to port 2: each has one fate."""
    return VirtualRun(
        ports=[Port(1), Port(2, "rate=100mbit,fifo=8KB")],
        arrivals={1: PACKETS},
        runtime={"table_entries": pacer_entries(), "multicast_group_entries": all_to(2)},
    )


def flooded() -> VirtualRun:
    """pacer.p4, packets of unknown stations to every port and the controller."""
    ports = [1, 2, 3]
    groups = [
        {
            "multicast_group_id": group,
            "replicas": [
                {"egress_port": port, "instance": at} for at, port in enumerate(members, start=1)
            ],
        }
        for group, members in ((1, ports), (2, [*ports, 510]))
    ]
    return VirtualRun(
        ports=[Port(port, "fifo=1GB") for port in ports],
        arrivals={1: PACKETS[::2], 3: PACKETS[1::2]},
        runtime={"multicast_group_entries": groups},
    )


def measuring_wire() -> VirtualRun:
    """gtrcnet.p4, port 3 connected to nothing."""
    measure = {
        "table": "GtrcnetIngress.monitor",
        "match": {"ingress_port": 1},
        "action_name": "GtrcnetIngress.measure",
        "action_params": {"bytes_per_ns_q24": (1 << 24) // 16},
    }
    return VirtualRun(
        ports=[Port(1), Port(2, "rate=500mbit,counts=layer2,fifo=64KB,delay=1ms"), Port(3)],
        arrivals={1: PACKETS[::2], 3: PACKETS[1::2]},
        runtime={"table_entries": [wired(1, 2), measure]},
        program="gtrcnet",
    )


Outcome = tuple[dict[int, list[TimedFrame]], dict[str, Any]]


def outcome(what: VirtualRun, folder: Path) -> Outcome:
    """Run it, twice; the same must come of it, to the byte."""
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    sent = run(what, first)
    run(what, second)
    for port in what.ports:
        name = f"p{port.number}_out.pcap"
        assert (first / name).read_bytes() == (second / name).read_bytes()
    told: dict[str, Any] = statistics(first)
    again: dict[str, Any] = statistics(second)
    # But for the names of the capture files, which are the interfaces.
    for port in (*told["ports"], *again["ports"]):
        port["interface"] = Path(port["interface"]).name
    assert told == again
    for port in told["ports"]:
        if port["port"] in sent:
            assert port["tx_packets"] == len(sent[port["port"]])
    arrived = sum(len(list(frames)) for frames in what.arrivals.values())
    assert told["rx_packets"] == arrived == len(PACKETS)
    return sent, told


def test_pacer_gives_each_packet_one_fate(tmp_path: Path) -> None:
    sent, told = outcome(to_one_port(), tmp_path)
    drops = all_drops(told)
    assert told["rx_packets"] == told["tx_packets"] + total(drops)
    assert told["packets_to_controller"] == 0
    # All of this happened: parser errors and packets that the class had no room for (which the
    # program drops), packets that the FIFO had no room for, and packets that went through.
    assert told["parser_errors"] == UNPARSABLE > EACH // 2
    assert set(drops) == {"ingress-drop", "fifo-full"}
    assert drops["ingress-drop"] > UNPARSABLE
    assert len(sent[2]) > EACH


def test_pacer_changes_no_byte_that_it_should_not(tmp_path: Path) -> None:
    """Frames leave unchanged but for the DSCP that the flow marks, and its checksum."""
    quiet = to_one_port()
    quiet.runtime["table_entries"] = []
    sent, _ = outcome(quiet, tmp_path)
    arrived: Iterator[bytes] = (timed.frame for timed in PACKETS)
    # Unpaced packets keep their order: the departures are the arrivals, with some left out.
    assert all(any(frame.frame == other for other in arrived) for frame in sent[2])


def test_flooded_packets_are_all_accounted_for(tmp_path: Path) -> None:
    _, told = outcome(flooded(), tmp_path)
    drops = all_drops(told)
    # A packet is dropped once by the program, or flooded: then to two other ports, to the
    # controller (its source is unknown), and not back to its own port.
    copies = drops.pop("pruned")
    assert drops == {"ingress-drop": UNPARSABLE}
    assert told["parser_errors"] == UNPARSABLE
    assert told["rx_packets"] == total(drops) + copies
    assert told["packets_to_controller"] == copies
    assert told["tx_packets"] == 3 * copies


def test_a_wire_carries_whatever_comes(tmp_path: Path) -> None:
    sent, told = outcome(measuring_wire(), tmp_path)
    assert told["rx_packets"] == told["tx_packets"] + total(all_drops(told))
    ports = {port["port"]: port for port in told["ports"]}
    assert ports[3]["drops"] == {"ingress-drop": len(PACKETS) // 2}
    carried = [timed.frame for timed in PACKETS[::2]]
    assert len(sent[2]) + total(ports[2]["drops"]) == len(carried)
    order = iter(carried)
    assert all(any(frame.frame == other for other in order) for frame in sent[2])


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_packets_are_what_they_are_called(make: Maker) -> None:
    """The makers themselves: seeded, and of many lengths."""
    frames = [make(random.Random(seed)) for seed in range(200)]
    assert frames == [make(random.Random(seed)) for seed in range(200)]
    assert len({len(frame) for frame in frames}) > 20

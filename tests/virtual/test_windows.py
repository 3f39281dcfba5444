"""The receive-window clamp: the windows of acknowledgements when they leave the switch."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from flow_model import Address, Segment, clamped, window_limit_bytes
from flow_runs import OF_THE_SAME_CELL, V4, V6, cell_of
from pacer_entries import class_entry, flow, station
from pacing_switch import TimedFrame
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from tcp_traffic import STATIONS, frame_of
from virtual_switch import Port, VirtualRun, run

CLASS = 3
RTT_NS = 20_000_000
BYTES_PER_NS_Q24 = (1 << 24) * 100_000_000 // 8_000_000_000
MARGIN_BYTES = 10_000
LIMIT_BYTES = window_limit_bytes(RTT_NS, BYTES_PER_NS_Q24, MARGIN_BYTES)

Passing = tuple[int, int, bytes]
"""Port, time and frame."""


def through(
    passing: list[Passing], sender_port: int, folder: Path, dscp: int | None = None
) -> list[bytes]:
    """The frames that leave the switch, in order of time.

    Packets from one port are of the class; with `dscp` only those that have it.
    """
    params = {
        "time_per_byte_q24": 80 << 24,
        "limit_bytes": 1 << 30,
        "allowance_ns": 0,
        "ecn_threshold_bytes": 0,
        "bytes_per_ns_q24": BYTES_PER_NS_Q24,
        "window_margin_bytes": MARGIN_BYTES,
    }
    entries = [entry for mac, port in STATIONS.items() for entry in station(mac, port)]
    entries.append(class_entry(CLASS, "paced_static_controlled", params))
    match = {"ingress_port": [sender_port, 0x1FF]}
    if dscp is not None:
        match["dscp"] = [dscp, 0x3F]
    entries.append(flow(match, CLASS))
    arrivals: dict[int, list[TimedFrame]] = {1: [], 2: []}
    for port, at_ns, frame in passing:
        arrivals[port].append(TimedFrame(at_ns, frame))
    sent = run(VirtualRun([Port(1), Port(2)], arrivals, {"table_entries": entries}), folder)
    timed = sorted(sent[1] + sent[2], key=lambda frame: frame.at_ns)
    return [frame.frame for frame in timed]


@dataclass
class Connection:
    """A connection from port 1 to port 2; the class's packets come from `sender_port`."""

    client: Address
    server: Address
    client_scale: int | None = 7
    server_scale: int | None = 7

    def segment(self, port: int, at_ms: int, flags: str = "", **fields: int) -> Segment:
        """A segment from one of the ends."""
        ends = (self.client, self.server) if port == 1 else (self.server, self.client)
        number = fields.get("sequence", 0)
        acknowledgement = fields.get("acknowledgement")
        payload_bytes = fields.get("payload_bytes", 0)
        at_ns = at_ms * 1_000_000
        return Segment(at_ns, *ends, number, payload_bytes, acknowledgement, flags)

    def frames(self, sender_port: int, window: int) -> list[Passing]:
        """A handshake, data from the sender, and acknowledgements with that window."""
        other = 3 - sender_port
        scales = {1: self.client_scale, 2: self.server_scale}
        shake = [(1, self.segment(1, 1, "S")), (2, self.segment(2, 21, "S", acknowledgement=1))]
        if sender_port == 2:
            # Seen from the server, the round trip is from its SYN to the client's ACK.
            shake.append((1, self.segment(1, 41, sequence=1, acknowledgement=1)))
        passing = [(p, s.at_ns, frame_of(s, p, 65_535, scales[p])) for p, s in shake]
        at_ms = 60
        for k in range(3):
            number = 1 + 1000 * k
            data = self.segment(
                sender_port, at_ms, sequence=number, payload_bytes=1000, acknowledgement=1
            )
            passing.append((sender_port, data.at_ns, frame_of(data, sender_port)))
            at_ms += 20
            answer = self.segment(other, at_ms, sequence=1, acknowledgement=number + 1000)
            passing.append((other, answer.at_ns, frame_of(answer, other, window)))
            at_ms += 1
        return passing


def lowered(passing: list[Passing], port: int, window: int, from_ns: int) -> list[bytes]:
    """The same frames, those from a port with another window from some time on."""
    frames = []
    for from_port, at_ns, frame in passing:
        parsed = Ether(frame)
        if from_port == port and at_ns >= from_ns:
            parsed[TCP].window = window
            del parsed[TCP].chksum  # Scapy computes the right one.
        frames.append(bytes(parsed))
    return frames


@pytest.mark.parametrize("ends", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("sender_port", [1, 2], ids=["client-sends", "server-sends"])
@pytest.mark.parametrize("window", [65_535, 2_033, 2_032, 100, 0])
def test_windows_are_lowered_and_never_raised(
    ends: tuple[Address, Address], sender_port: int, window: int, tmp_path: Path
) -> None:
    scale = 7
    passing = Connection(*ends).frames(sender_port, window)
    expected = clamped(window, scale, LIMIT_BYTES)
    # 250,000 bytes and the margin, in units of 128 and rounded up: 2032.
    assert (expected < window) == (window > 2_032)
    want = lowered(passing, 3 - sender_port, expected, 60_000_000)
    assert through(passing, sender_port, tmp_path) == want


def test_without_scaling_the_field_is_the_window(tmp_path: Path) -> None:
    """The server does not scale, so neither does the client, for any offer in its SYN."""
    for sender_port in (1, 2):
        passing = Connection(*V4, server_scale=None).frames(sender_port, 65_535)
        assert through(passing, sender_port, tmp_path) == [frame for _, _, frame in passing]


@pytest.mark.parametrize("server_scale", [None, 7])
def test_the_handshake_counts_before_the_flow_is_followed(
    server_scale: int | None, tmp_path: Path
) -> None:
    """The server sends, of a class only from its first data on.

    Without scaling on its side the client's windows are not scaled, whatever its SYN offered.
    """
    sender_port, dscp, window = 2, 10, 3_000
    passing = []
    for port, at_ns, frame in Connection(*V4, server_scale=server_scale).frames(
        sender_port, window
    ):
        parsed = Ether(frame)
        if port == sender_port and at_ns >= 60_000_000:
            parsed[IP].tos = dscp << 2
            del parsed[IP].chksum
        passing.append((port, at_ns, bytes(parsed)))
    limit = clamped(window, server_scale or 0, LIMIT_BYTES)
    assert (limit < window) == (server_scale is not None)
    # The first acknowledgement says how long a round trip takes.
    want = lowered(passing, 1, limit, 90_000_000)
    assert through(passing, sender_port, tmp_path, dscp) == want


def test_a_flow_whose_handshake_was_not_seen_is_left_alone(tmp_path: Path) -> None:
    passing = [one for one in Connection(*V4).frames(1, 65_535) if one[1] >= 60_000_000]
    assert through(passing, 1, tmp_path) == [frame for _, _, frame in passing]


@pytest.mark.parametrize("differ_in", OF_THE_SAME_CELL)
def test_a_syn_of_another_flow_leaves_the_scale(differ_in: str, tmp_path: Path) -> None:
    """One that an acknowledgement would find in the same cell."""
    other, there = OF_THE_SAME_CELL[differ_in]
    assert cell_of(other, there) == cell_of(*V4)
    passing = Connection(*V4).frames(1, 65_535)
    at_ns = 50_000_000
    syn = frame_of(Segment(at_ns, there, other, 0, flags="S"), 2)
    with_syn = sorted([*passing, (2, at_ns, syn)], key=lambda one: one[1])
    left = through(with_syn, 1, tmp_path)
    assert [frame for frame in left if frame != syn] == through(passing, 1, tmp_path)


@pytest.mark.parametrize("differ_in", OF_THE_SAME_CELL)
def test_another_flow_s_scale_is_not_taken(differ_in: str, tmp_path: Path) -> None:
    """After a minute of silence the cell is anybody's: the flow's own scale is not known then."""
    other, there = OF_THE_SAME_CELL[differ_in]
    silence_ns = 61_000_000_000
    shaken = [one for one in Connection(*V4).frames(1, 65_535) if one[1] < 60_000_000]
    later = [
        (port, at_ns + silence_ns, frame)
        for port, at_ns, frame in Connection(*V4).frames(1, 65_535)
        if at_ns >= 60_000_000
    ]
    # The flow's own scale is still there.
    assert through([*shaken, *later], 1, tmp_path)[-1] != later[-1][2]
    syn = frame_of(Segment(silence_ns, there, other, 0, flags="S"), 2, scale=14)
    left = through([*shaken, (2, silence_ns, syn), *later], 1, tmp_path)
    assert left == [frame for _, _, frame in shaken] + [syn] + [frame for _, _, frame in later]


def test_a_wrong_checksum_stays_wrong_by_as_much(tmp_path: Path) -> None:
    passing = Connection(*V4).frames(1, 65_535)
    port, at_ns, frame = passing[-1]
    broken = Ether(frame)
    broken[TCP].chksum ^= 0x0100
    wrong = through([*passing[:-1], (port, at_ns, bytes(broken))], 1, tmp_path)[-1]
    right = Ether(through(passing, 1, tmp_path)[-1])
    parsed = Ether(wrong)
    assert parsed[TCP].window == right[TCP].window < 65_535
    difference = (parsed[TCP].chksum - right[TCP].chksum) % 0xFFFF
    assert difference in (0x0100, 0xFFFF - 0x0100)


def test_any_options_pass_unchanged(tmp_path: Path) -> None:
    """SYNs whose options are anything: none is dropped, none is changed."""
    dice = random.Random(5)
    plain = frame_of(Segment(0, *V4, 0), 1)[:54]
    passing: list[Passing] = []
    for number in range(400):
        words = dice.randrange(11)
        options = bytes(dice.choice([0, 1, 2, 3, 4, 5, 40, 255]) for _ in range(4 * words))
        frame = bytearray(plain) + options + bytes(dice.randrange(3))
        frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
        frame[46] = (5 + words) << 4
        frame[47] = dice.choice([0x02, 0x12])
        passing.append((1, 1_000_000 * (1 + number), bytes(frame)))
    assert through(passing, 1, tmp_path) == [frame for _, _, frame in passing]

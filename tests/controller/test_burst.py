"""Burstiness of capture files: formats, flows, and the numbers against exact arithmetic."""

import json
import struct
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pacer_controller import rates
from pacer_controller.burst import capture
from pacer_controller.burst.flows import Flow, flow_of
from pacer_controller.burst.measure import Meter
from pacer_controller.cli.main import main

NS_PER_S = 10**9
START_NS = 1_700_000_000 * NS_PER_S + 123_456_789
T_NS = 100_000_000
RATE_BPS = 40_000_000
VECTORS = sorted((Path(__file__).resolve().parents[1] / "vectors" / "burstiness").glob("*.json"))

MACS = bytes.fromhex("020000000002020000000001")
IPV4 = bytes.fromhex("4500001c00004000401100000a0000010a000101")
IPV6 = bytes.fromhex("6000000000080640") + bytes(15) + b"\1" + bytes(15) + b"\2"
PORTS = struct.pack(">HH", 40000, 5001)
UDP4 = MACS + b"\x08\x00" + IPV4 + PORTS
FLOW4 = Flow(17, "10.0.0.1", "10.0.1.1", 40000, 5001)

Trace = list[tuple[int, bytes, int]]
"""Time in ns, the captured bytes of a packet, its length without FCS."""


def pcap(trace: Trace, order: str = "<", *, nanoseconds: bool = True) -> bytes:
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    for at_ns, data, length in trace:
        seconds, rest = divmod(at_ns, NS_PER_S)
        out += struct.pack(order + "IIII", seconds, rest // unit, len(data), length) + data
    return out


def _block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def pcapng(trace: Trace, order: str = "<", resolution: int = 9) -> bytes:
    out = _block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    option = struct.pack(order + "HHB3xHH", 9, 1, resolution, 0, 0)
    # A first interface of another resolution, that no packet is of.
    out += _block(order, 1, struct.pack(order + "HHI", 1, 0, 65535))
    out += _block(order, 1, struct.pack(order + "HHI", 1, 0, 65535) + option)
    units = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    for at_ns, data, length in trace:
        stamp = at_ns * units // NS_PER_S
        head = struct.pack(order + "5I", 1, stamp >> 32, stamp & 0xFFFFFFFF, len(data), length)
        out += _block(order, 6, head + data)
    return out


TRACE: Trace = [(START_NS + 1000 * n, UDP4 + bytes(60), 1514) for n in range(3)]


def read(tmp_path: Path, content: bytes) -> Trace:
    file = tmp_path / "trace.pcap"
    file.write_bytes(content)
    return [(packet.at_ns, packet.data, packet.length) for packet in capture.read(file)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_nanosecond_stamps_and_lengths_before_cutting_survive(tmp_path: Path, order: str) -> None:
    assert read(tmp_path, pcap(TRACE, order)) == TRACE
    assert read(tmp_path, pcapng(TRACE, order)) == TRACE


def test_coarser_stamps_are_read_in_their_unit(tmp_path: Path) -> None:
    in_us = [(at // 1000 * 1000, data, length) for at, data, length in TRACE]
    assert read(tmp_path, pcap(TRACE, nanoseconds=False)) == in_us
    assert read(tmp_path, pcapng(TRACE, resolution=6)) == in_us
    in_2_20 = [at * 2**20 // NS_PER_S * NS_PER_S // 2**20 for at, _, _ in TRACE]
    assert [at for at, _, _ in read(tmp_path, pcapng(TRACE, resolution=0x80 | 20))] == in_2_20


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_a_file_that_ends_within_a_packet_ends_before_it(tmp_path: Path, write: Any) -> None:
    assert read(tmp_path, write(TRACE)[:-7]) == TRACE[:-1]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no pcap"),
        (b"\x7fELF" + bytes(40), "no pcap"),
        (pcap([])[:20] + struct.pack("<I", 105), "link type 105"),
        (pcap([]) + struct.pack("<IIII", 0, 0, 2**31, 60), "broken"),
        (pcapng([]) + struct.pack("<III", 6, 4, 0), "broken"),
        (pcapng([]) + _block("<", 6, struct.pack("<5I", 7, 0, 0, 0, 60)), "interface"),
        (pcapng([]) + _block("<", 3, struct.pack("<I", 0)), "no times"),
        (pcapng([]) + _block("<", 1, b""), "trace.pcap: "),
    ],
)
def test_what_is_no_capture_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(capture.CaptureError, match=why) as refused:
        read(tmp_path, content)
    assert "trace.pcap" in str(refused.value)


def test_flows_are_told_as_on_the_wire() -> None:
    assert flow_of(UDP4) == FLOW4
    assert str(FLOW4) == "udp 10.0.0.1:40000 > 10.0.1.1:5001"
    tagged = MACS + b"\x81\x00\x00\x64\x08\x00" + IPV4 + PORTS
    assert flow_of(tagged) == FLOW4
    ipv6 = flow_of(MACS + b"\x86\xdd" + IPV6 + PORTS)
    assert ipv6 == Flow(6, "::1", "::2", 40000, 5001)
    assert str(ipv6) == "tcp [::1]:40000 > [::2]:5001"
    fragment = bytearray(UDP4)
    fragment[21] = 1
    assert flow_of(bytes(fragment)) == Flow(17, "10.0.0.1", "10.0.1.1", 0, 0)
    options = bytearray(UDP4)
    options[14] = 0x46
    assert flow_of(bytes(options)) == Flow(17, "10.0.0.1", "10.0.1.1", 0, 0)
    assert flow_of(UDP4[:36]) == Flow(17, "10.0.0.1", "10.0.1.1", 0, 0)
    for cut in (UDP4[:13], UDP4[:30], tagged[:17], MACS + b"\x08\x06" + bytes(28)):
        assert flow_of(cut) is None


def bursts() -> list[tuple[int, int]]:
    """Bursts of growing size every 7 ms, with a pause of three windows in between."""
    found = []
    for burst in range(60):
        at_ns = START_NS + burst * 7_000_000 + (350_000_000 if burst > 30 else 0)
        found += [(at_ns + 12_304 * n, 1518 - 7 * n) for n in range(burst % 11 + 1)]
    return found


def test_queues_are_those_of_exact_arithmetic() -> None:
    rate_q24 = rates.draining_bytes_per_ns_q24(RATE_BPS)
    meter = Meter(rate_q24, T_NS)
    for at_ns, length in bursts():
        meter.add(at_ns, length)
    measured = {window.number: window for window in meter.measured().windows}
    window_bytes: dict[int, int] = {}
    for at_ns, length in bursts():
        number = at_ns // T_NS
        window_bytes[number] = window_bytes.get(number, 0) + length
    assert {number: window.bytes for number, window in measured.items()} == window_bytes

    def drained(since_ns: int, until_ns: int) -> Fraction:
        """Bytes that a bottleneck of each window's former rate lets go."""
        total = Fraction(0)
        for number in range(since_ns // T_NS, until_ns // T_NS + 1):
            inside = min(until_ns, (number + 1) * T_NS) - max(since_ns, number * T_NS)
            total += Fraction(window_bytes.get(number - 1, 0) * inside, T_NS)
        return total

    static = previous = Fraction(0)
    last_ns = START_NS
    highest: dict[int, list[Fraction]] = {}
    for at_ns, length in bursts():
        static = max(Fraction(0), static - Fraction((at_ns - last_ns) * rate_q24, 2**24)) + length
        number = at_ns // T_NS
        if number - 1 not in window_bytes:
            previous = Fraction(0)
        else:
            previous = max(Fraction(0), previous - drained(last_ns, at_ns)) + length
        last_ns = at_ns
        most = highest.setdefault(number, [Fraction(0), Fraction(0)])
        most[:] = max(most[0], static), max(most[1], previous)
    assert {
        number: [window.vb_max_bytes, window.previous_max_bytes]
        for number, window in measured.items()
    } == {number: [int(one), int(other)] for number, (one, other) in highest.items()}
    # A window after an empty one has no average to drain at.
    assert [w.previous_max_bytes == 0 for w in measured.values()].count(True) == 2


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_every_window_is_that_of_the_reference_model(path: Path) -> None:
    vector = json.loads(path.read_text())
    meter = Meter(vector["bytes_per_ns_q24"], vector["window_ns"])
    assert rates.draining_bytes_per_ns_q24(vector["bottleneck_bps"]) == vector["bytes_per_ns_q24"]
    for first_ns, packets, gap_ns, length in vector["trains"]:
        for n in range(packets):
            meter.add(first_ns + n * gap_ns, length)
    assert [list(astuple(window)) for window in meter.measured().windows] == vector["windows"]


def test_dynamic_burstiness_of_bursts_with_pauses_is_not_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,600 frames every 200 ms: every second window is empty."""
    (bursts_and_idle,) = (path for path in VECTORS if path.stem == "bursts-and-idle")
    vector = json.loads(bursts_and_idle.read_text())
    trace = [
        (first_ns + n * gap_ns, UDP4, length - 4)
        for first_ns, packets, gap_ns, length in vector["trains"]
        for n in range(packets)
    ]
    file = tmp_path / "trace.pcap"
    file.write_bytes(pcap(trace))
    assert main(["--json", "burst", str(file), "--vb", "500mbit"]) == 0
    (measured,) = json.loads(capsys.readouterr().out)["measured"]
    columns = ("bytes", "vb_max_bytes", "dynamic_vb_max_bytes", "previous_window_vb_max_bytes")
    windows = set(zip(*(measured["windows"][column] for column in columns), strict=True))
    assert windows == {(2_428_800, 1_199_169, 1_950_955, 0)}
    assert windows == {tuple(window[1:]) for window in vector["windows"]}


def test_summary_counts_empty_windows() -> None:
    meter = Meter(rates.draining_bytes_per_ns_q24(RATE_BPS), T_NS)
    meter.add(0, 1000)
    meter.add(4 * T_NS, 3000)
    assert meter.measured().summary() == {
        "windows": 5,
        "abw_mean_bps": 4000 * 8 * 10 // 5,
        "abw_max_bps": 240_000,
        "vb_mean_bytes": 800,
        "vb_max_bytes": 3000,
        "dynamic_vb_mean_bytes": 800,
        "dynamic_vb_max_bytes": 3000,
        "dynamic_unknown_windows": 0,
        "previous_window_vb_mean_bytes": 0,
        "previous_window_vb_max_bytes": 0,
    }
    assert Meter(1).measured().summary()["windows"] == 0


def test_a_window_with_more_packets_than_are_kept_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pacer_controller.burst.measure.KEPT_PACKETS_MAX", 2)
    meter = Meter(1, T_NS)
    for at_ns in (0, 1, 2, T_NS, T_NS + 1, 2 * T_NS, 2 * T_NS + 1, 2 * T_NS + 2):
        meter.add(at_ns, 1518)
    known = [window.dynamic_max_bytes is not None for window in meter.measured().windows]
    assert known == [False, True, False]


def test_times_that_run_backwards_open_no_second_window() -> None:
    """As in a capture of several interfaces, whose packets are not sorted."""
    meter = Meter(rates.draining_bytes_per_ns_q24(RATE_BPS), T_NS)
    for at_ns in (T_NS - 1, T_NS + 5, T_NS - 1, T_NS + 6):
        meter.add(at_ns, 1000)
    measured = meter.measured()
    assert [(one.number, one.bytes) for one in measured.windows] == [(0, 1000), (1, 3000)]
    assert measured.summary()["windows"] == 2


def test_the_command_prints_each_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arp = MACS + b"\x08\x06" + bytes(28)
    other = UDP4[:-2] + struct.pack(">H", 80)
    file = tmp_path / "trace.pcapng"
    file.write_bytes(pcapng([*TRACE, (START_NS + 9_000, arp, 60), (START_NS + 9_500, other, 900)]))
    assert main(["--json", "burst", str(file), "--vb", "40mbit", "--per-flow"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bottleneck_bps"] == RATE_BPS
    counted = {one["flow"]: sum(one["windows"]["bytes"]) for one in said["measured"]}
    assert counted == {
        str(FLOW4): 3 * 1518,
        "other packets": 64,
        "udp 10.0.0.1:40000 > 10.0.1.1:80": 904,
    }
    assert main(["burst", str(file), "--vb", "40mbit", "--window", "50ms"]) == 0
    assert "trace.pcapng" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["trace.pcap"], "--vb 40Mbit"),
        (["nothing.pcap"], "nothing.pcap: no such file"),
        (["trace.pcap", "--vb", "fast"], "not a rate"),
        (["trace.pcap", "--vb", "1mbit", "--window", "1us"], "1ms to 10s"),
        (["nothing.pcap", "--vb", "1mbit"], "nothing.pcap"),
        (["trace.pcap", "--vb", "1mbit", "--port", "1"], "--per-flow"),
        (["wan", "--window", "50ms"], "are of files"),
    ],
)
def test_the_command_says_what_it_wants(
    arguments: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.pcap").write_bytes(pcap(TRACE))
    assert main(["burst", *arguments]) == 2
    assert why in capsys.readouterr().err

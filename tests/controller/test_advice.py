"""`pacer burst --advise`: right on captures that it has not seen, and about the captures it has."""

import json
from pathlib import Path

import pytest
from pacing_switch import TimedFrame, write_capture
from random_traffic import KINDS, Capture, Traffic
from virtual_switch import Port, VirtualRun, run, statistics

from pacer_controller.burst import advice
from pacer_controller.cli.main import main

FCS_BYTES = 4
SEEDS = range(5001, 5006)
"""The rule was chosen with seeds 1 to 112 and 6001 to 6050."""

UNSEEN = range(1, 6)
"""Seeds of the captures that judge an advice, which is made from the capture with seed 0."""

TRAFFICS = [Traffic(kind, seed) for kind in KINDS for seed in SEEDS]


def packets_of(capture: Capture) -> advice.Packets:
    packets = advice.Packets()
    for at_ns, length in zip(capture.times_ns.tolist(), capture.lengths.tolist(), strict=True):
        packets.add(at_ns, length)
    return packets


@pytest.mark.parametrize("traffic", TRAFFICS, ids=lambda traffic: f"{traffic.kind}-{traffic.seed}")
def test_no_capture_loses_at_the_fifo_advised_from_another_of_the_traffic(traffic: Traffic) -> None:
    """A hundred captures in all; the least FIFO is the one with which none of the five loses."""
    seen = traffic.capture(0)
    rate_bps = traffic.bottleneck_bps(seen)
    advised = advice.fifo_for(packets_of(seen), rate_bps)
    assert advised.needed_bytes == seen.needed_bytes(rate_bps)
    needed = [traffic.capture(seed).needed_bytes(rate_bps) for seed in UNSEEN]
    assert max(needed) <= advised.fifo_bytes <= 1.5 * max(needed)


@pytest.mark.parametrize("kind", KINDS)
def test_nor_at_the_rate_advised_for_a_fifo(kind: str) -> None:
    traffic = Traffic(kind, seed=5001, seconds=5)
    packets = packets_of(traffic.capture(0))
    wanted_bps = traffic.bottleneck_bps(traffic.capture(0))
    fifo_bytes = advice.fifo_for(packets, wanted_bps).fifo_bytes
    advised = advice.rate_for(packets, fifo_bytes)
    assert advised.fifo_bytes <= fifo_bytes
    assert advised.rate_bps <= wanted_bps * 1.05
    for seed in UNSEEN:
        assert traffic.capture(seed).needed_bytes(advised.rate_bps) <= fifo_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_capture_needs_is_what_the_switch_needs(kind: str, tmp_path: Path) -> None:
    """The least FIFO to the byte: the switch drops nothing with it, and something with less."""
    capture = Traffic(kind, seed=5002, seconds=1).capture(0)
    rate_bps = Traffic(kind, seed=5002).bottleneck_bps(capture)
    needed = advice.fifo_for(packets_of(capture), rate_bps).needed_bytes

    def drops(fifo_bytes: int) -> int:
        port = Port(2, f"rate={rate_bps},counts=layer2,fifo={fifo_bytes}")
        frames = [
            TimedFrame(at_ns, bytes(length - FCS_BYTES))
            for at_ns, length in zip(
                capture.times_ns.tolist(), capture.lengths.tolist(), strict=True
            )
        ]
        wire = {
            "table": "GtrcnetIngress.wire",
            "match": {"ingress_port": 1},
            "action_name": "GtrcnetIngress.send_to",
            "action_params": {"port": 2},
        }
        what = VirtualRun([Port(1), port], {1: frames}, {"table_entries": [wire]}, "gtrcnet")
        run(what, tmp_path)
        ports = statistics(tmp_path)["ports"]
        assert isinstance(ports, list)
        (of_port,) = (one for one in ports if one["port"] == 2)
        return int(of_port["drops"].get("fifo-full", 0))

    assert drops(needed) == 0
    assert drops(needed - 1) > 0


def test_paced_packets_need_a_frame() -> None:
    packets = advice.Packets()
    for n in range(1000):
        packets.add(n * 24_288, 1518)
    advised = advice.fifo_for(packets, 500_000_000)
    assert (advised.needed_bytes, advised.fifo_bytes, advised.chance) == (1518, 2277, 0.0)


def test_with_few_busy_periods_the_chance_is_not_known() -> None:
    packets = advice.Packets()
    for n in range(40):
        # The first of four leaves at once.
        packets.add(n // 4 * 1_000_000, 1000)
    advised = advice.fifo_for(packets, 100_000_000)
    assert (advised.needed_bytes, advised.fifo_bytes, advised.chance) == (3000, 4200, None)


def test_without_an_answer_there_is_no_advice() -> None:
    packets = advice.Packets()
    with pytest.raises(advice.NoAdviceError, match="too few packets"):
        advice.fifo_for(packets, 1_000_000)
    with pytest.raises(advice.NoAdviceError, match="too few packets"):
        advice.rate_for(packets, 1_000_000)
    for n in range(100):
        packets.add(n * 12_304, 1518)
    with pytest.raises(advice.NoAdviceError, match="in time no FIFO is large enough"):
        advice.fifo_for(packets, 500_000_000)
    with pytest.raises(advice.NoAdviceError, match="too small at any rate"):
        advice.rate_for(packets, 1518)


def test_periodic_bursts_need_what_one_of_them_needs() -> None:
    """The mean from the first packet to the last is above the bursts' rate."""
    packets = advice.Packets()
    for n in range(1000):
        # 100 frames at 1 Gbit/s each 10 ms: 100 Mbit/s.
        packets.add(n // 100 * 10_000_000 + n % 100 * 10_000, 1250)
    at_its_rate = advice.fifo_for(packets, 100_000_000)
    assert at_its_rate.needed_bytes == max(packets.peaks(100_000_000))
    assert at_its_rate.needed_bytes < 100 * 1250
    with pytest.raises(advice.NoAdviceError, match="the queue does not empty"):
        advice.fifo_for(packets, 90_000_000)
    assert advice.rate_for(packets, 200_000).rate_bps < 101_000_000


def write_traffic(path: Path) -> Capture:
    capture = Traffic("bursts", seed=5003, seconds=1).capture(0)
    frame = bytes.fromhex("020000000002020000000001900000")
    times, lengths = capture.times_ns.tolist(), capture.lengths.tolist()
    frames = [
        TimedFrame(at_ns, frame.ljust(length - FCS_BYTES, b"\0"))
        for at_ns, length in zip(times, lengths, strict=True)
    ]
    write_capture(path, frames)
    return capture


def test_the_command_advises_a_fifo_or_a_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.pcap"
    capture = write_traffic(file)
    assert main(["--json", "burst", str(file), "--advise", "--vb", "500mbit"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["advised"]
    assert found["needed_bytes"] == capture.needed_bytes(500_000_000)
    assert found["rate_bps"] == 500_000_000
    fifo = str(found["fifo_bytes"])
    assert main(["--json", "burst", str(file), "--advise", "--fifo", fifo]) == 0
    (slower,) = json.loads(capsys.readouterr().out)["advised"]
    assert slower["rate_bps"] <= 525_000_000
    assert main(["burst", str(file), "--advise", "--vb", "500mbit", "--per-flow"]) == 0
    assert "other packets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--advise"], "either a rate"),
        (["--advise", "--vb", "1mbit", "--fifo", "1KB"], "either a rate"),
        (["--fifo", "1KB", "--vb", "1mbit"], "--fifo needs --advise"),
        (["--advise", "--vb", "1mbit", "--window", "1ms"], "no --window"),
        (["--advise", "--vb", "1mbit", "--port", "1"], "are of switches"),
        (["--advise", "--vb", "fast"], "not a rate"),
        (["--advise", "--fifo", "large"], "not a size"),
        (["--advise", "--vb", "1mbit"], "in time no FIFO is large enough"),
    ],
)
def test_the_command_says_what_it_wants(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.pcap"
    write_traffic(file)
    assert main(["burst", str(file), *arguments]) == 2
    assert why in capsys.readouterr().err

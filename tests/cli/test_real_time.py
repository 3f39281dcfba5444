"""The real-time driver on real interfaces: captures, interfaces that go, a full ring."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from namespaces import told_inside
from virtual_switch import binary

INSIDE = Path(__file__).with_name("real_time_namespace.py")
# Of a ring in which each frame has 2 KB, and of the stop that fills it.
RING_FRAMES = 4_096
FRAME_BYTES = 204

KEPT_MAX = 2_048
"""Frames that a port keeps for an interface that does not take them (`KEPT_MAX` of crate ports)."""
IN_KERNEL_MAX = 500


@pytest.fixture(scope="module", params=["1", "3"], ids=["1-thread", "3-threads"])
def lived(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run the switch, with so many threads, in a namespace of its own; return its figures."""
    return told_inside(INSIDE, tmp_path_factory.mktemp("lived"), request.param)


def ports_of(told: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The statistics of each port that the switch left behind, once it ended well."""
    assert told["status"] == 0, told["stderr"]
    assert "panicked" not in told["stderr"]
    return {port["port"]: port for port in told["statistics"]["ports"]}


def test_captures_hold_what_passed(lived: dict[str, Any]) -> None:
    """Every frame, in order, where it came in and where it went out, at its time of day."""
    told = lived["captures"]
    ports_of(told)
    frames, times = told["frames"], told["times"]
    assert frames["a1_in.pcap"] == frames["b1_out.pcap"] == told["sent"]
    # Nothing came from the other side, and nothing goes back to where it came from.
    assert frames["b1_in.pcap"] == frames["a1_out.pcap"] == []
    began_ns, ended_ns = told["between"]
    for name in ("a1_in.pcap", "b1_out.pcap"):
        assert times[name] == sorted(times[name])
        assert began_ns <= times[name][0] <= times[name][-1] <= ended_ns
    departures = zip(times["a1_in.pcap"], times["b1_out.pcap"], strict=True)
    assert all(came_ns <= left_ns for came_ns, left_ns in departures)


def test_a_lost_carrier_takes_the_port_down_until_it_is_back(lived: dict[str, Any]) -> None:
    """The far end of a wire going down is noticed within a second or so, and its coming back."""
    told = lived["carrier"]
    ports = ports_of(told)
    assert all("c1" in line for line in told["noticed"])
    without, after = told["sent"]
    assert told["forwarded_after"] == after
    assert ports[3]["drops"] == {"port-down": without}
    assert ports[3]["tx_packets"] == after
    assert ports[2]["tx_packets"] == without + after


def test_an_interface_that_vanishes_takes_nothing_with_it(lived: dict[str, Any]) -> None:
    """The switch reports it, counts frames to it, and forwards between the others."""
    told = lived["vanishing"]
    ports = ports_of(told)
    assert "b1" in told["noticed"]
    before, after = told["sent"]
    assert told["forwarded_after"] == after
    assert ports[3]["tx_packets"] == before + after
    assert ports[2]["tx_packets"] == before
    assert ports[2]["drops"] == {"port-down": after}
    assert ports[1]["drops"] == {"pruned": before + after}
    # An interface that is gone keeps reporting an error: the switch must not keep looking.
    assert told["cpu_seconds_while_idle"] < 0.3
    # Nor take its own sleep for a stall of the machine.
    assert told["statistics"]["polling"]["stalled_ns"] < told["idle_ns"] // 2


def test_what_the_machine_takes_is_counted_as_a_stall(lived: dict[str, Any]) -> None:
    """Not as the switch's own time between polls, and not hidden in lateness alone."""
    told = lived["stalled"]
    ports_of(told)
    polling = told["statistics"]["polling"]
    # It slept until the next departure, 102 ms later at most; the rest of the stop is the stall.
    assert polling["stalls"] >= 1
    assert polling["stalled_ns"] >= polling["stall_max_ns"] >= told["stopped_ns"] // 2
    assert polling["interval_max_ns"] < polling["stall_threshold_ns"]
    assert "stalled the switch" in told["stderr"]


CONTROL = {"control", "thrift", "thrift client", "notifications", "subscriber"}


def test_control_threads_give_way_to_those_that_pace(lived: dict[str, Any]) -> None:
    """By niceness and class, so clients take little time from pacing; none has capabilities."""
    told = lived["priorities"]["off"]
    ports_of(told)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {name for name, *_ in told["threads"]} >= CONTROL
    for name, niceness, policy, capabilities, _ in told["threads"]:
        gives_way = niceness == min(own + 5, 19) if name in CONTROL else niceness > own
        assert gives_way == (name in CONTROL) == (policy == os.SCHED_BATCH), name
        assert capabilities == 0, name


def test_control_threads_are_ordinary_beside_real_time_threads(lived: dict[str, Any]) -> None:
    """Pacing does not need them to give way, and changes do not wait for other processes."""
    told = lived["priorities"]["auto"]
    ports_of(told)
    if "the real-time class SCHED_FIFO" not in told["stderr"]:
        pytest.skip("not run: the real-time class: needs CAP_SYS_NICE and two processors")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {name for name, *_ in told["threads"]} >= CONTROL
    for name, niceness, policy, capabilities, _ in told["threads"]:
        if name in CONTROL:
            assert (niceness, policy) == (own, os.SCHED_OTHER), name
        assert capabilities == 0, name


def test_a_processor_can_be_for_the_pacing_thread_alone(lived: dict[str, Any]) -> None:
    """All other threads of the switch keep off it."""
    if "own" not in lived["priorities"]:
        pytest.skip("not run: a processor for pacing: needs two processors")
    told = lived["priorities"]["own"]
    ports_of(told)
    *others, own = sorted(os.sched_getaffinity(0))
    processors = sorted(processors for *_, processors in told["threads"])
    assert processors.count([own]) == 1
    assert processors.count(others) == len(processors) - 1


@pytest.mark.parametrize("processor", ["1023", "4294967296"])
def test_a_processor_that_does_not_exist_is_refused(processor: str) -> None:
    """By a message that names the option."""
    command = [str(binary()), "--no-p4", "--pacing-cpu", processor]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        f"--pacing-cpu {processor}: no such processor, or this process may not use it\n"
    )


def test_a_full_ring_is_counted_as_such(lived: dict[str, Any]) -> None:
    """Packets that the kernel dropped while the switch was stopped are in its statistics."""
    told = lived["overflow"]
    ports = ports_of(told)
    lost = ports[1]["drops"]["rx-ring-full"]
    assert lost > 0
    assert ports[1]["rx_packets"] >= RING_FRAMES
    assert ports[1]["rx_packets"] + lost == told["sent"]
    # It has forwarded all packets that it received, although late.
    assert ports[2]["tx_packets"] + sum(ports[2]["drops"].values()) == ports[1]["rx_packets"]
    assert set(ports[1]["drops"]) == {"rx-ring-full", "pruned"}


def test_packets_for_a_slow_interface_wait_in_the_switch(lived: dict[str, Any]) -> None:
    """None is lost, all leave in order, and the port's queue shows them."""
    told = lived["slow_interface"]
    if "not_run" in told:
        pytest.skip(f"not run: an interface with a rate: {told['not_run']}")
    port = ports_of(told)[3]
    assert told["in_order"] == port["tx_packets"] == told["sent"]
    assert port["drops"] == {}
    # When the last one was sent, `left` had not left. Of these, a busy machine lets as many as the
    # port keeps at most be on their way to the kernel, which holds about two hundred.
    waited = told["left"] - KEPT_MAX - IN_KERNEL_MAX
    assert port["fifo_backlog_max_bytes"] > waited * FRAME_BYTES > 0

"""Measurements of a target: packets per second, gaps, latency, processor time."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from non_drop import Trial
from targets import (
    DESTINATION,
    DESTINATION_ADDRESS,
    RELEASE,
    SENDER_CPU,
    SOURCE,
    SOURCE_ADDRESS,
    WIRE,
    Started,
)

OFFERED = 1.2
FRAME_BYTES_MTU = 1518
"""A full frame with its FCS."""

FCS_BYTES = 4
PROBES_PER_SECOND = 1000
PROBE_PORT = 5002
"""The port after the generator's own."""

_INSTRUMENTS_NICE = -10
BATCH_EVERY_US = 500
"""Time between batches of the generator: at 500 Mbit/s, 25 full frames."""

SETTLE_S = 0.2
SETTLE_MAX_S = 10.0
_ETH_P_ALL = 3
_LOCAL_EXPERIMENT = b"\x88\xb5"
"""EtherType of IEEE 802 for local experiments."""

_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SO_ATTACH_FILTER = 26
_BPF = struct.Struct("=HBBI")
"""An instruction of linux/filter.h: code, jumps if true and if false, operand."""
_LOAD_HALF, _LOAD_BYTE, _JUMP_EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_BUFFER_BYTES = 512 << 20
"""Room for ten seconds of full frames at 100 Mbit/s, both ways."""
_NUMBER = struct.Struct("=Q")
_STAMP = struct.Struct("=qq")
_COUNTS = struct.Struct("=II")
_UDP_AT = 14 + 20
_NUMBER_AT = _UDP_AT + 8


def received_packets() -> int:
    """The far end's own counter."""
    return int(Path(f"/sys/class/net/{WIRE.receiver}/statistics/rx_packets").read_text())


def announce() -> None:
    """Lets a switch that learns know where the receiver is."""
    macs = bytes.fromhex((SOURCE + DESTINATION).replace(":", ""))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((WIRE.receiver, 0))
        sender.send((macs + _LOCAL_EXPERIMENT).ljust(60, b"\0"))


def at(cpu: int | None) -> list[str]:
    """Words before a command that keep it on a processor; None: it may use all."""
    return [] if cpu is None else ["taskset", "-c", str(cpu)]


def blast(
    frame_bytes: int, rate: str, seconds: float, *more: str, cpu: int | None = SENDER_CPU
) -> list[str]:
    """Command line of the generator, with `more` options; `frame_bytes` without FCS."""
    return [
        *(*at(cpu), str(RELEASE / "blaster"), WIRE.sender),
        *("--src-mac", SOURCE, "--dst-mac", DESTINATION),
        *("--src-ip", SOURCE_ADDRESS, "--dst-ip", DESTINATION_ADDRESS),
        *("--frame-bytes", str(frame_bytes), "--rate-pps", rate, "--seconds", str(seconds)),
        *more,
    ]


def forwarding(started: Started, frame_bytes: int, seconds: float) -> tuple[float, float]:
    """Full load: frames per second at the far end, and per second of processor time used."""
    sender = subprocess.Popen(
        blast(frame_bytes, "max", seconds + 1.0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    packets, used_s, start = -received_packets(), -started.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    packets += received_packets()
    used_s += started.cpu_seconds()
    end = time.monotonic()
    sender.wait()
    return packets / (end - start), packets / max(used_s, 1e-9)


@contextmanager
def as_instrument() -> Iterator[None]:
    """Give the processes started in the block a higher priority than those that are measured."""
    os.setpriority(os.PRIO_PROCESS, 0, _INSTRUMENTS_NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def gaps(
    receiving: str,
    rate_bps: int,
    seconds: float,
    meter_cpu: int | None,
    sender_cpu: int | None = SENDER_CPU,
) -> dict[str, Any]:
    """Offers 1.2 times the rate at the sender; returns the gaps measured at `receiving`.

    Meter and generator keep to a core that is not the measured switch's; None: they may use all, as
    the switch may. The generator sends frames in batches, which costs it less processor time:
    packets of the class wait, so their own spacing does not show in its gaps.
    """
    ideal_ns = FRAME_BYTES_MTU * 8 * 1_000_000_000 / rate_bps
    receiver = subprocess.Popen(
        [
            *(*at(meter_cpu), str(RELEASE / "gapmeter"), receiving),
            *("--match", "udp-dst=5001", "--ideal-ns", str(ideal_ns)),
            *("--seconds", str(seconds), "--skip", "200"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert receiver.stderr is not None
    receiver.stderr.readline()  # "ready"
    pps = OFFERED * rate_bps / (FRAME_BYTES_MTU * 8)
    sender = subprocess.Popen(
        blast(
            FRAME_BYTES_MTU - FCS_BYTES,
            f"{pps:.0f}",
            seconds + 2.0,
            *("--spin-us", "0", "--every-us", str(BATCH_EVERY_US)),
            cpu=sender_cpu,
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    text, errors = receiver.communicate()
    sender.terminate()
    sender.wait()
    if receiver.returncode != 0:
        raise SystemExit(f"gapmeter: {errors}")
    report: dict[str, Any] = json.loads(text)
    return report


def latency(seconds: float) -> list[float]:
    """Time from the device's interface to the receiver's, in us, of single frames in order.

    One frame of 64 bytes with FCS per millisecond, so that each finds the device idle.
    """
    with Probes() as probes:
        subprocess.run(
            blast(60, f"{PROBES_PER_SECOND}", seconds, "--probe-every", "1"),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        settled()
        return probes.latencies_us()


class Probes:
    """Times of the generator's probes, from the device's interface to the receiver's.

    Both stamps are the kernel's, taken where a probe enters an interface.
    """

    def __enter__(self) -> Probes:
        self._entering = capture(WIRE.device_in, PROBE_PORT)
        self._leaving = capture(WIRE.receiver, PROBE_PORT)
        return self

    def __exit__(self, *_: object) -> None:
        self._entering.close()
        self._leaving.close()

    def latencies_us(self) -> list[float]:
        """Return the times of all probes that came through, in order."""
        came, left = _stamps(self._entering), _stamps(self._leaving)
        both = came.keys() & left.keys()
        return sorted((left[number] - came[number]) / 1e3 for number in both)


def settled() -> int:
    """Return the far end's counter when nothing has come for a while."""
    before = -1
    limit = time.monotonic() + SETTLE_MAX_S
    while (now := received_packets()) != before and time.monotonic() < limit:
        before = now
        time.sleep(SETTLE_S)
    return now


def trial(
    started: Started, frame_bytes: int, pps: float | None, seconds: float, *more: str
) -> Trial:
    """Send frames of `frame_bytes` with FCS; without `pps`, as many as go."""
    before = received_packets()
    used_s = -started.cpu_seconds()
    rate = "max" if pps is None else f"{pps:.3f}"
    text = subprocess.run(
        blast(frame_bytes - FCS_BYTES, rate, seconds, *more),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    received = settled() - before
    used_s += started.cpu_seconds()
    report = json.loads(text)
    return Trial(report["sent"], received, report["seconds"], used_s)


def cpu_share(started: Started, seconds: float) -> float:
    """Share of a core that the target uses while it is left alone."""
    used_s, start = -started.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    used_s += started.cpu_seconds()
    return used_s / (time.monotonic() - start)


def capture(interface: str, udp_port: int | None = None) -> socket.socket:
    """A socket that gets an interface's arriving frames, with the kernel's stamps.

    With `udp_port`, only those of UDP over IPv4 to this port.
    """
    # It gets nothing before it has its filter and its interface.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    if udp_port is not None:
        # The kernel copies the program.
        code = b"".join(_BPF.pack(*line) for line in _to_udp_port(udp_port))
        place = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HP", len(code) // _BPF.size, ctypes.addressof(place))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.bind((interface, _ETH_P_ALL))
    opened.setblocking(False)
    return opened


def _to_udp_port(port: int) -> list[tuple[int, int, int, int]]:
    """A filter that takes frames of UDP over IPv4, without options or tags, to a port."""
    drop = 6
    return [
        (_LOAD_HALF, 0, 0, 12),
        (_JUMP_EQUAL, 0, drop - 2, 0x0800),
        (_LOAD_BYTE, 0, 0, 23),
        (_JUMP_EQUAL, 0, drop - 4, 17),
        (_LOAD_HALF, 0, 0, _UDP_AT + 2),
        (_JUMP_EQUAL, 1, 0, port),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, 0xFFFF),
    ]


def stamped(opened: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield the frames of a capture with their times in ns.

    Ends the program when the kernel had no room for a frame.
    """
    while True:
        try:
            frame, control, _, _ = opened.recvmsg(2048, socket.CMSG_SPACE(_STAMP.size))
        except BlockingIOError:
            break
        if control:
            seconds, nanoseconds = _STAMP.unpack(control[0][2])
            yield seconds * 1_000_000_000 + nanoseconds, frame
    counts = opened.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _COUNTS.size)
    _, missed = _COUNTS.unpack(counts)
    if missed:
        raise SystemExit(f"the capture missed {missed} frames")


def _stamps(opened: socket.socket) -> dict[int, int]:
    """Return the arrival of each numbered frame, in ns."""
    return {_NUMBER.unpack_from(frame, _NUMBER_AT)[0]: at_ns for at_ns, frame in stamped(opened)}

"""Measurements of a target: packets per second, gaps, latency, processor time."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

_LATENCY_INTERVAL_S = 0.001
_ETH_P_ALL = 3
_LOCAL_EXPERIMENT = b"\x88\xb5"
"""EtherType of IEEE 802 for local experiments."""

_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_BUFFER_BYTES = 512 << 20
"""Room for ten seconds of full frames at 100 Mbit/s, both ways."""
_SEQUENCE = struct.Struct("=Q")
_STAMP = struct.Struct("=qq")
_COUNTS = struct.Struct("=II")
_UDP_AT = 14 + 20
_SEQUENCE_AT = _UDP_AT + 8
_PORTS = struct.pack("!HH", 5000, 5002)


def received_packets() -> int:
    """The far end's own counter."""
    return int(Path(f"/sys/class/net/{WIRE.receiver}/statistics/rx_packets").read_text())


def announce() -> None:
    """Lets a switch that learns know where the receiver is."""
    macs = bytes.fromhex((SOURCE + DESTINATION).replace(":", ""))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((WIRE.receiver, 0))
        sender.send((macs + _LOCAL_EXPERIMENT).ljust(60, b"\0"))


def blast(frame_bytes: int, rate: str, seconds: float) -> list[str]:
    """Command line of the generator; `frame_bytes` without FCS."""
    return [
        *("taskset", "-c", str(SENDER_CPU), str(RELEASE / "blaster"), WIRE.sender),
        *("--src-mac", SOURCE, "--dst-mac", DESTINATION),
        *("--src-ip", SOURCE_ADDRESS, "--dst-ip", DESTINATION_ADDRESS),
        *("--frame-bytes", str(frame_bytes), "--rate-pps", rate, "--seconds", str(seconds)),
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


def gaps(receiving: str, rate_bps: int, seconds: float, meter_cpu: int) -> dict[str, Any]:
    """Offers 1.2 times the rate at the sender; returns the gaps measured at `receiving`.

    The meter runs on `meter_cpu`, not on the core of the measured switch.
    """
    ideal_ns = FRAME_BYTES_MTU * 8 * 1_000_000_000 / rate_bps
    receiver = subprocess.Popen(
        [
            *("taskset", "-c", str(meter_cpu), str(RELEASE / "gapmeter"), receiving),
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
        blast(FRAME_BYTES_MTU - 4, f"{pps:.0f}", seconds + 2.0),
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

    One frame of 64 bytes with FCS per millisecond, so that each finds the device idle. Both
    stamps are the kernel's, taken where the frame enters an interface.
    """
    entering, leaving = capture(WIRE.device_in), capture(WIRE.receiver)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((WIRE.sender, 0))
    count = int(seconds / _LATENCY_INTERVAL_S)
    for sequence in range(count):
        sender.send(_frame(sequence))
        time.sleep(_LATENCY_INTERVAL_S)
    time.sleep(0.1)
    came, left = _stamps(entering), _stamps(leaving)
    for opened in (entering, leaving, sender):
        opened.close()
    return sorted((left[sequence] - came[sequence]) / 1e3 for sequence in came.keys() & left.keys())


def cpu_share(started: Started, seconds: float) -> float:
    """Share of a core that the target uses while it is left alone."""
    used_s, start = -started.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    used_s += started.cpu_seconds()
    return used_s / (time.monotonic() - start)


def _frame(sequence: int) -> bytes:
    """UDP over IPv4, its number behind the headers."""
    payload = _SEQUENCE.pack(sequence).ljust(60 - _SEQUENCE_AT, b"\0")
    addresses = socket.inet_aton(SOURCE_ADDRESS) + socket.inet_aton(DESTINATION_ADDRESS)
    udp = _PORTS + struct.pack("!HH", 8 + len(payload), 0)
    start = struct.pack("!BBHHHBB", 0x45, 0, 28 + len(payload), 0, 0, 64, 17)
    total = sum(struct.unpack("!10H", start + b"\0\0" + addresses))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ethernet = bytes.fromhex(DESTINATION.replace(":", "") + SOURCE.replace(":", "")) + b"\x08\0"
    return ethernet + start + struct.pack("!H", checksum) + addresses + udp + payload


def capture(interface: str) -> socket.socket:
    """A socket that gets an interface's arriving frames, with the kernel's stamps."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.bind((interface, _ETH_P_ALL))
    opened.setblocking(False)
    return opened


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
    return {
        _SEQUENCE.unpack_from(frame, _SEQUENCE_AT)[0]: at_ns
        for at_ns, frame in stamped(opened)
        if frame[_UDP_AT:].startswith(_PORTS)
    }

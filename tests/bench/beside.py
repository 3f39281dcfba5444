"""Gaps of a class while other ports of the same switch carry trains as fast as they go."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import measures
import tcp
from targets import PACER, PORTS, SENDER_CPU, WIRE, forward_by_pacer, p4_switch, pace

RATE_BPS = 500_000_000
ROUNDS = 5
HOSTS: tcp.Hosts = (
    tcp.Host(3, "left", "02:00:00:00:00:03", "10.0.1.1"),
    tcp.Host(4, "right", "02:00:00:00:00:04", "10.0.2.1"),
)
STARTED_BYTES = 1 << 20
START_S = 10.0
POLL_S = 0.05
LONGEST_S = 86_400

Reading = dict[str, Any]


def _carried_bytes() -> int:
    """What the switch has sent to the second host."""
    return int(Path(f"/sys/class/net/{HOSTS[1].device}/statistics/tx_bytes").read_text())


@contextmanager
def _stream(inside: list[list[str]]) -> Iterator[None]:
    """A TCP stream from the first host to the second."""
    tcp.wait_for_ping(inside[0], HOSTS[1])
    before = _carried_bytes()
    command = [*inside[0], "iperf3", "--client", HOSTS[1].address, "--time", f"{LONGEST_S}"]
    sender = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit_s = time.monotonic() + START_S
        while _carried_bytes() - before < STARTED_BYTES:
            if sender.poll() is not None or time.monotonic() > limit_s:
                raise tcp.TcpError("iperf3 sends nothing")
            time.sleep(POLL_S)
        yield
    finally:
        sender.terminate()
        sender.wait()


def _reading(inside: list[list[str]], seconds: float, *, trains: bool) -> Reading:
    """The gaps of the class, with or without a stream of trains between the other ports."""
    switch = p4_switch(
        "pacing_switch",
        PACER / "pacing_switch",
        "pacer",
        forward_by_pacer,
        functools.partial(tcp.forward, of=HOSTS),
        functools.partial(pace, rate_bps=RATE_BPS),
        ports=(*PORTS, *((host.port, host.device) for host in HOSTS)),
    )
    with switch as started, _stream(inside) if trains else nullcontext():
        carried_bytes, began_s = -_carried_bytes(), time.monotonic()
        with measures.as_instrument():
            report = measures.gaps(WIRE.receiver, RATE_BPS, seconds, SENDER_CPU)
        carried_bytes += _carried_bytes()
        took_s = time.monotonic() - began_s
    ports = {port["port"]: port for port in started.statistics["ports"]}
    left = ports[HOSTS[1].port]["tx_trains"]
    if trains and left == 0:
        raise tcp.TcpError("no train left the switch")
    return {
        "mean_rate_bps": report["mean_rate_bps"],
        "p50_us": report["error_p50_us"],
        "p99_us": report["error_p99_us"],
        "early_us": report["early_max_us"],
        "trains": left,
        "trains_bps": carried_bytes * 8 / took_s,
    }


def compared(pairs: Sequence[tuple[Reading, Reading]]) -> dict[str, Any]:
    """A row of readings without and with trains. Each pair was taken in the same minute."""
    without = [one for one, _ in pairs]
    beside = [with_them for _, with_them in pairs]
    return {
        "rate_bps": RATE_BPS,
        "without_p99_us": median(one["p99_us"] for one in without),
        "beside_p99_us": median(one["p99_us"] for one in beside),
        "ratio": median(with_them["p99_us"] / one["p99_us"] for one, with_them in pairs),
        "mean_rate_bps": median(one["mean_rate_bps"] for one in beside),
        "trains_bps": median(one["trains_bps"] for one in beside),
        "early_us": max(one["early_us"] for one in (*without, *beside)),
        "readings": [{"without": one, "beside": with_them} for one, with_them in pairs],
    }


def trains(seconds: float) -> list[dict[str, Any]]:
    """Readings without and with trains, in turn."""
    with tcp.hosts(HOSTS) as inside:
        try:
            pairs = [
                (
                    _reading(inside, seconds, trains=False),
                    _reading(inside, seconds, trains=True),
                )
                for _ in range(ROUNDS)
            ]
        except tcp.TcpError as error:
            raise SystemExit(f"trains: {error}") from None
    return [compared(pairs)]

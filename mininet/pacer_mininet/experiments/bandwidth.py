"""The measuring switches' bandwidth and burstiness of a run, read before they are overwritten."""

import statistics
from collections.abc import Mapping
from typing import Any

from pacer_mininet.counters import bandwidth_of
from pacer_mininet.experiments.network import WIRE_IN
from pacer_mininet.experiments.scenario import Scenario
from pacer_mininet.rest import RestClient
from pacer_mininet.traffic import (
    BIN_NS,
    MTU_FRAME_BYTES,
    NS_PER_S,
    WINDOW_NS,
    Bandwidth,
    bits_per_second,
    percentile,
    series,
)

READ_BINS_EVERY_S = 25
"""Longest time between two readings of the bins: their ring holds 32.7 s."""


class Measuring:
    """The measuring switches of a run."""

    def __init__(self, scenario: Scenario, rest: RestClient) -> None:
        self.scenario = scenario
        self.switches = ["wan", "far"] if scenario.far else ["wan"]
        self._rest = rest
        self._seen = {switch: Bandwidth() for switch in self.switches}
        self._start_ns = self._unread_from_ns = 0

    def start(self, start_ns: int) -> None:
        """Measure from this time of the switches' clock on."""
        self._start_ns = self._unread_from_ns = start_ns

    def read(self, now_ns: int) -> None:
        """Read the measurements until now."""
        between = {"port": WIRE_IN, "from_ns": self._unread_from_ns, "to_ns": now_ns}
        for switch, seen in self._seen.items():
            if self._has_bins(switch):
                seen.add(bandwidth_of(self._rest.get("switches", switch, "bandwidth", **between)))
            else:
                answer = self._rest.get("switches", switch, "burstiness", **between)
                seen.add(bandwidth_of({"bins": {"start_ns": [], "bytes": []}, **answer}))

    def read_so_far(self, now_ns: int) -> None:
        """Read before the bins' ring wraps; the last second is read again next time."""
        self.read(now_ns)
        # Cells that are a second old do not change any more.
        self._unread_from_ns = now_ns - NS_PER_S

    def _has_bins(self, switch: str) -> bool:
        return self.scenario.bins and switch == "wan"

    def result(self, switch: str) -> dict[str, Any]:
        """Return a measuring switch's view of the run's seconds."""
        scenario = self.scenario
        seen = self._seen[switch].since(self._start_ns)
        first_ns = self._start_ns + scenario.rtt_ns
        bins = series(seen.bin_bytes, first_ns // BIN_NS, scenario.seconds * NS_PER_S // BIN_NS)
        with_bins = self._has_bins(switch)
        length = scenario.seconds * NS_PER_S // WINDOW_NS
        windows, queues, previous = (
            series(counts, first_ns // WINDOW_NS, length)
            for counts in (
                seen.window_bytes,
                seen.window_vb_max_bytes,
                seen.window_previous_max_bytes,
            )
        )
        dynamic = None if with_bins else _known(seen.window_dynamic_max_bytes, first_ns, length)
        return {
            "bytes": sum(windows),
            "packets_1500": sum(windows) // MTU_FRAME_BYTES,
            "bin_max_bps": bits_per_second(max(bins), BIN_NS) if with_bins else None,
            "bin_p99_bps": bits_per_second(percentile(bins, 99), BIN_NS) if with_bins else None,
            "deviation": _deviation(windows[length // 2 :]),
            "deviation_whole": _deviation(windows),
            "abw_mean_bps": bits_per_second(sum(windows), length * WINDOW_NS),
            "abw_max_bps": bits_per_second(max(windows), WINDOW_NS),
            "queue_mean_bytes": sum(queues) // length,
            "queue_max_bytes": max(queues),
            "dynamic_queue_mean_bytes": None if dynamic is None else sum(dynamic) // length,
            "dynamic_queue_max_bytes": None if dynamic is None else max(dynamic),
            "previous_queue_mean_bytes": None if with_bins else sum(previous) // length,
            "previous_queue_max_bytes": None if with_bins else max(previous),
        }

    def series(self, seconds: int) -> dict[str, Any]:
        """Return the bottleneck's bandwidth over time, in the finest steps measured, and queue."""
        seen = self._seen["wan"]
        counts, step_ns = seen.window_bytes, WINDOW_NS
        if self.scenario.bins:
            counts, step_ns = seen.bin_bytes, BIN_NS
        length = seconds * NS_PER_S // step_ns
        windows = self._start_ns // WINDOW_NS, seconds * NS_PER_S // WINDOW_NS
        return {
            "bin_ns": step_ns,
            "bin_bytes": series(counts, self._start_ns // step_ns, length),
            "window_vb_max_bytes": series(seen.window_vb_max_bytes, *windows),
        }


def _known(queues: Mapping[int, int | None], first_ns: int, length: int) -> list[int] | None:
    """Return the queues of `length` windows, empty ones as 0; None where one is not known."""
    first = first_ns // WINDOW_NS
    found = [queues.get(number, 0) for number in range(first, first + length)]
    known = [queue for queue in found if queue is not None]
    return known if len(known) == length else None


def _deviation(values: list[int]) -> float:
    """Return the standard deviation over the mean; 0 where nothing came."""
    mean = sum(values) / max(1, len(values))
    if not mean:
        return 0.0
    return round(statistics.pstdev(values) / mean, 4)

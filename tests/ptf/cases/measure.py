"""Measurements, run only by name: `tests/ptf/run bmv2 measure.HoldInPractice`."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

from ptf import testutils

from harness import NS_PER_S, PacerTest, gap_ns, udp_frame
from p4runtime_client import P4RuntimeError


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, user and system, all threads."""
    # The clock of a process, as clock_getcpuclockid(3) makes it; unlike /proc it goes by the
    # process ids of our own namespace.
    return time.clock_gettime((~pid << 3) | 2)


class HoldInPractice(PacerTest):
    """Measures the target's holding of packets: gap errors and processor time, rate by rate.

    40 packets of 1500 bytes are put into a class at once and timed at the far end. The results are
    the absolute error of each gap, and the rate. The rate's time starts before the first packet is
    sent, because a late first arrival would make the rate look too high. They are printed, and
    written to `hold.json` beside the other results with the machine's load.
    """

    _nonstandard = True

    rates_bps = (1_000_000, 10_000_000, 50_000_000, 100_000_000, 500_000_000)
    packets = 40

    def runTest(self) -> None:
        pid = int(testutils.test_param_get("switch_pid"))
        rows = []
        print()
        for number, rate_bps in enumerate(self.rates_bps, start=1):
            port = 2000 + number
            self.install(self.flow({"dst_port": port}, number), self.paced(number, rate_bps))
            frames = [
                udp_frame(frame_bytes=1500, number=n, dst_port=port) for n in range(self.packets)
            ]
            gap = gap_ns(frames[0], rate_bps)
            errors_us: list[float] = []
            lasted_ns = 0
            used = -cpu_seconds(pid)
            for _ in range(1 if gap > 5e6 else 10):
                began_ns = self.send(1, *frames)
                came = [arrival.received_ns for arrival in self.comes(2, *frames)]
                lasted_ns += came[-1] - began_ns
                errors_us += [
                    (later - earlier - gap) / 1000 for earlier, later in itertools.pairwise(came)
                ]
            used += cpu_seconds(pid)
            absolute = sorted(abs(error) for error in errors_us)
            row = {
                "rate_bps": rate_bps,
                "gap_us": gap / 1000,
                "gap_error_p50_us": absolute[len(absolute) // 2],
                "gap_error_p99_us": absolute[len(absolute) * 99 // 100],
                "gap_error_max_us": absolute[-1],
                "reached_bps": round(
                    len(errors_us) * len(frames[0] + bytes(4)) * 8 * NS_PER_S / lasted_ns
                ),
                "cpu_cores": used * NS_PER_S / lasted_ns,
            }
            rows.append(row)
            print(" ".join(f"{key}={value:.4g}" for key, value in row.items()))
        idle = -cpu_seconds(pid)
        time.sleep(1.0)
        idle += cpu_seconds(pid)
        print(f"idle: cpu_cores={idle:.3g}")
        try:
            drops = self.switch.counter("PacerEgress.hold_drops", 0).packets
        except (KeyError, P4RuntimeError):
            drops = 0  # only the flavour that holds by recirculation has this counter
        result = {
            "target": self.target,
            "rows": rows,
            "idle_cpu_cores": idle,
            "hold_drops": drops,
            "load_average": os.getloadavg()[0],
        }
        print(f"load average: {os.getloadavg()[0]:.2f}")
        beside = Path(testutils.test_param_get("results"))
        beside.with_name("hold.json").write_text(json.dumps(result, indent=1) + "\n")

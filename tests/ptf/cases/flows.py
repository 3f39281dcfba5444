"""TCP flows in passing: pace by window and round-trip time, and receive windows.

The exact departures are tests/virtual's; here the same program runs on a switch, and the
assertions hold however slow the machine is: no packet is early, and all fields are right.
"""

from __future__ import annotations

import time

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from harness import FCS_BYTES, mac_of
from p4runtime_client import P4RuntimeError
from pacing import PacingTest

CLASS = 70
PORT = 5001
SYN_OPTIONS = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)]
STAMP = [("NOP", None), ("NOP", None), ("Timestamp", (1, 1))]
INITIAL_WINDOW_BYTES = 14_600


def segment(
    port: int, flags: str, seq: int, ack: int = 0, size: int = 0, window: int = 500
) -> bytes:
    """A segment from the station behind a port, 1 being the client and 2 the server."""
    other = 3 - port
    ports = (40_000, PORT) if port == 1 else (PORT, 40_000)
    frame = Ether(src=mac_of(port), dst=mac_of(other)) / IP(
        src=f"10.0.0.{port}", dst=f"10.0.0.{other}"
    )
    frame /= TCP(
        sport=ports[0],
        dport=ports[1],
        flags=flags,
        seq=seq,
        ack=ack,
        window=window,
        options=SYN_OPTIONS if "S" in flags else STAMP,
    )
    return bytes(frame / Raw(bytes(size)))


def data(begin: int, end: int) -> list[bytes]:
    """Segments of 1,000 bytes from the client, numbered from 0: from `begin` to before `end`."""
    return [segment(1, "A", 101 + 1000 * n, 901, 1000) for n in range(begin, end)]


class FlowTest(PacingTest):
    """The base of the tests of flows."""

    def shake_hands(self, seconds: float) -> None:
        """Send a SYN, and after this time the answer; both pass unchanged."""
        syn, answer = segment(1, "S", 100), segment(2, "SA", 900, 101, window=65_535)
        self.send(1, syn)
        self.comes(2, syn)
        time.sleep(seconds)  # the stimulus: a round trip of at least so long
        self.send(2, answer)
        self.comes(1, answer)

    def pass_first_flight(self) -> None:
        """Segments 0 to 13, as many as pass unspaced behind a SYN."""
        first = data(0, 14)
        self.send(1, *first)
        self.comes(2, *first)


FLOW_SETTINGS = {
    "inverse_headroom_q16": 1 << 16,
    "time_per_byte_q24": 0,
    "limit_bytes": 1 << 24,
    "allowance_ns": 0,
    "ecn_threshold_bytes": 0,
    "bytes_per_ns_q24": 0,
    "window_margin_bytes": 0,
}


class FlowsHaveTheirWindowByRoundTripTime(FlowTest):
    """Mode pspd: from the first segment on; the window begins as ten segments."""

    rtt_seconds = 0.2

    def runTest(self) -> None:
        settings = {"limit_bytes": 1 << 24, "allowance_ns": 0, "ecn_threshold_bytes": 0}
        self.install(self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_pspd", settings))
        self.shake_hands(self.rtt_seconds)
        frames = data(0, 18)
        began_ns = self.send(1, *frames)
        came = self.comes(2, *frames)
        due_ns = [0.0]
        for end in range(1, 18):
            gap_ns = self.rtt_seconds * 1e9 * 1000 / max(INITIAL_WINDOW_BYTES, 1000 * end)
            due_ns.append(due_ns[-1] + gap_ns * (1 - 300e-6))
        self.never_early(came, began_ns, due_ns)


class FlowsCountToTheQueueOfTheirClass(FlowTest):
    """The backlog of a class is that of the queues of its flows.

    Thirteen of fourteen segments wait 55 ms each. A machine that stalls for long reads the backlog
    when all have left, so there are three attempts.
    """

    rtt_seconds = 0.8

    def runTest(self) -> None:
        if self.on_bmv2:
            self.skipTest("bmv2 has no traffic manager")
        settings = {"limit_bytes": 1 << 24, "allowance_ns": 0, "ecn_threshold_bytes": 0}
        self.install(self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_pspd", settings))
        self.shake_hands(self.rtt_seconds)
        frames = data(0, 14)
        for _ in range(3):
            before = self.switch.counter("PacerIngress.class_accepted", CLASS).packets
            self.send(1, *frames)
            self.until_accepted(CLASS, before + len(frames))
            found = self.traffic_statistics(CLASS)["classes"][CLASS]
            self.comes(2, *frames)
            held = found["held_packets"]
            self.assertEqual(found["backlog_bytes"], held * (len(frames[0]) + FCS_BYTES))
            if held > 0:
                break
        else:
            self.fail("nothing is held at the third attempt")
        found = self.traffic_statistics(CLASS)["classes"][CLASS]
        self.assertEqual((found["held_packets"], found["backlog_bytes"]), (0, 0))


class FlowsLeaveInClusters(FlowTest):
    """Mode clustered: as in mode pspd, at ticks of a millisecond."""

    rtt_seconds = 0.02

    def runTest(self) -> None:
        settings = {
            "release_below_ns": 1,
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 0,
        }
        self.install(
            self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_clustered", settings)
        )
        self.shake_hands(self.rtt_seconds)
        frames = data(0, 14)
        began_ns = self.send(1, *frames)
        came = self.comes(2, *frames)
        # RTT / 14.6 is more than a tick. The first tick may be at once, with a tick's tokens.
        gap_ns = self.rtt_seconds * 1e9 * 1000 / INITIAL_WINDOW_BYTES * (1 - 300e-6)
        due_ns = [0.0, *(k * gap_ns - 1e6 for k in range(1, 14))]
        self.never_early(came, began_ns, due_ns)


class FlowsShareARate(FlowTest):
    """Mode shared: a flow has half of the rate once another one has begun."""

    rate_bps = 8_000_000

    def runTest(self) -> None:
        settings = {
            "time_per_byte_q24": (8_000_000_000 << 24) // self.rate_bps,
            "bytes_per_ns_q24": (self.rate_bps << 24) // 8_000_000_000,
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 0,
            "clamps_windows": 0,
            "window_margin_bytes": 0,
        }
        self.install(
            self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_shared", settings)
        )
        self.shake_hands(0)
        opens = Ether(segment(1, "S", 100))
        opens[TCP].sport = 40_001
        del opens[TCP].chksum
        frames = data(0, 14)
        began_ns = self.send(1, bytes(opens), *frames)
        came = self.comes(2, bytes(opens), *frames)
        gap_ns = 2 * (len(frames[0]) + 4) * 8e9 / self.rate_bps
        due_ns = [0.0, *(k * gap_ns - 1 for k in range(14))]
        self.never_early(came, began_ns, due_ns)


class FlowsHaveTheirOwnPace(FlowTest):
    """Mode dynamic: segments after the first flight leave at window / round-trip time."""

    rtt_seconds = 0.2

    def runTest(self) -> None:
        self.install(
            self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_dynamic", FLOW_SETTINGS)
        )
        self.shake_hands(self.rtt_seconds)
        self.pass_first_flight()
        frames = data(14, 24)
        began_ns = self.send(1, *frames)
        came = self.comes(2, *frames)
        due_ns = [0.0]
        for window_bytes in range(15_000, 24_000, 1000):
            gap_ns = self.rtt_seconds * 1e9 * 1000 / window_bytes
            due_ns.append(due_ns[-1] + gap_ns * (1 - 300e-6))
        self.never_early(came, began_ns, due_ns)
        if self.on_bmv2:
            with self.assertRaises(P4RuntimeError):
                self.switch.register("PacerIngress.class_rtt_ns", CLASS)
            return
        rtt_ns = self.switch.register("PacerIngress.class_rtt_ns", CLASS)
        self.assertGreaterEqual(rtt_ns, self.rtt_seconds * 1e9)
        in_flight_bytes = self.switch.register("PacerIngress.class_in_flight_bytes", CLASS)
        self.assertEqual(in_flight_bytes, 24_000)


class SlowStartEndsWithALoss(FlowTest):
    """Mode slow-start: spaced until something is sent again, and unpaced from then on.

    At 800 ms a segment takes more than 50 ms, so that ten of them, were they spaced, would take
    half a second; unspaced they wait for the one before them only.
    """

    rtt_seconds = 0.8

    def runTest(self) -> None:
        settings = {**FLOW_SETTINGS, "release_below_ns": 1_000_000}
        self.install(
            self.flow({"dst_port": PORT}, CLASS), self.mode(CLASS, "paced_slow_start", settings)
        )
        self.shake_hands(self.rtt_seconds)
        self.pass_first_flight()
        spaced = data(14, 16)
        began_ns = self.send(1, *spaced)
        came = self.comes(2, *spaced)
        gap_ns = self.rtt_seconds * 1e9 * 1000 / 15_000 * (1 - 300e-6)
        self.never_early(came, began_ns, [0.0, gap_ns])
        # The class's clock is ahead by a segment's time; the retransmission releases the flow.
        again = segment(1, "A", 101, 901, 1000)
        free = data(16, 26)
        for _ in range(3):
            began_ns = self.send(1, again, *free)
            came = self.comes(2, again, *free)
            took_ns = came[-1].received_ns - began_ns
            if took_ns < 5 * gap_ns:
                return
        self.fail(f"{took_ns} ns for packets of a flow that is released at the third attempt")


class WindowsAreLowered(FlowTest):
    """The advertised window is lowered to margin and rate times RTT, and never raised.

    The rate is so low that its part is a byte in 17 ms: it does not show in units of 128.
    """

    margin_bytes = 20_000

    def runTest(self) -> None:
        settings = {
            "time_per_byte_q24": 1 << 24,
            "limit_bytes": 1 << 24,
            "allowance_ns": 0,
            "ecn_threshold_bytes": 0,
            "bytes_per_ns_q24": 1,
            "window_margin_bytes": self.margin_bytes,
        }
        self.install(
            self.flow({"dst_port": PORT}, CLASS),
            self.mode(CLASS, "paced_static_controlled", settings),
        )
        self.shake_hands(0)
        data = segment(1, "A", 101, 901, 1000)
        self.send(1, data)
        self.comes(2, data)
        most = -(-self.margin_bytes // 128)
        for window in (65_535, most + 1, most, 1, 0):
            self.send(2, segment(2, "A", 901, 1101, window=window))
            # Scapy computes the right checksum for the window that should stand there.
            self.comes(1, segment(2, "A", 901, 1101, window=min(window, most)))
        self.assertEqual(self.switch.counter("PacerIngress.windows_lowered", 0).packets, 2)

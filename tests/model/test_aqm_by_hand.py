"""The models of active queue management against values computed by hand from RFCs and papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import sqrt
from pathlib import Path

import pytest

from aqm_model import (
    Codel,
    CodelConfig,
    DualPi2,
    DualPi2Config,
    FqCodel,
    FqCodelConfig,
    Item,
    Pie,
    PieConfig,
    Red,
    RedConfig,
    size,
)
from make_vectors import Random

MS = 1_000_000
ECT_1 = 1


def ignore(item: Item) -> None:
    """A drop that nobody asks for."""


def test_pie_updates_its_probability() -> None:
    """RFC 8033, section 4.2: 0.125 * (30 ms - 15 ms) + 1.25 * (30 ms - 0), below 1e-6 over 2048."""
    pie = Pie(PieConfig(15 * MS, ecn=False), Random(1), qdelay=30 * MS)
    pie.calculate_drop_prob()
    assert pie.drop_prob == pytest.approx(0.039375 / 2048)
    assert (pie.qdelay_old, pie.burst_allowance) == (30 * MS, 135 * MS)


@pytest.mark.parametrize(
    ("drop_prob", "step"),
    [(9e-6, 512), (9e-5, 128), (9e-4, 32), (9e-3, 8), (9e-2, 2)],
)
def test_pie_scales_its_steps(drop_prob: float, step: int) -> None:
    """The table of section 4.2, for the same delays."""
    pie = Pie(PieConfig(15 * MS, ecn=False), Random(1), drop_prob=drop_prob, qdelay=30 * MS)
    pie.calculate_drop_prob()
    assert pie.drop_prob == pytest.approx(drop_prob + 0.039375 / step)


def test_pie_caps_a_step_and_decays() -> None:
    """Section 5.5: at most 0.02 from 0.1 on. Section 4.2: times 0.98 while there is no delay."""
    pie = Pie(PieConfig(15 * MS, ecn=False), Random(1), drop_prob=0.5, qdelay=30 * MS)
    pie.calculate_drop_prob()
    assert pie.drop_prob == pytest.approx(0.52)
    pie.qdelay = pie.qdelay_old = 0
    pie.calculate_drop_prob()
    assert pie.drop_prob == pytest.approx((0.52 - 0.125 * 0.015) * 0.98)


def test_dualpi2_updates_its_probability() -> None:
    """RFC 9332, appendix A.1: alpha = 0.1 * 15 ms / (100 ms)^2 = 0.15, beta = 0.3 / 100 ms = 3.

    In 1/s. 25 ms after 15 ms, target 15 ms: 0.15 * 10 ms + 3 * 10 ms = 0.0315.
    """
    dual = DualPi2(DualPi2Config(15 * MS), p=0.1, prevq=15 * MS)
    dual.cq.append(Item(0, 0, 1_518))
    dual.update(25 * MS)
    assert dual.p == pytest.approx(0.1 + 0.0315)
    assert dual.prevq == 25 * MS


def low_latency(p: float, packets: int) -> tuple[int, int]:
    """Drops and marks of packets of low latency that have not waited."""
    # The first update comes later than all of them.
    dual = DualPi2(DualPi2Config(15 * MS), p=p, update_at=1 * MS)
    queue: list[Item] = []
    dropped: list[Item] = []
    for number in range(packets):
        dual.put(Item(number, 0, 1_518, ECT_1), queue, ignore)
    sent = []
    while (item := dual.deque(queue, 0, dropped.append)) is not None:
        sent.append(item)
    assert len(sent) + len(dropped) == packets
    return len(dropped), sum(item.marked for item in sent)


@pytest.mark.parametrize(("p", "share"), [(0.5, 0.25), (0.7, 0.49), (0.9, 0.81)])
def test_dualpi2_in_overload_drops_as_classic_traffic(p: float, share: float) -> None:
    """RFC 9332, appendix A.1: p'^2 of the packets of low latency; the rest is marked."""
    dropped, marked = low_latency(p, 10_000)
    assert dropped == pytest.approx(share * 10_000, abs=2)
    assert marked == pytest.approx(10_000 - dropped, abs=2)


def test_dualpi2_marks_twice_the_base_probability() -> None:
    """The coupling factor k is 2."""
    dropped, marked = low_latency(0.2, 10_000)
    assert dropped == 0
    assert marked == pytest.approx(4_000, abs=2)


@pytest.mark.parametrize(
    ("waited_ns", "share"),
    [(800_000, 0.0), (900_000, 0.25), (1_000_000, 0.5), (1_200_000, 1.0), (5 * MS, 1.0)],
)
def test_dualpi2_ramp(waited_ns: int, share: float) -> None:
    """From 0 at 0.8 ms to 1 at 1.2 ms; the last packet leaves no other behind and is not marked."""
    dual = DualPi2(DualPi2Config(15 * MS), update_at=100 * MS)
    queue: list[Item] = []
    for number in range(1_001):
        dual.put(Item(number, 0, 64, ECT_1), queue, ignore)
    sent = [dual.deque(queue, waited_ns, ignore) for _ in range(1_001)]
    marked = [item is not None and item.marked for item in sent]
    assert sum(marked) == pytest.approx(share * 1_000, abs=1)
    assert not marked[-1]


def test_dualpi2_shares_are_those_of_what_is_sent() -> None:
    """9 to 1 of bytes, though a fifth of the classic packets is dropped."""
    dual = DualPi2(DualPi2Config(15 * MS), p=0.45, update_at=1 * MS)
    queue: list[Item] = []
    for number in range(4_000):
        dual.put(Item(number, 0, 1_000, ECT_1 if number % 2 else 0), queue, ignore)
    sent = [dual.deque(queue, 0, ignore) for _ in range(1_000)]
    from_low_latency = sum(item is not None and item.ecn == ECT_1 for item in sent)
    assert from_low_latency == pytest.approx(900, abs=2)


def test_codel_drops_ever_sooner() -> None:
    """RFC 8289, section 5: drop n comes INTERVAL / sqrt(n) after drop n - 1.

    The queue is always full, and a packet leaves in each 10 us. The first drop is an INTERVAL after
    the first packet above the target.
    """
    interval_ns, step_ns = 100 * MS, 10_000
    codel = Codel(CodelConfig(5 * MS, interval_ns, ecn=False))
    drops: list[int] = []
    queue: list[Item] = []
    dropped: list[Item] = []
    for now_ns in range(0, 1_000 * MS, step_ns):
        while len(queue) < 5:
            queue.append(Item(0, now_ns - 10 * MS, 1_518))
        codel.deque(queue, now_ns, dropped.append)
        drops.extend(now_ns for _ in dropped[len(drops) :])
    assert drops[0] == interval_ns
    due = float(drops[0])
    assert len(drops) > 20
    for number, at_ns in enumerate(drops[1:], 1):
        due += interval_ns / sqrt(number)
        assert due <= at_ns + number
        assert at_ns < due + step_ns


COUNTS = range(1, 10_001)
LINUX_ONE_Q16 = 0xFFFF
LINUX_TIME_SHIFT = 10
"""Linux's CoDel counts time in units of 1,024 ns."""


def codel_steps_ns(interval_ns: int) -> list[int]:
    """The times from drop to drop for each of the counts."""
    config = CodelConfig(5 * MS, interval_ns, ecn=False)
    return [Codel(config, count=count).control_law(0) for count in COUNTS]


@pytest.mark.parametrize("interval_ns", [1, 999_983, 100 * MS, 10_000 * MS])
def test_codel_control_law_is_exact(interval_ns: int) -> None:
    """RFC 8289, section 5: INTERVAL / sqrt(count), rounded down to a nanosecond."""
    for count, step_ns in zip(COUNTS, codel_steps_ns(interval_ns), strict=True):
        assert step_ns**2 * count <= interval_ns**2 < (step_ns + 1) ** 2 * count


def linux_inverse_q16(before_q16: int, count: int) -> int:
    """1 / sqrt(count) as Linux has it, in 2^-16, after the value of another count.

    One Newton step, x / 2 * (3 - count * x^2), rounded down.
    """
    return before_q16 * ((3 << 32) - count * before_q16**2) >> 33


def linux_inverses_q16() -> list[int]:
    """1 / sqrt(count) of Linux in a dropping state, count by count."""
    return list(accumulate(COUNTS[1:], linux_inverse_q16, initial=LINUX_ONE_Q16))


def percent(of: Sequence[int], beside: Sequence[int]) -> list[float]:
    """How far values are from others."""
    return [100 * (one / other - 1) for one, other in zip(of, beside, strict=True)]


def test_codel_beside_the_fixed_point_of_linux() -> None:
    """The table of docs/queues.md, and the bounds below it."""
    interval_ns = 100 * MS
    interval = interval_ns >> LINUX_TIME_SHIFT
    inverses = linux_inverses_q16()
    linux = [interval * inverse >> 16 << LINUX_TIME_SHIFT for inverse in inverses]
    here = codel_steps_ns(interval_ns)
    single = percent(linux, here)
    summed = percent(list(accumulate(linux)), list(accumulate(here)))
    docs = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")
    for at in (1, 2, 3, 5, 10, 100, 1_000, 10_000):
        ours, theirs = here[at - 1], linux[at - 1]
        row = f"| {at:,} | {ours:,} | {theirs:,} | {single[at - 1]:.3f} | {summed[at - 1]:.3f} |"
        assert row in docs.splitlines()
    assert max(single) < 0
    assert min(single[2:]) > -2.6
    assert min(single[6:]) > -0.74
    assert min(single[11:]) > -0.27
    # CoDel begins to drop again, with a half or a tenth of the count.
    for count, short in ((50, -11.6), (10, -54.2)):
        again = linux_inverse_q16(inverses[100 - 1], count)
        assert 100 * (again * sqrt(count) / (1 << 16) - 1) == pytest.approx(short, abs=0.05)


def test_codel_leaves_a_frame() -> None:
    """RFC 8289, section 5: no drops with at most a full-sized frame (maxpacket) behind the head."""
    codel = Codel(CodelConfig(5 * MS, 100 * MS, ecn=False))
    dropped: list[Item] = []
    for now_ns in range(0, 1_000 * MS, MS):
        queue = [Item(0, now_ns - 50 * MS, 1_518), Item(1, now_ns - 50 * MS, 1_518)]
        codel.deque(queue, now_ns, dropped.append)
    assert dropped == []


def test_fq_codel_counts_all_flows() -> None:
    """RFC 8289, section 4.4: a flow of single packets is congested while others fill the link.

    The entering drop takes its only packet; the state is left when the flow has nothing to send.
    """
    config = FqCodelConfig(CodelConfig(5 * MS, 100 * MS, ecn=False), 2, 1_518, 10_240)
    fq = FqCodel(config, 1 << 30, None)
    queue: list[Item] = []
    dropped: list[Item] = []
    for number in range(100):
        fq.put(Item(number, 0, 1_518), queue, ignore)
    flow = Item(100, 0, 1_518, flow=1)
    fq.put(flow, queue, ignore)
    codel = fq.codels[1]
    codel.first_above_time = 1
    while flow not in dropped:
        assert fq.deque(queue, 200 * MS, dropped.append) is not flow
    assert codel.dropping
    assert (codel.count, codel.drop_next) == (1, 300 * MS)
    while codel.dropping:
        fq.deque(queue, 201 * MS, dropped.append)
    assert codel.first_above_time == 0


def test_fq_codel_drops_from_the_longest_flow() -> None:
    """RFC 8290, section 4.1: half of its packets, at most 64, from the head."""
    config = FqCodelConfig(CodelConfig(5 * MS, 100 * MS, ecn=False), 2, 1_518, 200)
    fq = FqCodel(config, 1 << 30, None)
    queue: list[Item] = []
    dropped: list[Item] = []
    for number in range(30):
        fq.put(Item(number, 0, 100, flow=1), queue, dropped.append)
    for number in range(30, 201):
        fq.put(Item(number, 0, 100, flow=0), queue, dropped.append)
    assert [item.number for item in dropped] == list(range(30, 94))
    fq.depth_bytes = 9_000
    fq.put(Item(201, 0, 100, flow=1), queue, dropped.append)
    # Of 107 and 31 packets 54 go: 53 and 31 are 8,400 bytes.
    assert [item.number for item in dropped[64:]] == list(range(94, 148))
    assert size(queue) == 8_400


@pytest.mark.parametrize("weight_shift", [2, 9])
def test_red_is_that_of_floating_point(weight_shift: int) -> None:
    """Floyd and Jacobson's formulas in floats, with the same random numbers."""
    minth, maxth, maxp = 5_000, 15_000, 0.1
    profile = (minth, maxth, 100_000)
    red = Red(RedConfig((profile, profile, profile), weight_shift, 12_000, ecn=False), Random(7))
    random, load = Random(7), Random(3)
    avg, count, idle_since_ns = 0.0, -1, 0
    weight = 2.0**-weight_shift
    queue: list[Item] = []
    now_ns = verdicts = 0
    for number in range(9_000):
        now_ns += load.below(15_000 if number % 3_000 < 2_000 else 40_000)
        item = Item(number, now_ns, 100 + load.below(1_400))
        if queue:
            avg = (1 - weight) * avg + weight * size(queue)
        else:
            avg *= (1 - weight) ** ((now_ns - idle_since_ns) // 12_000)
        expected = "keep"
        if avg < minth:
            count = -1
        elif avg >= maxth:
            count, expected = 0, "drop"
        else:
            count += 1
            p_b = maxp * (avg - minth) / (maxth - minth)
            p_a = p_b / (1 - count * p_b) if count * p_b < 1 else 1.0
            if random.below(1 << 32) / (1 << 32) < p_a:
                count, expected = 0, "drop"
        assert red.arrive(item, queue, now_ns) == expected, number
        assert red.avg / (1 << 32) == pytest.approx(avg, abs=1e-3)
        verdicts += expected == "drop"
        if expected == "keep":
            queue.append(item)
        while queue and queue[0].at_ns + 12_000 * min(len(queue), 12) <= now_ns:
            red.deque(queue, now_ns, ignore)
            idle_since_ns = now_ns
    assert 100 < verdicts < 8_000

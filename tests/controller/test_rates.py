"""Rates: reading, refusing, printing, converting."""

import itertools
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pacer_controller import rates

in_range = st.integers(rates.MIN_RATE_BPS, rates.MAX_RATE_BPS)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("500Mbit", 500_000_000),
        ("500mbit", 500_000_000),
        ("500 Mbit", 500_000_000),
        ("500Mbit/s", 500_000_000),
        ("62.5MB/s", 500_000_000),
        ("8kbit", 8_000),
        ("1kB/s", 8_000),
        ("0.1Tbit", 100_000_000_000),
        ("100Gbit", 100_000_000_000),
        ("1Mibit", 1_048_576),
        ("1MiB/s", 8_388_608),
        ("9.6kbit", 9_600),
        ("12345678", 12_345_678),
        ("12345678bit", 12_345_678),
        (8_000, 8_000),
        (100_000_000_000, 100_000_000_000),
    ],
)
def test_accepted(text: object, bps: int) -> None:
    assert rates.parse_rate(text) == bps


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "fast", "0", "-1", "+5Mbit", "1e6", "0x1F40", "1_000_000", "1,000kbit"),
        *("500Mbps", "500mbps", "500Mb/s", "500Mb", "500 MB", "500Mbyte", "500  Mbit", " 8kbit"),
        *("8kbit ", "8kbit\n", "7999bit", "7.999kbit", "100.000001Gbit", "1Tbit", "/s", "5/s"),
        *("8.0005kbit", "Infinity", "nan", "\u0665\u0660\u0660Mbit", "\uff15\uff10\uff10Mbit"),
        *("500M\u0432it", "1" * 5000, "0.000000001Tbit", ".5Mbit", "5.Mbit", "5.5.5Mbit", "\0"),
        *(0, -1, 7_999, 100_000_000_001, 10**4000, 5e8, float("nan"), float("inf"), True, False),
        *(None, [], {}, [500], {"rate": 5}, b"500Mbit"),
    ],
)
def test_refused(value: object) -> None:
    with pytest.raises(rates.RateError) as caught:
        rates.parse_rate(value)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 250
    assert "500Mbit" in caught.value.expected


def test_ambiguous_unit_is_explained() -> None:
    with pytest.raises(rates.RateError, match="write 500Mbit for bits, or 500MB/s for bytes"):
        rates.parse_rate("500Mbps")


@given(in_range)
def test_printing_loses_nothing(bps: int) -> None:
    assert rates.parse_rate(rates.format_rate(bps)) == bps
    assert rates.parse_rate(str(bps)) == bps
    assert rates.parse_rate(bps) == bps


@given(st.one_of(st.text(), st.integers(), st.floats(), st.from_regex(rates.RATE_PATTERN)))
def test_any_value_is_read_or_refused(value: Any) -> None:
    try:
        bps = rates.parse_rate(value)
    except rates.RateError:
        return
    assert rates.MIN_RATE_BPS <= bps <= rates.MAX_RATE_BPS
    # A value that the published pattern does not allow is not accepted.
    assert isinstance(value, int) or re.search(rates.RATE_PATTERN, value)


@given(in_range)
@example(rates.MIN_RATE_BPS)
@example(rates.MAX_RATE_BPS)
def test_time_per_byte_is_the_nearest(bps: int) -> None:
    exact = Fraction(8_000_000_000 << 24, bps)
    per_byte = rates.time_per_byte_q24(bps)
    assert -Fraction(1, 2) < per_byte - exact <= Fraction(1, 2)
    # The pacing contract's bound on rounding.
    assert abs(per_byte / exact - 1) * 1_000_000 < 10


def test_conversions() -> None:
    assert rates.time_per_byte_q24(500_000_000) == 16 << 24
    assert rates.time_per_byte_q24(8_000) == 1_000_000 << 24
    assert rates.allowance_ns(500_000_000, 16_384) == 16_384 * 16
    # At least a frame; whole frames with their gaps.
    assert rates.allowance_ns(500_000_000, 1) == 1518 * 16
    assert rates.allowance_ns(500_000_000, 4_000, gap_bytes=100) == 2 * (1518 + 8 + 100) * 16
    assert rates.bytes_per_ns_q24(500_000_000) == 1 << 20


@pytest.mark.parametrize("rate_bps", [8_000, 40_000_000, 100_000_000, 500_000_000, 596_000_000])
def test_a_virtual_bottleneck_keeps_up_with_packets_spaced_at_its_rate(rate_bps: int) -> None:
    """However many come: the queue is never longer than the one that has just arrived."""
    frame_bytes = rates.MTU_FRAME_BYTES
    times_ns = [n * frame_bytes * 8 * 10**9 // rate_bps for n in range(20_000)]
    queue_q24 = longest_q24 = 0
    for before_ns, now_ns in itertools.pairwise(times_ns):
        drained_q24 = (now_ns - before_ns) * rates.draining_bytes_per_ns_q24(rate_bps)
        queue_q24 = max(0, queue_q24 - drained_q24) + (frame_bytes << 24)
        longest_q24 = max(longest_q24, queue_q24)
    assert longest_q24 >> 24 == frame_bytes
    assert rates.bytes_per_second(500_000_000) == 62_500_000

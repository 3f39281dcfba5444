"""Rates: the one module that reads, checks, prints and converts them.

A rate is a whole number of bits per second, 8 kbit/s to 100 Gbit/s. It is written as

- an integer: bits per second;
- a string of a decimal number and a unit, with at most one space between them:
  `bit kbit Mbit Gbit Tbit` (powers of 1000, as in tc), `Kibit Mibit Gibit Tibit` (powers of
  1024), each optionally followed by `/s`; upper and lower case are the same for these;
- bytes per second as `B/s kB/s MB/s GB/s` (1000) and `KiB/s MiB/s GiB/s` (1024), with a capital B;
- a string of digits alone: bits per second, as in tc.

Not taken: `Mbps`, `Mb/s` and `mbps`, which mean bits to most people and bytes to tc; signs,
exponents, thousands separators, digits other than 0 to 9; numbers that are no whole number of
bits per second. All arithmetic is exact.
"""

import math
import re

from pacer_controller.problems import shorten

MIN_RATE_BPS = 8_000
MAX_RATE_BPS = 100_000_000_000

FRACTION_BITS = 24
"""Times below a nanosecond are kept in units of 2^-24 ns."""

MTU_FRAME_BYTES = 1518
"""Largest untagged Ethernet frame with FCS; its time is the burst allowance `exact`."""
AUTO_ALLOWANCE_BYTES = 16 * 1024
"""Bytes whose time is the burst allowance `auto`: a queue that a path takes without loss."""
PREAMBLE_BYTES = 8
SEGMENT_PAYLOAD_BYTES = 1448
"""TCP payload of a full frame, with the time stamp option."""

EXPECTED = (
    'a rate from 8kbit to 100Gbit, such as "500Mbit", "62.5MB/s", "8kbit", or an integer in bit/s'
)

RATE_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})? ?([A-Za-z]{1,5}(/s)?)?$"

_RATE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,12}))? ?([A-Za-z]{0,5}(?:/s)?)", re.ASCII)

_BIT_UNITS = {
    "": 1,
    "bit": 1,
    "kbit": 10**3,
    "mbit": 10**6,
    "gbit": 10**9,
    "tbit": 10**12,
    "kibit": 2**10,
    "mibit": 2**20,
    "gibit": 2**30,
    "tibit": 2**40,
}

_BYTE_UNITS = {
    "B/s": 8,
    "kB/s": 8 * 10**3,
    "KB/s": 8 * 10**3,
    "MB/s": 8 * 10**6,
    "GB/s": 8 * 10**9,
    "KiB/s": 8 * 2**10,
    "MiB/s": 8 * 2**20,
    "GiB/s": 8 * 2**30,
}

_AMBIGUOUS = re.compile(r"([kmgt]?)(bps|b/s|b)", re.IGNORECASE | re.ASCII)


class RateError(ValueError):
    """A rate that cannot be used; the text gives the reason, `expected` the expected form."""

    expected = EXPECTED


def parse_rate(value: object) -> int:
    """Return the rate in bits per second.

    Raises:
        RateError: no rate, or outside MIN_RATE_BPS..MAX_RATE_BPS.

    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        kind = _JSON_KIND.get(type(value), "value")
        if isinstance(value, float) and not math.isfinite(value):
            kind = "number that is not finite"
        raise RateError(f"a rate is a string or an integer, not a {kind}")
    number, divisor = (value, 1) if isinstance(value, int) else _parse_text(value)
    rate_bps, rest = divmod(number, divisor)
    if rest:
        raise RateError(f"{_quote(value)} is not a whole number of bits per second")
    if rate_bps < MIN_RATE_BPS:
        raise RateError(f"{_quote(value)} is below the lowest rate, 8kbit")
    if rate_bps > MAX_RATE_BPS:
        raise RateError(f"{_quote(value)} is above the highest rate, 100Gbit")
    return rate_bps


_JSON_KIND = {
    bool: "boolean",
    float: "number with a fraction or exponent",
    type(None): "null",
    list: "array",
    dict: "object",
}


def _quote(value: object) -> str:
    """Print a given value, shortened."""
    # An integer of thousands of digits cannot be printed cheaply; its size says enough.
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return shorten(str(value) if isinstance(value, int) else ascii(value))


def _parse_text(text: str) -> tuple[int, int]:
    """Read number and unit; return the value, exact and unchecked, as a number and its divisor."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise RateError(f"{_quote(text)} is not a rate")
    whole, decimals, unit = found.group(1), found.group(2) or "", found.group(3)
    number, divisor = int(whole + decimals), 10 ** len(decimals)
    if unit in _BYTE_UNITS:
        return number * _BYTE_UNITS[unit], divisor
    bits = unit.removesuffix("/s").lower() if unit != "/s" else unit
    if bits in _BIT_UNITS:
        return number * _BIT_UNITS[bits], divisor
    ambiguous = _AMBIGUOUS.fullmatch(unit)
    if ambiguous is not None:
        prefix = ambiguous.group(1)
        shown = whole + (f".{decimals}" if decimals else "")
        raise RateError(
            f"unit {unit!r} may mean bits or bytes: write {shown}{prefix}bit for bits, "
            f"or {shown}{prefix.upper()}B/s for bytes per second"
        )
    raise RateError(f"{_quote(text)} has an unknown unit {unit!r}")


def format_rate(rate_bps: int) -> str:
    """Print a rate with the largest unit that needs at most three decimals, exactly.

    `parse_rate(format_rate(r)) == r` for every rate in range.
    """
    for unit, scale in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3)):
        thousandths, rest = divmod(rate_bps * 1000, scale)
        if rate_bps >= scale and rest == 0:
            whole, decimals = divmod(thousandths, 1000)
            fraction = f".{decimals:03d}".rstrip("0") if decimals else ""
            return f"{whole}{fraction}{unit}"
    return f"{rate_bps}bit"


def time_per_byte_q24(rate_bps: int) -> int:
    """Time of one byte in 2^-24 ns, to nearest, half up (the pacing contract's rounding)."""
    return ((8_000_000_000 << FRACTION_BITS) + rate_bps // 2) // rate_bps


def allowance_ns(rate_bps: int | None, taken_bytes: int, gap_bytes: int | None = None) -> int:
    """Return a burst allowance: the time that a class takes for some bytes, in whole ns.

    Args:
        rate_bps: the rate; None: a flow's pace is not known beforehand, and 100 us are returned.
        taken_bytes: the bytes; less than an MTU count as one.
        gap_bytes: the gap of mode `ipg`; the time is then that of whole MTUs, each with its gap.

    """
    if rate_bps is None:
        return 100_000
    taken_bytes = max(taken_bytes, MTU_FRAME_BYTES)
    if gap_bytes is not None:
        taken_bytes = (
            taken_bytes // MTU_FRAME_BYTES * (MTU_FRAME_BYTES + PREAMBLE_BYTES + gap_bytes)
        )
    return (taken_bytes * time_per_byte_q24(rate_bps)) >> FRACTION_BITS


def bytes_per_ns_q24(rate_bps: int) -> int:
    """Rate in 2^-24 bytes per nanosecond, to nearest, half up."""
    return ((rate_bps << FRACTION_BITS) + 4_000_000_000) // 8_000_000_000


def draining_bytes_per_ns_q24(rate_bps: int) -> int:
    """Rate at which a virtual bottleneck drains, in 2^-24 bytes per nanosecond, rounded up.

    If it drained a little too slowly, packets that are spaced at exactly its rate would show a
    queue that grows for as long as the flow lasts.
    """
    return -(-(rate_bps << FRACTION_BITS) // 8_000_000_000)


def payload_bytes_per_ns_q24(rate_bps: int) -> int:
    """Return the payload rate of full segments at a rate, in 2^-24 bytes of TCP payload per ns."""
    return bytes_per_ns_q24(rate_bps) * SEGMENT_PAYLOAD_BYTES // MTU_FRAME_BYTES


def inverse_headroom_q16(percent: int) -> int:
    """Return 100 / percent in 2^-16, to nearest, half up."""
    return ((100 << 16) + percent // 2) // percent


def tick(hz: int) -> dict[str, int]:
    """Return the time between ticks in ns, to nearest, half up, and its reciprocal in 2^-64."""
    tick_ns = (1_000_000_000 + hz // 2) // hz
    return {"tick_ns": tick_ns, "ticks_per_ns_q64": (1 << 64) // tick_ns}


def quantum_ns(quantum_bytes: int, rate_bps: int) -> int:
    """Return the time of a quantum at a rate, to nearest, half up."""
    return (quantum_bytes * 8_000_000_000 + rate_bps // 2) // rate_bps


def cycle(cycle_ns: int) -> dict[str, int]:
    """Return the time after which packets leave again, and its reciprocal in 2^-64."""
    return {"cycle_ns": cycle_ns, "cycles_per_ns_q64": (1 << 64) // cycle_ns}


def bytes_per_second(rate_bps: int) -> int:
    """Rate in whole bytes per second, to nearest, half up: P4Runtime's unit for byte meters."""
    return (rate_bps + 4) // 8

"""Parses and formats rates, sizes and times; the values are exact integers.

Rates are decimal (`500mbit` = 500,000,000 bit/s), as in `tc`. Sizes are binary (`64KB` = 65,536
bytes), as in the papers that this project follows. Times are in nanoseconds.
"""

import re
from fractions import Fraction

MIN_RATE_BPS = 8_000
MAX_RATE_BPS = 100_000_000_000
MAX_DELAY_NS = 10_000_000_000
MAX_FIFO_BYTES = 2**40

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z/]*)", re.ASCII)
_RATE_UNITS = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZE_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def _parse(text: object, units: dict[str, int], what: str, example: str) -> int:
    match = _QUANTITY.fullmatch(str(text).strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {what}; write it like {example}")
    value = Fraction(match[1]) * units[match[2]]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of the smallest unit")
    return int(value)


def _check(value: int, low: int, high: int, text: object, what: str, unit: str) -> int:
    if not low <= value <= high:
        raise ValueError(f"{what} {text!r} is outside {low:,} to {high:,} {unit}")
    return value


def parse_rate(text: object) -> int:
    """Return bit/s from `500mbit`, `1gbit`, `8kbit` or a number of bit/s.

    Range 8 kbit/s to 100 Gbit/s, as everywhere in this project; else ValueError.
    """
    value = _parse(text, _RATE_UNITS, "a rate", "500mbit")
    return _check(value, MIN_RATE_BPS, MAX_RATE_BPS, text, "rate", "bit/s")


def parse_size(text: object) -> int:
    """Return bytes from `64KB` (65,536) or a number of bytes; at least 1, else ValueError."""
    value = _parse(text, _SIZE_UNITS, "a size", "64KB")
    return _check(value, 1, MAX_FIFO_BYTES, text, "size", "bytes")


def parse_duration(text: object) -> int:
    """Return ns from `200ms`, `100us` or `2s`; 0 to 10 s, else ValueError."""
    value = _parse(text, _TIME_UNITS, "a time", "200ms")
    return _check(value, 0, MAX_DELAY_NS, text, "time", "ns")


def _shortest(value: int, units: list[tuple[str, int]]) -> str:
    for name, factor in units:
        if value and value % factor == 0:
            return f"{value // factor}{name}"
    return f"{value}{units[-1][0]}"


def format_rate(rate_bps: int) -> str:
    """Return `500mbit` from 500,000,000; the inverse of `parse_rate`."""
    return _shortest(rate_bps, [("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3), ("bit", 1)])


def format_size(size_bytes: int) -> str:
    """Return `64KB` from 65,536; the inverse of `parse_size`."""
    return _shortest(size_bytes, [("MB", 1 << 20), ("KB", 1 << 10), ("", 1)])


def format_duration(duration_ns: int) -> str:
    """Return `200ms` from 200,000,000; the inverse of `parse_duration`."""
    return _shortest(duration_ns, [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])

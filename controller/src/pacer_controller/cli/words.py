"""The words after a command and their values, as in `rate 500mbit limit 1MB port 2`.

A grammar is a table of words; each word names the field of the resource that it sets. This module
reads the usual forms of values (`1MB`, `10ms`, `5001-5010`, yes and no); the controller checks
whether the switch takes the value.

Units: sizes are bytes, `KB MB GB` are powers of 1024, as in tc; times are `ns us ms s`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pacer_controller import rates
from pacer_controller.cli.connection import UsageError
from pacer_controller.problems import did_you_mean

_NUMBER = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?([A-Za-z]*)", re.ASCII)
_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmg", 1):
    _SIZES |= {_letter + unit: 1024**_power for unit in ("", "b", "ib")}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_UNIT = re.compile(r"[num]?s|[kmgt]?i?(bit|b)(/s)?", re.ASCII | re.IGNORECASE)
_YES = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def _scaled(text: str, units: Mapping[str, int], what: str, example: str) -> int:
    found = _NUMBER.fullmatch(text)
    scale = units.get(found.group(3).lower()) if found else None
    if found is None or scale is None:
        raise ValueError(f"{text!r} is not {what}; such as {example}")
    decimals = found.group(2) or ""
    exact = Fraction(int(found.group(1) + decimals), 10 ** len(decimals)) * scale
    if exact.denominator != 1 and scale == 1:
        raise ValueError(f"{text!r} is no whole number; such as {example}")
    # "1.45MB" is how a size is shown: to the next whole byte.
    return round(exact)


def read_rate(text: str) -> str:
    """Check a rate and return it as it was written: the controller reads it as well."""
    try:
        rates.parse_rate(text)
    except rates.RateError as error:
        raise ValueError(f"{error}; want {error.expected}") from None
    return text


def read_size(text: str) -> int:
    """Return bytes of `1MB` or `65536`."""
    return _scaled(text, _SIZES, "a size", "64KB, 1MB or 65536 (bytes; KB = 1024)")


def read_time_ns(text: str) -> int:
    """Return nanoseconds of `100ms` or `24288ns`; only zero needs no unit."""
    if text == "0":
        return 0
    if text.isdecimal():
        raise ValueError(f"{text!r} has no unit: ns, us, ms or s; such as 100ms")
    return _scaled(text, _TIMES, "a time", "100ms, 24us or 24288ns")


def read_allowance(text: str) -> int | str | None:
    """Return nanoseconds, or the word for an allowance that follows the rate; None: `auto`."""
    if text in ("auto", "exact"):
        return text if text == "exact" else None
    try:
        return read_time_ns(text)
    except ValueError as error:
        raise ValueError(f"{error}, or auto, or exact") from None


def read_whole(text: str) -> int:
    """Return a whole number."""
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def read_number_or_text(text: str) -> int | str:
    """Return a whole number where it is one, else the text: names such as `tcp`, `0x0800`."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else text


def read_range(text: str) -> int | str:
    """Return a number, or a range as it was written."""
    if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[0-9]{1,5}-[0-9]{1,5}", text, re.ASCII):
        return text
    raise ValueError(f"{text!r} is not a port, or a range such as 5001-5010")


def read_switch(text: str) -> bool:
    """Return yes or no."""
    if text.lower() not in _YES:
        raise ValueError(f"{text!r} is neither yes nor no")
    return _YES[text.lower()]


@dataclass(frozen=True)
class Word:
    """One word of a grammar.

    Attributes:
        name: the word itself.
        field: the field that it sets, as a path in the resource (`match.dst_port`).
        read: reads the value that follows; None: no value follows.
        value: the value of the field when no value follows.
        shown: the placeholder of the value in help.
        help: one line of help.
        choices: values for completion; a name in angle brackets stands for names from the
            controller, such as "<class>".
        none: the value for "none" and "default"; without one, they remove the field.
        also: other names of the word.

    """

    name: str
    field: str
    read: Callable[[str], Any] | None
    shown: str = ""
    help: str = ""
    value: Any = None
    choices: tuple[str, ...] = ()
    none: Any = None
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the word; the main one is first."""
        return self.name, *self.also


NONE = ("none", "default")
"""Words instead of a value that remove the field, so that its default applies."""


class Grammar:
    """The words that may stand behind a command, in any order.

    Args:
        what: the resource, for messages.
        words: the words.
        noise: words without meaning, which may stand anywhere.

    """

    def __init__(self, what: str, words: Sequence[Word], noise: Sequence[str] = ()) -> None:
        self.what = what
        self.words = tuple(words)
        self.noise = tuple(noise)
        self._by_name = {name: word for word in words for name in word.names}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name in self.noise

    def word(self, name: str) -> Word | None:
        """Return the word of that name."""
        return self._by_name.get(name)

    def parse(self, typed: Sequence[str]) -> dict[str, Any]:
        """Return field paths and values; a value None means "take the field away".

        Raises:
            UsageError: an unknown word, a word given twice, or a value that cannot be read.

        """
        found: dict[str, Any] = {}
        rest = list(typed)
        while rest:
            name = rest.pop(0)
            if name in self.noise:
                continue
            word = self._by_name.get(name)
            if word is None:
                raise UsageError(self._unknown(name))
            if word.field in found:
                raise UsageError(f"{name!r}: {word.field.rpartition('.')[2]} is set twice")
            value = word.value
            if word.read is not None:
                if not rest:
                    raise UsageError(f"{name!r} needs a value: {name} {word.shown}")
                text = rest.pop(0)
                if text[-1:].isdecimal() and rest and _UNIT.fullmatch(rest[0]):
                    raise UsageError(
                        f"{name}: no space between number and unit: {name} {text}{rest[0]}"
                    )
                value = self._value(name, word, text)
            found[word.field] = value
        return found

    def _value(self, name: str, word: Word, text: str) -> Any:
        if text in NONE:
            return word.none
        assert word.read is not None  # noqa: S101 (the caller looked)
        try:
            return word.read(text)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None

    def _unknown(self, name: str) -> str:
        if name == "burst" and "allowance" in self:
            return f"{self.what}: no word 'burst'; tc's burst is a time here: allowance TIME"
        guess = did_you_mean(name, self._by_name)
        known = ", ".join(word.name for word in self.words)
        return f"{self.what}: unknown word {name!r}{guess or f'; one of {known}'}"

    def usage(self) -> list[tuple[str, str]]:
        """Return the words and their meanings, for help."""
        return [(f"{'|'.join(word.names)} {word.shown}".strip(), word.help) for word in self.words]


def nested(fields: Mapping[str, Any], into: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a resource with the fields set; None takes one away, and an emptied part with it."""
    body: dict[str, Any] = _copied(into or {})
    for path, value in fields.items():
        *parents, last = path.split(".")
        place = body
        for parent in parents:
            inner = place.get(parent)
            place[parent] = place = inner if isinstance(inner, dict) else {}
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return {name: value for name, value in body.items() if value != {} or name == "match"}


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, dict) else v for k, v in value.items()}

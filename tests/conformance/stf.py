"""Reads STF, the packet-test language of p4c's samples: one command a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class StfError(Exception):
    """A line that is no STF."""


@dataclass(frozen=True)
class Add:
    """A table entry: values as written (`0x1*`, `10/8`), by the name of the key field."""

    table: str
    priority: int | None
    match: tuple[tuple[str, str], ...]
    action: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SetDefault:
    """A table's default action."""

    table: str
    action: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Packet:
    """A frame that arrives at a port."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class Expect:
    """A frame that leaves by a port.

    `pattern` is hexadecimal digits and `*` for any; longer frames fit, too, unless it ends with
    `$`. None: whatever leaves by the port is right.
    """

    port: int
    pattern: str | None


@dataclass(frozen=True)
class Direct:
    """A command for the switch's own command line (`mirroring_add 5 4`)."""

    words: tuple[str, ...]


Command = Add | SetDefault | Packet | Expect | Direct

_DIRECT = {
    "mirroring_add",
    "mirroring_add_mc",
    "mirroring_delete",
    "mirroring_get",
    "mc_mgrp_create",
    "mc_node_create",
    "mc_node_update",
    "mc_node_associate",
    "counter_read",
    "counter_write",
    "register_read",
    "register_write",
    "register_reset",
    "meter_get_rates",
    "meter_set_rates",
    "meter_array_set_rates",
}
_IGNORED = {"wait", "no_packet", "remove", "check_counter"}
_NAME = r'(?:"[^"]+"|[A-Za-z_$][\w$]*)'
_QUALIFIED = rf"{_NAME}(?:\[\d+\])?(?:\.{_NAME}(?:\[\d+\])?)*"
_ACTION = re.compile(rf"(?P<action>{_QUALIFIED})\s*\((?P<arguments>[^)]*)\)\s*(?:=\s*\w+)?\s*$")
_MATCH = re.compile(rf"({_QUALIFIED})\s*:\s*([\w*]+(?:\s*/\s*\w+)?)\s*")


def read(path: Path) -> list[Command]:
    """The commands of a file. Raises StfError with the line that is wrong."""
    commands: list[Command] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            commands.extend(_command(text))
        except (StfError, ValueError) as error:
            raise StfError(f"{path.name}, line {number}: {error}") from error
    return commands


def _command(text: str) -> Iterator[Command]:
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    match word.lower():
        case "packet":
            port, _, data = rest.partition(" ")
            yield Packet(int(port), bytes.fromhex("".join(data.split())))
        case "expect":
            port, _, data = rest.partition(" ")
            yield Expect(int(port), "".join(data.split()).upper() or None)
        case "add":
            yield _add(rest)
        case "setdefault":
            table, _, call = rest.partition(" ")
            action, arguments = _action(call)
            yield SetDefault(_plain(table), action, arguments)
        case direct if direct in _DIRECT:
            yield Direct((direct, *rest.split()))
        case ignored if ignored in _IGNORED:
            return
        case other:
            raise StfError(f"unknown command '{other}'")


def _plain(name: str) -> str:
    """A name without the quotation marks that keep dots and dollars in it."""
    return name.replace('"', "")


def _add(text: str) -> Add:
    found = re.match(rf"({_QUALIFIED})\s+(?:(\d+)\s+)?", text)
    if not found:
        raise StfError("add: expected a table")
    table, priority = found.groups()
    at = found.end()
    match = []
    while field := _MATCH.match(text, at):
        match.append((_plain(field[1]), re.sub(r"\s", "", field[2])))
        at = field.end()
    action, arguments = _action(text[at:])
    return Add(_plain(table), int(priority) if priority else None, tuple(match), action, arguments)


def _action(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    call = _ACTION.match(text.strip())
    if not call:
        raise StfError(f"expected an action with arguments, found '{text.strip()}'")
    arguments = []
    for argument in filter(None, (a.strip() for a in call["arguments"].split(","))):
        name, colon, value = argument.partition(":")
        if not colon:
            raise StfError(f"'{argument}' is not name:value")
        arguments.append((_plain(name.strip()), value.strip()))
    return _plain(call["action"]), tuple(arguments)


def fits(pattern: str, frame: bytes) -> bool:
    """Whether a frame fits an expectation."""
    exact = pattern.endswith("$")
    digits = pattern.rstrip("$")
    data = frame.hex().upper()
    if len(data) < len(digits) or (exact and len(data) != len(digits)):
        return False
    return all(p in ("*", d) for p, d in zip(digits, data, strict=False))


def differences(commands: list[Command], sent: dict[int, list[bytes]]) -> list[str]:
    """The expectations that the sent frames do not fulfil, one sentence each."""
    wrong = []
    for port in sorted({c.port for c in commands if isinstance(c, Packet | Expect)}):
        expected = [c.pattern for c in commands if isinstance(c, Expect) and c.port == port]
        if None in expected:
            continue
        patterns = [pattern for pattern in expected if pattern is not None]
        frames = sent.get(port, [])
        if len(patterns) != len(frames):
            wrong.append(f"port {port}: {len(patterns)} packets expected, {len(frames)} sent")
            continue
        wrong.extend(
            f"port {port}, packet {index}: expected {pattern}, sent {frame.hex().upper()}"
            for index, (pattern, frame) in enumerate(zip(patterns, frames, strict=True))
            if not fits(pattern, frame)
        )
    return wrong

"""Runs an STF test on `pacing_switch`, in virtual time: a millisecond per command."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import stf
from pacing_switch import TimedFrame, read_capture, write_capture
from program import Key, Program, Table
from virtual_switch import binary

_STEP_NS = 1_000_000
_TIMEOUT_S = 60
_BITS_PER_DIGIT = {"0x": 4, "0b": 1, "0o": 3}


class RefusedError(Exception):
    """The switch, or this driver, cannot carry out a request of the test."""


def _number(text: str) -> int:
    return int(text, 0) if not re.fullmatch(r"0\d+", text) else int(text)


def _masked(text: str) -> tuple[int, int]:
    """Value and mask of digits with `*` for any; digits that are not there match anything."""
    prefix = text[:2].lower()
    bits = _BITS_PER_DIGIT.get(prefix)
    if bits is None:
        raise RefusedError(f"'{text}': a ternary value is written in hexadecimal or binary")
    value = mask = 0
    for digit in text[2:]:
        value, mask = value << bits, mask << bits
        if digit != "*":
            value |= int(digit, 16)
            mask |= (1 << bits) - 1
    return value, mask


def _prefix(text: str, bits: int) -> tuple[int, int]:
    """Value and length of a prefix, `value/length` or digits with `*` at the end."""
    value_text, slash, length_text = text.partition("/")
    if slash:
        value, length = _number(value_text), _number(length_text)
    else:
        if value_text[:2].lower() not in _BITS_PER_DIGIT:
            value_text = hex(int(value_text))
        digits = value_text[2:]
        length = (len(digits) - digits.count("*")) * _BITS_PER_DIGIT[value_text[:2].lower()]
        value = _number(value_text.replace("*", "0"))
    mask = ((1 << length) - 1) << (bits - length) if length <= bits else 0
    return value & mask, length


def _match(key: Key, text: str | None) -> object:
    """A match in the form of the switch's runtime file."""
    match key.kind:
        case "exact" | "valid":
            return hex(_number(text or "0"))
        case "lpm":
            value, length = _prefix(text or "0/0", key.bits)
            return [hex(value), length]
        case "ternary":
            value, mask = _masked(text) if text else (0, 0)
            return [hex(value & mask), hex(mask)]
        case other:
            raise RefusedError(f"STF has no way to write a match of kind '{other}'")


def _entry(table: Table, command: stf.Add, at_ns: int) -> dict[str, object]:
    given = {table.key(name).name: value for name, value in command.match}
    entry: dict[str, object] = {
        "table": table.name,
        "match": {key.name: _match(key, given.get(key.name)) for key in table.keys},
        "action_name": table.action(command.action),
        "action_params": {name: hex(_number(value)) for name, value in command.arguments},
        "at_ns": at_ns,
    }
    if table.ordered:
        entry["priority"] = 1 + (command.priority or 0)
    return entry


class _Replication:
    """Multicast groups and clone sessions from the commands of simple_switch's command line."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, list[int]]] = []
        self._groups: dict[int, list[int]] = {}
        self._sessions: dict[int, tuple[str, int]] = {}

    def command(self, words: tuple[str, ...]) -> None:
        match words:
            case ("mc_mgrp_create", group):
                self._groups[_number(group)] = []
            case ("mc_node_create", rid, *ports):
                self._nodes.append((_number(rid), [_number(port) for port in ports]))
            case ("mc_node_associate", group, node):
                self._groups[_number(group)].append(_number(node))
            case ("mirroring_add", session, port):
                self._sessions[_number(session)] = ("port", _number(port))
            case ("mirroring_add_mc", session, group):
                self._sessions[_number(session)] = ("group", _number(group))
            case (command, *_):
                raise RefusedError(f"'{command}' is not translated")

    def _replicas(self, group: int) -> list[dict[str, int]]:
        return [
            {"egress_port": port, "instance": rid}
            for node in self._groups[group]
            for rid, ports in [self._nodes[node]]
            for port in ports
        ]

    def runtime(self) -> dict[str, object]:
        sessions = []
        for session, (kind, number) in self._sessions.items():
            replicas = (
                self._replicas(number)
                if kind == "group"
                else [{"egress_port": number, "instance": 0}]
            )
            sessions.append({"clone_session_id": session, "replicas": replicas})
        groups = [
            {"multicast_group_id": group, "replicas": self._replicas(group)}
            for group in self._groups
        ]
        return {"multicast_group_entries": groups, "clone_session_entries": sessions}

    def ports(self) -> set[int]:
        nodes = {port for _, ports in self._nodes for port in ports}
        return nodes | {number for kind, number in self._sessions.values() if kind == "port"}


def _replica_ports(runtime: dict[str, Any]) -> set[int]:
    """The ports that groups and sessions of a runtime file name."""
    return {
        replica["egress_port"]
        for kind in ("multicast_group_entries", "clone_session_entries")
        for entry in runtime.get(kind, [])
        for replica in entry["replicas"]
    }


def run(
    compiled: Path, commands: list[stf.Command], folder: Path, extra: dict[str, Any], engine: str
) -> dict[int, list[bytes]]:
    """Runs the commands; returns the frames that each port sent, in order.

    `extra` is more for the runtime file (members of action profiles, value sets). Raises
    RefusedError with the switch's own words.
    """
    program = Program(compiled)
    replication = _Replication()
    entries: list[dict[str, object]] = []
    arrivals: dict[int, list[TimedFrame]] = {}
    for index, command in enumerate(commands):
        at_ns = (index + 1) * _STEP_NS
        match command:
            case stf.Packet(port, frame):
                arrivals.setdefault(port, []).append(TimedFrame(at_ns, frame))
            case stf.Expect(port, _):
                arrivals.setdefault(port, [])
            case stf.Add(table=name):
                entries.append(_entry(program.table(name), command, at_ns))
            case stf.SetDefault(name, action, arguments):
                table = program.table(name)
                entries.append(
                    {
                        "table": table.name,
                        "default_action": True,
                        "action_name": table.action(action),
                        "action_params": {n: hex(_number(v)) for n, v in arguments},
                        "at_ns": at_ns,
                    }
                )
            case stf.Direct(words):
                replication.command(words)
    runtime = replication.runtime() | extra
    for port in replication.ports() | _replica_ports(extra):
        arrivals.setdefault(port, [])
    more = extra.get("table_entries", [])
    assert isinstance(more, list)
    runtime["table_entries"] = entries + more
    (folder / "runtime.json").write_text(json.dumps(runtime))
    call = [str(binary()), "--virtual", "--engine", engine]
    call += ["--runtime-json", str(folder / "runtime.json")]
    for port, frames in sorted(arrivals.items()):
        stem = folder / f"p{port}"
        write_capture(Path(f"{stem}_in.pcap"), frames)
        call += ["-i", f"{port}@{stem}"]
    call.append(str(compiled))
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RefusedError(f"not finished after {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise RefusedError(done.stderr.strip().splitlines()[-1] if done.stderr else "failed")
    return {
        port: [timed.frame for timed in read_capture(folder / f"p{port}_out.pcap")]
        for port in arrivals
    }

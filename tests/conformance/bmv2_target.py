"""Runs an STF test on a stock `simple_switch` from PATH, commanded by its `simple_switch_CLI`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import stf
from pacing_target import RefusedError
from program import Key, Program, Table
from runtime_commands import PRIORITIES, commands
from simple_switch import SimpleSwitch, SwitchError, read_capture

_STEP_US = 1000


def _match(key: Key, text: str | None) -> str:
    if key.kind == "ternary":
        text = text or "0&&&0"
        if "&&&" in text:
            return text
        digit = {"0x": "F", "0b": "1", "0o": "7"}.get(text[:2].lower())
        if digit is None:
            raise RefusedError(f"'{text}': a ternary value is written in hexadecimal or binary")
        mask = "".join("0" if d == "*" else digit for d in text[2:])
        return f"{text.replace('*', '0')}&&&{text[:2]}{mask}"
    if key.kind == "lpm":
        text = text or "0/0"
        if "/" in text:
            return text
        bits = {"0x": 4, "0b": 1, "0o": 3}[text[:2].lower()]
        length = (len(text) - 2 - text.count("*")) * bits
        return f"{text.replace('*', '0')}/{length}"
    return text or "0"


def _values(table: Table, action: str, arguments: tuple[tuple[str, str], ...]) -> str:
    """An action's arguments as on the command line, in the order of its parameters."""
    given = dict(arguments)
    try:
        return "".join(f" {given[name]}" for name in table.parameters[action])
    except KeyError as missing:
        raise RefusedError(f"{action} lacks its argument {missing}") from missing


def _cli_command(program: Program, command: stf.Command) -> str | None:
    match command:
        case stf.Add():
            table = program.table(command.table)
            given = {table.key(name).name: value for name, value in command.match}
            fields = [_match(key, given.get(key.name)) for key in table.keys]
            action = table.action(command.action)
            call = f"table_add {table.name} {action} {' '.join(fields)} =>"
            call += _values(table, action, command.arguments)
            if table.ordered:
                call += f" {PRIORITIES - (command.priority or 0)}"
            return call
        case stf.SetDefault(name, action, arguments):
            table = program.table(name)
            action = table.action(action)
            values = _values(table, action, arguments)
            return f"table_set_default {table.name} {action}{values}"
        case stf.Direct(words):
            return " ".join(words)
        case _:
            return None


def run(
    compiled: Path, test: list[stf.Command], folder: Path, extra: dict[str, Any]
) -> dict[int, list[bytes]]:
    """Runs a test's commands; returns the frames that each port sent, in order.

    `extra` is installed first, in the form of pacing_switch's runtime file. Raises
    UntranslatableError if the command line has no command for an entry, RefusedError when the
    switch ends early.
    """
    program = Program(compiled)
    ports = sorted({c.port for c in test if isinstance(c, stf.Packet | stf.Expect)})
    for port in ports:
        os.mkfifo(folder / f"p{port}_in.pcap")
    try:
        with SimpleSwitch(compiled, folder, ports, ports) as switch:
            switch.command(commands(program, extra))
            sent = False
            for index, command in enumerate(test):
                if isinstance(command, stf.Packet):
                    switch.send(command.port, command.frame, (index + 1) * _STEP_US)
                    sent = True
                elif (line := _cli_command(program, command)) is not None:
                    if sent:
                        switch.wait_idle()
                        sent = False
                    # A refused entry shows when the expected frames are compared.
                    switch.command([line])
            switch.end_input()
            switch.wait_idle()
            return {port: read_capture(folder / f"p{port}_out.pcap") for port in ports}
    except SwitchError as error:
        raise RefusedError(str(error)) from error

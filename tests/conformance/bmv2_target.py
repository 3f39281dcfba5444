"""Runs an STF test on a stock `simple_switch` from PATH, commanded by its `simple_switch_CLI`."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import IO

import stf
from pacing_target import RefusedError
from program import Key, Program

SWITCH = "simple_switch"
CLI = "simple_switch_CLI"
_READY_S = 60.0
# pcap with microsecond stamps, as the switch's --use-files reads it.
_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_RECORD = struct.Struct("<IIII")
# Least BMv2 priority is best; STF's greatest is.
_PRIORITIES = 10_000


def available() -> bool:
    """Whether both programs are on PATH."""
    return shutil.which(SWITCH) is not None and shutil.which(CLI) is not None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


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


def _cli_command(program: Program, command: stf.Command) -> str | None:
    match command:
        case stf.Add():
            table = program.table(command.table)
            given = {table.key(name).name: value for name, value in command.match}
            fields = [_match(key, given.get(key.name)) for key in table.keys]
            call = f"table_add {table.name} {table.action(command.action)} {' '.join(fields)} =>"
            call += "".join(f" {value}" for _, value in command.arguments)
            if any(key.kind in ("ternary", "range", "optional") for key in table.keys):
                call += f" {_PRIORITIES - (command.priority or 0)}"
            return call
        case stf.SetDefault(name, action, arguments):
            table = program.table(name)
            values = " ".join(value for _, value in arguments)
            return f"table_set_default {table.name} {table.action(action)} {values}"
        case stf.Direct(words):
            return " ".join(words)
        case _:
            return None


def _read_capture(path: Path) -> list[bytes]:
    data = path.read_bytes() if path.exists() else b""
    frames, at = [], len(_FILE_HEADER)
    while at + _RECORD.size <= len(data):
        size = _RECORD.unpack_from(data, at)[2]
        at += _RECORD.size
        frames.append(data[at : at + size])
        at += size
    return frames


def run(compiled: Path, commands: list[stf.Command], folder: Path) -> dict[int, list[bytes]]:
    """Runs the commands; returns the frames that each port sent, in order."""
    program = Program(compiled)
    ports = sorted({c.port for c in commands if isinstance(c, stf.Packet | stf.Expect)})
    for port in ports:
        os.mkfifo(folder / f"p{port}_in.pcap")
    thrift = _free_port()
    interfaces = [word for port in ports for word in ("-i", f"{port}@p{port}")]
    socket_path = f"ipc://{folder / 'notify.ipc'}"
    switch = subprocess.Popen(
        [
            SWITCH,
            *("--use-files", "0"),
            *("--thrift-port", str(thrift)),
            *("--notifications-addr", socket_path),
            *interfaces,
            str(compiled),
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    inputs: dict[int, IO[bytes]] = {}
    try:
        # In the switch's own order: each end of a pipe waits for the other.
        for port in ports:
            inputs[port] = (folder / f"p{port}_in.pcap").open("wb", buffering=0)
            inputs[port].write(_FILE_HEADER)
        _wait_ready(switch, thrift)
        with subprocess.Popen(
            [CLI, "--thrift-port", str(thrift)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as cli:
            assert cli.stdin is not None
            settle = 0.0
            for command in commands:
                if isinstance(command, stf.Packet):
                    time.sleep(settle)
                    settle = 0.0
                    size = len(command.frame)
                    inputs[command.port].write(_RECORD.pack(0, 0, size, size) + command.frame)
                elif (line := _cli_command(program, command)) is not None:
                    cli.stdin.write(line + "\n")
                    cli.stdin.flush()
                    settle = 1.0
            cli.stdin.close()
            cli.wait(timeout=_READY_S)
        # simple_switch does not say when it is done.
        time.sleep(1.0)
        if switch.poll() is not None:
            raise RefusedError(f"{SWITCH} ended with status {switch.returncode}")
    finally:
        for pipe in inputs.values():
            pipe.close()
        switch.terminate()
        switch.wait()
    return {port: _read_capture(folder / f"p{port}_out.pcap") for port in ports}


def _wait_ready(switch: subprocess.Popen[bytes], thrift: int) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if switch.poll() is not None:
            raise RefusedError(f"{SWITCH} ended with status {switch.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", thrift)) == 0:
                return
        time.sleep(0.05)
    raise RefusedError(f"{SWITCH} is not ready after {_READY_S} s")

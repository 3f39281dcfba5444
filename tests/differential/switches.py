"""One case on both switches: entries and packets in, the frames of each port out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simple_switch
from entries import PORTS
from program import Program
from runtime_commands import UntranslatableError, commands
from virtual_switch import binary

# A port whose input is a named pipe: stock simple_switch reads no packet before it knows the
# first one, or the end, of every port, and so waits for its entries.
_GATE = 500
# Time between packets, so that departures identify arrivals: rounds take a microsecond each.
STEP_US = 100
_TIMEOUT_S = 300
# Deeper than any case is long: by default a full queue (64) drops, in silence.
_QUEUE_DEPTH = 10_000_000
_REFUSAL = re.compile(r"^(Invalid |Error|\*\*\* |Traceback|Unknown )", re.MULTILINE)


class RunError(Exception):
    """A switch refused the case or did not finish it."""

    cause = "pacing_switch refuses the case or does not finish it"


class StockError(RunError):
    """Stock `simple_switch` did."""

    cause = "simple_switch ends, or does not start"


class StockRefusedError(StockError):
    """Stock `simple_switch` refused an entry, or its command line has no command for it."""

    cause = "simple_switch refuses an entry"


@dataclass(frozen=True)
class Case:
    """A program, its entries, and the arriving frames: (port, frame), in order."""

    compiled: Path
    runtime: dict[str, Any]
    packets: tuple[tuple[int, bytes], ...]


Sent = dict[int, list[bytes]]


def _write_inputs(case: Case, folder: Path) -> None:
    files = {port: bytearray(simple_switch.FILE_HEADER) for port in PORTS}
    for index, (port, frame) in enumerate(case.packets):
        seconds, microseconds = divmod((index + 1) * STEP_US, 1_000_000)
        size = len(frame)
        files[port] += simple_switch.RECORD.pack(seconds, microseconds, size, size) + frame
    for port, data in files.items():
        (folder / f"p{port}_in.pcap").write_bytes(data)


def run_pacing(case: Case, folder: Path, options: Sequence[str] = ()) -> Sent:
    """On `pacing_switch`, in virtual time, in a folder."""
    _write_inputs(case, folder)
    (folder / "runtime.json").write_text(json.dumps(case.runtime))
    call = [str(binary()), "--virtual", "--runtime-json", "runtime.json", *options]
    for port in PORTS:
        call += ["-i", f"{port}@p{port}"]
    call.append(str(case.compiled.resolve()))
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise RunError(f"pacing_switch: {done.stderr.strip()[-500:]}")
    return {port: simple_switch.read_capture(folder / f"p{port}_out.pcap") for port in PORTS}


def run_bmv2(case: Case, folder: Path, options: Sequence[str] = ()) -> Sent:
    """On stock `simple_switch`, in a folder."""
    _write_inputs(case, folder)
    os.mkfifo(folder / f"p{_GATE}_in.pcap")
    try:
        lines = commands(Program(case.compiled), case.runtime)
        ports = [*PORTS, _GATE]
        with simple_switch.SimpleSwitch(case.compiled, folder, ports, [_GATE], options) as switch:
            replies = switch.command([f"set_queue_depth {_QUEUE_DEPTH}", *lines])
            for line, reply in zip(lines, replies[1:], strict=True):
                if _REFUSAL.search(reply):
                    raise StockRefusedError(f"{simple_switch.SWITCH}: '{line}': {reply[-300:]}")
            switch.end_input()
            switch.wait_idle()
    except simple_switch.SwitchError as error:
        raise StockError(str(error)) from error
    except UntranslatableError as error:
        raise StockRefusedError(str(error)) from error
    return {port: simple_switch.read_capture(folder / f"p{port}_out.pcap") for port in PORTS}


def version() -> str:
    """The version that `simple_switch` prints."""
    done = subprocess.run([simple_switch.SWITCH, "--version"], capture_output=True, text=True)
    return (done.stdout or done.stderr).strip()


def progress(text: str) -> None:
    """Prints the progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:70}", end="", file=sys.stderr, flush=True)

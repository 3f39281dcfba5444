"""A switch in virtual time: frames in, frames with exact departure times out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pacing_switch.captures import TimedFrame, read_capture, write_capture
from pacing_switch.processes import ProcessError
from pacing_switch.program import program_path
from pacing_switch.switch import port_options

RUN_TIMEOUT_S = 300.0


class VirtualSwitch:
    """A switch that runs in virtual time. It needs no interfaces and no root.

    Each run starts a process, which ends when all packets are sent; two runs give the same result.

        with VirtualSwitch("router.json", ports={1: "", 2: "rate=100mbit"}) as switch:
            sent = switch.run({1: [TimedFrame(0, frame)]})
            print(sent[2][0].at_ns)
    """

    def __init__(
        self,
        program: str | os.PathLike[str],
        ports: Mapping[int, str],
        *,
        runtime: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        folder: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe a switch.

        Args:
            program: p4c-bm2-ss's JSON.
            ports: the settings of each port number, as on the command line (`rate=100mbit`).
            runtime: table entries and groups, as in a file for `--runtime-json`.
            options: further words of the command line (`pacing_switch --help`).
            folder: the folder for capture files, entries and statistics; by default a temporary
                one, which goes with the `with` block.
            binary: the program; by default what `program_path` finds.

        """
        self._program = program
        self._ports = dict(ports)
        self._runtime = dict(runtime or {})
        self._options = list(options)
        self._binary = binary
        self._given = Path(folder) if folder is not None else None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> VirtualSwitch:
        """Make the temporary folder, unless a folder is given."""
        if self._given is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="pacing-switch-")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the temporary folder."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    @property
    def folder(self) -> Path:
        """The folder of `runtime.json`, `stats.json` and the capture files `p1_in.pcap`, ..."""
        if self._given is not None:
            return self._given
        if self._scratch is None:
            raise RuntimeError(
                "its folder exists in its block: `with VirtualSwitch(...) as switch:`"
            )
        return Path(self._scratch.name)

    def run(self, arrivals: Mapping[int, Iterable[TimedFrame]]) -> dict[int, list[TimedFrame]]:
        """Send frames to the ports; return the frames that each port sent, in order of time.

        Args:
            arrivals: the frames of each port, in order of time.

        Raises:
            NoSwitchError: the program pacing_switch is not installed.
            OSError: it cannot be run.
            ProcessError: it refuses its input; the text is its output.
            ValueError: frames arrive at a port that the switch does not have.

        """
        folder = self.folder
        unknown = sorted(set(arrivals) - set(self._ports))
        if unknown:
            raise ValueError(f"frames arrive at port {unknown[0]}, which is not one of `ports`")
        interfaces = {}
        for number, settings in self._ports.items():
            stem = folder / f"p{number}"
            write_capture(Path(f"{stem}_in.pcap"), arrivals.get(number, ()))
            interfaces[number] = f"{stem},{settings}" if settings else str(stem)
        (folder / "runtime.json").write_text(json.dumps(self._runtime))
        command = [str(self._binary if self._binary is not None else program_path()), "--virtual"]
        command += [*port_options(interfaces), "--runtime-json", str(folder / "runtime.json")]
        command += ["--stats-file", str(folder / "stats.json"), *self._options]
        command.append(os.fspath(self._program))
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"pacing_switch had not ended after {RUN_TIMEOUT_S:.0f} s; with the option "
                "--virtual-until it ends at a time of its own"
            ) from None
        if ended.returncode != 0:
            text = (ended.stderr + ended.stdout).strip()
            raise ProcessError(f"pacing_switch ended with status {ended.returncode}: {text}")
        return {number: read_capture(folder / f"p{number}_out.pcap") for number in self._ports}

    def statistics(self) -> dict[str, Any]:
        """Return the statistics that the last run ended with.

        Raises:
            FileNotFoundError: nothing has run.

        """
        loaded: dict[str, Any] = json.loads((self.folder / "stats.json").read_text())
        return loaded

"""A switch process that has said it is ready; not a test itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from virtual_switch import binary

READY = "pacing_switch: ready"
END_S = 60.0


@dataclass(frozen=True)
class Started:
    """The process, its P4Runtime address, and its output until it was ready, by line."""

    process: subprocess.Popen[str]
    address: str
    said: list[str]


@contextmanager
def started(*arguments: str, folder: Path | None = None) -> Iterator[Started]:
    """Start the switch in `folder`; with the block it ends, by SIGTERM, unless it has already.

    Raises:
        RuntimeError: it ended before it was ready; the text is its output.

    """
    process = subprocess.Popen(
        [str(binary()), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if READY in line:
                break
        else:
            raise RuntimeError(f"the switch ended with status {process.wait()}: {''.join(said)}")
        yield Started(process, said[-1].rpartition(" ")[2].strip(), said)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

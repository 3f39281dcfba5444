"""The clients' requests and answers in the checker's format: one JSON object a line.

See checker/main.go for the format. A write that was certainly not made is not in the history.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

Kind = Literal["write", "delete", "read"]
Outcome = Literal["done", "unknown"]


@dataclass
class Call:
    """A call under way."""

    client: int
    key: str
    kind: Kind
    value: str | None
    called_ns: int


class History:
    """Writes the history to a file."""

    def __init__(self, file: Path) -> None:
        self._file: IO[str] = file.open("w", encoding="utf-8")
        self.acknowledged = self.unknown = self.refused = self.reads = 0
        """Writes that were acknowledged, may have been made, were not made; reads."""

    def begin(self, client: int, key: str, kind: Kind, value: str | None = None) -> Call:
        """Note that a call begins."""
        return Call(client, key, kind, value, time.monotonic_ns())

    def end(self, call: Call, outcome: Outcome, value: str | None = None) -> None:
        """Note the end of a call; `value` is the value read."""
        if call.kind == "read":
            self.reads += 1
            call.value = value
        elif outcome == "done":
            self.acknowledged += 1
        else:
            self.unknown += 1
        line = {**vars(call), "ended_ns": time.monotonic_ns(), "outcome": outcome}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def refuse(self, call: Call) -> None:
        """Note that a write was certainly not made."""
        if call.kind != "read":
            self.refused += 1

    def close(self) -> None:
        """Close the file, with all calls written."""
        self._file.close()

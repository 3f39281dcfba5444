"""A case as text: packets and expectations in STF, the rest as a runtime file."""

from __future__ import annotations

import json

from switches import Case, Sent


def runtime(case: Case) -> str:
    """The installed entries, one a line, without empty parts."""
    parts = []
    for kind, entries in case.runtime.items():
        if entries:
            lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
            parts.append(f' "{kind}": [\n{lines}]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def packets(case: Case, sent: Sent) -> str:
    """The frames that arrive and those that leave."""
    lines = [f"packet {port} {frame.hex()}" for port, frame in case.packets]
    for port, frames in sent.items():
        lines += [f"expect {port} {frame.hex()}$" for frame in frames]
    return "\n".join(lines) + "\n"


def text(case: Case, sent: Sent) -> str:
    """Both, the entries as comments."""
    entries = "".join(f"# {line}\n" for line in runtime(case).splitlines())
    return entries + packets(case, sent)

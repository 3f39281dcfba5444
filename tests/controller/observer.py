"""Looks at a switch, or changes it behind the controller's back, over P4Runtime.

    observer.py ADDRESS P4INFO read
    observer.py ADDRESS P4INFO delete-class INDEX

`read` prints all table entries as JSON: a list of [table, match, priority, action, params].
Runs as a process of its own, since its connections belong to the namespace it starts in.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import finsy as fy

from pacer_controller import entries, rows

_READER_ID = 1
_USURPER_ID = 1 << 100
"""Higher than any that a store gives of itself."""


async def read(address: str, p4info: Path) -> list[Any]:
    """Return all entries of all tables."""
    options = fy.SwitchOptions(p4info=p4info, device_id=0, initial_election_id=_READER_ID)
    async with fy.Switch("observed", address, options) as switch:
        found: list[Any] = []
        for table in switch.p4info.tables:
            answers: Any = switch.read(fy.P4TableEntry(table.alias))
            async for entry in answers:
                if not entry.is_default_action:
                    row = entries.from_finsy(entry, switch.p4info)
                    found.append([row.table, row.match, row.priority, row.action, row.params])
        return found


async def delete_class(address: str, p4info: Path, index: int) -> None:
    """Become primary, delete an entry of `classes`, and leave."""
    options = fy.SwitchOptions(p4info=p4info, device_id=0, initial_election_id=_USURPER_ID)
    async with fy.Switch("observed", address, options) as switch:
        entry = fy.P4TableEntry(rows.CLASSES, match=fy.P4TableMatch(class_id=index))
        await switch.delete([entry])


def main(address: str, p4info: str, command: str, *values: str) -> None:
    """Run the command line's command."""
    if command == "read":
        print(json.dumps(asyncio.run(read(address, Path(p4info)))))
    else:
        asyncio.run(delete_class(address, Path(p4info), int(values[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])

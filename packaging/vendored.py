#!/usr/bin/env python3
"""Print the part of requirements.lock that the Debian package brings along, with its hashes.

    vendored.py REQUIREMENTS.lock PYTHON-FROM-DEBIAN

These are the packages that the controller needs, by the metadata of the environment that runs this
(`make venv`), without those that Debian has and what only they need.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "pacer-controller"


def needed(from_debian: set[str]) -> set[str]:
    """Return the names of the packages that the controller needs besides Debian's."""
    found: set[str] = set()
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        for text in importlib.metadata.requires(name) or []:
            one = Requirement(text)
            required = canonicalize_name(one.name)
            wanted = one.marker is None or one.marker.evaluate({"extra": ""})
            if wanted and required not in from_debian | found:
                found.add(required)
                waiting.append(required)
    return found


def blocks(lock: str) -> dict[str, str]:
    """Return the lines of each package of a lock file, by its name."""
    parts = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    return {canonicalize_name(part.partition("==")[0]): part for part in parts}


def main() -> None:
    """Print the lines."""
    lock, debian = (Path(name).read_text() for name in sys.argv[1:])
    lines = [line.split() for line in debian.splitlines() if line and line[0] != "#"]
    locked = blocks(lock)
    for name in sorted(needed({name for name, _ in lines})):
        sys.stdout.write(locked[name])


if __name__ == "__main__":
    main()

"""Check that what the installed controller needs is there, in versions that each part allows.

Debian's packages come in other versions than requirements.lock has, so pip cannot tell. Runs in the
installed system's Python. The controller's own pins are not checked: they name the lock's versions.
"""

import importlib
import importlib.metadata
import sys

PRIVATE = ["/usr/lib/p4-pspacer", "/usr/lib/p4-pspacer/vendor"]
sys.path[:0] = PRIVATE

from packaging.requirements import Requirement  # noqa: E402 (needs the path above)

MODULES = ("pacer_controller.server", "pacer_controller.cli.main", "pacer_controller.openvswitch")


def wrong() -> list[str]:
    """Return a line for each requirement of a package in the private folder that is not met."""
    lines = []
    for package in importlib.metadata.distributions(path=PRIVATE[1:]):
        for text in package.requires or []:
            needed = Requirement(text)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            try:
                found = importlib.metadata.version(needed.name)
            except importlib.metadata.PackageNotFoundError:
                found = "nothing"
            if found == "nothing" or not needed.specifier.contains(found, prereleases=True):
                lines.append(f"{package.metadata['Name']} needs {needed}; there is {found}")
    return lines


def main() -> None:
    """Exit with what is wrong."""
    for name in MODULES:
        importlib.import_module(name)
    found = wrong()
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()

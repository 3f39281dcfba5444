#!/usr/bin/env python3
"""Make the links of the packages' pages lead to where the packages have the files.

    installed_docs.py TREE      a copy of the checkout, whose pages it changes

The lists debian/PACKAGE.docs and debian/PACKAGE.install say where a file comes. A link to a file
that no package has becomes plain text.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from build import with_links  # noqa: E402 (needs the path above)


def places(tree: Path) -> dict[Path, Path]:
    """Return where each file of the lists is installed.

    Raises:
        ValueError: two packages have the same page, so a link to it would not have one place.

    """
    found: dict[Path, Path] = {}
    for listed in sorted((tree / "packaging" / "debian").glob("*.*")):
        if listed.suffix not in {".docs", ".install"}:
            continue
        for line in listed.read_text().splitlines():
            pattern, _, folder = line.partition(" ")
            to = Path("/", folder or f"usr/share/doc/{listed.stem}")
            for file in tree.glob(pattern):
                if file in found:
                    raise ValueError(f"{listed.name}: {pattern} is in {found[file].parent}, too")
                found[file] = to / file.name
    return found


def main() -> None:
    """Change the pages."""
    installed = places(Path(sys.argv[1]).resolve())
    for page, place in installed.items():
        if page.suffix == ".md":

            def there(file: Path, folder: Path = place.parent) -> str | None:
                return os.path.relpath(installed[file], folder) if file in installed else None

            page.write_text(with_links(page, there))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Print the bill of materials (CycloneDX) of p4-pspacer-lab: its kernel, and the patches to it.

    kernel_materials.py VERSION SOURCE TARBALL

VERSION is the package's, SOURCE Debian's source package as the field Built-Using names it, such as
"linux (= 6.1.192-3)", and TARBALL the kernel's source.
"""

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

LAB = Path(__file__).resolve().parents[1] / "lab"
PACKAGE = "p4-pspacer-lab"


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def materials(version: str, source: str, tarball: Path) -> dict[str, Any]:
    """Return the bill.

    Raises:
        ValueError: `source` does not name a source package and its version.

    """
    named = re.fullmatch(r"([a-z0-9.+-]+) \(= ([^ )]+)\)", source)
    if named is None:
        raise ValueError(f"{source!r} is no source package with its version: linux (= 6.1.192-3)")
    name, of_debian = named.groups()
    package = {
        "type": "application",
        "bom-ref": PACKAGE,
        "name": PACKAGE,
        "version": version,
        "licenses": [{"expression": "Apache-2.0 AND GPL-2.0-only"}],
    }
    patches = sorted((LAB / "patches").glob("*.patch"))
    kernel = {
        "type": "operating-system",
        "bom-ref": name,
        "name": name,
        "version": of_debian,
        "hashes": [{"alg": "SHA-256", "content": digest(tarball)}],
        "licenses": [{"license": {"id": "GPL-2.0-only"}}],
        "purl": f"pkg:deb/debian/{name}@{quote(of_debian, safe='')}?arch=source",
        "pedigree": {
            "patches": [
                {"type": "unofficial", "diff": {"url": str(patch.relative_to(LAB.parent))}}
                for patch in patches
            ]
        },
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, f"{PACKAGE} {version}").urn,
        "version": 1,
        "metadata": {"component": package},
        "components": [kernel],
        "dependencies": [{"ref": PACKAGE, "dependsOn": [name]}],
    }


def main() -> None:
    """Print the bill."""
    version, source, tarball = sys.argv[1:]
    try:
        bill = materials(version, source, Path(tarball))
    except ValueError as error:
        sys.exit(f"packaging/kernel_materials.py: {error}")
    print(json.dumps(bill, indent=2))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write the notices of the crates that pacing_switch is made of, and of Rust's standard library.

    notices.py FOLDER

They are linked into the program, so a copy of it has to come with them. `third-party-notices.txt`
has each licence text of the crates' archives once, after the names of its crates.
`rust-standard-library.html` is the compiler's own file. The crates are those that the program needs
on Linux, x86-64 or the target in CARGO_BUILD_TARGET, by switch/Cargo.lock; cargo fetches what it
does not have.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

SWITCH = Path(__file__).resolve().parents[1] / "switch"
PROGRAM = "pacing_switch"
TARGET = os.environ.get("CARGO_BUILD_TARGET") or "x86_64-unknown-linux-gnu"
LICENCE_FILE = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
NO_TEXT = {".rs", ".html"}
STANDARD = {
    "Apache-2.0 WITH LLVM-exception": re.compile(r"Apache License\b.*\bLLVM Exceptions\b"),
    "Apache-2.0": re.compile(r"Apache License\b"),
    "MIT": re.compile(r"Permission is hereby granted, free of charge, to any person obtaining"),
}
"""How the texts of licences begin that have no holder's name, in the order of preference."""

Package = dict[str, Any]


class NoticeError(Exception):
    """A notice is missing; the text says which."""


def crates() -> list[Package]:
    """Return cargo's metadata of the crates that the program is made of, without this project's."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", TARGET]
    ran = subprocess.run(command, cwd=SWITCH, check=True, stdout=subprocess.PIPE)
    metadata = json.loads(ran.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    waiting = [key for key in metadata["workspace_members"] if packages[key]["name"] == PROGRAM]
    found: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            linked = (
                need["pkg"]
                for need in needs[key]
                if any(kind["kind"] is None for kind in need["dep_kinds"])
            )
            waiting.extend(linked)
    return sorted(
        (packages[key] for key in found if packages[key]["source"] is not None),
        key=lambda package: (package["name"], package["version"]),
    )


def licence_files(package: Package) -> list[Path]:
    """Return the files of licences and notices in a crate's archive."""
    folder = Path(package["manifest_path"]).parent
    return sorted(
        file
        for file in folder.rglob("*")
        if LICENCE_FILE.match(file.name) and file.suffix not in NO_TEXT and file.is_file()
    )


def standard_text(package: Package, texts: dict[str, list[str]]) -> str:
    """Return the text of the licence of a crate whose archive has none.

    Raises:
        NoticeError: no crate has a standard text of this licence.

    """
    for name, begins in STANDARD.items():
        if name in (package["license"] or ""):
            fitting = [text for text in texts if begins.match(" ".join(text.split()))]
            if fitting:
                return min(fitting, key=len)
    raise NoticeError(
        f"the crate {package['name']} {package['version']} has no licence file, and "
        f"{package['license']} is none of: {', '.join(STANDARD)}"
    )


def notices(packages: list[Package]) -> str:
    """Return all licence texts, each once, with the crates that they belong to.

    Raises:
        NoticeError: a crate's licence is not known.

    """
    texts: dict[str, list[str]] = defaultdict(list)
    bare = []
    for package in packages:
        label = f"{package['name']} {package['version']} ({package['license']})"
        files = licence_files(package)
        for file in files:
            text = file.read_text(errors="replace").strip("\n")
            if label not in texts[text]:
                texts[text].append(label)
        if not files:
            bare.append((package, label))
    for package, label in bare:
        by = f", by {', '.join(package['authors'])}" if package["authors"] else ""
        texts[standard_text(package, texts)].append(f"{label}{by}; no licence file of its own")
    rule = "=" * 80
    parts = [f"{PROGRAM} contains these crates, under these licences.\n"]
    for text, labels in texts.items():
        parts += [rule, *labels, rule, "", text, ""]
    return "\n".join(parts)


def of_the_standard_library() -> Path:
    """Return the compiler's file on its standard library.

    Raises:
        NoticeError: there is none.

    """
    command = ["rustc", "--print", "sysroot"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    file = Path(ran.stdout.strip()) / "share" / "doc" / "rust" / "COPYRIGHT-library.html"
    if not file.exists():
        raise NoticeError(f"{file} is missing; rustup's toolchains have it")
    return file


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    try:
        (folder / "third-party-notices.txt").write_text(notices(crates()))
        shutil.copyfile(of_the_standard_library(), folder / "rust-standard-library.html")
    except NoticeError as error:
        sys.exit(f"packaging/notices.py: {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Check what every Markdown page of the project names, and copy the pages for the site.

    build.py OUT      copy to OUT/docs-src, with OUT/zensical.toml beside it

These must exist: each link's file and heading, each path in code that begins with a folder of the
project, and each target behind `make`. Where a page says `NAME` in [FILE](PATH), the file must
define the name (a function, type, constant, table, register, ...), and so each of several names.
Pages keep their folders, so that links between them are the same in the tree and on the site. A
link to a file that is no page (a program, a folder) becomes plain text on the site. Exit status 1:
something is missing; each is named on standard error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {".png", ".svg"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^(?: {4}(?!- )|\t)[^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
NAMED = re.compile(r"((?:`[^`\n]+`(?:, | and ))*`[^`\n]+`) in \[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"(?:^|[`&;$]) *(?:sudo )?make ([a-z][\w-]*)", re.MULTILINE)
TARGET = re.compile(r"^([a-z][\w -]*(?:%[\w-]*)?):", re.MULTILINE)
GENERATED = ("switch/target/",)


def tracked() -> set[Path]:
    """Return the files of the project, and those about to be added to it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {ROOT / name for name in names.splitlines() if (ROOT / name).exists()}


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as Python-Markdown names them."""
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in HEADING.findall(text))
    words = (re.sub(r"[^\w\s-]", "", line).strip().lower() for line in plain)
    return {re.sub(r"[-\s]+", "-", line) for line in words}


def outside_code(text: str) -> str:
    """Return the text with the characters of code replaced by spaces; line ends stay."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def broken(page: Path, pages: set[Path]) -> list[str]:
    """Return a line for each link of the page that leads nowhere."""
    lines = []
    for _, _, target in LINK.findall(outside_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists():
            lines.append(f"{page.relative_to(ROOT)}: no file {target}")
        elif anchor and there in pages and anchor not in anchors(there.read_text()):
            lines.append(f"{page.relative_to(ROOT)}: no heading {target}")
    return lines


def make_targets() -> re.Pattern[str]:
    """Return a pattern that matches exactly the targets of the Makefile."""
    lines = TARGET.findall((ROOT / "Makefile").read_text())
    names = {name for line in lines for name in line.split()}
    return re.compile("|".join(re.escape(name).replace("%", r"[\w-]+") for name in names))


def defines(text: str, name: str) -> bool:
    """Return whether a source text has a definition of each part of a name such as `Type::method`.

    It knows the definitions of Rust, Python, P4 and JavaScript by their first words.
    """
    words = r"fn|def|class|struct|enum|trait|type|const|static|function|control|action|table"
    return all(
        re.search(
            rf"(?:\b(?:{words})|#define) +{one}\b"  # named behind its kind
            rf"|^{one}\b[^=\n]*= "  # Python: a constant
            rf"|\) {one};"  # P4: a register, counter or meter
            rf"|^    {one} {{",  # P4: apply of a control
            text,
            re.MULTILINE,
        )
        for one in map(re.escape, re.split(r"::|\.", name.removesuffix("()")))
    )


def missing(page: Path, folders: set[str], targets: re.Pattern[str]) -> list[str]:
    """Return a line for each path, make target and name in code of the page that does not exist."""
    text = page.read_text()
    codes = [match[0] for match in CODE.finditer(text)]
    named = page.relative_to(ROOT)
    lines = [
        f"{named}: no target 'make {target}'"
        for code in codes
        for target in MAKE.findall(code)
        if not targets.fullmatch(target)
    ]
    words = {word.strip("`'\"()[]{}<>.,:;") for code in codes for word in code.split()}
    paths = [
        word
        for word in sorted(words)
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]*)+", word)
        and word.partition("/")[0] in folders
        and not word.startswith(GENERATED)
        and not re.search(r"/[A-Z]+\b", word)
    ]
    lines += [
        f"{named}: no file {path}"
        for path in paths
        if not any(any(place.glob(path.rstrip("/"))) for place in (ROOT, page.parent))
    ]
    for names, target in NAMED.findall(text):
        file = (page.parent / target).resolve()
        source = file.read_text() if file.is_file() else ""
        lines += [
            f"{named}: no definition of {name} in {target}"
            for name in re.findall("`([^`]+)`", names)
            if not defines(source, name)
        ]
    return lines


def with_links(page: Path, place: Callable[[Path], str | None]) -> str:
    """Return the page's text with other links to files of the project.

    Args:
        page: the page.
        place: returns the target of a link to a file, without anchor; without one, the link becomes
            plain text.

    """

    def link(match: re.Match[str]) -> str:
        name, mark, anchor = match[3].partition("#")
        if re.match(r"[a-z]+:", match[3]) or not name:
            return match[0]
        there = place((page.parent / name).resolve())
        return match[2] if there is None else f"{match[1]}[{match[2]}]({there}{mark}{anchor})"

    return LINK.sub(link, page.read_text())


def for_site(page: Path, copied: set[Path]) -> str:
    """Return the page's text, with links to files that are not copied as plain text."""
    return with_links(
        page, lambda file: os.path.relpath(file, page.parent) if file in copied else None
    )


def main() -> int:
    """Check all pages, then copy them and the pictures."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    files = tracked()
    pages = {file for file in files if file.suffix == ".md"}
    copied = pages | {file for file in files if file.suffix in PICTURES}
    folders = {file.relative_to(ROOT).parts[0] for file in files if file.parent != ROOT}
    targets = make_targets()
    lines = [
        line
        for page in sorted(pages)
        for line in (*broken(page, pages), *missing(page, folders, targets))
    ]
    print("\n".join(lines), file=sys.stderr, end="\n" if lines else "")
    if lines:
        return 1
    source = out / "docs-src"
    shutil.rmtree(source, ignore_errors=True)
    for file in copied:
        place = source / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file in pages:
            place.write_text(for_site(file, copied))
        else:
            shutil.copyfile(file, place)
    shutil.copyfile(ROOT / "docs" / "zensical.toml", out / "zensical.toml")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compiles the P4 programs with p4c and keeps the manifest of what went in.

    compile.py            compile every program for every target into compiled/
    compile.py --check    verify the manifest's digests against the sources; where p4c is on
                          PATH also recompile and compare with the committed output

Exit status: 0 all well, 1 something is stale (named on stderr), 2 p4c is needed and missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

COMPILER = "p4c-bm2-ss"
HERE = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Collection:
    """A folder of programs and its compiled/, with p4c's flags for each target."""

    folder: Path
    programs: tuple[str, ...]
    target_flags: dict[str, list[str]]

    @property
    def compiled(self) -> Path:
        """The directory of p4c's output."""
        return self.folder / "compiled"

    @property
    def manifest(self) -> Path:
        """The inputs of the output, and its digests."""
        return self.compiled / "manifest.json"


COLLECTIONS = (
    Collection(
        HERE,
        ("pacer", "gtrcnet", "qos", "l4s"),
        {"pacing_switch": ["--emit-externs"], "bmv2": ["-DTARGET_BMV2"]},
    ),
    # Programs for the benchmark: plain v1model, the same for every target.
    Collection(HERE.parent / "tests" / "bench" / "programs", ("router",), {"v1model": []}),
    Collection(
        HERE.parent / "examples" / "queues", ("marker",), {"pacing_switch": ["--emit-externs"]}
    ),
    Collection(
        HERE.parent / "tests" / "virtual" / "programs",
        ("queue_vectors",),
        {"pacing_switch": ["--emit-externs"]},
    ),
)


def sources_of(place: Collection, program: str) -> list[Path]:
    """Every file of ours that the program includes, directly or not, itself first."""
    found: list[Path] = []
    waiting = [place.folder / f"{program}.p4"]
    while waiting:
        source = waiting.pop()
        if source in found:
            continue
        found.append(source)
        for name in INCLUDE.findall(source.read_text()):
            beside = source.parent / name
            waiting.append(beside if beside.exists() else place.folder / name)
    return found[:1] + sorted(found[1:])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def command(place: Collection, program: str, target: str, out: Path) -> list[str]:
    """The compiler's command line; run in the folder, so that no output names an absolute path."""
    return [
        COMPILER,
        *place.target_flags[target],
        "-o",
        str(out / f"{program}.json"),
        "--p4runtime-files",
        str(out / f"{program}.p4info.txtpb"),
        f"{program}.p4",
    ]


def compiler_version() -> str:
    run = subprocess.run([COMPILER, "--version"], capture_output=True, text=True)
    text = run.stdout + run.stderr
    found = re.search(r"Version ([0-9.]+)", text)
    return found.group(1) if found else text.strip()


def compile_all(place: Collection, root: Path) -> None:
    """Compiles everything of a folder below `root`; a warning is an error."""
    for target in place.target_flags:
        out = root / target
        out.mkdir(parents=True, exist_ok=True)
        for program in place.programs:
            run = subprocess.run(
                command(place, program, target, out),
                cwd=place.folder,
                capture_output=True,
                text=True,
            )
            if run.returncode != 0 or run.stderr.strip():
                raise SystemExit(f"{program}.p4 for {target}:\n{run.stderr}")


def manifest_row(place: Collection, program: str, target: str) -> dict[str, object]:
    return {
        "program": program,
        "target": target,
        "command": command(place, program, target, Path("compiled") / target),
        "sources": digests(place, program),
        "outputs": {
            name: digest(place.compiled / target / name)
            for name in (f"{program}.json", f"{program}.p4info.txtpb")
        },
    }


def digests(place: Collection, program: str) -> dict[str, str]:
    """SHA-256 of each of a program's sources."""
    return {str(s.relative_to(place.folder)): digest(s) for s in sources_of(place, program)}


def manifest(place: Collection) -> dict[str, object]:
    rows = [
        manifest_row(place, program, target)
        for target in place.target_flags
        for program in place.programs
    ]
    return {"compiler": COMPILER, "compiler_version": compiler_version(), "programs": rows}


def stale_digests(place: Collection) -> list[str]:
    """The files in compiled/ that do not match their sources, one sentence each."""
    problems: list[str] = []
    kept = json.loads(place.manifest.read_text())
    for row in kept["programs"]:
        program, target = row["program"], row["target"]
        what = f"compiled/{target}/{program}.json"
        now = digests(place, program)
        problems.extend(
            f"{what}: {name} has changed since; run `make p4`"
            for name in sorted(now.keys() | row["sources"].keys())
            if now.get(name) != row["sources"].get(name)
        )
        for name, kept_digest in row["outputs"].items():
            if digest(place.compiled / target / name) != kept_digest:
                problems.append(f"compiled/{target}/{name} is not what p4c wrote; run `make p4`")
    return problems


def stale_outputs(place: Collection) -> list[str]:
    """Recompiles and compares, where the compiler has the manifest's version."""
    if shutil.which(COMPILER) is None:
        print(f"not compared with a fresh compilation: no {COMPILER} on PATH")
        return []
    kept = json.loads(place.manifest.read_text())["compiler_version"]
    if compiler_version() != kept:
        print(f"not compared: {COMPILER} is {compiler_version()}, the manifest names {kept}")
        return []
    with tempfile.TemporaryDirectory() as scratch:
        compile_all(place, Path(scratch))
        return [
            f"{fresh.relative_to(scratch)}: a fresh compilation differs; run `make p4`"
            for fresh in sorted(Path(scratch).glob("*/*"))
            if fresh.read_bytes() != (place.compiled / fresh.relative_to(scratch)).read_bytes()
        ]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="change nothing, report staleness")
    if arguments.parse_args().check:
        problems = [
            problem
            for place in COLLECTIONS
            for problem in stale_digests(place) + stale_outputs(place)
        ]
        print("\n".join(problems) or "compiled/ is fresh", file=sys.stderr)
        return 1 if problems else 0
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not on PATH: install p4c to change P4 programs", file=sys.stderr)
        return 2
    for place in COLLECTIONS:
        compile_all(place, place.compiled)
        place.manifest.write_text(json.dumps(manifest(place), indent=2) + "\n")
        print(f"compiled {', '.join(place.programs)} for {', '.join(place.target_flags)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

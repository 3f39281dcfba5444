#!/usr/bin/env python3
"""Runs STF tests on this project's switch and on stock BMv2, side by side.

    conformance.py --samples DIR [--target NAME ...] [--out FILE] [--only TEXT] [--jobs N]
    conformance.py --compile       compiles programs/ into compiled/ with p4c

DIR holds P4 programs with an STF file of the same name beside them (p4c's
testdata/p4_16_samples); those that include v1model.p4 are compiled with p4c from PATH and run.
A target that is not installed is "not run".

Exit status: 0 if pacing_switch passed whatever BMv2 passed and, where BMv2 did not run, all that
p4c compiles; 1 otherwise; 2 if p4c is needed and missing.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "virtual"))

import bmv2_target  # noqa: E402
import pacing_target  # noqa: E402
import simple_switch  # noqa: E402
import stf  # noqa: E402
from program import UnknownNameError  # noqa: E402
from runtime_commands import UntranslatableError  # noqa: E402

PROGRAMS = HERE / "programs"
COMPILED = HERE / "compiled"
MANIFEST = COMPILED / "manifest.json"
COMPILER = "p4c-bm2-ss"
# What runs the program, by target.
ENGINES = {"pacing_switch": "machine", "interpreter": "interpreter"}
TARGETS = ("pacing_switch", "bmv2")
_COMPILE_TIMEOUT_S = 300
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


@dataclass
class Row:
    """One test on all targets: `pass`, `fail` or `not run` each, and why."""

    file: str
    results: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def compile_program(source: Path, out: Path) -> str | None:
    """Compiles; returns the error, or None."""
    try:
        done = subprocess.run(
            [COMPILER, "-o", str(out), source.name],
            cwd=source.parent,
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"p4c is not finished after {_COMPILE_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return lines[0] if lines else f"p4c ended with status {done.returncode}"


def run_on(target: str, compiled: Path, test: Path) -> list[str]:
    """Runs a test; returns the differences from the expected outcome."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            commands = stf.read(test)
            beside = test.with_suffix(".runtime.json")
            extra = json.loads(beside.read_text()) if beside.exists() else {}
            engine = ENGINES.get(target)
            if engine is None:
                sent = bmv2_target.run(compiled, commands, folder, extra)
            else:
                sent = pacing_target.run(compiled, commands, folder, extra, engine)
        except (stf.StfError, UnknownNameError, pacing_target.RefusedError) as error:
            return [str(error)]
        return stf.differences(commands, sent)


def run_test(test: Path, targets: list[str], samples: Path, keep: Path | None) -> Row:
    """Compiles the program beside a test and runs it on each target."""
    row = Row(str(test.relative_to(samples)))
    with tempfile.TemporaryDirectory() as scratch:
        compiled = (keep or Path(scratch)) / f"{test.stem}.json"
        wrong = None
        if not compiled.exists():
            wrong = compile_program(test.with_suffix(".p4"), compiled)
        for target in targets:
            if wrong is not None:
                row.results[target], row.reasons[target] = "not run", wrong
            elif target == "bmv2" and not simple_switch.available():
                row.results[target] = "not run"
                row.reasons[target] = f"no {simple_switch.SWITCH} on PATH"
            else:
                try:
                    problems = run_on(target, compiled, test)
                except UntranslatableError as error:
                    row.results[target], row.reasons[target] = "not run", str(error)
                    continue
                row.results[target] = "fail" if problems else "pass"
                if problems:
                    row.reasons[target] = problems[0]
    return row


def tests_in(samples: Path) -> list[Path]:
    """The STF files whose program is for v1model."""

    def includes_v1model(program: Path) -> bool:
        text = program.read_text()
        beside = [samples / name for name in _INCLUDE.findall(text)]
        return "v1model.p4" in text or any(
            "v1model.p4" in file.read_text() for file in beside if file.exists()
        )

    return [
        test
        for test in sorted(samples.rglob("*.stf"))
        if test.with_suffix(".p4").exists() and includes_v1model(test.with_suffix(".p4"))
    ]


def compile_own() -> int:
    """Compiles the programs here and writes the manifest."""
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not on PATH", file=sys.stderr)
        return 2
    for source in sorted(PROGRAMS.glob("*.p4")):
        wrong = compile_program(source, COMPILED / f"{source.stem}.json")
        if wrong is not None:
            print(f"{source.name}: {wrong}", file=sys.stderr)
            return 1
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Version ([0-9.]+)", version)
    manifest = {
        "compiler": COMPILER,
        "compiler_version": found.group(1) if found else version.strip(),
        "programs": digests(),
    }
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")
    return 0


def digests() -> dict[str, dict[str, str]]:
    """SHA-256 of every source and of its compiled program."""

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    return {
        source.stem: {
            "source": digest(source),
            "frame": digest(PROGRAMS / "include" / "frame.p4"),
            "compiled": digest(COMPILED / f"{source.stem}.json"),
        }
        for source in sorted(PROGRAMS.glob("*.p4"))
    }


def report(rows: list[Row], targets: list[str]) -> None:
    width = max((len(row.file) for row in rows), default=0)
    for row in rows:
        results = "  ".join(f"{target}: {row.results[target]:7}" for target in targets)
        reasons = "; ".join(sorted(set(row.reasons.values())))
        print(f"{row.file:{width}}  {results}  {reasons}".rstrip())
    for target in targets:
        count = dict.fromkeys(("pass", "fail", "not run"), 0)
        for row in rows:
            count[row.results[target]] += 1
        print(f"{target}: " + ", ".join(f"{n} {name}" for name, n in count.items()))


def lacking(row: Row) -> bool:
    """Whether pacing_switch failed a test that it should pass."""
    mine, stock = row.results.get("pacing_switch", "not run"), row.results.get("bmv2", "not run")
    return mine == "fail" and stock != "fail"


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--samples", type=Path, help="folder with .p4 and .stf files")
    arguments.add_argument("--target", action="append", choices=TARGETS, help="default: both")
    arguments.add_argument("--only", default="", help="tests whose name contains this")
    arguments.add_argument("--out", type=Path, help="write the table as JSON")
    arguments.add_argument("--jobs", type=int, default=1, help="tests at once")
    arguments.add_argument("--keep", type=Path, help="keep (and use) compiled programs here")
    arguments.add_argument("--compile", action="store_true", help="compile programs/")
    given = arguments.parse_args()
    if given.compile:
        return compile_own()
    if given.samples is None:
        arguments.error("--samples DIR is missing")
    if given.samples.resolve() == PROGRAMS:
        given.keep = COMPILED
    if shutil.which(COMPILER) is None and given.keep is None:
        print(f"not run: {COMPILER} is not on PATH", file=sys.stderr)
        return 2
    targets = given.target or list(TARGETS)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    tests = [test for test in tests_in(given.samples) if given.only in test.name]
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(
            pool.map(lambda test: run_test(test, targets, given.samples, given.keep), tests)
        )
    report(rows, targets)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        table = [{"file": row.file, **row.results} for row in rows]
        given.out.write_text(json.dumps({"rows": table}, indent=1) + "\n")
    return 1 if any(lacking(row) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

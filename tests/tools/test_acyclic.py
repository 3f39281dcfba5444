"""tools/acyclic finds circles of modules, and nothing else, in a small workspace."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ACYCLIC = Path(__file__).resolve().parents[2] / "tools" / "acyclic"
pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="not run: no cargo")

Sources = dict[str, str]
# `parse` uses `table`; the rest of each test is added to these files.
ACYCLIC_CRATE: Sources = {
    "lib.rs": "pub mod parse;\npub mod table;\n",
    "parse.rs": "use crate::table::Table;\npub struct Parser(pub Table);\n",
    "table/mod.rs": "mod cells;\npub struct Table;\n",
    "table/cells.rs": "use super::Table;\npub fn read(_: &Table) {}\n",
}


def check(
    folder: Path, added: Sources, *crates: str, first: str = "lib.rs"
) -> "subprocess.CompletedProcess[str]":
    """Run tools/acyclic on a workspace of one crate, with sources added to its files."""
    source = folder / "switch" / "crates" / "example" / "src"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ACYCLIC, folder / "tools")
    sources = {first if name == "lib.rs" else name: code for name, code in ACYCLIC_CRATE.items()}
    for name in sources.keys() | added.keys():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(sources.get(name, "") + added.get(name, ""))
    package = '[package]\nname = "example"\nversion = "0.1.0"\nedition = "2024"\n'
    (source.parent / "Cargo.toml").write_text(package)
    workspace = '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n'
    (folder / "switch" / "Cargo.toml").write_text(workspace)
    lock = 'version = 4\n\n[[package]]\nname = "example"\nversion = "0.1.0"\n'
    (folder / "switch" / "Cargo.lock").write_text(lock)
    command = [sys.executable, str(folder / "tools" / "acyclic"), *crates]
    return subprocess.run(command, capture_output=True, text=True)


def steps(*lines: str) -> str:
    return "".join(f"  switch/crates/example/src/{line}\n" for line in lines)


CIRCLES = {
    "an import": (
        {"table/mod.rs": "use crate::parse::Parser;\n"},
        "table/mod.rs:3: crate::table uses crate::parse: crate::parse::Parser",
    ),
    "an import in a list, in a function": (
        {"table/mod.rs": "pub fn read() {\n    use super::{parse::{self as p, Parser}};\n}\n"},
        "table/mod.rs:4: crate::table uses crate::parse: super::parse",
    ),
    "a path in code": (
        {"table/mod.rs": "pub fn read(t: Table) {\n    crate::parse::Parser(t);\n}\n"},
        "table/mod.rs:4: crate::table uses crate::parse: crate::parse::Parser",
    ),
    "a path through the name of an imported module": (
        {"table/mod.rs": "use super::parse as p;\npub type P = p::Parser;\n"},
        "table/mod.rs:3: crate::table uses crate::parse: super::parse",
    ),
    "a path in the tokens of a macro": (
        {"table/mod.rs": "pub fn read() {\n    vec![(1, crate::parse::Parser::new())];\n}\n"},
        "table/mod.rs:4: crate::table uses crate::parse: crate::parse::Parser::new",
    ),
    "a path in the definition of a macro": (
        {"table/mod.rs": "macro_rules! parser {\n    () => { $crate::parse::Parser };\n}\n"},
        "table/mod.rs:4: crate::table uses crate::parse: $crate::parse::Parser",
    ),
    "a re-export": (
        {"lib.rs": "pub use parse::Parser;\n", "table/mod.rs": "use crate::Parser;\n"},
        "table/mod.rs:3: crate::table uses crate::parse: crate::Parser",
    ),
    "a re-export of all names": (
        {"lib.rs": "pub use parse::*;\n", "table/mod.rs": "pub type P = crate::Parser;\n"},
        "table/mod.rs:3: crate::table uses crate::parse: crate::Parser",
    ),
    "a module in a module's file": (
        {"table/mod.rs": "mod rows {\n    use super::super::parse::Parser;\n}\nuse rows::Row;\n"},
        None,
    ),
    "the signature of another module's type's method": (
        {"parse.rs": "pub struct Tree;\nimpl Table {\n    pub fn tree(&self) -> Tree {}\n}\n"},
        "parse.rs:5: crate::table uses crate::parse: Tree",
    ),
}


@pytest.mark.parametrize("which", CIRCLES)
def test_a_circle_is_found(tmp_path: Path, which: str) -> None:
    added, step = CIRCLES[which]
    ended = check(tmp_path, added)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("example: modules use each other in a circle:\n")
    if step is not None:
        back = "parse.rs:1: crate::parse uses crate::table: crate::table::Table"
        assert steps(step) in ended.stdout
        assert steps(back) in ended.stdout


def test_a_parent_and_its_child_may_not_use_each_other(tmp_path: Path) -> None:
    ended = check(tmp_path, {"table/mod.rs": "pub fn all() {\n    cells::read(&Table);\n}\n"})
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == "example: modules use each other in a circle:\n" + steps(
        "table/mod.rs:4: crate::table uses crate::table::cells: cells::read",
        "table/cells.rs:1: crate::table::cells uses crate::table: super::Table",
    )


def test_a_circle_of_a_program_is_found(tmp_path: Path) -> None:
    ended = check(tmp_path, {"table/mod.rs": "use crate::parse::Parser;\n"}, first="main.rs")
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("example (example): modules use each other in a circle:\n")


NO_CIRCLES = {
    "nothing": "",
    "tests": "#[cfg(test)]\nmod tests {\n    use crate::parse::Parser;\n}\n",
    "an item for tests": "#[cfg(all(test, unix))]\n/// One.\nuse crate::parse::Parser;\n",
    "a test": "/// One.\n#[test]\nfn one() {\n    crate::parse::Parser(Table);\n}\n",
    "documentation": "#[cfg(doc)]\nuse crate::parse::Parser;\n",
    "a comment": "// use crate::parse::Parser;\n/// [`crate::parse::Parser`]\npub struct A;\n",
    "a visibility": "pub(in crate::table) struct A;\n",
    "another crate's module of the same name": "use other::parse::Parser;\n",
    "a re-export of this module's item": "use crate::parse::Table as Same;\n",
    "an argument of another crate's type": (
        "mod rows {\n    use super::Table;\n    pub struct Row;\n"
        "    impl Table {\n        pub fn row(&self) -> Option<Row> {}\n    }\n}\n"
    ),
    "a method for tests": (
        "mod rows {\n    use super::Table;\n    pub struct Row;\n"
        "    impl Table {\n        #[cfg(test)]\n        pub fn row(&self) -> Row {}\n    }\n}\n"
    ),
}


@pytest.mark.parametrize("which", NO_CIRCLES)
def test_what_is_no_circle_passes(tmp_path: Path, which: str) -> None:
    ended = check(tmp_path, {"table/mod.rs": NO_CIRCLES[which]})
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_code_that_is_not_only_for_tests_counts(tmp_path: Path) -> None:
    for number, condition in enumerate(("not(test)", "any(test, unix)", 'feature = "test"')):
        added = {"table/mod.rs": f"#[cfg({condition})]\nuse crate::parse::Parser;\n"}
        assert check(tmp_path / str(number), added).returncode == 1, condition


def test_only_the_named_crates_are_checked(tmp_path: Path) -> None:
    ended = check(tmp_path, {}, "other")
    assert ended.returncode == 1
    assert ended.stderr == "tools/acyclic: the workspace has no crate other\n"


def test_what_the_parser_does_not_understand_is_no_success(tmp_path: Path) -> None:
    ended = check(tmp_path, {"table/mod.rs": "fn (\n"})
    assert ended.returncode == 1
    assert "does not understand switch/crates/example/src/table/mod.rs" in ended.stderr

#!/usr/bin/env python3
"""BMv2's own tests of its command line, on pacing_switch.

    bmv2_tests.py CHECKOUT      a checkout of BMv2's sources (github.com/p4lang/behavioral-model)

Each test in targets/simple_switch/tests/CLI_tests has a program, commands (NAME.in) and their
answers (NAME.out). pacing_switch runs the program, and the checkout's tools/runtime_CLI.py gives it
the commands over Thrift, by stubs of the checkout's interface files.

The programs are in a form of BMv2's JSON that p4c no longer writes, with primitives of P4_14. They
are rewritten in today's form (`as_today`). The tests send no packets, so actions get no primitives.

Prints "equal" for each test, or "different" and why: the commands whose answers differ, or what the
switch or the command line said at its end. Exit status: 0 all equal; 1 not; 2 wrong usage. Without
a Thrift compiler it says "not run", and 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pacing_switch import ProcessError, Switch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "virtual"))

from virtual_switch import binary

_TESTS = Path("targets", "simple_switch", "tests", "CLI_tests")
_COMMAND_LINE = Path("tools", "runtime_CLI.py")
_INTERFACES = Path("thrift_src")
_RUNNER = "./run_one_test.py"
_PROMPT, _MARK = "RuntimeCmd: ", "????\n"
_TIMEOUT_S = 120.0


class CheckoutError(Exception):
    """The folder is no checkout of BMv2's sources, or one of another kind."""


@dataclass(frozen=True)
class CliTest:
    """A test: its commands and answers, its program, options of the command line."""

    commands: Path
    answers: Path
    program: Path
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.commands.stem


def read_tests(checkout: Path) -> list[CliTest]:
    """The tests of a checkout.

    Raises:
        CheckoutError: there are none, or a test does not begin as all do in BMv2 1.15.5.

    """
    found = []
    for path in sorted((checkout / _TESTS).glob("*.test")):
        calls = [line for line in path.read_text().splitlines() if line.startswith(_RUNNER)]
        if len(calls) != 1:
            raise CheckoutError(f"{path} does not call {_RUNNER} once")
        _, folder, name, program, *options = shlex.split(calls[0])
        data = path.parent / folder.removeprefix("$srcdir/")
        found.append(
            CliTest(data / f"{name}.in", data / f"{name}.out", data / program, tuple(options))
        )
    if not found or not (checkout / _COMMAND_LINE).exists():
        raise CheckoutError(f"{checkout} has no {_TESTS}/*.test, or no {_COMMAND_LINE}")
    return found


def as_today(program: dict[str, Any]) -> dict[str, Any]:
    """The program in the form of p4c's JSON, without primitives; itself if it has this form."""
    if "__meta__" in program:
        return program
    numbers = {action["name"]: action["id"] for action in program["actions"]}
    return program | {
        "__meta__": {"version": [2, 0]},
        "actions": [action | {"primitives": []} for action in program["actions"]],
        "parsers": [_parser_as_today(parser) for parser in program["parsers"]],
        "pipelines": [_pipeline_as_today(each, numbers) for each in program["pipelines"]],
    }


def _parser_as_today(parser: dict[str, Any]) -> dict[str, Any]:
    """A parser whose transitions have types."""

    def typed(transition: dict[str, Any]) -> dict[str, Any]:
        if transition["value"] == "default":
            return {"type": "default"} | transition | {"value": None}
        return {"type": "hexstr"} | transition

    states = [
        state | {"transitions": [typed(each) for each in state["transitions"]]}
        for state in parser["parse_states"]
    ]
    return parser | {"parse_states": states}


def _pipeline_as_today(pipeline: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    """A pipeline whose tables have numbers of actions, and which has its action profiles."""
    tables: list[dict[str, Any]] = []
    profiles: list[dict[str, Any]] = []
    for old in pipeline["tables"]:
        table = {"action_ids": [numbers[name] for name in old["actions"]]} | old
        if name := table.pop("act_prof_name", None):
            profile = {"name": name, "id": len(profiles), "max_size": table["max_size"]}
            if selector := table.pop("selector", None):
                profile["selector"] = selector
            profiles.append(profile)
            table["action_profile"] = name
        tables.append(table)
    return {"action_profiles": profiles} | pipeline | {"tables": tables}


def differences(commands: Sequence[str], expected: str, said: str) -> list[str]:
    """A text for each answer that is not as expected, both as the command line shows them.

    The end, after the last prompt, is no answer.
    """
    wanted, got = (text.split(mark)[1:-1] for text, mark in ((expected, _MARK), (said, _PROMPT)))
    return [
        f"{command}\n    expected: {want!r}\n    answered: {have!r}"
        for command, want, have in zip_longest(commands, wanted, got, fillvalue="(nothing)")
        if want != have
    ]


def run(test: CliTest, command_line: Path, stubs: Path, folder: Path) -> list[str]:
    """Run a test; return the reasons why it is different, none if it is equal."""
    program = folder / test.program.name
    program.write_text(json.dumps(as_today(json.loads(test.program.read_text()))))
    commands = test.commands.read_text()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(stubs), *sys.path])}
    try:
        with Switch(program, options=("--thrift-port", "0"), binary=binary()) as switch:
            port = switch.wait_for_line(": Thrift at ").rpartition(":")[2]
            asked = subprocess.run(
                [sys.executable, str(command_line), "--thrift-port", port, *test.options],
                input=commands,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
    except ProcessError as error:
        return [str(error)]
    except subprocess.TimeoutExpired:
        return [f"the command line has not ended after {_TIMEOUT_S:.0f} s"]
    if asked.returncode != 0:
        return [f"the command line ended with {asked.returncode}: {asked.stderr.strip()[-500:]}"]
    return differences(commands.splitlines(), test.answers.read_text(), asked.stdout)


def run_all(checkout: Path) -> dict[str, list[str]]:
    """Run all tests of a checkout; return the reasons of each, by its name.

    Raises:
        CheckoutError: it has no tests as BMv2 1.15.5 has them, or interface files that `thrift`
            refuses.

    """
    tests = read_tests(checkout)
    with tempfile.TemporaryDirectory() as scratch:
        stubs = Path(scratch) / "stubs"
        stubs.mkdir()
        for interface in sorted((checkout / _INTERFACES).glob("*.thrift")):
            call = ["thrift", "--gen", "py", "-out", str(stubs), str(interface)]
            made = subprocess.run(call, capture_output=True, text=True)
            if made.returncode != 0:
                raise CheckoutError(f"{interface}: {made.stderr.strip()}")
        command_line = checkout / _COMMAND_LINE
        return {test.name: run(test, command_line, stubs, Path(scratch)) for test in tests}


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("checkout", type=Path, help="of BMv2's sources")
    checkout = arguments.parse_args().checkout.absolute()
    if shutil.which("thrift") is None:
        print("not run: there is no Thrift compiler (Debian's thrift-compiler)")
        return 0
    try:
        found = run_all(checkout)
    except CheckoutError as error:
        arguments.error(str(error))
    for name, reasons in found.items():
        print(f"{name}: {'different' if reasons else 'equal'}")
        for reason in reasons:
            print(f"  {reason}")
    different = sum(map(bool, found.values()))
    print(f"{len(found)} tests of BMv2's command line: {len(found) - different} equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

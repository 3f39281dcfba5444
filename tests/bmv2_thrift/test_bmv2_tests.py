"""BMv2's own tests of its command line, where BMV2 names a checkout; and how they are read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bmv2_tests import CheckoutError, as_today, differences, read_tests, run_all
from pacing_switch import Switch
from stubs import INTERFACES
from virtual_switch import binary

ROOT = Path(__file__).resolve().parents[2]
OLD: dict[str, Any] = {
    "actions": [{"name": "a", "id": 3, "primitives": [{"op": "drop"}]}, {"name": "b", "id": 4}],
    "parsers": [
        {
            "parse_states": [
                {"transitions": [{"value": "0x0800"}, {"value": "default", "mask": None}]}
            ]
        }
    ],
    "pipelines": [
        {
            "tables": [
                {"name": "t", "actions": ["b", "a"]},
                {"name": "u", "actions": [], "max_size": 9, "act_prof_name": "p"},
            ]
        }
    ],
}


@pytest.fixture
def checkout() -> Path:
    """A checkout of BMv2's sources, where there is a Thrift compiler."""
    if "BMV2" not in os.environ:
        pytest.skip("not run: BMV2 names no checkout of BMv2's sources")
    if shutil.which("thrift") is None:
        pytest.skip("not run: there is no Thrift compiler (Debian's thrift-compiler)")
    return Path(os.environ["BMV2"])


def test_bmv2s_tests_of_its_command_line_pass(checkout: Path) -> None:
    found = run_all(checkout)
    assert {name: why for name, why in found.items() if why} == {}


def test_the_page_makes_a_command_line_of_bmv2s_sources(checkout: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "thrift.md").read_text()
    section = page.partition("## The command line without building BMv2\n")[2]
    block = re.search(r"(?:^ {4}.*\n)+", section, re.MULTILINE)
    assert block is not None
    # Debian's packages and the checkout are here.
    lines = [line.strip() for line in block[0].splitlines()]
    script = "\n".join(line for line in lines if not line.startswith(("sudo apt", "git clone")))
    (tmp_path / "behavioral-model").symlink_to(checkout)
    script = script.replace("/usr/share/pacing-switch/thrift", str(INTERFACES))
    home = os.environ | {"HOME": str(tmp_path)}
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=home, check=True)
    command_line = tmp_path / "as-bmv2" / "simple_switch_CLI"
    program = ROOT / "tests/bench/programs/compiled/v1model/router.json"
    with Switch(program, options=("--thrift-port", "0"), binary=binary()) as switch:
        port = switch.wait_for_line(": Thrift at ").rpartition(":")[2]
        # Debian's Python has python3-thrift.
        asked = subprocess.run(
            ["/usr/bin/python3", command_line, "--thrift-port", port],
            input="set_queue_rate 100\nshow_tables\n",
            capture_output=True,
            text=True,
            check=True,
        )
    assert "RouterIngress.routes " in asked.stdout
    assert "rror" not in asked.stdout + asked.stderr


def test_a_program_of_the_old_form_is_rewritten() -> None:
    today = as_today(OLD)
    assert [action["primitives"] for action in today["actions"]] == [[], []]
    (state,) = today["parsers"][0]["parse_states"]
    assert state["transitions"] == [
        {"type": "hexstr", "value": "0x0800"},
        {"type": "default", "value": None, "mask": None},
    ]
    (pipeline,) = today["pipelines"]
    assert pipeline["action_profiles"] == [{"name": "p", "id": 0, "max_size": 9}]
    assert [table["action_ids"] for table in pipeline["tables"]] == [[4, 3], []]
    assert pipeline["tables"][1]["action_profile"] == "p"
    assert as_today(today) is today


def test_each_answer_that_is_not_as_expected_is_told() -> None:
    expected = "????\none\n????\ntwo\n????\n"
    said = "Control utility\nRuntimeCmd: one\nRuntimeCmd: two\nRuntimeCmd: \n"
    assert differences(["first", "second"], expected, said) == []
    (different,) = differences(["first", "second"], expected, said.replace("two", "2"))
    assert different == "second\n    expected: 'two\\n'\n    answered: '2\\n'"
    # The command line ended at the second.
    (missing,) = differences(["first", "second"], expected, said.partition("two")[0])
    assert missing.endswith("answered: '(nothing)'")


def test_the_tests_are_those_of_the_checkout(tmp_path: Path) -> None:
    with pytest.raises(CheckoutError):
        read_tests(tmp_path)
    folder = tmp_path / "targets" / "simple_switch" / "tests" / "CLI_tests"
    folder.mkdir(parents=True)
    call = "./run_one_test.py $srcdir/testdata mc_dump ecmp.json --pre SimplePreLAG\n"
    (folder / "mc_dump.test").write_text(f"#!/bin/sh\n{call}")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "runtime_CLI.py").touch()
    (test,) = read_tests(tmp_path)
    assert test.name == "mc_dump"
    assert test.answers == folder / "testdata" / "mc_dump.out"
    assert test.program == folder / "testdata" / "ecmp.json"
    assert test.options == ("--pre", "SimplePreLAG")
    (folder / "mc_dump.test").write_text("#!/bin/sh\n./another\n")
    with pytest.raises(CheckoutError, match="does not call"):
        read_tests(tmp_path)

"""The programs of this folder, one per feature, on the real switch in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import conformance
import pytest
import stf

TESTS = sorted(conformance.PROGRAMS.glob("*.stf"))


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.stem)
def test_program_behaves(test: Path) -> None:
    compiled = conformance.COMPILED / f"{test.stem}.json"
    assert conformance.run_on("pacing_switch", compiled, test) == []


def test_compiled_programs_are_fresh() -> None:
    kept = json.loads(conformance.MANIFEST.read_text())
    assert conformance.digests() == kept["programs"], "run `make p4`"


def test_every_program_has_a_test() -> None:
    assert {p.stem for p in conformance.PROGRAMS.glob("*.p4")} == {test.stem for test in TESTS}


def test_what_differs_is_said() -> None:
    commands: list[stf.Command] = [
        stf.Packet(1, b"\x01"),
        stf.Expect(2, "0*"),
        stf.Expect(3, "01$"),
        stf.Expect(4, None),
    ]
    assert stf.differences(commands, {2: [b"\x0f\x00"], 3: [b"\x01"], 4: [b"x"]}) == []
    wrong = stf.differences(commands, {1: [b""], 2: [b"\x10"], 3: [b"\x01\x02"]})
    assert [sentence.split(":")[0] for sentence in wrong] == [
        "port 1",
        "port 2, packet 0",
        "port 3, packet 0",
    ]


def test_a_line_that_is_no_stf_is_named(tmp_path: Path) -> None:
    test = tmp_path / "wrong.stf"
    test.write_text("packet 0 00\nfrobnicate 7\n")
    with pytest.raises(stf.StfError, match="line 2: unknown command 'frobnicate'"):
        stf.read(test)

"""The programs of this folder, one per feature, on the real switch in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import conformance
import pytest
import stf
from program import Program
from runtime_commands import UntranslatableError, commands

TESTS = sorted(conformance.PROGRAMS.glob("*.stf"))


@pytest.mark.parametrize("target", conformance.ENGINES)
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.stem)
def test_program_behaves(test: Path, target: str) -> None:
    compiled = conformance.COMPILED / f"{test.stem}.json"
    assert conformance.run_on(target, compiled, test) == []


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


def test_a_runtime_file_is_translated_for_stock_bmv2() -> None:
    program = Program(conformance.COMPILED / "matches.json")
    runtime = {
        "table_entries": [
            {
                "table": "lpm_t",
                "match": {"h.h.b": "0x1", "h.h.a": ["0xa000000", 8]},
                "action_name": "set",
                "action_params": {"v": "0x8"},
            },
            {
                "table": "I.ternary_t",
                "match": {"h.h.b": ["0x10", "0xf0"]},
                "priority": 3,
                "action_name": "I.miss",
            },
            {"table": "run_t", "default_action": True, "action_name": "miss"},
        ],
        "multicast_group_entries": [
            {"multicast_group_id": 4, "replicas": [{"egress_port": 2, "instance": 1}]}
        ],
        "clone_session_entries": [
            {"clone_session_id": 5, "replicas": [{"egress_port": 2, "instance": 1}]},
            {"clone_session_id": 6, "replicas": [{"egress_port": 3}]},
        ],
    }
    assert commands(program, runtime) == [
        "mirroring_add_mc 5 4",
        "mirroring_add 6 3",
        "mc_mgrp_create 4",
        "mc_node_create 1 2",
        "mc_node_associate 4 0",
        "table_add I.lpm_t I.set 0x1 0xa000000/8 => 0x8",
        "table_add I.ternary_t I.miss 0&&&0 0x10&&&0xf0 => 9997",
        "table_set_default I.run_t I.miss",
    ]


def test_what_the_command_line_has_no_words_for_is_named() -> None:
    program = Program(conformance.COMPILED / "odd_widths.json")
    long_prefix = {"table": "u", "match": {"h.h.e": ["0x0", 30]}, "action_name": "flip"}
    with pytest.raises(UntranslatableError, match="a prefix of 30 of 33 bits"):
        commands(program, {"table_entries": [long_prefix]})

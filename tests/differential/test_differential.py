"""The parts of the differential test: seeds, packets along a parser, the comparison.

The comparison with stock BMv2 itself needs `simple_switch`: `make differential`. BMv2's output for
a small case of each program is recorded in tests/conformance/programs and tested there.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import differential
import pytest
import stf_text
from entries import PORTS, EntryMaker
from packets import PacketMaker
from switches import Sent, run_pacing
from values import Values


def compiled(name: str) -> Path:
    return differential.COMPILED / f"{name}.json"


def test_a_seed_stands_for_its_case() -> None:
    first = differential.draw_case(compiled("router"), "1/router/0", 200)
    assert differential.draw_case(compiled("router"), "1/router/0", 200) == first
    assert differential.draw_case(compiled("router"), "2/router/0", 200) != first


def test_entries_fit_small_tables_and_profiles(tmp_path: Path) -> None:
    root = json.loads(compiled("ecmp").read_text())
    for pipeline in root["pipelines"]:
        for table in pipeline["tables"]:
            table["max_size"] = 2
        for profile in pipeline["action_profiles"]:
            profile["max_size"] = 2
    small = tmp_path / "small.json"
    small.write_text(json.dumps(root))
    most = 0
    for seed in range(20):
        draw = random.Random(seed)
        runtime = EntryMaker(small, draw, Values(small, draw)).runtime()
        entries = [e["table"] for e in runtime["table_entries"] if "match" in e]
        most = max(most, *(entries.count(name) for name in entries), 0)
        profiles = {member["action_profile"] for member in runtime["action_profile_members"]}
        assert profiles
        for name in profiles:
            members, groups = (
                [entry for entry in runtime[kind] if entry["action_profile"] == name]
                for kind in ("action_profile_members", "action_profile_groups")
            )
            assert len(members) <= 2
            assert sum(len(group["members"]) for group in groups) <= 2
    assert most == 2


@pytest.mark.parametrize("name", ["router", "options", "labels", "tunnels", "parser_errors"])
def test_packets_come_by_every_state_of_a_parser(name: str) -> None:
    draw = random.Random(1)
    maker = PacketMaker(compiled(name), draw, Values(compiled(name), draw))
    packets = [maker.packet() for _ in range(2000)]
    assert len(set(packets)) > 1000
    assert all(packets)
    assert maker.states_seen == set(maker.states)


def test_what_leaves_is_compared_in_order_where_that_is_defined() -> None:
    nothing: Sent = {port: [] for port in PORTS}
    one = nothing | {1: [b"a", b"b", b"b"]}
    assert differential.differing(one, one, ordered=True) == 0
    other_order = nothing | {1: [b"b", b"a", b"b"]}
    assert differential.differing(one, other_order, ordered=True) == 2
    assert differential.differing(one, other_order, ordered=False) == 0
    other_port = nothing | {2: [b"a", b"b", b"b"]}
    assert differential.differing(one, other_port, ordered=False) == 6
    assert differential.differing(one, nothing | {1: [b"a", b"b"]}, ordered=True) == 1


def test_order_is_not_defined_where_packets_go_round() -> None:
    assert differential.goes_round(compiled("rounds"))
    assert differential.goes_round(compiled("clones"))
    assert not differential.goes_round(compiled("router"))


def test_a_case_is_printed_as_stf() -> None:
    case = differential.draw_case(compiled("ecmp"), "3", 5)
    with tempfile.TemporaryDirectory() as folder:
        sent = run_pacing(case, Path(folder))
    lines = stf_text.text(case, sent).splitlines()
    assert sum(line.startswith("packet ") for line in lines) == 5
    assert sum(line.startswith("expect ") for line in lines) == sum(map(len, sent.values()))

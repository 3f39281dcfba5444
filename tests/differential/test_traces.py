"""The parts of the comparison of steps; the comparison itself needs `simple_switch`."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import differential
import pytest
import traces
from switches import Case, RunError, StockError, StockRefusedError, run_pacing

Compare = Callable[[Callable[[Case], None]], tuple[int, str]]
"""Runs the comparison with a stand-in for `simple_switch`; returns its status and its report."""
PREFIX = "[12:00:00.000] [bmv2] [D] [thread 7]"
LOG = f"""Calling target program-options parser
[12:00:00.000] [bmv2] [D] [thread 7] Set default entry for table 't': NoAction -
{PREFIX} [0.0] [cxt 0] Processing packet received on port 1
{PREFIX} [0.0] [cxt 0] Parser 'parser': start
{PREFIX} [0.0] [cxt 0] Parser 'parser' entering state 'start'
{PREFIX} [0.0] [cxt 0] Extracting header 'h'
{PREFIX} [0.0] [cxt 0] Extracting to header stack 2, next header is 7
{PREFIX} [0.0] [cxt 0] Parser 'parser': end
{PREFIX} [0.0] [cxt 0] Pipeline 'ingress': start
{PREFIX} [1.0] [cxt 0] Parser 'parser': start
{PREFIX} [0.0] [cxt 0] Looking up key:
* h.a                 : 00ff

{PREFIX} [0.0] [cxt 0] Table 't': hit with handle 3
{PREFIX} [0.0] [cxt 0] Dumping entry 3
Match key:
* h.a                 : EXACT     00ff
{PREFIX} [0.0] [cxt 0] Action entry is to - 2,1f,
{PREFIX} [0.0] [cxt 0] Pipeline 'ingress': end
{PREFIX} [0.1] [cxt 0] Parser 'parser': start
{PREFIX} [0.0] [cxt 0] Pipeline 'egress': start
{PREFIX} [0.0] [cxt 0] Transmitting packet of size 60 out of port 2
"""
INGRESS = (
    *(
        "parse",
        "state start",
        "extract h",
        "extract tags[0]",
        "ingress start",
        "key h.a ff",
        "table t hit 3",
    ),
    *("action to 2 1f", "ingress end"),
)
EGRESS = ("egress start", "transmit 60 2")


def test_a_log_is_read_as_passes() -> None:
    assert traces.passes_of_log(LOG, {7: "tags[0]"}) == {
        0: Counter({INGRESS: 1, EGRESS: 1, ("parse",): 1}),
        1: Counter({("parse",): 1}),
    }


def test_a_difference_is_told_unless_its_cause_is_known() -> None:
    mine, counted = {0: Counter({INGRESS: 1, EGRESS: 1})}, Counter[str]()
    again = {0: Counter({INGRESS: 1, EGRESS: 1, ("parse", "state start"): 1})}
    assert traces.differences(mine, again, counted) == []
    assert counted == {traces.PARSER_AGAIN: 1}
    other = {0: Counter({INGRESS: 1, ("egress start", "drop egress"): 1})}
    ((packet, how),) = traces.differences(mine, other, counted)
    assert packet == 0
    assert "transmit 60 2" in how
    assert "drop egress" in how
    assert len(traces.differences(mine, {}, counted)) == 1


def test_steps_of_the_structured_trace(tmp_path: Path) -> None:
    case = differential.draw_case(differential.COMPILED / "clones.json", "1", 40)
    run_pacing(case, tmp_path, ("--packet-trace", traces.TRACE_FILE))
    text = (tmp_path / traces.TRACE_FILE).read_text()
    read = traces.passes_of_traces(text)
    assert sorted(read) == list(range(40))
    for line in text.splitlines():
        trace = json.loads(line)
        ways = read[trace["input"].get("packet_id", 0)]
        assert all(way[0] in ("parse", "egress start") for way in ways)
        # Each packet that leaves has a way through egress.
        sent = sum(n for way, n in ways.items() if way[-1].startswith("transmit"))
        assert sent == line.count('"transmit":')


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """Run the comparison with programs of a folder, and with a stand-in for `simple_switch`."""
    for name in ("router", "clones"):
        shutil.copy(differential.COMPILED / f"{name}.json", tmp_path / f"folder_{name}.json")
    monkeypatch.setattr("simple_switch.available", lambda: True)
    monkeypatch.setattr(traces, "version", lambda: "1")
    monkeypatch.setattr(traces, "_PACKETS_AT_ONCE", 2)
    command = ["traces.py", "--only", "folder_", "--programs", str(tmp_path), "--packets", "8"]
    monkeypatch.setattr(sys, "argv", command)

    def run(stock: Callable[[Case], None]) -> tuple[int, str]:
        def run_both(case: Case) -> tuple[traces.Passes, traces.Passes]:
            stock(case)
            packets = range(len(case.packets))
            same: traces.Passes = {number: Counter({INGRESS: 1}) for number in packets}
            return same, same

        monkeypatch.setattr(traces, "run_both", run_both)
        return traces.main(), capsys.readouterr().out

    return run


def test_programs_of_a_folder_are_compared(compare: Compare) -> None:
    status, said = compare(lambda _: None)
    assert status == 0
    assert "folder_clones: 0 packets differ of 4\n" in said
    assert "0 packets differ of 8 with 72 steps over 2 programs, 0 not compared" in said


def test_packets_that_are_not_compared_are_counted_by_cause(compare: Compare) -> None:
    errors = iter([StockError("it ended"), None, StockRefusedError("an entry"), None])

    def stock(_: Case) -> None:
        if (error := next(errors)) is not None:
            raise error

    status, said = compare(stock)
    assert status == 0
    assert "not compared, 2 packets: simple_switch ends, or does not start\n" in said
    assert "not compared, 2 packets: simple_switch refuses an entry\n" in said
    assert "0 packets differ of 4 with 36 steps over 2 programs, 4 not compared" in said


def test_a_program_of_which_no_packet_is_compared_fails(compare: Compare) -> None:
    def stock(case: Case) -> None:
        if case.compiled.stem == "folder_clones":
            raise StockError("it ended")

    status, said = compare(stock)
    assert status == 1
    assert "no packet compared of folder_clones\n" in said


def test_a_case_that_pacing_switch_refuses_fails(compare: Compare) -> None:
    errors = iter([RunError("refused"), None, None, None])

    def stock(_: Case) -> None:
        if (error := next(errors)) is not None:
            raise error

    status, said = compare(stock)
    assert status == 1
    assert "not compared, 2 packets: pacing_switch refuses the case" in said

#!/usr/bin/env python3
"""The steps of the same random packets in pacing_switch and in stock simple_switch, compared.

    traces.py [--packets N] [--seed S] [--only NAME] [--programs DIR ...]

The programs, tables and packets are those of differential.py. The steps here are those of the
structured packet trace (--packet-trace); simple_switch's are read from its log at level `trace`:
parser states, headers extracted, conditions, tables with the packet's key and the handle of the
entry that it hits, actions with their data, headers emitted, drops, and ports and sizes of what
leaves.

A packet's steps are compared as passes: through parser and ingress, and through egress. Both
switches number copies in their own way, so the passes of a packet have no order.

CAUSES has the differences that are expected; any other is printed. The packets of a case that a
switch refuses or does not finish are not compared; the end of the report counts them by cause.

Exit status: 0 none but these; 1 others, a program of which no packet is compared, or a case that
pacing_switch refuses; 2 wrong usage. Without simple_switch on PATH it says "not run", and 0.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))
sys.path.insert(0, str(HERE.parent / "virtual"))

import simple_switch  # noqa: E402
from differential import add_choice, chosen, draw_case  # noqa: E402
from switches import Case, RunError, run_bmv2, run_pacing, version  # noqa: E402

PARSER_AGAIN = "simple_switch logs the parser a second time for a clone from ingress"
EXTRACT_BEFORE = "simple_switch logs a header before it knows that the packet is too short for it"
CAUSES = (PARSER_AGAIN, EXTRACT_BEFORE)
# Programs that are compared without their steps only (differential.py), and why.
WITHOUT_LOG = {
    "corners": "an action has a negative argument, and simple_switch ends where it logs one",
}
TRACE_FILE = "traces.json"
_BMV2_OPTIONS = ("--log-console", "--log-level", "trace", "--log-flush")
# The program drops a packet at the end of a control; `pruned` is a copy.
_DROPS = {"ingress-drop": "ingress", "egress-drop": "egress", "pruned": "egress"}
_PACKETS_AT_ONCE = 1000
_DIFFERENCES_SHOWN = 5

Pass = tuple[str, ...]
"""The steps of one way through parser and ingress, or through egress."""
Passes = dict[int, Counter[Pass]]
"""The passes of each packet, by its number."""

_LINE = re.compile(r"^\[.*?\] \[bmv2\] \[.\] (?:\[thread \d+\] )?\[(\d+)\.(\d+)\] \[cxt 0\] (.*)$")
# What simple_switch logs, and the step that it is.
_WORDS = [
    (re.compile(pattern), step)
    for pattern, step in (
        (r"Parser '.*': start", "parse"),
        (r"Parser '.*' entering state '(.*)'", "state {}"),
        (r"Extracting (?:variable-sized )?header '(.*)'", "extract {}"),
        (r"Pipeline '(.*)': (start|end)", "{} {}"),
        (r'.*Condition ".*" \((.*)\) is (true|false)', "condition {} {}"),
        (r"Table '(.*)': hit with handle (\d+)", "table {} hit {}"),
        (r"Table '(.*)': miss", "table {} miss"),
        (r"Deparsing header '(.*)'", "emit {}"),
        (r"Transmitting packet of size (\d+) out of port (\d+)", "transmit {} {}"),
        (r"Dropping packet at the end of (ingress|egress)", "drop {}"),
    )
]
# A header of a stack is logged by its number.
_IN_STACK = re.compile(r"Extracting to header (?:union )?stack .*, next header is (\d+)")
_ACTION = re.compile(r"Action entry is (.*?) - (.*)")
_KEY = re.compile(r"^\* (.*?)\s*: (.*)$")


def _starts_a_pass(step: str) -> bool:
    return step in ("parse", "egress start")


def passes(steps: list[str]) -> list[Pass]:
    """The passes of a copy of a packet."""
    found: list[list[str]] = []
    for step in steps:
        if _starts_a_pass(step) or not found:
            found.append([])
        found[-1].append(step)
    return [tuple(each) for each in found]


def _key(name: str, value: str) -> str:
    return f"key {name} {int(value.replace(' ', ''), 16):x}"


def steps_of_text(text: str, headers: dict[int, str]) -> list[str]:
    """The steps that simple_switch logs as one text; `headers` has the names by number."""
    if text.startswith("Looking up key:"):
        fields = (_KEY.match(line) for line in text.splitlines()[1:])
        return [_key(field[1], field[2]) for field in fields if field]
    if action := _ACTION.fullmatch(text):
        data = [f"{int(word, 16):x}" for word in action[2].split(",") if word.strip()]
        return [" ".join(["action", action[1], *data])]
    if in_stack := _IN_STACK.fullmatch(text):
        return [f"extract {headers[int(in_stack[1])]}"]
    for pattern, step in _WORDS:
        if found := pattern.fullmatch(text):
            return [step.format(*found.groups())]
    return []


def _texts(log: str) -> Iterator[tuple[int, int, str]]:
    """The texts about packets, with numbers of packet and copy; some have several lines."""
    packet, copy, text = -1, 0, ""
    for line in log.splitlines():
        if found := _LINE.match(line):
            yield packet, copy, text
            packet, copy, text = int(found[1]), int(found[2]), found[3]
        elif line.startswith("["):
            yield packet, copy, text
            packet = -1
        else:
            text += f"\n{line}"
    yield packet, copy, text


def headers_of(compiled: Path) -> dict[int, str]:
    """The names of a program's headers, by number."""
    return {each["id"]: each["name"] for each in json.loads(compiled.read_text())["headers"]}


def passes_of_log(log: str, headers: dict[int, str]) -> Passes:
    """The passes of the packets in simple_switch's log."""
    steps: dict[tuple[int, int], list[str]] = {}
    for packet, copy, text in _texts(log):
        if packet >= 0:
            steps.setdefault((packet, copy), []).extend(steps_of_text(text, headers))
    found: Passes = {}
    for (packet, _), of_copy in steps.items():
        found.setdefault(packet, Counter()).update(passes(of_copy))
    return found


def _value(text: str) -> str:
    return f"{int(text, 0):x}"


def _steps_of_event(event: dict[str, Any]) -> list[str]:
    ((kind, what),) = event.items()
    match kind:
        case "pipeline_stage" if what["stage_kind"] == "PARSER":
            return ["parse"] if what["direction"] == "ENTER" else []
        case "pipeline_stage" if what["stage_kind"] == "CONTROL":
            return [f"{what['stage_name']} {'start' if what['direction'] == 'ENTER' else 'end'}"]
        case "parser_state":
            return [f"state {what['name']}"]
        case "extract":
            return [f"extract {what['header']}"]
        case "condition":
            return [f"condition {what['name']} {str(what.get('holds', False)).lower()}"]
        case "table_lookup":
            keys = [_key(each["name"], each["value"]) for each in what.get("key", ())]
            found = f"hit {what.get('handle')}" if what.get("hit") else "miss"
            return [*keys, f"table {what['table']} {found}"]
        case "action":
            data = [_value(each["value"]) for each in what.get("args", ())]
            return [" ".join(["action", what["name"], *data])]
        case "emit":
            return [f"emit {what['header']}"]
        case _:
            return []


def _copies(tree: dict[str, Any], before: list[str]) -> Iterator[list[str]]:
    """The steps of each copy of a packet."""
    steps = [
        *before,
        *(step for event in tree.get("events", ()) for step in _steps_of_event(event)),
    ]
    if (sent := tree.get("transmit")) is not None:
        steps.append(f"transmit {sent.get('packet_size', 0)} {sent.get('egress_port', 0)}")
    if (drop := tree.get("drop")) is not None and drop["cause"] in _DROPS:
        steps.append(f"drop {_DROPS[drop['cause']]}")
    if (fork := tree.get("fork")) is None:
        yield steps
        return
    # The first branch is the packet itself.
    first, *others = fork["branches"]
    yield from _copies(first, steps)
    for other in others:
        yield from _copies(other, [])


def passes_of_traces(lines: str) -> Passes:
    """The passes of the packets in a file of traces."""
    found: Passes = {}
    for line in lines.splitlines():
        trace = json.loads(line)
        counted: Counter[Pass] = Counter()
        for steps in _copies(trace["root"], []):
            counted.update(passes(steps))
        found[trace["input"].get("packet_id", 0)] = counted
    return found


def _is_parser_only(each: Pass) -> bool:
    return each[0] == "parse" and "ingress start" not in each


def _without_last_header(each: Pass) -> Pass:
    """The pass without the header after which the parser has ended."""
    end = each.index("ingress start") if "ingress start" in each else 0
    return each[: end - 1] + each[end:] if each[end - 1].startswith("extract ") else each


def differences(mine: Passes, stock: Passes, counted: Counter[str]) -> list[tuple[int, str]]:
    """The packets whose passes differ, and how; the expected ones are only counted."""
    found = []
    for packet in sorted(mine.keys() | stock.keys()):
        ours, theirs = mine.get(packet, Counter()), stock.get(packet, Counter())
        here, there = ours - theirs, theirs - ours
        again = [each for each in there.elements() if _is_parser_only(each)]
        counted[PARSER_AGAIN] += len(again)
        there -= Counter(again)
        for each in list(there.elements()):
            shorter = _without_last_header(each)
            if here[shorter] > 0:
                counted[EXTRACT_BEFORE] += 1
                there -= Counter([each])
                here -= Counter([shorter])
        if here or there:
            texts = [f"  here: {each}" for each in here] + [f"  BMv2: {each}" for each in there]
            found.append((packet, "\n".join(texts)))
    return found


def run_both(case: Case) -> tuple[Passes, Passes]:
    """The passes in pacing_switch, and those in simple_switch."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        run_pacing(case, Path(one), ("--packet-trace", TRACE_FILE))
        run_bmv2(case, Path(other), _BMV2_OPTIONS)
        log = Path(other) / simple_switch.LOG
        return (
            passes_of_traces((Path(one) / TRACE_FILE).read_text()),
            passes_of_log(log.read_text(errors="replace"), headers_of(case.compiled)),
        )


@dataclass
class Tally:
    """The counts of a run, of one program or of all."""

    packets: int = 0
    steps: int = 0
    different: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    not_compared: Counter[str] = field(default_factory=Counter)
    """Packets by cause."""

    def add(self, other: Tally) -> None:
        """Adds the counts of a program."""
        self.packets += other.packets
        self.steps += other.steps
        self.different += other.different
        self.expected += other.expected
        self.not_compared += other.not_compared


def compare(compiled: Path, packets: int, seed: str) -> Tally:
    """Runs packets through a program in both switches, and prints what differs."""
    tally = Tally()
    for number, at in enumerate(range(0, packets, _PACKETS_AT_ONCE)):
        count = min(packets - at, _PACKETS_AT_ONCE)
        case_seed = f"{seed}/{compiled.stem}/{number}"
        name = f"# {compiled.stem}, seed {case_seed}"
        try:
            mine, stock = run_both(draw_case(compiled, case_seed, count))
        except RunError as error:
            print(f"{name}: {error}", flush=True)
            tally.not_compared[error.cause] += count
            continue
        tally.packets += count
        tally.steps += sum(len(each) * n for of in mine.values() for each, n in of.items())
        found = differences(mine, stock, tally.expected)
        tally.different += len(found)
        for packet, how in found[:_DIFFERENCES_SHOWN]:
            print(f"{name}, packet {packet}:\n{how}", flush=True)
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--packets", type=int, default=20_000, help="in all (default 20000)")
    add_choice(arguments)
    given = arguments.parse_args()
    if not simple_switch.available():
        print(f"not run: no {simple_switch.SWITCH} and {simple_switch.CLI} on PATH")
        return 0
    files = [path for path in chosen(given) if path.stem not in WITHOUT_LOG]
    if not files:
        arguments.error("no programs")
    total = Tally()
    none_compared = []
    for compiled in files:
        tally = compare(compiled, max(1, given.packets // len(files)), given.seed)
        total.add(tally)
        if not tally.packets:
            none_compared.append(compiled.stem)
        print(f"{compiled.stem}: {tally.different} packets differ of {tally.packets}", flush=True)
    for cause in CAUSES:
        print(f"expected, {total.expected[cause]} times: {cause}")
    for cause, packets in sorted(total.not_compared.items()):
        print(f"not compared, {packets} packets: {cause}")
    for name, why in WITHOUT_LOG.items():
        print(f"not run, {name}: {why}")
    if none_compared:
        print(f"no packet compared of {', '.join(none_compared)}")
    print(
        f"{total.different} packets differ of {total.packets} with {total.steps} steps over "
        f"{len(files)} programs, {total.not_compared.total()} not compared, seed {given.seed}, "
        f"{simple_switch.SWITCH} {version()}"
    )
    failed = total.different or none_compared or total.not_compared[RunError.cause]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""tc's words for egress queues: what the documentation says is taken, and the rest is named."""

import json
import re
from collections.abc import Iterator

import pytest

from controller_harness import ROOT
from pacer_controller.cli.connection import UsageError
from pacer_controller.cli.queues import changed, parse
from pacer_controller.cli.tc_words import translated
from pacer_controller.egress_queues import EgressQueuesSpec

PAGE = (ROOT / "docs/from-ryu-and-tc.md").read_text()


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of the lines of tables."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield line.strip("| ").split(" | ")


def commands() -> list[tuple[str, str]]:
    """Return the words of each `pacer queue set` of a table, and the queues beside it in JSON."""
    found = []
    for cells in rows(PAGE):
        command = re.match(r"`pacer queue set s1 2 ([^`]+)`", cells[1])
        if command is not None:
            body = re.search(r'\{"queues.*\}', cells[2])
            assert body is not None, cells[2]
            text = body[0]
            found.append((command[1], text if text.count("{") == text.count("}") else text[:-1]))
    return found


TABLE = list(rows(PAGE.partition("### Words of tc for egress queues\n")[2]))


@pytest.mark.parametrize(("words", "expected"), commands())
def test_a_command_of_the_page_is_the_request_beside_it(words: str, expected: str) -> None:
    made = EgressQueuesSpec.model_validate(changed({}, parse(words.split())))
    assert made == EgressQueuesSpec.model_validate(json.loads(expected))


def test_each_discipline_has_a_command() -> None:
    typed = " ".join(words for words, _ in commands())
    for name in ("prio", "drr", "rate", "ceil", "codel", "fq_codel", "dualpi2", "pie", "red"):
        assert f" {name} " in f" {typed} ", name


@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: cells[0])
def test_words_of_the_table_are_those_beside_them(cells: list[str]) -> None:
    words, same = (cell.strip("`") for cell in cells[1:])
    assert parse(words.split()) == parse([same])


@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: cells[0])
def test_the_table_names_all_words(cells: list[str]) -> None:
    name, *others = re.findall(r"`([a-z0-9_]+)`", cells[0])
    place = ["q0"] if name in ("htb", "drr") else []
    with pytest.raises(UsageError) as error:
        translated([*place, name, "word"])
    assert str(error.value) == f"{name}: unknown word 'word'; one of {', '.join(others)}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("codel", "aqm=codel"),
        ("codel interval 50ms noecn", "aqm=codel:5ms:50ms"),
        ("q0 codel ecn q1 pie", "q0.aqm=codel:ecn q1.aqm=pie"),
        ("q1 codel queues=2 pie", "q1.aqm=codel queues=2 aqm=pie"),
        ("fq_codel target 1ms ecn", "aqm=fq_codel:1ms:ecn"),
        ("red min 30000 max 90k", "aqm=red:30000B:90KB:0.02"),
        ("q1 rate 5mbit", "q1.min=5mbit q1.rate=5mbit"),
        ("q1 ceil 20mbit", "q1.rate=20mbit"),
        ("q1 codel rate 5mbit ceil 6mbit", "q1.aqm=codel q1.min=5mbit q1.rate=6mbit"),
        ("q1 htb cburst 16kb rate 5mbit", "q1.min=5mbit q1.rate=5mbit q1.burst=16KB"),
        ("prio", "queues=3 scheduler=strict"),
        ("q1 drr quantum 3036 q0 drr", "scheduler=drr:1:2"),
        ("queues=2 q0.rate=5mbit", "queues=2 q0.rate=5mbit"),
    ],
)
def test_words_become_key_and_value(words: str, expected: str) -> None:
    assert translated(words.split()) == expected.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("codl", "'codl' is not key=value, such as queues=8, and no word of tc; did you mean"),
        ("cake", "no word of tc; one of q0, codel, fq_codel, pie, dualpi2, red, htb, drr, prio"),
        ("tbf rate 1mbit", "'tbf' is no word here: the rate of a port is that of `pacer port set`"),
        ("q0 burst 9kb", "'burst' is no word here: the burst of a queue with a highest rate is"),
        ("q0", "q0 needs words of tc behind it, as in q0 codel"),
        ("q0 rate=5mbit", "q0 needs words of tc behind it, as in q0 codel"),
        ("rate 5mbit", "htb needs a queue before it, as in q0 htb rate RATE"),
        ("drr quantum 1518", "drr needs a queue before it, as in q0 drr quantum SIZE"),
        ("q0 rate 5mbit burst 15k", "htb: 'burst' is no word here: that of a minimum rate is"),
        ("q0 rate 5mbps", "rate: unit 'mbps' may mean bits or bytes"),
        ("q0 rate", "'rate' needs a value: rate RATE"),
        ("q0 rate 5mbit prio 1", "prio orders all queues, so write it before q0"),
        ("codel limit 1000", "codel: 'limit' is no word here: the depth is that of a queue"),
        ("codel target 5000", "codel: '5000' is not a time such as 5ms"),
        ("codel ecn noecn", "'noecn': ecn is set twice"),
        ("fq_codel noecn", "fq_codel: 'noecn' is no word here: fq_codel always marks"),
        ("pie tupdate 15ms", "pie: unknown word 'tupdate'; one of target, ecn, noecn"),
        ("red max 90KB", "red needs min SIZE and max SIZE"),
        ("red min 90KB max 30KB", "red: '90KB:30KB:0.02': MIN is not below MAX"),
        ("prio bands three", "bands: 'three' is not a whole number"),
        ("q0 drr quantum 1500", "quantum 1500 of q0 is not a multiple of 1518 bytes"),
        ("q0 drr quantum 0", "quantum 0 of q0 is not a multiple of 1518 bytes"),
        ("q1 drr quantum 1518", "drr: q0 has no quantum; each queue has one"),
        ("q0 drr q0 drr", "drr: the quantum of q0 is set twice"),
        ("codel aqm=pie", "aqm is set twice"),
    ],
)
def test_other_words_are_named(words: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(words.split())
    assert expected in str(error.value)

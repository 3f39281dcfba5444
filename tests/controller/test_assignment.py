"""The assignment of switches to controllers."""

import pytest

from pacer_controller.stores.etcd.assignment import Member, assign

SWITCHES = [f"s{number}" for number in range(100)]
STORED = frozenset(SWITCHES)


def loads(assigned: dict[str, str]) -> list[int]:
    return sorted(list(assigned.values()).count(name) for name in set(assigned.values()))


@pytest.mark.parametrize("count", range(1, 8))
def test_loads_differ_by_one_at_most(count: int) -> None:
    members = {f"m{number}": Member() for number in range(count)}
    found = loads(assign(members, SWITCHES, STORED))
    assert len(found) == count
    assert sum(found) == len(SWITCHES)
    assert found[-1] - found[0] <= 1


def test_the_order_of_what_is_known_does_not_count() -> None:
    members = {f"m{number}": Member() for number in range(3)}
    there = dict(reversed(members.items()))
    assert assign(members, SWITCHES, STORED) == assign(there, reversed(SWITCHES), STORED)


def test_few_switches_move_when_a_controller_goes() -> None:
    members = {f"m{number}": Member() for number in range(4)}
    before = assign(members, SWITCHES, STORED)
    del members["m2"]
    after = assign(members, SWITCHES, STORED)
    moved = [one for one in SWITCHES if before[one] != "m2" and before[one] != after[one]]
    assert len(moved) < 20


def test_a_switch_that_does_not_answer_goes_elsewhere() -> None:
    members = {"a": Member(cannot=frozenset(SWITCHES[:10])), "b": Member()}
    assigned = assign(members, SWITCHES, STORED)
    assert {assigned[one] for one in SWITCHES[:10]} == {"b"}
    nowhere = {name: Member(cannot=STORED) for name in "ab"}
    assert len(assign(nowhere, SWITCHES, STORED)) == len(SWITCHES)


def test_who_does_not_know_a_switch_does_not_drive_it() -> None:
    members = {"a": Member(configured=frozenset({"own"})), "b": Member()}
    assert assign(members, ["own", "other"], frozenset({"other"})) == {"own": "a", "other": "b"}
    assert assign(members, ["unknown"], frozenset()) == {}
    assert assign({}, SWITCHES, STORED) == {}

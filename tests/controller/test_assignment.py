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
    found = loads(assign(members, SWITCHES, STORED, {}))
    assert len(found) == count
    assert sum(found) == len(SWITCHES)
    assert found[-1] - found[0] <= 1


def test_the_order_of_what_is_known_does_not_count() -> None:
    members = {f"m{number}": Member() for number in range(3)}
    there = dict(reversed(members.items()))
    assert assign(members, SWITCHES, STORED, {}) == assign(there, reversed(SWITCHES), STORED, {})


def test_only_the_switches_of_a_controller_that_goes_move() -> None:
    members = {f"m{number}": Member() for number in range(4)}
    before = assign(members, SWITCHES, STORED, {})
    del members["m2"]
    after = assign(members, SWITCHES, STORED, before)
    assert {one for one in SWITCHES if before[one] != after[one]} == {
        one for one in SWITCHES if before[one] == "m2"
    }
    assert max(loads(after)) - min(loads(after)) <= 1


def test_a_controller_that_comes_gets_its_share_and_no_other_switch_moves() -> None:
    before = assign({"a": Member(), "b": Member()}, SWITCHES, STORED, {})
    members = {name: Member() for name in "abc"}
    assert assign(members, SWITCHES, STORED, before, balance=False) == before
    after = assign(members, SWITCHES, STORED, before)
    moved = [one for one in SWITCHES if before[one] != after[one]]
    assert loads(after) == [33, 33, 34]
    assert {after[one] for one in moved} == {"c"}
    assert len(moved) in (33, 34)


def test_a_switch_that_is_added_moves_no_other() -> None:
    members = {name: Member() for name in "abc"}
    before = assign(members, SWITCHES, STORED, {})
    more = [*SWITCHES, "new"]
    after = assign(members, more, frozenset(more), before)
    assert after == {**before, "new": after["new"]}


@pytest.mark.parametrize(("given", "moves"), [(2, 0), (4, 2)])
def test_small_differences_stay(given: int, moves: int) -> None:
    """A 20th of 50 switches more than the other, and one, is no reason to move any."""
    held = {one: "a" if n < 50 + given // 2 else "b" for n, one in enumerate(SWITCHES)}
    after = assign({"a": Member(), "b": Member()}, SWITCHES, STORED, held)
    assert sum(after[one] != held[one] for one in SWITCHES) == moves


def test_a_switch_that_does_not_answer_goes_elsewhere() -> None:
    members = {"a": Member(cannot=frozenset(SWITCHES[:10])), "b": Member()}
    assigned = assign(members, SWITCHES, STORED, {})
    assert {assigned[one] for one in SWITCHES[:10]} == {"b"}
    nowhere = {name: Member(cannot=STORED) for name in "ab"}
    assert len(assign(nowhere, SWITCHES, STORED, {})) == len(SWITCHES)


def test_who_does_not_know_a_switch_does_not_drive_it() -> None:
    members = {"a": Member(configured=frozenset({"own"})), "b": Member()}
    both = assign(members, ["own", "other"], frozenset({"other"}), {})
    assert both == {"own": "a", "other": "b"}
    assert assign(members, ["unknown"], frozenset(), {}) == {}
    assert assign({}, SWITCHES, STORED, {}) == {}

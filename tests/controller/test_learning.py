"""The packets from which the controller learns a station."""

from pacer_controller.entries import FORWARD, SOURCES
from pacer_controller.learning import AGEING_S, Learning, forward_row, source_row
from pacer_controller.rows import Change, Op, Row

A = 0x020000000001
B = 0x020000000002


def frame(source: int) -> bytes:
    return b"\xff" * 6 + source.to_bytes(6, "big") + b"\x08\x00" + bytes(46)


def learn(learning: Learning, source: int, port: int, now_s: float = 0.0) -> list[Change]:
    changes = learning.packet(frame(source), port)
    if changes:
        learning.learned(source, port, now_s)
    return changes


def age(learning: Learning, now_s: float) -> list[Change]:
    """Age the stations that are due; the switch takes every change."""
    due = learning.ageing(now_s, 100)
    for change in due:
        learning.aged(change, now_s)
    return due


def test_new_station() -> None:
    learning = Learning(capacity=10)
    assert learn(learning, A, 1) == [
        Change(Op.INSERT, forward_row(A, 1)),
        Change(Op.INSERT, source_row(A, 1)),
    ]
    assert learn(learning, A, 1) == []
    assert learning.counters.learned == 1
    assert learning.counters.repeated == 1


def test_moved_station_leaves_nothing_behind() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1)
    assert learn(learning, A, 2) == [
        Change(Op.MODIFY, forward_row(A, 2)),
        Change(Op.INSERT, source_row(A, 2)),
        Change(Op.DELETE, source_row(A, 1)),
    ]
    assert learning.ports == {A: 2}
    assert learning.counters.moved == 1


def test_refused_write_is_not_learned() -> None:
    learning = Learning(capacity=10)
    assert learning.packet(frame(A), 1)
    assert learning.packet(frame(A), 1)
    assert learning.ports == {}


def test_full_table_is_counted_and_moves_still_work() -> None:
    learning = Learning(capacity=1)
    learn(learning, A, 1)
    assert learn(learning, B, 1) == []
    assert learning.counters.table_full == 1
    assert len(learn(learning, A, 2)) == 3


def test_useless_sources_are_ignored() -> None:
    learning = Learning(capacity=10)
    for payload in (b"", b"\xff" * 13, frame(0), frame(0x010000000001), frame(2**48 - 1)):
        assert learning.packet(payload, 1) == []
    assert learning.counters.ignored == 5


def test_pinned_station_stays() -> None:
    learning = Learning(capacity=10, pinned={A: 1})
    mends = learning.adopt([], 0.0)
    assert {(c.op, c.row.table) for c in mends} == {(Op.INSERT, FORWARD), (Op.INSERT, SOURCES)}
    assert learn(learning, A, 2) == []
    assert learning.counters.pinned == 1


def test_adopting_mends_contradictions() -> None:
    learning = Learning(capacity=10)
    present: list[Row] = [forward_row(A, 1), source_row(A, 2), source_row(B, 1)]
    mends = learning.adopt(present, 0.0)
    assert set(mends) == {
        Change(Op.INSERT, source_row(A, 1)),
        Change(Op.DELETE, source_row(A, 2)),
        Change(Op.DELETE, source_row(B, 1)),
    }
    assert learning.ports == {A: 1}


def test_adopting_what_is_right_changes_nothing() -> None:
    learning = Learning(capacity=10)
    assert learning.adopt([forward_row(A, 1), source_row(A, 1)], 0.0) == []


def test_a_silent_station_is_asked_and_then_forgotten() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1, now_s=0.0)
    learn(learning, B, 2, now_s=1.0)
    assert age(learning, AGEING_S - 0.1) == []
    # Packets to it go to its port as before, and its own next one comes to the controller.
    assert age(learning, AGEING_S) == [Change(Op.DELETE, source_row(A, 1))]
    assert learning.ports == {A: 1, B: 2}
    assert age(learning, 2 * AGEING_S) == [
        Change(Op.DELETE, forward_row(A, 1)),
        Change(Op.DELETE, source_row(B, 2)),
    ]
    assert learning.ports == {B: 2}
    assert learning.counters.aged == 1


def test_a_station_that_answers_stays() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1, now_s=0.0)
    age(learning, AGEING_S)
    assert learn(learning, A, 1, now_s=AGEING_S + 1) == [Change(Op.INSERT, source_row(A, 1))]
    assert learning.counters.confirmed == 1
    assert age(learning, 2 * AGEING_S) == []
    assert age(learning, 2 * AGEING_S + 1) == [Change(Op.DELETE, source_row(A, 1))]


def test_a_station_that_moves_while_it_is_asked() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1, now_s=0.0)
    age(learning, AGEING_S)
    assert learn(learning, A, 2, now_s=AGEING_S) == [
        Change(Op.MODIFY, forward_row(A, 2)),
        Change(Op.INSERT, source_row(A, 2)),
    ]
    assert age(learning, AGEING_S + 1) == []


def test_pinned_stations_do_not_age() -> None:
    learning = Learning(capacity=10, pinned={A: 1})
    learning.adopt([], 0.0)
    assert age(learning, 10 * AGEING_S) == []


def test_a_reconcile_neither_asks_nor_answers_for_a_station() -> None:
    learning = Learning(capacity=10)
    learn(learning, A, 1, now_s=0.0)
    learn(learning, B, 2, now_s=AGEING_S / 2)
    age(learning, AGEING_S)
    present = [forward_row(A, 1), forward_row(B, 2), source_row(B, 2)]
    assert learning.adopt(present, AGEING_S + 1) == []
    assert age(learning, 1.5 * AGEING_S) == [Change(Op.DELETE, source_row(B, 2))]
    assert age(learning, 2 * AGEING_S) == [Change(Op.DELETE, forward_row(A, 1))]


def test_as_many_are_aged_at_once_as_asked_for() -> None:
    learning = Learning(capacity=100)
    for number in range(1, 11):
        learn(learning, number, 1, now_s=0.0)
    assert len(learning.ageing(AGEING_S, 4)) == 4


def test_no_port_takes_the_places_of_all_others() -> None:
    learning = Learning(capacity=100)
    for number in range(1, 1000):
        learn(learning, number, 1)
    assert len(learning.ports) == 50
    assert learning.counters.port_full == 949
    assert learning.counters.table_full == 0
    # Another port finds room, and a station of the full port may move there.
    learn(learning, A, 2)
    assert learning.ports[A] == 2
    learn(learning, 1, 2)
    assert learning.ports[1] == 2
